"""Values in loop nests: dims made, dropped and moved, numbers by value; run on the simulator against the oracle."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, SERIAL, SHARED, schedule_axes, spread
from tests.judging.harness import check, integers

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


def test_permute() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1, -1])
    out = b.permute(x, [2, 0, 1])
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.merge(out.name, 0)
    s.split(out.name, 0, 4)
    schedule_axes(s, out.name, (GX, BX, SERIAL))
    check(s, [integers((3, 4, 5))])


def test_squeeze_and_broadcast() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 1, -1])
    y = b.squeeze(x, [False, True, False])
    z = b.broadcast(y, [True, False, False, True])
    b.add_output(z)
    s = ScheduleBuilder(b.freeze())
    s.merge(z.name, 0)
    spread(s, z.name, (GX, BX))
    check(s, [integers((3, 1, 5))])


def test_squeeze_of_a_symbolic_dim() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [b.squeeze(x, [False, True])], Float)
    b.add_output(y)
    s = ScheduleBuilder(b.freeze())
    s.inline_most()
    check(s, [integers((3, 1))])


def test_squeeze_of_an_expanded_dim() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 1])
    y = b.pointwise("neg", [b.squeeze(b.expand(x, [None, const(4)]), [False, True])], Float)
    b.add_output(y)
    s = ScheduleBuilder(b.freeze())
    s.inline_most()
    s.set_memory_type("t1", SHARED)
    s.set_memory_type("t2", SHARED)
    check(s, [integers((3, 1))])


def test_expand_reads_one_element_many_times() -> None:
    b = FusionBuilder()
    x, like = b.input_tensor(Float, [-1, 1]), b.input_tensor(Float, [-1, -1])
    wide = b.expand(x, [None, like.visible[1].extent])
    out = b.pointwise("add", [wide, like], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 4)
    spread(s, out.name, (GX, SERIAL, BX))
    check(s, [integers((3, 1)), integers((3, 9), seed=1)])


def test_expand_to_a_user_scalar() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 1])
    n = b.input_scalar(Int)
    out = b.pointwise("set", [b.expand(x, [None, b.extent_of_scalar(n)], [None, n])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 4)
    spread(s, out.name, (GX, SERIAL, BX))
    check(s, [integers((3, 1)), 7])


def test_full_and_iota() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Int, [-1])
    n = x.visible[0].extent
    i = b.iota(n, b.constant(5, Int), b.constant(-2, Int), Int)
    f = b.full([n], b.constant(3, Int), Int)
    total = b.pointwise("add", [b.pointwise("add", [i, f], Int), x], Int)
    b.add_output(total)
    s = ScheduleBuilder(b.freeze())
    s.split(total.name, 0, 4)
    spread(s, total.name, (GX, BX))
    check(s, [integers((10,), Int)])


def test_iota_in_float_of_user_scalars() -> None:
    b = FusionBuilder()
    start, step = b.input_scalar(Double), b.input_scalar(Double)
    out = b.iota(const(9), start, step, Float)
    b.add_output(out)
    check(ScheduleBuilder(b.freeze()), [0.5, 0.25])


def test_scalars_by_value_and_extents_as_values() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    scale = b.input_scalar(Double)
    rows = b.size(x, 0)
    out = b.pointwise("mul", [b.pointwise("mul", [x, scale], Float), rows], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.inline_most()
    check(s, [integers((3, 5)), 2.0])
