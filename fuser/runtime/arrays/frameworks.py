"""In whose memory an execution works, and in whose arrays its results go out: it follows from the first tensor input.

TorchFramework, CupyFramework   the caller's allocator, the caller's current stream
DeviceFramework                 the device's allocator; DeviceTensors, or JAX arrays made from them
HostFramework                   the device's allocator; results are copied to the host (NumPy, CPU torch, CPU JAX)
"""

from __future__ import annotations

import sys

from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.device_memory import DeviceFramework, HostFramework
from fuser.runtime.arrays.storage import Framework
from fuser.runtime.devices.device import Device

_DEVICE = DeviceFramework("fuser")
_NUMPY = HostFramework("numpy")


def framework_for(view: ArrayView | None, device: Device) -> Framework:
    """The framework of an execution whose first tensor input is `view` (None: no tensor inputs)."""
    if view is None:
        torch = sys.modules.get("torch")
        if torch is not None and device.kind == "cuda" and torch.cuda.is_available():
            from fuser.runtime.arrays.torch_arrays import torch_framework

            return torch_framework(device)
        return _DEVICE
    match view.kind:
        case "torch":
            from fuser.runtime.arrays.torch_arrays import torch_framework

            return torch_framework(device)
        case "cupy":
            from fuser.runtime.arrays.cupy_arrays import CUPY

            return CUPY
        case "jax":
            from fuser.runtime.arrays.jax_arrays import jax_framework

            return jax_framework(device)
        case "numpy":
            return _NUMPY
        case "fuser":
            return _DEVICE
        case "interface":
            return _NUMPY if view.is_host else _DEVICE
