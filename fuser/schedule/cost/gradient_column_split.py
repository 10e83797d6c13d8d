"""How few rows are spread over the blocks of one cluster, long ones over those of the grid, and how long that takes.

A cluster has two ways: each block has some columns of all rows, and the statistics of rows are exchanged; or each has some
rows, and the sums of columns are exchanged. Either is one step through shared memory, in the place of a wait of the whole grid.
Rows that no block holds lie over all blocks of the grid, which exchange the statistics of some rows at a time.

All times are microseconds. Cycles, instructions and waits that code takes are as fitted to what 35 shapes of nine gradients of
layer norm took on an H200 (BFloat16, Float and Double, 5.6 to 19 us), off by a tenth at most where a shape is close to the
best; how long those are says the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.gradient_sizes import GradientRowCost, size_registers
from fuser.schedule.cost.scratch_budget import BESIDE_COLUMNS

OF_NEXT_ROW = 350
"""Cycles for each row of a thread but the first, which has code of its own (H200: bf16 9x3072 5.8 us, two rows a thread
6.2)."""
ELEMENT, DOUBLE_ELEMENT = 31, 50
"""Instructions of a thread for an element of a row; operations on Doubles, for one of those."""
ELEMENT_ALONE, DOUBLE_ALONE, ACCESS_ALONE = 21, 63, 35
"""Cycles of a thread for an element and for an access, however few others there are."""
JOIN = 6.5
"""Instructions of a warp for a value that its lanes, or the blocks, join in one step; as much again for each of its other
operations."""
WARPS_ALONE = 4
"""Warps that join in the time of one."""
DOUBLE = 1.5
"""Steps of a total in Double."""
STORE = 2
"""Instructions of a warp for a value stored into another block."""
SUM_UP = 7.6
"""Instructions of a thread for a sum of a column that it leaves for the others of its block."""
IN_GRID = 2
"""Exchanges of a kernel in which blocks of the whole grid wait for one another."""
TWO_KERNELS_RATE = 0.33
"""Of the memory's rate, what two kernels move, one for the rows and one for the columns, one after the other."""
OF_DOUBLE_PAIRS, SIDE_BY_SIDE_RATE, DOUBLE_PAIRS_RATE = 262, 0.53, 0.455
"""Cycles that two such kernels that run side by side take more with Doubles, and what they move of the memory's rate: one finds
in a cache what the other has read (H200: 24 shapes of 0.1 to 74 MB took 5.6 to 36.8 us; of 0.2 to 5 MB, on the same processors,
5.8 to 8.7)."""
BY_ELEMENT = {2: 0.55, 4: 0.75, 8: 0.75}
"""The part of that where rows begin anywhere, by bytes of an element (H200: bf16 300x50257 75.7 us, 100003x257 162.7, by one
kernel 103.3; f32 10776x257 26.0, by one 28.5)."""
MANY_BY_ELEMENT = 0.67
"""Launches as long as what they take longer where rows begin anywhere and are many: blocks share columns (H200: bf16 1800x257
11.1 us, 3000x257 12.1, f32 2500x257 13.9, 3007x64 9.0; 4x50257 8.3)."""
EXACT = 0.045
"""Launches as long as what a cluster may be estimated to take longer than those: it is known better."""
WORTH = 0.92
"""The part of their time that a group is expected to take at most: estimates are coarse."""
RELATIVE = 0.87
"""What a group takes of what is estimated, beside two kernels side by side (H200: fifteen shapes, 0.8 to 1.02)."""
MARGIN = 1.12
"""Registers of a thread of a group, over those that are counted."""
IN_BLOCK, OF_WARP = 3, 35
"""Exchanges of a block about one of all blocks of the grid; cycles that each warp of a block adds, which has sums to join
(H200: bf16 3x250003 in 960 threads 9.73 us, in 640 and 480 9.34, in 320 9.28)."""
OF_ROW, OF_DOUBLES = 262, 105
"""Cycles that each row adds to that, and each of Doubles."""
HIDDEN = 1.45
"""Of what a block waits for memory, what is saved of each where the next rows come meanwhile."""
CLUSTERS = (2, 4, 8, 16)
OF_SHARED, DOUBLE_IN_SHARED = 525, 25
"""Where rows are copied to shared memory meanwhile: cycles that each row adds, and operations on Doubles for an element."""
MOST_DOUBLES, THREADS_OF_DOUBLES = 6, 384
"""Elements of a row that a thread has at most, and threads of a block: each has registers of its own for their sums."""
MOST_AT_ONCE, FEW_AT_ONCE, FOR_EACH = 16, 4, 1.6
"""Rows in shared memory at once, those of which statistics stay in registers, and what each of more takes, if they are all."""
OF_DOUBLE_ROW = 4
"""Registers of what a row of Doubles has one of, from its statistics to its results, over those of the statistics alone (ptxas,
one to four elements of 2 to 10 rows in a thread: 14 to 16 registers a row beside those that are read)."""
MOST_ROWS_AT_ONCE = 5
"""Rows of a thread: each has code of its own."""
MOST_ELEMENTS = 48
"""Of a thread, for the same reason."""
LEAST_ROWS = 8
"""Of a block, where each has some: fewer have as many sums of columns to exchange."""
SHARED_BYTES = 64 * 1024
"""Of a block's sums of columns, before its threads join them."""


