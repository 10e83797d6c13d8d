"""Every rule of `verify_schedule` rejects a planted mistake, and what verbs make is well formed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.errors import InternalError, SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import ExtentDivisible
from fuser.ir.fusion.fusion import Fusion, IterDomain, IterKind
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.scheduled_fusion import merge_axes, split_axis
from fuser.ir.schedule.verify_schedule import structure_problems, verify_schedule
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.fuzzing.random_schedules import generate


def row_sum() -> Fusion:
    """t1 = exp(t0); t2 = sum(t1, 1)"""
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    b.add_output(b.reduction("sum", b.pointwise("exp", [x], DataType.Float), [1], DataType.Float))
    return b.freeze()


def scheduled() -> ScheduleBuilder:
    """Rows to blocks, a row in pieces of 128 threads, in two stages."""
    s = ScheduleBuilder(row_sum())
    s.cache_after("t0")
    s.cache_before("t2")
    name = "t2_cache_before_0"
    s.split(name, 1, 128)
    s.transform_like(name)
    first = s.rfactor(name, [1])
    assert isinstance(first, str)
    s.parallelize(first, 0, ParallelType.grid_x)
    s.parallelize(first, 2, ParallelType.block_x)
    s.parallelize_like(first)
    s.inline_most()
    return s


def test_what_verbs_make_is_well_formed():
    s = scheduled()
    assert structure_problems(s) == []
    verify_schedule(s)


@pytest.mark.parametrize("start", [0, 60])
def test_random_schedules_are_well_formed(start):
    for seed in range(start, start + 60):
        assert structure_problems(generate(seed).schedule) == [], seed


def malformed(change: Callable[[ScheduleBuilder], object], s: ScheduleBuilder | None = None) -> str:
    s = s if s is not None else scheduled()
    change(s)
    with pytest.raises(InternalError, match="malformed") as caught:
        verify_schedule(s, "some_scheduler")
    assert caught.value.pass_name == "some_scheduler"
    return str(caught.value)


def refused(change: Callable[[ScheduleBuilder], object], s: ScheduleBuilder | None = None) -> str:
    s = s if s is not None else scheduled()
    change(s)
    assert structure_problems(s) == []
    with pytest.raises(SchedulingError) as caught:
        verify_schedule(s)
    return str(caught.value)


# --- structure --------------------------------------------------------------------------------------------------------


def test_exprs_are_in_order():
    assert "t2_cache_before_0_rfactor_0 reads t1, which no expr before it defines" in malformed(
        lambda s: s.exprs.__setitem__(slice(1, 3), s.exprs[2:0:-1])
    )


def test_every_tensor_has_one_state():
    assert "t1 has no state" in malformed(lambda s: s.states.pop("t1"))
    assert "t9 has a state and no expr" in malformed(lambda s: s.states.__setitem__("t9", s.states["t1"]))
    assert "the output t2 is not defined" in malformed(lambda s: s.exprs.pop())

    def other_tensor(s: ScheduleBuilder) -> None:
        s.states["t1"].tensor = replace(s.states["t1"].tensor)

    assert "the state of t1 is of another tensor" in malformed(other_tensor)


def test_dims_that_meet_have_one_extent():
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [4])
    b.add_output(b.pointwise("exp", [x], DataType.Float))
    s = ScheduleBuilder(b.freeze())

    def longer(s: ScheduleBuilder) -> None:
        x.logical[0].extent = const(5)

    assert "dim i{t0.0: 5} of t0 meets i{t1.0: 4} of t1" in malformed(longer, s)


def loops(change: Callable[[list[IterDomain]], object]) -> str:
    def apply(s: ScheduleBuilder) -> None:
        change(s.states["t1"].loop)

    s = ScheduleBuilder(row_sum())
    s.split("t1", 1, 8)
    return malformed(apply, s)


def test_loop_axes_derive_from_the_dims():
    assert "has an axis twice" in loops(lambda loop: loop.append(loop[0]))
    assert "has lost i{t1.0:" in loops(lambda loop: loop.pop(0))
    assert "has lost i{t1.1%8: 8}" in loops(lambda loop: loop.pop(2))
    assert "comes from no dim of the tensor" in loops(lambda loop: loop.append(IterDomain("x", const(3))))
    assert "holds i{t1.1/8:" in loops(lambda loop: loop.append(split_axis(loop[1], const(2), True).outer))

    def used_twice(loop: list[IterDomain]) -> None:
        loop[:] = [merge_axes(loop[0], loop[1]).result, merge_axes(loop[0], loop[2]).result]

    assert "in two transforms" in loops(used_twice)


def test_transforms_make_what_they_say():
    def split_extent(loop: list[IterDomain]) -> None:
        loop[1].extent = const(7)

    assert "the split of i{t1.1: t0_size1} by 8 made i{t1.1/8: 7}" in loops(split_extent)

    def kind(loop: list[IterDomain]) -> None:
        loop[1].kind = IterKind.reduction

    assert "of another kind" in loops(kind)

    def merged_extent(loop: list[IterDomain]) -> None:
        made = merge_axes(loop[0], loop[1]).result
        made.extent = const(7)
        loop[:2] = [made]

    assert "the merge of i{t1.0" in loops(merged_extent)

    def other_definition(loop: list[IterDomain]) -> None:
        loop[1].definition = split_axis(loop[0], const(2), True)

    assert "do not name it as their definition" in loops(other_definition)


def test_parallel_types_are_of_loop_axes():
    def stale(s: ScheduleBuilder) -> None:
        s.states["t1"].parallel[IterDomain("x", const(3))] = ParallelType.block_x

    assert "t1 has a parallel type for i{x: 3}, no axis of its loops" in malformed(stale)


def test_positions_are_inside_the_loops():
    def too_deep(s: ScheduleBuilder) -> None:
        s.states["t1"].inline_at = 9

    assert "t1 is inlined at 9, it has 3 loop axes" in malformed(too_deep)


def moments() -> ScheduleBuilder:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    mean, m2, _ = b.welford(x, [1])
    b.add_output(mean)
    b.add_output(m2)
    return ScheduleBuilder(b.freeze())


def test_siblings_agree():
    def split_one(s: ScheduleBuilder) -> None:
        state = s.states["t2"]
        made = split_axis(state.loop[0], const(4), True)
        state.loop[:1] = [made.outer, made.inner]

    assert "the siblings t1 and t2 have different loops" in malformed(split_one, moments())

    def parallel_one(s: ScheduleBuilder) -> None:
        s.states["t3"].parallel[s.states["t3"].loop[0]] = ParallelType.grid_x

    assert "the siblings t1 and t3 have different loops" in malformed(parallel_one, moments())

    def inline_one(s: ScheduleBuilder) -> None:
        s.states["t2"].inline_at = 1

    assert "are inlined at 0 and 1" in malformed(inline_one, moments())


def test_layouts():
    s = scheduled()
    t = s.states["t1"].tensor
    bad = replace(t, stride_order=(1, 1))
    assert "t1 of rank 2 has stride order (1, 1)" in malformed(lambda s: s._replace_tensor(t, bad), s)


# --- legality ---------------------------------------------------------------------------------------------------------


def test_a_parallel_type_appears_once():
    assert "t2 has two loop axes on block_x" in refused(
        lambda s: (s.parallelize("t2", 0, ParallelType.block_x), s.parallelize("t2", 1, ParallelType.block_x)),
        split_output(),
    )


def split_output() -> ScheduleBuilder:
    s = ScheduleBuilder(row_sum())
    s.split("t2", 0, 4)
    return s


def test_unrolled_axes_are_constants():
    for p in (ParallelType.unroll, ParallelType.unswitch):
        assert f"is {p.name} and has the extent" in refused(lambda s, p=p: s.parallelize("t2", 0, p), split_output())


def test_unrolled_axes_are_constants_by_the_bounds_that_are_asked_for():
    """Of any dim that is the same: the other operand's extent has a symbol of its own."""
    b = FusionBuilder()
    x, y = (b.input_tensor(DataType.Float, [-1, -1]) for _ in range(2))
    b.add_output(b.pointwise("add", [x, y], DataType.Float))
    s = ScheduleBuilder(b.freeze())
    s.parallelize("t2", 1, ParallelType.unroll)
    s.require_extent_range("t1", 1, 0, 4)
    with pytest.raises(SchedulingError, match="axis 1 of t2 is unroll and has the extent t0_size1, no constant"):
        verify_schedule(s)
    s.require_extent_range("t0", 1, 4, 9)
    verify_schedule(s)


