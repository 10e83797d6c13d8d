"""Verbs that make tensors: what is computed where afterwards, in which type."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Pointwise, Reduction, Welford
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.ir.small_schedules import extents, row_sum

Float = DataType.Float


def test_cache_after_copies_for_the_listed_uses() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    p, q = b.pointwise("neg", [x], Float), b.pointwise("abs", [x], Float)
    b.add_output(p)
    b.add_output(q)
    s = ScheduleBuilder(b.freeze())
    cached = s.cache_after(x.name, cached_uses=[q.name])
    assert cached == "t0_cache_after_0"
    assert [u.output.name for u in s.uses(x.name) if isinstance(u, Pointwise)] == [cached, p.name]
    assert [u.output.name for u in s.uses(cached) if isinstance(u, Pointwise)] == [q.name]
    with pytest.raises(SchedulingError, match="not among its uses"):
        s.cache_after(x.name, cached_uses=[q.name])


def test_cache_before_moves_the_computation() -> None:
    s, r = row_sum()
    made = s.cache_before(r)
    reduction = s.definition(made)
    assert isinstance(reduction, Reduction)
    copy = s.definition(r)
    assert isinstance(copy, Pointwise)
    assert copy.op == "set"
    assert extents(s, r) == ["t0_size0"]
    assert extents(s, made) == ["t0_size0", "t0_size1"]
    assert s.state(made).memory is MemoryType.local
    assert s.state(r).memory is GLOBAL_MEMORY


def test_rfactor_splits_a_reduction_in_two() -> None:
    s, r = row_sum()
    s.split(r, 1, 4)
    first = s.rfactor(r, [1])
    assert first == f"{r}_rfactor_0"
    assert [a.is_reduction for a in s.state(first).loop] == [False, True, False]
    assert [a.is_reduction for a in s.state(r).loop] == [False, True]
    assert s.state(first).tensor.root is not None
    with pytest.raises(SchedulingError, match="at least one must remain"):
        s.rfactor(r, [1])
    with pytest.raises(SchedulingError, match="it is not a reduction axis"):
        s.rfactor(r, [0])


def test_partial_results_of_narrow_types_are_float() -> None:
    s, r = row_sum(DataType.BFloat16)
    s.split(r, 1, 4)
    first = s.rfactor(r, [1])
    assert isinstance(first, str)
    assert s.state(first).tensor.dtype is Float
    assert s.state(r).tensor.dtype is DataType.BFloat16


def test_rfactor_of_welford_makes_a_triple() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    mean, m2, _ = b.welford(x, [1])
    b.add_output(m2)
    s = ScheduleBuilder(b.freeze())
    s.split(mean.name, 1, 8)
    names = s.rfactor(mean.name, [1])
    assert len(names) == 3
    second = s.definition(m2.name)
    assert isinstance(second, Welford)
    assert second.partial is not None
    assert [t.name for t in (second.input, *second.partial)] == list(names)
    assert len({tuple(extents(s, n)) for n in (mean.name, m2.name)}) == 1  # siblings share their loops


def test_recompute() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    y = b.pointwise("neg", [x], Float)
    p, q = b.pointwise("abs", [y], Float), b.pointwise("relu", [y], Float)
    b.add_output(p)
    b.add_output(q)
    s = ScheduleBuilder(b.freeze())
    again = s.recompute(y.name, [q.name])
    assert [u.output.name for u in s.uses(again) if isinstance(u, Pointwise)] == [q.name]
    with pytest.raises(SchedulingError, match="cannot recompute"):
        s.recompute(x.name, [])
