"""What a mapping of a pointwise segment asks of the machine: accesses, instructions and registers of its threads.

What it moves follows from the strides of each argument: the sectors that the lanes of a warp touch in one access, and those
that a block touches altogether. Counts of code that are not in `code_costs` were fitted to two thirds of 155 segments of
`benchmarks/data`, and to the instructions of 88 kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, SECTOR_BYTES, WARP, DeviceInfo
from fuser.ir.fact_collection import GRID_LIMIT
from fuser.schedule.cost.code_costs import DEPENDENT, LOADED, LOOKUP
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.occupancy import allocated_registers, max_registers, resident_blocks
from fuser.schedule.cost.reduction_space import ceil_div

THREAD, ITERATION = 25.0, 3.0
"""Instructions of a thread, and of each of its iterations, beside those of elements and accesses: indices, tests."""
ACCESS, UNALIGNED = 3.3, 11.0
"""For an access; further ones for one that begins anywhere."""
OPERATION = 0.45
"""For each that `op_instructions` counts: those are of the longest way through an op."""
DIVISION, OF_CONSTANT = 22.0, 6.0
"""Instructions that find the index of a merged dim, and where its extent is a constant."""
BLOCK_CYCLES = 700.0
"""From a block's start to its first load, and from its last store to the start of the next block in its place."""
STORED = 1.75
"""Cycles of an SM for a sector of a store, whole or not: two stores of half a sector each take twice as long as one."""
MISSED = 0.7
"""Of what blocks read, what no other block has left in the first-level cache of their SM."""
AGAIN = 1.08
"""What memory takes where threads load again after they have stored (copies by persistent grids take 5 to 20 % longer)."""
EDGES, EVEN_EDGES = 0.35, 0.1
"""Bursts that a block moves beside its own for each piece of a row: where rows begin inside of sectors, and where not."""
ITERATED = 0.015
"""What memory takes more for each doubling of the iterations of a thread: reads and writes come in longer bursts."""
OWN_REGISTERS = 17
"""Of a thread, for addresses and counters."""
HELD = 0.75
"""Of what a thread loads, what it has in registers at once."""

BLOCKS = (64, 128, 256, 512)
"""Threads of a block, about."""


class AccessPattern(NamedTuple):
    """How an argument lies in memory. Bytes, where nothing else is said.

    itemsize    of all that a thread has of it at one index of the loops
    access      of one access, at most
    is_stored   it is an output
    spans       for each part from one index to the next; 0: all indices see the same
    own         share of what it reads that no other read of the same tensor does
    active      share of its accesses that read something: the others are beside a pad
    chain       loads that follow one another until it is there: an address may have to be looked up
    is_aligned  accesses begin at multiples of their size
    is_even     rows begin where sectors do
    """

    itemsize: int
    access: int
    is_stored: bool
    spans: tuple[int, ...]
    own: float = 1.0
    active: float = 1.0
    chain: int = 1
    is_aligned: bool = True
    is_even: bool = True


class PointwiseProblem(NamedTuple):
    """What is the same for all mappings of a pointwise segment.

    lengths        indices of each part
    constants      parts whose extents the code knows
    vectors        elements of a thread along the last part, to choose from
    streams        arguments
    read, written  bytes of device memory, once each
    computed       (parts along which values vary, as bits; instructions of one)
    most_elements  of a thread that the code may be repeated for
    may_merge      rows may be merged with what is around them: no vector is cut at their ends
    is_peeled      rows are cut at places of their own
    may_iterate    a thread may compute one index after another
    """

    lengths: tuple[int, ...]
    constants: tuple[bool, ...]
    vectors: tuple[int, ...]
    streams: tuple[AccessPattern, ...]
    read: int
    written: int
    computed: tuple[tuple[int, int], ...]
    most_elements: int
    may_merge: bool = True
    is_peeled: bool = False
    may_iterate: bool = True


Loops = tuple[tuple[int, ...], ...]
"""The parts of each loop, slowest first."""


