"""How the accesses of a row are dealt to threads and blocks: no thread has none, and none has more than it need have."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.device_info import WARP


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


def spreads_of(accesses: int, threads: int, fewest: int, most: int) -> Iterator[tuple[int, int]]:
    """From `fewest` to `most` accesses of a thread and the blocks of as many `threads` they make, two or more. Each time
    fewer blocks: with as many and more accesses a thread, threads would be idle."""
    batch = fewest
    while batch <= most:
        sharing = -(-accesses // (threads * batch))
        if sharing < 2:
            return
        if batch > fewest or -(-accesses // (threads * sharing)) == batch:
            yield batch, sharing
        batch = -(-accesses // (threads * (sharing - 1)))
