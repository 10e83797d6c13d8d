"""Slices, pads, concatenations and gathers in schedules by hand: from inputs, from registers, from shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.errors import SchedulingError
from fuser.ir.facts import Aligned, DenseStride, ExtentDivisible, UnitStride
from fuser.ir.fusion.fusion import GatherKind, Tensor, Window
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import const
from fuser.ir.kernel.kernel import BlockBarrier, If, Role, VectorMove, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from tests.end_to_end.mutation import mutants
from tests.fusions.kernel_corpus import BX, BY, GX, SERIAL, SHARED, VECTOR, schedule_axes, spread
from tests.judging.harness import Lowered, check, collect_facts, integers, refusal, run

Float, Half, Int32 = DataType.Float, DataType.Half, DataType.Int32


def padded(b: FusionBuilder, t: Tensor, left: int, right: int, fill: float = 0.0) -> Tensor:
    """The last dim padded."""
    lefts, rights = [const(0)] * t.ndim, [const(0)] * t.ndim
    lefts[-1], rights[-1] = const(left), const(right)
    return b.pad(t, lefts, rights, b.constant(fill, DataType.Double))


def cut(b: FusionBuilder, t: Tensor, start: int, end: int) -> Tensor:
    """Elements [start, end) of the last dim."""
    starts, ends = [const(0)] * t.ndim, [d.extent for d in t.visible]
    starts[-1], ends[-1] = const(start), const(end)
    return b.slice(t, starts, ends)


@pytest.mark.parametrize(("start", "end"), [(0, 5), (3, 9), (8, 9), (4, 4)])
def test_slice_of_an_input_in_threads(start: int, end: int) -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 9])
    out = b.pointwise("neg", [cut(b, x, start, end)], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.merge(out.name, 0)
    s.split(out.name, 0, 4)
    spread(s, out.name, (GX, BX))
    kernel = check(s, [integers((5, 9))])
    assert not any(isinstance(k, BlockBarrier) for k in walk(kernel.body))


@pytest.mark.parametrize(("left", "right"), [(2, 3), (-2, 3), (2, -3), (-4, -1), (-9, 0), (-9, 4), (3, -9)])
def test_pad_of_an_input_in_threads(left: int, right: int) -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 9])
    out = padded(b, x, left, right, -1.5)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 4)
    schedule_axes(s, out.name, (GX, SERIAL, BX))
    check(s, [integers((5, 9))])


def test_serial_thread() -> None:
    """An unscheduled fusion keeps its intermediates in registers and reads them where they are."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [3, 8])
    y = b.pointwise("neg", [x], Float)
    parts = [padded(b, cut(b, y, 4, 8), 0, 4), padded(b, cut(b, y, 0, 4), 4, 0)]
    out = b.cat(parts, 1, [const(4)])
    b.add_output(out)
    check(ScheduleBuilder(b.freeze()), [integers((3, 8))])


def neighbours(*, update: bool = False) -> tuple[ScheduleBuilder, Tensor, Tensor, Tensor]:
    """y = 2x; out = y moved right + y moved left."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 12])
    y = b.pointwise("mul", [x, b.constant(2.0, DataType.Double)], Float)
    out = b.pointwise("add", [padded(b, y, 1, -1), padded(b, y, -1, 1)], Float)
    b.add_output(out, x if update else None)
    return ScheduleBuilder(b.freeze()), x, y, out


def test_neighbours_through_shared_memory() -> None:
    """What other threads computed is read behind a barrier; the next row is written behind another."""
    s, _, y, out = neighbours()
    s.set_memory_type(y.name, SHARED)
    for t in s.tensors:
        if t.name not in s.input_names:
            schedule_axes(s, t.name, (SERIAL, BX))
    s.inline_at(out.name, 1)
    kernel = check(s, [integers((5, 12))], seeds=(0, 1, 2))
    assert sum(isinstance(k, BlockBarrier) for k in walk(kernel.body)) == 2


def test_neighbours_in_registers_of_other_threads_are_refused() -> None:
    s, _, y, out = neighbours()
    for t in s.tensors:
        if t.name not in s.input_names:
            schedule_axes(s, t.name, (SERIAL, BX))
    s.inline_at(out.name, 1)
    assert f"{y.name} is spread over block_x" in refusal(s)


def test_neighbours_within_a_thread() -> None:
    """Rows over threads, a row in the registers of one."""
    s, _, _, out = neighbours()
    for t in s.tensors:
        if t.name not in s.input_names:
            schedule_axes(s, t.name, (BY, SERIAL))
    s.inline_at(out.name, 1)
    check(s, [integers((5, 12))])


def test_an_update_from_neighbours_needs_a_temporary() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 12])
    out = b.pointwise("add", [padded(b, x, 1, -1), padded(b, x, -1, 1)], Float)
    b.add_output(out, x)
    s = ScheduleBuilder(b.freeze())
    spread(s, out.name, (GX, BX))
    kernel = check(s, [integers((5, 12))], seeds=(0, 1, 2))
    assert kernel.plan.in_place == ()


def test_windows_are_tests_that_are_needed() -> None:
    """A kernel without one of the tests of a window reads outside of the input, or shows what it should not."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 8])
    out = b.cat([padded(b, x, 2, 11), padded(b, x, 13, 0)], 1, [const(13)])
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    spread(s, out.name, (GX, BX))
    inputs = [integers((3, 8), low=1)]
    lowered = Lowered.of(s, collect_facts(s.fusion, inputs))
    right = run(lowered, inputs).check()[out.name]
    tests = [k for k in walk(lowered.kernel.body) if isinstance(k, If) and k.orelse and k.role is Role.predicate]
    assert tests
    noticed = 0
    for mutant in mutants(lowered.kernel):
        outcome = run(Lowered.from_kernel(s.fusion, mutant.kernel), inputs)
        if outcome.error is not None or not np.array_equal(outcome.outputs[out.name], right):
            noticed += 1
        else:
            pytest.fail(f"nothing shows that {mutant.key} is gone")
    assert noticed >= 4


