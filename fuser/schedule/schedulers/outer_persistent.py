"""Normalisations along slower dims: a block keeps all rows of its columns in registers, or all blocks share the rows.

With few rows, such as the channels of channels-first images, a block loads all rows of some columns into registers once, for
all data passes. A thread has one or more adjacent columns, and all of their rows or a share of them
(`cost/outer_persistent_mappings.py`):

    K/(v*tx) -> grid_x, tx -> block_x, R/(ty*u) = 1, ty -> block_y, u unrolled, v -> vector

With many rows, as in channels-last batch normalisation, it is one cooperative kernel with as many blocks as are resident,
over the loops of the reduction scheduler. A block has a narrow range of columns and a share of the rows: few blocks share a
column, so that each can combine the partial results of all of them. Between passes the blocks wait for each other. Then each
block reads its rows again, from the last to the first, because the last ones are still in registers or in L2. The first ones
are kept in shared memory, as many as fit.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Pointwise, Tensor, Welford, tensor_outputs
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.data_passes import data_pass_indices, empty_schedule, sink_pass_count
from fuser.schedule.analysis.input_reads import input_reads
from fuser.schedule.analysis.reduced_dims import accepts_reductions, reduced_groups, reductions_of, reference_reduction
from fuser.schedule.analysis.reduced_space import reduced_space
from fuser.schedule.analysis.rows import row_extent_ranges
from fuser.schedule.cost.instruction_cache import element_instructions, max_unrolled_elements, row_instructions
from fuser.schedule.cost.mapping_search import best_mapping
from fuser.schedule.cost.outer_persistent_mappings import (
    COLUMNS,
    ColumnMapping,
    ColumnSpace,
    over_grid_time,
)
from fuser.schedule.cost.persistent_buffer_size import persistent_buffer_size
from fuser.schedule.cost.scratch_budget import partial_result_bytes, scratch_bytes, threads_with_partials
from fuser.schedule.params import OuterPersistentParams, Params, ParamsClass, ReductionParams
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers.reduction import ReductionScheduler, schedule_reduction
from fuser.schedule.transforms.loops import require_extents

RUN = 256
"""Bytes of a row that a block takes: two lines. With fewer the memory is slower, with more each block has more to join."""
BLOCKS = (512, 384, 256)
"""Threads of a block. One block per SM: in a pass nothing waits, so that more of them would only have more to join."""
OWN_REGISTERS = 40
"""Registers of a thread for addresses and temporaries, in addition to loads in flight and values of columns."""
ADDRESS_REGISTERS = 2
"""Registers of an address: rows are a stride apart that is known only at run time."""
UNROLLS = (8, 7, 6, 4, 2, 1)
"""Accesses in flight of a thread, where an iteration of them stays on chip: as many iterations as fit."""
OTHER_UNROLLS = (8, 4, 2, 1)
"""The same where none does."""
SLACK_BYTES = 1024
"""Of shared memory, for what is aligned and for flags."""
ITERATIONS_AXIS = 3
"""The serial loop over a thread's rows: after the blocks and threads along the columns, and the blocks along the rows."""


@record
class ColumnAccessCost:
    """What a thread has for an access.

    vector        elements
    loaded        bytes
    accumulators  registers of partial results, or later of what is computed from the results, and of weights
    joined        bytes of results that a thread leaves for others of its block
    keeps         rows may stay on chip for the second pass
    """

    vector: int
    loaded: int
    accumulators: int
    joined: int = 0
    keeps: bool = False


@record
class GridOuterShape:
    """`across` x `along` threads, `sharing` blocks for the rows of the same columns, `unroll` accesses in flight a thread, the
    rows of `kept` iterations in shared memory."""

    across: int
    along: int
    sharing: int
    unroll: int
    registers: int
    in_flight: int
    kept: int = 0


@record
class PlacedColumns:
    """Columns that blocks hold: parameters, with their mapping and the microseconds that all of them should take."""

    params: OuterPersistentParams
    space: ColumnSpace
    mapping: ColumnMapping
    time_us: float


