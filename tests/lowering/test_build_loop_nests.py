"""Loop nests: every verb, dim kind and parallel type, run on the simulator against the oracle; refusals by message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, CacheOp, LoadStoreOpType, ParallelType
from fuser.ir.facts import Aligned, DenseStride, ExtentDivisible, StrideDivisible, UnitStride
from fuser.ir.fusion import Fusion, Tensor
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.integers import const, symbol
from fuser.ir.kernel import For, If, Kernel, Load, Role, Stmt, Store, VectorMove, value_loads, walk
from fuser.ir.schedule import ScheduleBuilder
from tests.harness import NARROW, check, collect_facts, integers, refusal
from tests.kernel_corpus import BX, BY, BZ, GX, GY, GZ, SERIAL, SHARED, UNROLL, UNSWITCH, VECTOR, schedule_axes, spread

Float, Half, Int, Int32, Double = DataType.Float, DataType.Half, DataType.Int, DataType.Int32, DataType.Double


def predicates(kernel: Kernel, role: Role = Role.predicate) -> list[str]:
    """The conditions of a role, in order."""
    return [str(s.condition) for s in walk(kernel.body) if isinstance(s, If) and s.role is role]


def of_type(kernel: Kernel, kind: type[Stmt]) -> list[Stmt]:
    return [s for s in walk(kernel.body) if isinstance(s, kind)]


def negated(*shape: int, dtype: DataType = Float) -> tuple[Fusion, Tensor, Tensor]:
    """out = -x; fusion, x, out."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, shape)
    out = b.pointwise("neg", [x], dtype)
    b.add_output(out)
    return b.freeze(), x, out


def copied(*shape: int, dtype: DataType = Float) -> tuple[ScheduleBuilder, str, str, str]:
    """out = -x with copies at both ends; schedule, names of the loaded copy, the computed value, the output."""
    fusion, x, out = negated(*shape, dtype=dtype)
    s = ScheduleBuilder(fusion)
    loaded = s.cache_after(x.name)
    computed = s.cache_before(out.name)
    return s, loaded, computed, out.name


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


# --- dims made, dropped and moved -------------------------------------------------------------------------------------


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


# --- outputs ----------------------------------------------------------------------------------------------------------


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


# --- vectors ----------------------------------------------------------------------------------------------------------


def vectorized(s: ScheduleBuilder, loaded: str, out: str, width: int) -> None:
    s.split(out, len(s.state(out).loop) - 1, width)
    s.transform_like(out)
    last = len(s.state(out).loop) - 1
    s.parallelize(out, 0, GX)
    s.parallelize_like(out)
    s.parallelize(out, last, VECTOR)
    s.parallelize(loaded, last, VECTOR)
    s.inline_most()


@pytest.mark.parametrize(("dtype", "width"), [(Float, 4), (Float, 2), (Half, 8), (Double, 2), (Int, 2)])
def test_vectorized_loads_and_stores(dtype: DataType, width: int) -> None:
    s, loaded, _, out = copied(-1, -1, dtype=dtype)
    vectorized(s, loaded, out, width)
    kernel = check(s, [integers((3, 16), dtype)])
    moves = [m for m in of_type(kernel, VectorMove) if isinstance(m, VectorMove)]
    assert [m.width for m in moves] == [width, width]


def test_vectorized_load_through_shared_memory() -> None:
    s, loaded, _, out = copied(-1, -1)
    s.set_memory_type(loaded, SHARED)
    vectorized(s, loaded, out, 4)
    kernel = check(s, [integers((3, 16))])
    assert any(isinstance(m, VectorMove) and m.dst.is_shared for m in walk(kernel.body))


def test_vectors_behind_a_tail_predicate() -> None:
    s, loaded, _, out = copied(-1)
    s.split(out, 0, 4)
    s.split(out, 0, 8)
    s.transform_like(out)
    schedule_axes(s, out, (GX, BX))
    s.parallelize_like(out)
    s.parallelize(out, 2, VECTOR)
    s.parallelize(loaded, 2, VECTOR)
    s.inline_most()
    kernel = check(s, [integers((36,))])
    assert predicates(kernel)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (Aligned, "the base address of t0 is not known to be aligned to 16 bytes"),
        (ExtentDivisible, "not known to be"),
        (UnitStride, "t0 is not contiguous along the vectorized axis"),
        (DenseStride, "the offset"),
    ],
)
def test_vectors_are_refused_where_a_fact_is_missing(missing: type, message: str) -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 4)
    facts = collect_facts(s.fusion, [integers((3, 16))])
    less = frozenset(f for f in facts if not isinstance(f, missing))
    assert message in refusal(s, less)


def test_vectors_of_a_strided_input_need_divisible_strides() -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 4)
    check(s, [integers((3, 20))[:, :16]])
    assert "not known to be a multiple" in refusal(s, collect_facts(s.fusion, [integers((3, 18))[:, :16]]))
    assert StrideDivisible("t0", 0, 8) in collect_facts(s.fusion, [integers((3, 18))[:, :16]])


def test_vector_of_arithmetic_is_refused() -> None:
    fusion, _, out = negated(-1)
    s = ScheduleBuilder(fusion)
    s.split(out.name, 0, 4)
    s.parallelize(out.name, 1, VECTOR)
    assert "only a copy can" in refusal(s)


def test_vector_wider_than_an_access_is_refused() -> None:
    s, loaded, _, out = copied(-1, -1)
    vectorized(s, loaded, out, 8)
    assert "one access would be 32 bytes" in refusal(s, collect_facts(s.fusion, [integers((3, 16))]))


def test_vectorized_symbolic_extent_is_refused() -> None:
    s, _, _, out = copied(-1, -1)
    s.transform_like(out)
    s.parallelize(out, 1, VECTOR)
    s.inline_most()
    for name in ("t0_cache_after_0", "t1_cache_before_0"):
        s.set_memory_type(name, SHARED)
    assert "needs a constant extent" in refusal(s)


# --- caches and memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hint", [CacheOp.streaming, CacheOp.all_levels, CacheOp["global"]])
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
    assert "would need t0_size0 registers per thread" in refusal(s)


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