def vectorized(b: FusionBuilder, part: Tensor, width: int) -> ScheduleBuilder:
    """neg of `part`, which is moved in vectors."""
    out = b.pointwise("neg", [b.pointwise("cast", [part], Float)], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, width)
    s.transform_like(out.name)
    schedule_axes(s, out.name, (GX, BX))
    s.parallelize_like(out.name)
    s.parallelize(part.name, 2, VECTOR)
    s.inline_most()
    return s


FACTS = frozenset([Aligned("t0", 16), UnitStride("t0", 1), DenseStride("t0", 0, 1), ExtentDivisible("t0", 1, 16)])


def test_a_slice_is_a_copy_that_can_be_vectorized() -> None:
    b = FusionBuilder()
    kernel = check(vectorized(b, cut(b, b.input_tensor(Half, [16, 64]), 24, 56), 8), [integers((16, 64), Half)])
    (move,) = [k for k in walk(kernel.body) if isinstance(k, VectorMove)]
    assert move.width == 8


@pytest.mark.parametrize(("start", "end"), [(4, 36), (1, 33)])
def test_a_start_between_vectors_is_refused(start: int, end: int) -> None:
    b = FusionBuilder()
    part = cut(b, b.input_tensor(Half, [16, 64]), start, end)
    with pytest.raises(SchedulingError, match=f"{part.name} cannot be vectorized by 8: the offset .* multiple of 8"):
        lower_fusion(vectorized(b, part, 8), FACTS)


@pytest.mark.parametrize(("left", "right", "width"), [(8, 8, 4), (4, 12, 2), (-8, 8, 4), (4, -4, 4)])
def test_a_vector_lies_in_a_window_or_outside(left: int, right: int, width: int) -> None:
    b = FusionBuilder()
    kernel = check(
        vectorized(b, padded(b, b.input_tensor(Float, [16, 32]), left, right, 3.0), width), [integers((16, 32))]
    )
    (move,) = [k for k in walk(kernel.body) if isinstance(k, VectorMove)]
    assert move.width == width


def test_a_vector_across_the_edge_of_a_window_is_refused() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [16, 32])
    # Element 4 of the result is element 0 of the slice, whose last vector would be half inside.
    wide = padded(b, cut(b, x, 0, 30), 4, 6, 3.0)
    merged = b.resize(x, _windows(x), [d.extent for d in wide.visible], b.constant(3.0, DataType.Double))
    with pytest.raises(SchedulingError, match=f"{merged.name} cannot be vectorized by 4: elements .* multiples of it"):
        lower_fusion(vectorized(b, merged, 4), FACTS)


def _windows(x: Tensor) -> list[Window]:
    """[4, 34) of the last dim are elements [0, 30) of x."""
    whole = Window(const(0), const(0), x.visible[0].extent)
    return [whole, Window(const(-4), const(4), const(34))]


@pytest.mark.parametrize("kind", list(GatherKind))
@pytest.mark.parametrize("types", [(SERIAL, SERIAL), (GX, BX), (BX, SERIAL)])
def test_gathers(kind: GatherKind, types: Sequence[object]) -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    index = b.input_tensor(Int32, [-1] if kind is GatherKind.index_select else [-1, -1])
    # An index may be computed: it is kept in registers then.
    moved = b.pointwise("add", [index, b.constant(1, DataType.Int)], Int32)
    out = b.gather(kind, x, moved, 0)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.transform_like(out.name)
    spread(s, out.name, types)  # type: ignore[arg-type]
    shape = (5,) if kind is GatherKind.index_select else (5, 7)
    check(s, [integers((6, 7)), integers(shape, Int32, low=-1, high=4)])


def test_an_index_outside_is_reported() -> None:
    """Undefined where it runs; the simulator says which index it was, and of which line."""
    b = FusionBuilder()
    x, index = b.input_tensor(Float, [-1]), b.input_tensor(Int32, [-1])
    out = b.gather(GatherKind.index_select, x, index, 0)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    spread(s, out.name, (BX,))
    inputs = [integers((6,)), np.array([0, 6], np.int32)]
    outcome = run(Lowered.of(s), inputs)
    assert outcome.error is not None
    assert "the index 6 is outside of dim 0, which has extent 6: it must be in [0, 6)" in str(outcome.error)
    assert "out = b.gather(GatherKind.index_select, x, index, 0)" in str(outcome.error)
