"""Pointwise segments whose arguments have different fastest dims: tiles are transposed in swizzled shared memory.

N are the dims that are fastest in most bytes, M those that are fastest in the other arguments, which are *staged* in shared
memory. A block processes tiles of M x N (the loops: transpose_loops.py), of the size with the least estimated time
(cost/transpose_mappings.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from fuser.ir.device_info import SECTOR_BYTES, DeviceInfo
from fuser.ir.fact_collection import GRID_LIMIT
from fuser.ir.fusion.fusion import Fusion, IterDomain, Tensor, memory_order
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.alignment import MIN_VECTORS, choose_peel_reference
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, input_reads
from fuser.schedule.analysis.layout import Argument, arguments_of, merge_contiguous_dims
from fuser.schedule.analysis.reference import dim_groups, solid_groups
from fuser.schedule.cost.mapping_search import MAX_EXPLAINED, fastest_of
from fuser.schedule.cost.pointwise_space import PointwiseSpace
from fuser.schedule.cost.rounding import OF_ROWS, round_to_significant_bits, round_up_length
from fuser.schedule.cost.transpose_mappings import (
    TRANSPOSES,
    TransposeMapping,
    TransposeProblem,
)
from fuser.schedule.params import Aligned, Params, ParamsClass, Peeled, TransposeParams
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler, reference_output
from fuser.schedule.schedulers.transpose_loops import schedule_transpose
from fuser.schedule.tuning_candidates import neighbours

TILE = 64
"""Extent of M or N; below half of it the adjacent dims are merged into it."""
CONCURRENT_BLOCKS = 4
"""Blocks of an SM at once, about."""
PEELED_VECTOR = 4
"""Elements of a vector of misaligned rows, which are peeled: no wider than an access, so not of Doubles (H200: f16
269x250003 141.2 us element by element, 125.2, 120.4 and 126.7 by vectors of 2, 4 and 8; bf16 1024x50257 129.7 where the other
side alone is read by vectors, 92.7 so)."""
MIN_UNPEELED_ITEM = 4
"""Bytes of an element from which on a vector at any address takes no more reads than elements."""
SHORT_RUN = 16
"""Elements of a run below which tiles would be mostly empty."""


class TransposeScheduler(Scheduler):
    """Accepts pointwise segments with two layouts among the arguments that have every dim."""

    type = SchedulerType.transpose
    params: ParamsClass = TransposeParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        answer = PointwiseScheduler().accepts(segment)
        if isinstance(answer, Refused):
            return answer
        graph = segment.resolved_dims
        reference = reference_output(segment)
        assert reference is not None
        full = solid_groups(graph, reference)
        fastest = {
            _fastest(graph, t, dims)
            for t, dims in _arguments(segment)
            if full <= {graph.group(d) for d in dims if d is not None}
        }
        if len(fastest - {None}) < 2:
            return Refused("all arguments with every dimension have the same fastest one")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        found = plans_of(segment, inputs, device)
        if isinstance(found, Refused):
            return found
        best = fastest_of(TRANSPOSES, ((plan.work, plan) for plan in found), device)
        if best is None:
            return Refused(f"tiles of {len(found[0].tiled.staged)} arguments need more shared memory than there is")
        m, (_, plan) = best
        return plan.params(m, device)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        plans = plans_of(segment, inputs, device)
        if isinstance(plans, Refused) or isinstance(proposed, Refused):
            return
        for plan in plans:
            for _, m in TRANSPOSES.ranked(plan.work, device)[:MAX_EXPLAINED]:
                yield plan.params(m, device)
        yield from neighbours(proposed, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, TransposeParams)
        return schedule_transpose(segment, params)


def _arguments(segment: Fusion) -> Iterator[tuple[Tensor, Sequence[IterDomain | None]]]:
    """Ways of reading inputs, and outputs, each with the dims that loops run over for its dims."""
    for read in input_reads(segment):
        yield read.tensor, read.dims
    for t in segment.output_tensors:
        if not t.is_cpu and t.visible:
            yield t, t.visible


def _fastest(graph: IterationGraph, t: Tensor, dims: Sequence[IterDomain | None]) -> Group | None:
    """The fastest dim of more than one element, as declared."""
    order = [graph.group(d) for d in (dims[k] for k in memory_order(t.stride_order)) if d is not None]
    return next((g for g in reversed(order) if not g.is_broadcast), None)


# --- choosing ---------------------------------------------------------------------------------------------------------


@record(eq=False)
class TransposePlan:
    """A way to access the arguments of a segment at some sizes, and the tiles that there are for it.

    order     dims of the reference output, as of `TransposeParams`
    widths    elements of an access, for arguments where that is more than one with the widest vectors
    """

    tiled: _TiledArguments
    order: tuple[int, ...]
    sizes: Mapping[Group, int]
    work: TransposeProblem
    widths: Mapping[str, int]
    access: Aligned | Peeled = Aligned()

    def params(self, m: TransposeMapping, device: DeviceInfo) -> TransposeParams:
        """Those of a mapping."""
        tiled, sizes = self.tiled, self.sizes
        names = {a.name for a in tiled.staged}
        widths = ((n, min(w, m.vectors[n not in names])) for n, w in self.widths.items())
        lengths = [math.prod(sizes[g] for g in run) for run in (tiled.staged_run, tiled.run)]
        counts = [-(-length // t) for length, t in zip(lengths, m.tile, strict=True)]
        batch = math.prod(sizes[g] for part in tiled.batch for g in part)
        # Blocks that run at once are neighbours along both runs then: lines that two tiles share are fetched once.
        block_order = (1, 0) if counts[0] < counts[1] and counts[1] > CONCURRENT_BLOCKS * device.sm_count else (0, 1)
        lying = (
            f"{', '.join(a.name for a in tiled.staged)} lie along {tiled.staged_run[-1].name}, the rest along "
            f"{tiled.run[-1].name}"
        )
        return TransposeParams(
            order=self.order,
            merged_dims=(*(len(p) for p in tiled.batch), len(tiled.staged_run), len(tiled.run)),
            tile=m.tile,
            vectors=m.vectors,
            tile_threads=m.lanes,
            vector_widths=tuple((n, w) for n, w in widths if w > 1),
            via_shared=tuple(a.name for a in tiled.staged),
            block_threads=m.threads,
            grid_axes=1 if max(batch, counts[block_order[0]]) > GRID_LIMIT else 3,
            block_order=block_order,
            access=self.access,
            reasons=Reasons(lambda: (lying, *TRANSPOSES.reasons(as_told(self.work), device))),
        )


def plans_of(segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> list[TransposePlan] | Refused:
    """Plans with aligned accesses, and with peeled ones."""
    graph = segment.resolved_dims
    reference = reference_output(segment)
    assert reference is not None
    groups = dim_groups(graph, reference)
    sizes = {g: inputs.evaluate(g.extent) for g in groups if not g.is_broadcast}
    arguments = arguments_of(segment, inputs)
    tiled = _select_tiled_arguments(arguments, sizes, {t.name for t in segment.output_tensors})
    if isinstance(tiled, Refused):
        return tiled
    order = tuple(groups.index(g) for g in tiled.order) + tuple(d for d, g in enumerate(groups) if g.is_broadcast)
    space = PointwiseSpace(segment, inputs, {g: groups.index(g) for g in tiled.order}, device)
    runs = tiled.staged_run, tiled.run
    names = {a.name for a in tiled.staged}
    limits = [ACCESS_BYTES // min(a.tensor.dtype.itemsize for a in side) for side in (tiled.staged, tiled.others)]
    along = [space.widths.along(tiled.proven(run), limit) for run, limit in zip(runs, limits, strict=True)]
    chosen = {a.name: along[a.name not in names][a.name] for a in arguments}
    staged, other = (
        max((w for n, w in chosen.items() if (n in names) is is_staged), default=1) for is_staged in (True, False)
    )
    # Beside a side that is moved by element, narrower accesses make room for longer lines of it, or for smaller tiles.
    vectors = [(staged, other), *([(1, other // 2)] if staged == 1 and other > 2 else [])]
    found = [TransposePlan(tiled, order, sizes, _work(space, tiled, vectors, chosen), chosen)]
    peeled = _peel_reference(tiled, sizes, segment) if other == 1 else None
    if peeled is not None:
        # What is staged has rows at other places for each of its own rows: it is read element by element.
        cut = {a.name: PEELED_VECTOR if a in tiled.others and a.stride(tiled.run[-1]) == 1 else 1 for a in arguments}
        found.append(
            TransposePlan(tiled, order, sizes, _work(space, tiled, [(1, PEELED_VECTOR)], cut, is_cut=True), cut, peeled)
        )
    return found


def _work(
    space: PointwiseSpace,
    tiled: _TiledArguments,
    vectors: Sequence[tuple[int, int]],
    widths: Mapping[str, int],
    *,
    is_cut: bool = False,
) -> TransposeProblem:
    """What all tiles have in common."""
    runs = [*tiled.batch, tiled.staged_run, tiled.run]
    patterns = space.access_patterns(
        widths, runs, {a.name for a in space.arguments if a.tensor in space.inputs} if is_cut else ()
    )
    lengths = [round_up_length(math.prod(space.sizes[g] for g in run)) for run in runs]
    read, written = space.moved(patterns, lengths)
    both = [(a, s._replace(spans=s.spans[-2:])) for a, s in zip(space.arguments, patterns, strict=True)]
    names = {a.name for a in tiled.staged}
    return TransposeProblem(
        lengths=(lengths[-2], lengths[-1]),
        batch=round_to_significant_bits(math.prod(lengths[:-2]), OF_ROWS),
        vectors=tuple(vectors),
        staged=tuple(s._replace(is_aligned=True) for a, s in both if a.name in names),
        others=tuple(s for a, s in both if a.name not in names),
        read=read,
        written=written,
        computed=sum(instructions for _, instructions in space.computed()),
    )


@record(eq=False)
class _TiledArguments:
    """Which arguments are staged, and the dims of the loops: batch parts, the staged run M, the run N."""

    staged: list[Argument]
    others: list[Argument]
    batch: list[list[Group]]
    staged_run: list[Group]
    run: list[Group]
    parts: list[list[Group]]

    @property
    def order(self) -> list[Group]:
        return [g for part in (*self.batch, self.staged_run, self.run) for g in part]

    def proven(self, run: Sequence[Group]) -> list[Group]:
        """The suffix of a run that is contiguous in all arguments; the dims before it are contiguous only in some."""
        return next(p for p in self.parts if p[-1] is run[-1])


def _select_tiled_arguments(
    arguments: Sequence[Argument], sizes: dict[Group, int], outputs: set[str]
) -> _TiledArguments | Refused:
    total = math.prod(sizes.values())
    full = [a for a in arguments if a.seen == total and all(a.stride(g) for g, n in sizes.items() if n != 1)]
    fastest = {a.name: _fastest_of(a, sizes) for a in full}
    layouts: dict[Group, list[Argument]] = {}
    for a in full:
        group = fastest[a.name]
        if group is not None:
            layouts.setdefault(group, []).append(a)
    if len(layouts) < 2:
        return Refused("all large arguments have the same fastest dimension")
    # Only arguments that are read in place have tiles: displaced reads are made where their values are used. Most bytes stay
    # as they are; of equals those of which slices are read beside them; then outputs, which are stored better than loaded.
    displaced = [a for a in arguments if a.displaced is not None]
    ranked = sorted(
        layouts,
        key=lambda g: (
            any(a in displaced for a in layouts[g]),
            sum(a.nbytes for a in layouts[g]),
            sum(a.nbytes for a in displaced if a.stride(g) == 1),
            sum(a.name in outputs for a in layouts[g]),
        ),
        reverse=True,
    )
    n, m = ranked[:2]
    if any(a in displaced for a in layouts[m]):
        return Refused("slices, pads or gathers of different fastest dimensions are read")
    model, other = (max(layouts[g], key=lambda a: a.nbytes) for g in (n, m))
    order = sorted(sizes, key=lambda g: -model.stride(g) if sizes[g] != 1 else -math.inf)
    parts = merge_contiguous_dims(order, sizes, arguments)
    run = next(p for p in parts if n in p)
    staged_run = next(p for p in parts if m in p)
    batch = [p for p in parts if p is not run and p is not staged_run]
    # Short runs take in the dims that are next to them.
    wide, staged_wide = list(run), list(staged_run)
    for target, a in ((wide, model), (staged_wide, other)):
        while batch and math.prod(sizes[g] for g in target) < TILE // 2:
            neighbour = min(batch, key=lambda p: a.stride(p[-1]))
            if a.stride(neighbour[-1]) > sizes[target[0]] * a.stride(target[0]):
                break
            batch.remove(neighbour)
            target[:0] = neighbour
    for target in (wide, staged_wide):
        length = math.prod(sizes[g] for g in target)
        if length < SHORT_RUN:
            return Refused(f"the run along {target[-1].name} has only {length} elements")
    staged = layouts[m]
    return _TiledArguments(staged, [a for a in arguments if a not in staged], batch, staged_wide, wide, parts)


def _fastest_of(a: Argument, sizes: dict[Group, int]) -> Group | None:
    """The dim along which neighbours are next to one another, or next to few elements that are read otherwise: of those a
    sector has several."""
    found = min((g for g in sizes if sizes[g] != 1), key=a.stride, default=None)
    return None if found is None or a.stride(found) * a.tensor.dtype.itemsize > SECTOR_BYTES // 2 else found


def _peel_reference(tiled: _TiledArguments, sizes: dict[Group, int], segment: Fusion) -> Peeled | None:
    """Where vectors begin in misaligned rows along N; None if accesses of single elements are better.

    What is read beside it is aligned at the same places, or takes a read for each element all the same: for 16 bits, shifts and
    three reads cost what vectors save.
    """
    run = tiled.run
    outputs = {t.name for t in segment.output_tensors if t not in segment.input_tensors}
    along = [a for a in tiled.others if a.stride(run[-1]) == 1]
    written = [a.name for a in along if a.name in outputs]
    is_wide = any(PEELED_VECTOR * a.tensor.dtype.itemsize > ACCESS_BYTES for a in along)
    if not written or is_wide or math.prod(sizes[g] for g in run) < MIN_VECTORS * PEELED_VECTOR:
        return None
    to = choose_peel_reference(along, run, sizes, PEELED_VECTOR, written)
    if not isinstance(to, Peeled):
        return None
    narrow = [a for a in along if a.tensor.dtype.itemsize < MIN_UNPEELED_ITEM]
    places = [
        {g: s % PEELED_VECTOR for g, s in a.strides.items() if g not in run}
        for a in narrow
        if len(a.strides) == len(sizes)
    ]
    is_one = all(p == places[0] for p in places)
    return to if is_one and all(a.alignment % (PEELED_VECTOR * a.tensor.dtype.itemsize) == 0 for a in narrow) else None