def test_mesh_axes():
    def mesh(s: ScheduleBuilder) -> None:
        s.states["t2"].parallel[s.states["t2"].loop[0]] = ParallelType.mesh_x

    assert "is mesh_x, which is not supported" in refused(mesh, split_output())


def copies() -> ScheduleBuilder:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [8, 8])
    b.add_output(b.pointwise("exp", [x], DataType.Float))
    s = ScheduleBuilder(b.freeze())
    s.cache_after("t0")
    return s


def test_vectorized_axes():
    assert "t1 cannot be vectorized: only a copy can" in refused(
        lambda s: s.parallelize("t1", 1, ParallelType.vectorize), copies()
    )
    assert "the vectorized axis of t0_cache_after_0 is not its innermost" in refused(
        lambda s: s.parallelize("t0_cache_after_0", 0, ParallelType.vectorize), copies()
    )


def test_memory_of_arguments():
    def move(s: ScheduleBuilder) -> None:
        s.states["t1"].memory = MemoryType.shared

    assert "t1 is an input or output and lives in shared memory" in refused(move, copies())


def test_allocation_domains():
    def some_dims(s: ScheduleBuilder) -> None:
        state = s.states["t0_cache_after_0"]
        state.allocation = state.tensor.visible[:1]

    assert "is no permutation of its dims or of its loop axes" in refused(some_dims, copies())

    def loop_axes(s: ScheduleBuilder) -> None:
        s.split("t1", 1, 4)
        s.states["t1"].allocation = tuple(s.states["t1"].loop)

    assert "its allocation domain is over its dims" in refused(loop_axes, copies())


