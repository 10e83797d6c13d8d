"""Statistics of columns of Doubles on a GPU: as exact as twice torch's, in one block or in many that share a column."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.ops.dtypes import DataType


@pytest.mark.parametrize(
    "shape",
    [(17, 1003), (93, 1000), (314, 1000), (176, 20011), (5000, 64), (18901, 257), (58498, 65), (9000, 1024)],
    ids=str,
)
@pytest.mark.parametrize("middle", [0.0, 1000.0, 0.1])
def test_columns(middle: float, shape: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Double)
        for result in fd.ops.var_mean(x, [0], 1, False):
            fd.add_output(result)
    noise = np.random.default_rng(1).standard_normal(shape) * (middle != 0.1)
    given = middle + noise
    variance, mean = fd.execute([given], device="cuda")
    wide = given.astype(np.longdouble)
    exact = wide.mean(0)
    squares = ((wide - exact) ** 2).sum(0) / (len(wide) - 1)
    if middle == 0.1:
        np.testing.assert_array_equal(variance, 0.0)
        np.testing.assert_array_equal(mean, given[0])
        return
    torch = pytest.importorskip("torch")
    theirs = [t.cpu().numpy() for t in torch.var_mean(torch.tensor(given, device="cuda"), 0)]
    # A mean that cancels is rounded as its sum is.
    sizes = (squares, np.abs(wide).mean(0))
    for found, eager, right, size in zip((variance, mean), theirs, (squares, exact), sizes, strict=True):
        ulp = np.spacing(size.astype(np.float64))
        errors = [float(np.max(np.abs(np.asarray(v) - right) / ulp)) for v in (found, eager)]
        assert errors[0] <= max(2 * errors[1], 2.0), errors
