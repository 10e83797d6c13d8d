"""Values that are reduced and written out as well: gradients of an activation with the gradient of the bias, for one.

The whole device works on them, whatever dims are reduced; nothing of a full-size output makes blocks own whole results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser import DataType
from fuser.ir.device_info import H200
from fuser.schedule.params import ReductionParams
from tests.fusions.reduced_outputs import D, product_and_sums
from tests.schedule.block_reductions import NARROW, TINY, described, propose, simulate


def planned(dims: Sequence[int], shape: Sequence[int], dtype: DataType, sums: int = 1) -> ReductionParams:
    return propose(product_and_sums(dims, len(shape), dtype, sums), [described(shape, dtype)] * 2, H200)


SHAPES = st.one_of(
    st.tuples(st.integers(1, 3000), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 3000)),
    st.tuples(st.integers(1, 12), st.integers(1, 60), st.integers(1, 40)),
)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_outputs_and_sums_of_any_dims_are_right(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    if data.draw(st.booleans()):
        shape = (*shape[:-1], -(-shape[-1] // 8) * 8)
    rank = len(shape)
    dims = sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
    dtype = data.draw(st.sampled_from([D.Float, D.BFloat16, D.Double]))
    sums, heavy = data.draw(st.integers(0, 2)), data.draw(st.booleans())
    sums = max(sums, 1 - heavy)
    device = data.draw(st.sampled_from([TINY, NARROW, H200]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    inputs = [rng.integers(-4, 5, shape).astype(dtype.numpy) for _ in range(2)]
    fusion = product_and_sums(dims, rank, dtype, sums, heavy=heavy)
    found = simulate(fusion, inputs, propose(fusion, inputs, device))
    x, y = (a.astype(np.float64) for a in inputs)
    np.testing.assert_array_equal(found[0].astype(np.float64), x * y)
    if heavy:
        np.testing.assert_allclose(found[1], (x * y).var(tuple(dims)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[2], (x * y).mean(tuple(dims)), rtol=1e-5, atol=1e-6)
    for k, total in enumerate(found[3 if heavy else 1 :]):
        np.testing.assert_array_equal(total, (x * y if k == 0 else x * (k + 1)).sum(tuple(dims)))


def blocks_of(params: ReductionParams, shape: Sequence[int], dims: Sequence[int]) -> int:
    kept = math.prod(n for d, n in enumerate(shape) if d not in dims)
    of_results = kept if params.inner else -(-kept // params.vector)
    return -(-of_results // params.block_iterate) * params.grid_reduce


LARGE = [
    ((9973, 4864), [0]),
    ((4096, 4096), [0]),
    ((16384, 1024), [0]),
    ((100003, 256), [0]),
    ((511, 16384), [0]),
    ((64, 131072), [0]),
    ((9973, 4863), [0]),
    ((100003, 257), [0]),
    ((32, 311, 4864), [0, 1]),
    ((96, 1009, 770), [1]),
    ((33, 1 << 20), [1]),
    ((33, 1 << 20), [0, 1]),
    ((3, 5, 1 << 20), [0, 2]),
]


@pytest.mark.parametrize(("shape", "dims"), LARGE, ids=str)
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("sums", [1, 3])
def test_every_sm_has_threads_enough(shape: Sequence[int], dims: Sequence[int], dtype: DataType, sums: int) -> None:
    """Blocks for nine of ten SMs, and two warps of each of their schedulers."""
    params = planned(dims, shape, dtype, sums)
    blocks = blocks_of(params, shape, dims)
    assert blocks * 10 >= H200.sm_count * 9
    threads = params.block_reduce * params.block_iterate * max(1, params.block_outer)
    assert blocks * threads >= H200.sm_count * 256


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float, D.Double], ids=lambda d: d.name)
@pytest.mark.parametrize(("shape", "dims"), [(s, d) for s, d in LARGE if s[-1] % 8 == 0], ids=str)
def test_arguments_are_read_and_written_in_whole_vectors(
    shape: Sequence[int], dims: Sequence[int], dtype: DataType
) -> None:
    params = planned(dims, shape, dtype)
    assert params.vector * dtype.itemsize == 16
    assert len(params.vectorized) >= 3, "both inputs and the full-size output"


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 40000), (1, 2, 70001), (3, 1, 65536)], ids=str)
def test_few_long_planes_are_cut_into_pieces(shape: tuple[int, int, int], heavy: bool) -> None:
    """Blocks that share a result have pieces of its planes where these are fewer than blocks."""
    rng = np.random.default_rng(7)
    inputs = [rng.integers(-4, 5, shape).astype(np.float32) for _ in range(2)]
    fusion = product_and_sums([0, 2], 3, D.Float, heavy=heavy)
    params = propose(fusion, inputs, H200)
    assert params.grid_along or not params.block_outer
    assert params.grid_reduce > shape[0]
    product, *statistics, total = simulate(fusion, inputs, params)
    exact = inputs[0].astype("f8") * inputs[1]
    np.testing.assert_array_equal(product, exact)
    np.testing.assert_array_equal(total, exact.sum((0, 2)))
    for found, expected in zip(statistics, (exact.var((0, 2)), exact.mean((0, 2))), strict=heavy):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
