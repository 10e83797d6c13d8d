"""Columns whose rows lie in registers: how many threads share the rows of a column, and how many columns a block has.

A thread that has all rows of its columns exchanges nothing, but few such threads fit on an SM, which then waits for memory and
computes in turn. More threads for a column hold fewer rows each, and meet in shared memory once a data pass; the blocks of a
cluster meet in each other's. `estimate` says how long each takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.ir.integers.number_trace import searched
from fuser.records import record
from fuser.schedule.cost.estimate import Work, total_time
from fuser.schedule.cost.mapping_search import MAX_REMEMBERED
from fuser.schedule.cost.occupancy import allocated_registers, max_registers, resident_blocks
from fuser.schedule.cost.reduction_space import ceil_div
from fuser.schedule.cost.row_mappings import (
    ACCESS,
    BLOCK_EXCHANGE,
    CLUSTERS,
    DEPENDENT,
    JOIN,
    LOADED,
    LOOKUP,
    OPERATION,
    WARP_JOINS,
    WHOLE_ROW,
)
from fuser.schedule.cost.scratch_budget import scratch_bytes

OWN_REGISTERS = 24
"""Registers of a thread beside its rows and what its columns have one of: addresses, counters, temporaries."""
OWN_INSTRUCTIONS = 64
"""Of a thread, whatever it holds: it finds its columns by divisions, and tests them."""
MAX_COLUMNS = 256
"""Accesses of a block side by side: more of them share nothing else."""


@record
class ColumnSpace:
    """What is reduced, and what a thread has of it.

    rows, columns   elements of a reduction, and reductions
    vector          most elements of an access, along the columns
    narrowest       bytes of the narrowest element with rows
    moved           bytes that are read and written for an element
    kept            bytes of it that are on chip at once
    arguments       accesses to all that has rows
    results         registers of what a column has one of
    joined          bytes of a column that threads leave for one another
    exchanges       between data passes, where threads share a column
    element_work    instructions of an element in all data passes; `column_work`: of what a column has one of
    ending          microseconds that each co-resident block adds where all of them leave something for the last one
    """

    rows: int
    columns: int
    vector: int
    narrowest: int
    moved: int
    kept: int
    arguments: int
    results: int
    joined: int
    exchanges: int
    element_work: int
    column_work: int
    ending: float = 0.0


@record
class ColumnMapping:
    """`across` x `along` threads of each of `sharing` blocks, `batch` accesses of `vector` columns for each; how many `blocks`
    of them there are, how many an SM has at once, and the microseconds that all of them should take."""

    space: ColumnSpace
    across: int
    along: int
    sharing: int
    batch: int
    vector: int
    registers: int
    blocks: int
    resident: int
    time_us: float


def choose_column_mapping(
    space: ColumnSpace, most: int, device: DeviceInfo, *, may_share: bool = False
) -> ColumnMapping | None:
    """The mapping that should take least time; None where no block or cluster holds all rows of its columns.

    most        elements of a thread for which its text is short enough
    may_share   whether blocks of a cluster may have rows of the same columns
    """
    found = _fastest(space, most, device, may_share)
    if found is None:
        return None
    time, (across, along, sharing, batch, vector, registers, resident) = found
    blocks = _blocks(space, across, sharing, vector)
    return ColumnMapping(space, across, along, sharing, batch, vector, registers, blocks, resident, time)


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def _fastest(
    space: ColumnSpace, most: int, device: DeviceInfo, may_share: bool
) -> tuple[float, tuple[int, ...]] | None:
    """Microseconds of the mapping that should take least time, and what of it holds for other numbers of columns."""
    sharing = [n for n in CLUSTERS if n == 1 or (may_share and device.clusters(n) >= 1)]
    mappings = (mapping for n in sharing for mapping in _mappings(space, n, most, device))
    s = min(mappings, key=lambda mapping: mapping.time_us, default=None)
    if s is None:
        return None
    return s.time_us, (s.across, s.along, s.sharing, s.batch, s.vector, s.registers, s.resident)


def _blocks(space: ColumnSpace, across: int, sharing: int, vector: int) -> int:
    return ceil_div(space.columns, across * vector) * sharing


def _mappings(space: ColumnSpace, sharing: int, most: int, device: DeviceInfo) -> Iterator[ColumnMapping]:
    vector = space.vector
    while vector >= 1:
        accesses = ceil_div(space.columns, vector)
        across = 1
        while across <= MAX_COLUMNS and across < max(2 * accesses, 2 * WARP):
            # Of what memory reads as one a block leaves nothing to others.
            if across * vector * space.narrowest >= BURST_BYTES or across >= accesses:
                along = max(1, WARP // across)
                while along * sharing <= space.rows and across * along <= device.max_threads_per_block:
                    batch = ceil_div(space.rows, along * sharing)
                    if batch * vector <= most:
                        mapping = _mapping(space, across, along, sharing, batch, vector, device)
                        if mapping is not None:
                            yield mapping
                    along *= 2
            across *= 2
        vector //= 2


def _mapping(
    space: ColumnSpace, across: int, along: int, sharing: int, batch: int, vector: int, device: DeviceInfo
) -> ColumnMapping | None:
    threads = across * along
    if threads % WARP:
        return None
    registers = OWN_REGISTERS + batch * ceil_div(vector * space.kept, REGISTER_BYTES) + vector * space.results
    granted = allocated_registers(registers)
    scratch = scratch_bytes(space.joined * vector, across, along, vector)
    if granted > max_registers(threads, device) or scratch > device.shared_per_block:
        return None
    resident = resident_blocks(threads, registers, device, scratch + device.shared_reserved)
    if resident < 1:
        return None
    blocks = _blocks(space, across, sharing, vector)
    work = _work(space, across, along, sharing, batch, vector, blocks, resident, device)
    time = total_time(work, device) + space.ending * min(blocks, device.sm_count * resident)
    return ColumnMapping(space, across, along, sharing, batch, vector, granted, blocks, resident, time)


def _work(
    space: ColumnSpace,
    across: int,
    along: int,
    sharing: int,
    batch: int,
    vector: int,
    blocks: int,
    resident: int,
    device: DeviceInfo,
) -> Work:
    """What a mapping asks of the machine."""
    warps, steps = across * along // WARP, math.log2(along)
    elements = across * vector * min(space.rows, along * batch)
    instructions = batch * (vector * space.element_work * OPERATION + ACCESS * space.arguments)
    instructions += OWN_INSTRUCTIONS + vector * (space.column_work + space.results * JOIN * steps)
    latency = batch * vector * (space.element_work * DEPENDENT + LOADED * space.moved / device.max_access_bytes)
    exchange = 0.0
    if along > 1:
        exchange += BLOCK_EXCHANGE * device.block_exchange + WARP_JOINS * warps * device.cycle
    if sharing > 1:
        exchange += device.cluster_exchange(sharing)
    # A warp looks up the lines of as many rows as it has.
    side_by_side = min(across, WARP)
    lines = WARP // side_by_side * ceil_div(side_by_side * vector * space.narrowest, LINE_BYTES)
    return Work(
        blocks=blocks,
        resident=resident,
        cluster=sharing,
        iterations=1,
        warps=warps,
        moved=elements * space.moved,
        cached=0.0,
        instructions=instructions,
        lines=batch * space.arguments * lines * LOOKUP,
        latency=(latency + WHOLE_ROW) * device.cycle + device.first_to_last,
        exchange=space.exchanges * exchange + (device.cluster_start if sharing > 1 else 0.0),
    )


def over_grid_time(space: ColumnSpace, sharing: int, device: DeviceInfo) -> float:
    """Predicted microseconds if `sharing` blocks of a cooperative grid share a column: partial results are exchanged through
    global memory, with a wait of the whole grid. Statistics are taken in one data pass."""
    moving = space.rows * space.columns * space.moved / device.memory_rate
    exchange = device.grid_exchange(sharing) + 2 * device.latencies.dram_loaded_ns / 1e3
    return device.launch + device.first_to_last + moving + max(1, space.exchanges - 1) * exchange
