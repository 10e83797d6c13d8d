"""What each scheduler accepts, in its own words, what it proposes, and that proposals are cheap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.ops.enums import ParallelType
from fuser.runtime.layouts import row_major
from fuser.schedule.params import PointwiseParams, ReductionParams, Unaligned
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.segmentation.registry import SCHEDULERS, scheduler_by_type
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, case

H200 = DeviceInfo.preset("H200")
Float, Half = DataType.Float, DataType.Half
# These may refuse sizes: others then take the segment, or its parts.
MAY_REFUSE = (
    SchedulerType.inner_persistent,
    SchedulerType.inner_outer_persistent,
    SchedulerType.outer_persistent,
    SchedulerType.thread_reduction,
    SchedulerType.transpose,
)


def fusion_of(build: Callable[[FusionDefinition], None]) -> Fusion:
    with FusionDefinition() as fd:
        build(fd)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def x(fd: FusionDefinition, rank: int = 2) -> Any:
    return fd.define_tensor([-1] * rank, True, Float)


def answer(kind: SchedulerType, fusion: Fusion) -> Accepted | Refused:
    scheduler = scheduler_by_type(kind)
    assert scheduler is not None
    return scheduler.accepts(fusion)


def propose(kind: SchedulerType, fusion: Fusion, *shapes: tuple[int, ...], dtype: DataType = Float) -> Any:
    scheduler = scheduler_by_type(kind)
    assert scheduler is not None
    bound = bind_inputs(fusion, [TensorDescriptor(dtype, s, row_major(s)) for s in shapes])
    return scheduler.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)


def _two_axes(fd: FusionDefinition) -> None:
    t = x(fd)
    fd.add_output(fd.ops.sum(t, [0]))
    fd.add_output(fd.ops.sum(t, [1]))


def _row_result(fd: FusionDefinition) -> None:
    t, b = x(fd), x(fd, 1)
    c = b * 2.0
    fd.add_output(c)
    fd.add_output(t + fd.ops.broadcast(c, [True, False]))


def _column_result(fd: FusionDefinition) -> None:
    t, b = x(fd), x(fd, 1)
    c = b * 2.0
    fd.add_output(c)
    fd.add_output(fd.ops.sum(t * fd.ops.broadcast(c, [True, False]), [1]))


def _transposed_sum(fd: FusionDefinition) -> None:
    t = x(fd)
    fd.add_output(t + fd.ops.permute(t, [1, 0]))


REFUSALS: list[tuple[SchedulerType, Callable[[FusionDefinition], None], str]] = [
    (SchedulerType.no_op, lambda fd: fd.add_output(x(fd) * 2.0), "is not a view of an input"),
    (SchedulerType.no_op, lambda fd: (lambda t: fd.add_output(t + 1.0, t))(x(fd)), "is written into the input t0"),
    (SchedulerType.pointwise, lambda fd: fd.add_output(fd.ops.sum(x(fd), [1])), "t0 is reduced"),
    (SchedulerType.pointwise, lambda fd: fd.add_output(x(fd)), "nothing is computed"),
    (SchedulerType.pointwise, _row_result, "lacks a dimension of"),
    (SchedulerType.pointwise, _transposed_sum, "a tensor has one dimension twice"),
    (SchedulerType.reduction, lambda fd: fd.add_output(x(fd) * 2.0), "nothing is reduced"),
    (SchedulerType.reduction, _two_axes, "are reduced over different dimensions"),
    (SchedulerType.reduction, _column_result, "lacks a dimension of"),
]


@pytest.mark.parametrize(("kind", "build", "words"), REFUSALS)
def test_refusals(kind: SchedulerType, build: Callable[[FusionDefinition], None], words: str) -> None:
    refused = answer(kind, fusion_of(build))
    assert isinstance(refused, Refused)
    assert words in refused.reason


def test_order_and_lookup() -> None:
    assert [s.type for s in SCHEDULERS][:1] == [SchedulerType.no_op]
    for scheduler in SCHEDULERS:
        assert scheduler_by_type(scheduler.type) is scheduler
    assert scheduler_by_type(SchedulerType.matmul) is None


def test_pointwise_width_follows_size_dtype_and_alignment() -> None:
    fusion = fusion_of(lambda fd: fd.add_output(x(fd) * 2.0))
    large = propose(SchedulerType.pointwise, fusion, (4096, 4096))
    assert isinstance(large, PointwiseParams)
    assert (large.vector, dict(large.vector_widths)) == (4, {"t0": 4, "t2": 4})
    assert propose(SchedulerType.pointwise, fusion, (4096, 4095)).vector == 4, "dense rows are one run of 4096 x 4095"
    assert propose(SchedulerType.pointwise, fusion, (4095, 4094)).vector == 2
    odd = propose(SchedulerType.pointwise, fusion, (4095, 4095))
    assert (odd.vector, odd.access) == (4, Unaligned()), "the last vector is cut"
    assert propose(SchedulerType.pointwise, fusion, (16, 16)).vector < 4, "every SM needs work first"
    half = fusion_of(lambda fd: fd.add_output(fd.ops.relu(fd.define_tensor([-1, -1], True, Half))))
    assert propose(SchedulerType.pointwise, half, (4096, 4096), dtype=Half).vector == 8


def test_pointwise_order_follows_memory() -> None:
    fusion = fusion_of(lambda fd: fd.add_output(x(fd) * 2.0))
    scheduler = scheduler_by_type(SchedulerType.pointwise)
    assert scheduler is not None
    bound = bind_inputs(fusion, [TensorDescriptor(Float, (64, 32), (1, 64))])
    params = scheduler.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, PointwiseParams)
    assert params.order == (1, 0)


def test_reduction_shapes() -> None:
    inner = fusion_of(lambda fd: fd.add_output(fd.ops.sum(x(fd), [1])))
    wide = propose(SchedulerType.reduction, inner, (1 << 14, 4096))
    assert isinstance(wide, ReductionParams)
    assert wide.inner
    assert (wide.vector, wide.grid_reduce) == (4, 1)
    narrow = propose(SchedulerType.reduction, inner, (1 << 16, 32))
    assert narrow.block_iterate > 1, "short rows share a block"
    few = propose(SchedulerType.reduction, inner, (2, 1 << 22))
    assert few.grid_reduce > 1, "long rows are shared by blocks"
    outer = propose(
        SchedulerType.reduction, fusion_of(lambda fd: fd.add_output(fd.ops.sum(x(fd), [0]))), (1 << 14, 4096)
    )
    assert not outer.inner
    assert outer.block_reduce > 1


def test_normalisations_never_share_a_row_between_blocks() -> None:
    """Their second pass needs the result of the first."""
    fusion = case("softmax").define().fusion
    assert fusion is not None
    assert propose(SchedulerType.reduction, fusion.ir_fusion, (2, 1 << 20)).grid_reduce == 1


def test_applying_does_not_change_the_fusion() -> None:
    for c in CORPUS:
        handle = c.define().fusion
        assert handle is not None
        fusion = handle.ir_fusion
        for scheduler in SCHEDULERS:
            if isinstance(scheduler.accepts(fusion), Refused):
                continue
            before = str(fusion)
            inputs = c.inputs(ALIGNED)
            bound = bind_inputs(fusion, inputs)
            params = scheduler.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
            if isinstance(params, Refused):
                assert scheduler.type in MAY_REFUSE, "the last resorts take every size"
                continue
            assert hash(params) == hash(scheduler.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200))
            first, second = scheduler.apply(fusion, params), scheduler.apply(fusion, params)
            assert str(fusion) == before
            assert first.records == second.records, "a schedule is decided by fusion and parameters"
            for state in first.states.values():
                types = [state.parallel_type(a) for a in state.loop]
                threads = [p for p in types if p.is_thread]
                assert len(set(threads)) == len(threads), "an axis of the launch appears once"
                assert ParallelType.vectorize not in types[:-1] or types[-1] is ParallelType.serial
