"""Exponentials of Doubles by a table in shared memory, and rows that are copied behind the last reads of those before."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.ops.dtypes import DataType


def softmax() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Double)
        e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
        fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))
    return fd


@pytest.mark.parametrize("shape", [(38, 50_257), (60, 250_003), (10, 250_003), (200, 7168), (23, 128_256)], ids=str)
def test_softmax_of_doubles(shape: tuple[int, int]) -> None:
    fd = softmax()
    data = np.random.default_rng(0).standard_normal(shape)
    data[1, 5], data[2, 6], data[3, :], data[4, 1:] = np.nan, np.inf, -np.inf, -np.inf
    (found,) = fd.execute([data], device="cuda")
    got = np.asarray(found)
    assert np.isnan(got[1:4]).all()
    assert got[4, 0] == 1
    assert not got[4, 1:].any()
    # A few rows of the first and of the last trips, so that sums in more than 64 bits take no minute.
    for row in (0, 5, 7, shape[0] // 2, shape[0] - 1):
        wide = data[row].astype(np.longdouble)
        powers = np.exp(wide - wide.max())
        exact = powers / powers.sum()
        # The difference is rounded, as in eager: what that costs an exponential is no error of ours (decision 21).
        rounded = np.exp(data[row] - data[row].max())
        largest = {
            name: np.max(np.abs(values - exact) / np.spacing(exact.astype(np.float64)))
            for name, values in {"found": got[row], "eager": rounded / rounded.sum()}.items()
        }
        assert largest["found"] <= max(2, 2 * largest["eager"])


@pytest.mark.parametrize("shape", [(101, 50_257), (117, 250_003), (20_000, 1000), (1313, 7168), (300, 5003)], ids=str)
def test_logarithms_of_sums_of_exponentials(shape: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Double)
        largest = fd.ops.max(x, [1], keepdim=True)
        total = fd.ops.log(fd.ops.sum(fd.ops.exp(x - largest), [1], keepdim=True)) + largest
        fd.add_output(fd.ops.sum(total) / fd.ops.size(x, 0))
    data = np.random.default_rng(0).standard_normal(shape) * 3 - 700
    (found,) = fd.execute([data], device="cuda")
    top = data.max(1, keepdims=True)
    exact = np.mean((np.log(np.exp(data - top).sum(1, keepdims=True)) + top).astype(np.longdouble))
    assert abs(float(np.asarray(found)) - float(exact)) <= 1e-14 * abs(float(exact))
