"""Values that blocks post to another one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fuser.ir.integers.integers import Cond, Int, all_of, as_int, equal, less
from fuser.ir.kernel.kernel import Allocate, Cast, If, IndexValue, Kernel, Post, Receive, SemaphoreParameter, Stmt
from fuser.ir.ops.dtypes import DataType
from fuser.simulator.errors import Kind
from tests.simulator.kernels import BX, FLOAT, GRID, INT32, TX, Run, kernel, load, output, registers, store, tensor

Double = DataType.Double
BLOCKS = 5
WORDS = tensor("words", 6 * BLOCKS, INT32)
OUT = tensor("out", 2 * (BLOCKS - 1), Double)
both_ways = pytest.mark.parametrize("interleave", [False, True])


def posting(
    posts: Cond, waits: Cond, place: Int | int = 6 * BX, before: Sequence[Stmt] = (), stop: Int | int = 6 * BLOCKS - 6
) -> Kernel:
    """Thread 0 of some blocks posts (number, 10 + number); threads of the block that waits have a post each."""
    x, y = registers("x"), registers("y", dtype=Double)
    first = If(
        posts,
        (Post(WORDS, as_int(place), (IndexValue(BX, FLOAT), Cast(IndexValue(BX + 10, INT32), Double))),),
    )
    taken = (
        Allocate(x),
        Allocate(y),
        store(x, 0, 0.0),
        store(y, 0, 0.0),
        Receive((x, y), WORDS, 6 * TX, as_int(6), as_int(stop)),
        If(
            less(6 * TX, as_int(stop)),
            (store(OUT, 2 * TX, Cast(load(x), Double)), store(OUT, 2 * TX + 1, load(y))),
        ),
    )
    return kernel([output(OUT), SemaphoreParameter(WORDS)], *before, first, If(waits, taken))


FIRST = equal(TX, 0)
LAST = equal(BX, GRID - 1)


@both_ways
@pytest.mark.parametrize("seed", range(4))
def test_the_last_block_receives_all(interleave: bool, seed: int) -> None:
    made = Run(posting(all_of(FIRST, less(BX, GRID - 1)), LAST), None, None)
    made(BLOCKS, 32, seed=seed, interleave=interleave).check()
    expected = [v for k in range(BLOCKS - 1) for v in (k, 10 + k)]
    assert made["out"].tolist() == expected
    assert not made["words"].any()


@both_ways
def test_a_post_that_never_comes(interleave: bool) -> None:
    made = Run(posting(all_of(FIRST, less(BX, GRID - 2)), LAST), None, None)
    report = made(BLOCKS, 32, interleave=interleave)
    assert report.error is not None
    assert report.error.kind is Kind.deadlock
    assert "words[19]" in str(report.error)


def test_blocks_beside_which_no_others_run() -> None:
    """Two blocks wait for a third one: they may be the two that are there."""
    kernel = posting(all_of(FIRST, less(BX, 1)), less(0, BX), stop=6)
    kinds = set[Kind]()
    for seed in range(8):
        report = Run(kernel, None, None)(3, 1, seed=seed, interleave=True)
        kinds |= set[Kind]() if report.error is None else {report.error.kind}
    assert Kind.deadlock in kinds


def test_nobody_receives() -> None:
    report = Run(posting(FIRST, less(GRID, BX)), None, None)(BLOCKS, 32)
    assert report.error is not None
    assert report.error.kind is Kind.semaphore_not_reset


def test_two_posts_to_one_place() -> None:
    for posts, place in ((less(TX, 2), 6 * BX), (FIRST, as_int(0))):
        report = Run(posting(posts, less(GRID, BX), place), None, None)(BLOCKS, 32)
        assert report.error is not None
        assert report.error.kind is Kind.lost_post


def test_a_place_that_is_written_otherwise() -> None:
    before = [If(equal(TX, 1), (store(WORDS, 6 * BX, 0),))]
    made = Run(posting(all_of(FIRST, less(BX, GRID - 1)), LAST, before=before), None, None)
    report = made(BLOCKS, 32)
    assert report.error is not None
    assert report.error.kind is Kind.race


def test_a_post_that_is_not_aligned() -> None:
    report = Run(posting(FIRST, less(GRID, BX), 6 * BX + 1), None, None)(BLOCKS, 32)
    assert report.error is not None
    assert report.error.kind is Kind.misaligned
