"""Rows of which there are few: over clusters that all run at once, with as few accesses and threads as pay."""

from __future__ import annotations

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.co_resident_rows import CLUSTERS, MOST_ACCESSES, co_resident_shapes

H200 = DeviceInfo.preset("H200")


@pytest.mark.parametrize("rows", [1, 4, 7, 8, 15, 30, 42, 132])
@pytest.mark.parametrize("accesses", [1, 31, 65, 768, 2048, 4096, 6283, 16032, 32064])
def test_shapes_hold_the_row(rows: int, accesses: int) -> None:
    for shape in co_resident_shapes(accesses, 32, 1, rows, H200):
        held = shape.threads * shape.accesses * shape.cluster
        assert held >= accesses
        assert rows * shape.cluster <= H200.sm_count * H200.clustered(shape.cluster), "all clusters run at once"
        assert shape.threads <= H200.max_threads_per_block
        assert shape.threads % H200.warp_size == 0
        assert shape.accesses <= MOST_ACCESSES
        assert shape.cluster in CLUSTERS


def test_more_rows_than_processors_are_not_few() -> None:
    assert not co_resident_shapes(100, 32, 1, H200.sm_count + 1, H200)


def test_rows_that_are_too_long() -> None:
    assert not co_resident_shapes(16 * 1024 * MOST_ACCESSES + 1, 16, 1, 1, H200)


def test_long_rows_lie_over_clusters_and_short_ones_do_not() -> None:
    assert co_resident_shapes(128, 16, 1, 10, H200)[0].cluster == 1
    assert co_resident_shapes(768, 48, 2, 42, H200)[0].cluster == 1
    assert co_resident_shapes(250, 40, 1, 58, H200)[0].cluster == 1
    assert co_resident_shapes(4096, 40, 1, 1, H200)[0].cluster in (8, 16)
    assert co_resident_shapes(16032, 32, 1, 4, H200)[0].cluster == 16
    assert co_resident_shapes(2048, 48, 1, 132, H200)[0].cluster == 1
