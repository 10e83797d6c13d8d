"""Verbs of a schedule: what they make, what they refuse, and that their records replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.fusion import Broadcast, Fusion, Pointwise, Reduction, Welford
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from tests.kernel_corpus import BX, BY, CORPUS, GX, SHARED, VECTOR
from tests.random_schedules import replay

Float = DataType.Float


def pointwise(*shape: int) -> tuple[ScheduleBuilder, str, str]:
    """out = -x; schedule, names of x and out."""
    b = FusionBuilder()
    x = b.input_tensor(Float, list(shape))
    out = b.pointwise("neg", [x], Float)
    b.add_output(out)
    return ScheduleBuilder(b.freeze()), x.name, out.name


def row_sum(dtype: DataType = Float) -> tuple[ScheduleBuilder, str]:
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction("sum", x, [1], dtype)
    b.add_output(r)
    return ScheduleBuilder(b.freeze()), r.name


def extents(s: ScheduleBuilder, name: str) -> list[str]:
    return [str(a.extent) for a in s.state(name).loop]


# --- transforms -------------------------------------------------------------------------------------------------------


def test_split_merge_reorder() -> None:
    s, _, out = pointwise(-1, 12)
    s.split(out, 1, 4)
    assert extents(s, out) == ["t0_size0", "3", "4"]
    s.split(out, 1, 2, inner_split=False)
    assert extents(s, out) == ["t0_size0", "2", "2", "4"]
    s.reorder(out, {0: -1})
    assert extents(s, out) == ["2", "2", "4", "t0_size0"]
    s.merge(out, 1)
    assert extents(s, out) == ["2", "8", "t0_size0"]
    s.merge(out, 2, 0)
    assert extents(s, out) == ["2*t0_size0", "8"]


Verb = Callable[[ScheduleBuilder, str], object]


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda s, n: s.split(n, 0, 0), "the factor must be positive"),
        (lambda s, n: s.split(n, 5, 2), "Tried to access out of boundary index 5. total index: 2"),
        (lambda s, n: s.merge(n, 1), "Tried to access out of boundary index 2"),
        (lambda s, n: s.merge(n, 0, 0), "with itself"),
        (lambda s, n: s.reorder(n, {0: 1, 1: 1}), "names an axis twice"),
        (lambda s, n: s.cache_after(n), "nothing uses it"),
        (lambda s, n: s.rfactor(n, [0]), "not produced by a reduction"),
        (lambda s, n: s.set_memory_type(n, SHARED), "inputs and outputs stay in global memory"),
        (lambda s, n: s.set_allocation_domain(n, [0, 0]), "must be a permutation"),
        (lambda s, _: s.cache_before("t0"), "it is a fusion input"),
    ],
)
def test_refusals(verb: Verb, message: str) -> None:
    s, _, out = pointwise(-1, -1)
    with pytest.raises(SchedulingError) as error:
        verb(s, out)
    assert message in str(error.value)
    assert not s.records


def test_rank_0_cannot_be_split() -> None:
    s, _, out = pointwise()
    with pytest.raises(SchedulingError, match="its rank is 0"):
        s.split(out, 0, 2)


def test_parallelized_and_inlined_axes_stay() -> None:
    s, _, out = pointwise(-1, -1)
    s.parallelize(out, 0, BX)
    with pytest.raises(SchedulingError, match="already parallelized"):
        s.split(out, 0, 2)
    with pytest.raises(SchedulingError, match="already parallelized"):
        s.merge(out, 0)
    s.parallelize(out, 1, BY)
    with pytest.raises(SchedulingError, match="both are parallelized"):
        s.merge(out, 0)
    s, x, _ = pointwise(-1, -1)
    cached = s.cache_after(x)
    s.inline_most()
    for verb in (lambda: s.split(cached, 0, 2), lambda: s.reorder(cached, {0: 1}), lambda: s.cache_after(cached)):
        with pytest.raises(SchedulingError, match="inlined"):
            verb()


def test_reduced_and_kept_axes_do_not_merge() -> None:
    s, r = row_sum()
    with pytest.raises(SchedulingError, match="one is reduced and the other is not"):
        s.merge(r, 0)


@pytest.mark.parametrize(
    "parallel_type", [ParallelType.mesh_x, ParallelType.mma, ParallelType.tma, ParallelType.stream]
)
def test_later_parallel_types(parallel_type: ParallelType) -> None:
    s, _, out = pointwise(-1)
    with pytest.raises(NotImplementedError, match=f"ParallelType.{parallel_type.name} is not supported yet"):
        s.parallelize(out, 0, parallel_type)


# --- tensors made by verbs --------------------------------------------------------------------------------------------


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


def test_allocation_domain_of_an_output_is_its_stride_order() -> None:
    s, _, out = pointwise(-1, -1)
    s.set_allocation_domain(out, [1, 0])
    assert s.state(out).tensor.stride_order == (0, 1)


# --- propagation ------------------------------------------------------------------------------------------------------


def test_transform_like_reaches_through_broadcasts_and_permutes() -> None:
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    turned = b.permute(x, [1, 0])
    wide = b.broadcast(bias, [True, False])
    out = b.pointwise("add", [turned, wide], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    cached = s.cache_after(bias.name)
    copied = s.cache_after(x.name)
    s.split(out.name, 1, 8)
    s.reorder(out.name, {0: 1})
    s.transform_like(out.name)
    assert [str(a.extent) for a in s.state(copied).loop] == ["(t0_size0 + 7)//8", "t0_size1", "8"]
    assert [a.is_broadcast for a in s.state(wide.name).loop] == [False, True, False]
    assert [a.is_broadcast for a in s.state(cached).loop] == [False, True, False]
    s.parallelize(out.name, 0, GX)
    s.parallelize(out.name, 2, BX)
    s.parallelize_like(out.name)
    for name in (copied, wide.name, cached, turned.name):
        state = s.state(name)
        assert [state.parallel_type(a) for a in state.loop] == [GX, ParallelType.serial, BX]


def test_parallelize_like_takes_positions_types_and_tensors() -> None:
    s, x, out = pointwise(-1, -1)
    cached = s.cache_after(x)
    s.parallelize(out, 0, GX)
    s.parallelize(out, 1, BX)
    s.parallelize_like(out, 1)
    assert list(s.state(cached).parallel.values()) == [GX]
    s.parallelize_like(out, -1, (), frozenset([BX]))
    assert sorted(p.name for p in s.state(cached).parallel.values()) == ["block_x", "grid_x"]


# --- records ----------------------------------------------------------------------------------------------------------


def every_verb() -> tuple[Fusion, ScheduleBuilder]:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 64])
    y = b.pointwise("neg", [x], Float)
    r = b.reduction("sum", y, [1], Float)
    out = b.pointwise("sub", [y, b.broadcast(r, [False, True])], Float)
    b.add_output(out)
    fusion = b.freeze()
    s = ScheduleBuilder(fusion)
    again = s.recompute(y.name, [out.name])
    cached = s.cache_after(x.name, LoadStoreOpType.set, CacheOp["global"], True, [y.name])
    stored = s.cache_before(out.name)
    s.set_memory_type(cached, SHARED)
    s.set_allocation_domain(out.name, [0, 1])
    s.split(r.name, 1, 4)
    s.split(r.name, 1, 4, False)
    s.transform_like(r.name)
    first = str(s.rfactor(r.name, [2]))
    s.parallelize(r.name, 0, GX)
    s.parallelize(first, 0, GX)
    s.parallelize_like(r.name)
    s.parallelize(out.name, 3, VECTOR)
    s.set_allocation_domain(cached, [f"loop:{i}" for i in (1, 0, 2, 3)])
    s.inline_at(r.name, 1, True, [cached])
    s.inline_most([n for n in s.states if n not in (cached, *s.input_names)])
    assert again in s.states
    assert stored in s.states
    return fusion, s


def test_schedule_prints_as_calls() -> None:
    _, s = every_verb()
    text = str(s)
    assert "t0_cache_after_0 = t0.cache_after(LoadStoreOpType.set, CacheOp['global'], True, ['t1'])" in text
    assert "t0_cache_after_0.set_memory_type(MemoryType.shared)" in text
    assert "schedule.inline_most([" in text
    assert {r.verb for r in s.records} == {
        "recompute", "cache_after", "cache_before", "set_memory_type", "set_allocation_domain", "split", "transform_like",
        "rfactor", "parallelize", "parallelize_like", "inline_at", "inline_most",
    }  # fmt: skip


def test_printed_schedule_rebuilds_itself() -> None:
    _, s = every_verb()
    again = replay(str(s), every_verb()[0])
    assert str(again) == str(s)


@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_records_and_text_replay_to_the_same_kernel(case: object) -> None:
    make = case.make  # type: ignore[attr-defined]
    text = generate_cuda(lower_fusion(make(), frozenset())).text
    by_text = replay(str(make()), make().fusion)
    by_records = ScheduleBuilder(make().fusion)
    by_records.replay(make().records)
    assert generate_cuda(lower_fusion(by_text, frozenset())).text == text
    assert generate_cuda(lower_fusion(by_records, frozenset())).text == text


def test_a_refused_verb_leaves_no_record() -> None:
    s, _, out = pointwise(-1)
    s.split(out, 0, 4)
    before = str(s)
    with pytest.raises(SchedulingError):
        s.split(out, 0, -1)
    assert str(s) == before


def test_equality_of_fusions_ignores_schedules() -> None:
    a, _, out = pointwise(-1)
    a.split(out, 0, 4)
    b, _, _ = pointwise(-1)
    assert a.fusion == b.fusion
    assert hash(a.fusion) == hash(b.fusion)
    assert not any(isinstance(e, Broadcast) for e in a.exprs)


# --- places in shared memory ------------------------------------------------------------------------------------------


def test_swizzle() -> None:
    s, x, _ = pointwise(64, 64)
    copy = s.cache_after(x)
    with pytest.raises(SchedulingError, match="needs an allocation domain in shared memory first"):
        s.swizzle(copy, 0, 1)
    s.set_memory_type(copy, MemoryType.shared)
    s.set_allocation_domain(copy, [0, 1])
    for by, axis in ((0, 0), (0, 2), (-1, 1)):
        with pytest.raises(SchedulingError, match="its allocation domain has 2 axes"):
            s.swizzle(copy, by, axis)
    s.swizzle(copy, 0, 1)
    assert s.state(copy).swizzles == ((0, 1),)
    with pytest.raises(SchedulingError, match="takes part in a swizzle already"):
        s.swizzle(copy, 1, 0)
    assert str(s.records[-1]) == f"{copy}.swizzle(0, 1)"
    s.set_allocation_domain(copy, [1, 0])
    assert s.state(copy).swizzles == (), "the swizzles were of the old one"


def test_only_constant_powers_of_two_are_swizzled() -> None:
    for shape in ((64, 48), (64, -1)):
        s, x, _ = pointwise(*shape)
        copy = s.cache_after(x)
        s.set_memory_type(copy, MemoryType.shared)
        s.set_allocation_domain(copy, [0, 1])
        with pytest.raises(SchedulingError, match="is no constant power of two"):
            s.swizzle(copy, 0, 1)
