"""Rows of gradients in shared memory, two iterations ahead, where blocks have rows of their own: what fits, and how
long it takes.

Registers then hold sums of columns and what they are made of alone, so that rows fit which do not in registers, and two rows of
each processor are always on their way. All times are microseconds, as measured on an H200 (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.gradient_column_split import whole_grid_time
from fuser.schedule.cost.gradient_sizes import GradientRowCost, GradientSizes
from fuser.schedule.cost.scratch_budget import BESIDE_ROW

EACH_ROW, LEAST_ROW = 87.5, 2100
"""Cycles that a row takes beside its bytes, and at least: its threads wait for one another twice."""
TEMPORARIES, OF_DOUBLES = 8, 2
"""Registers beside those that are counted, and for each access of one Double, with a test and an address."""
PIECES = 6
"""Accesses of a thread, each of which is waited for by itself, that are best where nothing else decides."""
IDLE = 20
"""What threads without accesses are worse by (H200: bf16 4000x7168 58.4 us with (256, 7, 4), 66.5 with (320, 6, 4))."""
LEAST_THREADS, MOST_THREADS, THREADS = 256, 512, 384
"""Of a block, and how many are best."""
TRIPS = 2


@record
class SharedMemoryRowShape:
    """`threads` along a row, with `batch` accesses of `vector` elements each; `time_us`: predicted time of all rows."""

    vector: int
    threads: int
    batch: int
    registers: int
    time_us: float


def may_be_copied(found: GradientSizes, vector: int) -> bool:
    """Whether all rows can be copied asynchronously, in accesses of `vector`."""
    sizes = found.cost.read_sizes
    whole = vector == 1 or all(name in found.vectorized for name in found.read)
    return whole and all(size * vector in (4, 8, 16) for size in sizes)


def choose_shared_memory_shape(found: GradientSizes, device: DeviceInfo) -> SharedMemoryRowShape | None:
    """The fastest shape; None if no block holds two rows."""
    if not device.copies_to_shared:
        return None
    best: tuple[float, SharedMemoryRowShape] | None = None
    vector = found.vector
    while vector >= 1:
        if may_be_copied(found, vector):
            accesses = -(-found.length // vector)
            for threads in range(LEAST_THREADS, MOST_THREADS + 1, WARP):
                batch = -(-accesses // threads)
                shape = _shape(found, vector, threads, batch, device)
                if shape is None or batch < 2:
                    continue
                used = accesses / (threads * batch)
                score = abs(math.log2(batch / PIECES)) + IDLE * (1 - used) + _short(found, vector)
                score += abs(threads - THREADS) / 1024
                if best is None or score < best[0]:
                    best = score, shape
        vector //= 2
    return None if best is None else best[1]


def _short(found: GradientSizes, vector: int) -> float:
    """Penalty for accesses of fewer than 16 bytes."""
    nbytes = vector * min(found.cost.read_sizes)
    return 0.0 if nbytes >= 16 else 0.8 if nbytes >= 8 else 2.0


def _shape(
    found: GradientSizes, vector: int, threads: int, batch: int, device: DeviceInfo
) -> SharedMemoryRowShape | None:
    cost = found.cost
    weights = sum(-(-vector * size // 4) for size in cost.weight_sizes)
    kept = sum(-(-vector * size // 4) for size in cost.kept_sizes)
    registers = cost.own_registers + TEMPORARIES + OF_DOUBLES * batch * (vector == 1 and cost.is_double)
    registers += batch * (vector * cost.column_registers + weights) + kept
    held = TRIPS * threads * batch * vector * cost.loaded + BESIDE_ROW
    if registers > rung_of(threads)[1] or held > device.shared_per_block_optin:
        return None
    return SharedMemoryRowShape(
        vector, threads, batch, registers, shared_memory_time(found.length, found.rows, cost, device)
    )


def shared_memory_time(length: int, rows: int, cost: GradientRowCost, device: DeviceInfo) -> float:
    """Predicted microseconds of all rows with one block per SM."""
    blocks = min(device.sm_count, rows)
    rate = RATE * device.memory_rate
    row = length * cost.moved * device.sm_count / rate
    parts = blocks * length * cost.sums * cost.sum_bytes
    # Nothing overlaps with the first row.
    each = max(row, LEAST_ROW * device.cycle) + EACH_ROW * device.cycle
    return whole_grid_time(blocks, device) + 2 * parts / (1.5 * rate) + (rows / blocks + 1) * each


RATE = 0.96
"""The part of the memory's rate that a copy reaches."""