class OuterPersistentScheduler(Scheduler):
    """Accepts what the reduction scheduler does, with several data passes; proposes where the fastest dim is kept."""

    type = SchedulerType.outer_persistent
    params: ParamsClass = OuterPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        answer = accepts_reductions(segment)
        if isinstance(answer, Refused):
            return answer
        if sink_pass_count(empty_schedule(segment)) < 2:
            return Refused("the data is needed once")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        loops = ReductionScheduler().propose(segment, inputs, device)
        if isinstance(loops, Refused):
            return loops
        assert isinstance(loops, ReductionParams)
        if loops.inner:
            return Refused("the fastest dim is reduced")
        found = propose_columns(segment, loops, inputs, device)
        return found.params if isinstance(found, PlacedColumns) else found

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, OuterPersistentParams)
        if params.reduction.grid_reduce == 1 or params.reduction.cluster:
            return schedule_in_registers(segment, params)
        builder = schedule_reduction(segment, params.reduction)
        builder.require_blocks_per_sm(1)
        levels = data_pass_indices(empty_schedule(segment))
        graph = segment.resolved_dims
        reduced = reduced_groups(graph, reference_reduction(segment))
        # Asked of the segment: the reductions of the schedule are split into steps, each over a part of the rows.
        with_rows = {
            t.name
            for t in (*segment.input_tensors, *segment.output_tensors)
            if not reduced.isdisjoint(graph.concrete_groups(t.visible))
        }
        for t in segment.output_tensors:
            # Every other pass runs the other way.
            if t.name in with_rows and t.name in levels and levels[t.name] % 2 == 1:
                builder.run_backwards(t.name, ITERATIONS_AXIS)
        if params.kept_iterations:
            for first, again in _second_reads(builder, with_rows):
                builder.keep_iterations(first, again, params.kept_iterations)
        return builder


