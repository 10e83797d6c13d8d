"""Mappings of reductions of rows and of columns together: which threads and blocks have which elements.

A row is accesses of `vector` elements. `batch` of them belong to each of `threads` threads of each of `sharing` blocks. A block
has `side_by_side` rows at a time, or a multiple: each thread has `rows` of them *at once*. `blocks` have rows of their own.
Blocks exchange, by the mapping's `exchange`,

    sums          sums of columns at the end, over the grid: blocks have whole rows
    statistics    statistics of rows in each iteration, over the grid: blocks have some columns of all rows
    cluster       either of them within one cluster, which has all rows at once

and rows lie in registers, or in shared memory where asynchronous copies bring them.

`inner_outer_mappings` enumerates all that fit; `inner_outer_work.py` says what one asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fuser.ir.device_info import REGISTER_BYTES, WARP, DeviceInfo
from fuser.runtime.kernels.variants import rung_of
from fuser.schedule.cost.accesses_per_thread import candidate_batches, threads_for
from fuser.schedule.cost.inner_outer_space import InnerOuterSpace, size_registers
from fuser.schedule.cost.instruction_cache import elements_in_cache
from fuser.schedule.cost.occupancy import max_registers, resident_blocks
from fuser.schedule.cost.scratch_budget import BESIDE_COLUMNS, BESIDE_ROW

MAX_BATCH = 64
"""Accesses of a thread along a row: each has code of its own."""
BLOCKS_OF_ROWS = (256, 512)
"""Threads that a block has at least, if there are rows for them."""
MAX_SIDE_BY_SIDE = 64
"""Threads of z that a block can have."""
CLUSTERS = (2, 4, 8, 16)
"""Blocks of a cluster."""
MAX_AT_ONCE = 16
"""Rows of a thread at once where blocks share them: each has code of its own, in registers for its loads as well."""
IN_SHARED_THREADS = range(4 * WARP, 16 * WARP + 1, WARP)
"""Threads of a block whose rows lie in shared memory."""
PREFETCHED = 2
"""Rows in shared memory at once of those that follow one another."""
TEMPORARIES = 8
"""Registers beside those that are counted, where rows lie in shared memory."""


SUMMING_BLOCKS = 100
"""Blocks that should have some columns to sum up: with so many the sums take no longer than with more."""
MAX_ITERATIONS = 16
"""Turns over its columns that a block takes before threads had better take columns than parts: each waits for a barrier."""


class InnerOuterMapping(NamedTuple):
    """See the head of this module.

    resident    blocks of an SM
    registers   of a thread
    ahead       the next rows are loaded while a thread works on some
    """

    exchange: str
    vector: int
    threads: int
    batch: int
    sharing: int = 1
    blocks: int = 1
    rows_per_block: int = 1
    rows: int = 1
    loads_next: bool = False
    in_shared: bool = False
    resident: int = 1
    registers: int = 0

    @property
    def rows_per_iteration(self) -> int:
        """Rows of an iteration of all blocks."""
        return self.blocks * self.rows_per_block * self.rows

    @property
    def prefetch(self) -> int:
        """Iterations that rows are loaded before they are used: those in shared memory, which copies fill, one earlier."""
        return int(self.loads_next) + int(self.in_shared)

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.rows_per_block


SUMS, STATISTICS, CLUSTER = "sums", "statistics", "cluster"


def inner_outer_mappings(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[InnerOuterMapping]:
    """All mappings that fit on the device."""
    yield from _rows_in_registers(space, device)
    yield from _rows_in_shared(space, device)
    yield from _columns_over_grid(space, device)
    yield from _over_cluster(space, device)


def columns_of_block(length: int, m: InnerOuterMapping) -> int:
    """Threads of x: columns that a block sums up at once. As many as leave most SMs some; 32 bytes of each part at least.

    Few blocks would take their columns in a hundred iterations: there no more threads share a column than it has parts.
    """
    width = min(WARP, m.threads)
    while width > 8 and length < width * min(m.blocks, SUMMING_BLOCKS):
        width //= 2
    width = math.gcd(width, m.threads)
    if length <= MAX_ITERATIONS * width * m.blocks:
        return width
    sharing = next(n for n in range(min(m.blocks, m.threads), 0, -1) if m.threads % n == 0)
    return max(width, m.threads // sharing)


def inner_outer_registers(space: InnerOuterSpace, m: InnerOuterMapping) -> int:
    """Registers of a thread."""
    v, b = m.vector, m.batch
    registers = space.own_registers + b * (v * space.column_registers + size_registers(space.weight_sizes, v))
    registers += (m.rows - 1) * space.statistic_registers
    kept = size_registers(space.kept_sizes, v)
    if m.in_shared:
        return registers + kept + TEMPORARIES + (2 * b if v == 1 and space.is_double else 0)
    # Rows that are worked on at once lie there as they are computed with, not as they come.
    rows = size_registers(space.read_sizes, v, 1 if m.rows == 1 else REGISTER_BYTES)
    rows += size_registers(space.read_sizes, v) if m.loads_next else 0
    return registers + b * (kept + m.rows * rows) + (TEMPORARIES if m.rows_per_block > 1 else 0)


def _placed(space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo) -> InnerOuterMapping | None:
    """With its registers and the most blocks that an SM holds of it; None if it holds none."""
    registers = inner_outer_registers(space, m)
    # What several rows have one of each takes more than is counted.
    if registers + (registers // 8 if m.rows > 2 else 0) > max_registers(m.block, device):
        return None
    shared_bytes = 0
    if m.in_shared:
        at_once = m.rows * (PREFETCHED if m.loads_next else 1)
        beside = BESIDE_COLUMNS if m.sharing > 1 else BESIDE_ROW
        shared_bytes = at_once * m.threads * m.batch * m.vector * space.loaded + beside
        if shared_bytes > device.shared_per_block_optin:
            return None
    resident = resident_blocks(m.block, registers, device, shared_bytes)
    return m._replace(registers=registers, resident=resident) if resident else None


def _rows_in_registers(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[InnerOuterMapping]:
    """Blocks with rows of their own: as many as are co-resident."""
    accesses = -(-space.length // space.vector)
    fewest = -(-accesses // device.max_threads_per_block)
    for batch in candidate_batches(accesses, fewest, min(MAX_BATCH, accesses)):
        threads = threads_for(accesses, batch)
        before = 0
        for block in BLOCKS_OF_ROWS:
            room = min(block, device.max_threads_per_block) // threads
            beside = max(1, min(room, space.rows // device.sm_count, MAX_SIDE_BY_SIDE))
            beside = 1 << (beside.bit_length() - 1)
            if beside == before:
                continue
            before = beside
            for rows, ahead in ((1, True), (2, True), (1, False), (2, False)):
                m = InnerOuterMapping(SUMS, space.vector, threads, batch, 1, 1, beside, rows, ahead)
                yield from _with_blocks_per_sm(space, m, device)


def _with_blocks_per_sm(
    space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo
) -> Iterator[InnerOuterMapping]:
    """With any number of blocks on each SM, up to the most of which each has rows."""
    placed = _placed(space, m, device)
    if placed is None:
        return
    wanted = -(-space.rows // (m.rows_per_block * m.rows))
    for resident in range(1, placed.resident + 1):
        # Launch bounds are in blocks of the rung's size.
        top = rung_of(m.block)[0]
        if placed.registers > device.registers_per_sm // (top * -(-resident * m.block // top)):
            return
        blocks = min(wanted, resident * device.sm_count)
        # Nothing is loaded ahead of the only rows, and what follows others had better be.
        if m.loads_next == (blocks < wanted) or (m.rows > 1 and blocks < wanted):
            yield placed._replace(blocks=blocks, resident=resident)
        if blocks == wanted:
            return


def _rows_in_shared(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[InnerOuterMapping]:
    """The same with rows in shared memory, copied two iterations ahead."""
    for vector in space.copied if device.copies_to_shared else ():
        for threads in IN_SHARED_THREADS:
            batch = -(-space.length // (vector * threads))
            if threads > device.max_threads_per_block or not 2 <= batch <= MAX_BATCH:
                continue
            m = InnerOuterMapping(SUMS, vector, threads, batch, loads_next=True, in_shared=True)
            placed = _placed(space, m, device)
            blocks = min(space.rows, device.sm_count)
            if placed is not None and blocks < space.rows:
                yield placed._replace(blocks=blocks, resident=1)


def _columns_over_grid(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[InnerOuterMapping]:
    """Blocks of the whole grid, an SM each, with some columns of all rows."""
    for vector in _widths(space.vector):
        mine = -(-space.length // (vector * device.sm_count))
        for batch in (1, 2, 3, 4, 6, 8):
            threads = -(-mine // (batch * WARP)) * WARP
            if not 2 * WARP <= threads <= device.max_threads_per_block:
                continue
            sharing = -(-space.length // (vector * threads * batch))
            if sharing < 2:
                continue
            m = InnerOuterMapping(STATISTICS, vector, threads, batch, sharing)
            for in_shared in (False, True) if vector in space.copied and device.copies_to_shared else (False,):
                yield from _with_max_rows_in_flight(space, m._replace(in_shared=in_shared), device)


def _with_max_rows_in_flight(
    space: InnerOuterSpace, m: InnerOuterMapping, device: DeviceInfo
) -> Iterator[InnerOuterMapping]:
    """With as many rows at once as fit: all of them, or of several iterations, which may load the next ones ahead."""
    for ahead in (False, True):
        fits = elements_in_cache(space.operations, device) // (m.batch * m.vector)
        for most in range(min(space.rows, MAX_AT_ONCE, fits), 0, -1):
            trips = -(-space.rows // most)
            if ahead and trips == 1:
                continue
            placed = _placed(space, m._replace(rows=-(-space.rows // trips), loads_next=ahead), device)
            if placed is not None:
                yield placed._replace(resident=1)
                break


def _over_cluster(space: InnerOuterSpace, device: DeviceInfo) -> Iterator[InnerOuterMapping]:
    """One cluster that has all rows at once, each block some columns or some rows."""
    for size in CLUSTERS:
        if device.clusters(size) < 1:
            return
        for sharing, blocks in ((size, 1), (1, size)):
            own = -(-space.rows // blocks)
            most = elements_in_cache(space.operations, device)
            if blocks > space.rows or own * space.length // sharing > device.max_threads_per_block * most:
                continue
            for vector, threads, batch in _accesses(space, sharing, device):
                last = 0
                for at_once in range(1, min(own, MAX_AT_ONCE, most // (batch * vector)) + 1):
                    beside = -(-own // at_once)
                    # A block is whole warps.
                    beside = -(-threads * beside // WARP) * WARP // threads if threads < WARP else beside
                    is_idle = (blocks - 1) * beside * at_once >= space.rows
                    if beside == last or is_idle or beside * threads > device.max_threads_per_block:
                        continue
                    last = beside
                    m = InnerOuterMapping(CLUSTER, vector, threads, batch, sharing, blocks, beside, at_once)
                    placed = _placed(space, m, device)
                    # Shared memory holds a block's sums of columns before its threads join them.
                    sum_bytes = m.block * m.batch * m.vector * space.sums * space.sum_bytes
                    if placed is not None and sum_bytes <= device.shared_per_block_optin // 2:
                        yield placed._replace(resident=1)


def _accesses(space: InnerOuterSpace, sharing: int, device: DeviceInfo) -> Iterator[tuple[int, int, int]]:
    """(elements of an access, threads along a block's part of a row, accesses of each)."""
    for vector in _widths(space.vector):
        accesses = -(-space.length // (vector * sharing))
        # Threads of one warp join without a barrier: as few as have few accesses each.
        threads = WARP
        while accesses < threads and sharing == 1:
            threads //= 2
        while threads <= device.max_threads_per_block:
            batch = -(-accesses // threads)
            # No block without columns.
            if -(-space.length // (vector * threads * batch)) == sharing:
                yield vector, threads, batch
            if batch <= 2:
                break
            threads *= 2


def _widths(most: int) -> Iterator[int]:
    """Elements of an access, up to the most."""
    while most >= 1:
        yield most
        most //= 2
