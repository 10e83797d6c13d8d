"""Rows without statistics of which there are so few that each has processors for itself: what takes time is how long a thread
waits.

Such a row is spread over the blocks of a cluster, which tell each other what they have, as long as clusters of all rows run at
once. The times below are microseconds beyond what a kernel takes that does nothing, fitted to an H200; all that matters is
which of two shapes is better.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.schedule.cost.rows_over_grid import CLUSTERED, SM_RATE

CLUSTER = {1: 0.0, 2: 0.6, 4: 0.65, 8: 0.7, 16: 1.04}
"""What each exchange of the blocks of a cluster takes (layer_norm of ten rows of 1024: 4.7 us in one block each, 5.8 in eight;
rms_norm of 58 rows of 1000 4.3, in two 5.3)."""

THREAD = 0.0007
"""A thread of a block: more warps are started, and have more to join (rms_norm of one row of 3072: 5.0 us with 768 threads,
4.7 with 256 of three accesses)."""

ACCESS = 0.15
"""The second access of a thread; the third takes twice as long, and so on."""

MOST_ACCESSES = 3
"""With four, a row of Float of 250003 elements takes 14.8 us in a cluster, and 11.6 over a group of the grid."""


@record
class ShapeAtOnce:
    """`accesses` of each of `threads` threads of the `cluster` blocks that share a row."""

    threads: int
    accesses: int
    cluster: int


def shapes_at_once(
    accesses: int, bytes_per_access: int, exchanges: int, rows: int, device: DeviceInfo
) -> list[ShapeAtOnce]:
    """Shapes of `rows` rows of `accesses` each, whose threads wait for one another `exchanges` times, the best first; none if
    not all rows can be worked on at once."""
    found: list[tuple[float, ShapeAtOnce]] = []
    for cluster, exchange in CLUSTER.items():
        if cluster > device.max_cluster or rows * cluster > device.sm_count * CLUSTERED[cluster]:
            break
        mine = -(-accesses // cluster)
        if cluster > 1 and mine < device.warp_size:
            break
        for each in range(1, MOST_ACCESSES + 1):
            threads = -(-mine // each)
            threads = -(-threads // device.warp_size) * device.warp_size
            if threads > device.max_threads_per_block or -(-mine // threads) < each:
                continue
            waiting = THREAD * threads + ACCESS * each * (each - 1) / 2 + exchanges * exchange
            moving = mine * bytes_per_access / SM_RATE
            found.append((waiting + moving, ShapeAtOnce(threads, each, cluster)))
    return [shape for _, shape in sorted(found, key=lambda f: f[0])]
