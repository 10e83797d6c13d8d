"""What a scan's loop nest holds, and the schedules that lowering refuses in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import If, Role, Scan, Store, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.context import LoweringContext
from fuser.lowering.loop_nests.build_loop_nests import NestBuilder
from tests.fusions.kernel_corpus import (
    BX,
    BY,
    GX,
    UNROLL,
    VECTOR,
    scan_columns,
    scan_rows,
    scanned,
    schedule_axes,
    spread,
)
from tests.judging.harness import NARROW, Lowered, check, integers, refusal, run

Float = DataType.Float


def collectives(s: ScheduleBuilder) -> list[Scan]:
    """Before they are expanded."""
    lowered = NestBuilder(LoweringContext(s, frozenset([NARROW]))).build()
    return [stmt for stmt in walk(lowered.body) if isinstance(stmt, Scan)]


def test_layout_of_rows() -> None:
    (scan,) = collectives(scan_rows(*scanned(), 4, 32, 2))
    assert (scan.kept, scan.tiles, scan.run) == ((), ((2, 4),), ((4, 1),))
    assert scan.values.size.value == 8
    assert scan.carry.size.value == 1
    assert scan.block_axes == (BX,)


def test_layout_of_columns() -> None:
    (scan,) = collectives(scan_columns(*scanned(dim=0), 4, 3, 4, vector=2))
    assert (scan.kept, scan.tiles, scan.run) == (((2, 1),), (), ((3, 2),))
    assert scan.carry.size.value == 2
    assert scan.block_axes == (BY,)


def test_one_thread_has_no_collective() -> None:
    assert collectives(scan_columns(*scanned(dim=0), 4, 3, 1)) != []  # an axis of one thread is one still
    s = ScheduleBuilder(scanned()[0])
    s.inline_most()
    assert collectives(s) == []


def test_elements_outside_the_tensor_are_the_identity() -> None:
    lowered = NestBuilder(LoweringContext(scan_rows(*scanned("cummax"), 1, 32, 2), frozenset([NARROW]))).build()
    tests = [s for s in walk(lowered.body) if isinstance(s, If) and s.orelse]
    assert tests
    for test in tests:
        (outside,) = test.orelse
        assert isinstance(outside, Store)
        assert outside.role is Role.initialise
        assert outside.value.value == -np.inf  # type: ignore[union-attr]


def _grid() -> ScheduleBuilder:
    s = ScheduleBuilder(scanned()[0])
    n = "t2"
    s.split(n, 1, 32)
    spread(s, n, (BY, GX, BX))
    return s


def _disordered() -> ScheduleBuilder:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 32)
    s.reorder(t.name, {1: 2})
    spread(s, t.name, (GX, BX))
    return s


def _merged() -> ScheduleBuilder:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.merge(t.name, 0, 1)
    s.split(t.name, 0, 32)
    spread(s, t.name, (GX, BX))
    return s


def _kept_loop_inside() -> ScheduleBuilder:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 32)
    s.split(t.name, 0, 2)
    s.reorder(t.name, {1: 2})  # i/2, j/32, i%2, j%32
    s.transform_like(t.name)
    schedule_axes(s, t.name, (GX, ParallelType.serial, ParallelType.serial, BX))
    s.parallelize_like(t.name)
    return s


def _symbolic_run() -> ScheduleBuilder:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 32, inner_split=False)  # j: 32 threads, each a run of j/32
    s.transform_like(t.name)
    schedule_axes(s, t.name, (GX, BX))
    s.parallelize_like(t.name)
    return s


def _vectorized() -> ScheduleBuilder:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 4)
    s.transform_like(t.name)
    s.parallelize(t.name, 2, VECTOR)
    s.inline_most()
    return s


def _columns_without_limit() -> ScheduleBuilder:
    s = ScheduleBuilder(scanned(dim=0)[0])
    s.inline_most()
    return s


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_grid, "t2 is scanned along grid_x: blocks run in any order, a scan has to stay within one"),
        (_disordered, "the axes made of that dim must stay in the order of its elements"),
        (_merged, "which cannot be merged with another dim"),
        (_kept_loop_inside, "stands between those of the scanned dim; reorder it"),
        (_symbolic_run, "elements per thread along"),
        (_columns_without_limit, "t2 would hold t0_size1 elements per thread along t0.1: that must be a constant"),
        (_vectorized, "t2 cannot be vectorized: only a copy can"),
    ],
)
def test_refusals(make: Callable[[], ScheduleBuilder], words: str) -> None:
    assert words in refusal(make(), frozenset([NARROW]))


def test_parallelized_after_inlining() -> None:
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 32)
    s.transform_like(t.name)
    s.inline_most()
    s.parallelize(t.name, 2, BX)
    s.parallelize_like(t.name)
    found = refusal(s, frozenset([NARROW]))
    assert "cannot stay inlined at position" in found
    assert "is scanned by several threads" in found


def test_default_schedule() -> None:
    """One thread, one loop nest."""
    fusion, _ = scanned(start=True)
    s = ScheduleBuilder(fusion)
    s.inline_most()
    check(s, [integers((5, 7))])


def test_serial_rows_with_static_extents() -> None:
    """A loop of constant length that only carries is not unrolled."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [3, 1000])
    b.add_output(b.scan("cumsum", x, 1))
    s = ScheduleBuilder(b.freeze())
    kernel = check(s, [integers((3, 1000))])
    loops = [stmt for stmt in walk(kernel.body) if type(stmt).__name__ == "For"]
    assert all(not loop.unroll for loop in loops)  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (3, 63), (3, 64), (3, 65), (2, 127), (2, 129)])
