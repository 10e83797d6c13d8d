"""Positions of threads and blocks, and names that are still free."""

from __future__ import annotations

from itertools import product

from fuser.ir.integers.integers import Int, const, symbol
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, Fence, If, Role
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.parallel_axes import ParallelAxes, guarded

BX, BY, BZ, GX, GY = (ParallelType[n] for n in ("block_x", "block_y", "block_z", "grid_x", "grid_y"))
N = symbol("n", 1, 64)
SIZES: dict[ParallelType, Int] = {BZ: const(1), BY: const(3), BX: const(4), GY: N, GX: const(5)}
AXES = ParallelAxes(THREAD_SYMBOLS, SIZES)


def test_axes_of_several_threads_the_fastest_first() -> None:
    assert AXES.active == [BX, BY]
    assert AXES.grid == [GX, GY]


def test_positions_count_through_all_threads() -> None:
    x, y = THREAD_SYMBOLS[BX], THREAD_SYMBOLS[BY]
    places = [AXES.thread.evaluate({x: i, y: j}) for j, i in product(range(3), range(4))]
    assert places == list(range(12))
    assert AXES.block_threads is const(12)
    assert AXES.count_of(AXES.grid) is 5 * N
    assert AXES.linear([]) is const(0)
    assert AXES.linear([BX, BY], {BX: x, BY: const(2)}) is x + 8


def test_threads_at_positions_along_some_axes() -> None:
    x, y = THREAD_SYMBOLS[BX], THREAD_SYMBOLS[BY]
    assert [AXES.thread_at([BX], const(k)).evaluate({x: 1, y: 2}) for k in range(4)] == [8, 9, 10, 11]
    assert [AXES.thread_at([BY], const(k)).evaluate({x: 1, y: 2}) for k in range(3)] == [1, 5, 9]
    assert [AXES.thread_at([BY, BX], const(k)).evaluate({x: 0, y: 0}) for k in (0, 1, 3, 11)] == [0, 4, 1, 11]
    assert AXES.thread_at([BX, BY], N).evaluate({x: 0, y: 0, N: 7}) == 7


def test_first_threads() -> None:
    x, y = THREAD_SYMBOLS[BX], THREAD_SYMBOLS[BY]
    firsts = [(i, j) for i, j in product(range(4), range(3)) if AXES.is_first_thread.evaluate({x: i, y: j})]
    assert firsts == [(0, 0)]
    (test,) = guarded(AXES.is_first([BY]), [Fence()])
    assert isinstance(test, If)
    assert test.role is Role.owner
    assert test.condition.symbols == {y}
    assert len(guarded(AXES.is_first([]), [Fence(), Fence()])) == 2


def test_names_are_never_given_twice() -> None:
    axes = ParallelAxes(THREAD_SYMBOLS, SIZES)
    first, second = axes.symbol("k", const(8)), axes.symbol("k", N)
    assert first is not second
    assert (first.hi, second.hi) == (7, 63)
    assert second.below is N
    assert axes.number() == 2
