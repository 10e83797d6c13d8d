"""A simulator of one SM."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.simulator.device import SimulatorDevice


def small_simulator() -> SimulatorDevice:
    """A device that a few thousand elements keep busy, so that small tensors get the kernels of large ones."""
    return SimulatorDevice(info=replace(DeviceInfo.preset("H200"), sm_count=1))
