"""Who writes: outputs on fewer axes than the launch, and outputs that are read again; on the simulator against the oracle."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Role, Store, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, BY, GX, schedule_axes, spread
from tests.judging.harness import check, integers, refusal
from tests.lowering.small_fusions import negated, of_type, predicates

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


def test_output_read_again_by_the_same_thread() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    y = b.pointwise("neg", [x], Float)
    z = b.pointwise("abs", [y], Float)
    b.add_output(y)
    b.add_output(z)
    s = ScheduleBuilder(b.freeze())
    s.split(z.name, 0, 8)
    spread(s, z.name, (GX, BX))
    kernel = check(s, [integers((21,))])
    assert any(
        isinstance(st, Store) and any(ld.buffer.name == y.name for ld in value_loads(st.value))
        for st in walk(kernel.body)
    )


def test_output_read_by_other_threads_of_the_block() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    z = b.permute(y, [1, 0])
    b.add_output(y)
    b.add_output(z)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, y.name, (BY, BX))
    schedule_axes(s, z.name, (BY, BX))
    check(s, [integers((4, 4))])
    check(s, [integers((3, 5))])


def test_output_read_by_other_blocks_waits_for_them() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    z = b.permute(y, [1, 0])
    b.add_output(y)
    b.add_output(z)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, y.name, (GX, BX))
    schedule_axes(s, z.name, (GX, BX))
    check(s, [integers((4, 4))], seeds=(0, 1))
    check(s, [integers((3, 5))], seeds=(0, 1))


def small_and_large() -> tuple[ScheduleBuilder, str, str, str]:
    """doubled = bias + bias, kept = doubled and out = x + doubled; kept and out are outputs."""
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    doubled = b.pointwise("add", [bias, bias], Float)
    kept = b.pointwise("set", [doubled], Float)
    out = b.pointwise("add", [x, b.broadcast(doubled, [True, False])], Float)
    b.add_output(kept)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    return s, doubled.name, kept.name, out.name


def test_small_output_beside_a_large_one_is_written_by_its_owner() -> None:
    s, doubled, kept, out = small_and_large()
    s.recompute(doubled, [kept])
    spread(s, out, (GX, BX))
    kernel = check(s, [integers((5, 7)), integers((7,), seed=1)])
    assert [str(st.buffer) for st in of_type(kernel, Store) if isinstance(st, Store) and st.buffer.is_global] == [
        out,
        kept,
    ]


def test_value_in_registers_of_other_blocks_is_refused() -> None:
    s, _, _, out = small_and_large()
    spread(s, out, (GX, BX))
    assert "spread over grid_x" in refusal(s)


def test_output_on_fewer_axes_than_the_launch_has_an_owner() -> None:
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    small, large = b.pointwise("neg", [bias], Float), b.pointwise("neg", [x], Float)
    b.add_output(small)
    b.add_output(large)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, large.name, (GX, BY, BX)[:2])
    s.parallelize(small.name, 0, BX)
    kernel = check(s, [integers((5, 7)), integers((4,), seed=1)])
    assert predicates(kernel, Role.owner)


def test_intermediate_in_device_memory() -> None:
    fusion, x, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, GLOBAL_MEMORY)
    s.split(cached, 1, 4)
    s.split(out.name, 1, 4, inner_split=False)
    s.parallelize(cached, 2, BX)
    s.parallelize(out.name, 1, BX)
    kernel = check(s, [integers((3, 10))])
    assert len(kernel.plan.workspaces) == 1
