"""Reads that are complete before a store: behind barriers on every way, and behind waits for copies."""

from __future__ import annotations

from fuser.ir.integers.integers import ONE, ZERO, less, symbol
from fuser.ir.kernel.kernel import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    BlockBarrier,
    For,
    If,
    VectorMove,
)
from fuser.lowering.memory.read_completion import is_read_complete_before_writes
from tests.lowering.memory.kernel_bodies import BLOCK, HELD, OWN, PLACE, ROW, ROWS, X, Y, allowed, loop, read, write


def test_barriers_on_every_way() -> None:
    first, n = 4 * BLOCK, symbol("n", 0)
    inside = less(BLOCK, n)
    assert not allowed(read(first), If(inside, (BlockBarrier(),)), write(OWN))
    assert allowed(read(first), If(inside, (BlockBarrier(),), (BlockBarrier(),)), write(OWN))
    assert not allowed(read(first), For(ROWS, ZERO, n, ONE, (BlockBarrier(),)), write(OWN)), "it may not run"
    assert allowed(read(first), loop("k", 3, BlockBarrier()), write(OWN))


def test_copies_read_until_they_are_waited_for() -> None:
    four = 4 * OWN
    start, done = AsyncCopy(ROW, 4 * PLACE, X, four, 4), AsyncWait(0)
    stored = VectorMove(Y, four, HELD, ZERO, 4)
    assert allowed(start, AsyncCommit(), done, stored)
    assert not allowed(start, AsyncCommit(), stored, done)
    assert not allowed(start, AsyncCommit(), AsyncWait(1), stored, done), "the wait leaves out the last group"
    assert not allowed(start, done, AsyncCommit(), stored), "it is no group yet"
    assert allowed(start, AsyncCommit(), AsyncCommit(), AsyncWait(1), stored)
    # Another thread's copy: waited for, and a barrier behind that.
    other = AsyncCopy(ROW, 4 * PLACE, X, 16 * BLOCK, 4)
    assert not allowed(other, AsyncCommit(), BlockBarrier(), done, stored)
    assert allowed(other, AsyncCommit(), done, BlockBarrier(), stored)
    # The next row is copied while this one is written.
    at = 32 * ROWS + four
    ahead = If(less(ROWS + 1, 3), (AsyncCopy(ROW, 4 * PLACE, X, at + 32, 4),))
    first = (AsyncCopy(ROW, 4 * PLACE, X, four, 4), AsyncCommit())
    stored = VectorMove(Y, at, HELD, ZERO, 4)
    assert allowed(*first, loop("", 3, AsyncWait(0), ahead, AsyncCommit(), stored, i=ROWS))
    assert not allowed(*first, loop("", 3, ahead, AsyncCommit(), stored, AsyncWait(1), i=ROWS))
    assert not allowed(*first, AsyncWait(0), loop("", 3, ahead, AsyncCommit(), stored, i=ROWS))
    assert not allowed(*first, AsyncWait(0), loop("", 3, stored, ahead, AsyncCommit(), i=ROWS))
    assert allowed(*first, AsyncWait(0), loop("", 3, stored, ahead, AsyncCommit(), AsyncWait(0), i=ROWS))


def test_a_store_of_the_next_iteration_is_asked_about_there() -> None:
    """What is stored in this one is of another element."""
    load, store = read(ROWS + 1), write(ROWS)
    stores = frozenset((store,))
    waits = loop("", 3, load, store, BlockBarrier(), i=ROWS)
    assert is_read_complete_before_writes((waits,), load, stores, ROWS, needs_barrier=True)
    assert not is_read_complete_before_writes((waits,), load, stores, None, needs_barrier=True)
    assert not is_read_complete_before_writes(
        (loop("", 3, load, store, i=ROWS),), load, stores, ROWS, needs_barrier=True
    )
    assert is_read_complete_before_writes((loop("", 3, load, store, i=ROWS),), load, stores, ROWS, needs_barrier=False)
