"""Means and sums of squared differences: as exact where the first value is far from all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.benchmarks.plain_statistics import plain_var_mean
from tests.lowering.combiners.variances import Array, exact, typical_error, variance_of


def far_first(rows: int, columns: int, dtype: Any) -> Array:
    """Each column has a value far from all others, the first few of them in another row each."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, columns)) * 0.01
    x[np.arange(columns) % min(rows, 4), np.arange(columns)] = 1e4 * (1 + random.random(columns))
    return x.astype(dtype)


def limit_of(x: Array) -> float:
    """Twice the error of Welford's update in 32 threads, if there is a row for each."""
    if len(x) < 32:
        return 2.0
    return max(2.0, 2 * typical_error(plain_var_mean(x)[0], exact(x, 0)))


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=lambda d: d.name)
@pytest.mark.parametrize(("rows", "columns"), [(10, 12800), (40, 24), (385, 24), (385, 128), (5003, 300)])
def test_columns_with_a_value_far_from_all_others(rows: int, columns: int, dtype: DataType) -> None:
    """Squared differences from the first value of a thread are as many times too large as it has values: of columns of 10 rows
    33 units were lost."""
    x = far_first(rows, columns, dtype.numpy)
    assert typical_error(variance_of(lambda _, t: t, dtype, x, 0), exact(x, 0)) <= limit_of(x)


def test_rows_with_a_value_far_from_all_others() -> None:
    x = np.ascontiguousarray(far_first(5003, 30, np.float32).T)
    assert typical_error(variance_of(lambda _, t: t, DataType.Float, x, 1), exact(x, 1)) <= limit_of(x.T)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_values_that_are_not_in_memory_as_they_are(factor: float) -> None:
    """What is cast is cast again; what is computed is kept."""

    def define(fd: FusionDefinition, t: Any) -> Any:
        wide = fd.ops.cast(t, DataType.Float)
        return wide * factor if factor != 1.0 else wide

    x = far_first(40, 24, np.float16)
    found = variance_of(define, DataType.Half, x, 0)
    wide = x.astype(np.float32) * np.float32(factor)
    assert typical_error(found, exact(wide, 0)) <= limit_of(wide)


def test_infinities_and_nan() -> None:
    x = far_first(40, 6, np.float32)
    x[3, 0], x[7, 1], x[0, 2], x[39, 3] = np.inf, -np.inf, np.nan, np.nan
    found = variance_of(lambda _, t: t, DataType.Float, x, 0)
    assert np.isnan(found[:4]).all()
    assert np.isfinite(found[4:]).all()


@pytest.mark.parametrize("rows", [2, 7, 100, 3000])
def test_variances_of_constants_are_zero(rows: int) -> None:
    found = variance_of(lambda _, t: t, DataType.Float, np.full((rows, 40), 0.1, np.float32), 0)
    np.testing.assert_array_equal(found, 0.0)