class PointwiseMapping(NamedTuple):
    """See `pointwise_mappings`.

    threads_x, threads_y   threads of x and y
    unroll_loop  which loop a thread's iterations are along, counted from the last
    """

    vector: int
    loops: Loops
    threads_x: int
    threads_y: int = 1
    unroll: int = 1
    unroll_loop: int = 0
    sequential: bool = False

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.threads_x * self.threads_y

    @property
    def iterated(self) -> tuple[int, ...]:
        """The parts of the loop that a thread's iterations are along."""
        return self.loops[-1 - self.unroll_loop]


def loop_counts(work: PointwiseProblem, vector: int, loops: Loops) -> list[int]:
    """How often each loop is run through: accesses along the last one, indices along the others."""
    lengths = work.lengths
    counts = [math.prod(lengths[p] for p in loop) for loop in loops]
    last = lengths[loops[-1][-1]]
    counts[-1] = counts[-1] // last * ceil_div(last, vector)
    return counts


def grid_of(counts: Sequence[int], m: PointwiseMapping) -> list[int]:
    """Blocks along each loop."""
    blocks: list[int] = []
    for place, count in enumerate(reversed(counts)):
        threads = m.threads_x if place == 0 else m.threads_y if place == 1 else 1
        blocks.insert(0, ceil_div(count, threads * m.unroll if place == m.unroll_loop else threads))
    return blocks


def is_flat(grid: Sequence[int]) -> bool:
    """Whether y or z of the grid cannot count the blocks along loops around the last ones: all are counted along x."""
    # Where all columns are one block the rows are along x.
    apart = grid if grid[-1] > 1 else grid[:-1]
    return len(grid) > 1 and max(math.prod(apart[:-2]), *apart[-2:-1], 1) > GRID_LIMIT


_Digits = list[tuple[int, int, int]]
"""(count, part, indices from one to the next): neighbours, those nearest in number first."""


