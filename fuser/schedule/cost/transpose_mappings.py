"""Mappings of tiles that are turned in shared memory: how large they are, and how many threads move one.

A tile has elements along two runs of dims, M and N (see `TransposeParams`). What lies along M is moved in accesses of
`vectors[0]` elements, `lanes[0]` of them side by side, and stored to or read from shared memory; all else along N. What tiles
have beyond the ends of the runs is asked for by nobody, but its threads pass by all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, LINE_BYTES, REGISTER_BYTES, SECTOR_BYTES, WARP, DeviceInfo
from fuser.schedule.cost.code_costs import BLOCK_EXCHANGE, DEPENDENT, LOADED, LOOKUP
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.mapping_search import MappingSearch, Timed
from fuser.schedule.cost.occupancy import fitting_blocks
from fuser.schedule.cost.pointwise_mappings import COPY_BLOCK
from fuser.schedule.cost.pointwise_work import (
    ACCESS,
    BLOCK_CYCLES,
    EDGES,
    EVEN_EDGES,
    HELD,
    ITERATION,
    OPERATION,
    OWN_REGISTERS,
    STORED,
    THREAD,
    UNALIGNED,
    AccessPattern,
    contiguous_pieces,
)
from fuser.schedule.cost.rounding import ceil_div, power_of_two

TILES = (16, 32, 64, 128)
"""Elements of a tile along a run."""
MAX_ACCESSES = 16
"""Of a thread to one argument: more take registers."""
TURNED = 3.0
"""Instructions for an element that passes through shared memory."""
M, N = 0, 1


class TransposeProblem(NamedTuple):
    """What is the same for all tiles. Spans of access patterns are those along M and N.

    lengths     elements of the runs M and N
    batch       pairs of them
    vectors     elements of an access along each, to choose from
    staged      arguments that lie along M; `others`: along N, or along neither
    read, written   bytes of device memory, once each
    computed    instructions of an element
    """

    lengths: tuple[int, int]
    batch: int
    vectors: tuple[tuple[int, int], ...]
    staged: tuple[AccessPattern, ...]
    others: tuple[AccessPattern, ...]
    read: int
    written: int
    computed: int


class TransposeMapping(NamedTuple):
    """See the head of this module."""

    vectors: tuple[int, int]
    tile: tuple[int, int]
    lanes: tuple[int, int]
    threads: int

    @property
    def elements(self) -> int:
        """Of a tile."""
        return self.tile[M] * self.tile[N]


def shared_bytes(work: TransposeProblem, m: TransposeMapping) -> int:
    """Of a block."""
    return m.elements * sum(s.itemsize for s in work.staged)


def transpose_mappings(work: TransposeProblem, device: DeviceInfo) -> Iterator[TransposeMapping]:
    """All tiles that fit on the device, of lines that a warp can have side by side."""
    for vectors in work.vectors:
        extents = [list(_tile_extents(work, vectors, k)) for k in (M, N)]
        for (m, lanes_m), (n, lanes_n) in product(*extents):
            # A tile of fewer accesses has a thread for each.
            threads = min(COPY_BLOCK, device.max_threads_per_block, m * n // max(vectors))
            found = TransposeMapping(vectors, (m, n), (lanes_m, lanes_n), threads)
            is_shared = shared_bytes(work, found) <= device.shared_per_block
            has_few = m * n <= MAX_ACCESSES * threads * min(vectors)
            if is_shared and has_few and transpose_resident_blocks(work, found, device):
                yield found


def _tile_extents(work: TransposeProblem, vectors: tuple[int, int], k: int) -> Iterator[tuple[int, int]]:
    """Lengths of a tile along a run, and threads side by side: a line, or as many as a warp has."""
    vector = vectors[k]
    side = work.others if k else work.staged
    narrow = min((s.itemsize for s in side if s.spans[k]), default=REGISTER_BYTES)
    line = WARP if vector == 1 else max(1, LINE_BYTES // (vector * narrow))
    # A tile is no longer than a run, but for the shortest ones.
    most = max(TILES[0], power_of_two(work.lengths[k]))
    for tile in TILES:
        if vector <= tile <= most:
            for lanes in sorted({min(line, tile // vector, WARP), min(WARP, tile // vector)}):
                yield tile, lanes


def transpose_resident_blocks(work: TransposeProblem, m: TransposeMapping, device: DeviceInfo) -> int:
    """Blocks that an SM holds; 0 where threads would not have their registers."""
    loaded = sum(s.itemsize for s in (*work.staged, *work.others) if not s.is_stored) * m.elements / m.threads
    registers = OWN_REGISTERS + math.ceil(HELD * loaded / REGISTER_BYTES)
    reserved = device.shared_per_sm - device.shared_per_block_optin
    return fitting_blocks(m.threads, registers, device, shared_bytes(work, m) + reserved)


def _shared_cycles(s: AccessPattern, m: TransposeMapping) -> float:
    """Of an SM for an element of all threads of a warp: whole accesses of rows one way, by element across rows the other.

    Rows hold their accesses in an order of their own (`ScheduleBuilder.swizzle`): as many rows as they have accesses, or as
    lie in a line of all banks, are read without conflicts.
    """
    # Inputs lie in rows along M, outputs along N.
    row = N if s.is_stored else M
    vector = m.vectors[row]
    apart = m.tile[row] // vector * max(1.0, LINE_BYTES / (m.tile[row] * s.itemsize))
    return 1.0 / vector + max(1.0, m.lanes[1 - row] / apart)


def transpose_work_of(work: TransposeProblem, m: TransposeMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    each = m.elements / m.threads
    instructions, lines, loaded, fetched, moved = THREAD, 0.0, 0.0, 0.0, 0.0
    blocks = work.batch * math.prod(ceil_div(n, t) for n, t in zip(work.lengths, m.tile, strict=True))
    for k, side in ((M, work.staged), (N, work.others)):
        lanes = [(m.lanes[k], k, m.vectors[k]), (WARP // m.lanes[k], 1 - k, 1)]
        instructions += each / m.vectors[k] * ITERATION
        for s in side:
            own = s.itemsize * (m.vectors[k] if s.spans[k] else 1)
            access = min(s.access, own) if s.spans[k] in (0, s.itemsize) else s.itemsize
            count = each / m.vectors[k] * (own // access)
            instructions += count * (ACCESS if s.is_aligned else ACCESS + UNALIGNED)
            pieces, extent = contiguous_pieces(s, access, lanes)
            edge = BURST_BYTES * (EVEN_EDGES if s.is_even else EDGES)
            cut = int(not s.is_even and s.spans[k] > 0)
            if s.is_stored:
                lines += count * pieces * (max(1.0, extent / SECTOR_BYTES) + cut) * STORED
            else:
                lines += count * pieces * max(1.0, extent / LINE_BYTES) * LOOKUP * s.active
                loaded += each * s.itemsize
            rows, row = contiguous_pieces(
                s, own, [(m.tile[k] // m.vectors[k], k, m.vectors[k]), (m.tile[1 - k], 1 - k, 1)]
            )
            whole = rows * (max(SECTOR_BYTES, row) + cut * SECTOR_BYTES)
            if not s.is_stored:
                fetched += whole * s.own
            if all(s.spans):
                moved += rows * edge
    instructions += each * (TURNED * len(work.staged) + OPERATION * work.computed)
    lines += sum(_shared_cycles(s, m) for s in work.staged) * each
    share = (work.read + work.written) / blocks + moved
    latencies = device.latencies
    busy = LOADED * loaded / device.max_access_bytes + DEPENDENT * work.computed * each
    waited = max((s.chain for s in (*work.staged, *work.others) if not s.is_stored), default=0) * latencies.dram_ns
    return Work(
        blocks=blocks,
        resident=transpose_resident_blocks(work, m, device),
        warps=ceil_div(m.threads, WARP),
        moved=share,
        cached=max(0.0, fetched - share / 2),
        instructions=instructions,
        lines=lines,
        latency=busy * device.cycle + (waited + latencies.shared_ns) / 1e3,
        exchange=device.block_exchange * BLOCK_EXCHANGE,
        epilogue_us=BLOCK_CYCLES * device.cycle,
    )


def _preference(_: TransposeProblem, timed: Timed[TransposeMapping], __: DeviceInfo) -> tuple[object, ...]:
    time, m = timed
    return -m.vectors[N], abs(m.threads - COPY_BLOCK), time, m


def _words(work: TransposeProblem, m: TransposeMapping) -> str:
    """A mapping in words."""
    return (
        f"tiles of {m.tile[M]} x {m.tile[N]} by {m.threads} threads, {m.vectors[M]} and {m.vectors[N]} elements an access, "
        f"{shared_bytes(work, m)} bytes of shared memory"
    )


TRANSPOSES = MappingSearch(
    mappings=transpose_mappings,
    work_of=transpose_work_of,
    preference=_preference,
    heading=lambda _: (),
    words=_words,
)
