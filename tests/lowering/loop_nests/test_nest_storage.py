"""Storage in loop nests: caches, registers, partials of reductions; on the simulator against the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Store, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, BY, BZ, GX, GY, GZ, SERIAL, SHARED, schedule_axes, spread
from tests.judging.harness import NARROW, check, integers, refusal
from tests.lowering.small_fusions import negated

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


# --- caches and memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [CacheOp.streaming, CacheOp.all_levels, CacheOp["global"], CacheOp.evict_last])
def test_cache_hint_is_on_the_load_of_the_copy(hint: CacheOp) -> None:
    fusion, x, _ = negated(-1)
    s = ScheduleBuilder(fusion)
    s.cache_after(x.name, LoadStoreOpType.set, hint)
    s.inline_most()
    kernel = check(s, [integers((4,))])
    loads = [ld for st in walk(kernel.body) if isinstance(st, Store) for ld in value_loads(st.value)]
    assert [ld.cache for ld in loads if ld.buffer.is_global] == [hint]
    assert all(ld.cache is CacheOp.unspecified for ld in loads if not ld.buffer.is_global)


def test_transposed_allocation_of_a_shared_cache() -> None:
    fusion, x, out = negated(6, 8)
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    s.set_allocation_domain(cached, [1, 0])
    s.parallelize(cached, 1, BX)
    s.parallelize(out.name, 0, BX)
    kernel = check(s, [integers((6, 8))])
    (store,) = (st for st in walk(kernel.body) if isinstance(st, Store) and st.buffer.is_shared)
    assert str(store.index) in ("6*threadIdx.x + i0", "i0 + 6*threadIdx.x")


def test_transposed_allocation_of_an_output() -> None:
    fusion, _, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    s.set_allocation_domain(out.name, [1, 0])
    kernel = check(s, [integers((3, 5))])
    assert [str(e) for e in kernel.plan.output_strides[0]] == ["1", "t0_size0"]


def test_too_many_registers_are_refused() -> None:
    fusion, x, _ = negated(-1)
    s = ScheduleBuilder(fusion)
    s.cache_after(x.name)
    assert "would need t0.size(0) registers per thread" in refusal(s)


def test_register_array_under_a_runtime_index_is_refused() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [4]), b.input_tensor(Float, [4, -1])
    kept = b.pointwise("neg", [x], Float)
    out = b.pointwise("add", [y, b.broadcast(kept, [False, True])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.merge(out.name, 0)
    assert "t3 is kept in registers, but element" in refusal(s, frozenset([NARROW]))


def test_value_of_another_thread_in_registers_is_refused() -> None:
    fusion, x, out = negated(8)
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(x.name)
    s.split(out.name, 0, 4)
    s.parallelize(cached, 0, BX)
    s.parallelize(out.name, 1, BX)
    assert "must live in shared or global memory" in refusal(s)


def test_axis_on_one_parallel_type_twice_is_refused() -> None:
    fusion, _, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    schedule_axes(s, out.name, (BX, BX))
    assert "two loop axes on block_x" in refusal(s)


def test_block_of_too_many_threads_is_refused() -> None:
    fusion, _, out = negated(64, 64)
    s = ScheduleBuilder(fusion)
    schedule_axes(s, out.name, (BY, BX))
    assert "4096 threads per block" in refusal(s)


# --- reductions -------------------------------------------------------------------------------------------------------


def test_narrow_reductions_accumulate_in_float() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Half, [-1])
    r = b.reduction("sum", x, [0], Half)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, 64)
    s.rfactor(r.name, [0])
    for name in (r.name, f"{r.name}_rfactor_0"):
        s.parallelize(name, -1, BX)
    s.inline_most()
    x_values = np.ones(4099, np.float16)  # 2049 and above are not all halves
    x_values[0] = 0.5
    check(s, [x_values])


def test_block_extent_from_the_input() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, r.name, (GX, BX))
    for n in (1, 7, 32, 33):
        check(s, [integers((3, n))])


def test_reductions_along_y_and_z() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 3, 4])
    r = b.reduction("sum", x, [1, 2], Float)
    b.add_output(r)
    for types in ((BX, BY, BZ), (BZ, BX, BY), (BY, BZ, BX), (GX, BZ, BY), (GX, BZ, GY), (BX, GZ, GY)):
        s = ScheduleBuilder(b.freeze())
        schedule_axes(s, r.name, types)
        check(s, [integers((5, 3, 4))], seeds=(0, 1))


def test_several_reductions_of_one_tensor() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    results = [b.reduction(op, x, [1], Float) for op in ("sum", "max", "min")]
    for r in results:
        b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(results[0].name, 1, 32)
    spread(s, results[0].name, (GX, SERIAL, BX))
    check(s, [integers((3, 50))])


@pytest.mark.parametrize("types", [(GX, BX, SERIAL), (GX, SERIAL, BX), (SERIAL, GX, BX), (GX, GY, BX)])
def test_whole_reduction_of_three_dims(types: Sequence[ParallelType]) -> None:
    b = FusionBuilder()
    x = b.input_tensor(Int32, [-1, -1, -1])
    r = b.reduction("sum", x, [0, 1, 2], Int32)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    schedule_axes(s, r.name, types)
    check(s, [integers((3, 4, 5), Int32)], seeds=(0, 1, 2))


def test_reduction_of_a_middle_dim_keeps_partials_in_registers() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1, 4])
    r = b.reduction("max", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.parallelize(r.name, 0, BX)
    kernel = check(s, [integers((5, 6, 4))])
    assert any(isinstance(st, Store) and st.buffer.name == f"{r.name}_partial" for st in walk(kernel.body))


def test_last_block_result_used_in_a_serial_loop_of_another_reduction() -> None:
    """Its executions end in different blocks, so every block needs each of them."""
    b = FusionBuilder()
    x = b.input_tensor(Int, [-1])
    r = b.reduction("sum", x, [0], Int)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, 4)
    s.split(r.name, 0, 4, inner_split=False)
    first = str(s.rfactor(r.name, [1, 2]))
    s.parallelize(first, 1, GX)
    s.inline_most()
    kernel = check(s, [integers((64,), Int)], seeds=range(4))
    assert kernel.plan.cooperative


def test_nested_reductions_over_blocks() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("min", x, [0, 1], Float)
    out = b.pointwise("neg", [r], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    first = str(s.rfactor(r.name, [1]))
    schedule_axes(s, first, (GX, GY))
    s.parallelize(r.name, 0, GX)
    s.inline_most()
    check(s, [integers((5, 7))], seeds=range(4))


def test_padding_of_a_split_broadcast_is_reduced_once() -> None:
    """A dim of one element split by 4 has one element still, alone or merged with others."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [6])
    r = b.reduction("sum", b.broadcast(x, [False, True]), [0], Float)
    b.add_output(r)
    for merges in (False, True):
        s = ScheduleBuilder(b.freeze())
        s.split(r.name, 1, 4)
        if merges:
            s = ScheduleBuilder(b.freeze())
            s.split(r.name, 1, 4)
            s.merge(r.name, 0, 1)
        s.transform_like(r.name)
        s.inline_most()
        check(s, [integers((6,))])


def test_parts_of_a_last_block_in_thread_loops_are_joined_in_the_last_block() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [31, 16])
    r = b.reduction("sum", x, [0, 1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.merge(r.name, 0)
    s.split(r.name, 0, 7)
    s.split(r.name, 0, 16, inner_split=False)
    first = str(s.rfactor(r.name, [2]))
    schedule_axes(s, first, (BX, BY, GX))
    schedule_axes(s, r.name, (BX, BY))
    s.inline_most()
    kernel = check(s, [integers((31, 16))], seeds=range(4))
    assert not kernel.plan.cooperative


def test_shared_buffer_inlined_below_a_thread_axis_has_an_element_per_thread() -> None:
    fusion, x, out = negated(-1, -1)
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    s.split(out.name, 1, 8)
    s.reorder(out.name, {2: 0})
    s.transform_like(out.name)
    schedule_axes(s, out.name, (BX, GX))
    s.parallelize_like(out.name)
    s.inline_at(out.name, 2)
    kernel = check(s, [integers((3, 20))])
    (store,) = (st for st in walk(kernel.body) if isinstance(st, Store) and st.buffer.is_shared)
    assert "threadIdx.x" in str(store.index)
