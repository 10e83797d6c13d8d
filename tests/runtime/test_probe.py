"""Kernels that measure a GPU: what is found of a device whose figures are known, and that they compile for all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import pytest

from fuser.errors import NoDeviceError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.runtime import driver, rtc_kernel
from fuser.runtime.probe import COPIED_BYTES, MEASURED, NEAR_PLACES, PLACES, SIGNATURE, SOURCE, GpuBench, probe
from fuser.runtime.rtc_kernel import RtcKernel

ENTRIES = re.findall(r"^KERNEL (\w+)\(", SOURCE, re.MULTILINE)


OF_HOST = 33_000.0
"""Nanoseconds from event to event beside those of a kernel: the host launches it between them."""


class Modelled:
    """A device that takes exactly as long as its figures say."""

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device
        self.places = 0
        self.is_flushed = False

    def run(
        self, entry: str, n: int, steps: int, blocks: int = 1, threads: int = 1, cluster: int = 1
    ) -> tuple[float, Sequence[int]]:
        device, rates, times = self.device, self.device.rates, self.device.latencies
        assert threads <= device.max_threads_per_block
        assert cluster <= device.max_cluster
        each = 0.0
        busy = 0.0
        if entry == "ticks":
            return OF_HOST + n / rates.clock_ghz, (n, round(n / rates.clock_ghz), 0, 0)
        if entry == "copy":
            busy = 32 * n / (rates.sm_bytes_per_ns if blocks == 1 else device.memory_bytes_per_ns)
        elif entry == "read_again":
            assert 16 * n * steps > device.l2_bytes
            self.is_flushed = 16 * n > 2 * device.l2_bytes
            busy = 16 * n * steps / rates.l2_bytes_per_ns
        elif entry == "link":
            self.places, self.is_flushed = n, False
        elif entry == "follow":
            each = times.dram_ns if self.is_flushed and self.places == PLACES else times.l2_ns
            assert self.is_flushed or self.places == NEAR_PLACES
            self.is_flushed = False
        elif entry == "meet_in_grid":
            assert blocks <= device.sm_count
            each = times.grid_ns + times.grid_block_ns * blocks
        elif entry == "meet_in_cluster":
            assert blocks == cluster
            each = times.cluster_ns + times.cluster_block_ns * cluster
        elif entry == "count_at_one_address":
            busy = times.atomic_ns * blocks * steps
        elif entry != "nothing":
            one = {
                "follow_shared": times.shared_ns,
                "shuffle": times.shuffle_ns,
                "meet_in_block": times.block_barrier_ns,
            }
            each = one[entry]
        return OF_HOST + busy + each * steps, (round(each * steps * rates.clock_ghz), 0, 0, 0)


@pytest.mark.parametrize("name", ["H200", "sm_75", "sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_what_a_device_does_is_what_is_found(name: str) -> None:
    device = DeviceInfo.preset(name)
    latencies = replace(device.latencies, dram_ns=513.0, l2_ns=201.0, grid_ns=1210.0, cluster_ns=411.0)
    there = replace(
        device,
        memory_bytes_per_ns=device.memory_bytes_per_ns * 0.7,
        rates=replace(device.rates, clock_ghz=1.3, sm_bytes_per_ns=41.0),
        latencies=latencies,
    )
    found = probe(device, Modelled(there))
    for field in MEASURED:
        if field.startswith("latencies.cluster") and device.max_cluster < 8:
            assert attrgetter(field)(found) == attrgetter(field)(device)
        else:
            assert attrgetter(field)(found) == pytest.approx(attrgetter(field)(there), rel=1e-3), field
    # What is not measured, capacities among it, is as it was.
    taken = {field: attrgetter(field)(found) for field in MEASURED}
    assert found != device
    assert replace(found, memory_bytes_per_ns=0.0, rates=H200.rates, latencies=H200.latencies) == replace(
        device, memory_bytes_per_ns=0.0, rates=H200.rates, latencies=H200.latencies
    )
    assert found.latencies.dram_loaded_ns == device.latencies.dram_loaded_ns
    assert found.latencies.launch_ns == device.latencies.launch_ns
    assert all(value > 0 for value in taken.values())


@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_kernels_compile(name: str) -> None:
    device = DeviceInfo.preset(name)
    # The text is one program: what compiles of it once is known to compile for each entry.
    for entry in ("ticks", "meet_in_cluster", "count_at_one_address"):
        if entry == "meet_in_cluster" and device.max_cluster == 1:
            continue
        kernel = RtcKernel(SOURCE, entry, device, SIGNATURE).compile().kernel
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0
        assert kernel.max_block_size >= 256


def test_every_kernel_is_run() -> None:
    asked: set[str] = set()

    class Watched(Modelled):
        def run(
            self, entry: str, n: int, steps: int, blocks: int = 1, threads: int = 1, cluster: int = 1
        ) -> tuple[float, Sequence[int]]:
            asked.add(entry)
            return super().run(entry, n, steps, blocks, threads, cluster)

    probe(H200, Watched(H200))
    assert asked == set(ENTRIES)


def test_every_launch_passes_the_checks_of_raw_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments and sizes are checked before the GPU is asked for: a launch that ends there has passed."""
    released: list[object] = []
    memory = SimpleNamespace(address=0x7F0000000000)

    def allocate(nbytes: int, stream: int) -> SimpleNamespace:
        assert (nbytes, stream) == (2 * COPIED_BYTES, 0)
        return memory

    device = SimpleNamespace(
        index=0, info=H200, allocate=allocate, release=lambda given, stream: released.append(given)
    )
    monkeypatch.setattr(rtc_kernel, "_cuda", lambda index: device)
    monkeypatch.setattr(driver, "device_count", lambda: 0)
    bench = GpuBench(device)

    class Checked(Modelled):
        def run(
            self, entry: str, n: int, steps: int, blocks: int = 1, threads: int = 1, cluster: int = 1
        ) -> tuple[float, Sequence[int]]:
            with pytest.raises(NoDeviceError, match=f"running {entry} needs a GPU"):
                bench.run(entry, n, steps, blocks, threads, cluster)
            return super().run(entry, n, steps, blocks, threads, cluster)

    probe(H200, Checked(H200))
    bench.release()
    assert released == [memory]
