"""Columns whose rows lie in registers: how many threads share the rows of a column, and how many columns a block has.

A thread that has all rows of its columns exchanges nothing, but few such threads fit on an SM, which then waits for memory and
computes in turn. More threads for a column hold fewer rows each, and meet in shared memory once a data pass; the blocks of a
cluster meet in each other's. `estimate` says how long each takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.code_costs import (
    ACCESS,
    BLOCK_EXCHANGE,
    DEPENDENT,
    JOIN,
    LOADED,
    LOOKUP,
    OPERATION,
    WARP_JOINS,
    WHOLE_ROW,
)
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.mapping_search import MappingSearch
from fuser.schedule.cost.occupancy import allocated_registers, fitting_blocks
from fuser.schedule.cost.rounding import ceil_div
from fuser.schedule.cost.row_mappings import CLUSTERS
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
    max_elements    of a thread, for which its text is short enough
    may_share       whether blocks of a cluster may have rows of the same columns
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
    max_elements: int
    may_share: bool = False
    ending: float = 0.0


class ColumnMapping(NamedTuple):
    """`across` x `along` threads of each of `sharing` blocks, `batch` accesses of `vector` columns for each, in `registers` of
    a thread; `resident` blocks fit on an SM."""

    across: int
    along: int
    sharing: int
    batch: int
    vector: int
    registers: int
    resident: int


def column_blocks(space: ColumnSpace, m: ColumnMapping) -> int:
    """Of the grid."""
    return ceil_div(space.columns, m.across * m.vector) * m.sharing


def column_mappings(space: ColumnSpace, device: DeviceInfo) -> Iterator[ColumnMapping]:
    """All mappings that fit on the device: none where no block or cluster holds all rows of its columns."""
    for sharing in CLUSTERS:
        if sharing == 1 or (space.may_share and device.clusters(sharing) >= 1):
            yield from _mappings(space, sharing, device)


def _mappings(space: ColumnSpace, sharing: int, device: DeviceInfo) -> Iterator[ColumnMapping]:
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
                    if batch * vector <= space.max_elements:
                        yield from _placed(space, ColumnMapping(across, along, sharing, batch, vector, 0, 0), device)
                    along *= 2
            across *= 2
        vector //= 2


def _placed(space: ColumnSpace, m: ColumnMapping, device: DeviceInfo) -> Iterator[ColumnMapping]:
    """A mapping with its registers and as many blocks as fit on an SM, if any does."""
    threads = m.across * m.along
    registers = OWN_REGISTERS + m.batch * ceil_div(m.vector * space.kept, REGISTER_BYTES) + m.vector * space.results
    scratch = scratch_bytes(space.joined * m.vector, m.across, m.along, m.vector)
    if threads % WARP or scratch > device.shared_per_block:
        return
    resident = fitting_blocks(threads, registers, device, scratch + device.shared_reserved)
    if resident:
        yield m._replace(registers=allocated_registers(registers), resident=resident)


def column_work_of(space: ColumnSpace, m: ColumnMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    blocks, warps, steps = column_blocks(space, m), m.across * m.along // WARP, math.log2(m.along)
    elements = m.across * m.vector * min(space.rows, m.along * m.batch)
    instructions = m.batch * (m.vector * space.element_work * OPERATION + ACCESS * space.arguments)
    instructions += OWN_INSTRUCTIONS + m.vector * (space.column_work + space.results * JOIN * steps)
    latency = m.batch * m.vector * (space.element_work * DEPENDENT + LOADED * space.moved / device.max_access_bytes)
    exchange = 0.0
    if m.along > 1:
        exchange += BLOCK_EXCHANGE * device.block_exchange + WARP_JOINS * warps * device.cycle
    if m.sharing > 1:
        exchange += device.cluster_exchange(m.sharing)
    # A warp looks up the lines of as many rows as it has.
    side_by_side = min(m.across, WARP)
    lines = WARP // side_by_side * ceil_div(side_by_side * m.vector * space.narrowest, LINE_BYTES)
    return Work(
        blocks=blocks,
        resident=m.resident,
        cluster=m.sharing,
        warps=warps,
        moved=elements * space.moved,
        instructions=instructions,
        lines=m.batch * space.arguments * lines * LOOKUP,
        latency=(latency + WHOLE_ROW) * device.cycle + device.first_to_last,
        exchange=space.exchanges * exchange + (device.cluster_start if m.sharing > 1 else 0.0),
        start=space.ending * min(blocks, device.sm_count * m.resident),
    )


def over_grid_time(space: ColumnSpace, sharing: int, device: DeviceInfo) -> float:
    """Predicted microseconds if `sharing` blocks of a cooperative grid share a column: partial results are exchanged through
    global memory, with a wait of the whole grid. Statistics are taken in one data pass."""
    moving = space.rows * space.columns * space.moved / device.memory_rate
    exchange = device.grid_exchange(sharing) + 2 * device.latencies.dram_loaded_ns / 1e3
    return device.launch + device.first_to_last + moving + max(1, space.exchanges - 1) * exchange


COLUMNS = MappingSearch(
    mappings=column_mappings,
    work_of=column_work_of,
    preference=lambda _, timed, __: timed[0],
    heading=lambda s: (f"{s.rows} rows of {s.columns} columns",),
    words=lambda _, m: (
        f"{m.across} accesses of {m.vector} side by side, {m.along} threads of {m.sharing} blocks share a column, each holds "
        f"{m.batch} rows; about {m.registers} registers a thread, {m.resident} blocks an SM"
    ),
)
