"""Limits of a CUDA device, asked of the driver."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import REACHED_OF_MEMORY, DeviceInfo, largest_cluster
from fuser.runtime import driver
from fuser.runtime.probed_devices import as_probed


def read_info(index: int) -> DeviceInfo:
    """A device as planning should know it: with the rates and latencies that were measured on it, if options ask for them."""
    return as_probed(reported_info(index))


def reported_info(index: int) -> DeviceInfo:
    """A device as the driver reports it. What it does not report, rates and latencies, is that of the preset which is most
    like the device; so is the rate of its memory where the driver does not tell the clock of that."""
    module = driver.bindings()
    handle = driver.call("cuDeviceGet", index)
    attributes = module.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(driver.call("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    raw = driver.call("cuDeviceGetName", 128, handle)
    # kHz times bytes of the bus, at two transfers a cycle, in bytes per nanosecond.
    nominal = 2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e6
    # From 9.0 on the widest instruction set of a device is the one with the suffix.
    arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    known = DeviceInfo.like(arch)
    return replace(
        known,
        name=raw.split(b"\0")[0].decode(),
        arch=arch,
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        max_threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        max_threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_blocks_per_sm=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        shared_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared_per_block_optin=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_bytes_per_ns=nominal * REACHED_OF_MEMORY if nominal else known.memory_bytes_per_ns,
        shared_reserved=attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
        max_access_bytes=32 if major >= 10 else 16,
        max_cluster=largest_cluster(major),
    )
