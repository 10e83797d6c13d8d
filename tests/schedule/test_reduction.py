"""Reductions as they are scheduled: right in every regime, few kernels for many shapes, accurate on hard data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.fact_collection import collect_facts
from fuser.ir.fusion import Fusion
from fuser.schedule.params import ReductionParams, SegmentInputs
from fuser.schedule.reduction import ReductionScheduler
from tests.harness import Lowered, run

Array = np.ndarray[Any, Any]
D = DataType
# So few threads and SMs that small inputs reach the regimes of large ones.
TINY = replace(H200, name="tiny", sm_count=2, max_threads_per_sm=1024)
SCHEDULER = ReductionScheduler()


def reduction(op: str, dims: Sequence[int], rank: int, dtype: DataType, order: Sequence[int] | None = None) -> Fusion:
    """`op` over `dims` of one input; of a 16-bit type it is computed and returned in Float."""
    with FusionDefinition() as fd:
        ranks = None if order is None else [rank - 1 - list(order).index(d) for d in range(rank)]
        x = fd.define_tensor([-1] * rank, True, dtype, stride_order=ranks)
        x = fd.ops.cast(x, D.Float) if dtype.is_reduced_float else x
        if op == "var_mean":
            for result in fd.ops.var_mean(x, dims, 1, False):
                fd.add_output(result)
        else:
            fd.add_output(getattr(fd.ops, op)(x, dims))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def propose(fusion: Fusion, inputs: Sequence[Any], device: DeviceInfo = TINY) -> ReductionParams:
    bound = bind_inputs(fusion, inputs)
    params = SCHEDULER.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), device)
    assert isinstance(params, ReductionParams)
    return params


def simulate(fusion: Fusion, inputs: Sequence[Array], params: ReductionParams, seed: int = 0) -> list[Array]:
    scheduled = SCHEDULER.apply(fusion, params)
    bound = bind_inputs(fusion, inputs)
    lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
    outputs = run(lowered, inputs, seed=seed).check()
    return [outputs[t.name] for t in fusion.output_tensors]


def stored(x: Array, order: Sequence[int] | None) -> Array:
    """The same values with dims in another memory order."""
    if order is None:
        return x
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


SHAPES = {
    "inner": ([1], None, [(1, 1), (3, 7), (40, 96), (2, 5000), (1, 40000), (7, 1023), (300, 8), (5, 4096)]),
    "outer": ([0], None, [(1, 1), (7, 3), (96, 40), (3000, 5), (5000, 64), (33, 130), (4096, 8), (2000, 1)]),
    "all": ([0, 1], None, [(1, 1), (3, 7), (64, 96), (250, 130)]),
    "middle": ([1], None, [(1, 1, 1), (3, 40, 8), (2, 700, 33)]),
    "channels": ([0, 2], None, [(1, 1, 1), (4, 3, 16), (9, 2, 250), (40, 3, 64)]),
    "channels_last": ([0, 1], None, [(1, 1, 1), (4, 16, 8), (9, 250, 6)]),
    "columns_of_transposed": ([1], (1, 0), [(40, 96), (5, 3000)]),
}
CASES = [(name, dims, order, shape) for name, (dims, order, shapes) in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "dims", "order", "shape"), CASES)
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16])
def test_sums_in_every_regime(
    name: str, dims: list[int], order: tuple[int, ...] | None, shape: tuple[int, ...], dtype: DataType
) -> None:
    x = stored(np.random.default_rng(0).integers(-4, 5, shape).astype(dtype.numpy), order)
    fusion = reduction("sum", dims, len(shape), dtype, order)
    (found,) = simulate(fusion, [x], propose(fusion, [x]))
    np.testing.assert_array_equal(found, x.astype(np.float64).sum(tuple(dims)))


@pytest.mark.parametrize(("name", "dims", "order", "shape"), CASES)
def test_variances_in_every_regime(
    name: str, dims: list[int], order: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    x = stored(np.random.default_rng(1).normal(3.0, 2.0, shape).astype("f4"), order)
    fusion = reduction("var_mean", dims, len(shape), D.Float, order)
    variance, mean = simulate(fusion, [x], propose(fusion, [x]))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(tuple(dims)), rtol=2e-6, atol=2e-6)
    count = exact.size // max(mean.size, 1)
    if count > 1:
        np.testing.assert_allclose(variance, exact.var(tuple(dims), ddof=1), rtol=4e-6)
