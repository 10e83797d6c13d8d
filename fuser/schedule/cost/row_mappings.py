"""Mappings of persistent rows: which threads and blocks hold a row, and where; what each of them asks of the machine.

A row is `accesses` of `vector` elements. `batch` of them belong to each of `threads` threads of each of `sharing` blocks, and
lie in registers or in shared memory until the last data pass is done. A block with few threads along a row has several `rows`.
Blocks that share a row are a cluster, or meet in device memory: then `groups` of them are co-resident, and go over the rows.

`row_mappings` enumerates all that fit, `row_work_of` says what one asks for, `estimate` how long that takes.

What code takes is counted in instructions and cycles, as fitted to kernels of two thirds of 117 segments on an H200
(`docs/decisions/0022-one-estimate-and-a-search.md`); the device says how long those are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fuser.ir.device_info import LINE_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.runtime.kernels.variants import rung_of
from fuser.schedule.cost.accesses_per_thread import candidate_batches, candidate_block_splits, threads_for
from fuser.schedule.cost.code_costs import (
    ACCESS,
    BLOCK_EXCHANGE,
    DEPENDENT,
    JOIN,
    LOADED,
    LOOKUP,
    OPERATION,
    ROW,
    STATISTICS_STEP,
    WARP_JOINS,
    WHOLE_ROW,
    operations_of,
)
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.occupancy import launch_bounds_blocks, max_registers, resident_blocks
from fuser.schedule.cost.row_space import BLOCKS_OF_ROWS, MAX_BATCH, RowSpace
from fuser.schedule.cost.scratch_budget import BESIDE_ROW
from fuser.schedule.params import InnerPersistentParams
from fuser.schedule.transforms.shared_rows import unrolled

CUT, CUT_IN_SHARED = 18.0, 11.0
"""Instructions that test an element of an access which an end of a row may cut: alone, and together in shared memory."""
ONLINE = 2.2
"""Instructions for an element of a sum of exponentials in one pass: the maximum may change with it."""
AGAIN = 1.4
"""Instructions of an element where inputs are in shared memory and intermediate values are recomputed, as a multiple of those
where intermediate values are kept in registers."""

CUT_ACCESS = 360.0
"""Cycles of an access that the ends of a row may cut."""
IN_SHARED = 0.39
"""Time of a copy to shared memory and of the read after it, in latencies of memory."""
PIECE = 57.0
"""Cycles that a thread waits for accesses to shared memory that are issued together, in each data pass."""
CACHE_MISSES = 0.42
"""Of the bytes that all rows share, such as weights, what the first-level cache does not hold."""

CLUSTERS = (1, 2, 8, 16)
"""Blocks of a row."""
MAX_CUT, MAX_PIECES = 8, 16
"""Most accesses of a thread: in registers where the ends of a row cut them, since the code is there twice; and of a group in
shared memory, where each is waited for by itself."""
MIN_PIECES = 4
"""Fewest accesses of a thread of a group in shared memory: others are in flight while one is waited for."""
MIN_THREADS = 128
"""Threads of a block that has a row in shared memory, or shares one with its cluster."""
GROUP_THREADS = (256, 512, 1024)
"""Threads of a block of a group."""
MAX_RESIDENT = 4
"""Blocks of groups on an SM: more of them only have more to exchange."""
OF_GROUP = 8
"""Registers of a thread where blocks meet in device memory: flags, and addresses of what others leave."""
MIN_OF_GROUP = 8192
"""Elements of a row that is worth a group."""


class RowMapping(NamedTuple):
    """How rows lie on the machine: see the head of this module. `resident` blocks fit on an SM with `registers` of a thread.

    groups      that go over the rows, of blocks that meet in device memory; 0: blocks are handed out
    in_shared   inputs of the row lie in shared memory, else what is kept of it in registers
    one_pass, load_all_first   as of InnerPersistentParams
    """

    threads: int
    batch: int
    sharing: int = 1
    rows: int = 1
    groups: int = 0
    in_shared: bool = False
    one_pass: bool = False
    resident: int = 1
    registers: int = 0
    load_all_first: bool = False


def row_mappings(row: RowSpace, device: DeviceInfo) -> Iterator[RowMapping]:
    """All mappings that fit on the device."""
    found = (mapping_for_rows(row, m, device) for m in mappings_for_any_row_count(row, device))
    return (m for m in found if m is not None)


def mappings_for_any_row_count(row: RowSpace, device: DeviceInfo) -> Iterator[RowMapping]:
    """The same with as many groups as are co-resident: of the rows only `max_rows_per_block` counts, not how many there are."""
    if row.is_interleaved and (row.vector > 1 or row.is_misaligned):
        return
    for one_pass in row.passes:
        yield from _in_registers(row, device, one_pass)
        if row.may_use_shared:
            yield from _in_shared(row, device, one_pass)
    if not row.may_use_block_groups or row.length < MIN_OF_GROUP:
        return
    # A single row cannot be distinguished from a shared operand: there is no loop over rows.
    may_use_shared = row.may_use_shared and not row.is_misaligned and not row.is_single
    for one_pass in row.passes:
        for in_shared in (False, True) if may_use_shared else (False,):
            yield from _groups(row, device, one_pass, in_shared=in_shared)


def mapping_for_rows(row: RowSpace, m: RowMapping, device: DeviceInfo) -> RowMapping | None:
    """A mapping for any number of rows as it is for these; None if it is none for so many."""
    if row.is_interleaved and (m.sharing == 1 or row.rows > device.clusters(m.sharing)):
        return None
    if not m.groups:
        return m
    groups = min(row.rows, m.groups)
    # A row in registers is waited for before the next begins.
    if groups < row.rows and not m.in_shared:
        return None
    return m._replace(groups=groups, resident=-(-groups * m.sharing // device.sm_count))


def row_blocks(rows: int, m: RowMapping) -> int:
    """Blocks of a launch."""
    return m.groups * m.sharing if m.groups else -(-rows // m.rows) * m.sharing


def work_for_rows(work: Work, m: RowMapping, rows: int) -> Work:
    """What a mapping asks for, launched for another number of rows."""
    trips = -(-rows // m.groups) if m.groups else 1
    return work._replace(blocks=row_blocks(rows, m), resident=m.resident, iterations=trips)


def row_work_of(row: RowSpace, m: RowMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    return RowCosts(row, device).work_of(m)


class RowCosts:
    """What the mappings of rows ask of a device."""

    def __init__(self, row: RowSpace, device: DeviceInfo) -> None:
        self.row, self.device = row, device
        self.cycle, self.dram = device.cycle, device.latencies.dram_ns / 1e3
        self.first_to_last, self.cluster_start = device.first_to_last, device.cluster_start
        self.block_exchange = BLOCK_EXCHANGE * device.block_exchange
        self.operations = operations_of(row.operations, device, is_double=row.is_double)
        # The first blocks wait for weights until device memory answers, and not a cache.
        self.start = self.dram - device.latencies.l2_ns / 1e3 if row.late_bytes else 0.0
        # In registers, what begins elsewhere than the vectors is read by element, each as slow as a vector.
        self.by_element = row.differently_misaligned * (row.vector - 1)
        self._lines: dict[int, float] = {}

    def work_of(self, m: RowMapping) -> Work:
        """What a mapping asks of the machine."""
        row, along = self.row, m.threads
        warps = -(-along * m.rows // WARP)
        exchanges = row.exchanges(one_pass=m.one_pass)
        elements = m.rows * row.length / m.sharing
        steps = math.log2(min(along, WARP))
        operations = self.operations * AGAIN if m.in_shared else self.operations
        operations += ONLINE / OPERATION if m.one_pass and row.sums_exponentials else 0.0
        # In shared memory each data pass reads the row again, and tests it.
        passes = exchanges + 1 if m.in_shared else 0
        by_element = 0 if m.in_shared else self.by_element
        accesses = row.arguments + passes + by_element
        tests = (CUT_IN_SHARED * passes if m.in_shared else CUT) * row.vector if row.is_misaligned else 0.0
        instructions = m.batch * (row.vector * operations * OPERATION + ACCESS * accesses + tests)
        instructions += exchanges * JOIN * steps + ROW + row.row_operations
        lines = self._lines.get(along)
        if lines is None:
            lines = self._lines[along] = _lines(row, along) * LOOKUP
        return Work(
            blocks=row_blocks(row.rows, m),
            resident=m.resident,
            cluster=1 if m.groups else m.sharing,
            iterations=-(-row.rows // m.groups) if m.groups else 1,
            warps=warps,
            moved=elements * row.moved,
            cached=elements * row.shared_bytes * CACHE_MISSES,
            instructions=instructions,
            lines=m.batch * accesses * lines,
            latency=self._latency(m, operations, passes, by_element),
            exchange=self._exchange(m, exchanges, warps, steps),
            start=0.0 if m.load_all_first else self.start,
        )

    def _latency(self, m: RowMapping, operations: float, passes: int, by_element: int) -> float:
        """Microseconds of a block by itself, without exchanges."""
        row = self.row
        each = operations * DEPENDENT + LOADED * row.loaded / self.device.max_access_bytes
        latency = m.batch * row.vector * each + WHOLE_ROW
        if m.in_shared:
            latency += PIECE * passes * m.batch / unrolled(m.batch, is_cut=row.is_misaligned)
        if row.is_misaligned:
            latency += m.batch * (CUT_ACCESS + by_element * LOADED)
        if m.one_pass and row.has_statistics:
            latency += STATISTICS_STEP * math.log2(m.threads)
        latency = latency * self.cycle + self.first_to_last
        if row.has_late_input and not m.in_shared and not m.load_all_first:
            # What is read between stores is waited for access by access.
            latency += m.batch * self.dram
        if m.in_shared:
            return latency + IN_SHARED * self.dram
        if m.batch > 1 and not row.is_cut and m.threads * m.batch * m.sharing > row.accesses:
            # Some threads have one access less. It is tested, and ptxas asks for it behind the use of those that are not.
            return latency + self.dram
        return latency

    def _exchange(self, m: RowMapping, exchanges: int, warps: int, steps: float) -> float:
        """Microseconds in which threads and blocks wait for one another."""
        if m.threads > WARP:
            exchange = self.block_exchange + WARP_JOINS * warps * self.cycle
        else:
            exchange = self.block_exchange / 2 * steps / (WARP.bit_length() - 1)
        if m.sharing == 1 and not m.groups:
            return exchanges * exchange
        others = self.device.grid_exchange if m.groups else self.device.cluster_exchange
        return exchanges * (exchange + others(m.sharing)) + self.cluster_start


def _lines(row: RowSpace, threads: int) -> float:
    """Lines of the first-level cache that an access of a warp looks up, of one argument: several rows are not contiguous."""
    along = min(threads, WARP)
    nbytes = along * row.vector * row.itemsize
    # The threads of misaligned rows reach into one line more.
    step = math.gcd(row.length * row.itemsize, LINE_BYTES) if row.vector == 1 or row.is_misaligned else LINE_BYTES
    more = max(0.0, 1.0 - step / LINE_BYTES) if step < nbytes else 0.0
    return WARP // along * (max(1.0, nbytes / LINE_BYTES) + more)


def _registers(row: RowSpace, batch: int, one_pass: bool, *, in_shared: bool) -> tuple[int, int]:
    """Registers of a thread: what it should take, and what it may take at most (the compiler spills with less)."""
    words = 2 if row.is_double else 1
    expected = 26 + 4 * row.inputs + 24 * (words - 1)
    elements = batch * row.vector
    if in_shared:
        expected += 8 if row.is_cut else 0
        moving = 16 if row.is_cut else 8
    else:
        kept = row.kept[one_pass]
        expected += 16 if row.is_cut else 0
        expected += elements * (kept if row.vector > 1 else max(4, kept)) // 4
        # Beside what is kept, a part of the row is on its way through the arithmetic: of a cut row one vector after the other.
        moving = row.vector if row.is_cut else words * elements // 4
    return expected, expected + moving + 12 * words


def _registers_of_later_passes(row: RowSpace, batch: int) -> int:
    """Registers of what later data passes read first, where all of it is read before."""
    return batch * -(-row.vector * row.late_bytes // REGISTER_BYTES)


def _in_registers(row: RowSpace, device: DeviceInfo, one_pass: bool) -> Iterator[RowMapping]:
    most = MAX_CUT if row.is_cut else MAX_BATCH
    for sharing in clusters_of(row, device):
        mine = -(-row.accesses // sharing)
        fewest = -(-mine // device.max_threads_per_block)
        for batch in candidate_batches(mine, fewest, min(most, mine)):
            threads = threads_for(mine, batch)
            # With a larger batch and the same threads, some accesses would be idle for every thread.
            if threads > device.max_threads_per_block or -(-mine // threads) < batch:
                continue
            if sharing > 1 and threads < MIN_THREADS:
                break
            expected, needed = _registers(row, batch, one_pass, in_shared=False)
            if needed > max_registers(threads, device):
                continue
            late = _registers_of_later_passes(row, batch)
            for more in (0, late) if late and needed + late <= max_registers(threads, device) else (0,):
                registers = expected + more
                for rows in _rows_of_block(row, threads, sharing):
                    resident = resident_blocks(threads * rows, registers, device)
                    if resident:
                        yield RowMapping(
                            threads, batch, sharing, rows, 0, False, one_pass, resident, registers, more > 0
                        )


def _rows_of_block(row: RowSpace, threads: int, sharing: int) -> list[int]:
    """How many rows a block may have: several where each stays within a warp, so that no barrier holds up all of them."""
    if threads > WARP or sharing > 1:
        return [1]
    return [n for n in (block // threads for block in BLOCKS_OF_ROWS) if n <= row.max_rows_per_block] or [1]


def _in_shared(row: RowSpace, device: DeviceInfo, one_pass: bool) -> Iterator[RowMapping]:
    expected, needed = _registers(row, 1, one_pass, in_shared=True)
    for sharing in clusters_of(row, device):
        mine = -(-row.accesses // sharing)
        for batch in range(2, MAX_BATCH + 1):
            threads = -(-mine // (batch * WARP)) * WARP
            if threads < MIN_THREADS:
                break
            if -(-mine // threads) < batch:
                continue
            shared_bytes = threads * batch * row.vector * row.loaded + BESIDE_ROW
            if threads > device.max_threads_per_block or shared_bytes > device.shared_per_block_optin:
                continue
            resident = resident_blocks(threads, expected, device, shared_bytes)
            if row.is_misaligned:
                # It is compiled for so many.
                resident = min(resident, launch_bounds_blocks(threads, expected))
            if resident and needed <= max_registers(threads, device):
                yield RowMapping(threads, batch, sharing, 1, 0, True, one_pass, resident, expected)


def _groups(row: RowSpace, device: DeviceInfo, one_pass: bool, *, in_shared: bool) -> Iterator[RowMapping]:
    most = MAX_PIECES if in_shared else MAX_CUT if row.is_cut else MAX_BATCH
    for threads in (n for n in GROUP_THREADS if n <= device.max_threads_per_block):
        for batch, sharing in candidate_block_splits(row.accesses, threads, MIN_PIECES if in_shared else 1, most):
            _, needed = _registers(row, batch, one_pass, in_shared=in_shared)
            needed += OF_GROUP
            shared_bytes = threads * batch * row.vector * row.loaded + BESIDE_ROW if in_shared else 0
            if needed > max_registers(threads, device) or shared_bytes > device.shared_per_block_optin:
                break
            # All of them have to be co-resident, with what they may need at most; one binary serves a whole rung.
            room = resident_blocks(rung_of(threads)[0], needed, device, shared_bytes) * (rung_of(threads)[0] // threads)
            resident = min(room, MAX_RESIDENT, resident_blocks(threads, needed, device, shared_bytes))
            groups = resident * device.sm_count // sharing
            if groups:
                yield RowMapping(threads, batch, sharing, 1, groups, in_shared, one_pass, resident, needed)


def clusters_of(row: RowSpace, device: DeviceInfo) -> Iterator[int]:
    """Blocks that may share a row."""
    for sharing in CLUSTERS:
        if sharing > 1 and (device.clusters(sharing) < 1 or row.accesses < 2 * WARP * sharing):
            return
        yield sharing


def row_mapping_of(row: RowSpace, params: InnerPersistentParams, device: DeviceInfo) -> RowMapping:
    """The mapping that parameters say."""
    in_shared, groups = bool(params.in_shared), params.groups
    expected, _ = _registers(row, params.batch, params.one_pass, in_shared=in_shared)
    expected += _registers_of_later_passes(row, params.batch) if params.load_all_first else 0
    shared_bytes = params.threads * params.batch * row.vector * row.loaded + BESIDE_ROW if in_shared else 0
    resident = resident_blocks(params.threads * params.rows, expected, device, shared_bytes)
    if in_shared and row.is_misaligned:
        resident = min(resident, launch_bounds_blocks(params.threads, expected))
    return RowMapping(
        params.threads,
        params.batch,
        params.cluster,
        params.rows,
        0 if groups is None else groups.count,
        in_shared,
        params.one_pass,
        max(1, resident) if groups is None else groups.resident,
        expected,
        params.load_all_first,
    )
