"""Host arrays (NumPy, and CPU tensors of other libraries on the simulator): description, into device memory and back.

What is copied is the span from the first to the last stored element, so that strides, expanded dimensions and the low
bits of the address stay what they were and a kernel sees the caller's layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import InputTypeError
from fuser.runtime.array_view import KEPT_ALIGNMENT, ArrayView, framework_dtype
from fuser.runtime.arrays.storage import Framework, Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.host_bytes import Bytes, strided_view
from fuser.runtime.layouts import element_span, row_major


def describe_numpy(array: np.ndarray[Any, Any]) -> ArrayView:
    """View of a NumPy array. One with negative strides, or strides that are no whole elements, is seen row major."""
    dtype = framework_dtype(array.dtype)
    sizes = array.shape
    itemsize = dtype.itemsize
    address = array.ctypes.data
    strides: list[int] = []
    for step, n in zip(array.strides, sizes, strict=True):
        stride, rest = divmod(step, itemsize)
        if n > 1 and (rest or stride < 0):
            return ArrayView("numpy", dtype, sizes, row_major(sizes), 0, ("cpu", 0), array, array)
        strides.append(stride if n > 1 or (not rest and stride >= 0) else 1)
    if address % itemsize:
        return ArrayView("numpy", dtype, sizes, row_major(sizes), 0, ("cpu", 0), array, array)
    return ArrayView("numpy", dtype, sizes, tuple(strides), address, ("cpu", 0), array, array)


def as_numpy(view: ArrayView) -> np.ndarray[Any, Any]:
    """A host array of any library as NumPy, sharing its memory where the library allows it."""
    match view.kind:
        case "numpy":
            return view.owner
        case "torch":
            from fuser.runtime.arrays.torch_arrays import torch_to_numpy

            return torch_to_numpy(view.owner)
        case "jax":
            return np.asarray(view.array)
        case "interface":
            return np.from_dlpack(view.array)
        case "cupy" | "fuser":
            raise InputTypeError(f"a {view.kind} array is not in host memory")


def stored_bytes(array: np.ndarray[Any, Any], view: ArrayView) -> Bytes:
    """The bytes that hold the array's elements, in the layout that `view` says, without a copy if it is the array's own."""
    span = element_span(view.sizes, view.strides)
    if span == 0:
        return np.empty(0, np.uint8)
    if view.address == 0:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    flat = np.lib.stride_tricks.as_strided(array, (span,), (view.dtype.itemsize,), writeable=array.flags.writeable)
    return flat.view(np.uint8)


def host_storage(view: ArrayView) -> Storage:
    """The host array as storage that has no device memory yet; `copy_in` gives it some when a kernel needs it."""
    array = as_numpy(view)
    data = stored_bytes(array, view)
    is_own = view.address != 0 or view.kind == "jax"
    return Storage(0, data.nbytes, host=data if is_own else None, pending=data)


def copy_in(view: ArrayView, storage: Storage, device: Device, framework: Framework, stream: int) -> None:
    """Give a host array's storage device memory with its values. The low bits of the address stay those of the array."""
    data, storage.pending = storage.pending, None
    if data is None:
        return
    shift = view.address % KEPT_ALIGNMENT
    memory = framework.scratch(device, data.nbytes + shift, stream)
    storage.address = memory.address + shift
    storage.array, storage.allocation = memory.array, memory.allocation
    if data.nbytes:
        device.copy_from_host(storage.address, data, stream)


def copy_back(view: ArrayView, storage: Storage, device: Device, stream: int) -> None:
    """Write what the device holds into the caller's host array; bytes between its elements stay as they are."""
    array = as_numpy(view)
    if array.size == 0 or storage.pending is not None:
        return
    data = np.empty(storage.nbytes, np.uint8)
    device.copy_to_host(data, storage.address, stream)
    array[...] = strided_view(data, view.dtype, view.sizes, view.strides)
