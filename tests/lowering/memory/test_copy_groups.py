"""Pieces of a row that are waited for one after the other: where there are some, and what a wait too few is reported as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.ir.kernel.kernel import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    BlockBarrier,
    For,
    If,
    Stmt,
    walk,
)
from fuser.lowering.checks.pass_result import Findings, PassResult
from fuser.lowering.checks.sync_checks import copies_are_waited_for
from fuser.simulator.errors import Kind
from tests.judging.harness import check, integers, run
from tests.lowering.memory.copied_rows import changed, count, lowered, rows_in_shared_memory


@pytest.mark.parametrize("late", range(3, 6))
def test_a_wait_for_one_piece_too_few_of_two_trips_is_reported(late: int) -> None:
    made, inputs = lowered(rows_in_shared_memory(96, 8, blocks=3, trips=2))

    def later(s: Stmt) -> tuple[Stmt, ...] | None:
        return (AsyncWait(s.pending + 1),) if isinstance(s, AsyncWait) and s.pending == late else None

    error = run(replace(made, kernel=changed(made.kernel, later)), inputs).error
    assert error is not None
    assert error.kind is Kind.uninitialised_read


def test_the_next_row_is_copied_behind_the_last_read_of_each_piece() -> None:
    kernel = lowered(rows_in_shared_memory(1024, 32, blocks=3))[0].kernel
    loops = [s for s in walk(kernel.body) if isinstance(s, For) and any(isinstance(x, AsyncCopy) for x in walk(s.body))]
    first, row, last = loops
    assert last in row.body
    assert count(kernel, AsyncCommit) == 2
    assert all(loop.body[-1].__class__ is AsyncCommit for loop in (first, last)), "the copies of a piece are a group"
    waits = [s.pending for s in row.body if isinstance(s, AsyncWait)]
    assert waits == [7, 6, 5, 4, 3, 2, 1, 0]
    assert count(kernel, BlockBarrier) == 0


def test_vectors_that_are_there_or_not_are_waited_for_piece_by_piece() -> None:
    """Unlike those that the ends of a row cut, which take code for both."""
    kernel = check(rows_in_shared_memory(156, 8, blocks=3), [integers((7, 156), low=-1, high=1)])
    assert any(isinstance(s, If) and any(isinstance(c, AsyncCopy) for c in walk(s.then)) for s in walk(kernel.body))
    assert [s.pending for s in walk(kernel.body) if isinstance(s, AsyncWait)] == [4, 3, 2, 1, 0]


def test_rows_of_many_pieces_are_waited_for_as_a_whole() -> None:
    kernel = check(rows_in_shared_memory(544, 8, blocks=3), [integers((7, 544))])
    assert (count(kernel, AsyncWait), count(kernel, AsyncCommit)) == (1, 2)


@pytest.mark.parametrize("late", range(3))
def test_a_wait_for_one_piece_too_few_is_reported(late: int) -> None:
    """Each of the waits, by the simulator and by the invariant."""
    made, inputs = lowered(rows_in_shared_memory(96, 8, blocks=3))

    def later(s: Stmt) -> tuple[Stmt, ...] | None:
        return (AsyncWait(s.pending + 1),) if isinstance(s, AsyncWait) and s.pending == late else None

    kernel = changed(made.kernel, later)
    error = run(replace(made, kernel=kernel), inputs).error
    assert error is not None
    assert error.kind is Kind.uninitialised_read
    found = Findings()
    copies_are_waited_for(PassResult(kernel.body), found)
    assert found.statement_messages
