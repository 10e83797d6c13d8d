"""Accesses of a row dealt to threads and blocks: all of them, and no thread has none."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fuser.ir.device_info import WARP
from fuser.schedule.cost.accesses_per_thread import candidate_batches, candidate_block_splits, even_unroll, threads_for
from fuser.schedule.cost.row_space import MAX_BATCH


@pytest.mark.parametrize("accesses", [1, 2, 7, 31, 33, 100, 1000, 5000])
def test_threads_hold_all_accesses(accesses: int) -> None:
    for batch in range(1, MAX_BATCH + 1):
        threads = threads_for(accesses, batch)
        assert threads * batch >= accesses
        assert threads % WARP == 0 or threads.bit_count() == 1
    found = list(candidate_batches(accesses, 1, MAX_BATCH))
    threads = [threads_for(accesses, b) for b in found]
    assert found[0] == 1
    assert all(a < b for a, b in pairwise(found))
    assert all(a > b for a, b in pairwise(threads)), "each time fewer"
    assert {threads_for(accesses, b) for b in range(1, MAX_BATCH + 1)} == set(threads), "none is left out"


@pytest.mark.parametrize("accesses", [1, 100, 513, 8192, 31251, 1 << 17])
@pytest.mark.parametrize("threads", [128, 1024])
@pytest.mark.parametrize("fewest", [1, 4, 7])
def test_spreads_are_all_that_leave_no_thread_idle(accesses: int, threads: int, fewest: int) -> None:
    expected: list[tuple[int, int]] = []
    for batch in range(fewest, 49):
        sharing = -(-accesses // (threads * batch))
        if sharing > 1 and -(-accesses // (threads * sharing)) == batch:
            expected.append((batch, sharing))
    assert list(candidate_block_splits(accesses, threads, fewest, 48)) == expected


def test_turns_are_even() -> None:
    for steps in range(1, 200):
        for most in (1, 2, 4, 8, 16):
            unroll = even_unroll(steps, most)
            assert 1 <= unroll <= most
            assert unroll * 2 > min(most, steps), "no more than twice as many turns"
