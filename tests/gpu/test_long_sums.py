"""Sums so long that as many blocks share them as have one turn each: right for every number of turns."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.ir.ops.dtypes import DataType


@pytest.mark.parametrize("count", [8192 * 8192, 40_000_000, 40_000_003, 9001 * 4096 + 4])
def test_every_element_counts_once(count: int) -> None:
    """Small whole numbers: the sum is exact, and wrong by one for an element that is left out."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1], True, DataType.Float), [0]))
    x = np.ones(count, np.float32)
    x[::3] = -2.0
    x[-1] = 5.0
    exact = float(x.sum(dtype=np.float64))
    for _ in range(2):
        (found,) = fd.execute([x], device="cuda")
        assert float(found) == exact
