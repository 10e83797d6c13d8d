"""Rows over cooperative groups of blocks, which exchange what they have through device memory: shapes, and when that pays.

Loops, with the names of `inner_persistent`, G groups that go over the rows and C blocks of each:

    G -> grid_y, K/G serial, R/(v*tx*B*C) = 1, C -> grid_x, B, tx -> block_x, v -> vector

The launch is cooperative: all blocks are co-resident. Any number of them may share a row, so that few rows keep the whole
device busy, and rows that no cluster could hold stay on chip; but an exchange costs more than one of a cluster. Each shape is
judged by the time that it should take; all times are microseconds, all rates bytes a microsecond. What code takes is counted
here in cycles and instructions; how long those are says the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fuser.ir.device_info import REGISTER_STEP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.scratch_budget import BESIDE_ROW

EASY_ACCESS, ACCESS, HARD_ACCESS = 440, 790, 1750
"""Cycles of a thread for one access, with what is computed from it, where few others share its SM: in shared memory, where all
are on their way before the first is used; in registers; of Doubles, and of rows that begin anywhere."""

ELEMENT, DOUBLE_ELEMENT = 10, 40
"""Instructions of a thread for an element; operations on Doubles, for one of those."""

EXCHANGES_IN_BLOCK = 2
"""Exchanges of a block, where the threads of a row wait for one another once: what comes of it is told to all."""

EXCHANGES_IN_CLUSTER = 3
"""Exchanges of a cluster that one of blocks with long rows takes as long as: the last block is waited for, and each has come as
far as its memory has let it."""

OF_THREAD, OF_DOUBLE_THREAD = 0.5, 1.4
"""Cycles that each thread of a block adds to an exchange of a group, and one that joins Doubles with their rests (H200:
rms_norm f64 8x128256 over 32 blocks of 512 threads 11.0 us, over 16 of 1024 11.8, over 63 of 256 11.7)."""

PIECEWISE = 0.5
"""What is left of a pass over a row that waits for one piece after the other: the rest is done while others come."""

MOST_RESIDENT = 4
"""Blocks of an SM: more of them only have more to exchange."""

MOST_RESIDENT_DOUBLES = 2
"""The same of rows of Doubles in registers (H200: rms_norm f64 16x16384 in four 8.6 us, in two 8.0; 8x32768 8.5 and 7.9)."""

LEAST_PIECES = 4
"""Of what a thread has of a row in shared memory: one is waited for while others come."""

LEAST_ELEMENTS = 8192
"""Of a row that is worth a group."""

WORTH, LEAST_GAIN = 0.9, 0.35
"""The part of the time of clusters that groups are expected to take at most, and what they save, in launches: estimates are
coarse."""

THREADS = (128, 256, 384, 512, 1024)


@record
class Row:
    """What the time of a row depends on.

    elements     of a row
    vector       elements of an access
    moved        bytes read and written for an element
    exchanges    how often the threads of a row wait for one another
    is_double    whether it is computed in Double
    is_cut       whether its accesses begin anywhere
    """

    elements: int
    vector: int
    moved: float
    exchanges: int
    is_double: bool
    is_cut: bool


@record
class Room:
    """What a thread may hold.

    in_shared        whether rows lie in shared memory
    held             bytes on chip for an element
    registers        of a thread beside the row
    most_accesses    of a thread
    """

    in_shared: bool
    held: int
    registers: int
    most_accesses: int


@record
class GridShape:
    """How rows are spread: `groups` of `sharing` blocks, `threads` of each along a row, `batch` accesses of a thread;
    `resident` blocks share an SM. `time` is what all rows should take."""

    threads: int
    batch: int
    sharing: int
    groups: int
    resident: int
    time: float


def expected_time(
    row: Row,
    rows: int,
    sharing: int,
    batch: int,
    at_once: int,
    overlap: int,
    latency: float,
    exchange: float,
    device: DeviceInfo,
    *,
    in_shared: bool,
    in_group: bool,
) -> float:
    """Of `rows`, `at_once` of them at the same time, each over `sharing` blocks whose threads have `batch` accesses.

    overlap   rows of which an SM has parts: while one waits, others go on
    """
    # Groups go over as many rows each; other blocks are handed out as others end.
    trips = -(-rows // at_once) if in_group else max(1.0, rows / at_once)
    blocks = sharing * min(rows, at_once)
    busy = min(blocks, device.sm_count)
    # The SM with most blocks is done last.
    share = row.elements / sharing * -(-blocks // device.sm_count)
    sm_rate, device_rate = device.sm_rate, device.memory_rate
    moving = share * row.moved / min(sm_rate, device_rate / busy)
    if trips > 1 and not in_group:
        # Nobody waits for the SM with most blocks: it gets no other one.
        moving = row.elements * at_once * row.moved / min(sm_rate * busy, device_rate)
    of_element = DOUBLE_ELEMENT * device.fp64_time if row.is_double else ELEMENT * device.thread_time
    working = max(batch * access_time(row, device, in_shared=in_shared), share * of_element)
    if in_group and in_shared and trips > 1:
        working *= PIECEWISE
    waiting = latency + row.exchanges * exchange
    # One iteration works while its bytes come. In several, a block stands still in each, unless others have its SM meanwhile.
    return max(moving, working) + waiting if trips == 1 else trips * (moving + (working + waiting) / overlap)


def access_time(row: Row, device: DeviceInfo, *, in_shared: bool) -> float:
    """Of a thread for one access."""
    cycles = HARD_ACCESS if row.is_double or row.is_cut else EASY_ACCESS if in_shared else ACCESS
    return cycles * device.cycle


def latency_together(device: DeviceInfo) -> float:
    """From the first load of a row to its last value, beside what the rates say, where several blocks have to be there."""
    return device.first_to_last + device.cluster_start


def choose_grid_shape(
    row: Row, rows: int, room: Room, device: DeviceInfo, *, may_wait: bool = False
) -> GridShape | None:
    """The shape that should take least time; None if no group of all blocks holds a row.

    may_wait   whether rows in registers may be loaded one after the other
    """
    best: GridShape | None = None
    most_resident = MOST_RESIDENT_DOUBLES if row.is_double and not row.is_cut and not room.in_shared else MOST_RESIDENT
    accesses, access = -(-row.elements // row.vector), access_time(row, device, in_shared=room.in_shared)
    latency = latency_together(device)
    for threads in THREADS:
        # With fewer accesses a thread no group of all blocks holds a row.
        fewest = -(-accesses // (threads * MOST_RESIDENT * device.sm_count))
        fewest = max(fewest, LEAST_PIECES if room.in_shared else 1)
        for batch, sharing in spreads_of(accesses, threads, fewest, room.most_accesses):
            if best is not None and rows == 1 and batch * access + latency >= best.time:
                break
            resident = _resident(threads, batch * row.vector * room.held, room, device)
            if resident < 1:
                break
            groups = min(rows, min(resident, most_resident) * device.sm_count // sharing)
            if groups < 1:
                continue
            # Rows in registers are waited for in each iteration: what clusters cannot hold may do that, others had better not.
            if -(-rows // groups) > 1 and not (room.in_shared or may_wait):
                continue
            # Rows that are all there take as long as a thread for its accesses, however fast these are.
            waiting = latency + row.exchanges * _exchange(row, threads, sharing, device)
            if best is not None and rows <= groups and batch * access + waiting >= best.time:
                continue
            per_sm = -(-groups * sharing // device.sm_count)
            time = group_time(row, rows, threads, batch, sharing, groups, device, in_shared=room.in_shared)
            if best is None or time < best.time:
                best = GridShape(threads, batch, sharing, groups, per_sm, time)
    return best


def group_time(
    row: Row, rows: int, threads: int, batch: int, sharing: int, groups: int, device: DeviceInfo, *, in_shared: bool
) -> float:
    """Of rows over `groups` groups of `sharing` blocks, whose threads have `batch` accesses."""
    per_sm = -(-groups * sharing // device.sm_count)
    # Rows of Doubles are in the same stage at the same time.
    overlap = 1 if row.is_double else min(per_sm, groups)
    return expected_time(
        row,
        rows,
        sharing,
        batch,
        groups,
        overlap,
        latency_together(device),
        _exchange(row, threads, sharing, device),
        device,
        in_shared=in_shared,
        in_group=True,
    )


def _exchange(row: Row, threads: int, sharing: int, device: DeviceInfo) -> float:
    """Of the blocks of a group."""
    of_thread = OF_DOUBLE_THREAD if row.is_double and not row.is_cut else OF_THREAD
    return device.grid_exchange(sharing) + of_thread * threads * device.cycle


def spreads_of(accesses: int, threads: int, fewest: int, most: int) -> Iterator[tuple[int, int]]:
    """From `fewest` to `most` accesses of a thread and the blocks of as many `threads` they make, two or more. Each time
    fewer blocks: with as many and more accesses a thread, threads would be idle."""
    batch = fewest
    while batch <= most:
        sharing = -(-accesses // (threads * batch))
        if sharing < 2:
            return
        if batch > fewest or -(-accesses // (threads * sharing)) == batch:
            yield batch, sharing
        batch = -(-accesses // (threads * (sharing - 1)))


def _resident(threads: int, held: int, room: Room, device: DeviceInfo) -> int:
    """Blocks of `threads` with `held` bytes of rows each that an SM holds."""
    if threads > device.max_threads_per_block:
        return 0
    resident = min(device.max_threads_per_sm // threads, device.max_blocks_per_sm)
    registers = room.registers
    if room.in_shared:
        shared = threads * held + BESIDE_ROW
        if shared > device.shared_per_block_optin:
            return 0
        resident = min(resident, device.shared_per_sm // shared)
    else:
        registers += -(-held // 4)
    if registers > device.registers_per_thread:
        return 0
    registers = -(-registers // REGISTER_STEP) * REGISTER_STEP
    resident = min(resident, device.registers_per_sm // (registers * threads))
    # One binary serves all blocks of up to so many threads: of smaller ones, those that fill such a block share its registers.
    while (
        threads < SMALLEST_RUNG
        and registers * -(-resident * threads // SMALLEST_RUNG) > device.registers_per_sm // SMALLEST_RUNG
    ):
        resident -= 1
    return resident


SMALLEST_RUNG = 256
"""Threads of the smallest block that a binary is made for."""


def near_time(row: Row, rows: int, cluster: int, threads: int, batch: int, room: Room, device: DeviceInfo) -> float:
    """Of rows over the blocks of a cluster, or of one block each, for comparison."""
    latency, exchange = _near_waits(cluster, device)
    resident = max(1, _resident(threads, batch * row.vector * room.held, room, device))
    slots = device.sm_count * resident * device.clustered(cluster)
    at_once = max(1, math.floor(slots / cluster))
    return expected_time(
        row,
        rows,
        cluster,
        batch,
        at_once,
        resident,
        latency,
        exchange,
        device,
        in_shared=room.in_shared,
        in_group=False,
    )


def near_time_of_one(row: Row, cluster: int, batch: int, device: DeviceInfo, *, in_shared: bool) -> tuple[float, float]:
    """Of one row over the blocks of a cluster, or over one block, without what its bytes take: what its threads do while these
    come, and what they wait for."""
    latency, exchange = _near_waits(cluster, device)
    return batch * access_time(row, device, in_shared=in_shared), latency + row.exchanges * exchange


def _near_waits(cluster: int, device: DeviceInfo) -> tuple[float, float]:
    """Until a row is there, and of each exchange."""
    return latency_together(device) if cluster > 1 else device.first_to_last, near_exchange(cluster, device)


def near_exchange(cluster: int, device: DeviceInfo) -> float:
    """Of the threads of a row over the blocks of a cluster, or over one block."""
    in_cluster = EXCHANGES_IN_CLUSTER * device.cluster_exchange(cluster) if cluster > 1 else 0.0
    return EXCHANGES_IN_BLOCK * device.block_exchange + in_cluster


def is_worth_it(shape: GridShape, near: float, device: DeviceInfo) -> bool:
    """Whether a shape should be enough faster than the `near` one."""
    return shape.time < WORTH * near and shape.time < near - LEAST_GAIN * device.launch
