"""How long rows that several blocks share take to scan, and the shape of least time.

A block goes over its part in steps. In each it waits for memory, scans, and waits for the other blocks of its cluster, one
after the other; what hides that is the other blocks of its processor. Processors lie in groups, and a cluster in one of
them, so that large clusters leave some without work, and the next one starts only when all of its blocks have a place:

    time = bytes / bandwidth * unevenness + rounds * (start of a cluster + waits * latency + steps * exchanges)

    unevenness   load imbalance: blocks on the busiest SM / mean; what that exceeds 1 by is divided by the resident blocks of an
                 SM, since an SM with more blocks gets a larger share of the bandwidth
    rounds       clusters / clusters that are resident at once, as registers allow; not rounded up, because blocks of a later
                 round start as soon as others end
    waits        one per step, for its loads; a single one if the next step's loads are prefetched

H200, us, measured and as this says with a kernel that does nothing, for (threads, accesses, blocks), a for ahead: bf16
105x250003 (512, 4, 2) 56.5, 59; (256, 8, 2) 44.3, 48; (256, 8, 4) 45.1, 44; (512, 4, 16) 41.4, 46; (256, 2, 4) 47.3, 61, a
40.2, 40; bf16 93x50257 (512, 4, 4) 15.3, 11; (256, 4, 8) 14.0, 11; f32 3x250003 (512, 4, 16) 10.1, 9.8; (512, 8, 16) 8.5, 7.9;
f32 22x128256 (256, 8, 16) 12.1, 11.3; (512, 8, 8) 12.0, 13; f64 47x50257 (256, 4, 8) 21.2, 21; (256, 8, 16) 18.8, 18; (512, 4,
8) 23.3, 19; f64 12x128256 (256, 8, 16) 15.1, 15; (512, 8, 8) 16.2, 13; f64 88x50257 (256, 4, 4) 32.0, 35, a 28.7, 26; f64
177x250003 (256, 8, 8) 237, 264, a (256, 4, 2) 212, 209.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.schedule.cost.occupancy import granted_registers

OWN_REGISTERS = 24
STEP_REGISTERS = {2: 1.6, 4: 2.4, 8: 2.5}
ONCE_REGISTERS = {2: 1.1, 4: 1.25, 8: 1.75}
"""Registers of a thread, and for each word of four bytes that it scans in one of several steps, and in the only one, by the
bytes of an element: sums up to it and parts of what was read (as ptxas chooses them for 16 to 64 words)."""
THREADS = (256, 512, 1024)
"""Of a block."""
MOST_WORDS = 64
"""That a thread holds."""
LEAST_AHEAD = 6
"""Steps from which on one is loaded ahead: what the first and the last gain is little."""


@record
class ScanClusterShape:
    """threads       of a block
    accesses      of a thread in a step
    blocks        that share a row
    ahead         what a step needs is loaded while the one before it computes
    time_us       predicted time
    """

    threads: int
    accesses: int
    blocks: int
    ahead: bool
    time_us: float


@record
class ClusterScanRows:
    """Rows that the blocks of a cluster share, for a scan.

    accesses   of a row, of `vector` elements each
    itemsize   bytes of the widest element
    nbytes     bytes read and written in all
    live       values per element that a thread keeps while it scans one of them
    """

    rows: int
    accesses: int
    vector: int
    itemsize: int
    nbytes: int
    live: int = 1

    @property
    def words(self) -> int:
        """Registers that an access takes as it is scanned."""
        return self.vector * max(1, self.itemsize // 4) * self.live


def choose_scan_cluster(rows: ClusterScanRows, device: DeviceInfo) -> ScanClusterShape | None:
    """The fastest shape (of equals, the one with fewest accesses per thread) among those with enough blocks to fill all SMs, or
    among those with most blocks if none has. None if no shape fits."""
    shapes = list(_shapes(rows, device))
    enough = [s for s in shapes if rows.rows * s.blocks >= device.sm_count] or [
        s for s in shapes if s.blocks == max(o.blocks for o in shapes)
    ]
    return min(enough, key=lambda s: (round(s.time_us, 1), s.threads > 512, s.accesses, s.threads), default=None)


def block_time(rows: ClusterScanRows, threads: int, accesses: int, device: DeviceInfo) -> float:
    """Microseconds if each row has one block."""
    places = device.max_threads_per_sm // threads
    blocks = tuple(device.sm_count * resident for resident in range(places + 1))
    return _microseconds(rows, threads, accesses, 1, blocks, ahead=False, device=device) - device.cluster_start


def _shapes(rows: ClusterScanRows, device: DeviceInfo) -> Iterator[ScanClusterShape]:
    for blocks in (2, 4, 8, 16):
        clusters = device.clusters_by_residency(blocks, device.max_threads_per_sm // min(THREADS))
        for threads in THREADS:
            for accesses in (1, 2, 4, 8):
                if blocks > device.max_cluster or threads > device.max_threads_per_block:
                    continue
                if accesses > 1 and rows.words * accesses > MOST_WORDS:
                    continue
                for ahead in (False, True):
                    us = _microseconds(rows, threads, accesses, blocks, clusters, ahead=ahead, device=device)
                    yield ScanClusterShape(threads, accesses, blocks, ahead, us)


def _microseconds(
    rows: ClusterScanRows,
    threads: int,
    held: int,
    blocks: int,
    clusters: tuple[int, ...],
    *,
    ahead: bool,
    device: DeviceInfo,
) -> float:
    """`clusters`: how many are there at once, by the blocks for which an SM has room."""
    steps = -(-rows.accesses // (threads * held * blocks))
    each = (ONCE_REGISTERS if steps == 1 else STEP_REGISTERS)[max(2, min(8, rows.itemsize))]
    ahead_words = rows.vector * rows.itemsize // 4 * held if ahead else 0
    registers = granted_registers(round(OWN_REGISTERS + each * rows.words * held + ahead_words))
    resident = min(device.registers_per_sm // (registers * threads), device.max_threads_per_sm // threads)
    at_once = clusters[resident]
    # What is loaded ahead by some blocks while others wait for a place gains nothing.
    if not at_once or (ahead and (steps < LEAST_AHEAD or rows.rows > at_once)):
        return math.inf
    # No rows take what one does.
    share = max(1, rows.rows) * blocks / device.sm_count
    # So many of the SMs move all that memory can.
    busy = device.memory_rate / (device.sm_rate * device.sm_count)
    uneven = -(-rows.rows * blocks // device.sm_count) / share if share >= 1 else max(1.0, busy / share)
    moved = rows.nbytes / device.memory_rate * (1 + (uneven - 1) / max(1, min(resident, share)))
    waiting = (1 if ahead else steps) * device.latencies.dram_loaded_ns / 1e3
    # Exchanges of a block and of a cluster, in which each block waits for the one before it only.
    exchanging = steps * (device.block_exchange + device.latencies.cluster_ns / 1e3)
    return moved + max(1.0, rows.rows / at_once) * (device.cluster_start + waiting + exchanging)
