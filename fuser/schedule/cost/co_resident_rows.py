"""Co-resident rows without statistics, so few that each has SMs for itself: latency-bound, time is what a thread waits for.

Such a row is spread over the blocks of a cluster, which exchange what they have, as long as the clusters of all rows are
co-resident. Times are microseconds beyond those of an empty kernel; they only have to rank two shapes (H200: layer_norm of ten
rows of 1024: 4.7 us in one block each, 5.8 in eight; rms_norm of 58 rows of 1000 4.3, in two 5.3).
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.records import record

CLUSTERS = (1, 2, 4, 8, 16)
"""Blocks of a row."""

OF_THREAD = 1.25
"""Cycles that a thread of a block adds: more warps are started, and have more to join (rms_norm of one row of 3072: 5.0 us with
768 threads, 4.7 with 256 of three accesses)."""

OF_ACCESS = 1 / 3
"""Of what memory takes to answer, what the second access of a thread adds; the third adds twice as much, and so on."""

MOST_ACCESSES = 3
"""With four, a row of Float of 250003 elements takes 14.8 us in a cluster, and 11.6 over a group of the grid."""


@record
class CoResidentShape:
    """`accesses` of each of `threads` threads of the `cluster` blocks that share a row."""

    threads: int
    accesses: int
    cluster: int


def co_resident_shapes(
    accesses: int, bytes_per_access: int, exchanges: int, rows: int, device: DeviceInfo
) -> list[CoResidentShape]:
    """Shapes of `rows` rows of `accesses` each, whose threads wait for one another `exchanges` times, the best first; none if
    not all rows can be worked on at once."""
    found: list[tuple[float, CoResidentShape]] = []
    for cluster in CLUSTERS:
        if rows > device.clusters(cluster):
            break
        exchange = device.block_exchange + device.cluster_exchange(cluster) if cluster > 1 else 0.0
        mine = -(-accesses // cluster)
        if cluster > 1 and mine < device.warp_size:
            break
        for each in range(1, MOST_ACCESSES + 1):
            threads = -(-mine // each)
            threads = -(-threads // device.warp_size) * device.warp_size
            if threads > device.max_threads_per_block or -(-mine // threads) < each:
                continue
            behind = OF_ACCESS * device.latencies.dram_ns / 1e3 * each * (each - 1) / 2
            waiting = OF_THREAD * threads * device.cycle + behind + exchanges * exchange
            moving = mine * bytes_per_access / device.sm_rate
            found.append((waiting + moving, CoResidentShape(threads, each, cluster)))
    return [shape for _, shape in sorted(found, key=lambda f: f[0])]
