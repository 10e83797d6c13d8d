"""Pairs of Floats that become Doubles to be joined: where they do, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import ParallelType
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.kernel import Post, Shuffle, walk
from fuser.ir.schedule import ScheduleBuilder
from tests.harness import Lowered, run
from tests.kernel_corpus import BX, GX, GY, SERIAL, schedule_axes

Float, Double = DataType.Float, DataType.Double


def lowered(block: int, types: tuple[ParallelType, ...]) -> tuple[Lowered, str]:
    """Sums of rows of Floats, split by `block`, the axes of the types given."""
    b = FusionBuilder()
    r = b.reduction("sum", b.input_tensor(Float, [-1, -1]), [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, block)
    schedule_axes(s, r.name, types)
    return Lowered.of(s), r.name


def shuffled(made: Lowered) -> set[DataType]:
    return {s.dst.dtype for s in walk(made.kernel.body) if isinstance(s, Shuffle)}


@pytest.mark.parametrize(
    ("block", "types", "expected"),
    [
        (128, (GX, SERIAL, BX), {Double}),
        (32, (GX, SERIAL, BX), {Double}),
        (16, (GX, SERIAL, BX), {Float}),
        (64, (GX, GY, BX), {Float}),
    ],
)
def test_neighbours_join_doubles(block: int, types: tuple[ParallelType, ...], expected: set[DataType]) -> None:
    """Whole warps of a block do; fewer threads, and those whose blocks join a sum, keep pairs."""
    assert shuffled(lowered(block, types)[0]) <= expected


def test_blocks_post_doubles() -> None:
    """A word more than a Float and less to do than for a pair, in the block that posts and in the one that joins."""
    b = FusionBuilder()
    r = b.reduction("sum", b.input_tensor(Float, [-1]), [0], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, 5, False)
    s.split(r.name, 1, 64)
    s.reorder(r.name, {1: 2})
    schedule_axes(s, r.name, (GX, BX))
    made = Lowered.of(s)
    assert shuffled(made) == {Double}
    (post,) = (stmt for stmt in walk(made.kernel.body) if isinstance(stmt, Post))
    assert [value.dtype for value in post.values] == [Double]
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    x[:2] = 2.0**30, -(2.0**30)
    assert run(made, [x]).check()[r.name] == np.float32(x.astype(np.float64).sum())


def test_what_pairs_lose_is_kept() -> None:
    """Totals that cancel between threads leave what was added to the large ones, as far as a Double has digits."""
    made, name = lowered(128, (GX, SERIAL, BX))
    x = np.zeros((2, 256), np.float32)
    x[0, 0], x[0, 1], x[0, 2] = 2.0**30, -(2.0**30), 1.5
    x[0, 3:7] = 2.0**-20
    x[1, :] = 0.1
    found = run(made, [x]).check()[name]
    exact = x.astype(np.float64).sum(1)
    np.testing.assert_array_equal(found, exact.astype(np.float32))
