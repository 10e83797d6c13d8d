"""Splits a fusion that no scheduler accepts into parts, with little data passed between their kernels.

    t1 = cast(t0); t2 = sum(t1, pixels); t3 = sum(t2, channels); t4 = rsqrt(t3); t5 = mul(t1, broadcast(t4))
    ->  [t1, t2]   [t3, t4]   [t1, t5]

    q = rotate(t1, cast(t0)); k = rotate(t2, cast(t0))      ->      [cast(t0), q]   [cast(t0), k]

Two things decide where. *Levels*: a value is on a lower level than its reader if it must be complete before it is read: a
reduction is below values that have the reduced dims again, a tensor below its reads at other indices. *Materialised* tensors,
which a kernel stores and another reads: results of reductions, scans and random draws, and values computed from more bytes
than storing and reading them again takes. All others are recomputed in each kernel that needs them.

Outputs that share no materialised tensor are split apart. The rest is split below the highest level whose materialised tensors
schedulers accept, and what remains again in the same way. At last, parts that read the same large input, or compute the same
large values of small ones, are fused, if a scheduler accepts them together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Full,
    Fusion,
    Gather,
    Iota,
    Output,
    Permute,
    Pointwise,
    Reducing,
    Reshape,
    Resize,
    Scan,
    Squeeze,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.sub_fusion import exprs_for, sub_fusion, tensor_expr
from fuser.ir.integers.integers import Symbol
from fuser.schedule.analysis.input_reads import is_displaced

Part = tuple[Fusion, tuple[Symbol, ...]]
"""Exprs as a fusion of their own, and the extents that it gets as inputs."""

RECOMPUTABLE = (Pointwise, Broadcast, Squeeze, Expand, Permute, Full, Iota, Resize, Cat, Gather)
"""Exprs that several kernels may compute, each for itself."""


def partition_fusion(fusion: Fusion, is_accepted: Callable[[Fusion], bool]) -> list[Part]:
    """Parts in topological order. Schedulers accept each of them, except those that cannot be split in this way."""
    return _Partitioner(fusion, is_accepted).run()


class _PlannedPart(NamedTuple):
    """A part before it is a fusion: the tensors that it computes, and those that earlier parts have computed."""

    wanted: tuple[Tensor, ...]
    made: frozenset[Tensor]


class _Partitioner:
    """One use: `run()`.

    level     of each computed tensor; inputs have level 0
    rank      number of a tensor's dims with several elements, in place of its size, which is not known yet
    sources   the materialised tensors and inputs that a tensor is computed from; the tensor itself if it is materialised
    """

    def __init__(self, fusion: Fusion, is_accepted: Callable[[Fusion], bool]) -> None:
        self.fusion = fusion
        self.is_accepted = is_accepted
        self.definitions = {t: e for e in fusion.tensor_exprs for t in tensor_outputs(e)}
        repeated_broadcasts = _repeated_broadcasts(fusion)
        self.level = _levels(fusion, repeated_broadcasts)
        self.rank = ranks(fusion)
        self.order = {t: k for k, t in enumerate(self.rank)}
        self.sources = _sources(fusion, self.rank, repeated_broadcasts)

    def run(self) -> list[Part]:
        """See `partition_fusion`."""
        wanted = [t for t in self.fusion.output_tensors if t in self.definitions]
        return [self._part(p.wanted, p.made) for p in self._merge_parts(self._split(wanted, frozenset()))]

    def _split(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[_PlannedPart]:
        found: list[_PlannedPart] = []
        while True:
            part = _PlannedPart(tuple(wanted), made)
            if self.is_accepted(self._part(wanted, made)[0]):
                return [*found, part]
            subsets = self._independent_subsets(wanted, made)
            if len(subsets) > 1:
                return [*found, *(p for subset in subsets for p in self._split(subset, made))]
            early = self._first_parts(wanted, made)
            if not early:
                return [*found, part]
            for subset in early:
                found += self._split(subset, made)
            made |= {t for subset in early for t in subset}

    def _merge_parts(self, parts: list[_PlannedPart]) -> list[_PlannedPart]:
        """The parts, with those merged that read the same largest input, or compute the same values of that size, where
        neither waits for what is between them."""
        k = 0
        while k < len(parts):
            pairs = ((n, self._merge_pair(parts, k, n)) for n in range(k + 1, len(parts)))
            found = next(((n, joined) for n, joined in pairs if joined is not None), None)
            if found is None:
                k += 1
                continue
            later, (place, part) = found
            parts = [part if n == place else p for n, p in enumerate(parts) if n == place or n not in (k, later)]
        return parts

    def _merge_pair(self, parts: Sequence[_PlannedPart], first: int, second: int) -> tuple[int, _PlannedPart] | None:
        """Two parts merged, and its position, after its inputs and before its readers; None if they are not to be merged."""
        a, b = parts[first], parts[second]
        shared = self._largest(a) & self._largest(b)
        if not shared:
            return None
        between = parts[first + 1 : second]
        # A part that needs results of the other one waits for them: for values that both compute that gains nothing.
        is_read_twice = not shared.issubset(self.definitions)
        made_since = {t for p in (between if is_read_twice else parts[first:second]) for t in p.wanted}
        if made_since.isdisjoint(self._reads(b)):
            place = first
        elif set(a.wanted).isdisjoint(frozenset().union(self._reads(b), *map(self._reads, between))):
            place = second
        else:
            return None
        # What nothing else reads of the first one is not stored: nor does the other one read it as if it were.
        stored = {t for p in parts[:place] if p is not a for t in p.wanted}
        others = frozenset[Tensor]().union(*(self._reads(p) for p in parts if p is not a and p is not b))
        shown = others.union(self.fusion.output_tensors)
        wanted = tuple(t for t in dict.fromkeys((*a.wanted, *b.wanted)) if t in shown)
        joined = _PlannedPart(wanted, (a.made | b.made) & stored)
        return (place, joined) if self.is_accepted(self._part(*joined)[0]) else None

    def _reads(self, part: _PlannedPart) -> frozenset[Tensor]:
        exprs = self._exprs_for(part.wanted, part.made)
        computed = {t for e in exprs for t in tensor_outputs(e)}
        return frozenset(t for e in exprs for t in tensor_inputs(e) if t not in computed)

    def _largest(self, part: _PlannedPart) -> frozenset[Tensor]:
        """Inputs of the fusion, and what a part computes and does not store, with as many dims as any tensor of the part."""
        exprs = self._exprs_for(part.wanted, part.made)
        computed = {t for e in exprs for t in tensor_outputs(e)}
        read = {t for e in exprs for t in tensor_inputs(e)} - computed
        most = max((self.rank[t] for t in (*read, *computed)), default=0)
        shared = computed.difference(part.wanted) | {t for t in read if t not in self.definitions}
        return frozenset(t for t in shared if self.rank[t] == most)

    def _first_parts(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Subsets of tensors to compute in earlier parts: as many as are accepted. Empty if all have one level."""
        subsets = self._accepted_first_parts(wanted, made)
        if len(subsets) < 2:
            return subsets
        for subset in subsets:
            others = [other for other in subsets if other is not subset]
            if self.is_accepted(self._part(wanted, made.union(*others))[0]):
                return others
        return subsets

    def _accepted_first_parts(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Subsets of the highest level at which all are accepted. If there is no such level, refused subsets are replaced by
        tensors that they are computed from. If that fails, too: the last subsets that were tried."""
        tried: list[list[Tensor]] = []
        subsets: list[list[Tensor]] = []
        ends = range(max(map(self.level.__getitem__, wanted)), -1, -1)
        for goes_on, end, only_materialised in itertools.product((False, True), ends, (False, True)):
            early = self._boundary_tensors(wanted, made, end, only_materialised=only_materialised)
            while early and (goes_on or early not in tried):
                refused = list(wanted)
                if not set(wanted).issubset(early):
                    tried.append(early)
                    subsets = self._independent_subsets(early, made)
                    refused = [
                        t for subset in subsets if not self.is_accepted(self._part(subset, made)[0]) for t in subset
                    ]
                    if not refused:
                        return subsets
                if not goes_on:
                    break
                kept = [t for t in early if t not in refused]
                operands = [s for t in refused for s in tensor_inputs(self.definitions[t])]
                below = self._boundary_tensors(operands, made.union(kept), end, only_materialised=only_materialised)
                early = sorted({*kept, *below}, key=self.order.__getitem__) if below else []
        return subsets

    def _boundary_tensors(
        self, wanted: Iterable[Tensor], made: Collection[Tensor], end: int, *, only_materialised: bool
    ) -> list[Tensor]:
        """The tensors of levels up to `end` that higher levels read: materialised ones and, if they are no larger, tensors
        computed from these; of the latter only outputs if `only_materialised`."""
        found: set[Tensor] = set()
        seen: set[Tensor] = set()
        shown = frozenset(self.fusion.output_tensors)
        stack = list(wanted)
        while stack:
            t = stack.pop()
            definition = self.definitions.get(t)
            if t in seen or t in made or definition is None:
                continue
            seen.add(t)
            is_small = (t in shown or not only_materialised) and self._is_no_larger(t, made)
            if self.level[t] <= end and (t in self.sources[t] or is_small):
                found.add(t)
            else:
                stack += tensor_inputs(definition)
        for t in sorted(found, key=self.order.__getitem__, reverse=True):
            if t not in self.sources[t] and self._is_computable(t, found, made):
                found.remove(t)
        return sorted(found, key=self.order.__getitem__)

    def _is_computable(self, t: Tensor, found: Collection[Tensor], made: Collection[Tensor]) -> bool:
        """Whether a tensor can be computed from tensors in `found` and from tensors of smaller rank."""
        stack = list(tensor_inputs(self.definitions[t]))
        while stack:
            s = stack.pop()
            definition = self.definitions.get(s)
            if s in found:
                continue
            if definition is None or s in made:
                if self.rank[s] >= self.rank[t]:
                    return False
            elif s in self.sources[s]:
                return False
            else:
                stack += tensor_inputs(definition)
        return True

    def _is_no_larger(self, t: Tensor, made: Collection[Tensor]) -> bool:
        """Whether a tensor is no larger than the materialised tensors that it is computed from."""
        stored, size = self._stored(t, made), self.rank[t]
        nbytes = sum(s.dtype.itemsize for s in stored if self.rank[s] >= size)
        return not isinstance(self.definitions[t], Broadcast) and nbytes >= t.dtype.itemsize

    def _stored(self, t: Tensor, made: Collection[Tensor]) -> frozenset[Tensor]:
        return frozenset(s for s in self.sources[t] if s not in made and s in self.definitions)

    def _independent_subsets(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Subsets of the tensors that need no materialised tensor of each other. Those that one kernel computes are merged."""
        subsets: list[tuple[list[Tensor], set[Tensor]]] = []
        for t in wanted:
            kept = {s for e in self._exprs_for([t], made) for s in tensor_outputs(e) if s in self.sources[s]} | {t}
            joined = [subset for subset in subsets if not kept.isdisjoint(subset[1])]
            subsets = [subset for subset in subsets if not any(subset is other for other in joined)]
            subsets.append(([s for j in joined for s in j[0]] + [t], kept.union(*(j[1] for j in joined))))
        found: list[list[Tensor]] = []
        for subset, _ in sorted(subsets, key=lambda subset: min(map(self.order.__getitem__, subset[0]))):
            together = self._mergeable_set(found, subset, made) if len(subsets) > 1 else None
            if together is None:
                found.append(subset)
            else:
                together += subset
        return found

    def _mergeable_set(
        self, others: Sequence[list[Tensor]], subset: Sequence[Tensor], made: frozenset[Tensor]
    ) -> list[Tensor] | None:
        """The first of `others` with the same dims that a scheduler accepts together with `subset`, or None."""
        space = self._spaces(subset)
        for other in others:
            if self._spaces(other) == space and self.is_accepted(self._part([*other, *subset], made)[0]):
                return other
        return None

    def _spaces(self, subset: Iterable[Tensor]) -> frozenset[frozenset[Group]]:
        graph = self.fusion.resolved_dims
        return frozenset(frozenset(map(graph.group, t.logical)) for t in subset)

    def _exprs_for(self, wanted: Iterable[Tensor], made: Collection[Tensor]) -> list[TensorExpr]:
        return exprs_for(self.fusion, wanted, made)

    def _part(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> Part:
        return extract_part(self.fusion, sorted(wanted, key=self.order.__getitem__), made)


def ranks(fusion: Fusion) -> dict[Tensor, int]:
    """For each tensor of a fusion, in order, the number of its dims with several elements, in place of its size. Of a square
    both count, though they are one dim of what it is computed from."""
    read = (t for e in fusion.tensor_exprs for t in tensor_inputs(e))
    tensors = dict.fromkeys((*fusion.tensors, *read))
    return {t: sum(not d.is_broadcast for d in t.visible) for t in tensors}


def extract_part(fusion: Fusion, wanted: Sequence[Tensor], made: Collection[Tensor]) -> Part:
    """A fusion that computes `wanted` from inputs and from the tensors in `made`."""
    exprs = exprs_for(fusion, wanted, made)
    own = set(exprs)
    kept = tuple(e for e in fusion.exprs if e in own or not tensor_expr(e))
    updates = {o.tensor: o for o in fusion.outputs}
    outputs = tuple(updates.get(t) or Output(t) for t in wanted)
    return sub_fusion(replace(fusion, exprs=kept, outputs=outputs), exprs)


def _levels(fusion: Fusion, repeated_broadcasts: Collection[Tensor]) -> dict[Tensor, int]:
    """The level of each tensor. `repeated_broadcasts`: see `_repeated_broadcasts`."""
    graph = fusion.resolved_dims
    level: dict[Tensor, int] = {}
    reduced: dict[Tensor, frozenset[Group]] = {}
    again: dict[Tensor, bool] = {}
    for e in fusion.tensor_exprs:
        sources = tensor_inputs(e)
        at = max((level.get(t, 0) + _ends_kernel(fusion, e, t, repeated_broadcasts) for t in sources), default=0)
        at += isinstance(e, (Reducing, Scan))
        below = frozenset[Group]().union(*(reduced.get(t, frozenset()) for t in sources))
        is_new = not any(again.get(t) for t in sources if level.get(t, 0) == at)
        for t in tensor_outputs(e):
            reduced[t] = below | {graph.group(d) for d in t.logical if d.is_reduction}
            # A dim that is only seen is no dim that has the elements again.
            has_again = not isinstance(e, Broadcast) and not reduced[t].isdisjoint(map(graph.group, t.visible))
            again[t] = has_again or (isinstance(e, Broadcast) and not is_new)
            level[t] = at + (has_again and is_new)
    return level


def _ends_kernel(fusion: Fusion, expr: TensorExpr, source: Tensor, repeated_broadcasts: Collection[Tensor]) -> bool:
    """Whether the kernel that computes `source` cannot compute the expr as well."""
    made = fusion.definitions.get(source)
    if isinstance(made, Reshape) or (isinstance(made, Pointwise) and made.op == "segment_set"):
        return True
    if made is None and isinstance(expr, Reshape):
        return False
    if isinstance(expr, Broadcast) and source in repeated_broadcasts:
        return True
    if isinstance(made, Broadcast) and made.input in repeated_broadcasts:
        return True
    if isinstance(expr, Reshape):
        return True
    is_read_elsewhere = isinstance(expr, (Resize, Gather)) and expr.input is source and is_displaced(expr, source)
    return made is not None and is_read_elsewhere


def _repeated_broadcasts(fusion: Fusion) -> frozenset[Tensor]:
    """Tensors that are broadcast in several ways such that a tensor has one dim twice (x[:, None] + x[None, :]).

    A kernel cannot have one dim twice. Reads of a stored tensor have dims of their own.
    """
    graph = fusion.resolved_dims
    twice = {g for t in fusion.tensors for g, n in Counter(map(graph.group, t.visible)).items() if n > 1}
    flags: dict[Tensor, set[tuple[bool, ...]]] = {}
    for e in fusion.tensor_exprs if twice else ():
        if isinstance(e, Broadcast) and not twice.isdisjoint(map(graph.group, e.input.visible)):
            flags.setdefault(e.input, set()).add(e.flags)
    return frozenset(t for t, found in flags.items() if len(found) > 1)


def _sources(
    fusion: Fusion, rank: Mapping[Tensor, int], repeated_broadcasts: Collection[Tensor]
) -> dict[Tensor, frozenset[Tensor]]:
    """The materialised tensors and inputs that each tensor is computed from. `rank`: see `_Partitioner`."""
    ends = {t for e in fusion.tensor_exprs for t in tensor_inputs(e) if _ends_kernel(fusion, e, t, repeated_broadcasts)}
    found: dict[Tensor, frozenset[Tensor]] = {}
    for e in fusion.tensor_exprs:
        read = frozenset[Tensor]().union(*(found.get(t, {t}) for t in tensor_inputs(e)))
        for t in tensor_outputs(e):
            # Tensors of smaller rank count as free.
            nbytes = sum(s.dtype.itemsize for s in read if rank[s] >= rank[t])
            is_cheap = isinstance(e, RECOMPUTABLE) and t not in ends and nbytes <= 2 * t.dtype.itemsize
            found[t] = read if is_cheap else frozenset({t})
    return found
