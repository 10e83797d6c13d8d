"""Copies that go on while their threads do read their source until they are waited for."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.integers.integers import ZERO, Int, less
from fuser.ir.kernel.kernel import Allocate, AsyncCommit, AsyncCopy, AsyncWait, BlockBarrier, If, Stmt, VectorMove
from fuser.simulator.errors import Kind
from fuser.simulator.run_kernel import Report
from tests.simulator.kernels import TX, Run, kernel, load, loop, move, output, registers, shared, store, symbol, tensor

THREADS = 64
SIZE = 4 * THREADS
X, OUT, TILE, HELD = tensor("x", SIZE), tensor("out", SIZE), shared("tile", SIZE), registers("held", 4)
OWN, OTHER = 4 * TX, 4 * ((TX + 33) % THREADS)
COMMIT, DONE, MEET = AsyncCommit(), AsyncWait(0), BlockBarrier()
KEEP = move(OUT, OWN, TILE, OWN, 4)


def copied(*body: Stmt) -> Report:
    """`body` by a block, which may write `x`."""
    tested = kernel([output(X), output(OUT)], Allocate(TILE), Allocate(HELD), *body, offsets={"tile": 0})
    return Run(tested, np.arange(SIZE, dtype=np.float32), None)(1, THREADS, shared_bytes=4 * SIZE)


def start(origin: Int = OWN, *, cut: bool = False) -> AsyncCopy:
    return AsyncCopy(TILE, OWN, X, origin, 4, cut=cut)


def overwrite(first: Int = OWN) -> Stmt:
    return store(X, first + 2, -1.0)


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_waited_for_may_be_overwritten(cut: bool) -> None:
    copied(start(cut=cut), COMMIT, DONE, overwrite(), KEEP).check()
    copied(start(cut=cut), COMMIT, DONE, MEET, overwrite(OTHER), KEEP).check()
    copied(start(cut=cut), COMMIT, COMMIT, AsyncWait(1), overwrite(), DONE, KEEP).check()
    half = less(TX, 32)
    copied(If(half, (start(cut=cut), COMMIT, DONE)), overwrite(), If(half, (KEEP,))).check()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    "between",
    [
        (COMMIT, overwrite(), DONE),
        (overwrite(), COMMIT, DONE),
        (COMMIT, MEET, overwrite(OTHER), MEET, DONE),
        (COMMIT, AsyncWait(1), overwrite(), DONE),
        (COMMIT, DONE, overwrite(OTHER)),
        (COMMIT, MEET, DONE, overwrite(OTHER)),
        (COMMIT, If(less(TX, 3), (overwrite(),)), DONE),
    ],
    ids=["by its thread", "before the commit", "behind a barrier", "other group", "no barrier", "early", "by some"],
)
def test_sources_that_are_overwritten_too_early(between: tuple[Stmt, ...], cut: bool) -> None:
    error = copied(start(cut=cut), *between, MEET, KEEP).error
    assert error is not None
    assert (error.kind, error.buffer) == (Kind.race, "x")
    assert error.second is not None
    assert error.second.index is not None
    if "copy" in error.message:
        assert f"x[{error.second.index}] is written while a copy of it is on its way" in error.message
        assert error.first is not None
        assert (error.first.action, error.second.action) == ("write", "read")


def test_the_same_value_is_a_write_too() -> None:
    """In a loop, by one statement of one thread, before a copy and while it is on its way."""
    i = symbol("i", 0, 1)
    body = (overwrite(), If(less(i, 1), (start(), COMMIT)))
    error = copied(loop(i, 2, *body), DONE, KEEP).error
    assert error is not None
    assert error.kind is Kind.race
    body = (overwrite(), start(), COMMIT, DONE)
    copied(loop(i, 2, *body), KEEP).check()


def test_vectors_that_an_end_cuts_are_reads() -> None:
    taken = VectorMove(HELD, ZERO, X, OTHER, 4, cut=True)
    kept = move(OUT, OWN, HELD, 0, 4)
    copied(taken, MEET, overwrite(), kept).check()
    for body in ((taken, overwrite(), kept), (overwrite(), taken, kept)):
        error = copied(*body).error
        assert error is not None
        assert (error.kind, error.buffer) == (Kind.race, "x")


def test_a_cut_vector_reads_what_is_inside() -> None:
    """The last thread's vector goes beyond the row; each thread then writes its own elements, and none outside."""
    row, i = tensor("row", SIZE - 2), symbol("i", 0, 3)
    taken = VectorMove(HELD, ZERO, row, OWN, 4, cut=True)
    own = loop(i, 4, If(less(OWN + i, SIZE - 2), (store(row, OWN + i, load(HELD, i)),)))
    tested = kernel([output(row)], Allocate(HELD), taken, own)
    made = Run(tested, np.arange(SIZE - 2, dtype=np.float32))
    made(1, THREADS).check()
    np.testing.assert_array_equal(made["row"], np.arange(SIZE - 2))
