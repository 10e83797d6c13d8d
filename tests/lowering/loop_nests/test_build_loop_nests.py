"""Loop nests: verbs, dim kinds and parallel types, run on the simulator against the oracle; refusals by message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from fuser.ir.facts import ExtentDivisible
from fuser.ir.fusion.fusion import Fusion, Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import symbol
from fuser.ir.kernel.kernel import For, If, Load, Store, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule import inlining
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.loop_nests import build_loop_nests
from tests.fusions.kernel_corpus import BX, BY, BZ, GX, GY, GZ, SERIAL, SHARED, UNROLL, UNSWITCH, schedule_axes, spread
from tests.judging.harness import NARROW, Lowered, check, integers, refusal
from tests.lowering.small_fusions import negated, of_type, predicates

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


# --- transforms -------------------------------------------------------------------------------------------------------


def test_unscheduled_fusion_is_one_serial_thread() -> None:
    fusion, _, _ = negated(-1, -1)
    kernel = check(ScheduleBuilder(fusion), [integers((3, 5))])
    assert [str(e) for e in (*kernel.plan.grid, *kernel.plan.block)] == ["1"] * 6
    assert len(of_type(kernel, For)) == 2
    assert not of_type(kernel, If)


def test_no_unrolling_around_a_loop_of_runtime_length() -> None:
    """It would multiply code for nothing."""
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 3, inner_split=False)
    s.parallelize(out.name, 0, UNROLL)
    kernel = check(s, [integers((13,))], facts=frozenset([NARROW]))
    assert [loop.unroll for loop in of_type(kernel, For)] == [False, False]


@pytest.mark.parametrize("inner_split", [True, False])
@pytest.mark.parametrize("size", [12, 13, 1, 3])
def test_split(inner_split: bool, size: int) -> None:
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4, inner_split)
    kernel = check(s, [integers((size,))], facts=frozenset([NARROW]))
    assert len(predicates(kernel)) == 1


def test_split_that_divides_needs_no_predicate() -> None:
    fusion, x, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    kernel = check(s, [integers((12,))], facts=frozenset([NARROW, ExtentDivisible(x.name, 0, 4)]))
    assert not predicates(kernel)


def test_split_of_a_static_extent() -> None:
    fusion, _, out = negated(12)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    s.split(out.name, 0, 2)
    kernel = check(s, [integers((12,))])
    assert len(predicates(kernel)) == 1  # 3 = 2 * 2 - 1, and the inner split divides


def test_split_of_a_split_tests_the_outermost_extent_once() -> None:
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    s.split(out.name, 0, 3)
    kernel = check(s, [integers((29,))], facts=frozenset([NARROW]))
    assert len(predicates(kernel)) == 1


def test_merge_and_split() -> None:
    fusion, _, out = negated(-1, -1, -1)
    s = ScheduleBuilder(fusion)
    s.merge(out.name, 1)
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    schedule_axes(s, out.name, (GX, BX))
    x = integers((3, 5, 7))
    kernel = check(s, [x])
    (store,) = (st for st in of_type(kernel, Store) if isinstance(st, Store))
    assert str(store.index) == "8*blockIdx.x + threadIdx.x"  # contiguous dims fold to one index
    (load,) = value_loads(store.value)
    assert str(load.index) == "8*blockIdx.x + threadIdx.x"


def test_merge_of_distant_axes_in_either_order() -> None:
    fusion, _, out = negated(-1, -1, -1)
    for outer, inner in ((0, 2), (2, 0)):
        s = ScheduleBuilder(fusion)
        s.merge(out.name, outer, inner)
        s.split(out.name, 0, 5)
        check(s, [integers((3, 4, 5))])


def test_reorder() -> None:
    fusion, _, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    s.reorder(out.name, {0: 2, -1: 0})
    schedule_axes(s, out.name, (GX, BX, SERIAL))
    check(s, [integers((6, 5))])


def test_strided_inputs() -> None:
    fusion, _, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    spread(s, out.name, (GX, BX))
    for x in (
        integers((6, 10))[:, ::2],
        np.asfortranarray(integers((6, 5))),
        np.broadcast_to(integers((1, 5)), (6, 5)),
    ):
        check(s, [x], facts=frozenset([NARROW]))
        check(s, [x])


@pytest.mark.parametrize("types", [(GX, GY, GZ), (BZ, BY, BX), (GX, BY, BX), (GZ, BX, SERIAL), (UNROLL, BX, GY)])
def test_parallel_types(types: Sequence[ParallelType]) -> None:
    fusion, _, out = negated(3, -1, -1)
    s = ScheduleBuilder(fusion)
    schedule_axes(s, out.name, types)
    check(s, [integers((3, 4, 5))])


def test_padded_block_of_two_extents() -> None:
    """Two outputs with different extents on one parallel axis: the launch takes the larger, each tests its own."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    p, q = b.pointwise("neg", [x], Float), b.pointwise("abs", [y], Float)
    b.add_output(p)
    b.add_output(q)
    s = ScheduleBuilder(b.freeze())
    s.parallelize(p.name, 0, BX)
    s.parallelize(q.name, 0, BX)
    for m, n in ((5, 9), (9, 5), (0, 3), (3, 0)):
        check(s, [integers((m,)), integers((n,))])


