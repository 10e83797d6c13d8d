"""The machine model: presets, what follows from their numbers, and a call that lacks some, which is told of the presets."""

from __future__ import annotations

import copy
import pickle
import traceback
from dataclasses import replace

import pytest

from fuser import DeviceInfo
from fuser.errors import DefinitionTypeError
from fuser.ir.device_info import H200

PRESETS = ("H200", "H100", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def test_a_name_alone_is_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(DefinitionTypeError) as caught:
        DeviceInfo("sm_90")  # type: ignore[call-arg]
    text = caught.value.message
    assert text.startswith(
        "DeviceInfo(): incompatible function arguments. missing a required argument: 'arch'. Called as DeviceInfo(str); "
        "supported:\n    DeviceInfo(name"
    )
    assert text.endswith("\nDeviceInfo.preset('sm_90') has the limits of a GPU by its name")
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


def test_limits_are_a_record_as_ever() -> None:
    info = DeviceInfo("mine", "sm_90", 4)
    assert pickle.loads(pickle.dumps(info)) == copy.deepcopy(info) == info
    assert replace(info, sm_count=8).sm_count == 8


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_together(name: str) -> None:
    """What one number of a preset says is possible with the others."""
    device = DeviceInfo.preset(name)
    assert device.shared_per_block_optin + device.shared_reserved <= device.shared_per_sm < device.l1_bytes
    assert device.max_threads_per_block <= device.max_threads_per_sm
    assert 0 < device.rates.fp64 <= device.rates.fp32 <= device.rates.issue * device.warp_size
    # One SM reads more than its part of the memory's rate; all of them read more of L2 than of memory.
    assert device.sm_rate * device.sm_count > device.memory_rate
    assert device.rates.l2_bytes_per_ns > device.memory_bytes_per_ns
    near, far = device.latencies.shared_ns, device.latencies.dram_ns
    assert near < device.latencies.l2_ns < far < device.latencies.dram_loaded_ns
    assert device.bytes_in_flight < device.registers_per_sm * 4
    assert max(size for size, _ in ((1, 1.0), *device.cluster_share)) == device.max_cluster


def test_clusters_there_at_once() -> None:
    assert [H200.clusters(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 16, 17)] == [132, 66, 39, 30, 22, 17, 15, 15, 7, 0]
    # A size between two that were counted leaves as many SMs idle as the next larger one.
    assert H200.clustered(12) == H200.clustered(16)
    assert replace(H200, sm_count=66).clusters(8) == 7
    old = DeviceInfo.preset("sm_80")
    assert (old.clusters(1), old.clusters(2), old.clustered(2)) == (108, 0, 0.0)


def test_clusters_whose_blocks_share_sms() -> None:
    assert H200.clusters_by_residency(1, 3) == (0, 132, 264, 396)
    # Two blocks an SM: as many clusters as those of half the blocks; a third one has a place beside them.
    assert H200.clusters_by_residency(16, 3) == (0, 7, 15, 22)
    assert H200.clusters_by_residency(4, 2) == (0, 30, 66)
    for blocks in (1, 2, 3, 8, 16):
        counts = H200.clusters_by_residency(blocks, 8)
        assert counts[:2] == (0, H200.clusters(blocks))
        assert list(counts) == sorted(counts)
        assert all(n * blocks <= room * H200.sm_count for room, n in enumerate(counts))
    assert H200.clusters_by_residency(17, 2) == (0, 0, 0)
    assert DeviceInfo.preset("sm_80").clusters_by_residency(2, 2) == (0, 0, 0)


def test_twice_as_fast_takes_half_of_the_time() -> None:
    fast = H200.with_speed(2.0)
    assert (fast.memory_rate, fast.sm_rate) == (2 * H200.memory_rate, 2 * H200.sm_rate)
    assert (fast.cycle, fast.issue_time) == (H200.cycle / 2, H200.issue_time / 2)
    assert fast.latencies.grid_ns == H200.latencies.grid_ns / 2
    assert fast.bytes_in_flight == H200.bytes_in_flight
    assert fast.sm_count == H200.sm_count
    assert fast.with_speed(0.5) == H200


@pytest.mark.parametrize(
    ("arch", "preset"),
    [
        ("sm_70", "sm_75"),
        ("sm_80", "sm_80"),
        ("sm_87", "sm_86"),
        ("sm_90a", "sm_90a"),
        ("sm_103a", "sm_100a"),
        ("sm_121a", "sm_120a"),
    ],
)
def test_an_architecture_without_a_preset_is_like_the_one_before_it(arch: str, preset: str) -> None:
    assert DeviceInfo.like(arch) == DeviceInfo.preset(preset)
