"""One hoisted test for an unswitched loop."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import If, Kernel, Role, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, SERIAL, UNROLL, UNSWITCH, schedule_axes
from tests.judging.harness import NARROW, check, integers

Float = DataType.Float


def negated(*splits: tuple[int, int]) -> tuple[ScheduleBuilder, str]:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    out = b.pointwise("neg", [x], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    for axis, factor in splits:
        s.split(out.name, axis, factor)
    return s, out.name


def hoisted_tests(kernel: Kernel) -> list[If]:
    return [s for s in walk(kernel.body) if isinstance(s, If) and s.role is Role.unswitch]


def test_hoisted_test_is_of_the_last_iteration() -> None:
    s, out = negated((1, 4))
    schedule_axes(s, out, (GX, BX, UNSWITCH))
    kernel = check(s, [integers((3, 9))], facts=frozenset([NARROW]))
    (hoisted,) = hoisted_tests(kernel)
    assert str(hoisted.condition) == "4*threadIdx.x + 3 < t0_size1"
    assert not any(isinstance(x, If) for x in walk(hoisted.then))
    assert any(isinstance(x, If) and x.role is Role.predicate for x in walk(hoisted.orelse))


def test_inner_loops_are_hoisted_over_too() -> None:
    s, out = negated((1, 4), (0, 2))
    s.reorder(out, {2: 1})
    schedule_axes(s, out, (GX, BX, UNSWITCH, UNROLL))
    kernel = check(s, [integers((5, 9))], facts=frozenset([NARROW]))
    assert len(hoisted_tests(kernel)) == 1
    assert len(hoisted_tests(kernel)[0].condition.symbols) >= 3


def test_accesses_along_two_dims_are_tested_where_they_reach_farthest() -> None:
    """One loop over 2 x 2 accesses, whose indices are i // 2 and i % 2: neither grows with i all the way."""
    s, out = negated((1, 8), (2, 4), (0, 2))
    # [i/2, 2, j/8, 2, 4] -> [i/2, j/8, 4, (2 2)]
    s.reorder(out, {1: 3, 2: 1, 4: 2, 3: 4})
    s.merge(out, 3, 4)
    schedule_axes(s, out, (GX, SERIAL, BX, UNSWITCH))
    kernel = check(s, [integers((5, 19))], facts=frozenset([NARROW]))
    (hoisted,) = hoisted_tests(kernel)
    assert not any(isinstance(x, If) for x in walk(hoisted.then))
    assert "2*blockIdx.x + 1 < t0_size0" in str(hoisted.condition)


def test_loop_without_predicates_stays() -> None:
    s, out = negated((1, 4))
    schedule_axes(s, out, (GX, BX, UNSWITCH))
    assert hoisted_tests(check(s, [integers((3, 8))])) == []


def test_loop_that_never_passes_its_tests_stays() -> None:
    b = FusionBuilder()
    out = b.pointwise("neg", [b.input_tensor(Float, [-1, 9])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 4)
    schedule_axes(s, out.name, (GX, UNSWITCH, UNROLL))
    kernel = check(s, [integers((3, 9))])
    assert hoisted_tests(kernel) == []
    assert any(isinstance(x, If) and x.role is Role.predicate for x in walk(kernel.body))


def test_loop_that_holds_a_barrier_keeps_its_tests() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [8, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 48)
    schedule_axes(s, r.name, (UNSWITCH, SERIAL, BX))
    assert hoisted_tests(check(s, [integers((8, 50))], facts=frozenset([NARROW]))) == []
