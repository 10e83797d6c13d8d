"""Reductions of columns: by element where rows begin anywhere, in one wave of blocks, right in every regime."""

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
    for found, exact in zip(results, expected, strict=True):
        np.testing.assert_allclose(
            found, exact.astype(np.float64), rtol=4e-6 if dtype is not D.Double else 1e-14, atol=1e-8
        )


@pytest.mark.parametrize(
    ("op", "shape", "dtype", "threads", "most"),
    [
        ("sum", (346, 50257), D.BFloat16, 4, 2048),
        ("sum", (320, 50257), D.Float, 4, 2048),
        ("sum", (133, 250003), D.BFloat16, 1, 2048),
        ("var_mean", (826, 50257), D.Float, 4, 1536),
        ("var_mean", (1334, 50257), D.Double, 2, 1024),
        ("sum", (1525, 16383), D.Float, 8, 2048),
    ],
    ids=str,
)
def test_one_wave_of_blocks_reads_by_element(
    op: str, shape: tuple[int, int], dtype: DataType, threads: int, most: int
) -> None:
    params = planned(op, shape, dtype)
    assert (params.vector, params.grid_reduce, params.block_reduce) == (1, 1, threads)
    assert params.block_iterate % 32 == 0
    assert shape[1] * threads <= 132 * most


def test_long_columns_of_two_bytes_are_read_by_several() -> None:
    assert planned("sum", (61460, 5121), D.BFloat16).vector == 8
    assert planned("sum", (1000, 5121), D.BFloat16).vector == 1
    assert planned("sum", (61460, 5121), D.Float).vector == 1


@pytest.mark.parametrize(("shape", "blocks"), [((9197, 1001), 256), ((100_003, 257), 261), ((9197, 257), 261)], ids=str)
def test_blocks_share_columns_of_which_there_are_few(shape: tuple[int, int], blocks: int) -> None:
    params = planned("sum", shape, D.Float)
    assert params.vector == 1
    assert -(-shape[1] // params.block_iterate) * params.grid_reduce == blocks


@pytest.mark.parametrize("op", ["sum", "var_mean"])
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float, D.Double], ids=lambda d: d.name)
@pytest.mark.parametrize("rows", [1, 17, 300, 5000, 3_000_000])
@pytest.mark.parametrize("pitch", [1, 3, 8])
def test_no_columns_are_planned_as_one(op: str, dtype: DataType, rows: int, pitch: int) -> None:
    params = planned(op, (rows, 0), dtype, pitch)
    assert params.block_reduce * params.block_iterate <= H200.max_threads_per_block
    assert params.grid_reduce <= 2 * H200.sm_count


@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=lambda d: d.name)
def test_sums_that_blocks_share_have_many_threads_on_an_sm(dtype: DataType) -> None:
    params = planned("sum", (36296, 257), dtype)
    blocks = -(-257 // params.block_iterate) * params.grid_reduce
    assert params.vector == 1
    assert 1000 <= blocks * params.block_reduce * params.block_iterate / H200.sm_count <= 1024


def test_few_columns_of_doubles_have_many_last_blocks() -> None:
    params = planned("var_mean", (58498, 64), D.Double, stride=1063)
    assert (params.block_iterate, params.block_reduce, params.grid_reduce) == (8, 32, 33)


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
