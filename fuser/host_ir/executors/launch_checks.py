"""Sizes of a launch against what the caller set and what the device holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.errors import LaunchError, LaunchLimitError
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.plan_evaluation import LaunchValues, Triple
from fuser.runtime.launch import Launch

if TYPE_CHECKING:
    from fuser.runtime.kernels.launch_params import LaunchParams

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_EXTENT_NAMES = ("gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz")


def check_constraint(entry: str, wanted: LaunchParams, values: LaunchValues) -> None:
    """A set extent must be what the plan computes."""
    for name, n, actual in zip(_EXTENT_NAMES, wanted.extents, (*values.grid, *values.block), strict=True):
        if n not in (-1, actual):
            raise LaunchError(f"kernel {entry}: the launch asks for {name}={n}, but its schedule needs {actual}")
    if wanted.shared and wanted.shared != values.shared_bytes:
        raise LaunchError(
            f"kernel {entry}: the launch asks for {wanted.shared} bytes of dynamic shared memory, but its schedule needs "
            f"{values.shared_bytes}"
        )


def check_launch(entry: str, launch: Launch, device: Device) -> None:
    """Raise LaunchLimitError for sizes that no launch on the device can have."""
    _check_extents(entry, "grid", launch.grid, _GRID_LIMITS)
    limit = device.info.max_threads_per_block
    if launch.threads > limit:
        raise LaunchLimitError(
            f"kernel {entry}: a block of {launch.block} has {launch.threads} threads, the device holds {limit}",
            resource="block",
        )
    _check_extents(entry, "block", launch.block, _BLOCK_LIMITS)
    if launch.shared_bytes > device.info.shared_per_block_optin:
        raise LaunchLimitError(
            f"kernel {entry}: {launch.shared_bytes} bytes of dynamic shared memory, the device holds "
            f"{device.info.shared_per_block_optin} for a block",
            resource="shared",
        )


def _check_extents(entry: str, what: str, extents: Triple, limits: Triple) -> None:
    for axis, n, limit in zip("xyz", extents, limits, strict=True):
        if not 1 <= n <= limit:
            raise LaunchLimitError(
                f"kernel {entry}: {what}.{axis} is {n}, outside [1, {limit}]", resource=f"{what}.{axis}"
            )
