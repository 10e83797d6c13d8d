"""Mappings of gradients: each has all elements, leaves nobody idle, and fits on the device."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.cost.inner_outer_mappings import CLUSTER, STATISTICS, SUMS, inner_outer_mappings
from fuser.schedule.cost.instruction_cache import elements_in_cache
from tests.schedule.random_gradient_space import random_gradient_space

H200 = DeviceInfo.preset("H200")
DEVICES = [
    H200,
    DeviceInfo.preset("sm_75"),
    DeviceInfo.preset("sm_120"),
    replace(H200, sm_count=2, max_threads_per_block=256),
]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: f"{d.name}-{d.sm_count}")
@pytest.mark.parametrize("seed", range(60))
def test_what_is_enumerated_fits(device: DeviceInfo, seed: int) -> None:
    space = random_gradient_space(random.Random(seed))
    for m in inner_outer_mappings(space, device):
        of_block = m.threads * m.batch * m.vector
        assert (m.sharing - 1) * of_block < space.length <= m.sharing * of_block, "no block without columns"
        assert (m.batch - 1) * m.threads * m.vector < space.length, "no access is idle for every thread"
        assert m.vector <= space.vector
        assert m.block <= device.max_threads_per_block
        assert m.registers <= device.registers_per_thread
        assert m.resident * -(-m.block // 32) * 32 * m.registers <= device.registers_per_sm
        assert m.resident * m.block <= device.max_threads_per_sm
        blocks = m.blocks * m.sharing
        assert (m.blocks - 1) * m.rows_per_block * m.rows < space.rows, "no block without rows"
        if m.in_shared:
            assert m.vector in space.copied
            assert device.copies_to_shared
            assert m.rows * of_block * space.loaded <= device.shared_per_block_optin
        if m.exchange == CLUSTER:
            assert blocks <= device.max_cluster
            assert m.rows_per_iteration >= space.rows, "a cluster has all rows at once"
        else:
            assert blocks <= m.resident * device.sm_count, "all are there at once"
        if m.exchange != SUMS:
            assert m.batch * m.vector * m.rows <= max(elements_in_cache(space.operations, device), m.batch * m.vector)
        assert m.exchange != STATISTICS or m.sharing > 1


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_what_a_device_lacks_is_not_enumerated(itemsize: int) -> None:
    space = random_gradient_space(random.Random(1), rows=8, length=50_000, itemsize=itemsize, vector=16 // itemsize)
    found = list(inner_outer_mappings(space, H200))
    assert any(m.exchange == CLUSTER for m in inner_outer_mappings(replace(space, length=4096), H200))
    assert any(m.exchange == STATISTICS for m in found)
    assert any(m.in_shared for m in found)
    assert not any(m.exchange == CLUSTER for m in inner_outer_mappings(space, replace(H200, max_cluster=1)))
    assert not any(m.in_shared for m in inner_outer_mappings(space, replace(H200, arch="sm_75")))
    # Two bytes are no asynchronous copy.
    assert any(m.in_shared for m in inner_outer_mappings(replace(space, vector=1, copied=()), H200)) is False


def test_rows_that_nothing_holds_have_no_mapping() -> None:
    space = random_gradient_space(random.Random(1), rows=1000, length=10_000_000, itemsize=4, vector=4)
    assert not list(inner_outer_mappings(space, replace(H200, sm_count=2)))