@pytest.mark.parametrize("op", ["cumsum", "cummax"])
def test_lengths_around_a_step(op: str, shape: tuple[int, int]) -> None:
    check(scan_rows(*scanned(op, start=True), 1, 32, 2), [integers(shape)])
    check(scan_rows(*scanned(op), 2, 64, 1), [integers(shape)])


def test_the_order_of_blocks_and_lanes_does_not_matter() -> None:
    """Random floats: equal bits for every seed."""
    fusion, t = scanned()
    lowered = Lowered.of(scan_rows(fusion, t, 2, 64, 2), frozenset([NARROW]))
    x = np.random.default_rng(0).standard_normal((4, 700)).astype(np.float32)
    first = run(lowered, [x], seed=0).check()
    for seed in range(1, 5):
        for name, value in run(lowered, [x], seed=seed).check().items():
            np.testing.assert_array_equal(value, first[name])


def test_specials_stay_behind_their_place() -> None:
    """An inf or nan changes nothing before it, whoever folds it in."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    t = b.scan("cumsum", x, 1)
    b.add_output(t)
    for threads, tiles in ((32, 2), (64, 2), (20, 3)):
        s = ScheduleBuilder(b.freeze())
        n = s.cache_before(t.name)
        s.split(n, 1, 2)
        s.split(n, 1, threads)
        s.split(n, 1, tiles)
        spread(s, n, (GX, ParallelType.serial, UNROLL, BX))
        lowered = Lowered.of(s, frozenset([NARROW]))
        for place in (0, 1, 63, 64, 200, 511, 699):
            values = integers((1, 700))
            values[0, place] = np.inf
            values[0, -1] = -np.inf
            (out,) = run(lowered, [values]).check().values()
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(out, np.cumsum(values, 1))


def test_signs_of_zeros() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    t = b.scan("cumsum", x, 1)
    b.add_output(t)
    s = ScheduleBuilder(b.freeze())
    n = s.cache_before(t.name)
    s.split(n, 1, 64)
    spread(s, n, (GX, ParallelType.serial, BX))
    values = np.full((2, 150), -0.0, np.float32)
    values[1, 100] = 0.0
    (out,) = run(Lowered.of(s, frozenset([NARROW])), [values]).check().values()
    np.testing.assert_array_equal(np.signbit(out), np.signbit(np.cumsum(values, 1)))