def propose_grid_persistent(
    segment: Fusion, loops: ReductionParams, inputs: SegmentInputs, device: DeviceInfo
) -> OuterPersistentParams | Refused:
    """Parameters for blocks that share the rows of their columns."""
    space = reduced_space(segment, inputs)
    rows, columns = space.length, space.kept
    if rows < 1 or columns < 1:
        return Refused("there is no element")
    rows_of = [t for t in segment.input_tensors if not t.is_cpu and space.is_reduced(t.visible)]
    read = [t.dtype.itemsize for t in rows_of]
    if not read:
        return Refused("no input has rows")
    builder = empty_schedule(segment)
    # Of a statistic two sums, and what they are differences from.
    partials = sum(3 if isinstance(e, Welford) else 1 for e in reductions_of(segment))
    results = sum(2 if isinstance(e, Welford) else 1 for e in reductions_of(segment))
    weights = sum(not t.is_cpu for t in segment.input_tensors) - len(read)
    accumulators = loops.vector * max(partials, results + weights)
    joined = partial_result_bytes(segment, loops.vector)
    levels = data_pass_indices(builder)
    two_passes = len(set(levels.values())) == 2
    # A pass that only reduces runs as the one before it: what that kept first would be needed first.
    goes_back = any(space.is_reduced(t.visible) and levels.get(t.name) == 1 for t in segment.output_tensors)
    keeps = two_passes and goes_back and loops.vector > 1 and all(t.name in loops.vectorized for t in rows_of)
    thread = ColumnAccessCost(loops.vector, loops.vector * sum(read), accumulators, joined, keeps)
    shape = choose_outer_shape(rows, columns, thread, max(read), device)
    if isinstance(shape, Refused):
        return shape
    tiles = -(-columns // (shape.across * loops.vector))
    reasons = (
        f"{columns} columns are {tiles} lines of {shape.across} accesses: {shape.sharing} blocks share the rows of each, "
        f"{tiles * shape.sharing} on {device.sm_count} SMs",
        f"{shape.unroll} accesses in flight a thread: about {shape.registers} registers, "
        f"{shape.in_flight} bytes in flight per SM",
        "the blocks wait for one another and go over their rows again"
        + (", from the last to the first" if goes_back else ""),
        f"the rows of the first {shape.kept} iterations stay in shared memory"
        if shape.kept
        else "no rows stay on chip",
    )
    made = replace(
        loops,
        block_reduce=shape.along,
        block_iterate=shape.across,
        grid_reduce=shape.sharing,
        unroll=shape.unroll,
        reasons=(),
    )
    return OuterPersistentParams(made, kept_iterations=shape.kept, reasons=reasons)


def propose_columns(
    segment: Fusion, loops: ReductionParams, inputs: SegmentInputs, device: DeviceInfo, *, ending: float = 0.0
) -> PlacedColumns | OuterPersistentParams | Refused:
    """Parameters for blocks that hold all rows of their columns, or for blocks that share them: whichever should be faster.
    `loops`, `ending`: see `propose_in_registers`."""
    shared = propose_grid_persistent(segment, loops, inputs, device)
    held = propose_in_registers(segment, loops, inputs, device, ending=ending)
    if isinstance(held, Refused) or isinstance(shared, Refused):
        return shared if isinstance(held, Refused) else held
    return shared if over_grid_time(held.space, shared.reduction.grid_reduce, device) < held.time_us else held


def propose_in_registers(
    segment: Fusion, loops: ReductionParams, inputs: SegmentInputs, device: DeviceInfo, *, ending: float = 0.0
) -> PlacedColumns | Refused:
    """Parameters for blocks that hold all rows of their columns; where all of them leave something for the last one, none are a
    cluster.

    loops      of the same reduction in passes: which accesses may be wide
    ending     see `ColumnSpace`
    """
    space = _column_space(segment, loops, inputs, device)
    if isinstance(space, Refused):
        return space
    space = replace(space, may_share=ending == 0.0, ending=ending)
    rows, columns = space.rows, space.columns
    best = best_mapping(COLUMNS, space, device)
    if best is None:
        return Refused(f"no block holds {rows} rows of its columns")
    time_us, m = best
    bounds = row_extent_ranges(reduced_space(segment, inputs), rows)
    if isinstance(bounds, Refused):
        return bounds
    made = replace(
        loops,
        block_reduce=m.along,
        block_iterate=m.across,
        grid_reduce=m.sharing,
        unroll=m.batch,
        vector=m.vector,
        vectorized=loops.vectorized if m.vector > 1 else (),
        cluster=m.sharing > 1,
        reasons=(),
    )
    reasons = (
        f"{rows} rows of {columns} columns: {m.across} accesses of {m.vector} side by side, "
        f"{m.along} threads of {m.sharing} blocks share a column, each holds {m.batch} rows",
        f"about {m.registers} registers a thread, {m.resident} blocks an SM, {time_us:.1f} us",
    )
    return PlacedColumns(OuterPersistentParams(made, extent_ranges=bounds, reasons=reasons), space, m, time_us)


def _column_space(
    segment: Fusion, loops: ReductionParams, inputs: SegmentInputs, device: DeviceInfo
) -> ColumnSpace | Refused:
    """What a block would hold. `loops`: see `propose_in_registers`."""
    space = reduced_space(segment, inputs)
    if space.length < 1 or space.kept < 1:
        return Refused("there is no element")
    full = (r for r in input_reads(segment) if not r.tensor.is_cpu and space.has_reduced_and_kept_dims(r.loop_dims))
    read = [r.tensor.dtype.itemsize for r in full]
    written = [t.dtype.itemsize for t in segment.output_tensors if space.has_reduced_and_kept_dims(t.visible)]
    if not read:
        return Refused("no input has rows")
    held = persistent_buffer_size(segment, one_pass=False)
    return ColumnSpace(
        rows=space.length,
        columns=space.kept,
        vector=loops.vector,
        narrowest=min(read),
        moved=sum(read) + sum(written),
        kept=max(sum(read), held.kept),
        arguments=len(read) + len(written),
        results=sum(3 if isinstance(e, Welford) else len(tensor_outputs(e)) for e in reductions_of(segment)),
        joined=partial_result_bytes(segment, 1),
        exchanges=held.pass_count - 1,
        element_work=element_instructions(segment),
        column_work=row_instructions(segment),
        max_elements=max_unrolled_elements(segment, device),
    )


def schedule_in_registers(segment: Fusion, params: OuterPersistentParams, blocks: int = 0) -> ScheduleBuilder:
    """The schedule of columns that a block holds, also of chained reductions. `blocks`: see `split_grid_stride`."""
    builder = schedule_reduction(segment, params.reduction, blocks, in_registers=True)
    require_extents(builder, params.extent_ranges)
    return builder


def _second_reads(builder: ScheduleBuilder, with_rows: Set[str]) -> list[tuple[str, str]]:
    """The copies of inputs with rows that the first pass reads, and those of the second."""
    copies: dict[str, list[str]] = {}
    for expr in builder.exprs:
        if isinstance(expr, Pointwise) and expr.op == "set" and isinstance(expr.inputs[0], Tensor):
            source = expr.inputs[0].name
            if source in builder.input_names & with_rows:
                copies.setdefault(source, []).append(expr.output.name)
    return [(made[0], made[1]) for made in copies.values() if len(made) == 2]


def choose_outer_shape(
    rows: int, columns: int, thread: ColumnAccessCost, widest: int, device: DeviceInfo
) -> GridOuterShape | Refused:
    """The shape with most bytes in flight, up to what the memory needs, and then with most rows kept on chip.

    widest   bytes of the widest element of a row
    """
    accesses = -(-columns // thread.vector)
    across = min(max(1, RUN // (thread.vector * widest)), 1 << (accesses - 1).bit_length())
    tiles = -(-accesses // across)
    best: tuple[tuple[float, int, int], GridOuterShape] | None = None
    for block in BLOCKS:
        along = max(1, min(block, device.max_threads_per_block, device.max_threads_per_sm) // across)
        threads = along * across
        sharing = min(device.sm_count // tiles, -(-rows // along))
        limit = min(device.registers_per_thread, device.registers_per_sm // (-(-threads // 32) * 32))
        for unroll in UNROLLS if thread.keeps else OTHER_UNROLLS:
            registers = _registers(thread, unroll)
            if sharing < 2 or registers > limit or (unroll > 1 and rows < sharing * along * unroll):
                continue
            if _exchange_bytes(thread, across, along) > device.shared_per_block_optin:
                continue
            in_flight = thread.loaded * threads * unroll
            kept = 0
            if thread.keeps and unroll > 1:
                iterations = -(-rows // (sharing * along * unroll))
                kept = _kept_iterations(thread, across, along, iterations, in_flight, device)
            shape = GridOuterShape(across, along, sharing, unroll, registers, in_flight, kept)
            key = min(in_flight, device.bytes_in_flight), kept * in_flight + in_flight if thread.keeps else 0, -unroll
            if best is None or key > best[0]:
                best = key, shape
    if best is None:
        return Refused(
            "the columns keep all SMs busy, or there are few rows: one block may have all rows of its columns"
        )
    return _balance_iterations(best[1], rows, thread)


def _balance_iterations(shape: GridOuterShape, rows: int, thread: ColumnAccessCost) -> GridOuterShape:
    """The same iterations, each of as many accesses, where all rows stay on chip: the last iteration tests rows that
    are missing, and loads under tests wait for one another (H200: batch norm f16 32x64x56x56, twelve accesses as 6 + 6,
    not 8 + 4: 0.4 us)."""
    accesses = -(-rows // (shape.sharing * shape.along))
    iterations = -(-accesses // shape.unroll)
    unroll = max(2, -(-accesses // iterations))
    if shape.kept != iterations - 1 or shape.unroll < 2 or unroll >= shape.unroll:
        return shape
    in_flight = shape.in_flight // shape.unroll * unroll
    return replace(shape, unroll=unroll, registers=_registers(thread, unroll), in_flight=in_flight)


def _registers(thread: ColumnAccessCost, unroll: int) -> int:
    return OWN_REGISTERS + thread.accumulators + (ADDRESS_REGISTERS + -(-thread.loaded // 4)) * unroll


def _kept_iterations(
    thread: ColumnAccessCost, across: int, along: int, iterations: int, in_flight: int, device: DeviceInfo
) -> int:
    """Iterations whose rows fit in shared memory besides the exchange of a block and the L1 cache for loads in flight."""
    # What is on its way has a place in the part of the first-level cache that shared memory never takes: without it batch norm
    # takes 105.9 us instead of 102.4 on an H200, though more is kept.
    cached = device.l1_bytes - in_flight
    used = thread.joined * threads_with_partials(across, along, thread.vector) + SLACK_BYTES
    room = min(cached - used, device.shared_per_block_optin - max(used, _exchange_bytes(thread, across, along)))
    return max(0, min(iterations - 1, room // in_flight))


def _exchange_bytes(thread: ColumnAccessCost, across: int, along: int) -> int:
    """Bytes of shared memory in which a block joins its results, and what all blocks have, at most."""
    return scratch_bytes(thread.joined, across, along, thread.vector, across)