@record
class GradientClusterShape:
    """How rows are shared by the blocks of a cluster: see `InnerOuterParams`. `time_us` is the predicted time."""

    vector: int
    threads: int
    batch: int
    sharing: int
    blocks: int
    side_by_side: int
    rows: int
    registers: int
    time_us: float


def two_kernel_time(length: int, rows: int, vector: int, cost: GradientRowCost, device: DeviceInfo) -> float:
    """Predicted microseconds of two concurrent kernels, one for the rows and one for the columns."""
    # The second one begins while the first one waits, and has a cluster or the last of its blocks to join what there is.
    base = device.launch + 2 * device.first_to_last + device.cluster_start
    base += OF_DOUBLE_PAIRS * device.cycle if cost.is_double else 0.0
    if vector == 1 and rows > length:
        base += MANY_BY_ELEMENT * device.launch
    rate = DOUBLE_PAIRS_RATE if cost.is_double else SIDE_BY_SIDE_RATE
    rate *= BY_ELEMENT.get(min(cost.read_sizes, default=0), 1.0) if vector == 1 else 1.0
    return base + rows * length * cost.moved / (rate * device.memory_rate)


def choose_gradient_cluster(
    length: int, rows: int, vector: int, cost: GradientRowCost, device: DeviceInfo, otherwise: float = math.inf
) -> GradientClusterShape | None:
    """The fastest shape; None if no cluster holds all rows at once, or if sharing rows over the grid, or something that takes
    `otherwise` microseconds, is predicted to be faster."""
    costs = _costs_on(device)
    best = min(
        whole_grid_time(device.sm_count, device) + rows * length * cost.moved / device.memory_rate,
        otherwise + EXACT * device.launch,
    )
    found: GradientClusterShape | None = None
    for size in CLUSTERS:
        # No shape is faster than its elements.
        of_elements = rows * length / size * costs.element(cost)
        if size > device.max_cluster or costs.start + of_elements > best:
            continue
        for sharing, blocks in ((size, 1), (1, size)):
            own = -(-rows // blocks)
            if blocks > rows or (sharing == 1 and rows < LEAST_ROWS * size):
                continue
            for width, threads, batch in _accesses(length, vector, sharing, device):
                held = cost.own_registers + batch * (
                    width * cost.column_registers + size_registers(cost.weight_sizes, width)
                )
                held += batch * size_registers(cost.kept_sizes, width)
                of_row = batch * size_registers(cost.read_sizes, width) + cost.statistic_registers
                last = 0
                for at_once in range(1, min(own, MOST_ROWS_AT_ONCE, max(1, MOST_ELEMENTS // (batch * width))) + 1):
                    beside = -(-own // at_once)
                    if beside == last:
                        continue
                    last = beside
                    if threads < WARP:
                        beside = -(-threads * beside // WARP) * WARP // threads
                    block = threads * beside
                    registers = held + at_once * of_row
                    if block > device.max_threads_per_block or registers > device.registers_per_thread:
                        continue
                    if block * batch * width * cost.sums * cost.sum_bytes > SHARED_BYTES:
                        continue
                    if registers > rung_of(block)[1]:
                        continue
                    time = _time(
                        rows * length / size, width, threads, batch, sharing, blocks, beside, at_once, cost, costs
                    )
                    if time < best:
                        best = time
                        found = GradientClusterShape(
                            width, threads, batch, sharing, blocks, beside, at_once, registers, time
                        )
    return found


@record
class GradientGridShape:
    """Rows that `sharing` blocks of the grid share, `rows` at once; `ahead`: the next rows are prefetched."""

    vector: int
    threads: int
    batch: int
    sharing: int
    rows: int
    trips: int
    ahead: bool
    registers: int
    time_us: float
    in_shared: bool = False


def choose_gradient_grid(
    length: int, rows: int, vector: int, cost: GradientRowCost, device: DeviceInfo, apart: float = math.inf
) -> GradientGridShape | None:
    """The fastest shape; None if blocks hold no row, or if two kernels are predicted to be faster.

    apart   microseconds of two concurrent kernels, valid if there are no more rows than clusters
    """
    bytes_moved = rows * length * cost.moved
    best = WORTH * (whole_grid_time(device.sm_count, device) + bytes_moved / (TWO_KERNELS_RATE * device.memory_rate))
    if rows * CLUSTERS[-1] <= device.sm_count:
        best = min(best, apart / RELATIVE)
    found: GradientGridShape | None = None
    if cost.is_double and device.copies_to_shared:
        found = _doubles_in_shared(length, rows, cost, device)
        if found is not None and found.time_us < best:
            return found
        found = None
    costs = _costs_on(device)
    of_element, of_element_alone = costs.element(cost), costs.element_alone(cost)
    of_row = (OF_DOUBLES if cost.is_double else OF_ROW) * costs.cycle
    statistics = cost.statistic_registers * (OF_DOUBLE_ROW if cost.is_double else 1)
    width = vector
    while width >= 1:
        accesses = -(-length // (width * device.sm_count))
        for batch in (1, 2, 3, 4, 6, 8):
            threads = -(-accesses // (batch * WARP)) * WARP
            if not 2 * WARP <= threads <= device.max_threads_per_block:
                continue
            sharing = -(-length // (width * threads * batch))
            held = cost.own_registers + batch * (
                width * cost.column_registers + size_registers(cost.weight_sizes, width)
            )
            held += batch * size_registers(cost.kept_sizes, width)
            loads = batch * size_registers(cost.read_sizes, width)
            # The compiler holds rows as they are computed with, not as they come.
            wide = batch * size_registers(tuple(max(4, size) for size in cost.read_sizes), width)
            granted = rung_of(threads)[1]
            # Doubles leave no registers for the next rows: f64 74x250003 takes 270 us without them, 314 with (H200).
            for ahead in (False,) if cost.is_double else (False, True):
                each = wide + (loads if ahead else 0) + statistics
                at_once = min(rows, (int(granted / MARGIN) - held) // each, WARP)
                if at_once < 1 or sharing < 2 or (ahead and at_once == rows):
                    continue
                trips = -(-rows // at_once)
                at_once = -(-rows // trips)
                meeting = _meeting(sharing, device) + OF_WARP * costs.cycle * threads / WARP
                meeting -= HIDDEN * device.first_to_last if ahead else 0.0
                of_thread = batch * (width * of_element_alone + costs.access_alone)
                meeting += at_once * (of_row + max(length / sharing * of_element, of_thread))
                time = costs.start + bytes_moved / device.memory_rate + trips * meeting
                if time < best:
                    best = time
                    registers = held + at_once * each
                    found = GradientGridShape(width, threads, batch, sharing, at_once, trips, ahead, registers, time)
        width //= 2
    return found


def _doubles_in_shared(length: int, rows: int, cost: GradientRowCost, device: DeviceInfo) -> GradientGridShape | None:
    """The same with rows of Doubles in shared memory, element by element: all of them, or two trips' of a few."""
    best: GradientGridShape | None = None
    elements, start = -(-length // device.sm_count), _costs_on(device).start
    for batch in range(1, MOST_DOUBLES + 1):
        threads = -(-elements // (batch * WARP)) * WARP
        if not 2 * WARP <= threads <= THREADS_OF_DOUBLES:
            continue
        sharing = -(-length // (threads * batch))
        held = cost.own_registers + batch * (cost.column_registers + size_registers(cost.weight_sizes, 1))
        held += size_registers(cost.kept_sizes, 1)
        row_bytes = threads * batch * cost.loaded
        room = device.shared_per_block_optin - BESIDE_COLUMNS
        for at_once in range(min(rows, MOST_AT_ONCE), 0, -1):
            trips = -(-rows // at_once)
            # What each of few rows has one of stays in registers beside its statistics; so does what a trip begins with.
            is_all = trips == 1 and at_once > FEW_AT_ONCE
            registers = (
                held
                + int(at_once * cost.statistic_registers * (FOR_EACH if is_all else OF_DOUBLE_ROW))
                + 8 * (trips > 1)
            )
            places = 1 if trips == 1 else 2
            if sharing < 2 or registers > rung_of(threads)[1] or places * at_once * row_bytes > room:
                continue
            at_once = -(-rows // trips)
            # The first element of a row that is copied is waited for once more.
            meeting = _meeting(sharing, device) + device.first_to_last + at_once * OF_SHARED * device.cycle
            meeting += at_once * length / sharing * DOUBLE_IN_SHARED * device.fp64_time
            moving = at_once * length * cost.moved / device.memory_rate
            time = start + (moving + meeting if trips == 1 else trips * max(moving, 0.5 * moving + meeting))
            if best is None or time < best.time_us:
                best = GradientGridShape(1, threads, batch, sharing, at_once, trips, trips > 1, registers, time, True)
    return best


def _accesses(length: int, most: int, sharing: int, device: DeviceInfo) -> Iterator[tuple[int, int, int]]:
    """(elements of an access, threads along a block's part of a row, accesses of each)."""
    vector = most
    while vector >= 1:
        accesses = -(-length // (vector * sharing))
        # Threads of one warp join without a barrier: as few as have few accesses each.
        threads = WARP
        while accesses < threads and sharing == 1:
            threads //= 2
        while threads <= device.max_threads_per_block:
            batch = -(-accesses // threads)
            # No block without columns.
            if batch * vector <= MOST_ELEMENTS and -(-length // (vector * threads * batch)) == sharing:
                yield vector, threads, batch
            if batch <= 2:
                break
            threads *= 2
        vector //= 2


def _time(
    elements: float,
    vector: int,
    threads: int,
    batch: int,
    sharing: int,
    blocks: int,
    side_by_side: int,
    rows: int,
    cost: GradientRowCost,
    costs: _Costs,
) -> float:
    """What a shape should take, of which each block has so many `elements`."""
    step = DOUBLE if cost.is_double else 1.0
    values = cost.statistics * rows
    steps = math.log2(min(threads, WARP)) + math.log2(sharing)
    warps = threads * side_by_side / WARP
    columns = threads * batch * vector * cost.sums
    time = costs.start + costs.cluster_block * sharing * blocks + costs.next_row * (rows - 1)
    alone = rows * batch * (vector * costs.element_alone(cost) + costs.access_alone)
    time += max(elements * costs.element(cost), alone)
    time += costs.join * max(warps, WARPS_ALONE) * values * steps * step
    if threads > WARP:
        time += costs.join * warps * values * threads / WARP * step / 18
    if sharing > 1:
        time += costs.store * side_by_side * values * sharing
    if side_by_side > 1:
        time += costs.sum_up * columns * side_by_side
    if blocks > 1:
        time += costs.store * columns * blocks
    return time


@record
class _Costs:
    """Microseconds on a device. `start`: a kernel that does nothing, with first loads and last stores of a cluster."""

    cycle: float
    start: float
    cluster_block: float
    next_row: float
    elements: tuple[float, float]
    elements_alone: tuple[float, float]
    access_alone: float
    join: float
    store: float
    sum_up: float

    def element(self, cost: GradientRowCost) -> float:
        """Of an SM, for an element."""
        return self.elements[cost.is_double]

    def element_alone(self, cost: GradientRowCost) -> float:
        """Of a thread, for an element."""
        return self.elements_alone[cost.is_double]


@lru_cache(maxsize=16)
def _costs_on(device: DeviceInfo) -> _Costs:
    cycle = device.cycle
    return _Costs(
        cycle,
        device.launch + device.first_to_last + device.cluster_start,
        device.latencies.cluster_block_ns / 1e3,
        OF_NEXT_ROW * cycle,
        (ELEMENT * device.thread_time, DOUBLE_ELEMENT * device.fp64_time),
        (ELEMENT_ALONE * cycle, DOUBLE_ALONE * cycle),
        ACCESS_ALONE * cycle,
        JOIN * device.issue_time,
        STORE * device.issue_time,
        SUM_UP * device.thread_time,
    )


def whole_grid_time(blocks: int, device: DeviceInfo) -> float:
    """What a kernel takes in which so many blocks wait for one another, beside the bytes."""
    return device.launch + device.first_to_last + IN_GRID * device.grid_exchange(blocks)


def _meeting(blocks: int, device: DeviceInfo) -> float:
    """An exchange of blocks of the grid, and what follows it in each."""
    return device.grid_exchange(blocks) + IN_BLOCK * device.block_exchange
