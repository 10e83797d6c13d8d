"""Where the memory of an execution comes from, and in whose arrays its results go out.

One object per kind of caller. All take memory on a given stream and hand out results in the caller's own array type:

    TorchFramework, CupyFramework   the caller's allocator, the caller's current stream
    DeviceFramework                 the device's allocator; DeviceTensors, or JAX arrays made from them
    HostFramework                   the device's allocator; results are copied to the host (NumPy, CPU torch, CPU JAX)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fuser.ir.dtypes import DataType
from fuser.runtime.arrays import ArrayView, element_span
from fuser.runtime.device import Allocation

if TYPE_CHECKING:
    import numpy as np

    from fuser.runtime.device import Device


@dataclass(slots=True, eq=False)
class Storage:
    """Device memory of one slot during a run.

    array       the caller's array that holds it (an input) or the framework's (an output); None for device allocations
    allocation  what the device's allocator gave; None for memory of others
    host        bytes of the caller's host array behind it, or (`is_copy`) of what went out; None if there are none
    shared      what keeps the allocation alive once a result over it went out
    pending     bytes of a host array that has no device memory yet
    """

    address: int
    nbytes: int
    array: Any = None
    allocation: Allocation | None = None
    host: np.ndarray[Any, Any] | None = None
    shared: Any = None
    pending: np.ndarray[Any, Any] | None = None
    is_copy: bool = False


class Framework(Protocol):
    """What an execution needs from a kind of caller."""

    kind: str

    def current_stream(self, device: Device) -> int | None:
        """Raw handle of the stream the caller's work goes to; None if the framework does not tell."""
        ...

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        """Uninitialised memory that may go out as a result."""
        ...

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        """Uninitialised memory that never goes out; aligned to 256 bytes."""
        ...

    def release(self, device: Device, storage: Storage, stream: int) -> None:
        """Give memory back that did not go out; work enqueued on `stream` before may still use it."""
        ...

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
        """An array of the caller's type over (or copied from) `storage`, `offset` elements from its address."""
        ...


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

        from fuser.runtime.host_arrays import read_elements, strided_view

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
    from fuser.runtime.device_tensor import DeviceTensor, OwnedMemory

    if storage.shared is None:
        allocation, storage.allocation = storage.allocation, None
        storage.shared = storage.array if allocation is None else OwnedMemory(device, allocation, stream)
    address = storage.address + offset * dtype.itemsize
    return DeviceTensor(device, dtype, sizes, strides, address, storage.shared, stream)


_DEVICE = DeviceFramework("fuser")
_NUMPY = HostFramework("numpy")


def framework_for(view: ArrayView | None, device: Device) -> Framework:
    """The framework of an execution whose first tensor input is `view` (None: no tensor inputs)."""
    if view is None:
        torch = sys.modules.get("torch")
        if torch is not None and device.kind == "cuda" and torch.cuda.is_available():
            from fuser.runtime.torch_arrays import torch_framework

            return torch_framework(device)
        return _DEVICE
    match view.kind:
        case "torch":
            from fuser.runtime.torch_arrays import torch_framework

            return torch_framework(device)
        case "cupy":
            from fuser.runtime.cupy_arrays import CUPY

            return CUPY
        case "jax":
            from fuser.runtime.jax_arrays import jax_framework

            return jax_framework(device)
        case "numpy":
            return _NUMPY
        case "fuser":
            return _DEVICE
        case "interface":
            return _NUMPY if view.is_host else _DEVICE
