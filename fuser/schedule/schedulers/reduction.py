"""Reductions, and normalisations in several passes: a block has some rows (or columns) and reads them once per data pass.

A *data pass* reads the full-size data once: it ends in reductions whose inputs depend on the same number of earlier
reductions, or in full-size outputs. Values that two data passes need are recomputed in each, so that only reduction results are
kept between data passes and rows may have any length.

Loops, with K the kept dims, R the reduced ones, u accesses of a thread that are issued together and p blocks that share one
result (the last block combines their partial results):

    inner (the fastest dim is reduced)   K/ty -> grid_x, ty -> block_y, p -> grid_y, R/v/p/tx/u serial, tx -> block_x, u, v
    outer (the fastest dim is kept)      K/v/tx -> grid_x, tx -> block_x, p -> grid_y, R/p/ty/u serial, ty -> block_y, u, v
    planes (reduced dims O and M on      K -> grid_x, p -> grid_y, O/p/ty serial, ty -> block_y,
    both sides of kept ones)             M/v/tx/u serial, tx -> block_x, u, v (or u of O instead of M)

Copies of inputs are outside the unrolled loop over u: all loads of an iteration are issued before the first is used. The
loop is unswitched: full iterations have no predicates. If v is along a reduced dim, each of the v elements has its own
partial result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import (
    ExpSum,
    Fusion,
    IterDomain,
    Reducing,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.schedule_propagation import origins
from fuser.records import record
from fuser.schedule.analysis.data_passes import (
    recompute_cheap_values,
    recompute_except,
    recompute_parts_of_rows,
    reduced_groups_of,
    row_reductions,
)
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.rows import contiguous_runs
from fuser.schedule.cost.mapping_search import best_mapping
from fuser.schedule.cost.persistent_buffer_size import use_two_pass_statistics
from fuser.schedule.cost.reduction_mappings import REDUCTIONS, ReductionMapping
from fuser.schedule.cost.reduction_space import SizedReduction, find_reduction
from fuser.schedule.params import Aligned, Params, ParamsClass, ReductionParams
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.thread_reduction import is_thread_reduction_faster
from fuser.schedule.transforms.loops import (
    computed_source,
    merge_runs,
    reference_result,
    require_extents,
    set_loop_types,
    split_grid_stride,
)
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize


class ReductionScheduler(Scheduler):
    """Accepts segments whose reductions run over the same dims of one iteration space."""

    type = SchedulerType.reduction
    params: ParamsClass = ReductionParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        return accepts_reductions(segment)

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        shared = self.propose_block_reduction(segment, inputs, device)
        if is_thread_reduction_faster(segment, inputs, device, shared.vector):
            return Refused("a thread has all that a result is reduced from")
        return shared

    def propose_block_reduction(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> ReductionParams:
        """What is proposed where threads share a reduction."""
        return _proposed(find_reduction(segment, inputs, device), device)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        found = find_reduction(segment, inputs, device)
        yield _proposed(found, device)
        for _, m in REDUCTIONS.ranked(found.space, device)[1:]:
            yield _params(found, m, ())

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, ReductionParams)
        return schedule_reduction(segment, params)


def _proposed(found: SizedReduction, device: DeviceInfo) -> ReductionParams:
    best = best_mapping(REDUCTIONS, found.space, device)
    assert best is not None
    return _params(found, best[1], Reasons(lambda: REDUCTIONS.reasons(as_told(found.space), device)))


def _params(found: SizedReduction, m: ReductionMapping, reasons: Sequence[str]) -> ReductionParams:
    return ReductionParams(
        order=found.order,
        inner=found.space.inner,
        block_reduce=m.along,
        block_iterate=m.across,
        vector=found.accesses.vector,
        vectorized=found.accesses.vectorized,
        grid_reduce=m.sharing,
        unroll=1 if m.unroll_outer else m.unroll,
        block_outer=m.outer,
        unroll_outer=m.unroll if m.unroll_outer else 1,
        run_dims=found.run_dims,
        grid_along=m.grid_along,
        access=found.accesses.access,
        cluster=m.cluster,
        extent_ranges=found.extent_ranges,
        reasons=reasons,
    )


def schedule_reduction(
    segment: Fusion, params: ReductionParams, blocks: int = 0, *, in_registers: bool = False
) -> ScheduleBuilder:
    """The schedule, also of chained reductions. `blocks`: see `split_grid_stride`.

    in_registers   what a thread reads of its columns, in one iteration, stays there for all data passes
    """
    builder = ScheduleBuilder(segment)
    require_extents(builder, params.extent_ranges)
    if in_registers:
        use_two_pass_statistics(builder)
    name = reference_result(builder)
    copies = cache_arguments(builder)
    name = computed_source(builder, name)
    stages = {} if in_registers else recompute_except(builder)[1]
    if in_registers:
        recompute_cheap_values(builder)
        recompute_parts_of_rows(builder)
    graph, along = builder.graph(), reduced_groups_of(builder)
    lasting = {t.name for t in builder.tensors if not any(graph.group(d) in along for d in t.visible)}
    visible = {t.name: t.visible for t in builder.tensors}
    once = ParallelType.unroll if in_registers else ParallelType.unswitch
    steps = _transform(builder, name, params, blocks, once)
    loaded = [made for argument, made in copies.items() if argument not in builder.output_names]
    loads = [copy for made in loaded for copy in (made, *stages.get(made, ()))]
    if blocks:
        # Values of a row are loaded again in each iteration.
        loads = [copy for copy in loads if copy not in lasting]
    for argument in params.vectorized:
        made = copies.get(argument)
        if made is not None:
            for copy in (made, *stages.get(made, ())):
                vectorize(builder, {argument: copy}, [argument], params.access)
    # Asked before results are split into partial ones: those are reduced over a part of a row each.
    column_values = set() if params.inner else _column_values(builder)
    if column_values:
        loads = [n for n in loads if _has_rows(builder, n)]
    if in_registers:
        # What all columns share comes from a cache when it is used.
        loads = [n for n in loads if n not in lasting and any(_is_kept(graph, along, d) for d in visible[n])]
    partial = _split_partials(builder, params, steps)
    names = [t.name for e in builder.exprs for t in tensor_outputs(e)]
    limits: list[tuple[str, int]] = []
    if column_values:
        # What needs a result is in the loops around a column, not in a nest of its own: that could be neither before nor
        # behind a nest which makes the result and needs others that it is for. All are placed from the outputs on: what a
        # value's consumers share says where it may be.
        axes = builder.state(name).loop
        around = next((i for i, axis in enumerate(axes) if axis.is_reduction), len(axes))
        # With several iterations no value can be outside of all.
        near = column_values if blocks else column_values & _computed_from_reductions(builder)
        limits = [(n, around) for n in sorted(near)]
    apart = column_values.difference(n for n, _ in limits)
    if params.in_flight > 1:
        # All loads of a step are before the first use: they are kept outside the unrolled loop.
        limits += [(n, builder.common_loops(n, partial.get(name, name), steps.unrolled)) for n in loads]
    builder.inline_most([n for n in names if n not in apart or n in loads], limits)
    return builder


def _split_partials(builder: ScheduleBuilder, params: ReductionParams, steps: _Steps) -> dict[str, str]:
    """Give a thread several partial results: for each lane of a vector along a reduced dim, and for each step of Welford.

    One chain of additions per lane instead of one for all, and shorter sums: both faster and more accurate. A step of
    Welford adds up differences from its first value, few enough to lose no digits. Returns the tensor with all loops for
    each result.
    """
    made: dict[str, str] = {}
    for e in row_reductions(builder):
        result = name = tensor_outputs(e)[0].name
        if isinstance(e, ExpSum):
            # Its elements of a step are folded together, side by side.
            made[result] = name
            continue
        if params.inner and params.vector > 1:
            name = _first(builder.rfactor(name, list(steps.serial)))
        if isinstance(e, Welford) and params.in_flight > 1:
            name = _first(builder.rfactor(name, [steps.unrolled]))
        made[result] = name
    return made


def _transform(
    builder: ScheduleBuilder, name: str, params: ReductionParams, blocks: int, unrolled_as: ParallelType
) -> _Steps:
    loop = builder.state(name).loop
    # Dims of one element stay out of the merged loops: tensors without them could not share those.
    graph = builder.graph()
    trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
    kept = [d for d in params.order if d not in trivial and not loop[d].is_reduction]
    reduced = [d for d in params.order if loop[d].is_reduction]
    apart = [d for d in trivial if d not in reduced]
    builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *apart])})
    # Dims that follow one another in memory are merged first: those are the ones that may make one contiguous axis.
    merge_runs(builder, name, 0, contiguous_runs(params.order, apart, kept))
    runs = contiguous_runs(params.order, apart, reduced)
    at = 1 if kept else 0
    slow, fast = _split_runs(runs, params.run_dims)
    planes = params.block_outer > 0 and len(slow) > 0
    if planes:
        merge_runs(builder, name, at, slow)
        merge_runs(builder, name, at + 1, fast)
    else:
        merge_runs(builder, name, at, runs)
    types: list[tuple[int, ParallelType]] = []
    if params.inner:
        if kept:
            types.append((0, ParallelType.grid_x))
            if params.block_iterate > 1:
                builder.split(name, 0, params.block_iterate)
                at = 2
            at += split_grid_stride(builder, name, blocks)
            if params.block_iterate > 1:
                types.append((at - 1, ParallelType.block_y))
        # The vector is cut off first: every part of the grid then starts at a multiple of it.
        if params.vector > 1:
            split_vector(builder, name, at + planes, params.vector, params.access)
        along = ParallelType.block_x
    else:
        # K/v/tx, tx, [grid part,] R/ty/u, ty, u, v
        if params.vector > 1:
            builder.split(name, 0, params.vector)
        builder.split(name, 0, params.block_iterate)
        at = 2 + split_grid_stride(builder, name, blocks)
        types += [(0, ParallelType.grid_x), (at - 1, ParallelType.block_x)]
        if params.vector > 1:
            builder.reorder(name, {at: at + 1})  # the vector axis goes inside the reduction
        along = ParallelType.block_y
    if params.grid_reduce > 1:
        if planes and params.grid_along:
            # [O, M] -> [p, O, M/p]
            builder.split(name, at + 1, params.grid_reduce, False)
            builder.reorder(name, {at + 1: at})
        else:
            builder.split(name, at, params.grid_reduce, False)
        types.append((at, ParallelType.grid_y))
        at += 1
        if params.cluster:
            builder.set_cluster(ParallelType.grid_y, params.grid_reduce)
    serial: list[int] = []
    unrolled = -1
    if planes:
        # [O, M] -> [O/ty, ty, M]
        builder.split(name, at, params.block_outer)
        serial.append(at)
        types.append((at + 1, ParallelType.block_y))
        if params.unroll_outer > 1:
            builder.split(name, at, params.unroll_outer)
            builder.reorder(name, {at + 1: at + 2})
            unrolled = at + 2
            types[-1] = (at + 1, ParallelType.block_y)
        at += 2
    builder.split(name, at + (unrolled > 0), params.block_reduce)
    if unrolled > 0:
        builder.reorder(name, {at: at + 2})  # [u, M/t, t] -> [M/t, t, u]
    elif params.unroll > 1:
        # [R/t, t] -> [R/t/u, t, u]: a step is u accesses, each of them next to its neighbour threads'.
        builder.split(name, at, params.unroll)
        builder.reorder(name, {at + 1: at + 2})
    serial.append(at)
    types.append((at + 1, along))
    if params.in_flight > 1:
        # The remainder loop is code of its own, which costs the time to fetch it if it runs once.
        types.append((at + 2, unrolled_as))
        serial.append(at + 2)
    elif params.grid_reduce > 1 and params.inner and params.vector > 1 and not isinstance(params.access, Aligned):
        # Elements of vectors that the ends of rows cut are tested one by one: not in the many iterations of a long row.
        types.append((at + 2, unrolled_as))
    builder.transform_like(name)
    set_loop_types(builder, name, types)
    return _Steps(tuple(serial), at + 2)


@record
class _Steps:
    """Loops of a thread along the reduced axes: positions of the serial ones, and of the unrolled one where there is one."""

    serial: tuple[int, ...]
    unrolled: int


def _has_rows(builder: ScheduleBuilder, name: str) -> bool:
    """Whether a tensor has elements of its own along a reduced dim."""
    own = builder.graph().concrete_groups(builder.state(name).tensor.visible)
    return not own.isdisjoint(reduced_groups_of(builder))


def _is_kept(graph: IterationGraph, reduced: Set[Group], dim: IterDomain) -> bool:
    """Whether a dim has several elements and is not reduced."""
    return not dim.is_broadcast and graph.group(dim) not in reduced


def _column_values(builder: ScheduleBuilder) -> set[str]:
    """Values of columns that full-size data needs, such as a weight or a factor computed from a statistic.

    A thread goes over many rows of its columns: it computes these once and holds them. Not what lacks some of the dims that its
    loops go over as one: that is the same for several columns, whose threads would each hold another's.
    """
    wide = {t.name for t in builder.tensors if _has_rows(builder, t.name)}
    found: set[str] = set()
    for e in builder.exprs:
        if isinstance(e, Reducing) or tensor_outputs(e)[0].name not in wide:
            continue
        for t in tensor_inputs(e):
            computed = builder.definition(t.name)
            if t.name not in wide and computed is not None and not isinstance(computed, Reducing):
                found.add(t.name)
    return {n for n in found - builder.output_names if not any(map(_lacks_dims, builder.state(n).loop))}


def _lacks_dims(axis: IterDomain) -> bool:
    """Whether the loop of an axis also iterates over dims that its tensor lacks."""
    return not axis.is_broadcast and any(d.is_broadcast for d in origins(axis))


def _computed_from_reductions(builder: ScheduleBuilder) -> set[str]:
    """Names of reductions' results and of what is computed from them."""
    found: set[str] = set()
    for e in builder.exprs:
        if isinstance(e, Reducing) or any(t.name in found for t in tensor_inputs(e)):
            found.update(t.name for t in tensor_outputs(e))
    return found


def _first(made: str | tuple[str, ...]) -> str:
    """The tensor that rfactor made, or the first of a triple."""
    return made if isinstance(made, str) else made[0]


def _split_runs(runs: list[int], run_dims: int) -> tuple[list[int], list[int]]:
    """Runs of neighbouring reduced dims (number of dims of each, slowest first): those before the fastest one, and that one,
    cut to `run_dims` if that is not 0."""
    slow, fast = runs[:-1], runs[-1:]
    if 0 < run_dims < sum(fast):
        return [*slow, fast[0] - run_dims], [run_dims]
    return slow, fast
