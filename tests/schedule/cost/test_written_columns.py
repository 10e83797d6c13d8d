"""Reductions of columns whose values are written as well: whole waves of blocks, and what of rows blocks have in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import DataType as D
from fuser.ir.device_info import H200, SECTOR_BYTES
from fuser.schedule.params import ReductionParams
from tests.schedule.schedulers.test_reduced_outputs import NARROW, blocks_of, planned, product_and_sums
from tests.schedule.schedulers.test_reduction import propose, simulate


def resident_blocks(params: ReductionParams) -> int:
    return H200.sm_count * 1024 // (params.block_reduce * params.block_iterate)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1 << 14, 1 << 17),
    st.integers(4, 1 << 11),
    st.sampled_from([D.BFloat16, D.Float, D.Double]),
    st.integers(1, 2),
)
def test_blocks_of_much_data_fill_whole_waves(rows: int, lines: int, dtype: D, sums: int) -> None:
    """At most a fifth of the threads that SMs hold for all waves have nothing to do."""
    columns = 128 * lines
    params = planned([0], (rows, columns), dtype, sums)
    blocks, resident = blocks_of(params, (rows, columns), [0]), resident_blocks(params)
    assert blocks * 5 >= -(-blocks // resident) * resident * 4


@settings(deadline=None, max_examples=150)
@given(st.integers(17, 1 << 20), st.integers(1, 1 << 14), st.sampled_from([D.BFloat16, D.Float, D.Double]))
def test_parts_are_not_joined_for_longer_than_they_are_made(rows: int, columns: int, dtype: D) -> None:
    params = planned([0], (rows, columns), dtype)
    if not params.cluster:
        assert params.grid_reduce**2 * params.unroll <= rows * 5 / 4
        assert params.grid_reduce == 1 or params.grid_reduce * params.block_reduce <= rows


@settings(deadline=None, max_examples=100)
@given(st.integers(1 << 12, 1 << 16), st.integers(1 << 10, 1 << 13), st.sampled_from([D.BFloat16, D.Float]))
def test_rows_that_share_sectors_are_cut_where_aligned_ones_are_not(rows: int, columns: int, dtype: D) -> None:
    """What the resident blocks move fits in L2, or parts are as many as can be joined. Nothing leaves the cache early."""
    params = planned([0], (rows, columns), dtype)
    shared = columns * dtype.itemsize % SECTOR_BYTES > 0
    assert params.streaming is not shared
    if not shared:
        return
    of_part = -(-rows // params.grid_reduce)
    threads = H200.sm_count * H200.max_threads_per_sm
    moved = -(-of_part // params.block_reduce) * params.vector * 3 * dtype.itemsize * threads
    is_joined_longest = (params.grid_reduce + 1) ** 2 * params.unroll * 2 > rows
    assert moved <= H200.l2_bytes or is_joined_longest or of_part <= 3 * params.unroll * params.block_reduce


@pytest.mark.parametrize("columns", [4864, 4863, 257, 256])
def test_numbers_of_rows_that_are_close_share_a_kernel(columns: int) -> None:
    found = {planned([0], (rows, columns), D.BFloat16) for rows in (8901, 9000, 9973, 10240)}
    assert len({(p.block_reduce, p.block_iterate, p.grid_reduce, p.unroll) for p in found}) == 1


@pytest.mark.parametrize("shape", [(1, 2, 1 << 20), (3, 5, 1 << 20), (2, 33, 70001)], ids=str)
def test_planes_have_as_many_threads_as_a_copy(shape: tuple[int, int, int]) -> None:
    params = planned([0, 2], shape, D.Float)
    threads = params.block_reduce * max(1, params.block_outer)
    assert 10 * shape[1] * params.grid_reduce * threads >= 9 * H200.sm_count * 1024


@pytest.mark.parametrize("shape", [(2100, 33), (2100, 64), (999, 130), (6, 700, 10)], ids=str)
def test_shared_columns_are_right(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    dim = len(shape) - 2
    inputs = [rng.integers(-4, 5, shape).astype(np.float32) for _ in range(2)]
    fusion = product_and_sums([dim], len(shape), D.Float)
    params = propose(fusion, inputs, NARROW)
    assert params.grid_reduce > 1
    product, total = simulate(fusion, inputs, params)
    exact = inputs[0].astype("f8") * inputs[1]
    np.testing.assert_array_equal(product, exact)
    np.testing.assert_array_equal(total, exact.sum(dim))
