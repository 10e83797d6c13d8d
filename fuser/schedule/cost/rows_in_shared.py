"""Rows in shared memory: inner-persistent schedules whose rows are copied there asynchronously, and read by each stage.

Loops, with the names of `inner_persistent`, G blocks that go over the rows, and U accesses that are unrolled:

    G -> grid_x, K/G serial, R/(v*tx*B*C) = 1, C -> grid_y, B/U serial, U unrolled, tx -> block_x, v -> vector

Nothing of a row stays in registers between stages, so that threads are small and shared memory, not registers, says how many
blocks an SM holds. Each thread copies what it reads itself: no barrier stands between copy and reads. Where blocks go over the
rows, each copies the next row, access by access, behind the last read of this one: the load overlaps with the last stage and
its stores. That is never proposed: blocks that are handed out one by one share an SM's time better (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.scratch_budget import BESIDE_ROW
from fuser.schedule.params import InnerPersistentParams

REGISTERS = 40
"""Registers of a thread, about: an access, its elements on their way through the arithmetic, statistics, addresses."""

WANTED_IN_FLIGHT = 2.15
"""Bytes per SM from which more do not help, over those that keep memory busy, because stages and stores take turns."""

WANTED_THREADS = 512
"""Threads per SM that keep its instruction pipes busy."""

HIDING_THREADS = 1536
"""Threads per SM that hide the latency of what is read beside the row, weights say."""

ALONE = 0.85
"""What each further exchange leaves of the speed of a block that has its SM to itself: nothing is loaded meanwhile."""

CLUSTER = 0.9
"""What rows over two blocks cost: both have to be there, and wait for each other."""

CLUSTER_STEP = 0.96
"""What each further doubling of a cluster costs."""

ACCESSES = 8
"""Accesses of a thread that are best where nothing else decides."""

FEW_ACCESSES = (0.6, 0.7, 0.9)
"""What blocks get done whose threads have one, two or three accesses: most of their time goes into exchanges."""


@record
class SharedShape:
    """How a row is spread: over `cluster` blocks, `threads` of each along it, `batch` accesses of a thread; `resident` blocks
    share an SM and hold `in_flight` bytes."""

    threads: int
    batch: int
    cluster: int
    resident: int
    in_flight: int


def choose_shared_shape(
    length: int,
    vector: int,
    loaded: int,
    exchanges: int,
    device: DeviceInfo,
    *,
    reads_beside: bool = False,
) -> SharedShape | None:
    """The spread of rows of `length` elements, `loaded` bytes read for each; None if no cluster holds a row.

    exchanges      how often the threads of a row have to wait for one another
    reads_beside   whether the elements of a row need others that all rows share
    """
    wanted = HIDING_THREADS if reads_beside else WANTED_THREADS
    best: tuple[tuple[float, ...], SharedShape] | None = None
    for cluster in (1, 2, 4, 8, 16):
        if cluster > device.max_cluster or length < cluster * vector * WARP:
            break
        accesses = math.ceil(length / (vector * cluster))
        for threads in (32, 64, 128, 256, 512, 1024):
            batch = -(-accesses // threads)
            found = _shared_shape(threads, batch, cluster, vector * loaded, device)
            if found is None or accesses < threads:
                continue
            used = accesses / (threads * batch)
            score = min(found.in_flight * used, WANTED_IN_FLIGHT * device.bytes_in_flight) * used
            score *= min(1.0, found.resident * threads / wanted)
            if found.resident == 1:
                score *= ALONE ** (exchanges - 1)
            if cluster > 1:
                score *= CLUSTER * CLUSTER_STEP ** (cluster.bit_length() - 2)
            if batch <= len(FEW_ACCESSES):
                score *= FEW_ACCESSES[batch - 1]
            key = score, -abs(math.log2(batch / ACCESSES))
            if best is None or key > best[0]:
                best = key, found
    return None if best is None else best[1]


def _shared_shape(threads: int, batch: int, cluster: int, access_bytes: int, device: DeviceInfo) -> SharedShape | None:
    held = threads * batch * access_bytes
    if held + BESIDE_ROW > device.shared_per_block_optin or threads > device.max_threads_per_block:
        return None
    resident = min(
        device.shared_per_sm // (held + BESIDE_ROW),
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (REGISTERS * threads),
        device.max_blocks_per_sm,
    )
    return SharedShape(threads, batch, cluster, resident, resident * held) if resident else None


def params_in_shared(
    shape: SharedShape,
    order: tuple[int, ...],
    vector: int,
    vectorized: tuple[str, ...],
    bounds: tuple[tuple[str, int, int, int], ...],
    in_shared: tuple[str, ...],
    length: int,
    *,
    one_pass: bool,
) -> InnerPersistentParams:
    """The parameters for a shape, with reasons."""
    return InnerPersistentParams(
        order,
        shape.threads,
        1,
        shape.batch,
        vector,
        vectorized,
        bounds,
        shape.cluster,
        True,
        in_shared,
        one_pass=one_pass,
        reasons=(
            f"a row of {length} elements lies in the shared memory of {shape.cluster} blocks of {shape.threads} threads, "
            f"{shape.batch} accesses of {vector} each",
            f"{shape.resident} blocks and {shape.in_flight} bytes of rows per SM",
        ),
    )
