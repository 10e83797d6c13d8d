"""Latency-bound rows: few rows, all of them co-resident. How many threads and blocks each should have.

Where every row begins as soon as the kernel does, time is the chain of steps of one block, and not memory bandwidth: fewer
elements for each thread make it shorter, but each further warp takes part in every exchange. Blocks of a cluster share a row
where there are fewer rows than SMs. Each shape is judged by the time that it should take beside the launch of a kernel. All
times are microseconds, all rates bytes a microsecond. What code takes is counted in cycles and instructions (as fitted to an
H200, benchmarks/NOTES.md); the device says how long those are.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.records import record

ELEMENT, SINGLE_ELEMENT = 17.5, 52.5
"""Cycles of a thread for an element, of a wide access and by itself, from its load to its store."""

ALONE_ELEMENT, ALONE_BYTE = 19.25, 3.15
"""The same and for each byte that is loaded for it, where a block with a row of 16-bit numbers has its SM for itself."""

HIDDEN = 0.5
"""Of what such a block waits for memory: meanwhile what comes beside the row moves."""

ONCE, TWICE, WARP_ONCE, WARP_TWICE = 350, 140, 44, 79
"""Cycles of statistics of such a block in one pass and in two, and what each warp adds to them (H200: layer_norm bf16 40x4096
in one pass, (threads, accesses) (512, 1) 4.77 us, (256, 2) 4.86, (128, 4) 5.02, in two 5.02, 4.96, 5.14; beside Floats 97x1024
(256, 1) 4.70 and 4.56; f16 42x3072 (768, 1) 4.93, (384, 2) 4.83, (256, 3) 4.88, (192, 4) 5.07, in two 5.22, 4.83, 4.96; bf16
36x7168 (896, 2) 5.50, (448, 4) 5.28, (320, 6) 5.41, in two 5.89 and 5.60)."""

CUT_ELEMENT = 87.5
"""Cycles of a thread for an element where the ends of a row cut vectors, and threads test them (H200: layer_norm f16 61x50257
over two blocks of 800 threads with four accesses 11.3 us, of 416 with eight 13.4; over four of 416 with four 11.2, of 224 with
eight 13.1)."""

RATE_OF_SEVERAL = 1.5
"""What an SM moves where several blocks have bytes on their way to it, over what it does for one."""

CLUSTER_IN_TURN = 0.4
"""What each further block of clusters on an SM adds to the start of a cluster, in those: one is handed out after the other."""

INSTRUCTIONS, BESIDE_INSTRUCTIONS = 12, 15
"""For an element; and as many more where something beside a row is found by a division."""

OF_WARP, OF_CUT_WARP = 22, 61
"""Cycles that each warp of an SM takes in its exchanges; and where its accesses are tested (H200: layer_norm bf16 9x50257 over
eight blocks of 416 threads with two accesses 6.5 us, of 800 with one 7.2)."""

THREADS = (32, 64, 128, 256, 512, 1024)
MOST_ACCESSES = 32
MOST_PER_SM = 4
"""Rows, or blocks of them, of an SM: with more it is the memory that counts."""
LEAST_GAIN, LEAST_ALONE, LEAST_OF_CLUSTER = 0.09, 0.03, 0.06
"""What another shape than that for many rows is expected to save, in launches: estimates are coarse, but those of blocks alone.
And what a cluster is expected to save where a block would be alone (H200: beside Floats f16 20x6054 over four blocks 5.18 us,
in one 5.41; 21x5120 5.02 and 5.17, bf16 36x7168 over two 5.25 and 5.17; 94x16384 8.34 and 7.02)."""


@record
class LatencyBoundRows:
    """What the time of few rows depends on.

    rows, length   how many, and elements of each
    vector         elements of an access
    moved          bytes read and written for an element, about, by the device
    shared         of what all rows share: bytes for an element that are not in `moved`, as each processor reads them all
    is_cut         whether accesses begin anywhere, or the ends of a row cut them
    exchanges      how often the threads of a row wait for one another; blocks that share a row do so once
    is_searched    whether something beside a row lies along some of its dims only
    loaded         bytes that a thread reads for an element, of what all rows share too
    address        registers of a thread for each access: where the parts of a row lie apart, or accesses begin anywhere
    """

    rows: int
    length: int
    vector: int
    moved: int
    exchanges: int
    is_searched: bool
    address: int = 0
    shared: int = 0
    is_cut: bool = False
    loaded: int = 0


@record
class LatencyBoundShape:
    """`threads` with `batch` accesses each in every of `cluster` blocks of a row."""

    threads: int
    batch: int
    cluster: int
    registers: int
    time: float
    one_pass: bool = False


@record
class _Share:
    """What the blocks of a row have to do, however many threads they have: `per_sm` of them on a processor; the time of what
    moves, and of instructions."""

    per_sm: int
    moving: float
    working: float


def latency_bound_time(
    few: LatencyBoundRows,
    threads: int,
    batch: int,
    cluster: int,
    device: DeviceInfo,
    *,
    one_pass: bool = False,
) -> float:
    """Of rows over as many blocks each. `one_pass`: of those whose statistics may be of one."""
    share = _share(few, cluster, device)
    return _time(few, share, threads, batch, cluster, device, one_pass=one_pass)


def _share(few: LatencyBoundRows, cluster: int, device: DeviceInfo) -> _Share:
    per_sm = -(-few.rows // device.clusters(cluster))
    share = few.length * (few.moved + few.shared) / cluster
    # A few processors with more rows than the others have the device's rate for themselves in the end.
    of_sm = max(share, per_sm * share / RATE_OF_SEVERAL) / device.sm_rate
    moving = max(of_sm, few.rows * few.length * few.moved / device.memory_rate)
    instructions = INSTRUCTIONS + BESIDE_INSTRUCTIONS * few.is_searched
    working = few.length / cluster * per_sm * instructions * device.thread_time
    return _Share(per_sm, moving, working)


def _time(
    few: LatencyBoundRows, share: _Share, threads: int, batch: int, cluster: int, device: DeviceInfo, *, one_pass: bool
) -> float:
    per_sm, moving, working, cycle = share.per_sm, share.moving, share.working, device.cycle
    warps = per_sm * -(-threads // WARP)
    elements = batch * few.vector
    if cluster == 1 and threads > WARP and is_exclusive(few, per_sm):
        time = device.first_to_last + max(moving - HIDDEN * device.first_to_last, working)
        time += elements * (ALONE_ELEMENT + ALONE_BYTE * few.loaded) * cycle
        return time + (ONCE + warps * WARP_ONCE if one_pass else TWICE + warps * WARP_TWICE) * cycle
    element = ELEMENT if few.vector > 1 else SINGLE_ELEMENT
    element = CUT_ELEMENT if few.is_cut else element
    of_warp = OF_CUT_WARP if few.is_cut else OF_WARP
    time = device.first_to_last + max(moving, working) + (elements * element + warps * of_warp) * cycle
    if cluster > 1:
        time += device.cluster_start * (1.0 + CLUSTER_IN_TURN * (per_sm - 1))
        return time + device.block_exchange + device.cluster_exchange(cluster)
    return time + (few.exchanges * device.block_exchange if threads > WARP else 0.0)


def is_exclusive(few: LatencyBoundRows, per_sm: int) -> bool:
    """Whether blocks with rows have SMs for themselves, and may take one pass for their statistics. Not measured for group
    norms, nor where rows are read by element or their ends cut accesses."""
    return per_sm == 1 and few.vector > 1 and not (few.is_searched or few.is_cut)


def choose_latency_bound_shape(
    few: LatencyBoundRows, held: int, overhead: int, device: DeviceInfo
) -> LatencyBoundShape | None:
    """The shape that should take least time; None if the device does not hold all rows at once.

    held      bytes that a thread keeps of an element
    overhead  registers of a thread beside those
    """
    best: LatencyBoundShape | None = None
    hidden, least_of_cluster = HIDDEN * device.first_to_last, LEAST_OF_CLUSTER * device.launch
    for cluster in (1, 2, 4, 8, 16):
        if device.clusters(cluster) < 1 or (cluster > 1 and few.length < cluster * few.vector * WARP):
            break
        share = _share(few, cluster, device)
        per_sm = share.per_sm
        # What a shape has to take less than.
        limit = math.inf if best is None else best.time
        limit -= least_of_cluster if best is not None and best.cluster == 1 < cluster and is_exclusive(few, 1) else 0.0
        if per_sm > MOST_PER_SM or device.first_to_last + max(share.moving - hidden, share.working) >= limit:
            continue
        accesses = -(-few.length // (few.vector * cluster))
        may_once = cluster == 1 and is_exclusive(few, per_sm)
        passes = (False, True) if may_once else (False,)
        for most in (t for t in THREADS if t <= device.max_threads_per_block):
            threads = most
            batch = -(-accesses // threads)
            # Of so many threads with as many accesses some would have none.
            threads = max(min(threads, WARP), -(-accesses // (batch * WARP)) * WARP)
            if threads > max(WARP, 2 * accesses):
                continue
            for one_pass in passes:
                time = _time(few, share, threads, batch, cluster, device, one_pass=one_pass)
                if time >= limit:
                    continue
                registers = _registers(few, batch, held, overhead)
                if batch > MOST_ACCESSES or registers > device.registers_per_thread:
                    continue
                if per_sm <= _resident(threads, registers, device):
                    best, limit = LatencyBoundShape(threads, batch, cluster, registers, time, one_pass), time
    return best


def _registers(few: LatencyBoundRows, batch: int, held: int, overhead: int) -> int:
    """Registers of a thread that holds so many accesses."""
    kept = batch * few.vector * (held if few.vector > 1 else max(4, held)) // 4
    # A quarter of the row is on its way through the arithmetic, and each access may have an address of its own.
    moving = batch * few.vector // 4 + batch * few.address
    return -(-(overhead + kept + moving) // REGISTER_STEP) * REGISTER_STEP


def _resident(threads: int, registers: int, device: DeviceInfo) -> int:
    """Blocks that an SM holds."""
    return min(
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (registers * threads),
        device.max_blocks_per_sm,
    )
