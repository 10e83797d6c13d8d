"""How a row that registers hold is spread over threads and blocks: shapes, and which of them suits how many rows.

Registers are counted as bytes kept an element, and a few beside them for addresses, statistics and temporaries. Few rows are
judged by time (`rows_at_once`), many by the bytes that are on their way to each processor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fuser.ir.device_info import LINE_BYTES, REGISTER_STEP, WARP, DeviceInfo
from fuser.runtime.variants import rung_of
from fuser.schedule.cost.co_resident_rows import co_resident_shapes
from fuser.schedule.params import Refused

REGISTERS_FOR_ADDRESSES = 32
"""Registers of a thread beside the row: addresses, the row's statistics, temporaries."""
REGISTERS_FOR_DOUBLES = 48
"""As many more where rows are Doubles, whose quotients, roots and statistics take twice the registers and longer code."""


class RowShape(NamedTuple):
    """How a row is spread: over `cluster` blocks, `threads` of each along it, `batch` accesses of `vector` elements each;
    `rows` per block. A tuple: hundreds are made to choose one."""

    threads: int
    batch: int
    rows: int
    registers: int
    in_flight: int
    cluster: int = 1

    def is_crowded(self, vector: int, loaded: int, per_element: int, *, is_double: bool = False) -> bool:
        """Whether registers hold the row badly: blocks share it, or an SM holds one such block only, or many threads keep more
        than was loaded, or a few keep very much. What Doubles are allowed for their temporaries is not kept."""
        is_exclusive = self.in_flight < 2 * self.threads * self.rows * self.batch * vector * loaded
        keeps_more = per_element > loaded and self.threads > SMALL_BLOCK
        temporary = REGISTERS_FOR_DOUBLES if is_double and self.threads <= WARP else 0
        return is_exclusive or self.cluster > 1 or keeps_more or self.registers - temporary >= LARGE_THREAD


