"""How the accesses of a row are distributed over threads and blocks, without idle threads."""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.device_info import WARP


def threads_for(accesses: int, batch: int) -> int:
    """Threads with `batch` accesses each: whole warps, or a part of one that divides it."""
    threads = -(-accesses // batch)
    return 1 << max(0, (threads - 1).bit_length()) if threads <= WARP else -(-threads // WARP) * WARP


def candidate_batches(accesses: int, fewest: int, most: int) -> Iterator[int]:
    """Candidate numbers of accesses per thread, from `fewest` to `most`, without those that only leave threads idle."""
    batch = fewest
    while batch <= most:
        yield batch
        threads = threads_for(accesses, batch)
        if threads == 1:
            return
        fewer = threads - WARP if threads > WARP else threads // 2
        batch = -(-accesses // fewer)


def candidate_block_splits(accesses: int, threads: int, fewest: int, most: int) -> Iterator[tuple[int, int]]:
    """(accesses per thread, blocks per row) for blocks of `threads`: `fewest` to `most` accesses, at least two blocks, each
    candidate with fewer blocks than the one before it (as many blocks with more accesses would leave threads idle)."""
    batch = fewest
    while batch <= most:
        sharing = -(-accesses // (threads * batch))
        if sharing < 2:
            return
        if batch > fewest or -(-accesses // (threads * sharing)) == batch:
            yield batch, sharing
        batch = -(-accesses // (threads * (sharing - 1)))


def even_unroll(steps: int, most: int) -> int:
    """Unroll factor for a thread with `steps` accesses: all of them, or the one that wastes fewest in the last iteration.

    Even numbers above two, so that rows of nearly equal length share a kernel, at the cost of an access that some threads skip.
    """
    if steps <= most:
        return max(1, min(most, steps + steps % 2 if steps > 2 else steps))
    return min(range(most, most // 2, -1), key=lambda u: (-(-steps // u) * u - steps) * 8 // steps)
