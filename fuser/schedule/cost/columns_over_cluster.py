"""Columns over the blocks of a cluster: normalisations along the slower dims whose columns few blocks can hold.

A column lies over the C blocks of a cluster, which join what they have found through each other's shared memory: that takes a
third of the time of an exchange through device memory. A cluster lies within a part of the device, so that large ones leave
some of its processors idle, and a column has no more blocks than a cluster. Each shape is judged by the time that it should
take; all times are microseconds, all rates bytes a microsecond. What code takes is counted in instructions, cycles and waits
(as fitted to an H200, benchmarks/NOTES.md); how long those are says the device.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.device_info import REGISTER_STEP, SECTOR_BYTES, WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.scratch_budget import OF_COLUMN_THREAD, Joined

RATE_IN_COLUMNS = 0.75
"""What one SM reads and writes of columns, over what it does of rows, if many others are idle."""

PER_ELEMENT, PER_EXACT_ELEMENT = 14, 28
"""Instructions for an element: it is converted, added up, subtracted, scaled and converted again; and where sums are in Double
and what results lose is kept. A conversion to Double takes the time of eight."""

EXPOSED = 0.75
"""The part of the arithmetic that is not done while other data comes."""

TURN = 0.55
"""What a further iteration of loads adds, which wait for one another, of the time that a block waits for memory."""

OF_WARP = 52
"""Cycles that a warp more takes until all of a block have joined what they found."""

IN_BLOCK, IN_GRID = 2, 2
"""Exchanges of a block, and where blocks meet in device memory of the grid: what is joined, and what comes of it (H200: batch
norm f32 8x256x28x28 over 33 blocks 13.0 us, over clusters 13.1 to 19; 4x32x112x112 over 132 blocks 13.8, over 66 13.7, over
clusters 14.8 to 19)."""

BESIDE = 0.5
"""What each further block of an SM adds to the start of its clusters."""

NARROW = 0.5
"""What a byte takes longer, of its time, that is moved in pieces of one sector; in those of two, an eighth of that, and so on
(H200: f32 8x256x28x28 (accesses across, threads, blocks, unrolled) (4, 512, 6, 9) 11.2 us, (2, 512, 3, 9) 12.4; bf16
32x512x14x14 10.2 and 11.4; f32 1x512x31x33 (8, 256, 6, 6) and (4, 256, 3, 6) 7.3, (2, 128, 2, 8) 7.7)."""

SHARING = (2, 3, 4, 5, 6, 7, 8, 16)
"""Blocks of a cluster: any number, so that as many clusters as there are lines have processors of their own (H200: 16 lines of
f16 8x256x28x28 over clusters of six 8.5 us, of eight, one of which finds no room, 8.9; 16 of f32 11.2 and 12.2; 32 of f32
1x512x31x33 over clusters of three 7.4, of four 7.9)."""
THREADS = (128, 256, 512)
MOST_AT_ONCE = 10
"""Accesses of a thread in flight."""


@record
class Work:
    """`rows` x `columns` elements, `vector` of them in an access, which loads `loaded` bytes; `moved`: read and written.
    `is_exact`: statistics are sums in Double; `joined`: what a thread leaves in shared memory for others to join."""

    rows: int
    columns: int
    vector: int
    loaded: int
    moved: int
    is_exact: bool = False
    joined: Joined = Joined()


@record
class ColumnShape:
    """`across` x `along` threads, `sharing` blocks for the rows of the same columns, `unroll` accesses in flight a thread in
    each of `iterations`; `time` is what all should take."""

    across: int
    along: int
    sharing: int
    unroll: int
    iterations: int
    time: float


def shape_time(
    work: Work,
    across: int,
    along: int,
    sharing: int,
    busy: int,
    per_sm: float,
    waiting: float,
    device: DeviceInfo,
    mean: float | None = None,
) -> float:
    """Of blocks that have `waiting` beside, on `busy` SMs, `per_sm` of them on the one with most, and `mean` on all of these if
    not as many."""
    rows = -(-work.rows // sharing)
    accesses = -(-rows // along)
    warps = per_sm * -(-across * along // WARP)
    share = rows * across * work.moved
    of_device = (per_sm if mean is None else mean) * share * busy / device.memory_rate
    moving = max(per_sm * share / (RATE_IN_COLUMNS * device.sm_rate), of_device)
    instructions = PER_EXACT_ELEMENT if work.is_exact else PER_ELEMENT
    issued = accesses * work.vector * instructions * device.issue_time * warps * EXPOSED
    iterations = -(-accesses // MOST_AT_ONCE)
    waiting += TURN * device.first_to_last * (iterations - 1) + OF_WARP * warps * device.cycle
    return moving + _narrow(work, across, device) + issued + waiting


def _narrow(work: Work, across: int, device: DeviceInfo) -> float:
    """What short runs of `across` accesses take longer."""
    moved = work.rows * -(-work.columns // work.vector) * work.moved
    return moved / device.memory_rate * NARROW * (SECTOR_BYTES / (across * work.loaded)) ** 3


def grid_time(work: Work, across: int, along: int, sharing: int, device: DeviceInfo) -> float:
    """Of a shape whose blocks, one on each SM, meet in device memory."""
    blocks = sharing * -(-work.columns // (across * work.vector))
    waiting = device.first_to_last + IN_BLOCK * device.block_exchange + IN_GRID * device.grid_exchange(sharing)
    return shape_time(work, across, along, sharing, min(blocks, device.sm_count), 1, waiting, device)


def _cluster_waits(sharing: int, device: DeviceInfo) -> float:
    """For memory, for the blocks of a cluster to be there, and for what they join."""
    start = device.first_to_last + device.cluster_start
    return start + IN_BLOCK * device.block_exchange + device.cluster_exchange(sharing)


def choose_cluster_shape(
    work: Work, widest: int, registers_of: Sequence[int], kept_bytes: int, device: DeviceInfo
) -> ColumnShape | None:
    """The shape over a cluster that should take least time; None if there is none.

    widest        bytes of the widest element of a row
    registers_of  registers of a thread by its accesses in flight
    kept_bytes    of shared memory, for an access of an iteration that is not the last one; 0 if nothing is kept
    """
    best: ColumnShape | None = None
    accesses = -(-work.columns // work.vector)
    widths = {1 << k for k in range((accesses - 1).bit_length() + 1)}
    # Less than a sector is read as a whole one.
    least = min(max(widths), max(1, SECTOR_BYTES // (work.vector * widest)))
    for across in sorted(w for w in widths if least <= w <= WARP):
        tiles = -(-accesses // across)
        narrow = _narrow(work, across, device)
        for sharing in (s for s in SHARING if s <= device.max_cluster):
            fit = device.clusters(sharing)
            rows = -(-work.rows // sharing)
            if fit < 1 or (
                best is not None
                and narrow + _least_time(work, across, sharing, rows, tiles, tiles / fit, device) >= best.time
            ):
                continue
            for threads in THREADS:
                along = threads // across
                if along < 2 or rows < along or threads > device.max_threads_per_block:
                    continue
                shape = _shape(work, across, along, sharing, tiles, fit, registers_of, kept_bytes, device)
                if shape is not None and (best is None or shape.time < best.time):
                    best = shape
    return best


def _least_time(work: Work, across: int, sharing: int, rows: int, tiles: int, each: float, device: DeviceInfo) -> float:
    """Less than what any number of threads takes beside short runs: as if all of a processor's blocks, `each` of them on
    average, were there at once, and no thread idle."""
    elements = rows * across * work.vector
    instructions = PER_EXACT_ELEMENT if work.is_exact else PER_ELEMENT
    issued = elements / WARP * max(1.0, each) * instructions * device.issue_time * EXPOSED
    share = rows * across * work.moved
    of_sm = max(1.0, each) / (RATE_IN_COLUMNS * device.sm_rate)
    moving = share * max(of_sm, min(1.0, each) * tiles * sharing / device.memory_rate)
    return moving + issued + _cluster_waits(sharing, device)


def _shape(
    work: Work,
    across: int,
    along: int,
    sharing: int,
    tiles: int,
    fit: int,
    registers_of: Sequence[int],
    kept_bytes: int,
    device: DeviceInfo,
) -> ColumnShape | None:
    threads = across * along
    rows = -(-work.rows // sharing)
    accesses = -(-rows // along)
    iterations = -(-accesses // MOST_AT_ONCE)
    unroll = max(2, -(-accesses // iterations))
    registers = registers_of[unroll]
    kept = (iterations - 1) * unroll * threads * kept_bytes
    # What a block has of each column is told all others of its cluster.
    exchanged = work.joined.room(across, along, work.vector, sharing * across)
    shared = kept + OF_COLUMN_THREAD * threads
    if registers > device.registers_per_thread or max(shared, kept + exchanged) > device.shared_per_block_optin:
        return None
    resident = min(
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (-(-registers // REGISTER_STEP) * REGISTER_STEP * threads),
        device.shared_per_sm // shared,
        device.max_blocks_per_sm,
    )
    if resident < 1:
        return None
    per_sm = -(-tiles // fit)
    waves = -(-per_sm // min(per_sm, resident))
    # A few clusters more than have processors of their own make two on some wait, but not the memory.
    is_few = tiles <= A_FEW_MORE * fit
    at_once = min(per_sm if not is_few else max(TWO_ON_SOME, tiles / fit) if per_sm > 1 else 1.0, resident)
    busy = min(tiles, fit) * sharing
    waiting = _cluster_waits(sharing, device) + BESIDE * device.cluster_start * (at_once - 1)
    mean = min(tiles / fit, at_once)
    time = waves * shape_time(work, across, along, sharing, busy, at_once, waiting, device, mean)
    return ColumnShape(across, along, sharing, unroll, iterations, time)


A_FEW_MORE = 1.25
"""So many times as many clusters as have processors of their own are not yet two on each."""

TWO_ON_SOME = 1.4
"""What the few processors with two blocks take longer: they have the rate of the memory for themselves in the end (H200, by
stamps: f16 8x256x28x28 in 16 clusters of eight, of which it holds 15: the median block ends after 4.9 us, the last one 5.9)."""
