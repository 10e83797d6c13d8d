"""What a mapping of reductions of rows and of columns asks of the machine, and the mapping that should take least time.

Blocks make iterations over the rows: statistics are joined, results are written, sums of columns grow in registers.
Behind the last iteration threads that have some rows of a column join, and so do blocks.

Counts of code are those of `code_costs`, and of mappings of rows and of reductions where those do the same. Estimates of 180
kernels of 37 segments on an H200 (all kinds of mappings, two kernels) are off by 10 % (root of the mean square); what should
be fastest of those of a segment took 1 % more than what was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.ir.integers.number_trace import searched
from fuser.schedule.cost.code_costs import (
    ACCESS,
    BLOCK_EXCHANGE,
    DEPENDENT,
    JOIN,
    LOOKUP,
    OPERATION,
    ROW,
    STATISTICS_STEP,
    WARP_JOINS,
    WHOLE_ROW,
    operations_of,
)
from fuser.schedule.cost.estimate import OWN_TRANSFER, Work, estimate, total_time
from fuser.schedule.cost.inner_outer_mappings import (
    BLOCKS_OF_ROWS,
    CLUSTER,
    STATISTICS,
    SUMS,
    InnerOuterMapping,
    columns_of_block,
    inner_outer_mappings,
)
from fuser.schedule.cost.inner_outer_space import InnerOuterSpace
from fuser.schedule.cost.mapping_search import MAX_REMEMBERED, MappingSearch
from fuser.schedule.cost.reduction_mappings import CLUSTER_EXCHANGE, EDGES
from fuser.schedule.cost.row_mappings import IN_SHARED, PIECE
from fuser.schedule.transforms.shared_rows import unrolled

AHEAD = 0.5
"""Of the time that rows take to come, what is left where they are loaded while blocks wait for one another."""
PLACES, MANY_ITERATIONS = 4, 16
"""Blocks of an SM, or rows of a thread, that are many; and iterations that are."""


def inner_outer_work_of(space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    cycle, blocks = device.cycle, m.blocks * m.sharing
    dram = device.latencies.dram_ns / 1e3
    trips = -(-space.rows // m.rows_per_iteration)
    warps = -(-m.block // WARP)
    operations = operations_of(space.operations, device, is_double=space.is_double)
    words = 2 if space.is_double else 1
    accesses = m.batch * m.rows
    steps = math.log2(m.threads)
    of_access = m.vector * operations * OPERATION + ACCESS * space.arguments
    instructions = accesses * of_access
    instructions += m.rows * (space.statistics * words * JOIN * steps + ROW + space.row_operations)
    latency = (accesses * of_access * DEPENDENT + WHOLE_ROW * (m.rows if m.exchange == SUMS else 1)) * cycle
    moved = space.rows / trips * space.length * space.moved / blocks
    if m.in_shared:
        latency += PIECE * (space.exchanges + 1) * m.rows * m.batch / unrolled(m.batch, is_cut=False) * cycle
        latency += 0.0 if m.loads_next else IN_SHARED * dram
    if trips > 1:
        latency = max(latency, dram) if m.loads_next else latency + dram
    # Rows come while a block has nothing else to do. While blocks wait for one another they load what they hold of the next.
    waits = 1.0 if not m.loads_next else AHEAD if m.sharing > 1 else 0.0
    transfer = moved / min(device.memory_rate / blocks, device.sm_rate)
    latency += (1 - OWN_TRANSFER) * waits * transfer * (trips - 1) / trips
    return Work(
        blocks=blocks,
        resident=m.resident,
        cluster=blocks if m.exchange == CLUSTER else 1,
        iterations=trips,
        warps=warps,
        moved=moved,
        instructions=instructions,
        lines=accesses * space.arguments * _lines(space, m.vector) * LOOKUP,
        latency=latency,
        exchange=_exchange(space, m, warps, device),
        epilogue_us=_column_sum_epilogue_time(space, m, device),
        start=device.first_to_last,
    )


def _lines(space: InnerOuterSpace, vector: int) -> float:
    """Lines of the first-level cache that an access of a warp looks up."""
    return max(1.0, WARP * vector * min(space.read_sizes) / LINE_BYTES)


def _exchange(space: InnerOuterSpace, m: InnerOuterMapping, warps: int, device: DeviceInfo) -> float:
    """Microseconds of an iteration in which threads and blocks join statistics."""
    overlap = 1.0 if m.exchange == CLUSTER else BLOCK_EXCHANGE
    if m.threads > WARP:
        each = overlap * device.block_exchange + WARP_JOINS * warps * device.cycle
    else:
        each = overlap * device.block_exchange / 2
    joins = m.rows * STATISTICS_STEP * math.log2(m.sharing) * device.cycle
    if m.exchange == CLUSTER:
        # Each warp tells all blocks what it has.
        each += CLUSTER_EXCHANGE * device.cluster_exchange(m.sharing) if m.sharing > 1 else 0.0
        told = warps * m.rows * space.statistics * (m.sharing - 1)
        each += space.statistics * joins + told * device.cycle
    elif m.sharing > 1:
        each += device.grid_exchange(m.sharing) + joins
    # Rows that blocks share are joined together, those of a block one after the other.
    return space.exchanges * each * (m.rows if m.exchange == SUMS else 1)


def _column_sum_epilogue_time(space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo) -> float:
    """Microseconds in which sums of columns are joined, behind the last iteration."""
    columns = m.batch * m.vector * space.sums
    # Shared memory takes what all threads of a block have, and gives it back.
    joined = 2 * m.block * columns * space.sum_bytes / device.rates.shared_bytes_per_cycle
    epilogue_us = joined * device.cycle + device.block_exchange if m.rows_per_block > 1 else 0.0
    if m.exchange == SUMS:
        # All blocks leave what they have, and each adds up some columns, a few at a time.
        parts = m.blocks * space.length * space.sums * space.sum_bytes
        turns = -(-space.length // (columns_of_block(space.length, m) * m.blocks))
        epilogue_us += device.grid_exchange(m.blocks) + 2 * parts / device.memory_rate
        epilogue_us += turns * (device.latencies.dram_ns / 1e3 + device.block_exchange)
    elif m.blocks > 1:
        told = m.blocks * m.threads * columns * space.sum_bytes / REGISTER_BYTES
        epilogue_us += CLUSTER_EXCHANGE * device.cluster_exchange(m.blocks) + told * device.issue_time
    return epilogue_us


def two_kernel_work(space: InnerOuterSpace, device: DeviceInfo) -> Work:
    """What two kernels ask that run side by side: one reads all rows and writes them, one reads all columns."""
    elements = space.rows * space.length
    operations = operations_of(space.operations, device, is_double=space.is_double)
    # Where rows are misaligned, so are the accesses of a warp.
    edges = EDGES * BURST_BYTES / (WARP * min(space.read_sizes)) if space.vector == 1 else 0.0
    each = operations * OPERATION + 2 * ACCESS * space.arguments / space.vector
    warps = min(device.max_threads_per_sm // WARP, -(-elements // (WARP * space.vector * device.sm_count)))
    return Work(
        blocks=device.sm_count,
        resident=1,
        warps=warps,
        moved=elements * (space.moved + space.loaded) * (1 + edges) / device.sm_count,
        instructions=elements * each / (WARP * warps * device.sm_count),
        lines=0.0,
        latency=2 * device.first_to_last + (each * space.vector * DEPENDENT + WHOLE_ROW) * device.cycle,
        exchange=device.block_exchange,
        start=device.cluster_start + (device.grid_exchange(0) if space.rows > space.length else 0.0),
    )


def max_relevant_row_count(space: InnerOuterSpace, device: DeviceInfo) -> int:
    """Rows from which on all mappings make so many iterations that more rows change no choice."""
    of_trip = PLACES * max(1, BLOCKS_OF_ROWS[-1] * space.vector // space.length) * device.sm_count
    return 1 << (MANY_ITERATIONS * of_trip).bit_length()


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def two_kernels_time(space: InnerOuterSpace, device: DeviceInfo) -> float:
    """Microseconds of two kernels in place of one."""
    return total_time(two_kernel_work(space, device), device)


def inner_outer_reasons(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[str]:
    """What the fastest mappings should take, and two kernels."""
    yield from INNER_OUTER.reasons(space, device)
    yield f"two kernels: {estimate(two_kernel_work(space, device), device)}"


def _words(_: InnerOuterSpace, m: InnerOuterMapping) -> str:
    """A mapping in words."""
    place = "shared memory" if m.in_shared else f"about {m.registers} registers"
    shared = {
        SUMS: f"{m.blocks} blocks with rows of their own",
        STATISTICS: f"columns over {m.sharing} blocks of the grid",
    }
    share = shared.get(m.exchange, f"{'columns' if m.sharing > 1 else 'rows'} over a cluster of {m.sharing * m.blocks}")
    beside = f", {m.rows_per_block} rows side by side" if m.rows_per_block > 1 else ""
    at_once = f", {m.rows} of a thread at once" if m.rows > 1 else ""
    ahead = ", the next ones ahead" if m.loads_next else ""
    return f"{m.threads} threads of {m.batch} accesses of {m.vector} in {place}, {share}{beside}{at_once}{ahead}"


INNER_OUTER = MappingSearch(
    mappings=inner_outer_mappings,
    work_of=inner_outer_work_of,
    # Of those that take about as long one of wide accesses.
    preference=lambda _, timed, __: (-timed[1].vector, *timed),
    heading=lambda s: (f"about {s.rows} rows of {s.length} elements, in accesses of {s.vector} at most",),
    words=_words,
)
