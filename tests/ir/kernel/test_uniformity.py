"""Which comparisons divide a warp, against all threads of a block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from fuser.ir.integers.integers import Compare, Cond, Int, Symbol, const, less
from fuser.ir.kernel.kernel import THREAD_SYMBOLS
from fuser.ir.kernel.uniformity import Uniformity
from fuser.ir.ops.enums import ParallelType

X, Y, Z = (THREAD_SYMBOLS[p] for p in (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z))
BLOCKS = [
    (32, 1, 1),
    (96, 1, 1),
    (48, 1, 1),
    (16, 8, 1),
    (8, 12, 1),
    (48, 2, 1),
    (16, 3, 2),
    (16, 4, 2),
    (4, 4, 6),
    (24, 4, 1),
    (64, 2, 2),
]


def _threads(block: tuple[int, int, int]) -> Iterator[dict[Symbol, int]]:
    for z, y, x in itertools.product(*(range(n) for n in reversed(block))):
        yield {X: x, Y: y, Z: z}


def _divides(block: tuple[int, int, int], position: Symbol, bound: int) -> bool:
    answers = [threads[position] < bound for threads in _threads(block)]
    warps = [answers[i : i + 32] for i in range(0, len(answers), 32)]
    return any(len(set(warp)) > 1 for warp in warps)


def _said(block: tuple[int, int, int], condition: Cond) -> bool:
    sizes: tuple[Int, Int, Int] = (const(block[0]), const(block[1]), const(block[2]))
    uniformity = Uniformity(sizes)
    if not uniformity.enter_condition(condition):
        return False
    return uniformity.divergence(in_block=False) is not None


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_comparisons_with_a_number(block: tuple[int, int, int]) -> None:
    for position, threads in zip((X, Y, Z), block, strict=True):
        for bound in range(1, threads):
            condition = less(position, const(bound))
            assert isinstance(condition, Compare)
            if _divides(block, position, bound):
                assert _said(block, condition), f"{condition} in {block} divides a warp"
                turned = less(const(bound - 1), position)
                assert _said(block, turned), f"{turned} in {block} divides a warp"


@pytest.mark.parametrize(
    ("block", "position", "bound"), [((16, 8, 1), Y, 2), ((8, 12, 1), Y, 8), ((4, 4, 6), Z, 4), ((96, 1, 1), X, 64)]
)
def test_boundaries_between_warps(block: tuple[int, int, int], position: Symbol, bound: int) -> None:
    assert not _divides(block, position, bound)
    assert not _said(block, less(position, const(bound)))


@pytest.mark.parametrize("block", [*BLOCKS, (3, 32, 1), (3, 7, 5), (5, 30, 1)], ids=str)
def test_comparisons_of_the_number_of_a_thread(block: tuple[int, int, int]) -> None:
    """It is a boundary between warps where it is a multiple of 32, in rows of any length."""
    number = X + block[0] * Y + block[0] * block[1] * Z if block[2] > 1 else X + block[0] * Y
    for bound in range(1, block[0] * block[1] * block[2]):
        for condition in (less(number, const(bound)), less(const(bound - 1), number)):
            assert _said(block, condition) == (bound % 32 != 0), f"{condition} in {block}"
    if block[1] > 1:
        assert _said(block, less(number + X, const(32))), "twice along a row"
