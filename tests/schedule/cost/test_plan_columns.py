"""Reductions of columns: right in every regime, also where rows begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.params import ReductionParams
from tests.schedule.schedulers.test_reduction import TINY, propose, reduction, simulate

D = DataType


def planned(op: str, shape: tuple[int, int], dtype: DataType, stride: int = 0) -> ReductionParams:
    given = TensorDescriptor(dtype, shape, (stride or shape[1], 1), 256)
    return propose(reduction(op, [0], 2, dtype), [given], H200)


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
    assert params.grid_reduce <= 2 * H200.sm_count


@pytest.mark.parametrize("shape", [(1694, 16384), (3120, 16384)], ids=str)
def test_statistics_have_no_second_round_of_blocks(shape: tuple[int, int]) -> None:
    params = planned("var_mean", shape, D.BFloat16)
    assert (params.block_iterate, params.block_reduce, params.grid_reduce) == (16, 32, 1)


@pytest.mark.parametrize("rows", [18, 27, 59])
def test_statistics_of_few_rows_have_warps_that_test_alike(rows: int) -> None:
    params = planned("var_mean", (rows, 257), D.Double)
    assert (params.vector, params.block_iterate, params.unroll) == (1, 32, 4)


@pytest.mark.parametrize(("rows", "threads", "unroll"), [(17, 8, 4), (31, 8, 4), (63, 16, 4), (64, 16, 4)])
def test_little_data_has_a_turn_of_warps_that_test_alike(rows: int, threads: int, unroll: int) -> None:
    params = planned("sum", (rows, 257), D.Double)
    assert (params.vector, params.block_iterate, params.block_reduce, params.unroll) == (1, 32, threads, unroll)
