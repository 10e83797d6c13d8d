"""Reductions of columns: right in every regime, also where rows begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.params import ReductionParams
from tests.fusions.reduced_outputs import product_and_sums
from tests.schedule.block_reductions import NARROW, TINY, candidates, propose, reduction, simulate

D = DataType


def planned(op: str, shape: tuple[int, int], dtype: DataType, stride: int = 0) -> ReductionParams:
    given = TensorDescriptor(dtype, shape, (stride or shape[1], 1), 256)
    return propose(reduction(op, [0], 2, dtype), [given], H200)


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(20, 1003), (300, 515), (2100, 33), (97, 2049), (1500, 131)], ids=str)
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float, D.Double], ids=lambda d: d.name)
@pytest.mark.parametrize("op", ["sum", "var_mean"])
@pytest.mark.parametrize("device", [TINY, H200], ids=lambda d: d.name)
def test_columns_of_rows_that_begin_anywhere(op: str, dtype: DataType, shape: tuple[int, int], device: object) -> None:
    x = np.random.default_rng(2).integers(-4, 5, shape).astype(dtype.numpy)
    fusion = reduction(op, [0], 2, dtype)
    results = simulate(fusion, [x], propose(fusion, [x], TINY if device is TINY else H200))
    wide = x.astype(np.longdouble)
    expected = (
        [((wide - wide.mean(0)) ** 2).sum(0) / (shape[0] - 1), wide.mean(0)] if op == "var_mean" else [wide.sum(0)]
    )
    # A mean is off by a rounding of the value that its thread takes differences from.
    atol = (1e-14 if dtype is D.Double else 2.0**-20) if op == "var_mean" else 1e-8
    for found, exact in zip(results, expected, strict=True):
        rtol = 1e-14 if dtype is D.Double else 4e-6
        np.testing.assert_allclose(found, exact.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("op", ["sum", "var_mean"])
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float, D.Double], ids=lambda d: d.name)
@pytest.mark.parametrize("rows", [1, 17, 300, 5000, 3_000_000])
@pytest.mark.parametrize("pitch", [1, 3, 8])
def test_no_columns_are_planned_as_one(op: str, dtype: DataType, rows: int, pitch: int) -> None:
    params = planned(op, (rows, 0), dtype, pitch)
    assert params.block_reduce * params.block_iterate <= H200.max_threads_per_block
    assert params.grid_reduce <= 4 * H200.sm_count


@pytest.mark.parametrize("shape", [(2100, 33), (2100, 64), (999, 130), (6, 700, 10)], ids=str)
def test_shared_columns_are_right(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    dim = len(shape) - 2
    inputs = [rng.integers(-4, 5, shape).astype(np.float32) for _ in range(2)]
    fusion = product_and_sums([dim], len(shape), D.Float)
    params = next(p for p in candidates(fusion, inputs, NARROW) if p.grid_reduce > 1)
    product, total = simulate(fusion, inputs, params)
    exact = inputs[0].astype("f8") * inputs[1]
    np.testing.assert_array_equal(product, exact)
    np.testing.assert_array_equal(total, exact.sum(dim))
