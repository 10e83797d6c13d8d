"""Tests of the end of an unrolled loop stand in its last trip."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import FALSE, Cond, const, less, symbol
from fuser.ir.integers.proofs import ProofLog, check_proofs
from fuser.ir.kernel.kernel import Allocate, BlockBarrier, Buffer, For, If, Literal, Role, Stmt, Store, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.predicates.peel_loops import peel_loops
from tests.fusions.kernel_corpus import BX, GX, SERIAL, schedule_axes
from tests.judging.harness import check, collect_facts, integers

K, T = symbol("i", 0, 8), symbol("t", 0, 31)
N = symbol("n", 257, 288)
A = Buffer("a", DataType.Float, MemoryType.local, const(9))


def loop(*body: Stmt, iterations: int = 9, unroll: bool = True, unswitch: bool = False) -> For:
    return For(K, const(0), const(iterations), const(1), body, unroll, unswitch)


def guarded(condition: Cond, role: Role = Role.predicate) -> If:
    return If(condition, (Store(A, K, Literal(1.0, DataType.Float)),), role=role)


def test_trips_that_pass_have_no_test() -> None:
    most, last = peel_loops((loop(Allocate(A), guarded(less(32 * K + T, N))),))
    assert isinstance(most, For)
    assert isinstance(last, For)
    assert (most.start.value, most.stop.value, last.start.value, last.stop.value) == (0, 8, 8, 9)
    assert not any(isinstance(s, If) for s in walk((most,)))
    (test,) = (s for s in walk((last,)) if isinstance(s, If))
    assert test.condition is less(T + 256, N)
    assert all(s.index is const(8) for s in walk((last,)) if isinstance(s, Store))


def test_a_part_of_a_test_stays_where_it_may_fail() -> None:
    row = less(symbol("r", 0), symbol("rows", 0))
    most, _ = peel_loops((loop(If(less(32 * K + T, N), (guarded(row),))),))
    assert [s.condition for s in walk((most,)) if isinstance(s, If)] == [row]


def test_what_the_last_trip_cannot_reach_is_gone() -> None:
    short = symbol("m", 256, 256)
    assert less(const(256), short) is FALSE
    _, last = peel_loops((loop(guarded(less(32 * K + T, short))),))
    assert not any(isinstance(s, Store) for s in walk((last,)))


@pytest.mark.parametrize(
    "unchanged",
    [
        loop(guarded(less(32 * K + T, symbol("n", 255, 288)))),  # 255 is not below 255
        loop(guarded(less(32 * K + T, N)), unroll=False),
        loop(guarded(less(32 * K + T, N)), unswitch=True),
        loop(guarded(less(32 * K + T, N), Role.owner)),
        loop(guarded(less(N, 32 * K + T))),  # more of the later trips pass
        loop(guarded(less(32 * K + T, N)), BlockBarrier()),
        loop(guarded(less(T, N - 250))),  # the same in all trips
        loop(guarded(less(32 * K + T, symbol("m", 1, 288)))),
        loop(guarded(less(32 * K + T, symbol("m", 33, 64))), iterations=2),
    ],
)
def test_loops_that_stay(unchanged: For) -> None:
    (left,) = peel_loops((unchanged,))
    assert isinstance(left, For)
    assert (left.start, left.stop, left.unroll) == (unchanged.start, unchanged.stop, unchanged.unroll)
    assert [s.condition for s in walk((left,)) if isinstance(s, If)] == [
        s.condition for s in walk((unchanged,)) if isinstance(s, If)
    ]


def test_what_is_left_out_is_proved() -> None:
    log = ProofLog()
    peel_loops((loop(guarded(less(32 * K + T, N))),), log)
    assert len(log.claims) == 1
    check_proofs(log)


@pytest.mark.parametrize("length", [257, 258, 287, 288])
def test_rows_are_whole(length: int) -> None:
    """Every element is read and summed once, at both ends of what the schedule asks for."""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    y = b.pointwise("neg", [x], DataType.Float)
    b.add_output(y)
    s = ScheduleBuilder(b.freeze())
    s.require_extent_range(x.name, 1, 257, 288)
    copy = s.cache_after(x.name)
    s.split(y.name, 1, 32)
    s.split(y.name, 1, 9)
    schedule_axes(s, y.name, (GX, SERIAL, SERIAL, BX))
    s.transform_like(y.name)
    s.parallelize_like(y.name)
    s.inline_at(copy, 2)
    arrays = [integers((3, length))]
    kernel = check(s, arrays, facts=collect_facts(s.fusion, arrays) | frozenset(s.required_facts))
    assert any(isinstance(f, For) and f.start is const(8) for f in walk(kernel.body))
    assert np.asarray(arrays[0]).shape == (3, length)