def choose_row_shape(
    length: int,
    rows: int,
    vector: int,
    per_element: int,
    loaded: int,
    itemsize: int,
    device: DeviceInfo,
    *,
    is_cut: bool = False,
    wanted: int = 0,
) -> RowShape | Refused:
    """The spread of a row over threads that keeps most bytes in flight, up to what the memory needs.

    length       elements of a row
    per_element  bytes kept per element
    loaded       bytes read per element of a row
    itemsize     bytes of an element of the narrowest row tensor
    is_cut       the ends of a row may cut its first and its last vector: each vector of a thread has code for both cases
    wanted       bytes that a thread had best load of a row; 0: BYTES_PER_THREAD
    """
    best: tuple[tuple[float, ...], RowShape] | None = None
    wanted = wanted or BYTES_PER_THREAD
    # Each row has a processor for itself, and what takes time is how long one waits, not how many bytes are on their way.
    is_few = rows <= device.sm_count and length <= FEW_ACCESSES * device.max_threads_per_block * vector
    for cluster in (1, 2, 4, 8, 16):
        if cluster > device.max_cluster or (cluster > 1 and length < cluster * vector * WARP):
            break
        accesses = math.ceil(length / (vector * cluster))
        # With fewer accesses a thread a block would have too many threads, with more some would have none.
        fewest = -(-accesses // device.max_threads_per_block)
        for batch in batches_of(accesses, fewest, min(MOST_CUT if is_cut else 64, accesses)):
            # Beside what is kept, a quarter of the row is on its way through the arithmetic: what would take the last register
            # spills. Of Doubles it is half the row: their exponentials and quotients are long. The vectors of a cut row go
            # through it one after another.
            moving = batch * vector * per_element // 8 if itemsize > 4 else batch * vector // 4
            moving = vector if is_cut else moving
            if batch * vector * per_element // 4 >= device.registers_per_thread:
                break
            shape = _row_shape(accesses, batch, cluster, rows, vector, per_element, loaded, itemsize, moving, device)
            if shape is None:
                continue
            found, resident = shape
            used = length / vector / (found.threads * batch * cluster)
            # Fewer bytes a thread mean more barriers per byte; more mean long bodies and few threads to hide latencies behind.
            distance = abs(math.log2(batch * vector * loaded / (vector * loaded if is_few else wanted)))
            alone = 1.0 if resident > 1 or is_few else ALONE
            score = (
                # Long cut rows: few blocks, and as many vectors a thread as may be, hide the tests and shifts of each best.
                *((-cluster, batch) if is_cut and length > MOST_CUT * WARP * vector else (0, 0)),
                (1 if is_few else min(found.in_flight * used, device.bytes_in_flight) * used)
                * alone
                * CLUSTER_STEP ** (cluster.bit_length() - 1),
                -distance,
                -found.threads,
            )
            if best is None or score > best[0]:
                best = score, found
    if best is None:
        return Refused(f"a row of {length} elements does not fit in the registers of a block or a cluster")
    return best[1]


def co_resident_row_shape(
    length: int,
    rows: int,
    vector: int,
    per_element: int,
    loaded: int,
    moved: int,
    exchanges: int,
    itemsize: int,
    device: DeviceInfo,
    beside: int = 0,
) -> RowShape | None:
    """The best shape of rows that are all worked on at once; None if there are too many, or none holds a row.

    exchanges   how often the threads of a row wait for one another
    beside      registers of a thread that its block must leave beside those that are counted; the others: see
                `choose_row_shape`
    """
    accesses = -(-length // vector)
    for shape in co_resident_shapes(accesses, vector * moved, exchanges, rows, device):
        mine, elements = -(-accesses // shape.cluster), shape.accesses * vector
        moving = elements * per_element // 8 if itemsize > 4 else elements // 4
        found = _row_shape(
            mine, shape.accesses, shape.cluster, rows, vector, per_element, loaded, itemsize, moving, device
        )
        if found is not None and (not beside or found[0].registers + beside <= rung_of(found[0].threads)[1]):
            return found[0]
    return None


def threads_for(accesses: int, batch: int) -> int:
    """Threads with `batch` accesses each: whole warps, or a part of one that divides it."""
    threads = -(-accesses // batch)
    return 1 << max(0, (threads - 1).bit_length()) if threads <= WARP else -(-threads // WARP) * WARP


def batches_of(accesses: int, fewest: int, most: int) -> Iterator[int]:
    """From `fewest` to `most` accesses of a thread, each time for fewer threads: of as many, some would have none."""
    batch = fewest
    while batch <= most:
        yield batch
        threads = threads_for(accesses, batch)
        if threads == 1:
            return
        fewer = threads - WARP if threads > WARP else threads // 2
        batch = -(-accesses // fewer)


def _row_shape(
    accesses: int,
    batch: int,
    cluster: int,
    rows: int,
    vector: int,
    per_element: int,
    loaded: int,
    itemsize: int,
    moving: int,
    device: DeviceInfo,
) -> tuple[RowShape, int] | None:
    """The spread of a block's `accesses` with `batch` a thread, and how many such blocks an SM holds; None if it holds none."""
    threads = threads_for(accesses, batch)
    # With a larger batch and the same threads, some accesses would be idle for every thread.
    if threads > device.max_threads_per_block or -(-accesses // threads) < batch:
        return None
    # The threads along a row read whole lines of memory at a time, unless they have all of a short row.
    if batch > 1 and threads < WARP and (vector == 1 or threads * vector * itemsize < LINE_BYTES):
        return None
    elements = batch * vector
    registers = REGISTERS_FOR_ADDRESSES + elements * per_element // 4 + (REGISTERS_FOR_DOUBLES if itemsize > 4 else 0)
    limit = device.registers_per_sm // (-(-threads // WARP) * WARP) // REGISTER_STEP * REGISTER_STEP
    if registers + moving >= min(device.registers_per_thread, limit):
        return None
    # A barrier holds up every row of a block: rows share one only where a row stays within a warp.
    per_block = 1 if threads > WARP else max(1, min(BLOCK // threads, rows // device.sm_count))
    per_block = 1 << (per_block.bit_length() - 1)
    warps = -(-threads * per_block // WARP)
    resident = min(
        device.max_threads_per_sm // (warps * WARP),
        device.registers_per_sm // (registers * warps * WARP),
        device.max_blocks_per_sm,
    )
    if resident < 1:
        return None
    in_flight = resident * warps * WARP * elements * loaded
    return RowShape(threads, batch, per_block, registers, in_flight, cluster), resident


FEW_ACCESSES = 2
"""Accesses of a thread up to which the threads of one block hold a row of which there are few."""

MOST_CUT = 8
"""Vectors of a thread that may be cut: the code for whole ones is there twice, with tests and without."""

LARGE_THREAD = 96
"""Registers of a thread from which on bodies are long, warps few, and the compiler soon spills (H200: layer_norm bf16
4096x40960 takes 232 us with 320 threads of 16 accesses, 179 in shared memory; log_softmax 8192x32000 451 and 259)."""

SMALL_BLOCK = 256
"""Threads of a block up to which registers hold a row well, even if they keep more than was loaded (H200: softmax of 16384
elements takes 73 us in registers, 69 in shared memory)."""

ALONE = 0.8
"""What a block without another one beside it on its SM gets done: nothing is loaded while it waits for its own row."""

CLUSTER_STEP = 0.97
"""What each doubling of a cluster costs: one exchange takes longer the more blocks take part."""

BLOCK = 128
"""Threads of a block whose rows need no barrier."""

BYTES_PER_THREAD = 64
"""Bytes of the row tensors that a thread loads: four accesses of 16 bytes were best on an H200 for rows of 1024 to 16384. Half
as many where each access is three: layer_norm bf16 3080x1000 at any address 10.8 us, 12.8 with eight of four elements."""