def test_inline_positions():
    def parted(s: ScheduleBuilder) -> None:
        s.states["t0_cache_after_0"].inline_at = 2
        s.reorder("t1", {0: 1})

    assert "t0_cache_after_0 cannot stay inlined at position 2" in refused(parted, copies())


# --- schedulers -------------------------------------------------------------------------------------------------------


def pointwise(fd):
    x, b = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
    return [fd.ops.add(x, b)]


def row_statistics(fd):
    x = fd.define_tensor([-1, -1], True)
    return list(fd.ops.var_mean(x, [1]))


def softmax(fd):
    x = fd.define_tensor([-1, -1], True)
    e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
    return [fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True))]


def column_sum(fd):
    return [fd.ops.sum(fd.define_tensor([-1, -1], True), [0])]


@pytest.mark.parametrize("shape", [(5, 7), (64, 96), (1, 300), (300, 1)])
@pytest.mark.parametrize("body", [pointwise, row_statistics, softmax, column_sum])
def test_what_schedulers_apply_is_well_formed(body, shape):
    with FusionDefinition() as fd:
        for output in body(fd):
            fd.add_output(output)
    fusion = fd.fusion.ir_fusion
    arrays = [np.ones(shape[len(shape) - t.ndim :], np.float32) for t in fusion.input_tensors]
    bound = bind_inputs(fusion, arrays)
    for segment in segment_fusion(fusion).segments:
        inputs = SegmentInputs(bound.tensors, bound.evaluate)
        params = segment.scheduler.propose(segment.fusion, inputs, DeviceInfo.preset("H200"))
        assert not isinstance(params, Refused)
        verify_schedule(segment.scheduler.apply(segment.fusion, params), segment.scheduler.type.name)


def test_an_extent_is_asked_to_be_a_multiple():
    b = FusionBuilder()
    b.add_output(b.pointwise("neg", [b.input_tensor(DataType.Float, [-1, -1])], DataType.Float))
    s = ScheduleBuilder(b.freeze())
    s.require_extent_divisible("t0", 1, 8)
    assert s.required_facts == [ExtentDivisible("t0", 1, 8)]
    again = ScheduleBuilder(s.fusion)
    again.replay(s.records)
    assert again.required_facts == s.required_facts
    for name, dim in (("t1", 0), ("t0", 2)):
        with pytest.raises(
            SchedulingError, match=f"cannot ask for the extent of dim {dim} of {name}: the fusion has no"
        ):
            s.require_extent_divisible(name, dim, 2)
    with pytest.raises(SchedulingError, match="cannot ask for an extent of t0 that is a multiple of 0"):
        s.require_extent_divisible("t0", 0, 0)


def test_parts_of_a_window_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extent of the dim is a symbol, that of each part a number; another split of it has to be by its extent."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 8], True, DataType.Float)
        padded = fd.ops.pad(x, [0, 0, 0, 6], 0.0)
        fd.add_output(fd.ops.mul(fd.ops.reshape(padded, [5, 2, 8]), 2.0))
    given = np.random.default_rng(0).normal(size=(4, 8)).astype("f4")
    (found,) = fd.execute([given], device="simulator")
    expected = np.concatenate([given, np.zeros((6, 8), "f4")]).reshape(5, 2, 8) * 2
    np.testing.assert_array_equal(np.asarray(found), expected)
