"""Welford's update and joins: of complex values, whose squares are real, and of partials that pieces of a row have."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.lowering.combiners.variances import exact, typical_error, variance_of


@pytest.mark.parametrize("shape", [(3, 700), (700, 3)])
def test_complex_values(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = (1e3 + random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(np.complex64)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, DataType.ComplexFloat)
        for result in fd.ops.var_mean(t, [1]):
            fd.add_output(result)
    variance, mean = (np.asarray(o) for o in fd.execute([x], device="simulator"))
    wide = x.astype(np.complex128)
    np.testing.assert_allclose(variance, wide.var(1, ddof=1), rtol=1e-4)
    np.testing.assert_allclose(mean, wide.mean(1), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 31, 33, 100, 1000, 40000])
def test_error_grows_with_the_mean_and_not_with_its_square(count: int) -> None:
    """An ulp for each standard deviation that the mean lies from zero, at most; a difference of sums of squares has 1e6."""
    x = (1e3 + np.random.default_rng(0).standard_normal((3, count))).astype(np.float32)
    found = variance_of(lambda _, t: t, DataType.Float, x, 1)
    if count == 1:
        assert np.isnan(found).all()
    else:
        right = exact(x, 1)
        assert typical_error(found, right) <= float(np.max(1e3 / np.sqrt(right)))
