"""The schedule of rows that are kept on chip, made from the parameters of `inner_persistent`, whose docstring has the loops."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Broadcast, Fusion, Pointwise, tensor_outputs
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import recompute_cheap_values, row_reductions
from fuser.schedule.analysis.reference import concrete_dims
from fuser.schedule.analysis.rows import contiguous_runs
from fuser.schedule.cost.persistent_buffer_size import inputs_first_read_after_reduction, use_two_pass_statistics
from fuser.schedule.params import Aligned, InnerPersistentParams, Peeled
from fuser.schedule.schedulers.reduction_loops import merge_runs, split_grid_stride
from fuser.schedule.transforms.evict_last import evict_last
from fuser.schedule.transforms.shared_rows import (
    copy_rows_to_shared,
    inline_rows,
    pass_through_registers,
    unrolled,
    vectorize_rows,
)
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize


def schedule_rows(segment: Fusion, params: InnerPersistentParams, blocks: int = 0) -> ScheduleBuilder:
    """The schedule, also of chained reductions. `blocks`: see `split_grid_stride`."""
    builder = ScheduleBuilder(segment)
    for tensor, dim, low, high in params.extent_ranges:
        builder.require_extent_range(tensor, dim, low, high)
    use_two_pass_statistics(builder, one_pass=params.one_pass)
    copies = cache_arguments(builder)
    late = inputs_first_read_after_reduction(builder, copies) if params.load_all_first else ()
    placed = copy_rows_to_shared(builder, copies, params)
    evict_last(builder, copies)
    recompute_cheap_values(builder, inputs_only=params.inputs_only)
    _recompute_parts_of_rows(builder)
    pass_through_registers(builder, placed)
    name = _reference_name(builder)
    at = _transform(builder, name, params, blocks if params.groups is None else params.groups.count)
    in_registers = [a for a in params.vectorized if a in copies and a not in params.in_shared]
    vectorize(builder, copies, in_registers, params.access)
    vectorize_rows(builder, placed, params.access)
    if params.resident:
        builder.require_blocks_per_sm(params.resident)
    inline_rows(builder, placed, dict.fromkeys(late, at), persistent=params.groups is not None)
    return builder


def _recompute_parts_of_rows(builder: ScheduleBuilder) -> None:
    """Compute values that have some of the dims of a row, but not all, once for each use.

    The dims of a row are merged: what lacks one of them is spread over threads in another way than what has them all, and
    cannot be kept for several loops.
    """
    graph = builder.graph()
    row = {graph.group(a) for a in builder.state(_reference_name(builder)).loop if a.is_reduction}
    for e in reversed(builder.exprs):
        name = tensor_outputs(e)[0].name
        own = row.intersection(graph.group(a) for a in builder.state(name).loop if not a.is_broadcast)
        if isinstance(e, (Pointwise, Broadcast)) and own and own < row and name not in builder.output_names:
            for use in builder.uses(name)[1:]:
                builder.recompute(name, [use])


def _transform(builder: ScheduleBuilder, name: str, params: InnerPersistentParams, blocks: int) -> int:
    """The loops, from those of one tensor; how many of them are around those of a row."""
    loop = builder.state(name).loop
    graph = builder.graph()
    # Dims of one element stay out of the merged loops: tensors without them could not share those.
    trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
    kept = [d for d in params.order if d not in trivial and not loop[d].is_reduction]
    reduced = [d for d in params.order if loop[d].is_reduction]
    builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *trivial])})
    for _ in range(len(kept) - 1):
        builder.merge(name, 0, 1)
    at = 1 if kept else 0
    merge_runs(builder, name, at, contiguous_runs(params.order, trivial, reduced))
    types: list[tuple[int, ParallelType]] = []
    of_rows, of_row = ParallelType.grid_x, ParallelType.grid_y
    if params.groups is not None:
        # Neighbouring blocks are of one row (H200: softmax of 64 rows of 1048576 takes 97 us so, 104 the other way).
        of_rows, of_row = of_row, of_rows
    if kept:
        types.append((0, of_rows))
        if params.rows > 1:
            builder.split(name, 0, params.rows)
            at = 2
        at += split_grid_stride(builder, name, blocks)
        if params.rows > 1:
            types.append((at - 1, ParallelType.block_y))
    around = at
    if params.vector > 1:
        split_vector(builder, name, at, params.vector, params.access)
    builder.split(name, at, params.threads)
    builder.split(name, at, params.batch)
    if params.cluster > 1:
        builder.split(name, at, params.cluster)
        at += 1
        types.append((at, of_row))
        if params.groups is not None:
            builder.require_blocks_per_sm(params.groups.resident)
        else:
            builder.set_cluster(ParallelType.grid_y, params.cluster)
    types.append((at + 2, ParallelType.block_x))
    at_once = (
        # Of a group a piece of the row is waited for when it is used.
        1
        if params.groups is not None or not params.in_shared
        else unrolled(params.batch, is_cut=not isinstance(params.access, Aligned))
    )
    if at_once > 1:
        builder.split(name, at + 1, at_once)
        types[-1] = at + 3, ParallelType.block_x
        if not params.in_shared:
            types.append((at + 1, ParallelType.unroll))
        # Of rows that are cut, only threads with the first or the last vector test more than once for all accesses.
        types.append((at + 2, ParallelType.unswitch if isinstance(params.access, Peeled) else ParallelType.unroll))
    if isinstance(params.access, Peeled):
        # Only the first and the last vectors of a row test their elements.
        types.append((at + 3 + (at_once > 1), ParallelType.unswitch))
    builder.transform_like(name)
    for position, parallel_type in types:
        builder.parallelize(name, position, parallel_type)
    builder.parallelize_like(name)
    return around


def _reference_name(builder: ScheduleBuilder) -> str:
    """The result of the first reduction, as `find_rows` takes it: others of the same dims may lack those of one element."""
    graph = builder.graph()
    results = [tensor_outputs(e)[0] for e in row_reductions(builder)]
    return max(results, key=lambda t: concrete_dims(graph, t)).name
