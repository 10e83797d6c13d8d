"""Shapes of rows in shared memory that begin at any address: peeled into vectors at the aligned places of their memory.

Threads whose accesses are all full test once for a group of them. Threads with an end of the row test each access, and go
through an end element by element. Few threads should have such groups: the row fills its threads nearly completely. Shared
operands, such as weights, have another phase than a row: a load takes three accesses in place of one, from the second-level
cache.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import SM_PARTITIONS, WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.analysis.alignment import RowAccesses
from fuser.schedule.cost.scratch_budget import BESIDE_ROW
from fuser.schedule.params import InnerPersistentParams

LEAST_BYTES, LEAST_BYTES_BESIDE = 16 * 1024, 32 * 1024
"""Bytes of a row from which it lies in shared memory, and the same where something is read beside it (H200, bf16 rows of 8193:
softmax 213 us, 254 in registers; layer_norm 290 us, 288 in registers; of 16385: 213 and 279, 275 and 324)."""

REGISTERS = 40
"""Registers of a thread."""

REGISTERS_BESIDE = 48
"""The same where it reads several rows of wider elements than 16 bits, or more than `MOST_SHARED` bytes for a vector beside
them (gradient of softmax f32 13x128256 at any address spills in forty). One row in one pass beside Floats does without."""

LEAST_REGISTERS_BESIDE = 72
"""Registers that ptxas must be able to give where anything is read beside a row (layer_norm bf16 5x1000003 in blocks of
992 threads, with 64 each, spills twelve bytes)."""

REGISTERS_FOR_DOUBLES = 48
"""As many more for elements of eight bytes."""

WANTED_THREADS = 832
WANTED_THREADS_BESIDE = 1280
"""Threads of an SM that keep its pipes busy, and those that hide the latency of what is read beside a row (H200: gradient of
softmax and layer_norm of 50257 elements)."""

WANTED_THREADS_WIDE = 1152
"""The same where that is more than twice a row's: it is the first-level cache that they wait for (H200:
layer_norm f16 536x250003 beside Floats in 1280 threads over sixteen blocks 253 us, in 1152 over eight 232)."""

CROWDED = 1 / 3
"""Power of the threads beyond those by which that cache serves them worse where rows leave it little of the memory that it
shares with them (the same in 1536 threads over eight 255 us; bf16 42x250003 in 1344 threads 27.2, in 1152 26.4)."""

WANTED_IN_FLIGHT = 3.6
"""Bytes of rows on an SM, over those that keep memory busy: loading, exchanging and storing take turns (H200: softmax and its
gradient at 50257 elements)."""

CLUSTER = {2: 0.95, 4: 0.9, 8: 0.87, 16: 0.8}
"""What blocks get done that share a row with others: all have to be there, and wait for each other."""
SHORT_BYTES = 64 * 1024
"""Bytes of a row for which those figures hold, or more."""

ALL_WAIT = 3.0
"""What exchanges of rows take longer that are all there at once: nothing else is done meanwhile (H200: rms_norm bf16 83x50257
padded over four blocks 14.5 us, over two 15.5; f32 26x50257 over eight 10.8, over four 11.8)."""

MOST_SHARED = 16
"""Bytes beside a row, for a vector, that registers take well."""

TESTED = 0.4
"""What threads take longer that test each access of a group, some of which are left out."""

AT_ONCE = {1: 0.96, 2: 1.0, 3: 0.96}
"""What threads get done that test so many accesses together."""

FUNNEL_SHIFTED_AT_ONCE = {1: 0.92, 2: 1.0, 3: 0.96}
"""The same where rows pass through registers on their way to shared memory: each access is waited for before the next (H200:
rms_norm bf16 83x50257 padded, 416 threads with two together 14.1 us, 480 with accesses of their own 15.2, 224 with three 15.7;
gradient of softmax 287x250003 with other pitches, 512 threads 175.6 with two together, 186.1 one by one)."""

WANTED_THREADS_FUNNEL_SHIFTED = 1536
"""Threads of an SM that keep loads of such rows on their way (H200: that gradient in 1056 threads of an SM 186.2 us)."""

ALONE = 0.8
"""What a block gets done that has its SM to itself."""

SHARED = 0.4
"""Time for each byte that is read beside a row, out of the second-level cache, over that for a byte of the row."""


FEW_WAVES = 4
"""Waves of blocks up to which it shows that the last one is not full."""


@record
class PeeledShape:
    """How a row is spread: over `cluster` blocks of `threads` threads with `batch` accesses each. So many blocks are
    `resident` on an SM."""

    threads: int
    batch: int
    cluster: int
    resident: int
    in_flight: int


def peeled_unrolled(batch: int) -> int:
    """Accesses of a thread that are tested together: more of them, and more threads test each by itself."""
    return 2 if batch % 2 == 0 else 3 if batch % 3 == 0 else 1


def choose_peeled_shape(
    length: int,
    rows: int,
    vector: int,
    loaded: int,
    beside: int,
    exchanges: int,
    itemsize: int,
    device: DeviceInfo,
    *,
    is_funnel_shifted: bool = False,
) -> PeeledShape | None:
    """The spread of rows of `length` elements, what the first part of a row lacks included; None if no cluster holds one.

    loaded      bytes of a row's elements that are read
    beside      bytes that all rows share, for each element
    exchanges   how often the threads of a row have to wait for one another
    itemsize    bytes of an element of the narrowest row tensor
    is_funnel_shifted  whether rows begin elsewhere than their vectors, and pass through registers
    """
    vectors = -(-length // vector)
    is_wide = beside > 2 * loaded
    more = REGISTERS_FOR_DOUBLES if itemsize > 4 else 0
    wanted = WANTED_THREADS_WIDE if is_wide else WANTED_THREADS_BESIDE if beside else WANTED_THREADS
    wanted = WANTED_THREADS_FUNNEL_SHIFTED if is_funnel_shifted else wanted
    # Few rows leave places of an SM empty (H200: layer_norm f16 21x250003 off by one beside Floats over sixteen blocks of 256
    # threads, room for six on an SM, 22.9 us, of 512 with room for three 19.6). Not counted for Doubles.
    counts = itemsize <= 4
    spreads: list[_Spread] = []
    for cluster in (1, 2, 4, 8, 16):
        if cluster > device.max_cluster or vectors < cluster * 2 * WARP:
            break
        spreads.append(_spread(cluster, vectors, rows, vector, loaded, beside, device))
    at_once = FUNNEL_SHIFTED_AT_ONCE if is_funnel_shifted else AT_ONCE
    # What may be best first: it spares the others. Of equals the one with fewer blocks, and rows at once, is taken.
    best: tuple[tuple[float, int], PeeledShape] | None = None
    for spread in sorted(spreads, key=lambda s: -s.most):
        least = 0.0 if best is None else best[0][0]
        if spread.most < least:
            break
        cluster = spread.cluster
        holds_more = loaded > itemsize >= 4 or (beside * vector > MOST_SHARED and not (is_wide and exchanges == 1))
        registers = (REGISTERS_BESIDE if holds_more else REGISTERS) + more
        for batch in range(max(2, -(-vectors // (cluster * device.max_threads_per_block))), 33):
            threads = -(-vectors // (cluster * batch * WARP)) * WARP
            used = vectors / (threads * batch * cluster)
            # As `_score` would find.
            if spread.most * used < least or (beside and threads * LEAST_REGISTERS_BESIDE > device.registers_per_sm):
                continue
            held = threads * batch * vector * loaded
            resident = _resident(threads, held, registers, device)
            if not resident:
                continue
            score = _score(
                spread, threads, batch, resident, held, vectors, used, exchanges, wanted, least, counts=counts
            )
            present = min(resident, math.ceil(spread.each))
            if is_wide and present * held >= spread.wanted_bytes:
                score /= max(1.0, present * threads / wanted) ** CROWDED
            key = score * at_once[peeled_unrolled(batch)], -cluster
            if best is None or key > best[0]:
                best = key, PeeledShape(threads, batch, cluster, resident, resident * held)
                least = key[0]
    return None if best is None else best[1]


def peeled_params(
    shape: PeeledShape,
    order: tuple[int, ...],
    accesses: RowAccesses,
    bounds: tuple[tuple[str, int, int, int], ...],
    in_shared: tuple[str, ...],
    funnel_shifted: tuple[str, ...],
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
        accesses.vector,
        accesses.vectorized,
        bounds,
        shape.cluster,
        True,
        in_shared,
        misaligned=accesses.misaligned,
        aligned_to=accesses.aligned_to,
        one_pass=one_pass,
        resident=shape.resident,
        funnel_shifted=funnel_shifted,
        reasons=(
            f"a row of {length} elements lies in the shared memory of {shape.cluster} blocks of {shape.threads} threads, "
            f"{shape.batch} accesses of {accesses.vector} each"
            + (f", cut where {accesses.aligned_to} is aligned" if accesses.aligned_to else ""),
            f"{shape.resident} blocks and {shape.in_flight} bytes of rows per SM",
        ),
    )


def _resident(threads: int, held: int, registers: int, device: DeviceInfo) -> int:
    """Blocks of `threads` with `held` bytes of rows each that an SM holds."""
    if held + BESIDE_ROW > device.shared_per_block_optin or threads > device.max_threads_per_block:
        return 0
    warps = -(-threads // (WARP * SM_PARTITIONS)) * SM_PARTITIONS
    return min(
        device.shared_per_sm // (held + BESIDE_ROW),
        device.max_threads_per_sm // (warps * WARP),
        device.registers_per_sm // (registers * warps * WARP),
        device.max_blocks_per_sm,
    )


@record
class _Spread:
    """Rows over so many blocks each, so many of them at once.

    most     speed if all else is at its best
    places   SMs on which such clusters find room
    each     blocks for each of those
    is_lone  whether each block has an SM for itself, however many find room there
    waits    what blocks take longer than one by itself
    rows     how many there are
    wanted_bytes  bytes of rows that should be on an SM
    """

    cluster: int
    most: float
    places: float
    each: float
    is_lone: bool
    waits: float
    rows: int
    wanted_bytes: float


def _spread(
    cluster: int, vectors: int, rows: int, vector: int, loaded: int, beside: int, device: DeviceInfo
) -> _Spread:
    waits = _waits(cluster, vectors * vector * loaded)
    most = 1.0 / (1.0 + waits) / (1.0 + SHARED * beside / loaded / 2)
    places = device.sm_count * device.clustered(cluster)
    is_lone = rows <= int(places) // cluster
    if is_lone:
        most *= _busy(rows, cluster, 1, places)
    wanted = WANTED_IN_FLIGHT * device.bytes_in_flight
    return _Spread(cluster, most, places, rows * cluster / places, is_lone, waits, rows, wanted)


def _busy(rows: int, cluster: int, resident: int, places: float) -> float:
    """How much of the device has something to do, with so many blocks `resident` on an SM."""
    slots = resident * int(places) // cluster
    waves = rows / max(slots, 1)
    if waves <= 1:
        # All blocks are there at once: the SM with most of them is done last.
        each = rows * cluster / places
        return each / math.ceil(each)
    return 1.0 if waves >= FEW_WAVES else waves / math.ceil(waves)


def _waits(cluster: int, nbytes: int) -> float:
    """What blocks of a cluster take longer than one by itself: an exchange takes its time however short a row is."""
    return (1.0 / CLUSTER.get(cluster, 1.0) - 1.0) * max(1.0, SHORT_BYTES / nbytes)


def _score(
    spread: _Spread,
    threads: int,
    batch: int,
    resident: int,
    held: int,
    vectors: int,
    used: float,
    exchanges: int,
    wanted: int,
    least: float,
    *,
    counts: bool,
) -> float:
    """Speed, as a share of what memory allows; 0 where it is less than `least` whatever the rest says.

    held     bytes of rows of a block
    used     the part of the accesses of its threads that are inside the row
    """
    cluster = spread.cluster
    each = spread.each
    present = min(resident, each) if counts else resident
    score = spread.most * used * min(present * held * used, spread.wanted_bytes) / spread.wanted_bytes
    is_all_there = counts and each <= resident
    enough = min(1.0, math.ceil(present) * threads / wanted)
    # Where all rows are there at once it is how long one takes that counts, more than what an SM gets done (H200: layer_norm
    # f16 61x50257 over two blocks of 640 threads 12.4 us, over eight of 224 14.1).
    score *= math.sqrt(enough) if is_all_there else enough
    if score < least:
        return 0.0
    score /= 1.0 + TESTED * _tested(threads, batch, cluster, vectors) / (threads * cluster)
    if resident == 1:
        score *= ALONE**exchanges
    if is_all_there:
        score *= (1.0 + spread.waits) / (1.0 + spread.waits * ALL_WAIT)
    if spread.is_lone:
        return score
    return score * _busy(spread.rows, cluster, resident, spread.places)


def _tested(threads: int, batch: int, cluster: int, vectors: int) -> float:
    """Threads, summed over the blocks of a row, that test all of their accesses in a group, as a share of all groups."""
    at_once = peeled_unrolled(batch)
    groups = batch // at_once
    # Of all groups of all blocks one has the last vector: those before it are whole, those behind it empty.
    block, left = divmod(vectors, threads * batch)
    left = left % (at_once * threads) if block < cluster else 0
    some = min(left, threads)
    whole = max(left - (at_once - 1) * threads, 0)
    return (some - whole) / groups
