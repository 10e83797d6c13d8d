"""Lanes of a warp that share columns end up with a part of the results each: right ones, with fewer shuffles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.kernel import Reduce, Shuffle, walk
from fuser.schedule.params import ReductionParams
from tests.lowering.test_moments import BF16, TYPES, Float, columns, exact, lowered, params, statistics

GIVEN = [
    params(64, 8, vector=8, blocks=2, unroll=1),
    params(16, 8, vector=4, blocks=3),
    params(32, 4, vector=8),
    params(32, 16, vector=2, blocks=2),
    params(64, 2, vector=4),
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("dtype", [BF16, Float])
def test_every_column_comes_to_its_place(dtype: DataType, given: ReductionParams) -> None:
    """Columns that differ in mean and deviation, so that none can take another one's place."""
    given = replace(given, vector=min(given.vector, 16 // dtype.itemsize))
    x = np.random.default_rng(0).standard_normal((301, 72)) * (1 + np.arange(72) / 8) + 10.0 * np.arange(72)
    x = x.astype(TYPES[dtype])
    variance, mean = statistics(dtype, x, given)
    exact_variance, exact_mean = exact(x)
    np.testing.assert_allclose(variance, exact_variance.astype("f8"), rtol=3e-7)
    np.testing.assert_allclose(mean, exact_mean.astype("f8"), rtol=2e-7)


def test_lanes_exchange_halves() -> None:
    """Eight results of four lanes: 4 + 2 of each of two sums, and the count twice."""
    kernel = lowered(columns(BF16), np.zeros((4096, 64), TYPES[BF16]), params(64, 8, vector=8, unroll=8)).kernel
    assert not [s for s in walk(kernel.body) if isinstance(s, Reduce)]
    assert len([s for s in walk(kernel.body) if isinstance(s, Shuffle)]) == 2 * (4 + 2) + 2


def test_results_that_lanes_cannot_share_equally_stay_whole() -> None:
    kernel = lowered(columns(BF16), np.zeros((4096, 64), TYPES[BF16]), params(64, 8, vector=2, unroll=8)).kernel
    shuffles = [s for s in walk(kernel.body) if isinstance(s, Shuffle)]
    assert shuffles
    assert len(shuffles) < 2 * (4 + 2) + 2, "in loops over both results"
