"""Removes tensors that segments store for others: each reader recomputes such a tensor if that moves no more bytes.

    [t2 = cast(t0)]  [t3 = sum(t2, rows)]  [t4 = sum(t2, columns)]      ->      [t2, t3]  [t2, t4]

A tensor is recomputed if it is cheap to compute from tensors that exist anyway (inputs, or what earlier segments store), and
if that reads no more bytes than storing it and reading it again. Tensors that a reader reads anyway cost nothing. A segment
without readers is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import Fusion, Pointwise, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.sub_fusion import exprs_for
from fuser.schedule.segmentation.partition_fusion import RECOMPUTABLE, extract_part, ranks
from fuser.schedule.segmentation.segment import Segment, SizeRefusal, accepted_segment


def recompute_boundaries(
    fusion: Fusion, segments: Sequence[Segment], size_refusals: Collection[SizeRefusal]
) -> list[Segment]:
    """The segments that a fusion was cut into, with less that is stored between them."""
    found = list(segments)
    boundaries = _Boundaries(fusion, size_refusals)
    for k in reversed(range(len(found))):
        while k < len(found):
            stored = boundaries.only_stored(found[k])
            ways = (boundaries.without(found, k, wanted) for wanted in dict.fromkeys((stored, *((t,) for t in stored))))
            changed = next((way for way in ways if way is not None), None)
            if changed is None:
                break
            found = changed
    return found


class _Boundaries:
    def __init__(self, fusion: Fusion, size_refusals: Collection[SizeRefusal]) -> None:
        self.fusion = fusion
        self.unfit = size_refusals
        self.rank = ranks(fusion)
        self.known = {t.name: t for t in self.rank}
        self.shown = set(fusion.output_tensors)
        self.updated = {o.alias_of for o in fusion.outputs if o.alias_of is not None}

    def only_stored(self, segment: Segment) -> tuple[Tensor, ...]:
        """Tensors that a segment computes only for others, and that these can recompute; none of co-resident kernels."""
        if not segment.has_kernel or segment.starts_next or segment.co_resident:
            return ()
        made = self._inputs(segment)
        stored = [t for t in segment.fusion.output_tensors if t in self.known.values() and t not in self.shown]
        return tuple(t for t in stored if self._is_cheap(t, made))

    def without(self, segments: Sequence[Segment], k: int, dropped: Collection[Tensor]) -> list[Segment] | None:
        """The segments where readers of what one of them stores compute it; None if that is no better, or nobody takes them."""
        if not dropped:
            return None
        maker = segments[k]
        outputs = [t for t in maker.fusion.output_tensors if t not in dropped]
        names = {t.name for t in dropped}
        readers = [n for n in range(k + 1, len(segments)) if names & {t.name for t in segments[n].fusion.input_tensors}]
        given = self._inputs(maker)
        below = exprs_for(self.fusion, dropped, given)
        computed = {t for e in below for t in tensor_outputs(e)}
        leaves = {t for e in below for t in tensor_inputs(e)} - computed
        size = max(self.rank[t] for t in dropped)

        def nbytes(tensors: Collection[Tensor]) -> int:
            # Tensors of smaller rank count as free.
            return sum(t.dtype.itemsize for t in tensors if self.rank[t] >= size)

        saved = nbytes(dropped)
        again = 0
        for n in readers:
            own = self._inputs(segments[n])
            saved += nbytes([t for t in dropped if t in own])
            again += nbytes(leaves - own)
        saved += nbytes(given) if not outputs else 0
        if again > saved or (again == saved and outputs):
            return None
        changed = list(segments)
        for n in (k, *readers) if outputs else readers:
            wanted = outputs if n == k else segments[n].fusion.output_tensors
            made = (given if n == k else self._inputs(segments[n]) | leaves) - set(dropped)
            new = accepted_segment(*extract_part(self.fusion, wanted, made), self.unfit)
            if new is None:
                return None
            changed[n] = replace(new, starts_next=segments[n].starts_next, co_resident=segments[n].co_resident)
        return changed if outputs else [s for n, s in enumerate(changed) if n != k]

    def _inputs(self, segment: Segment) -> frozenset[Tensor]:
        return frozenset(self.known[t.name] for t in segment.fusion.input_tensors if t.name in self.known)

    def _is_cheap(self, t: Tensor, made: Collection[Tensor]) -> bool:
        """Whether it is computed of what a segment reads by exprs that several kernels may have."""
        below = exprs_for(self.fusion, (t,), made)
        is_cheap = all(isinstance(e, RECOMPUTABLE) for e in below)
        is_end = any(isinstance(e, Pointwise) and e.op == "segment_set" for e in below)
        return is_cheap and not is_end and self.updated.isdisjoint(s for e in below for s in tensor_inputs(e))
