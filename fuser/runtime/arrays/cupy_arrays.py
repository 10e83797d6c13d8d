"""CuPy arrays: description, memory from CuPy's pool, CuPy's current stream. The one file that touches CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.errors import InputTypeError
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import ArrayView, framework_dtype
from fuser.runtime.arrays.device_memory import device_tensor_of
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.layouts import element_span


def describe_cupy(array: Any) -> ArrayView:
    """View of a CuPy array. Raises InputTypeError for element types that are not supported."""
    dtype = framework_dtype(array.dtype)
    itemsize = dtype.itemsize
    strides = tuple(s // itemsize for s in array.strides)
    if any(s % itemsize for s in array.strides):
        raise InputTypeError(f"strides {array.strides} of a CuPy array are not multiples of its {itemsize} bytes")
    return ArrayView("cupy", dtype, array.shape, strides, array.data.ptr, ("cuda", array.device.id), array, array)


class _Handle:
    """A raw stream, as CuPy takes those of others."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def external_stream(handle: int) -> Any:
    """CuPy's object for a raw stream."""
    import cupy

    stream = cupy.cuda.Stream
    # CuPy 14 has another name for it.
    return (
        stream.from_external(_Handle(handle)) if hasattr(stream, "from_external") else cupy.cuda.ExternalStream(handle)
    )


class CupyFramework:
    """Memory and results of CuPy."""

    kind = "cupy"

    def current_stream(self, device: Device) -> int | None:
        import cupy

        return int(cupy.cuda.get_current_stream(device.index).ptr)

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        return self.scratch(device, element_span(sizes, strides) * dtype.itemsize, stream)

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        import cupy

        with cupy.cuda.Device(device.index):
            if stream == int(cupy.cuda.get_current_stream().ptr):
                memory = cupy.cuda.alloc(max(nbytes, 1))
            else:
                with external_stream(stream):
                    memory = cupy.cuda.alloc(max(nbytes, 1))
        return Storage(int(memory.ptr), nbytes, memory)

    def release(self, device: Device, storage: Storage, stream: int) -> None:
        storage.array = None

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
        import cupy

        held = storage.array
        memory = held.data if isinstance(held, cupy.ndarray) else held
        if not isinstance(memory, cupy.cuda.MemoryPointer):  # a view of another library's input
            return cupy.from_dlpack(device_tensor_of(device, storage, dtype, sizes, strides, offset, stream))
        itemsize = dtype.itemsize
        return cupy.ndarray(sizes, dtype.numpy, memory + offset * itemsize, tuple(s * itemsize for s in strides))


CUPY = CupyFramework()
