"""Host arrays (NumPy, and CPU tensors of other libraries on the simulator): into device memory and back.

What is copied is the span from the first to the last stored element, so that strides, expanded dimensions and the low
bits of the address stay what they were and a kernel sees the caller's layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.errors import InputTypeError
from fuser.ir.dtypes import DataType
from fuser.runtime.arrays import KEPT_ALIGNMENT, ArrayView, element_span
from fuser.runtime.frameworks import Storage

if TYPE_CHECKING:
    from fuser.runtime.device import Device
    from fuser.runtime.frameworks import Framework

Bytes = np.ndarray[Any, Any]


def as_numpy(view: ArrayView) -> np.ndarray[Any, Any]:
    """A host array of any library as NumPy, sharing its memory where the library allows it."""
    match view.kind:
        case "numpy":
            return view.owner
        case "torch":
            from fuser.runtime.torch_arrays import torch_to_numpy

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


def strided_view(
    data: Bytes, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], offset: int = 0
) -> np.ndarray[Any, Any]:
    """Bytes seen as an array; strides and offset in elements."""
    itemsize = dtype.itemsize
    return np.ndarray(tuple(sizes), dtype.numpy, data, offset * itemsize, tuple(s * itemsize for s in strides))


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


def read_elements(
    device: Device,
    dtype: DataType,
    sizes: Sequence[int],
    strides: Sequence[int],
    address: int,
    out: Bytes,
    at: int,
    stream: int,
) -> None:
    """Copy a tensor's stored span from `address` to byte `at` of `out`; strides not negative.

    Bytes between the elements are copied along on a GPU. The simulator objects to reading what nobody wrote, so there
    they are left out.
    """
    itemsize = dtype.itemsize
    nbytes = element_span(sizes, strides) * itemsize
    if nbytes == 0:
        return
    if device.kind == "cuda" or not has_gaps(sizes, strides):
        device.copy_to_host(out[at : at + nbytes], address, stream)
        return
    run = next((d for d in range(len(sizes)) if strides[d] == 1), None)
    width = itemsize * (1 if run is None else sizes[run])
    # An expanded dimension stores one element, however often it is seen.
    outer = [(sizes[d] if strides[d] else 1, strides[d]) for d in range(len(sizes)) if d != run]
    for index in np.ndindex(*(n for n, _ in outer)):
        offset = sum(i * s for i, (_, s) in zip(index, outer, strict=True)) * itemsize
        device.copy_to_host(out[at + offset : at + offset + width], address + offset, stream)


def has_gaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether there are elements between the first and the last that belong to no index; strides not negative."""
    reach = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride > reach:
            return True
        reach += (n - 1) * stride
    return False


def copy_back(view: ArrayView, storage: Storage, device: Device, stream: int) -> None:
    """Write what the device holds into the caller's host array; bytes between its elements stay as they are."""
    array = as_numpy(view)
    if array.size == 0 or storage.pending is not None:
        return
    data = np.empty(storage.nbytes, np.uint8)
    device.copy_to_host(data, storage.address, stream)
    array[...] = strided_view(data, view.dtype, view.sizes, view.strides)
