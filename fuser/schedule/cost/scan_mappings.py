"""Mappings of scans: which threads and blocks walk along the scanned dim; what each of them asks of the machine.

`along` threads of a block share a scan, `beside` threads have others. Each takes `batch` accesses of `vector` elements before
threads meet, a *step*; `sharing` blocks of a cluster have parts of the step. The vector lies along the scanned dim where that
is the fastest (`inner`), else across it: a thread then has `vector` scans. With `ahead` a step's loads are issued before the
step ahead of it computes.

Threads fold what they have, meet once a step for what comes before it, and fold that into each element: two operations an
element, and an exchange of totals. Lanes of a warp scan totals by shuffles. Totals of warps lie in shared memory: of rows,
lanes scan them too; of columns, each thread folds those of its columns, which is what many threads along a column cost.

`scan_mappings` enumerates what fits, `scan_work_of` says what one asks for, `estimate` how long that takes. Instructions were
counted in machine code of sm_90a, registers in what ptxas chose for 90 kernels of everyday scans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fuser.ir.device_info import BURST_BYTES, REGISTER_BYTES, WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.code_costs import ACCESS, DEPENDENT, JOIN, LOADED, LOOKUP, WARP_JOINS
from fuser.schedule.cost.estimate import Work
from fuser.schedule.cost.mapping_search import MappingSearch, Timed
from fuser.schedule.cost.occupancy import allocated_registers, max_registers, resident_blocks
from fuser.schedule.cost.reduction_mappings import EDGES, EVEN_EDGES
from fuser.schedule.cost.rounding import ceil_div, power_of_two

TESTED = 1.7
"""Instructions for each that `op_instructions` counts: rows of a step are under tests of their own, as are their addresses."""
DIVIDED = 27.0
"""For an access where dims lie on both sides of the scanned one: its address has a quotient and a remainder."""
FOLDS = 2.5
"""Instructions of a scan for an element: it is folded into those before it, then what comes before the thread's into it; what
lies outside of the tensor becomes the identity."""
TOTAL = 6.0
"""For a total that lanes have scanned: that of the lanes before, and what the carry adds."""
SLOT = 2.25
"""For a total of a warp that each thread of a column reads."""
STEP = 30.0
"""For a step: its barriers, its number, and the tests that all of its accesses share."""
CUT = 9.0
"""For an element of an access that the ends of a row may cut: its tests."""
SLOT_LATENCY = 6.0
"""Cycles of such a total behind the one before it."""

ROW_REGISTERS, COLUMN_REGISTERS, CUT_REGISTERS = 14, 26, 12
"""Of a thread, for addresses and counters, and for the ends of rows that cut accesses."""
TOTAL_REGISTERS = 4
"""Of a scan of a thread of columns: its carry, its total, what comes before it, and what is read of others."""
THREADS = (128, 256, 512)
"""Of a block of columns, or of one that a row takes several steps of."""
COLUMN_BATCHES, ROW_BATCHES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 8)
"""Accesses of a thread in a step."""
ROW_BLOCKS = (32, 128, 256)
"""Threads of a block of several rows."""
CLUSTERS = (2, 4, 8, 16)
"""Blocks of a cluster."""
MAX_RUN = 1024
"""Bytes of a row of a block of columns."""
MAX_SHARING = 6
"""Blocks of an SM that share scans."""


@record
class ScanSpace:
    """What is the same for all mappings of a scan segment.

    inner       the scanned dim is the fastest
    length      elements along it, with those that the first vector may lack
    kept        scans
    vector      most elements of an access
    itemsize    bytes of an element of the widest value; `narrowest`: of the narrowest argument of full size
    loaded, moved   bytes of an element that are read, and those that are read and written
    arguments   of full size
    scans       of the segment, one behind the other
    live        values of an element that a thread keeps while it scans one of them
    operations  instructions of an element beside the scans
    most        elements of a thread in a step that the code has room for
    is_cut      ends of rows cut accesses
    is_divided  scans are numbered by dims on both sides of the scanned one
    is_apart    rows begin inside a sector: neighbouring blocks of columns access the same one
    """

    inner: bool
    length: int
    kept: int
    vector: int
    itemsize: int
    narrowest: int
    loaded: int
    moved: int
    arguments: int
    scans: int
    live: int
    operations: int
    most: int
    is_cut: bool
    is_divided: bool
    is_apart: bool


class ScanMapping(NamedTuple):
    """See the head of this module. `resident` blocks fit on an SM."""

    along: int
    across: int
    batch: int
    vector: int
    sharing: int = 1
    prefetch: bool = False
    resident: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.along * self.across


def steps_of(scan: ScanSpace, m: ScanMapping) -> int:
    """How often threads meet."""
    along = ceil_div(scan.length, m.vector) if scan.inner else scan.length
    return max(1, ceil_div(along, m.along * m.batch * m.sharing))


def scan_blocks(scan: ScanSpace, m: ScanMapping) -> int:
    """Of the grid."""
    units = scan.kept if scan.inner else ceil_div(scan.kept, m.vector)
    return max(1, ceil_div(units, m.across)) * m.sharing


def scan_mappings(scan: ScanSpace, device: DeviceInfo) -> Iterator[ScanMapping]:
    """All mappings that fit on the device, one at least: where a thread has too few registers for any, the one that spills
    least."""
    enumerate_shapes = _rows if scan.inner else _columns
    shapes = [m for shape in enumerate_shapes(scan, device) for m in _shared(scan, shape, device)]
    none = True
    for m in shapes:
        for found in (m, m._replace(prefetch=True)) if steps_of(scan, m) > 2 else (m,):
            resident = _resident(scan, found, device)
            if resident:
                yield found._replace(resident=resident)
                none = False
    if none:
        yield min(shapes, key=lambda m: (_registers(scan, m), m.threads))


def _rows(scan: ScanSpace, device: DeviceInfo) -> Iterator[ScanMapping]:
    """Rows in one step by as many threads as it takes, or by some number of threads in several."""
    accesses = ceil_div(scan.length, scan.vector)
    for batch in ROW_BATCHES:
        if batch > max(1, accesses):
            break
        along = ceil_div(accesses, batch)
        along = power_of_two(along) if along <= WARP else ceil_div(along, WARP) * WARP
        if along <= WARP:
            blocks = {
                block // along for block in ROW_BLOCKS if block <= WARP or block // along <= power_of_two(scan.kept)
            }
            for beside in sorted(blocks - {0}):
                yield ScanMapping(along, beside, batch, scan.vector)
        elif along <= device.max_threads_per_block:
            yield ScanMapping(along, 1, batch, scan.vector)
        for threads in THREADS:
            if threads < along and threads <= device.max_threads_per_block:
                yield ScanMapping(threads, 1, batch, scan.vector)


def _columns(scan: ScanSpace, device: DeviceInfo) -> Iterator[ScanMapping]:
    """Columns side by side as wide as what memory reads as one, and threads along them as far as they have rows."""
    most = power_of_two(scan.length)
    blocks = [n for n in THREADS if n <= device.max_threads_per_block]
    for vector in sorted({scan.vector, max(1, scan.vector // 2)}):
        widest = min(power_of_two(ceil_div(scan.kept, vector)), ceil_div(MAX_RUN, vector * scan.narrowest), blocks[-1])
        beside = power_of_two(min(widest, ceil_div(BURST_BYTES, vector * scan.narrowest)))
        while beside <= widest:
            for along in sorted({min(n // beside, most) for n in blocks if n >= beside}):
                for batch in COLUMN_BATCHES:
                    if along * batch < 2 * most:
                        yield ScanMapping(along, max(beside, WARP // along), batch, vector)
            beside *= 2


def _shared(scan: ScanSpace, m: ScanMapping, device: DeviceInfo) -> Iterator[ScanMapping]:
    """The same by one block, or by clusters where blocks leave SMs idle."""
    yield m
    most = scan.kept if scan.inner else ceil_div(scan.kept * scan.narrowest, BURST_BYTES)
    if 2 * most > 3 * device.sm_count or steps_of(scan, m) == 1 or m.along == 1:
        return
    blocks = scan_blocks(scan, m)
    fitting = [n for n in CLUSTERS if device.clusters(n) and blocks * n <= MAX_SHARING * device.sm_count]
    for sharing in fitting:
        # Half of the SMs have a block, or more of them than with less.
        if 2 * blocks * sharing >= device.sm_count or sharing == fitting[-1]:
            yield m._replace(sharing=sharing)


def _registers(scan: ScanSpace, m: ScanMapping) -> int:
    """Of a thread."""
    words = max(1, scan.itemsize // REGISTER_BYTES)
    elements = m.batch * m.vector
    if scan.inner:
        # Of a row in several steps, parts of the next are read while this one is stored; of halves two in a register.
        halves = 3 if steps_of(scan, m) == 1 or scan.itemsize < REGISTER_BYTES else 4
        registers = (
            ROW_REGISTERS + ceil_div(halves * elements * scan.live * words, 2) + (CUT_REGISTERS if scan.is_cut else 0)
        )
    else:
        registers = COLUMN_REGISTERS + (elements * scan.live + TOTAL_REGISTERS * m.vector) * words
    # The rows of columns are strided: each load has an address of its own.
    ahead = ceil_div(elements * scan.loaded, REGISTER_BYTES) * (1 if scan.inner else 2)
    return registers + (ahead if m.prefetch else 0)


def _resident(scan: ScanSpace, m: ScanMapping, device: DeviceInfo) -> int:
    """Blocks that an SM holds; 0 where threads would not have their registers, or the code would be too long."""
    registers = allocated_registers(_registers(scan, m))
    # Some kernels take an eighth more than is estimated.
    is_long = m.batch > 1 and m.batch * m.vector * TESTED > scan.most
    if is_long or 8 * registers > 7 * max_registers(m.threads, device):
        return 0
    return resident_blocks(m.threads, registers, device)


def _exchange(scan: ScanSpace, m: ScanMapping, device: DeviceInfo) -> tuple[float, float]:
    """(instructions of a thread, cycles) of the exchange of one scan's totals in a step."""
    if m.along == 1:
        return 0.0, 0.0
    shuffle, shared = (
        device.latencies.shuffle_ns / 1e3 / device.cycle,
        device.latencies.shared_ns / 1e3 / device.cycle,
    )
    stride = 1 if scan.inner else m.across
    totals = m.batch if scan.inner else m.vector
    lanes = min(m.along, max(1, WARP // stride))
    instructions, latency = 0.0, 0.0
    if lanes > 1:
        instructions += totals * (JOIN * math.log2(lanes) + TOTAL)
        latency += shuffle * (math.log2(lanes) + 1) + totals * DEPENDENT
    warps = ceil_div(m.along, lanes)
    if warps > 1:
        latency += (
            2 * shared + device.latencies.block_barrier_ns / 1e3 / device.cycle + WARP_JOINS * ceil_div(m.threads, WARP)
        )
        if scan.inner:
            chunks = ceil_div(totals * warps, WARP)
            instructions += chunks * (JOIN * math.log2(WARP) + TOTAL) + totals * TOTAL
            latency += chunks * shuffle * 6
        else:
            instructions += warps * (SLOT * totals + 1)
            latency += warps * SLOT_LATENCY
    return instructions, latency


def scan_work_of(scan: ScanSpace, m: ScanMapping, device: DeviceInfo) -> Work:
    """What a mapping asks of the machine."""
    steps, blocks = steps_of(scan, m), scan_blocks(scan, m)
    elements = m.batch * m.vector
    words = max(1, scan.itemsize // REGISTER_BYTES)
    exchanged, waited = _exchange(scan, m, device)
    tests = CUT * elements if scan.is_cut else 0.0
    operations = TESTED * scan.operations
    instructions = elements * (operations + FOLDS * scan.scans * words) + STEP
    instructions += (ACCESS + (DIVIDED if scan.is_divided else 0.0)) * scan.arguments * m.batch
    instructions += tests + scan.scans * exchanged * words
    latencies = device.latencies
    computed = elements * DEPENDENT * (operations + scan.scans) + scan.scans * waited
    computed += LOADED * m.batch * m.vector * scan.loaded / device.max_access_bytes
    latency = computed * device.cycle
    # In several steps others keep memory busy while a block waits.
    read = (latencies.dram_ns if steps == 1 else latencies.dram_loaded_ns) / 1e3
    exchange, start = 0.0, 0.0
    if m.sharing > 1:
        exchange = scan.scans * device.cluster_exchange(m.sharing)
        start = device.cluster_start
    if m.prefetch:
        start += read
        latency = max(latency, device.first_to_last - exchange)
    else:
        latency += read
    moved = scan.kept * scan.length * scan.moved / blocks / steps
    if not scan.inner:
        run = m.across * m.vector * scan.narrowest
        moved *= 1.0 + (EDGES if scan.is_apart else EVEN_EDGES) * BURST_BYTES / run
    return Work(
        blocks=blocks,
        resident=m.resident,
        cluster=m.sharing,
        iterations=steps,
        warps=ceil_div(m.threads, WARP),
        moved=moved,
        instructions=instructions,
        lines=m.batch * scan.arguments * max(1.0, WARP / (m.along if scan.inner else m.across)) * LOOKUP,
        latency=latency,
        exchange=exchange,
        epilogue_us=latencies.dram_ns / 1e3,
        start=start,
    )


def _preference(scan: ScanSpace, timed: Timed[ScanMapping], _: DeviceInfo) -> tuple[object, ...]:
    """Fewest blocks that share a scan; of columns one that loads ahead, since the compiler does not have many tested loads on
    their way at once; whose threads all have work, with the longest runs of memory."""
    m = timed[1]
    along = ceil_div(scan.length, m.vector if scan.inner else 1)
    idle = steps_of(scan, m) * m.along * m.batch * m.sharing - along if scan.inner else 0
    run = m.vector * (m.along if scan.inner else m.across)
    return m.sharing, m.prefetch is scan.inner, idle, -run, -m.threads, -m.batch, m


def _words(scan: ScanSpace, m: ScanMapping) -> str:
    """A mapping in words."""
    what = "row" if scan.inner else "column"
    words = [f"{m.along} threads a {what} with {m.batch} accesses of {m.vector} each", f"{m.across} beside"]
    words += [f"a cluster of {m.sharing} blocks"] if m.sharing > 1 else []
    words += ["loads ahead"] if m.prefetch else []
    return ", ".join(words)


SCANS = MappingSearch(
    mappings=scan_mappings,
    work_of=scan_work_of,
    preference=_preference,
    heading=lambda s: (f"{s.kept} scans of {s.length} elements, in accesses of {s.vector}",),
    words=_words,
)
