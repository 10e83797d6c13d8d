"""Rows of gradients over blocks that have rows of their own: what fits a block, and which threads sum up columns."""

from __future__ import annotations

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.params import Refused
from fuser.schedule.rows_model import choose_pass_shape, columns_of_block
from fuser.schedule.sides import Load

H200 = DeviceInfo.preset("H200")


@pytest.mark.parametrize("length", [1, 7, 32, 33, 256, 1000, 1024, 4096, 5120, 8192])
@pytest.mark.parametrize("vector", [1, 4, 8])
@pytest.mark.parametrize("rows", [1, 100, 16384])
def test_pass_shapes(length: int, vector: int, rows: int) -> None:
    shape = choose_pass_shape(
        length,
        rows,
        vector,
        Load(4, 6, row_registers=vector, held_registers=3 * vector, kept_registers=0, sums=2),
        H200,
    )
    if isinstance(shape, Refused):
        assert vector == 1
        assert length > 5120
        return
    assert shape.threads * shape.batch * vector >= length
    assert (shape.batch - 1) * shape.threads * vector < length, "no access is idle for every thread"
    block = shape.threads * shape.side_by_side
    assert block <= 1024
    assert shape.per_sm * block <= 2048
    assert shape.registers * -(-block // 32) * 32 * shape.per_sm <= 65536
    assert shape.blocks <= 132 * shape.per_sm
    assert (shape.blocks - 1) * shape.side_by_side * shape.rows < rows, "no block is without rows"
    across = columns_of_block(length, shape)
    assert shape.threads % across == 0
    assert shape.threads // across <= shape.blocks or length <= 16 * across * shape.blocks, (
        "many trips, and idle threads"
    )


@pytest.mark.parametrize(("is_double", "expected"), [(True, (2, False)), (False, (1, True))])
def test_rows_of_doubles_are_joined_two_at_a_time(is_double: bool, expected: tuple[int, bool]) -> None:
    """Of two rows that a thread holds, both are worked on at once, or one is a trip ahead."""
    load = Load(16, 24, row_registers=8, held_registers=16, kept_registers=4, sums=2, is_double=is_double)
    shape = choose_pass_shape(64, 100_003, 2, load, H200)
    assert not isinstance(shape, Refused)
    assert (shape.rows, shape.ahead) == expected


@pytest.mark.parametrize(("length", "threads", "per_sm"), [(257, 32, 2), (333, 32, 2), (999, 256, 4), (1001, 256, 4)])
def test_rows_of_16_bits_by_element(length: int, threads: int, per_sm: int) -> None:
    """A warp has a row if it can; threads of others have few accesses, and blocks enough are on an SM."""
    load = Load(4, 6, row_registers=2, held_registers=3, kept_registers=0, sums=2, read_sizes=(2, 2), weight_sizes=(2,))
    shape = choose_pass_shape(length, 20_000, 1, load, H200)
    assert not isinstance(shape, Refused)
    assert (shape.threads, shape.per_sm) == (threads, per_sm)
    assert (shape.rows, shape.ahead) == (1, True), "two rows at once take three times as long"
