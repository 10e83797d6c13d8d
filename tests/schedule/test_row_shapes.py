"""Shapes of rows in registers: they hold the row, and a processor holds them."""

from __future__ import annotations

import pytest

from fuser.schedule.params import Refused
from fuser.schedule.row_shapes import choose_row_shape
from tests.schedule.test_inner_persistent import H200


@pytest.mark.parametrize(
    "length", [1, 7, 32, 33, 1000, 3072, 4096, 5120, 12288, 16384, 32768, 50257, 128256, 250003, 1 << 20]
)
@pytest.mark.parametrize("vector", [1, 4, 8])
@pytest.mark.parametrize("rows", [1, 100, 16384])
def test_row_shapes(length: int, vector: int, rows: int) -> None:
    shape = choose_row_shape(length, rows, vector, 4, 2, 2, H200)
    if isinstance(shape, Refused):
        assert length > 16 * 32768
        return
    held = shape.threads * shape.batch * vector
    assert held * shape.cluster >= length
    assert held * (shape.cluster - 1) < length, "no block of a cluster is idle"
    assert shape.threads % 32 == 0 or (shape.threads < 32 and shape.threads & (shape.threads - 1) == 0)
    assert shape.threads * shape.rows <= 1024
    assert shape.registers * shape.threads * shape.rows <= 65536
