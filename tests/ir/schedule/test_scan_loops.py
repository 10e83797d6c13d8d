"""What the loop axes of a scan say about who folds what, and in which order."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Scan
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.scan_loops import check_scanned_order, collective_depth, scanned_positions
from fuser.ir.schedule.schedule import ScheduleBuilder

BX, BY, GX = ParallelType.block_x, ParallelType.block_y, ParallelType.grid_x
UNROLL, VECTOR = ParallelType.unroll, ParallelType.vectorize


def scanned(dim: int = 1) -> tuple[ScheduleBuilder, Scan]:
    """t1 = cumsum(t0[i, j]) along `dim`."""
    b = FusionBuilder()
    t = b.scan("cumsum", b.input_tensor(DataType.Float, [-1, -1]), dim)
    b.add_output(t)
    s = ScheduleBuilder(b.freeze())
    (expr,) = s.exprs
    assert isinstance(expr, Scan)
    return s, expr


def test_positions_follow_splits_and_reorders() -> None:
    s, scan = scanned()
    assert scanned_positions(scan, s.state("t1")) == (1,)
    s.split("t1", 1, 4)
    s.split("t1", 0, 8)
    assert scanned_positions(scan, s.state("t1")) == (2, 3)
    s.reorder("t1", {2: 0})
    assert scanned_positions(scan, s.state("t1")) == (0, 3)


def test_depth_is_that_of_the_first_thread_axis_and_its_tiles() -> None:
    s, scan = scanned()
    for factor in (4, 8, 2):
        s.split("t1", 1, factor)  # i, j/64, tile, thread, run
    state = s.state("t1")
    assert collective_depth(scan, state) == 5  # one thread
    s.parallelize("t1", 3, BX)
    assert collective_depth(scan, state) == 3
    s.parallelize("t1", 2, UNROLL)
    assert collective_depth(scan, state) == 2
    s.parallelize("t1", 1, UNROLL)
    assert collective_depth(scan, state) == 1
    s.parallelize("t1", 2, ParallelType.serial)
    assert collective_depth(scan, state) == 3  # only tiles right before the threads


def test_threads_of_other_dims_do_not_matter() -> None:
    s, scan = scanned(0)
    s.parallelize("t1", 1, BX)
    assert collective_depth(scan, s.state("t1")) == 2


def test_order() -> None:
    s, scan = scanned()
    s.split("t1", 1, 4)
    check_scanned_order(scan, s.state("t1"))
    s.reorder("t1", {0: 1})
    check_scanned_order(scan, s.state("t1"))  # j/4, i, j%4
    s.reorder("t1", {2: 0})
    with pytest.raises(SchedulingError, match="must stay in the order of its elements"):
        check_scanned_order(scan, s.state("t1"))


def test_order_of_an_outer_split() -> None:
    s, scan = scanned()
    s.split("t1", 1, 4, inner_split=False)
    s.split("t1", 2, 2)
    check_scanned_order(scan, s.state("t1"))
    s.reorder("t1", {3: 2})
    with pytest.raises(SchedulingError, match="must stay in the order"):
        check_scanned_order(scan, s.state("t1"))


def test_merged_with_another_dim() -> None:
    s, scan = scanned()
    s.merge("t1", 0, 1)
    with pytest.raises(SchedulingError, match=r"t1 is scanned along t1\.1, which cannot be merged with another dim"):
        check_scanned_order(scan, s.state("t1"))


def test_consumers_share_the_loops_outside_the_collective() -> None:
    b = FusionBuilder()
    t = b.scan("cumsum", b.input_tensor(DataType.Float, [-1, -1]), 1)
    out = b.pointwise("neg", [t], DataType.Float)
    b.add_output(out)
    for types, shared in (((GX,), 4), ((GX, ParallelType.serial, BX), 2), ((GX, UNROLL, BX), 1)):
        s = ScheduleBuilder(b.freeze())
        s.split(t.name, 1, 4)
        s.split(t.name, 1, 8)
        s.transform_like(t.name)
        for position, p in enumerate(types):
            s.parallelize(t.name, position, p)
        s.parallelize_like(t.name)
        s.inline_most()
        assert s.state(t.name).inline_at == shared, types
    with pytest.raises(SchedulingError, match="is scanned by several threads"):
        s.inline_at(out.name, 3)
