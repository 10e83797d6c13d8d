"""`DeviceTensor`: this project's own array, for callers without an array library and for device memory handed to one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.errors import InputTypeError, LaunchError
from fuser.ir.ops.dtypes import DataType
from fuser.missing_names import says_instead
from fuser.runtime.array_view import ArrayView, framework_dtype
from fuser.runtime.arrays.dlpack import CPU, CUDA, export_tensor, raw_stream
from fuser.runtime.devices.device import Allocation, Device
from fuser.runtime.devices.host_bytes import read_elements, strided_view
from fuser.runtime.devices.streams import order_after
from fuser.runtime.layouts import element_span, row_major

if TYPE_CHECKING:
    import numpy as np


class OwnedMemory:
    """An allocation that goes back to its device, ordered on `stream`, when the last tensor over it is gone."""

    __slots__ = ("__weakref__", "_device", "allocation", "stream")

    def __init__(self, device: Device, allocation: Allocation, stream: int) -> None:
        self._device = device
        self.allocation = allocation
        self.stream = stream

    # Bound early: at interpreter exit the names of this module may be gone.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # The driver may be gone then as well, and the memory goes with the process.
        if not is_finalizing():
            self._device.release(self.allocation, self.stream)


_ELSEWHERE = "its numbers are x.numpy(); torch.from_dlpack(x) and cupy.from_dlpack(x) read them where they are"


@says_instead(
    _ELSEWHERE,
    dict.fromkeys(
        ("cpu", "cuda", "detach", "get", "item", "reshape", "size", "sum", "to", "tolist", "torch"), _ELSEWHERE
    ),
    items=_ELSEWHERE,
    operators=f"it is memory and no value of a fusion: {_ELSEWHERE}",
)
class DeviceTensor:
    """Memory of a device with a shape. Strides in elements; `stream` is the raw stream whose work wrote it.

    `.numpy()` and `np.asarray` copy it to the host. Other libraries take it without a copy by DLPack or
    `__cuda_array_interface__`; a tensor of the simulator shows itself to them as a host copy.
    """

    __slots__ = ("__weakref__", "_address", "_owner", "_sizes", "_strides", "device", "dtype", "stream")

    def __init__(
        self,
        device: Device,
        dtype: DataType,
        sizes: Sequence[int],
        strides: Sequence[int] | None,
        address: int,
        owner: object,
        stream: int = 0,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.stream = stream
        self._sizes = tuple(sizes)
        self._strides = row_major(self._sizes) if strides is None else tuple(strides)
        self._address = address
        self._owner = owner

    @classmethod
    def empty(
        cls,
        device: Device,
        sizes: Sequence[int],
        dtype: DataType,
        strides: Sequence[int] | None = None,
        stream: int = 0,
    ) -> DeviceTensor:
        """An uninitialised tensor; row major unless strides (not negative) are given."""
        layout = row_major(sizes) if strides is None else tuple(strides)
        allocation = device.allocate(max(element_span(sizes, layout) * dtype.itemsize, 1), stream)
        return cls(device, dtype, sizes, layout, allocation.address, OwnedMemory(device, allocation, stream), stream)

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], device: Device, stream: int = 0) -> DeviceTensor:
        """A dense copy of a host array on `device`. Raises InputTypeError for an element type that is not supported."""
        import numpy as np

        tensor = cls.empty(device, array.shape, framework_dtype(array.dtype), None, stream)
        if array.size:
            device.copy_from_host(tensor.address, np.ascontiguousarray(array), stream)
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self._sizes

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        return self._strides

    @property
    def ndim(self) -> int:
        return len(self._sizes)

    @property
    def address(self) -> int:
        """Of the first element, in the device's address space."""
        return self._address

    @property
    def owner(self) -> object:
        """What keeps the memory alive."""
        return self._owner

    def view(self, sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> DeviceTensor:
        """The same memory seen with another layout, `offset` elements further on."""
        address = self._address + offset * self.dtype.itemsize
        return DeviceTensor(self.device, self.dtype, sizes, strides, address, self._owner, self.stream)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A host copy with the same shape and strides, complete on return."""
        import numpy as np

        host = np.zeros(element_span(self._sizes, self._strides) * self.dtype.itemsize, np.uint8)
        read_elements(self.device, self.dtype, self._sizes, self._strides, self._address, host, 0, self.stream)
        return strided_view(host, self.dtype, self._sizes, self._strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a DeviceTensor is in device memory: its values must be copied to become a NumPy array")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.device.index) if self.device.kind == "cuda" else (CPU, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule. `stream` is numbered as the protocol says; -1 asks for no synchronisation."""
        del max_version  # the capsule is of the version that every consumer accepts
        here = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != here:
            raise BufferError(f"this tensor is on DLPack device {here}, not {tuple(dl_device)}")
        if self.device.kind != "cuda":
            if copy is False:
                raise BufferError("a tensor of the simulator can only be exported as a copy in host memory")
            host = self.numpy()
            return export_tensor(self.dtype, self._sizes, self._strides, host.ctypes.data, here, host)
        if copy:
            raise BufferError("DeviceTensor does not copy on export")
        if stream != -1:
            order_after(self.device, raw_stream(1 if stream is None else stream), self.stream)
        return export_tensor(self.dtype, self._sizes, self._strides, self._address, here, self._owner)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.device.kind != "cuda":
            raise AttributeError("a tensor of the simulator has no __cuda_array_interface__: it is not in CUDA memory")
        itemsize = self.dtype.itemsize
        if not self.dtype.numpy.isbuiltin:
            raise AttributeError(f"__cuda_array_interface__ has no element type for {self.dtype.name}: use DLPack")
        return {
            "shape": self._sizes,
            "typestr": self.dtype.numpy.str,
            "data": (self._address, False),
            "strides": tuple(s * itemsize for s in self._strides),
            "stream": self.stream or 1,
            "version": 3,
        }

    def __repr__(self) -> str:
        where = f"{self.device.kind}:{self.device.index}"
        return f"DeviceTensor({self.dtype.name}, shape={self._sizes}, strides={self._strides}, device={where!r})"


def describe_device_tensor(array: DeviceTensor) -> ArrayView:
    """View of our own tensor."""
    device = (array.device.kind, array.device.index)
    return ArrayView("fuser", array.dtype, array.shape, array.strides, array.address, device, array, array)


def tensor_over(view: ArrayView, device: Device, stream: int) -> DeviceTensor:
    """A DeviceTensor over device memory of another library, kept alive by it. Raises InputTypeError for host arrays."""
    if view.is_host:
        raise InputTypeError(f"a {view.kind} array in host memory cannot be seen as device memory")
    if view.device != (device.kind, device.index):
        raise LaunchError(
            f"memory of {view.device[0]}:{view.device[1]} does not belong to {device.kind}:{device.index}"
        )
    return DeviceTensor(device, view.dtype, view.sizes, view.strides, view.address, view.owner, stream)
