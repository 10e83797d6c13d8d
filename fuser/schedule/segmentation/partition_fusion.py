"""Splits a fusion that no scheduler accepts into parts, with little data passed between their kernels.

    t1 = cast(t0); t2 = sum(t1, pixels); t3 = sum(t2, channels); t4 = rsqrt(t3); t5 = mul(t1, broadcast(t4))
    ->  [t1, t2]   [t3, t4]   [t1, t5]

    q = rotate(t1, cast(t0)); k = rotate(t2, cast(t0))      ->      [cast(t0), q]   [cast(t0), k]

Two things decide where. *Levels*: a value is on a lower level than its reader if it must be complete before it is read: a
reduction is below values that have the reduced dims again, a tensor below its reads at other indices. *Materialised* tensors,
which a kernel stores and another reads: results of reductions, scans and random draws, and values computed from more bytes
than storing and reading them again takes. All others are recomputed in each kernel that needs them.

Outputs that share no materialised tensor are split apart. The rest is split below the highest level whose materialised tensors
schedulers accept, and what remains again in the same way. At last, parts that read the same large input are fused, if a
scheduler accepts them together.
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

COMPUTED_AGAIN = (Pointwise, Broadcast, Squeeze, Expand, Permute, Full, Iota, Resize, Cat, Gather)
"""Exprs that several kernels may compute, each for itself."""


def partition_fusion(fusion: Fusion, is_accepted: Callable[[Fusion], bool]) -> list[Part]:
    """Parts in an order that respects their data; each is accepted but those that cannot be cut here."""
    return _Partitioner(fusion, is_accepted).run()


class _Planned(NamedTuple):
    """A part before it is a fusion: the tensors that it makes, and those that earlier parts have made for it."""

    wanted: tuple[Tensor, ...]
    made: frozenset[Tensor]


class _Partitioner:
    """One use: `run()`.

    level     of each computed tensor; inputs have 0
    rank      dims of a tensor that have several elements: what stands for its size, before sizes are known
    sources   the kept tensors and inputs that a tensor is computed of, itself where it is kept
    """

    def __init__(self, fusion: Fusion, is_accepted: Callable[[Fusion], bool]) -> None:
        self.fusion = fusion
        self.is_accepted = is_accepted
        self.definitions = {t: e for e in fusion.tensor_exprs for t in tensor_outputs(e)}
        seen_twice = _seen_twice(fusion)
        self.level = _levels(fusion, seen_twice)
        self.rank = ranks(fusion)
        self.order = {t: k for k, t in enumerate(self.rank)}
        self.sources = _sources(fusion, self.rank, seen_twice)

    def run(self) -> list[Part]:
        """See `partition_fusion`."""
        wanted = [t for t in self.fusion.output_tensors if t in self.definitions]
        return [self._part(p.wanted, p.made) for p in self._joined(self._cut(wanted, frozenset()))]

    def _cut(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[_Planned]:
        found: list[_Planned] = []
        while True:
            part = _Planned(tuple(wanted), made)
            if self.is_accepted(self._part(wanted, made)[0]):
                return [*found, part]
            lots = self._lots(wanted, made)
            if len(lots) > 1:
                return [*found, *(p for lot in lots for p in self._cut(lot, made))]
            early = self._early(wanted, made)
            if not early:
                return [*found, part]
            for lot in early:
                found += self._cut(lot, made)
            made |= {t for lot in early for t in lot}

    def _joined(self, parts: list[_Planned]) -> list[_Planned]:
        """The same parts, where one kernel makes several that read an input of the largest size and none what another makes."""
        k = 0
        while k < len(parts):
            pairs = ((n, self._join(parts, k, n)) for n in range(k + 1, len(parts)))
            found = next(((n, joined) for n, joined in pairs if joined is not None), None)
            if found is None:
                k += 1
                continue
            later, (place, part) = found
            parts = [part if n == place else p for n, p in enumerate(parts) if n == place or n not in (k, later)]
        return parts

    def _join(self, parts: Sequence[_Planned], first: int, second: int) -> tuple[int, _Planned] | None:
        """Where one part in place of two has its inputs, and is before its readers, with that part; None if it is not to be."""
        a, b = parts[first], parts[second]
        if self._largest_inputs(a).isdisjoint(self._largest_inputs(b)):
            return None
        between = [self._reads(p) for p in parts[first + 1 : second]]
        made_since = {t for p in parts[first:second] for t in p.wanted}
        if made_since.isdisjoint(self._reads(b)):
            place = first
        elif set(a.wanted).isdisjoint(frozenset().union(self._reads(b), *between)):
            place = second
        else:
            return None
        wanted = tuple(dict.fromkeys((*a.wanted, *b.wanted)))
        joined = _Planned(wanted, (a.made | b.made).difference(wanted))
        return (place, joined) if self.is_accepted(self._part(*joined)[0]) else None

    def _reads(self, part: _Planned) -> frozenset[Tensor]:
        exprs = self._below(part.wanted, part.made)
        computed = {t for e in exprs for t in tensor_outputs(e)}
        return frozenset(t for e in exprs for t in tensor_inputs(e) if t not in computed)

    def _largest_inputs(self, part: _Planned) -> frozenset[Tensor]:
        """Inputs of the fusion with as many dims as any tensor of a part."""
        read = self._reads(part)
        most = max((self.rank[t] for t in (*read, *part.wanted)), default=0)
        return frozenset(t for t in read if t not in self.definitions and self.rank[t] == most)

    def _early(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Lots of what to make before the rest: as much as is accepted. Nothing if all is of one level."""
        lots = self._accepted_early(wanted, made)
        if len(lots) < 2:
            return lots
        for lot in lots:
            others = [other for other in lots if other is not lot]
            if self.is_accepted(self._part(wanted, made.union(*others))[0]):
                return others
        return lots

    def _accepted_early(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Those of the highest level that are accepted; where there are none, in place of lots that are not what these are
        computed of; else the last ones that were tried."""
        tried: list[list[Tensor]] = []
        lots: list[list[Tensor]] = []
        ends = range(max(map(self.level.__getitem__, wanted)), -1, -1)
        for goes_on, end, only_kept in itertools.product((False, True), ends, (False, True)):
            early = self._crossing(wanted, made, end, only_kept=only_kept)
            while early and (goes_on or early not in tried):
                refused = list(wanted)
                if not set(wanted).issubset(early):
                    tried.append(early)
                    lots = self._lots(early, made)
                    refused = [t for lot in lots if not self.is_accepted(self._part(lot, made)[0]) for t in lot]
                    if not refused:
                        return lots
                if not goes_on:
                    break
                kept = [t for t in early if t not in refused]
                operands = [s for t in refused for s in tensor_inputs(self.definitions[t])]
                below = self._crossing(operands, made.union(kept), end, only_kept=only_kept)
                early = sorted({*kept, *below}, key=self.order.__getitem__) if below else []
        return lots

    def _crossing(
        self, wanted: Iterable[Tensor], made: Collection[Tensor], end: int, *, only_kept: bool
    ) -> list[Tensor]:
        """What to store of levels up to `end` for those beyond: kept tensors, or what is computed of them and is no larger, as
        outputs are in any case."""
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
            is_small = (t in shown or not only_kept) and self._is_handed_over(t, made)
            if self.level[t] <= end and (t in self.sources[t] or is_small):
                found.add(t)
            else:
                stack += tensor_inputs(definition)
        for t in sorted(found, key=self.order.__getitem__, reverse=True):
            if t not in self.sources[t] and self._follows(t, found, made):
                found.remove(t)
        return sorted(found, key=self.order.__getitem__)

    def _follows(self, t: Tensor, found: Collection[Tensor], made: Collection[Tensor]) -> bool:
        """Whether a tensor can be computed of others that are found, and of what is small beside it."""
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

    def _is_handed_over(self, t: Tensor, made: Collection[Tensor]) -> bool:
        """Whether what is computed of kept tensors is no larger than they are."""
        stored, size = self._stored(t, made), self.rank[t]
        nbytes = sum(s.dtype.itemsize for s in stored if self.rank[s] >= size)
        return not isinstance(self.definitions[t], Broadcast) and nbytes >= t.dtype.itemsize

    def _stored(self, t: Tensor, made: Collection[Tensor]) -> frozenset[Tensor]:
        return frozenset(s for s in self.sources[t] if s not in made and s in self.definitions)

    def _lots(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> list[list[Tensor]]:
        """Tensors that need no kept tensor of one another; those that one kernel may make together are together."""
        lots: list[tuple[list[Tensor], set[Tensor]]] = []
        for t in wanted:
            kept = {s for e in self._below([t], made) for s in tensor_outputs(e) if s in self.sources[s]} | {t}
            joined = [lot for lot in lots if not kept.isdisjoint(lot[1])]
            lots = [lot for lot in lots if not any(lot is other for other in joined)]
            lots.append(([s for lot in joined for s in lot[0]] + [t], kept.union(*(lot[1] for lot in joined))))
        found: list[list[Tensor]] = []
        for lot, _ in sorted(lots, key=lambda lot: min(map(self.order.__getitem__, lot[0]))):
            together = self._together(found, lot, made) if len(lots) > 1 else None
            if together is None:
                found.append(lot)
            else:
                together += lot
        return found

    def _together(
        self, others: Sequence[list[Tensor]], lot: Sequence[Tensor], made: frozenset[Tensor]
    ) -> list[Tensor] | None:
        """The lot that can be made in one kernel with another one. Only lots of equal dims are asked about."""
        space = self._spaces(lot)
        for other in others:
            if self._spaces(other) == space and self.is_accepted(self._part([*other, *lot], made)[0]):
                return other
        return None

    def _spaces(self, lot: Iterable[Tensor]) -> frozenset[frozenset[Group]]:
        graph = self.fusion.resolved_dims
        return frozenset(frozenset(map(graph.group, t.logical)) for t in lot)

    def _below(self, wanted: Iterable[Tensor], made: Collection[Tensor]) -> list[TensorExpr]:
        return exprs_for(self.fusion, wanted, made)

    def _part(self, wanted: Sequence[Tensor], made: frozenset[Tensor]) -> Part:
        return extract_part(self.fusion, sorted(wanted, key=self.order.__getitem__), made)


def ranks(fusion: Fusion) -> dict[Tensor, int]:
    """Per tensor of a fusion, in order, how many of its dims have several elements: what stands for its size."""
    graph = fusion.resolved_dims
    read = (t for e in fusion.tensor_exprs for t in tensor_inputs(e))
    tensors = dict.fromkeys((*fusion.tensors, *read))
    return {t: len({graph.group(d) for d in t.visible if not d.is_broadcast}) for t in tensors}


def extract_part(fusion: Fusion, wanted: Sequence[Tensor], made: Collection[Tensor]) -> Part:
    """What makes some tensors, where others are made."""
    exprs = exprs_for(fusion, wanted, made)
    own = set(exprs)
    kept = tuple(e for e in fusion.exprs if e in own or not tensor_expr(e))
    updates = {o.tensor: o for o in fusion.outputs}
    outputs = tuple(updates.get(t) or Output(t) for t in wanted)
    return sub_fusion(replace(fusion, exprs=kept, outputs=outputs), exprs)


def _levels(fusion: Fusion, seen_twice: Collection[Tensor]) -> dict[Tensor, int]:
    """The level of each tensor. `seen_twice`: see `_seen_twice`."""
    graph = fusion.resolved_dims
    level: dict[Tensor, int] = {}
    reduced: dict[Tensor, frozenset[Group]] = {}
    again: dict[Tensor, bool] = {}
    for e in fusion.tensor_exprs:
        sources = tensor_inputs(e)
        at = max((level.get(t, 0) + _has_to_end(fusion, e, t, seen_twice) for t in sources), default=0)
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


def _has_to_end(fusion: Fusion, expr: TensorExpr, source: Tensor, seen_twice: Collection[Tensor]) -> bool:
    """Whether the kernel that makes `source` cannot go on with the expr."""
    made = fusion.definitions.get(source)
    if isinstance(made, Reshape) or (isinstance(made, Pointwise) and made.op == "segment_set"):
        return True
    if made is None and isinstance(expr, Reshape):
        return False
    if isinstance(expr, Broadcast) and source in seen_twice:
        return True
    if isinstance(made, Broadcast) and made.input in seen_twice:
        return True
    if isinstance(expr, Reshape):
        return True
    is_read_elsewhere = isinstance(expr, (Resize, Gather)) and expr.input is source and is_displaced(expr, source)
    return made is not None and is_read_elsewhere


def _seen_twice(fusion: Fusion) -> frozenset[Tensor]:
    """Tensors that are broadcast in several ways, with a dim that meets itself so.

    No kernel has one dim twice, but views of a tensor that is stored have dims of their own.
    """
    graph = fusion.resolved_dims
    twice = {g for t in fusion.tensors for g, n in Counter(map(graph.group, t.visible)).items() if n > 1}
    flags: dict[Tensor, set[tuple[bool, ...]]] = {}
    for e in fusion.tensor_exprs if twice else ():
        if isinstance(e, Broadcast) and not twice.isdisjoint(map(graph.group, e.input.visible)):
            flags.setdefault(e.input, set()).add(e.flags)
    return frozenset(t for t, found in flags.items() if len(found) > 1)


def _sources(
    fusion: Fusion, rank: Mapping[Tensor, int], seen_twice: Collection[Tensor]
) -> dict[Tensor, frozenset[Tensor]]:
    """The kept tensors and inputs that each tensor is computed of. `rank`: see `_Partitioner`."""
    ends = {t for e in fusion.tensor_exprs for t in tensor_inputs(e) if _has_to_end(fusion, e, t, seen_twice)}
    found: dict[Tensor, frozenset[Tensor]] = {}
    for e in fusion.tensor_exprs:
        read = frozenset[Tensor]().union(*(found.get(t, {t}) for t in tensor_inputs(e)))
        for t in tensor_outputs(e):
            # What has fewer dims is small beside it.
            nbytes = sum(s.dtype.itemsize for s in read if rank[s] >= rank[t])
            is_cheap = isinstance(e, COMPUTED_AGAIN) and t not in ends and nbytes <= 2 * t.dtype.itemsize
            found[t] = read if is_cheap else frozenset({t})
    return found
