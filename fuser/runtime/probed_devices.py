"""What `fuser doctor --probe` measured of a GPU, kept on disk: planning takes it where FUSER_MACHINE=probed says so.

A record belongs to a device by what the driver reports of it, so that it serves each GPU of one kind, and no other kind. Only
rates and latencies are taken from it: capacities are the driver's.
"""

from __future__ import annotations

from dataclasses import fields, replace

from fuser import options
from fuser.ir.device_info import DeviceInfo, Latencies, Rates
from fuser.ir.record_files import RecordFile
from fuser.runtime.cache.disk_cache import digest_of, disk_cache

DEVICE_FILE = RecordFile("device", 1, (DeviceInfo, Rates, Latencies))


def keep_probed(reported: DeviceInfo, probed: DeviceInfo) -> bool:
    """Keep what was measured for devices that report as `reported` does; False where nothing is kept on disk."""
    cache = disk_cache()
    if cache is None:
        return False
    cache.write(DEVICE_FILE, _key(reported), probed)
    return True


def as_probed(reported: DeviceInfo) -> DeviceInfo:
    """`reported` with rates and latencies as they were measured, if they were and the options ask for them."""
    cache = disk_cache() if options.MACHINE.get() == "probed" else None
    probed = None if cache is None else cache.read(DEVICE_FILE, _key(reported))
    if not isinstance(probed, DeviceInfo):
        return reported
    return replace(
        reported,
        memory_bytes_per_ns=probed.memory_bytes_per_ns,
        rates=probed.rates,
        latencies=probed.latencies,
    )


def _key(reported: DeviceInfo) -> str:
    parts = (f"{f.name}={getattr(reported, f.name)!r}" for f in fields(reported) if f.name not in _MEASURED)
    return digest_of(["device", *parts])


_MEASURED = ("rates", "latencies", "cluster_share")
