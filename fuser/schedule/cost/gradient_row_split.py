"""How the rows of a gradient are spread over blocks that have rows of their own, in registers, and how long that takes.

Blocks make trips over the rows. A trip is limited in three ways, whatever the type and the width of accesses: by the
instructions that all warps of a processor issue, by the time that one block needs from its first step to its last, which only
other blocks fill, and by the bytes that it moves. None of them hides behind the others altogether: limits are added as powers.

    instructions of a thread   those of its elements, of its accesses, of the joins of each row's statistics
    time of a block            these one after another, the latency of joins and barriers, and of loads, unless they come ahead
    at the end                 the blocks' sums of columns are written, and read again through the second-level cache

The figures are what 204 shapes of 24 gradients of layer norm took on an H200 (BFloat16, Half, Float and Double, 9 to 400 us;
most of them at random over the whole range): they are off by 8.5 % (root of the mean square). What single elements take was
fitted again to 17 shapes of six gradients (9 to 79 us), since only the last access of a thread is tested: off by 9.5 %.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.gradient_column_split import whole_grid_time
from fuser.schedule.cost.gradient_sizes import GradientRowCost
from fuser.schedule.cost.occupancy import granted_registers
from fuser.schedule.scheduler import Refused

BLOCKS = (256, 512)
"""Threads that a block has at least, if there are rows for them."""
MOST_SIDE_BY_SIDE = 64
"""Threads of z that a block can have."""
SAFE_REGISTERS = 244
"""Registers that a thread is estimated to need at most, where there is a choice; four less for each element of an access, which
is unpacked (H200: bf16 9000x5120, estimated at 224 with 128 threads, 108.5 us, at 128 with 320 threads 83.5)."""
PARTIAL_BYTES = 4
"""Bytes of a column sum, in registers and between blocks."""
SUMMING_BLOCKS = 100
"""Blocks that should have some columns to sum up: with so many the sums take no longer than with more."""
MOST_TRIPS = 16
"""Turns over its columns that a block takes before threads had better take columns than parts: each waits for a barrier."""

ISSUED = 0.83
"""The part of the instructions that a processor could issue which it does."""
OPERATION = {2: 0.72, 4: 0.95, 8: 0.975}
"""Instructions for one operation of an element, by its bytes, with what is computed again. Of a Double each takes so many
turns as an SM has fewer lanes for these than for Floats."""
ACCESS, ALONE = 8.0, 9.0
"""For an access to each input and output of full size; of one element, of which each has an address."""
JOIN = {2: 3.5, 4: 8.9, 8: 12.7}
"""For one step of the join of a statistic, by bytes of an element."""
AHEAD = 2.0
"""For a register of what comes ahead: it becomes what is worked on, and its load has a test of its own."""
THROUGH_SHARED, OF_TRIP = 10.0, 3.0
"""Where warps join through shared memory, and for each trip."""
DEPENDENT = 2.7
"""Cycles from one instruction of a warp to its next."""
JOIN_LATENCY = {2: 2.9, 4: 4.6, 8: 8.6}
"""Cycles of a step of such a join beside those."""
MEMORY_RATE = 1.2
"""What blocks would move if nothing else took time, of what the memory is said to."""
OF_LIMITS, OF_MEMORY = 1.3, 2.1
"""Powers: of issue and latency, of both and the memory."""
OF_COLUMN = 40.0
"""Cycles for a word of a column's sum that a thread has, and others of its block, too: they join when all trips are made."""
PARTS_RATE = 0.75
"""The same for parts, which are written, and read again."""
MOST_ACCESSES = 64
"""Of a thread to each input."""
TURNS = tuple((block, *turn) for block in BLOCKS for turn in ((1, True), (1, False), (2, True), (2, False)))
"""Threads of a block, rows that a thread works on at once, and whether the next ones come meanwhile."""


