"""Loops of many rows, each with one sum of exponentials and one number as its result: losses, by the online softmax.

Beside memory, time goes into what happens once for each row, and not once for each element: the threads of a row join two
results, gather a logit, take a logarithm. A warp does that for all of its rows at once, so that the fewest threads for a row
are best that still read whole sectors of memory. Each thread then has more elements, one iteration after another, each as long
as memory takes to answer. How the two weigh against each other depends on counts: rows of a block, its iterations, and the
blocks that an SM has room for. Times are microseconds, rates bytes a microsecond. What code takes is counted in cycles,
instructions and waits, as fitted to an H200 (benchmarks/NOTES.md); how long those are says the device.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.plan_reduction import ceil_div

ELEMENT, TESTED_ELEMENT = 3.7, 16.6
"""Instructions of a warp for an element of each thread; in an iteration that is not whole, whether the element is there
or not."""
ACCESS, TURN, ROW = 2.75, 20.5, 112.0
"""Instructions of a warp for an access, for an iteration, and for its rows once a row."""
STEP, ACROSS = 7.1, 27.0
"""Of a step that halves the threads with results of their own, and of passing those of warps through shared memory."""
WORK = 15.75
"""Cycles that an iteration takes for an element of a thread, beside the wait for memory."""
GROUP, GROUP_TIME = 13.7, 135
"""Instructions and cycles of an access whose elements are folded by themselves, as those of longer turns are."""
STEP_TIME, ACROSS_TIME, ROW_TIME = 73.5, 240, 332
"""Cycles of such a step, of a barrier with what it is for, and of what else comes once a row."""
NEXT_BLOCK = 332
"""Cycles between the end of a block and the start of the one that takes its place."""
POST, LAST, JOIN = 1, 3.5, 87.5
"""Results of blocks posted to the last one, and joined by the last one to come: writes and reads of memory behind one another;
and cycles of each that one of its threads takes in."""
MOST_POSTING = 1024
"""Blocks that post."""
READ_RATE = 0.925
"""Of the rate of a copy, what a device reads."""
NARROW = 11.6
"""Bytes that could be read while memory turns to the next row: threads of a row side by side read as many as they can."""
OVERLAP = 2.7
"""Power of a mean that says how far memory, instructions and latencies hide one another."""
REGISTERS, OF_GROUPS, OF_TRIPS = 24, 20, 5
"""Of a thread, beside one for each element of an iteration; what those take whose accesses are folded one after
another; and as many more where blocks go over the rows."""

THREADS = (2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 256, 320, 384, 512)
BLOCK_THREADS = (128, 256, 512)
BLOCKS = (0, 2, 4, 8, 16)
"""Blocks an SM that go over the rows; 0: as many as there are rows for."""
FEW_TURNS, LEAST_REST = 4, 0.002
"""Lots of rows of a block up to which blocks keep step, and the part of them that a last one may be late with."""
HELD, MOST_HELD = 32, 64
"""Elements of an iteration that a thread holds together, and of 16 bits that it may read in one."""
LEAST_BYTES = 16
"""Of a row that threads side by side read: half of what memory reads together."""
LEAST_OF_VECTORS = 4
"""Threads that read vectors of 16 bytes (H200: losses bf16 100003x64 (4, 2) 11.2 us, (2, 4) 11.4 and 12.5, 51107x64 off by an
element 9.1 and 10.6)."""
MOST_TURNS = 16


@record
class OnlineSoftmaxRows:
    """`threads` of a row with `unroll` accesses each at once, `rows_per_block` rows of a block, and `blocks` that go
    over them; 0: as many as there are rows for. `time` in microseconds, beside a launch."""

    threads: int
    unroll: int
    rows_per_block: int
    blocks: int
    time: float


@lru_cache(maxsize=256)
def choose_online_softmax_rows(
    rows: int, length: int, vector: int, itemsize: int, most_blocks: int, device: DeviceInfo
) -> OnlineSoftmaxRows | None:
    """The loops that should take least time for `rows` of `length` elements of `itemsize` bytes, read by `vector`."""
    steps = ceil_div(length, vector)
    mosts = [max(1, held // vector) for held in (HELD, MOST_HELD)[: 2 if itemsize < 4 else 1]]
    least = max(LEAST_OF_VECTORS if vector > 1 else 1, LEAST_BYTES // (vector * itemsize))
    read_time = rows * length * itemsize / (READ_RATE * device.memory_rate)
    cycle, issue_time = device.cycle, device.issue_time
    post, last = POST * device.first_to_last, LAST * device.first_to_last
    best: OnlineSoftmaxRows | None = None
    for threads in THREADS:
        fewest = [ceil_div(steps, threads * most) for most in mosts]
        if not least <= threads <= max(least, steps) or fewest[-1] > MOST_TURNS:
            continue
        moving = read_time * (1.0 + NARROW / (min(threads, steps) * vector * itemsize))
        # As few iterations as registers allow, and one more, which may leave none partly filled.
        for unroll in sorted(
            {ceil_div(steps, threads * (iterations + more)) for iterations in fewest for more in (0, 1)}
        ):
            slots, latency = _of_row(steps, vector, threads, unroll, device)
            issuing = rows * threads / WARP * slots * issue_time / device.sm_count
            if best is not None and post + _mean(issuing, moving) >= best.time:
                continue
            elements = unroll * vector
            taken = REGISTERS + (elements if elements <= HELD else OF_GROUPS)
            for size in BLOCK_THREADS:
                rows_per_block = size // threads
                if rows_per_block == 0:
                    continue
                found = ceil_div(rows, rows_per_block)
                for each in BLOCKS:
                    blocks = each * device.sm_count or found
                    if (each and blocks >= found) or blocks > most_blocks:
                        continue
                    resident = _resident(taken + (OF_TRIPS if each else 0), size, device)
                    iterations = found / min(blocks, device.sm_count * resident)
                    each_time = latency if each else latency + NEXT_BLOCK * cycle
                    # The SM with most blocks is done last, if each has few.
                    uneven = ceil_div(blocks, device.sm_count) * device.sm_count / blocks if iterations <= 1 else 1.0
                    time = _over_iterations(iterations, issuing * uneven, moving, each_time) + JOIN * cycle * ceil_div(
                        blocks, size
                    )
                    time += post if blocks <= MOST_POSTING else last
                    if best is None or time < best.time:
                        best = OnlineSoftmaxRows(threads, unroll, rows_per_block, blocks if each else 0, time)
    return best


def _resident(registers: int, size: int, device: DeviceInfo) -> int:
    """Blocks of `size` threads that an SM has room for."""
    return min(
        device.registers_per_sm // (ceil_div(registers, REGISTER_STEP) * REGISTER_STEP * size),
        device.max_threads_per_sm // size,
        device.max_blocks_per_sm,
    )


def _of_row(steps: int, vector: int, threads: int, unroll: int, device: DeviceInfo) -> tuple[float, float]:
    """Instructions of each warp, and time of a block, for the rows that it has at once."""
    iterations, whole, elements = ceil_div(steps, threads * unroll), steps // (threads * unroll), unroll * vector
    inside, over = _halvings(min(threads, WARP)), _halvings(ceil_div(threads, WARP))
    slots = (whole * ELEMENT + (iterations - whole) * TESTED_ELEMENT) * elements + iterations * (TURN + ACCESS * unroll)
    slots += ROW + STEP * inside
    if elements > HELD:
        slots += iterations * unroll * GROUP
    cycles = iterations * WORK * elements + ROW_TIME + STEP_TIME * inside
    cycles += iterations * unroll * GROUP_TIME if elements > HELD else 0.0
    if over:
        slots += ACROSS + STEP * over
        cycles += ACROSS_TIME + STEP_TIME * over
    return slots, iterations * device.latencies.dram_ns / 1e3 + cycles * device.cycle


def _over_iterations(iterations: float, issuing: float, moving: float, latency: float) -> float:
    """Of blocks that take so many lots of rows one after another. Few of them keep step: a last one that only some of them have
    takes as long as memory answers one, though it has little to read."""
    if iterations >= FEW_TURNS:
        return _mean(issuing, moving, iterations * latency) + latency / 2
    whole = math.floor(iterations)
    rest = iterations - whole
    time = whole * _mean(issuing / iterations, moving / iterations, latency)
    return time + (
        _mean(issuing * rest / iterations, moving * rest / iterations, latency) if rest > LEAST_REST else 0.0
    )


def _mean(*times: float) -> float:
    """Of times that partly hide one another."""
    return math.fsum(t**OVERLAP for t in times) ** (1 / OVERLAP)


def _halvings(count: int) -> int:
    return (count - 1).bit_length()
