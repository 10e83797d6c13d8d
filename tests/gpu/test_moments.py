"""Statistics of columns on a GPU: as exact as on the simulator, for columns that one block has and that many share."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.dtypes import DataType
from tests.lowering.combiners.test_moments import BF16, F16, TYPES, Float, exact


def statistics(dtype: DataType) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1, -1], True, dtype), DataType.Float)
        for result in fd.ops.var_mean(x, [0], 1, False):
            fd.add_output(result)
    return fd


@pytest.mark.parametrize(
    "shape", [(2, 2503), (12, 70), (93, 1000), (144, 4096), (2500, 257), (30_000, 130), (40_000, 64), (9000, 1024)]
)
@pytest.mark.parametrize("middle", [0.0, 1000.0, 3.25])
@pytest.mark.parametrize("dtype", [BF16, F16, Float])
def test_columns(dtype: DataType, middle: float, shape: tuple[int, int]) -> None:
    noise = np.random.default_rng(1).standard_normal(shape, np.float32) * (middle != 3.25)
    x = (middle + noise).astype(TYPES[dtype])
    variance, mean = statistics(dtype).execute([x], device="cuda")
    exact_variance, exact_mean = exact(x)
    assert np.all(
        np.abs(variance - exact_variance) <= 1.6 * np.spacing(exact_variance.astype("f4")) + 4e-7 * (len(x) < 17)
    )
    assert np.all(np.abs(mean - exact_mean) <= 0.6 * np.spacing(np.abs(exact_mean).astype("f4")) + 1e-8)


@pytest.mark.parametrize("shape", [(301, 72), (20_000, 130)])
@pytest.mark.parametrize("middle", [1e20, 3e38])
def test_squares_that_a_float_cannot_hold(middle: float, shape: tuple[int, int]) -> None:
    x = np.full(shape, middle).astype(TYPES[BF16])
    variance, mean = statistics(BF16).execute([x], device="cuda")
    np.testing.assert_array_equal(variance, 0.0)
    np.testing.assert_array_equal(mean, x[0].astype("f4"))