def test_int64_indices_without_a_bound() -> None:
    fusion, _, _ = negated(-1)
    assert check(ScheduleBuilder(fusion), [integers((4,))], facts=frozenset()).index_bits == 64
    assert check(ScheduleBuilder(fusion), [integers((4,))], facts=frozenset([NARROW])).index_bits == 32


# --- zero extents -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("types", [(GX, BX), (BX, GX), (SERIAL, BX), (GX, SERIAL)])
def test_empty_reduction_gives_the_identity(shape: tuple[int, int], op: str, types: Sequence[ParallelType]) -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction(op, x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, r.name, types)
    check(s, [integers(shape)])


def test_static_zero_extent() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [3, 0])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 32)
    schedule_axes(s, r.name, (GX, SERIAL, BX))
    check(s, [integers((3, 0))])


# --- broadcasts -------------------------------------------------------------------------------------------------------


def biased() -> tuple[Fusion, Tensor, Tensor, Tensor]:
    """out = neg(x + bias); fusion, x, bias, out."""
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    y = b.pointwise("add", [x, b.broadcast(bias, [True, False])], Float)
    out = b.pointwise("neg", [y], Float)
    b.add_output(out)
    return b.freeze(), x, bias, out


def test_broadcast_is_promoted_to_the_loops_of_its_consumer() -> None:
    fusion, _, bias, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(bias.name)
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    spread(s, out.name, (GX, BX))
    assert s.state(cached).inline_at == 2
    check(s, [integers((5, 7)), integers((7,), seed=1)])


def test_broadcast_computed_once_outside() -> None:
    fusion, _, bias, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(bias.name)
    s.reorder(out.name, {0: 1})
    s.transform_like(out.name)
    s.parallelize(out.name, 0, BX)
    s.parallelize_like(out.name)
    s.inline_most()
    assert len(s.state(cached).loop) == 1
    check(s, [integers((5, 7)), integers((7,), seed=1)])


@pytest.mark.parametrize("split", [4, 16])
def test_shared_cache_of_a_broadcast_operand(split: int) -> None:
    fusion, _, bias, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(bias.name)
    s.set_memory_type(cached, SHARED)
    s.merge(out.name, 0)
    s.split(out.name, 0, split)
    s.transform_like(out.name)
    schedule_axes(s, out.name, (GX, BX))
    s.parallelize_like(out.name)
    s.inline_at(out.name, 1, best_effort=True)
    s.inline_most([t.name for t in s.tensors if t.name not in (cached, *s.input_names)])
    check(s, [integers((5, 7)), integers((7,), seed=1)])


# --- names and symbols ------------------------------------------------------------------------------------------------


def test_equal_extents_share_a_symbol() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    out = b.pointwise("add", [x, y], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 0, 8)
    spread(s, out.name, (GX, BX))
    kernel = check(s, [integers((20,)), integers((20,), seed=1)], facts=frozenset([NARROW]))
    names = {p.symbol.name for p in kernel.parameters if hasattr(p, "symbol")}
    assert len([n for n in names if "size" in n]) == 1


def test_unused_input_is_no_parameter() -> None:
    b = FusionBuilder()
    x, _ = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    b.add_output(b.pointwise("neg", [x], Float))
    kernel = check(ScheduleBuilder(b.freeze()), [integers((3,)), integers((4,))])
    assert {p.buffer.name for p in kernel.parameters if hasattr(p, "buffer")} == {"t0", "t2"}
    assert kernel.plan.tensor_arguments == ("t0", "t1", "t2")


def test_loads_and_symbols_are_what_the_kernel_lists() -> None:
    fusion, _, _ = negated(-1)
    kernel = check(ScheduleBuilder(fusion), [integers((3,))])
    assert all(
        isinstance(ld, Load) for st in walk(kernel.body) if isinstance(st, Store) for ld in value_loads(st.value)
    )
    assert symbol("t0_size0", 0).name == "t0_size0"


def test_unswitched_loop_needs_a_constant_extent() -> None:
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.parallelize(out.name, 0, UNSWITCH)
    assert "an unswitch axis needs a constant extent" in refusal(s)


def steps_of_a_chain(length: int) -> int:
    """Bytecodes that lowering runs in loop nests and their sharing for so many ops in a row."""
    b = FusionBuilder()
    t = b.input_tensor(Float, [-1, -1])
    for _ in range(length):
        t = b.pointwise("neg", [t], Float)
    b.add_output(t)
    s = ScheduleBuilder(b.freeze())
    s.split(t.name, 1, 32)
    s.transform_like(t.name)
    s.inline_most()
    places = (build_loop_nests.__file__, inlining.__file__)
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename not in places:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        Lowered.of(s)
    finally:
        sys.settrace(before)
    return steps


def test_work_grows_as_the_number_of_ops() -> None:
    assert steps_of_a_chain(160) < 2.1 * steps_of_a_chain(80)
