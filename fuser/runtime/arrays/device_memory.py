"""Memory from the device's own allocator, for callers whose library has none or keeps its arrays on the host.

DeviceFramework   results are DeviceTensors, or JAX arrays made from them
HostFramework     results are copied to the host (NumPy, CPU torch, CPU JAX)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor, OwnedMemory
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.host_bytes import read_elements, strided_view
from fuser.runtime.layouts import element_span

if TYPE_CHECKING:
    import numpy as np


class _DeviceMemory:
    """The half that frameworks without an allocator of their own share: memory from the device."""

    def current_stream(self, device: Device) -> int | None:
        del device
        return None

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        return self.scratch(device, element_span(sizes, strides) * dtype.itemsize, stream)

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        # One byte at least: an empty tensor still has an address of its own.
        allocation = device.allocate(max(nbytes, 1), stream)
        return Storage(allocation.address, nbytes, allocation=allocation)

    def release(self, device: Device, storage: Storage, stream: int) -> None:
        allocation, storage.allocation = storage.allocation, None
        if allocation is not None:
            device.release(allocation, stream)


class DeviceFramework(_DeviceMemory):
    """Results are DeviceTensors, or what `convert` makes of them."""

    def __init__(self, kind: str, convert: Callable[[Any], Any] | None = None) -> None:
        self.kind = kind
        self._convert = convert

    def deliver(
        self,
        device: Device,
        storage: Storage,
        dtype: DataType,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        stream: int,
    ) -> Any:
        tensor = device_tensor_of(device, storage, dtype, sizes, strides, offset, stream)
        return tensor if self._convert is None else self._convert(tensor)


class HostFramework(_DeviceMemory):
    """Results are NumPy arrays, or what `convert` makes of them; complete when they go out."""

    def __init__(self, kind: str, convert: Callable[[np.ndarray[Any, Any]], Any] | None = None) -> None:
        self.kind = kind
        self._convert = convert

    def deliver(
        self,
        device: Device,
        storage: Storage,
        dtype: DataType,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        stream: int,
    ) -> Any:
        import numpy as np

        if storage.host is None and storage.pending is not None:
            storage.host = storage.pending.copy()
        if storage.host is None:
            storage.host = np.zeros(storage.nbytes, np.uint8)
            storage.is_copy = True
        if storage.is_copy:
            # Several results over one storage share the copy; each brings in its own elements.
            at = offset * dtype.itemsize
            read_elements(device, dtype, sizes, strides, storage.address + at, storage.host, at, stream)
        array = strided_view(storage.host, dtype, sizes, strides, offset)
        return array if self._convert is None else self._convert(array)


def device_tensor_of(
    device: Device,
    storage: Storage,
    dtype: DataType,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    stream: int,
) -> Any:
    """A DeviceTensor over `storage`; the first one takes the allocation over, so that the run no longer frees it."""
    if storage.shared is None:
        allocation, storage.allocation = storage.allocation, None
        storage.shared = storage.array if allocation is None else OwnedMemory(device, allocation, stream)
    address = storage.address + offset * dtype.itemsize
    return DeviceTensor(device, dtype, sizes, strides, address, storage.shared, stream)
