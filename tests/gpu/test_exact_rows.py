"""Errors that the simulator cannot tell of: what the hardware's exponential is off by, and products that the compiler fuses."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.ops.dtypes import DataType


@pytest.mark.parametrize("shape", [(37, 20_011), (300, 5003), (3, 1_000_003), (500, 7)], ids=str)
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_softmax_of_floats_is_off_by_no_more_than_twice_torchs(shape: tuple[int, int], mean: float) -> None:
    torch = pytest.importorskip("torch")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        powers = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
        fd.add_output(powers / fd.ops.sum(powers, [1], keepdim=True))
    data = (np.random.default_rng(0).standard_normal(shape) + mean).astype(np.float32)
    (found,) = fd.execute([data], device="cuda")
    powers_of = np.exp(data.astype(np.float64) - data.max(1, keepdims=True))
    exact = powers_of / powers_of.sum(1, keepdims=True)
    theirs = torch.softmax(torch.tensor(data, device="cuda"), 1).cpu().numpy()
    ulp = np.spacing(exact.astype(np.float32))
    error_of = [np.max(np.abs(np.asarray(values) - exact) / ulp) for values in (found, theirs)]
    assert error_of[0] <= max(2 * error_of[1], 2.0)


def test_exponentials_of_differences_are_off_by_less_than_two_units() -> None:
    """Decision 21 allows two. ex2.approx of 64ths alone, with a square for what is left, was off by two and a half."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True)))
    data = np.zeros((1 << 20, 2), np.float32)
    data[:, 1] = -np.concatenate([np.random.default_rng(0).random(1 << 18) * scale for scale in (0.02, 1, 16, 105)])
    data[:4, 1] = -np.inf, -3e38, -104.5, np.nan
    (found,) = fd.execute([data], device="cuda")
    np.testing.assert_array_equal(np.asarray(found)[:4], [[1, 0], [1, 0], [1, 0], [np.nan, np.nan]])
    exact = np.exp(data[4:].astype(np.float64))
    unit = np.maximum(np.ldexp(1.0, np.frexp(exact)[1] - 24), 2.0**-149)
    assert np.max(np.abs(np.asarray(found)[4:] - exact) / unit) < 2


@pytest.mark.parametrize("rows", [5003, 385, 40])
def test_variances_of_columns_with_a_value_far_from_all_others(rows: int) -> None:
    """As exact as twice torch's."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((rows, 24)) * 0.01
    x[np.arange(24), np.arange(24)] = 1e4 * (1 + np.random.default_rng(1).random(24))
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, DataType.Double)
        for result in fd.ops.var_mean(t, [0]):
            fd.add_output(result)
    wide = x.astype(np.longdouble)
    mean = wide.mean(0)
    variance = ((wide - mean) ** 2).sum(0) / (rows - 1)
    theirs = torch.var_mean(torch.tensor(x, device="cuda"), 0)
    for found, eager, exact in zip(fd.execute([x], device="cuda"), theirs, (variance, mean), strict=True):
        ulp = np.spacing(exact.astype(np.float64))
        errors = [np.sqrt(np.mean(((np.asarray(v) - exact) / ulp) ** 2)) for v in (found, eager.cpu().numpy())]
        assert errors[0] <= max(2 * errors[1], 2.0)