@record
class RowSplitShape:
    """Rows of a gradient that whole blocks own: `threads` share a row, `batch` accesses each.

    side_by_side, rows   rows of a block at once, and of a thread
    per_sm, blocks       blocks on an SM at once, and in the grid
    registers            of a thread
    in_flight            bytes of loads in flight per SM
    ahead                the rows of the next iteration are prefetched
    time_us              predicted time of the kernel
    """

    threads: int
    batch: int
    side_by_side: int
    rows: int
    per_sm: int
    blocks: int
    registers: int
    in_flight: int
    ahead: bool = True
    time_us: float = 0.0


def choose_row_split(
    length: int, rows: int, vector: int, cost: GradientRowCost, device: DeviceInfo
) -> RowSplitShape | Refused:
    """The shape that should take least time. A thread holds the rows of one trip, and those of the next or not."""
    accesses = -(-length // vector)
    best: tuple[tuple[float, ...], RowSplitShape] | None = None
    for threads, batch in _spreads(accesses, device):
        for block_of, trip, ahead in TURNS:
            # Where several trips follow one another, the next row had better come ahead, or two be worked on at once; of single
            # elements, each with a test, that takes longer (H200: bf16 100003x257 70.8 us, two rows at once 76.3).
            if trip > 1 and (vector == 1 or not (ahead or cost.is_double)):
                continue
            room = min(block_of, device.max_threads_per_block) // threads
            side_by_side = max(1, min(room, rows // device.sm_count, MOST_SIDE_BY_SIDE))
            side_by_side = 1 << (side_by_side.bit_length() - 1)
            block = -(-threads * side_by_side // WARP) * WARP
            if block_of > BLOCKS[0] and block <= BLOCKS[0]:
                continue
            registers = _registers(batch, trip, vector, side_by_side, cost, ahead=ahead)
            if registers > device.registers_per_thread:
                continue
            most = min(
                device.max_blocks_per_sm,
                device.max_threads_per_sm // block,
                device.registers_per_sm // (block * registers),
            )
            for per_sm in range(1, most + 1):
                if _granted(per_sm, block, device) < registers:
                    break
                blocks = min(device.sm_count * per_sm, -(-rows // (side_by_side * trip)))
                if blocks <= device.sm_count * (per_sm - 1):
                    break
                if trip == 1 and not ahead and rows > blocks * side_by_side:
                    continue
                time = row_split_time(
                    threads, batch, side_by_side, trip, blocks, length, rows, vector, cost, device, ahead=ahead
                )
                # The last registers are those that the model may miss.
                key = (registers > SAFE_REGISTERS - 4 * vector, time, float(per_sm))
                if best is None or key < best[0]:
                    held = per_sm * threads * side_by_side * batch * vector * trip
                    in_flight = int(held * cost.loaded * length / (threads * batch * vector))
                    best = (
                        key,
                        RowSplitShape(
                            threads, batch, side_by_side, trip, per_sm, blocks, registers, in_flight, ahead, time
                        ),
                    )
    if best is None:
        return Refused(f"a row of {length} elements does not fit in the registers of a block")
    return best[1]


def _spreads(accesses: int, device: DeviceInfo) -> list[tuple[int, int]]:
    """(threads along a row, accesses of each), each number of threads with as few accesses as cover the row."""
    found: list[tuple[int, int]] = []
    for batch in range(1, min(MOST_ACCESSES, accesses) + 1):
        threads = -(-accesses // batch)
        threads = 1 << (threads - 1).bit_length() if threads <= WARP else -(-threads // WARP) * WARP
        # They become fewer from batch to batch, or stay.
        if threads <= device.max_threads_per_block and (not found or found[-1][0] != threads):
            found.append((threads, -(-accesses // threads)))
    return found


def _registers(batch: int, rows: int, vector: int, side_by_side: int, cost: GradientRowCost, *, ahead: bool) -> int:
    """Of a thread. Accesses of one element have tests and addresses of their own."""
    tests = 2 * rows if vector == 1 and cost.is_double else 0
    # When the second row is computed the registers of the first are free again.
    loads = (1 + ahead) * rows * cost.row_registers - ahead * (rows - 1) * cost.row_registers // 2
    per_access = loads + cost.held_registers + cost.kept_registers + tests
    registers = cost.own_registers + 8 * (side_by_side > 1) + batch * per_access
    return granted_registers(registers)


def _itemsize(cost: GradientRowCost) -> int:
    """Bytes of an element as it is computed with: 2, 4 or 8."""
    return 8 if cost.is_double else min(4, max(2, min(cost.read_sizes, default=4)))


def _granted(per_sm: int, block: int, device: DeviceInfo) -> int:
    """Registers that a thread may have if `per_sm` blocks are asked for: bounds are in blocks of the rung's size."""
    top, most = rung_of(block)
    return min(most, device.registers_per_sm // (top * -(-per_sm * block // top)) // REGISTER_STEP * REGISTER_STEP)


def row_split_time(
    threads: int,
    batch: int,
    side_by_side: int,
    rows_at_once: int,
    blocks: int,
    length: int,
    rows: int,
    vector: int,
    cost: GradientRowCost,
    device: DeviceInfo,
    *,
    ahead: bool,
) -> float:
    """Microseconds of a kernel whose blocks own whole rows: see the head of this module."""
    size = _itemsize(cost)
    trips = -(-rows // (blocks * side_by_side * rows_at_once))
    per_sm = -(-blocks // device.sm_count)
    steps = (min(threads, WARP) - 1).bit_length()
    warps_of_row = -(-threads // WARP)
    if warps_of_row > 1:
        steps += (warps_of_row - 1).bit_length()
    accesses = batch * rows_at_once
    operation = OPERATION[size] * (device.rates.fp32 / device.rates.fp64 if size == 8 else 1.0)
    instructions = accesses * (vector * cost.operations * operation + (ALONE if vector == 1 else ACCESS))
    if ahead and trips > 1:
        instructions += accesses * cost.row_registers * AHEAD
    joins = cost.statistics * steps * JOIN[size] + (THROUGH_SHARED if warps_of_row > 1 else 0.0)
    instructions += rows_at_once * joins + OF_TRIP
    issue = per_sm * -(-threads * side_by_side // WARP) * instructions / (ISSUED * device.rates.issue)
    # Joins of Doubles are long chains: those of two rows wait beside one another.
    chain = instructions - (rows_at_once - 1) * joins if cost.is_double else instructions
    times, clock = device.latencies, device.rates.clock_ghz
    barrier, loads = times.block_barrier_ns * clock, times.dram_ns * clock
    latency = DEPENDENT * chain + steps * JOIN_LATENCY[size] + (barrier if warps_of_row > 1 else 0.0)
    if not ahead or trips == 1:
        latency += loads
    elif latency < 2 * loads:
        latency = (latency**4 + loads**4) ** 0.25
    trip = (issue**OF_LIMITS + latency**OF_LIMITS) ** (1 / OF_LIMITS) / clock
    moved = rows * length * cost.moved / (MEMORY_RATE * device.memory_bytes_per_ns)
    working = ((trips * trip) ** OF_MEMORY + moved**OF_MEMORY) ** (1 / OF_MEMORY)
    parts = blocks * length * cost.sums * (2 * PARTIAL_BYTES if cost.is_double else PARTIAL_BYTES)
    words = 2 if cost.is_double else 1
    joined = batch * vector * cost.sums * words * OF_COLUMN / clock if side_by_side > 1 else 0.0
    nanoseconds = joined + working + 2 * parts / (PARTS_RATE * device.memory_bytes_per_ns)
    return whole_grid_time(blocks, device) + nanoseconds / 1e3


def columns_of_block(length: int, shape: RowSplitShape) -> int:
    """Threads of x: columns that a block sums up at once. As many as leave most SMs some; 32 bytes of each part at least.

    Few blocks would take their columns in a hundred trips: there no more threads share a column than it has parts.
    """
    width = min(WARP, shape.threads)
    while width > 8 and length < width * min(shape.blocks, SUMMING_BLOCKS):
        width //= 2
    width = math.gcd(width, shape.threads)
    if length <= MOST_TRIPS * width * shape.blocks:
        return width
    sharing = next(n for n in range(min(shape.blocks, shape.threads), 0, -1) if shape.threads % n == 0)
    return max(width, shape.threads // sharing)
