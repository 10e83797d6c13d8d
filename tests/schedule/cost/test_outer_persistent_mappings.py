"""Mappings of columns that a block holds: all rows are held, by as many threads as fit, and times follow what is moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.ir.device_info import BURST_BYTES, H200, WARP, DeviceInfo
from fuser.schedule.cost.mapping_search import best_mapping
from fuser.schedule.cost.outer_persistent_mappings import (
    COLUMNS,
    ColumnMapping,
    ColumnSpace,
    column_blocks,
    over_grid_time,
)

NORM = ColumnSpace(
    rows=96,
    columns=103_968,
    vector=1,
    narrowest=2,
    moved=4,
    kept=2,
    arguments=2,
    results=3,
    joined=16,
    exchanges=2,
    element_work=20,
    column_work=20,
    max_elements=1000,
)
"""Layer norm of 16-bit channels, which come first, of 32 images of 57 x 57."""


def best(space: ColumnSpace, device: DeviceInfo = H200) -> tuple[float, ColumnMapping] | None:
    return best_mapping(COLUMNS, space, device)


def chosen(space: ColumnSpace) -> ColumnMapping:
    found = best(space)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("rows", [2, 19, 96, 97, 511, 1100])
@pytest.mark.parametrize("columns", [1, 31, 500, 103_968])
@pytest.mark.parametrize("vector", [1, 8])
def test_threads_hold_all_rows_and_fit_on_an_sm(rows: int, columns: int, vector: int) -> None:
    space = replace(NORM, rows=rows, columns=columns, vector=vector)
    shape = chosen(space)
    threads = shape.across * shape.along
    assert shape.along * shape.batch >= rows > shape.along * (shape.batch - 1)
    assert shape.across * shape.vector * column_blocks(space, shape) >= columns
    assert threads % WARP == 0
    assert threads <= H200.max_threads_per_block
    assert shape.resident * threads * shape.registers <= H200.registers_per_sm
    assert shape.batch * shape.vector * NORM.kept <= shape.registers * 4


def test_a_block_takes_what_memory_reads_as_one() -> None:
    shape = chosen(NORM)
    assert shape.across * shape.vector * NORM.narrowest >= BURST_BYTES


def test_more_rows_than_registers_are_refused() -> None:
    assert best(replace(NORM, rows=100_000)) is None


def test_a_thread_has_no_more_elements_than_its_text_may() -> None:
    found = chosen(replace(NORM, max_elements=8))
    assert found.batch * found.vector <= 8


def test_no_threads_share_a_column_where_meeting_takes_long() -> None:
    """Nor where there is little to hold."""
    slow = replace(H200, latencies=replace(H200.latencies, block_barrier_ns=50_000.0))
    alone = best(NORM, slow)
    assert alone is not None
    assert alone[1].along == 1
    assert chosen(replace(NORM, rows=2)).along == 1


def test_few_large_blocks_where_each_leaves_something_for_the_last_one() -> None:
    space = replace(NORM, rows=4)
    alone, ending = chosen(space), chosen(replace(space, ending=H200.latencies.atomic_ns / 1e3))
    assert column_blocks(space, ending) <= column_blocks(space, alone)
    assert (
        min(column_blocks(space, ending), H200.sm_count * ending.resident) < H200.sm_count * H200.max_blocks_per_sm / 2
    )


def test_time_follows_what_is_moved() -> None:
    found = best(NORM), best(replace(NORM, columns=2 * NORM.columns))
    once, twice = (timed[0] for timed in found if timed is not None)
    moving = NORM.rows * NORM.columns * NORM.moved / H200.memory_rate
    assert moving < once
    assert once + moving / 2 < twice < 2 * once + 1e-6


@pytest.mark.parametrize("may_share", [False, True])
def test_blocks_of_a_cluster_hold_what_one_cannot(may_share: bool) -> None:
    """Where a device has clusters, and they are asked for."""
    long = replace(NORM, rows=20_000, columns=64, may_share=may_share)
    assert (best(long) is not None) is may_share
    assert best(long, replace(H200, max_cluster=1)) is None


def test_no_cluster_where_blocks_have_enough_to_do() -> None:
    assert chosen(replace(NORM, may_share=True)).sharing == 1


def test_waiting_for_the_grid_takes_longer_the_more_wait() -> None:
    few, many = (over_grid_time(NORM, n, H200) for n in (2, 132))
    assert NORM.rows * NORM.columns * NORM.moved / H200.memory_rate < few < many
