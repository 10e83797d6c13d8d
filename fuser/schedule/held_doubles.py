"""Rows of Doubles whose exponentials are summed, of which each block has its own: threads and accesses of a row, by time.

A thread computes exponentials one after another, each a chain of a dozen operations: what a processor gets done grows with its
threads until its pipes are full. Registers say how many blocks a processor holds; rows come in waves of as many as fit, and the
last of few waves may leave most places empty. Beside its elements, a row takes what each of its warps does to join the partial
results of its lanes. All times are microseconds of an H200.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.schedule.plan_reduction import ReductionPlan, Space, ceil_div, power_of_two

RATE, MEMORY_RATE = 3600.0, 3900.0
"""Elements of a processor: by what its pipes do, and its part of what the memory does."""
ELEMENT, ACCESS_LATENCY = 0.11, 0.3
"""A thread's time for an element, and for the accesses of a trip."""
WARP_JOIN = 0.045
"""A processor's time for what a warp does for a row beside its elements."""
WAVE, FEW_WAVES = 2.0, 4
"""From the first access of a block to where its lanes have work, and its end: in the first waves all blocks do so together."""

THREADS = (32, 64, 128, 256, 512, 1024)
ACCESSES = (8, 7, 6, 5, 4, 3, 2, 1)
BLOCK, WARP = 128, 32
MOST_WARP_TRIPS = 8
"""Trips of a warp that has a row for itself: the last blocks of longer ones are long on their own (20000x2000 98 us, 110 by two
warps a row; 5000x16384 244 and 192, by four 175)."""
LEAST_STEPS = 128
"""Accesses of a row: what lanes join is most of the time of shorter ones."""
REGISTERS = 64, 80, 96, 112
"""Of a thread, of which ptxas takes one or another: a shape should do well with each. Blocks of four hundred threads and more
have to do with the fewest."""
ASKED, ASKING = 80, 128
"""Registers that eight accesses of a thread do with, and threads of a block that is given no more where that saves a wave
(H200: losses 1313x7168, 657 blocks of which ptxas leaves room for four an SM)."""
TOGETHER = 1.06
"""What rows of several warps take longer in one block: the threads of all wait for one another."""


@record
class HeldShape:
    """`threads` along a row with `accesses` at once each, `rows` of a block; `time` of all rows."""

    threads: int
    accesses: int
    rows: int
    time: float


def plan_held_doubles(space: Space, device: DeviceInfo) -> ReductionPlan | None:
    """The plan for sums of exponentials of Doubles, of rows of which there are enough that blocks need not share them; None
    for others."""
    if not (space.held and space.wide and space.inner and space.runs == 1):
        return None
    steps = ceil_div(space.reduced, space.vector)
    if space.kept <= device.sm_count // 2 or steps < LEAST_STEPS:
        return None
    shape = choose_held_shape(space, device)
    reasons = (
        f"{steps} accesses a row, {shape.accesses} in flight a thread: {shape.threads} threads a row",
        f"{shape.rows} rows a block, about {shape.time:.1f} us",
    )
    blocks = ceil_div(space.kept, shape.rows)
    is_few = blocks <= device.sm_count
    resident = 0 if is_few else _asked(blocks, shape.threads * shape.rows, device)
    return ReductionPlan(shape.threads, shape.rows, 1, shape.accesses, reasons, is_few=is_few, resident=resident)


def _asked(blocks: int, threads: int, device: DeviceInfo) -> int:
    """Blocks that an SM must have room for, so that there is a wave less; 0 where that makes no difference."""
    if threads > ASKING:
        return 0
    fewest, most = (device.registers_per_sm // (r * threads) for r in (max(REGISTERS), ASKED))
    return (
        most
        if ceil_div(blocks, most * device.sm_count) < ceil_div(blocks, fewest * device.sm_count) <= FEW_WAVES
        else 0
    )


def choose_held_shape(space: Space, device: DeviceInfo) -> HeldShape:
    """The shape that should take least time."""
    steps = ceil_div(space.reduced, space.vector)
    most = space.held // space.vector
    best: HeldShape | None = None
    for threads in THREADS:
        if threads > device.max_threads_per_block:
            break
        along = min(threads, power_of_two(steps, 1, WARP)) if threads == WARP else threads
        if best is not None and along >= 2 * steps:
            break
        if along <= WARP and steps > MOST_WARP_TRIPS * ACCESSES[0] * along:
            continue
        rows = max(1, BLOCK // along)
        if space.kept < rows * device.sm_count:
            rows = max(1, WARP // along)
        for accesses in ACCESSES:
            # With one access less a row would be done in a trip, too; few of them are for rows of few trips.
            if (
                accesses > most
                or (accesses - 1) * along >= steps
                or (accesses * 2 <= ACCESSES[0] and steps > ACCESSES[0] * along)
            ):
                continue
            time = held_time(space, steps, along, accesses, rows, device)
            if best is None or time < best.time:
                best = HeldShape(along, accesses, rows, time)
    assert best is not None
    return best


def held_time(space: Space, steps: int, threads: int, accesses: int, rows: int, device: DeviceInfo) -> float:
    """What all rows should take, on average over the registers that a thread may have."""
    block = ceil_div(threads * rows, WARP) * WARP
    held = [r for r in REGISTERS if r * block <= device.registers_per_sm // 2] or [REGISTERS[0]]
    resident = [max(1, min(device.registers_per_sm // (r * block), device.max_blocks_per_sm)) for r in held]
    trips = ceil_div(steps, threads * accesses)
    elements = trips * threads * accesses * space.vector * rows
    joins = rows * ceil_div(threads, WARP) * WARP_JOIN
    waiting = trips * (ACCESS_LATENCY + accesses * space.vector * ELEMENT)

    def wave(blocks: int) -> float:
        rate = min(RATE, MEMORY_RATE, blocks * block / ELEMENT)
        return max(blocks * (elements / rate + joins), waiting) * (TOGETHER if rows > 1 and threads > WARP else 1.0)

    blocks, total = ceil_div(space.kept, rows), 0.0
    for each in resident:
        whole, left = divmod(blocks, each * device.sm_count)
        total += whole * wave(each) + (wave(ceil_div(left, device.sm_count)) if left else 0.0)
        total += WAVE * min(whole + (left > 0), FEW_WAVES)
    return total / len(resident)
