"""Normalisations and scans along the fastest dim: a row is read once and kept on chip until it is written.

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

In registers, copies of the row tensors are outside the loop over B: each thread issues B loads of v elements before it uses
the first, and has [B][v] registers. The schedule requires R <= v*tx*B*C, which makes the loop around C one iteration. A row
within a warp needs no block barrier. A row too long for a block is shared by the C blocks of a cluster, which reduce through
distributed shared memory, or by a block group of the grid, which reduces through device memory. In shared memory, rows are
copied asynchronously, and each data pass reads them again (`transforms/shared_rows.py`). A scan is one more exchange of the
threads of a row: its elements are in registers, of a block or of a cluster.

`cost/row_mappings.py` enumerates the mappings that fit; the one with the least estimated time is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Scan
from fuser.ir.integers.number_trace import as_told
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import (
    empty_schedule,
    recompute_cheap_values,
    recompute_parts_of_rows,
    reduced_groups_of,
    sink_pass_count,
)
from fuser.schedule.analysis.reduced_dims import accepts_reductions_and_scans
from fuser.schedule.analysis.rows import Rows, contiguous_runs, find_rows, row_extent_ranges
from fuser.schedule.cost.persistent_buffer_size import (
    inputs_first_read_after_reduction,
    persistent_buffer_size,
    use_two_pass_statistics,
)
from fuser.schedule.cost.row_mappings import RowMapping
from fuser.schedule.cost.row_search import ROWS, best_row_mapping
from fuser.schedule.cost.row_space import RowSpace, row_space
from fuser.schedule.params import Aligned, BlockGroups, InnerPersistentParams, Params, ParamsClass, Peeled
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.transforms.evict_last import evict_last
from fuser.schedule.transforms.loops import (
    merge_axes,
    merge_runs,
    reference_result,
    require_extents,
    set_loop_types,
    split_grid_stride,
)
from fuser.schedule.transforms.shared_rows import (
    copy_rows_to_shared,
    inline_rows,
    pass_through_registers,
    unrolled,
    vectorize_rows,
)
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize


class InnerPersistentScheduler(Scheduler):
    """Accepts segments whose full-size data is needed by more than one data pass, with scans along rows that are reduced;
    proposes for rows that fit on chip."""

    type = SchedulerType.inner_persistent
    params: ParamsClass = InnerPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        answer = accepts_reductions_and_scans(segment)
        if isinstance(answer, Refused):
            return answer
        if sink_pass_count(empty_schedule(segment)) < 2:
            return Refused("the data is needed once")
        for one_pass in (False, True):
            persistent_buffer_size(segment, one_pass=one_pass)  # what `propose` asks for any sizes
        return Accepted()

    def propose(
        self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, *, may_use_block_groups: bool = True
    ) -> Params | Refused:
        """See `Scheduler.propose`. Without block groups of the grid a row is in a block or a cluster."""
        found = find_rows(segment, inputs, MAX_ELEMENT_STRIDE)
        if isinstance(found, Refused):
            return found
        row = row_space(segment, found, device, may_use_block_groups=may_use_block_groups)
        best = best_row_mapping(row, device)
        if best is None:
            return Refused(f"no way to hold rows of {found.space.length} elements on chip")
        return _params(found, row, best, device)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        found = find_rows(segment, inputs, MAX_ELEMENT_STRIDE)
        if isinstance(found, Refused):
            return
        row = row_space(segment, found, device)
        for _, m in ROWS.ranked(row, device):
            yield _params(found, row, m, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, InnerPersistentParams)
        return schedule_rows(segment, params)


MAX_ELEMENT_STRIDE = 4
"""Rows that may be side by side: each takes all of the memory's sectors that any of them has an element of."""


def _params(found: Rows, row: RowSpace, m: RowMapping, device: DeviceInfo) -> InnerPersistentParams | Refused:
    """The parameters of a mapping; refused where the extents of a row cannot be bounded."""
    accesses = found.accesses
    capacity = m.threads * m.batch * m.sharing * accesses.vector
    # All accesses of a thread but the last are inside the row, for whatever length the kernel serves.
    is_whole = not (found.missing_elements or m.sharing > 1 or m.in_shared)
    least = m.threads * (m.batch - 1) * accesses.vector + 1 if is_whole else 1
    bounds = row_extent_ranges(found.space, capacity - found.missing_elements, least, parts=not m.groups)
    if isinstance(bounds, Refused):
        return bounds
    in_shared = found.shared_row_tensors(device) if m.in_shared else ()
    # Elements of four bytes and more are copied asynchronously one by one, wherever they begin.
    narrow = {r.name for r in found.reads if r.tensor.dtype.itemsize < 4 and r.name not in accesses.in_phase}
    is_cut = not isinstance(accesses.access, Aligned)
    return InnerPersistentParams(
        order=found.space.order,
        threads=m.threads,
        rows=m.rows,
        batch=m.batch,
        vector=accesses.vector,
        vectorized=accesses.vectorized,
        extent_ranges=bounds,
        cluster=m.sharing,
        inputs_only=m.in_shared,
        in_shared=in_shared,
        access=accesses.access,
        one_pass=m.one_pass,
        groups=BlockGroups(m.groups, m.resident) if m.groups else None,
        resident=m.resident if m.in_shared and is_cut else 0,
        funnel_shifted=tuple(n for n in in_shared if n in narrow) if is_cut else (),
        load_all_first=m.load_all_first,
        reasons=Reasons(lambda: ROWS.reasons(as_told(row), device)),
    )


def schedule_rows(segment: Fusion, params: InnerPersistentParams, blocks: int = 0) -> ScheduleBuilder:
    """The schedule, also of chained reductions. `blocks`: see `split_grid_stride`."""
    builder = ScheduleBuilder(segment)
    require_extents(builder, params.extent_ranges)
    use_two_pass_statistics(builder, one_pass=params.one_pass)
    copies = cache_arguments(builder)
    late = inputs_first_read_after_reduction(builder, copies) if params.load_all_first else ()
    placed = copy_rows_to_shared(builder, copies, params)
    evict_last(builder, copies, reduced_groups_of(builder))
    recompute_cheap_values(builder, inputs_only=params.inputs_only)
    recompute_parts_of_rows(builder)
    pass_through_registers(builder, placed)
    name = reference_result(builder)
    at = _transform(builder, name, params, blocks if params.groups is None else params.groups.count)
    in_registers = [a for a in params.vectorized if a in copies and a not in params.in_shared]
    vectorize(builder, copies, in_registers, params.access)
    vectorize_rows(builder, placed, params.access)
    if params.resident:
        builder.require_blocks_per_sm(params.resident)
    inline_rows(builder, placed, dict.fromkeys(late, at), persistent=params.groups is not None)
    return builder


def _transform(builder: ScheduleBuilder, name: str, params: InnerPersistentParams, blocks: int) -> int:
    """The loops, from those of one tensor; how many of them are around those of a row."""
    loop = builder.state(name).loop
    graph = builder.graph()
    # Dims of one element stay out of the merged loops: tensors without them could not share those.
    trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
    kept = [d for d in params.order if d not in trivial and not loop[d].is_reduction]
    reduced = [d for d in params.order if loop[d].is_reduction]
    builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *trivial])})
    merge_axes(builder, name, 0, len(kept))
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
    if at_once == 1 and any(isinstance(e, Scan) for e in builder.exprs):
        # One collective takes all accesses of a thread.
        types.append((at + 1, ParallelType.unroll))
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
    set_loop_types(builder, name, types)
    return around
