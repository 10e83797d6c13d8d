"""Scans along one dim, with pointwise exprs around them.

Loops, with K the kept dims and S the scanned one:

    inner (S is the fastest dim):   K/ty -> grid_x, ty -> block_y, S/v/tx/b/c -> serial, c -> grid_y, b -> tiles, tx -> block_x,
                                    v -> vector
    outer (a kept dim is fastest):  K/v/tx -> grid_x, tx -> block_x, S/b/ty/c -> serial, c -> grid_y, ty -> block_y, b -> rows,
                                    v -> vector

Data is read once and written once. A thread has b tiles of v elements: it loads all of them before it uses the first, and
one collective scans them; a register carries the result of earlier iterations. If there are too few rows or columns to
occupy all SMs, the blocks of a cluster share them and exchange their totals in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from fuser.ir.device_info import SECTOR_BYTES, DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Reducing, Scan, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.op_instructions import expr_instructions
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.alignment import RowAccesses, choose_accesses, choose_vector
from fuser.schedule.analysis.input_reads import ACCESS_BYTES
from fuser.schedule.analysis.reduced_dims import scans_of
from fuser.schedule.analysis.reduced_space import ReducedSpace
from fuser.schedule.analysis.reference import (
    concrete_dims,
    refusal_of_space,
    solid_groups,
    vector_limit,
)
from fuser.schedule.analysis.rows import row_extent_ranges
from fuser.schedule.cost.instruction_cache import max_unrolled_elements
from fuser.schedule.cost.mapping_search import fastest_of
from fuser.schedule.cost.rounding import round_to_significant_bits
from fuser.schedule.cost.scan_mappings import SCANS, ScanMapping, ScanSpace
from fuser.schedule.params import ExtentRange, Params, ParamsClass, Peeled, ScanParams
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.transforms.loops import computed_source, merge_axes, require_extents, set_loop_types
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize

_SHORT_VECTOR = 4
"""Elements of a shorter access, for misaligned rows: more lanes have work."""
_DIGITS = 4
"""Binary digits of the number of scans, and of the length of columns, that mappings depend on: near ones share a kernel."""
_MAX_CANDIDATES = 12
"""Mappings that tuning measures."""


def reference_scan(segment: Fusion) -> Scan:
    """The scan of the tensor with most dims of more than one element."""
    graph = segment.resolved_dims
    return max(scans_of(segment), key=lambda e: concrete_dims(graph, e.output))


@memoized
def element_counts(segment: Fusion) -> tuple[int, int]:
    """(instructions, values that are in registers at once where it is scanned, at most) of an element; what has fewer dims than
    the reference is shared by several.

    Scans follow one another in stages; what needs no scan of a stage is computed before it. There all of its scans hold an
    element, and what is needed later stays in registers besides.
    """
    graph = segment.resolved_dims
    scan = reference_scan(segment)
    scanned = graph.group(scan.axis)
    others = {g for g in map(graph.group, scan.output.visible) if g is not scanned and not g.is_broadcast}

    def is_of_elements(t: Tensor) -> bool:
        own = graph.concrete_groups(t.visible)
        return scanned in own and (not others or not own.isdisjoint(others))

    stage = {t: 0 for t in segment.input_tensors if is_of_elements(t)}
    last: dict[Tensor, int] = {}
    in_stage: dict[int, int] = {}
    operations = 0
    for e in segment.tensor_exprs:
        at = max((stage.get(t, 0) for t in tensor_inputs(e)), default=0)
        last |= {t: max(at, last.get(t, 0)) for t in tensor_inputs(e)}
        if isinstance(e, Scan):
            in_stage[at] = in_stage.get(at, 0) + 1
            stage[e.output] = at + 1
            continue
        made = [t for t in tensor_outputs(e) if is_of_elements(t)]
        stage |= dict.fromkeys(made, at)
        operations += expr_instructions(e) if made else 0
    live = (n + sum(made <= s < last.get(t, 0) for t, made in stage.items()) for s, n in in_stage.items())
    return operations, max(live)


class ScanScheduler(Scheduler):
    """Accepts segments whose scans run along the same dim of one iteration space, the largest there is."""

    type = SchedulerType.scan
    params: ParamsClass = ScanParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        scans = scans_of(segment)
        if not scans:
            return Refused("nothing is scanned")
        reduced = next((e for e in segment.tensor_exprs if isinstance(e, Reducing)), None)
        if reduced is not None:
            return Refused(f"{reduced.input.name} is reduced")
        graph = segment.resolved_dims
        reference = reference_scan(segment)
        for e in scans:
            if graph.group(e.axis) is not graph.group(reference.axis):
                return Refused(f"{reference.output.name} and {e.output.name} are scanned along different dimensions")
        return refusal_of_space(segment, reference.output, solid_groups(graph, reference.output)) or Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        dims, ways = _sized_scan(segment, inputs, device)
        found = fastest_of(SCANS, ways, device)
        assert found is not None
        best, way = found
        return _params(dims, way, best, Reasons(lambda: SCANS.reasons(as_told(way[0]), device)))

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        dims, ways = _sized_scan(segment, inputs, device)
        found = fastest_of(SCANS, ways, device)
        assert found is not None
        _, way = found
        for _, m in SCANS.ranked(way[0], device)[1:_MAX_CANDIDATES]:
            yield _params(dims, way, m, ())

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, ScanParams)
        scan = reference_scan(segment)
        builder = ScheduleBuilder(segment)
        require_extents(builder, params.extent_ranges)
        copies = cache_arguments(builder)
        name = computed_source(builder, scan.output.name)
        outside, held = _transform(builder, name, scan.dim, params)
        vectorize(builder, copies, params.vectorized, params.access)
        # Loads stay in registers from there on: all of a step's are issued before the first is used. What is constant along the
        # scanned dim is loaded and computed once, before the first step.
        once = _constant_along_scan(builder, scan)
        loads = {copy for argument, copy in copies.items() if copy != argument}
        builder.inline_most(
            limits=[
                *((n, builder.common_loops(n, name, outside)) for n in once),
                *((n, builder.common_loops(n, name, held)) for n in copies.values() if n in loads and n not in once),
            ]
        )
        for argument, copy in copies.items() if params.prefetch else ():
            if argument in builder.input_names:
                builder.load_ahead(copy, best_effort=True)
        return builder


_Way = tuple[ScanSpace, RowAccesses]
"""Vector accesses that a scan may have, with its space."""


def _sized_scan(segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> tuple[ReducedSpace, list[_Way]]:
    """The dims of a segment at given sizes, of which one is scanned, and the accesses that it may have."""
    graph = segment.resolved_dims
    reference = reference_scan(segment)
    scanned = graph.group(reference.axis)
    dims = ReducedSpace(segment, inputs, reference.output, frozenset([scanned]))
    fastest = dims.groups[dims.order[-1]]
    count = concrete_dims(graph, reference.output)
    arguments = [t for t in (*segment.input_tensors, *segment.output_tensors) if not t.is_cpu]
    full = [t for t in arguments if concrete_dims(graph, t) == count]
    limit = vector_limit(segment, fastest)
    operations, live = element_counts(segment)
    inner = fastest is scanned
    if inner:
        accesses = choose_accesses(segment, [fastest], inputs, limit)
        candidates = [accesses]
        if isinstance(accesses.access, Peeled):
            shorter = sorted({min(limit, _SHORT_VECTOR), 1} - {limit})
            candidates += [choose_accesses(segment, [fastest], inputs, n) for n in shorter]
    else:
        candidates = [RowAccesses(*choose_vector(segment, fastest, inputs, limit))]

    def work(way: RowAccesses) -> ScanSpace:
        is_cut = isinstance(way.access, Peeled)
        # The first part of a row that is cut where it is aligned may hold a single element of it.
        spread = dims.length + (way.vector - 1 if is_cut else 0)
        sizes = [t.dtype.itemsize for t in full]
        return ScanSpace(
            inner=inner,
            length=spread if inner else round_to_significant_bits(spread, _DIGITS),
            kept=round_to_significant_bits(dims.kept, _DIGITS),
            vector=way.vector,
            itemsize=ACCESS_BYTES // limit,
            narrowest=min(sizes, default=ACCESS_BYTES // limit),
            loaded=sum(t.dtype.itemsize for t in full if t in segment.input_tensors),
            moved=sum(sizes),
            arguments=len(full),
            scans=len(scans_of(segment)),
            live=live,
            operations=operations,
            most=max_unrolled_elements(segment, device),
            is_cut=is_cut,
            is_divided=not inner and _has_both_sides(dims),
            is_apart=any(dims.sizes[fastest] * size % SECTOR_BYTES for size in sizes),
        )

    return dims, [(work(way), way) for way in candidates]


def _has_both_sides(dims: ReducedSpace) -> bool:
    """Whether dims of more than one element are slower than the scanned one, and others faster."""
    order = (dims.groups[d] for d in dims.order)
    return any(dims.sizes[g] != 1 for g in takewhile(lambda g: g not in dims.reduced, order))


def _params(dims: ReducedSpace, way: _Way, m: ScanMapping, reasons: Sequence[str]) -> ScanParams:
    work, accesses = way
    bounds: tuple[ExtentRange, ...] | Refused = ()
    capacity = m.along * m.batch * m.sharing * m.vector - (work.length - dims.length)
    if work.inner and 1 < dims.length <= capacity:
        bounds = row_extent_ranges(dims, capacity)
    return ScanParams(
        order=dims.order,
        inner=work.inner,
        block_scan=m.along,
        block_iterate=m.across,
        batch=m.batch,
        vector=m.vector,
        vectorized=accesses.vectorized if m.vector > 1 else (),
        access=accesses.access,
        cluster=m.sharing,
        prefetch=m.prefetch,
        extent_ranges=() if isinstance(bounds, Refused) else bounds,
        reasons=reasons,
    )


def _constant_along_scan(builder: ScheduleBuilder, scan: Scan) -> list[str]:
    """Results that the scanned dim is no dim of."""
    graph = builder.graph()
    scanned = graph.group(scan.axis)
    results = (t for e in builder.exprs for t in tensor_outputs(e))
    return [t.name for t in results if all(d.is_broadcast or graph.group(d) is not scanned for d in t.visible)]


def _transform(builder: ScheduleBuilder, name: str, dim: int, params: ScanParams) -> tuple[int, int]:
    """Loops of all tensors; returns how many of them are around those of the scanned dim, and around the accesses that a
    thread holds at once."""
    loop = builder.state(name).loop
    graph = builder.graph()
    # Other dims of one element stay out of the merged loops: tensors without them could not share those.
    trivial = [d for d in params.order if d != dim and graph.group(loop[d]).is_broadcast]
    kept = [d for d in params.order if d != dim and d not in trivial]
    builder.reorder(name, {d: p for p, d in enumerate([*kept, dim, *trivial])})
    merge_axes(builder, name, 0, len(kept))
    at = 1 if kept else 0
    types: list[tuple[int, ParallelType]] = []
    if params.inner:
        if kept:
            types.append((0, ParallelType.grid_x))
            if params.block_iterate > 1:
                builder.split(name, 0, params.block_iterate)
                types.append((1, ParallelType.block_y))
                at = 2
        if params.vector > 1:
            split_vector(builder, name, at, params.vector, params.access)
        builder.split(name, at, params.block_scan)
        if params.batch > 1:
            builder.split(name, at, params.batch)
            # Steps that are inside the row test nothing.
            types.append((at + 1, ParallelType.unswitch))
        types.append((at + (2 if params.batch > 1 else 1), ParallelType.block_x))
    else:
        if params.vector > 1:
            builder.split(name, 0, params.vector)
            builder.reorder(name, {1: 2})  # the vector axis goes inside the scanned dim
        builder.split(name, 0, params.block_iterate)
        types += [(0, ParallelType.grid_x), (1, ParallelType.block_x)]
        at = 2
        if params.batch > 1:
            builder.split(name, at, params.batch)
        if params.block_scan > 1:
            builder.split(name, at, params.block_scan)
            types.append((at + 1, ParallelType.block_y))
        elif params.batch > 1:
            types.append((at + 1, ParallelType.unroll))
    outside = at
    if params.cluster > 1:
        builder.split(name, at, params.cluster)
        builder.set_cluster(ParallelType.grid_y, params.cluster)
        types = [(p if p <= at else p + 1, t) for p, t in types]
        types.append((at + 1, ParallelType.grid_y))
        at += 1
    builder.transform_like(name)
    set_loop_types(builder, name, types)
    return outside, at + 1
