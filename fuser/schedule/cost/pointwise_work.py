"""What a mapping of a pointwise segment asks of the machine: accesses, instructions and registers of its threads.

What it moves follows from the strides of each argument: the sectors that the lanes of a warp touch in one access, and those
that a block touches altogether. Counts of code that are not in `code_costs` were fitted to two thirds of 280 segments of
`benchmarks/data`, those of registers to what ptxas gives 140 kernels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, SECTOR_BYTES, WARP, DeviceInfo
from fuser.ir.fact_collection import GRID_LIMIT
from fuser.schedule.cost.code_costs import DEPENDENT, LOOKUP, MISSED, OPERATION
from fuser.schedule.cost.estimate import TimeModel, Work
from fuser.schedule.cost.occupancy import allocated_registers, max_registers, resident_blocks
from fuser.schedule.cost.rounding import ceil_div

THREAD, ITERATION = 17.5, 3.0
"""Instructions of a thread, and of each of its iterations, besides those of elements and accesses: indices, tests."""
ACCESS, UNALIGNED = 2.3, 11.0
"""Instructions of an access, and further ones of an access at a misaligned address."""
DIVISION = 12.0
"""Instructions that find the index of a merged dim."""
LOADED = 62.0
"""Cycles that each 16 bytes of a thread's loads take to come, one behind the other."""
BLOCK_CYCLES = 830.0
"""From a block's start to its first load, and from its last store to the start of the next block in its place."""
STORED = 1.2
"""Cycles of an SM for a sector of a store, whole or not: two stores of half a sector each take twice as long as one."""
AGAIN = 1.08
"""Factor of the time of memory where threads load again after they have stored (copies by persistent grids take 5 to 20 %
longer)."""
EDGES, EVEN_EDGES = 0.5, 0.1
"""Bursts that a block moves beside its own for each piece of a row: where rows begin inside of sectors, and where not."""
ITERATED = 0.04
"""Increase of the time of memory with each doubling of the iterations of a thread: reads and writes come in longer bursts."""
OWN_REGISTERS = 15
"""Registers of a thread for addresses and counters."""
HELD = 0.88
"""Of what a thread loads, the part that is in registers at the same time."""

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

    lengths          indices of each part
    vectors          elements of a thread along the last part, to choose from
    access_patterns  of the arguments
    read, written    bytes of device memory, once each
    computed         (parts along which values vary, as bits; instructions of one)
    most_elements    of a thread that the code may be repeated for
    is_one_run       all parts are one loop
    may_merge        rows may be merged with what is around them: no vector is cut at their ends
    is_peeled        rows are cut at places of their own
    may_iterate      a thread may compute one index after another
    """

    lengths: tuple[int, ...]
    vectors: tuple[int, ...]
    access_patterns: tuple[AccessPattern, ...]
    read: int
    written: int
    computed: tuple[tuple[int, int], ...]
    most_elements: int
    is_one_run: bool = False
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
    blocks = list(counts)
    blocks[-1 - m.unroll_loop] = ceil_div(blocks[-1 - m.unroll_loop], m.unroll)
    for place, threads in enumerate((m.threads_x, m.threads_y)[: len(blocks)]):
        blocks[-1 - place] = ceil_div(blocks[-1 - place], threads)
    return blocks


def needs_linear_grid(grid: Sequence[int]) -> bool:
    """Whether y or z of the grid cannot count the blocks along loops around the last ones: all are counted along x."""
    # Where all columns are one block the rows are along x.
    blocks = grid if grid[-1] > 1 else grid[:-1]
    return len(grid) > 1 and max(math.prod(blocks[:-2]), *blocks[-2:-1], 1) > GRID_LIMIT


_Footprint = list[tuple[int, int, int]]
"""Where threads are in the iteration space: (count, part, indices from one to the next), those nearest in number first."""


def contiguous_pieces(pattern: AccessPattern, each: int, footprint: _Footprint) -> tuple[int, int]:
    """Contiguous pieces of memory that accesses of `each` bytes at all of these places make up, and the bytes of one piece."""
    extent, pieces = each, 1
    for count, p, step in footprint:
        distance = pattern.spans[p] * step
        # Strides are rounded.
        if distance > extent + extent // 16 and distance > SECTOR_BYTES:
            pieces *= count
        elif distance:
            extent += distance * (count - 1)
    return pieces, extent


class _Access(NamedTuple):
    """What a thread accesses in one iteration of each of `arguments` that lie alike.

    own        bytes of all; whole: those that lie together; access: those of one access
    edge       bytes that a block moves beside its own for each piece of memory
    l2_weight  of its own bytes, what L2 answers, times `arguments`
    parts      along which it varies, as bits
    """

    pattern: AccessPattern
    arguments: int
    own: int
    whole: int
    access: int
    edge: float
    l2_weight: float
    parts: int


class _ThreadWork(NamedTuple):
    """Of a thread with so many iterations.

    times          how often it makes each access
    busy           cycles that it takes by itself
    memory_factor  time of its accesses to memory, as a multiple of that of a thread with one iteration
    """

    times: tuple[int, ...]
    registers: int
    instructions: float
    busy: float
    memory_factor: float


class MappingGroup:
    """Mappings of the same vectors and loops: what they have in common is computed once.

    counts   how often each loop is run through
    """

    def __init__(self, work: PointwiseProblem, vector: int, loops: Loops, device: DeviceInfo) -> None:
        self.work, self.vector, self.loops, self.device = work, vector, loops, device
        self.last = loops[-1][-1]
        self.counts = loop_counts(work, vector, loops)
        self.accesses = [self._access(s, count) for s, count in Counter(work.access_patterns).items()]
        self._merged = sum(len(loop) - 1 for loop in loops)
        self._threads: dict[tuple[int, int, bool], _ThreadWork] = {}
        self._lines: dict[tuple[int, int], list[tuple[int, int, int, float]]] = {}
        self._pieces: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def _access(self, s: AccessPattern, arguments: int) -> _Access:
        span = s.spans[self.last]
        own = s.itemsize * self.vector if span else s.itemsize
        # Neighbours that are not contiguous are an access each.
        whole = own if span == s.itemsize else s.itemsize
        edge = arguments * BURST_BYTES * (EVEN_EDGES if s.is_even else EDGES) * s.own if all(s.spans) else 0.0
        l2_weight = 0.0 if s.is_stored else arguments * s.own
        parts = sum(1 << p for p, span in enumerate(s.spans) if span)
        return _Access(s, arguments, own, whole, min(s.access, whole), edge, l2_weight, parts)

    def thread(self, m: PointwiseMapping) -> _ThreadWork:
        """What a thread of a mapping does."""
        asked = m[4:]
        found = self._threads.get(asked)
        if found is None:
            found = self._threads[asked] = self._thread(m)
        return found

    def _thread(self, m: PointwiseMapping) -> _ThreadWork:
        unroll, along = m.unroll, sum(1 << p for p in m.iterated)
        divisions = self._merged + (unroll - 1) * (len(m.iterated) - 1)
        instructions, loaded, at_once = THREAD + ITERATION * unroll + DIVISION * divisions, 0, 0
        times: list[int] = []
        for s, arguments, own, _, access, _, _, parts in self.accesses:
            # Misaligned rows are cut at places of their own: what they have in common is read at others for each.
            again = unroll if parts & along or (s.spans[self.last] > 0 and not s.is_aligned) else 1
            times.append(again)
            instructions += arguments * (again * own // access) * (ACCESS if s.is_aligned else ACCESS + UNALIGNED)
            if not s.is_stored:
                loaded += arguments * own * again
                at_once += arguments * own * (unroll if parts & along and not m.sequential else 1)
        # Along the longest way.
        operations = sum(
            count * (self.vector if parts >> self.last & 1 else 1) * (unroll if parts & along else 1)
            for parts, count in self.work.computed
        )
        return _ThreadWork(
            tuple(times),
            OWN_REGISTERS + len(self.work.access_patterns) // 2 + math.ceil(HELD * at_once / REGISTER_BYTES),
            instructions + OPERATION * operations,
            LOADED * loaded / self.device.max_access_bytes + DEPENDENT * operations,
            AGAIN if m.sequential else 1.0 + ITERATED * math.log2(unroll),
        )

    def _thread_footprint(self, wide: int, high: int) -> _Footprint:
        """Where so many threads along the last two loops are in the iteration space."""
        found: _Footprint = []
        for loop, threads in zip(reversed(self.loops), (wide, high), strict=False):
            left = threads
            for p in reversed(loop):
                if left < 2:
                    break
                step = self.vector if p == self.last else 1
                count = min(left, ceil_div(self.work.lengths[p], step))
                if count > 1:
                    found.append((count, p, step))
                    left //= count
        return found

    def lines(self, m: PointwiseMapping, thread: _ThreadWork) -> float:
        """Cycles of the first-level cache for all accesses of a warp."""
        wide = min(m.threads_x, WARP)
        asked = wide, min(m.threads_y, WARP // wide)
        known = self._lines.get(asked)
        if known is None:
            known, lanes = self._lines.setdefault(asked, []), self._thread_footprint(*asked)
            for s, arguments, own, _, access, *_ in self.accesses:
                pieces, extent = contiguous_pieces(s, access, lanes)
                if s.is_stored:
                    each = (max(1.0, extent / SECTOR_BYTES) + (not s.is_even)) * STORED
                else:
                    each = max(1.0, extent / LINE_BYTES) * LOOKUP * s.active
                known.append((own, access, arguments * pieces, each))
        found = 0.0
        for (own, access, pieces, each), times in zip(known, thread.times, strict=True):
            found += times * own // access * pieces * each
        return found

    def l2_traffic(self, m: PointwiseMapping, thread: _ThreadWork) -> tuple[float, float]:
        """Bytes of a block that L2 answers, and bytes that it moves beside its own."""
        asked = m.threads_x, m.threads_y
        known = self._pieces.get(asked)
        if known is None:
            threads = self._thread_footprint(*asked)
            elements = [(self.vector, self.last, 1), *threads]
            known = self._pieces[asked] = [
                contiguous_pieces(a.pattern, a.whole, threads if a.whole == a.own else elements) for a in self.accesses
            ]
        fetched = edges = 0.0
        along = m.iterated[-1]
        for a, (rows, row), times in zip(self.accesses, known, thread.times, strict=True):
            if times > 1:
                pieces, row = contiguous_pieces(a.pattern, row, [(times, along, 1)])
                rows *= pieces
            edges += a.edge * rows
            fetched += a.l2_weight * rows * max(SECTOR_BYTES, row)
        return fetched, edges


class PointwiseCosts:
    """What the mappings of a segment ask of a device, and the microseconds that they should take."""

    def __init__(self, work: PointwiseProblem, device: DeviceInfo) -> None:
        self.work, self.device = work, device
        # What all blocks read is found in L2.
        waited = max((s.chain for s in work.access_patterns if not s.is_stored), default=0)
        is_far = work.read * WARP > work.written
        self._waited = waited * (device.latencies.dram_ns if is_far else device.latencies.l2_ns) / 1e3
        self._epilogue = BLOCK_CYCLES * device.cycle
        self._model = TimeModel(device)
        self._groups: dict[tuple[int, Loops], MappingGroup] = {}
        self._resident: dict[tuple[int, int], int] = {}
        self.times: dict[PointwiseMapping, float] = {}

    def mapping_group(self, vector: int, loops: Loops) -> MappingGroup:
        """The mappings of these vectors and loops."""
        found = self._groups.get((vector, loops))
        if found is None:
            found = self._groups[vector, loops] = MappingGroup(self.work, vector, loops, self.device)
        return found

    def time(self, m: PointwiseMapping) -> float:
        """The microseconds of a mapping; infinite where its threads would not have their registers."""
        found = self.times.get(m)
        if found is None:
            resident = self.resident_blocks(m)
            found = self._model.total(self.work_of(m, resident)) if resident else math.inf
            self.times[m] = found
        return found

    def timed(self) -> Iterator[tuple[float, PointwiseMapping]]:
        """The mappings that were asked for, with their times."""
        return ((time, m) for m, time in self.times.items() if time < math.inf)

    def resident_blocks(self, m: PointwiseMapping) -> int:
        """Blocks that an SM holds; 0 where threads would not have their registers."""
        registers, threads = self.mapping_group(m.vector, m.loops).thread(m).registers, m.threads
        found = self._resident.get((threads, registers))
        if found is None:
            fits = threads <= BLOCKS[0] or allocated_registers(registers) <= max_registers(threads, self.device)
            found = resident_blocks(threads, registers, self.device) if fits else 0
            self._resident[threads, registers] = found
        # Some mapping has to be there: a small block spills least.
        return found or int(threads <= BLOCKS[0] and m.unroll == 1)

    def work_of(self, m: PointwiseMapping, resident: int) -> Work:
        """What a mapping asks of the machine."""
        group = self.mapping_group(m.vector, m.loops)
        thread = group.thread(m)
        instructions = thread.instructions
        trips = m.unroll if m.sequential else 1
        grid = grid_of(group.counts, m)
        blocks = math.prod(grid)
        if len(grid) > 1 and needs_linear_grid(grid):
            instructions += DIVISION * (len(grid) - 1)
        fetched, edges = group.l2_traffic(m, thread)
        moved = ((self.work.read + self.work.written) / blocks + edges) * thread.memory_factor
        return Work(
            blocks=blocks,
            resident=resident,
            iterations=trips,
            warps=ceil_div(m.threads, WARP),
            moved=moved / trips,
            cached=max(0.0, MISSED * fetched - moved / 2) / trips,
            instructions=instructions / trips,
            lines=group.lines(m, thread) / trips,
            latency=thread.busy / trips * self.device.cycle + self._waited,
            epilogue_us=self._epilogue,
        )
