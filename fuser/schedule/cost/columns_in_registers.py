"""Columns whose rows a block holds in registers: how many threads share the rows of a column, and how many columns a block has.

A thread that has all rows of its columns exchanges nothing, but few such threads fit on an SM, which then waits for memory and
computes in turn. More threads for a column hold fewer rows each, and meet in shared memory once a stage.

What moves and what is computed overlap as far as blocks of several waves are on an SM together: the shorter of the two is
hidden but for one wave of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.device_info import BURST_BYTES, REGISTER_BYTES, REGISTER_STEP, WARP, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.reduction_space import ceil_div
from fuser.schedule.cost.scratch_budget import scratch_bytes

OWN_REGISTERS = 24
"""Registers of a thread beside its rows and what its columns have one of: addresses, counters, temporaries."""
OWN_INSTRUCTIONS = 64
"""Of a thread, whatever it holds: it finds its columns by divisions, and tests them."""
ACCESS_INSTRUCTIONS = 3
"""Of an access to an argument: an address of 64 bits, and the access."""
MOST_COLUMNS = 256
"""Accesses of a block side by side: more of them share nothing else."""


@record
class HeldColumns:
    """What is reduced, and what a thread has of it.

    rows, columns   elements of a reduction, and reductions
    vector          most elements of an access, along the columns
    narrowest       bytes of the narrowest element with rows
    moved           bytes that are read and written for an element
    kept            bytes of it that are on chip at once
    arguments       accesses to all that has rows
    results         registers of what a column has one of
    joined          bytes of a column that threads leave for one another
    exchanges       between stages, where threads share a column
    element_work    instructions of an element in all stages; `column_work`: of what a column has one of
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
class HeldShape:
    """`across` x `along` threads, `batch` accesses of `vector` columns for each; how many `blocks` of them there are, how many
    an SM has at once, and the microseconds that all of them should take, without the launch. `least_over_grid`: what blocks
    that share columns, and wait for one another, take at least."""

    across: int
    along: int
    batch: int
    vector: int
    registers: int
    blocks: int
    resident: int
    time: float
    least_over_grid: float


def choose_held_shape(held: HeldColumns, most: int, device: DeviceInfo) -> HeldShape | None:
    """The shape that should take least time; None where no block holds all rows of its columns.

    most   elements of a thread for which its text is short enough
    """
    return min(_shapes(held, most, device), key=lambda shape: shape.time, default=None)


def _shapes(held: HeldColumns, most: int, device: DeviceInfo) -> Iterator[HeldShape]:
    vector = held.vector
    while vector >= 1:
        accesses = ceil_div(held.columns, vector)
        across = 1
        while across <= MOST_COLUMNS and across < max(2 * accesses, 2 * WARP):
            # Of what memory reads as one a block leaves nothing to others.
            if across * vector * held.narrowest >= BURST_BYTES or across >= accesses:
                along = max(1, WARP // across)
                while along <= held.rows and across * along <= device.max_threads_per_block:
                    batch = ceil_div(held.rows, along)
                    if batch * vector <= most:
                        shape = _shape(held, across, along, batch, vector, device)
                        if shape is not None:
                            yield shape
                    along *= 2
            across *= 2
        vector //= 2


def _shape(held: HeldColumns, across: int, along: int, batch: int, vector: int, device: DeviceInfo) -> HeldShape | None:
    threads = across * along
    if threads % WARP:
        return None
    registers = OWN_REGISTERS + batch * ceil_div(vector * held.kept, REGISTER_BYTES) + vector * held.results
    granted = ceil_div(registers, REGISTER_STEP) * REGISTER_STEP
    scratch = scratch_bytes(held.joined * vector, across, along, vector)
    if granted > min(rung_of(threads)[1], device.registers_per_thread) or scratch > device.shared_per_block:
        return None
    resident = min(
        device.max_blocks_per_sm,
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (granted * threads),
        device.shared_per_sm // (scratch + device.shared_reserved),
    )
    if resident < 1:
        return None
    blocks = ceil_div(held.columns, across * vector)
    waves = max(1.0, blocks / (device.sm_count * resident))
    life = device.latencies.dram_loaded_ns / 1e3
    if along > 1:
        life += held.exchanges * device.block_exchange
    work = OWN_INSTRUCTIONS + vector * held.column_work
    work += batch * (vector * held.element_work + ACCESS_INSTRUCTIONS * held.arguments)
    # SMs have as many of the blocks as the one that has most.
    computing = ceil_div(blocks, device.sm_count) * threads * work * device.thread_time
    memory = held.rows * held.columns * held.moved / device.memory_rate
    over_grid = memory + device.latencies.dram_loaded_ns / 1e3 + held.exchanges * device.grid_exchange(2)
    moving = max(memory, waves * life)
    time = max(moving, computing) + min(moving, computing) / waves + life
    time += held.ending * min(blocks, device.sm_count * resident)
    return HeldShape(across, along, batch, vector, granted, blocks, resident, time, over_grid)
