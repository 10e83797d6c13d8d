"""Few rows, all of which are on the device at once: how many threads and blocks each had best have.

Where every row begins as soon as the kernel does, what takes time is the chain of steps of one block, not the memory: fewer
elements a thread make it shorter, but each warp more takes part in every exchange. Blocks of a cluster share a row where there
are fewer rows than processors. Each shape is judged by the time that it should take beside the launch of a kernel; all times
are microseconds, all rates bytes a microsecond. The figures are those of an H200 (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.schedule.cost.rows_over_grid import CLUSTERED, DEVICE_RATE, SM_RATE

ELEMENT, SINGLE_ELEMENT = 0.01, 0.03
"""An element of a thread, of a wide access and by itself, from its load to its store."""

ALONE_ELEMENT, ALONE_BYTE, HIDDEN = 0.011, 0.0018, 0.5
"""The same and what it takes more for each byte that is loaded for it, where a block with a row of 16-bit numbers has its SM
for itself; and of what it moves what comes beside the row, while its threads meet."""

ONE_PASS, TWO_PASSES, WARP_ONCE, WARP_TWICE = 0.2, 0.08, 0.025, 0.045
"""Statistics of such a block in one pass and in two, and what each warp adds to them (H200: layer_norm bf16 40x4096 in one
pass, (threads, accesses) (512, 1) 4.77 us, (256, 2) 4.86, (128, 4) 5.02, in two 5.02, 4.96, 5.14; beside Floats 97x1024
(256, 1) 4.70 and 4.56; f16 42x3072 (768, 1) 4.93, (384, 2) 4.83, (256, 3) 4.88, (192, 4) 5.07, in two 5.22, 4.83, 4.96;
bf16 36x7168 (896, 2) 5.50, (448, 4) 5.28, (320, 6) 5.41, in two 5.89 and 5.60)."""

EXACT_ELEMENT = 0.15
"""The same where statistics are exact sums of Floats."""


@record
class _InDouble:
    """What rows of Floats with exact statistics take beside what moves: to begin with, for a warp of the SM, for an element of
    a thread, for an exchange of a cluster."""

    base: float
    warp: float
    element: float
    exchange: float


_ONE_PASS, _TWO_PASSES = _InDouble(0.45, 0.0575, 0.03, 0.3), _InDouble(1.25, 0.06, 0.015, 0.3)
"""Sums in Double, in one exchange, and those of pairs of Floats, in two (H200: batch norm f32 16x100x17x19, (threads, accesses)
of one pass (256, 21) 6.7 us, (512, 11) 6.8, (1024, 6) 7.7, of two 7.0, 7.5, 8.5; 2x3x224x224 over sixteen blocks (256, 7) 6.8,
(512, 4) 6.9, (1024, 2) 7.6 and 6.9, 7.4, 8.0; 4x32x112x112 over two (512, 13) 9.9 and 10.5)."""

CUT_ELEMENT = 0.05
"""The same where the ends of a row cut vectors, and threads test them (H200: layer_norm f16 61x50257 over two blocks of 800
threads with four accesses 11.3 us, of 416 with eight 13.4; over four of 416 with four 11.2, of 224 with eight 13.1)."""

MOST_RATE = 90e3
"""What one SM moves where several blocks have bytes on their way to it."""

TURN = 0.25
"""What each further block of clusters on an SM adds: they are handed out one after the other."""

INSTRUCTION = 4.5e-6
"""One for an element, where the SM issues four for 32 of them in a cycle."""

INSTRUCTIONS, EXACT_INSTRUCTIONS, BESIDE_INSTRUCTIONS = 12, 25, 15
"""For an element; where statistics are exact; and as many more where something beside a row is found by a division."""

LATENCY = 0.8
"""From the first load of a row to its last value."""

WARP_TIME, EXACT_WARP_TIME, CUT_WARP_TIME = 0.0125, 0.06, 0.035
"""What each warp of an SM takes in its exchanges; and where its accesses are tested (H200: layer_norm bf16 9x50257 over eight
blocks of 416 threads with two accesses 6.5 us, of 800 with one 7.2)."""

IN_BLOCK = 0.2
"""An exchange of the threads of a block; those of a warp need none of it."""

CLUSTER, IN_CLUSTER, PER_BLOCK = 0.6, 0.3, 0.03
"""What a cluster takes to be there, an exchange of its blocks, and what each block adds."""

THREADS = (32, 64, 128, 256, 512, 1024)
MOST_ACCESSES = 32
MOST_PER_SM = 4
"""Rows, or blocks of them, of an SM: with more it is the memory that counts."""
LEAST_GAIN, LEAST_ALONE, LEAST_OF_CLUSTER = 0.3, 0.1, 0.15
"""What another shape than that for many rows is expected to save: estimates are coarse, but those of blocks alone. And what a
cluster is expected to save where a block would be alone (H200: beside Floats f16 20x6054 over four blocks 5.18 us, in one 5.41;
21x5120 5.02 and 5.17, bf16 36x7168 over two 5.25 and 5.17; 94x16384 8.34 and 7.02)."""

WARP = 32


@record
class FewRows:
    """What the time of few rows depends on.

    rows, length   how many, and elements of each
    vector         elements of an access
    moved          bytes read and written for an element, about, by the device
    shared         of what all rows share: bytes for an element that are not in `moved`, as each processor reads them all
    is_cut         whether accesses begin anywhere, or the ends of a row cut them
    exchanges      how often the threads of a row wait for one another; and where blocks share a row
    is_exact       whether statistics are exact sums
    in_double      whether those are of Floats, so that one pass may add them up in Double
    is_searched    whether something beside a row lies along some of its dims only
    loaded         bytes that a thread reads for an element, of what all rows share too
    address        registers of a thread for each access: where the parts of a row lie apart, or accesses begin anywhere
    """

    rows: int
    length: int
    vector: int
    moved: int
    exchanges: int
    exchanges_of_cluster: int
    is_exact: bool
    is_searched: bool
    address: int = 0
    shared: int = 0
    is_cut: bool = False
    in_double: bool = False
    loaded: int = 0


@record
class FewShape:
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


def few_time(
    few: FewRows,
    threads: int,
    batch: int,
    cluster: int,
    fit: int,
    *,
    one_pass: bool = False,
) -> float:
    """Of rows over as many blocks each, `fit` of which have processors of their own. `one_pass`: of those whose statistics may
    be of one."""
    return _time(few, _share(few, cluster, fit), threads, batch, cluster, one_pass=one_pass)


def _share(few: FewRows, cluster: int, fit: int) -> _Share:
    per_sm = -(-few.rows // fit)
    share = few.length * (few.moved + few.shared) / cluster
    # A few processors with more rows than the others have the device's rate for themselves in the end.
    moving = max(share / SM_RATE, per_sm * share / MOST_RATE, few.rows * few.length * few.moved / DEVICE_RATE)
    instructions = (EXACT_INSTRUCTIONS if few.is_exact else INSTRUCTIONS) + BESIDE_INSTRUCTIONS * few.is_searched
    working = few.length / cluster * per_sm * instructions * INSTRUCTION
    return _Share(per_sm, moving, working)


def _time(few: FewRows, share: _Share, threads: int, batch: int, cluster: int, *, one_pass: bool) -> float:
    per_sm, moving, working = share.per_sm, share.moving, share.working
    warps = per_sm * -(-threads // WARP)
    if few.in_double:
        ways = _ONE_PASS if one_pass else _TWO_PASSES
        time = LATENCY + max(moving, working) + ways.base + warps * ways.warp
        time += batch * few.vector * ways.element + TURN * (per_sm - 1)
        return time + (ways.exchange + PER_BLOCK * cluster if cluster > 1 else 0.0)
    if cluster == 1 and threads > WARP and is_alone(few, per_sm):
        time = LATENCY + max(moving - HIDDEN, working) + batch * few.vector * (ALONE_ELEMENT + ALONE_BYTE * few.loaded)
        return time + (ONE_PASS + warps * WARP_ONCE if one_pass else TWO_PASSES + warps * WARP_TWICE)
    element = ELEMENT if few.vector > 1 else SINGLE_ELEMENT
    element = EXACT_ELEMENT if few.is_exact else CUT_ELEMENT if few.is_cut else element
    time = LATENCY + max(moving, working) + batch * few.vector * element
    time += warps * (EXACT_WARP_TIME if few.is_exact else CUT_WARP_TIME if few.is_cut else WARP_TIME)
    if cluster > 1:
        time += TURN * (per_sm - 1)
        return time + CLUSTER + few.exchanges_of_cluster * (IN_BLOCK + IN_CLUSTER + PER_BLOCK * cluster)
    return time + (few.exchanges * IN_BLOCK if threads > WARP else 0.0)


def is_alone(few: FewRows, per_sm: int) -> bool:
    """Whether blocks with rows have SMs for themselves, and may take one pass for their statistics. Not measured for group
    norms, nor where rows are read by element or their ends cut accesses."""
    return per_sm == 1 and few.vector > 1 and not (few.is_exact or few.is_searched or few.is_cut)


def fitting(cluster: int, device: DeviceInfo) -> int:
    """Clusters of so many blocks that have processors of their own."""
    return math.floor(device.sm_count * CLUSTERED[cluster] / cluster)


def choose_few_shape(few: FewRows, held: int, overhead: int, device: DeviceInfo) -> FewShape | None:
    """The shape that should take least time; None if the device does not hold all rows at once.

    held      bytes that a thread keeps of an element
    overhead  registers of a thread beside those
    """
    best: FewShape | None = None
    for cluster in (1, 2, 4, 8, 16):
        fit = fitting(cluster, device) if cluster <= device.max_cluster else 0
        if fit < 1 or (cluster > 1 and few.length < cluster * few.vector * WARP):
            break
        share = _share(few, cluster, fit)
        per_sm = share.per_sm
        # What a shape has to take less than.
        limit = math.inf if best is None else best.time
        limit -= LEAST_OF_CLUSTER if best is not None and best.cluster == 1 < cluster and is_alone(few, 1) else 0.0
        if per_sm > MOST_PER_SM or LATENCY + max(share.moving - HIDDEN, share.working) >= limit:
            continue
        accesses = -(-few.length // (few.vector * cluster))
        may_once = few.in_double or (cluster == 1 and is_alone(few, per_sm))
        passes = (False, True) if may_once else (False,)
        for most in (t for t in THREADS if t <= device.max_threads_per_block):
            threads = most
            batch = -(-accesses // threads)
            # Of so many threads with as many accesses some would have none.
            threads = max(min(threads, WARP), -(-accesses // (batch * WARP)) * WARP)
            if threads > max(WARP, 2 * accesses):
                continue
            for one_pass in passes:
                time = _time(few, share, threads, batch, cluster, one_pass=one_pass)
                if time >= limit:
                    continue
                registers = _registers(few, batch, held, overhead)
                if batch > MOST_ACCESSES or registers > device.registers_per_thread:
                    continue
                if per_sm <= _resident(threads, registers, device):
                    best, limit = FewShape(threads, batch, cluster, registers, time, one_pass), time
    return best


def _registers(few: FewRows, batch: int, held: int, overhead: int) -> int:
    """Registers of a thread that holds so many accesses."""
    kept = batch * few.vector * (held if few.vector > 1 else max(4, held)) // 4
    # A quarter of the row is on its way through the arithmetic, and each access may have an address of its own.
    moving = batch * few.vector // 4 + batch * few.address
    return -(-(overhead + kept + moving) // 8) * 8


def _resident(threads: int, registers: int, device: DeviceInfo) -> int:
    """Blocks that an SM holds."""
    return min(
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (registers * threads),
        device.max_blocks_per_sm,
    )
