"""Verbs of a schedule: what they make, what they refuse, and that their records replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Broadcast, Fusion
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from tests.fusions.kernel_corpus import BX, BY, CORPUS, GX, SHARED, VECTOR
from tests.fuzzing.random_schedules import replay
from tests.ir.small_schedules import extents, pointwise, row_sum

Float = DataType.Float


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


def test_cache_hints_of_copies() -> None:
    fusion, _ = every_verb()
    s = ScheduleBuilder(fusion)
    source, out = s.fusion.input_tensors[0].name, s.fusion.output_tensors[0].name
    copy = s.cache_after(source)
    s.cache_before(out)
    for name in (copy, out):
        s.set_cache_op(name, CacheOp.streaming)
        assert s.state(name).cache_op is CacheOp.streaming
    with pytest.raises(SchedulingError, match=f"cannot hint how {source} is cached: it is no copy"):
        s.set_cache_op(source, CacheOp.streaming)
    again = ScheduleBuilder(fusion)
    again.replay(s.records)
    assert str(again) == str(s)


def test_printed_schedule_rebuilds_itself() -> None:
    _, s = every_verb()
    again = replay(str(s), every_verb()[0])
    assert str(again) == str(s)


@pytest.mark.in_turns
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
