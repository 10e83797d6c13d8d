"""Columns over the blocks of a cluster: shapes that fit, and when a whole grid is better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.columns_over_cluster import (
    MOST_AT_ONCE,
    ColumnShape,
    Work,
    choose_cluster_shape,
    grid_time,
    shape_time,
)

H200 = DeviceInfo.preset("H200")
REGISTERS = tuple(72 + 6 * u for u in range(MOST_AT_ONCE + 1))


def choose(rows: int, columns: int, vector: int = 8, device: DeviceInfo = H200, kept: int = 16) -> ColumnShape | None:
    work = Work(rows, columns, vector, 2 * vector, 4 * vector)
    return choose_cluster_shape(work, 2, REGISTERS, kept, device)


@pytest.mark.parametrize("rows", [64, 1023, 6272, 100_352])
@pytest.mark.parametrize("columns", [8, 64, 100, 512, 2048])
def test_shapes_fit(rows: int, columns: int) -> None:
    shape = choose(rows, columns)
    if shape is None:
        assert rows * columns * 2 > 16 * 2**20 or rows < 128, "more than clusters hold, or no work for their threads"
        return
    threads = shape.across * shape.along
    assert 2 <= shape.sharing <= H200.max_cluster
    assert shape.across * 16 >= 32 or columns <= 8, "no less than a sector of a row"
    assert -(-rows // shape.sharing) <= shape.along * shape.unroll * shape.iterations, "all rows have a place"
    assert REGISTERS[shape.unroll] * threads <= H200.registers_per_sm
    assert (shape.iterations - 1) * shape.unroll * threads * 16 < H200.shared_per_block_optin


def test_a_device_without_clusters_has_no_shape() -> None:
    assert choose(5000, 256, device=replace(H200, max_cluster=1)) is None


def test_few_columns_of_many_rows_are_left_to_the_grid() -> None:
    """64 columns of 100352 rows: eight accesses side by side, which keep few clusters busy."""
    shape = choose(100_352, 64)
    work = Work(100_352, 64, 8, 16, 32)
    assert shape is None or shape.time > grid_time(work, 8, 64, 132, H200)
    small = choose(5168, 100, 4)
    assert small is not None
    assert small.time < grid_time(Work(5168, 100, 4, 8, 16), 32, 16, 132, H200)


def test_as_many_blocks_as_leave_each_cluster_its_own_processors() -> None:
    """Sixteen lines of columns: an H200 holds fifteen clusters of eight blocks, but seventeen of six."""
    shape = choose(6272, 256)
    assert shape is not None
    assert (shape.across, shape.sharing) == (2, 6)


def test_rows_are_read_in_pieces_of_more_than_a_sector_where_there_is_much_of_them() -> None:
    def across(rows: int, columns: int) -> int:
        shape = choose(rows, columns)
        assert shape is not None
        return shape.across

    assert across(6272, 512) == 4
    assert across(256, 512) == 2
    work = Work(6272, 512, 8, 16, 32)
    assert shape_time(work, 2, 256, 3, 96, 1, 2.0, H200) > shape_time(work, 4, 128, 6, 96, 1, 2.0, H200)


def test_more_of_everything_takes_longer() -> None:
    work = Work(8000, 256, 8, 16, 32)
    base = shape_time(work, 4, 64, 8, 64, 1, 2.0, H200)
    assert shape_time(replace(work, rows=16000), 4, 64, 8, 64, 1, 2.0, H200) > base
    assert shape_time(work, 4, 64, 8, 64, 2, 2.0, H200) > base
    assert shape_time(work, 4, 64, 8, 64, 1, 3.0, H200) == pytest.approx(base + 1.0)
