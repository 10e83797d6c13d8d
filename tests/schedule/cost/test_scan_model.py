"""Shapes of blocks that share a row of a scan: what was measured on an H200, and what any must hold."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.scan_model import (
    MOST_WORDS,
    ClusterScanRows,
    ScanClusterShape,
    block_time,
    choose_scan_cluster,
)

H200 = DeviceInfo.preset("H200")


def rows(count: int, length: int, itemsize: int) -> ClusterScanRows:
    vector = 16 // max(itemsize, 2)
    return ClusterScanRows(count, -(-length // vector), vector, itemsize, 2 * count * length * itemsize)


def chosen(asked: ClusterScanRows, device: DeviceInfo) -> ScanClusterShape:
    found = choose_scan_cluster(asked, device)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("count", "length", "itemsize", "shape"),
    [
        (105, 250003, 2, (256, 2, 4, True)),
        (93, 50257, 2, (256, 4, 8, False)),
        (3, 250003, 4, (512, 8, 16, False)),
        (47, 50257, 8, (256, 8, 16, False)),
        (88, 50257, 8, (256, 4, 4, True)),
        (177, 250003, 8, (256, 4, 2, True)),
    ],
)
def test_shapes_that_were_the_fastest(
    count: int, length: int, itemsize: int, shape: tuple[int, int, int, bool]
) -> None:
    found = chosen(rows(count, length, itemsize), H200)
    assert (found.threads, found.accesses, found.blocks, found.ahead) == shape


def test_no_rows_have_a_shape_too() -> None:
    """A kernel for them is compiled, and never launched."""
    for length, itemsize in itertools.product((8224, 1 << 20), (2, 4, 8)):
        assert chosen(rows(0, length, itemsize), H200).time_us >= 0


def test_every_processor_has_work_and_a_thread_what_registers_hold() -> None:
    for count, length, itemsize in itertools.product((1, 2, 17, 60, 131, 198), (20000, 128256, 1 << 20), (2, 4, 8)):
        asked = rows(count, length, itemsize)
        found = chosen(asked, H200)
        assert asked.words * found.accesses <= MOST_WORDS
        assert count * found.blocks >= H200.sm_count or found.blocks == H200.max_cluster
        assert found.time_us > 0


def test_small_devices_and_those_without_large_clusters_get_a_shape() -> None:
    for device in (DeviceInfo.preset("sm_75"), DeviceInfo.preset("sm_120a")):
        if device.max_cluster > 1:
            assert chosen(rows(2, 128256, 4), device).blocks <= device.max_cluster


def test_no_shape_where_blocks_are_too_small_for_any() -> None:
    assert choose_scan_cluster(rows(2, 128256, 4), replace(H200, max_threads_per_block=128)) is None


def test_few_rows_take_a_block_each_longer_than_a_cluster() -> None:
    few, many = (
        block_time(r, 512, 4, H200) / chosen(r, H200).time_us for r in (rows(4, 65536, 4), rows(4000, 65536, 4))
    )
    assert few > 2
    assert many < 1.2
