"""Accesses of pointwise kernels: which plans there are for misaligned rows, and which is taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.layouts import row_major
from fuser.schedule.cost.estimate import CLOSE
from fuser.schedule.cost.pointwise_heuristic import PointwiseHeuristic
from fuser.schedule.cost.pointwise_mappings import POINTWISE
from fuser.schedule.cost.pointwise_work import PointwiseMapping
from fuser.schedule.params import Aligned, PointwiseParams, Unaligned
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler, plan_of

BFloat16, Float, Half = DataType.BFloat16, DataType.Float, DataType.Half
Define = Callable[[FusionDefinition], list[TensorDescriptor]]


def tensor(dtype: DataType, *shape: int) -> TensorDescriptor:
    return TensorDescriptor(dtype, shape, row_major(shape), 256)


def planned(define: Callable[..., Any], *inputs: TensorDescriptor) -> tuple[Fusion, SegmentInputs]:
    """A segment of the symbolic fusion, and its inputs."""
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor([-1] * len(t.sizes), [True] * len(t.sizes), t.dtype) for t in inputs]
        for out in define(fd.ops, *tensors):
            fd.add_output(out)
    assert fd.fusion is not None
    bound = bind_inputs(fd.fusion.ir_fusion, inputs)
    return fd.fusion.ir_fusion, SegmentInputs(bound.tensors, bound.evaluate)


def heuristic_of(segment: Fusion, inputs: SegmentInputs) -> PointwiseHeuristic:
    _, _, found = plan_of(segment, inputs, H200)
    assert found is not None
    return found


def proposed(segment: Fusion, inputs: SegmentInputs) -> PointwiseParams:
    return PointwiseScheduler().propose(segment, inputs, H200)


def step(ops: Any, weights: Any, gradients: Any) -> list[Any]:
    """Of SGD, with a copy of the weights in 16 bits."""
    new = weights - ops.cast(gradients, Float) * 0.01
    return [new, ops.cast(new, BFloat16)]


def scaled(ops: Any, x: Any, low: Any, width: Any) -> list[Any]:
    """Columns by what each of them has, in 16 bits."""
    over_rows = [True, False]
    return [ops.cast((x - ops.broadcast(low, over_rows)) * ops.broadcast(width, over_rows), Half)]


def swiglu(ops: Any, x: Any, y: Any) -> list[Any]:
    return [ops.cast(ops.silu(x) * y, x.dtype())]


@pytest.mark.parametrize("length", [7_000_000, 7_000_001, 7_000_002])
def test_a_thread_stores_each_output_in_one_access(length: int) -> None:
    """Two stores of a thread, one behind the other, each write pieces of the sectors of a warp."""
    params = proposed(*planned(step, tensor(Float, length), tensor(BFloat16, length)))
    widths = dict(params.vector_widths)
    assert params.vector > 1
    assert all(widths[f"t{k}"] == params.vector for k in range(2)), "inputs are read by as many elements"
    assert set(widths.values()) == {params.vector}


def test_vectors_of_odd_rows_have_several_lengths() -> None:
    space = heuristic_of(*planned(swiglu, tensor(Half, 301, 5001), tensor(Half, 301, 5001)))
    assert sorted(space.misaligned_accesses) == [2, 4, 8]
    for vector, (widths, access) in space.misaligned_accesses.items():
        assert max(widths.values()) == vector
        assert not isinstance(access, Aligned)


def test_rows_whose_vectors_are_aligned_need_no_others() -> None:
    assert not heuristic_of(*planned(swiglu, tensor(Half, 301, 5000), tensor(Half, 301, 5000))).misaligned_accesses


def test_where_rows_are_multiples_of_a_narrower_vector_it_is_an_aligned_one() -> None:
    space = heuristic_of(*planned(swiglu, tensor(Half, 301, 5002), tensor(Half, 301, 5002)))
    assert sorted(space.misaligned_accesses) == [4, 8]


@pytest.mark.parametrize("length", [257, 2051, 50257])
@pytest.mark.parametrize("define", [swiglu, scaled], ids=["whole", "columns"])
def test_the_plan_that_should_take_least_time_is_proposed(define: Callable[..., Any], length: int) -> None:
    shapes = [(30011, length), (30011, length)] if define is swiglu else [(30011, length), (length,), (length,)]
    segment, inputs = planned(define, *(tensor(Float, *shape) for shape in shapes))
    space, params = heuristic_of(segment, inputs), proposed(segment, inputs)
    plans = space.plans()
    assert len(plans) > 1
    times = {(plan.access, m): time for plan in plans for time, m in POINTWISE.ranked(plan.work, H200)}
    mine = min(time for (access, m), time in times.items() if access == params.access and is_of(m, params))
    assert mine - H200.launch <= CLOSE * (min(times.values()) - H200.launch)


def is_of(m: PointwiseMapping, params: PointwiseParams) -> bool:
    """Whether parameters may be those of a mapping; a wide block stands for one that has all columns."""
    wide, high = params.block_shape
    return (m.vector, m.threads_y, m.unroll) == (params.vector, high, params.unroll) and wide in (0, m.threads_x)


def test_one_run_of_short_rows_counts_what_is_read_by_element() -> None:
    """Two of three arguments are read by element: vectors for the third do not pay."""
    params = proposed(*planned(scaled, tensor(Float, 300_007, 257), tensor(Float, 257), tensor(Float, 257)))
    assert isinstance(params.access, Aligned)
    alone = proposed(*planned(swiglu, tensor(Half, 300_007, 257), tensor(Half, 300_007, 257)))
    assert isinstance(alone.access, Unaligned)
    assert math.prod(alone.block_shape) >= 32


def mosaic(ops: Any, *quarters: Any) -> list[Any]:
    """Four pictures beside and below one another."""
    a, b, c, d = quarters
    return [ops.cat([ops.cat([a, b], 1), ops.cat([c, d], 1)], 0)]


def beside_zeros(ops: Any, x: Any) -> list[Any]:
    return [ops.pad(x, [0, 1024, 0, 1024])]


@pytest.mark.parametrize(("define", "count"), [(mosaic, 4), (beside_zeros, 1)])
def test_a_piece_of_a_concatenation_is_read_where_it_is(define: Callable[..., Any], count: int) -> None:
    """Not once for every element of the result."""
    fusion, inputs = planned(define, *[tensor(DataType.Float, 1024, 1024)] * count)
    segment = optimize_fusion(fusion, lambda stage, text: None)
    work = heuristic_of(segment, inputs).plans()[0].work
    assert work.read == pytest.approx(count * 4 * 1024**2, rel=0.01)
    assert work.written == pytest.approx(4 * 4 * 1024**2, rel=0.01)