def _digits(work: PointwiseProblem, m: PointwiseMapping, threads: int) -> _Digits:
    """How the first so many threads of a block lie in the iteration space."""
    found: _Digits = []
    wide = min(m.threads_x, threads)
    last = m.loops[-1][-1]
    for place, left in enumerate((wide, min(m.threads_y, threads // wide))):
        for p in reversed(m.loops[-1 - place] if place < len(m.loops) else ()):
            if left < 2:
                break
            step = m.vector if p == last else 1
            count = min(left, ceil_div(work.lengths[p], step))
            if count > 1:
                found.append((count, p, step))
                left //= count
    return found


def touched_pieces(stream: AccessPattern, each: int, digits: _Digits) -> tuple[int, int]:
    """Pieces of memory in which so many bytes at all of these places lie, and the bytes of one piece."""
    extent, pieces = each, 1
    for count, p, step in digits:
        apart = stream.spans[p] * step
        # Strides are rounded.
        if apart > extent + extent // 16 and apart > SECTOR_BYTES:
            pieces *= count
        elif apart:
            extent += apart * (count - 1)
    return pieces, extent


def _held_bytes(work: PointwiseProblem, m: PointwiseMapping) -> int:
    """Bytes of all that a thread loads before it computes."""
    last, iterated, held = m.loops[-1][-1], m.iterated, 0
    for s in work.streams:
        if not s.is_stored:
            own = s.itemsize * (m.vector if s.spans[last] else 1)
            is_repeated = m.unroll > 1 and not m.sequential and any(s.spans[p] for p in iterated)
            held += own * m.unroll if is_repeated else own
    return held


def pointwise_resident_blocks(work: PointwiseProblem, m: PointwiseMapping, device: DeviceInfo) -> int:
    """Blocks that an SM holds; 0 where threads would not have their registers."""
    registers = OWN_REGISTERS + len(work.streams) // 2 + math.ceil(HELD * _held_bytes(work, m) / REGISTER_BYTES)
    if allocated_registers(registers) > max_registers(m.threads, device) and m.threads > BLOCKS[0]:
        return 0
    # Some mapping has to be there: a small block spills least.
    return max(int(m.threads <= BLOCKS[0] and m.unroll == 1), resident_blocks(m.threads, registers, device))


class _Accesses(NamedTuple):
    """Of a thread and of its block. lines: cycles of the first-level cache; fetched: bytes of a block that L2 answers; edges:
    bytes that it moves beside its own."""

    instructions: float
    lines: float
    loaded: int
    fetched: float
    edges: float


def _accesses(work: PointwiseProblem, m: PointwiseMapping) -> _Accesses:
    last, iterated = m.loops[-1][-1], m.iterated
    lanes, of_block = _digits(work, m, WARP), _digits(work, m, m.threads)
    instructions = lines = fetched = edges = 0.0
    loaded = 0
    for s in work.streams:
        span = s.spans[last]
        # Rows that begin anywhere are cut at places of their own: what they have in common is read at others for each.
        is_repeated = any(s.spans[p] for p in iterated) or (span > 0 and not s.is_aligned)
        times = m.unroll if is_repeated else 1
        own = s.itemsize * m.vector if span else s.itemsize
        # Where neighbours lie apart each is an access.
        whole = own if span == s.itemsize else s.itemsize
        access = min(s.access, whole)
        count = times * own // access
        instructions += count * (ACCESS if s.is_aligned else ACCESS + UNALIGNED)
        block = [*of_block, (times, iterated[-1], 1)] if times > 1 else of_block
        if whole != own:
            block = [(m.vector, last, 1), *block]
        rows, row = touched_pieces(s, whole, block)
        if all(s.spans):
            edges += BURST_BYTES * rows * (EVEN_EDGES if s.is_even else EDGES) * s.own
        pieces, extent = touched_pieces(s, access, lanes)
        if s.is_stored:
            lines += count * pieces * (max(1.0, extent / SECTOR_BYTES) + (not s.is_even)) * STORED
            continue
        lines += count * pieces * max(1.0, extent / LINE_BYTES) * LOOKUP * s.active
        loaded += own * times
        fetched += rows * max(SECTOR_BYTES, row) * s.own
    return _Accesses(instructions, lines, loaded, fetched, edges)


def _operations(work: PointwiseProblem, m: PointwiseMapping) -> int:
    """Instructions of a thread for all that it computes, along the longest way."""
    last, along = m.loops[-1][-1], sum(1 << p for p in m.iterated)
    return sum(
        count * (m.vector if parts >> last & 1 else 1) * (m.unroll if parts & along else 1)
        for parts, count in work.computed
    )


def pointwise_work_of(work: PointwiseProblem, m: PointwiseMapping, resident: int, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    accesses, operations = _accesses(work, m), _operations(work, m)
    grid = grid_of(loop_counts(work, m.vector, m.loops), m)
    blocks = math.prod(grid)
    instructions = THREAD + ITERATION * m.unroll + accesses.instructions + OPERATION * operations
    instructions += sum(OF_CONSTANT if work.constants[p] else DIVISION for loop in m.loops for p in loop[1:])
    instructions += DIVISION * (len(grid) - 1) if is_flat(grid) else 0.0
    moved = (work.read + work.written) / blocks + accesses.edges
    moved *= AGAIN if m.sequential else 1.0 + ITERATED * math.log2(m.unroll)
    trips = m.unroll if m.sequential else 1
    latencies = device.latencies
    # What all blocks read is found in L2.
    waited = max((s.chain for s in work.streams if not s.is_stored), default=0)
    is_far = work.read * WARP > work.written
    busy = LOADED * accesses.loaded / device.max_access_bytes + DEPENDENT * operations
    return Work(
        blocks=blocks,
        resident=resident,
        cluster=1,
        iterations=trips,
        warps=ceil_div(m.threads, WARP),
        moved=moved / trips,
        cached=max(0.0, MISSED * accesses.fetched - moved / 2) / trips,
        instructions=instructions / trips,
        lines=accesses.lines / trips,
        latency=busy / trips * device.cycle + waited * (latencies.dram_ns if is_far else latencies.l2_ns) / 1e3,
        exchange=0.0,
        epilogue_us=BLOCK_CYCLES * device.cycle,
    )
