"""Shapes of rows in registers: they hold the row, and a processor holds them."""

from __future__ import annotations

import pytest

from fuser.schedule.cost.row_shapes import RowShape, batches_of, choose_row_shape, threads_for
from fuser.schedule.params import Refused
from tests.schedule.schedulers.test_inner_persistent import H200


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


def test_rows_of_few_doubles_are_not_crowded() -> None:
    """What their temporaries may take is not kept: rms_norm f64 100003x64 takes 29 us so, 65 in shared memory."""
    shape = choose_row_shape(64, 100003, 2, 8, 8, 8, H200)
    assert isinstance(shape, RowShape)
    assert not shape.is_crowded(2, 8, 8, is_double=True)


@pytest.mark.parametrize("accesses", [1, 2, 31, 32, 33, 64, 100, 513, 4096, 6283, 31251])
@pytest.mark.parametrize("fewest", [1, 3, 8])
def test_batches_are_all_that_leave_no_thread_idle(accesses: int, fewest: int) -> None:
    found = list(batches_of(accesses, fewest, 64))
    busy = [b for b in range(fewest, 65) if -(-accesses // threads_for(accesses, b)) == b]
    # The first may be idle in part; whoever asks sees to that.
    assert found[0] == fewest
    assert set(busy) <= set(found) <= {fewest, *busy}
    assert [threads_for(accesses, b) for b in found] == sorted({threads_for(accesses, b) for b in found}, reverse=True)
