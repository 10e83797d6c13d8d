"""Rows of gradients over blocks that have rows of their own: what fits a block, and which threads sum up columns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.gradient_row_split import choose_row_split, columns_of_block, row_split_time
from fuser.schedule.cost.gradient_sizes import GradientRowCost
from fuser.schedule.scheduler import Refused

H200 = DeviceInfo.preset("H200")


@pytest.mark.parametrize("length", [1, 7, 32, 33, 256, 1000, 1024, 4096, 5120, 8192])
@pytest.mark.parametrize("vector", [1, 4, 8])
@pytest.mark.parametrize("rows", [1, 100, 16384])
def test_pass_shapes(length: int, vector: int, rows: int) -> None:
    shape = choose_row_split(
        length,
        rows,
        vector,
        GradientRowCost(4, 6, row_registers=vector, held_registers=3 * vector, kept_registers=0, sums=2),
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


def test_rows_of_doubles_are_joined_two_at_a_time() -> None:
    """Of two rows that a thread holds, both are worked on at once."""
    cost = GradientRowCost(
        16,
        24,
        row_registers=8,
        held_registers=16,
        kept_registers=4,
        sums=2,
        statistics=2,
        is_double=True,
        operations=24,
    )
    shape = choose_row_split(64, 100_003, 2, cost, H200)
    assert not isinstance(shape, Refused)
    assert (shape.rows, shape.ahead) == (2, False)


def by_element(itemsize: int) -> GradientRowCost:
    """A gradient of layer norm whose rows begin anywhere."""
    words = -(-itemsize // 4)
    return GradientRowCost(
        2 * itemsize,
        3 * itemsize,
        row_registers=2 * words,
        held_registers=3 * words,
        kept_registers=0,
        sums=2,
        own_registers=46 if itemsize > 2 else 30,
        read_sizes=(itemsize, itemsize),
        weight_sizes=(itemsize,),
        statistics=2,
        is_double=itemsize == 8,
        operations=24 if itemsize > 2 else 16,
    )


@pytest.mark.parametrize(("length", "threads"), [(257, (16, 32)), (333, (16, 32)), (999, (64, 128, 256))])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_rows_by_element(itemsize: int, length: int, threads: tuple[int, ...]) -> None:
    """A warp has a row if it can: more threads join through shared memory, and each joins for fewer elements."""
    shape = choose_row_split(length, 20_000, 1, by_element(itemsize), H200)
    assert not isinstance(shape, Refused)
    assert shape.threads in threads
    assert shape.ahead


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_what_takes_time(itemsize: int) -> None:
    """More rows, wider rows, more operations, loads that are waited for, a block less on each processor."""
    cost = by_element(itemsize)

    def time(
        *, threads: int = 32, rows: int = 20_000, length: int = 257, blocks: int = 264, ahead: bool = True
    ) -> float:
        batch = -(-length // threads)
        return row_split_time(threads, batch, 8, 1, blocks, length, rows, 1, cost, H200, ahead=ahead)

    base = time()
    assert time(rows=40_000) > base
    assert time(length=513) > base
    assert time(threads=128) > base, "three quarters of the joins are for nothing"
    assert time(blocks=132) > base
    assert time(ahead=False) > base
    more = replace(cost, operations=2 * cost.operations)
    assert row_split_time(32, 9, 8, 1, 264, 257, 20_000, 1, more, H200, ahead=True) > base
