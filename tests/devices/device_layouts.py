"""Arrays in device memory in any layout: strides with gaps, chosen alignment, memory shared with another tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.runtime.array_view import framework_dtype
from fuser.runtime.arrays.device_tensor import DeviceTensor, OwnedMemory
from fuser.runtime.devices.device import Device
from fuser.runtime.layouts import element_span, row_major

Array = np.ndarray[Any, Any]
POISON = 0xFF
"""Every byte between elements: NaN in every float type, so that one that is read shows."""


def element_strides(array: Array) -> tuple[int, ...]:
    """Strides of a NumPy array in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def place(device: Device, array: Array, strides: Sequence[int] | None = None, shift: int = 0) -> DeviceTensor:
    """The values of `array` on `device`, `shift` bytes behind an address aligned to 256.

    `strides` in elements, not negative; row major if not given. A dim of stride 0 stores its first element.
    """
    layout = row_major(array.shape) if strides is None else tuple(strides)
    dtype = framework_dtype(array.dtype)
    span = element_span(array.shape, layout)
    data = np.full(span * array.itemsize, POISON, np.uint8)
    steps = tuple(s * array.itemsize for s in layout)
    if span:
        np.ndarray(array.shape, array.dtype, data, 0, steps)[...] = array
    allocation = device.allocate(max(len(data) + shift, 1), 0)
    memory = OwnedMemory(device, allocation, 0)
    address = allocation.address + shift
    if len(data):
        device.copy_from_host(address, data, 0)
    return DeviceTensor(device, dtype, array.shape, layout, address, memory)


def place_all(device: Device, values: Sequence[Any]) -> list[Any]:
    """Arrays on the device in the memory order they have, numbers as they are."""
    return [place(device, v, element_strides(v)) if isinstance(v, np.ndarray) else v for v in values]
