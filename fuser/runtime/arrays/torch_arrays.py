"""torch tensors: description, memory from torch's allocator, torch's current stream. The one file that touches torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from fuser.errors import InputTypeError
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import ArrayView, framework_dtype
from fuser.runtime.arrays.device_memory import HostFramework, device_tensor_of
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.arrays.storage import Framework, Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.streams import LEGACY

if TYPE_CHECKING:
    import numpy as np

_HOST = ("cpu", 0)
_cuda: list[tuple[str, int]] = [("cuda", i) for i in range(256)]
_dtypes: dict[object, DataType] = {}
# torch.strided; filled at the first tensor, when torch is imported for certain.
_strided: object = None


def describe_torch(tensor: Any) -> ArrayView:
    """View of a torch tensor. Raises InputTypeError for sparse tensors, other devices and other element types."""
    dtype = _dtypes.get(tensor.dtype)
    if dtype is None or tensor.layout is not _strided:
        dtype = _admit(tensor)
    array = tensor
    if tensor.is_neg() or (dtype.is_complex and tensor.is_conj()):
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_cuda:
        device = _cuda[tensor.get_device()]
    elif tensor.device.type == "cpu":
        device = _HOST
    else:
        raise InputTypeError(
            f"torch tensors on device {tensor.device} are not supported: only CUDA and scalar CPU tensors are"
        )
    return ArrayView("torch", dtype, tuple(tensor.shape), tensor.stride(), tensor.data_ptr(), device, tensor, array)


def _admit(tensor: Any) -> DataType:
    """The slow half of the checks, for a dtype or layout seen for the first time."""
    global _strided
    if _strided is None:
        import torch

        _strided = torch.strided
    if tensor.layout is not _strided:
        raise InputTypeError(f"torch tensors with layout {tensor.layout} are not supported: call .to_dense()")
    dtype = framework_dtype(tensor.dtype)
    _dtypes[tensor.dtype] = dtype
    return dtype


@cache
def torch_dtype(dtype: DataType) -> Any:
    """The dtype of torch's tensors that hold such elements."""
    import torch

    # By name: NumPy's types beyond its own cost an import.
    return getattr(torch, dtype.stored_name)


def torch_to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    """A CPU tensor as NumPy, sharing its memory. Types that NumPy lacks go through integers of their width."""
    dtype = describe_torch(tensor).dtype
    tensor = tensor.detach()
    if dtype.numpy.isbuiltin == 1:
        return tensor.numpy()
    import torch

    carrier = torch.int16 if dtype.itemsize == 2 else torch.uint8
    return tensor.view(carrier).numpy().view(dtype.numpy)


def torch_over(tensor: DeviceTensor) -> Any:
    """A tensor of torch over the memory of one of ours, which it keeps alive."""
    import torch

    return torch.from_dlpack(tensor)


def torch_from_numpy(array: np.ndarray[Any, Any]) -> Any:
    """A CPU tensor over a NumPy array, sharing its memory."""
    import torch

    dtype = framework_dtype(array.dtype)
    if dtype.numpy.isbuiltin == 1:
        return torch.from_numpy(array)
    import numpy as np

    carrier = np.int16 if dtype.itemsize == 2 else np.uint8
    return torch.from_numpy(array.view(carrier)).view(torch_dtype(dtype))


def _probe_current_stream() -> Callable[[int], int]:
    """The fast private query of the current stream if this torch has it, else the public one (40 times slower)."""
    import torch

    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001
    if raw is not None:
        return raw
    return lambda index: int(torch.cuda.current_stream(index).cuda_stream)


def _probe_empty_strided() -> Callable[[Sequence[int], Sequence[int], Any], Any] | None:
    """The fast private allocation on the current device if this torch has it."""
    import torch

    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
    return getattr(guards, "_empty_strided_cuda", None)


class TorchFramework:
    """Memory and results of torch on one CUDA device."""

    kind = "torch"

    def __init__(self, index: int) -> None:
        import torch

        torch.cuda.init()  # a program without tensor inputs may be the first to touch the GPU
        self._torch = torch
        self._device = torch.device("cuda", index)
        self._index = index
        self._current_stream = _probe_current_stream()
        self._fast_empty = _probe_empty_strided()
        # The private query skips the check whether CUDA was started.
        self._current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)  # noqa: SLF001

    def current_stream(self, device: Device) -> int | None:
        return self._current_stream(device.index)

    def quick_calls(self) -> dict[str, Any]:
        """What a bound call asks of torch, by the name that its text knows it by.

        current   raw handle of the current stream
        here      index of the current device
        fast      allocates on that device and stream: (sizes, strides, dtype) -> tensor; None if this torch has no such thing
        careful   (stream) -> the same on any stream
        """
        return {
            "current": partial(self._current_stream, self._index),
            "here": self._current_device,
            "fast": self._fast_empty,
            "careful": self._careful,
            "index": self._index,
            "uint8": self._torch.uint8,
        }

    def _careful(self, stream: int) -> Callable[[Sequence[int], Sequence[int], Any], Any]:
        return lambda sizes, strides, dtype: self._empty(sizes, strides, dtype, stream)

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        array = self._empty(sizes, strides, torch_dtype(dtype), stream)
        return Storage(array.data_ptr(), array.untyped_storage().nbytes(), array)

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        array = self._empty((max(nbytes, 1),), (1,), self._torch.uint8, stream)
        return Storage(array.data_ptr(), nbytes, array)

    def _empty(self, sizes: Sequence[int], strides: Sequence[int], dtype: Any, stream: int) -> Any:
        torch = self._torch
        if stream != self._current_stream(self._index):
            # The caching allocator reuses a block in the order of the stream that it was made on.
            with torch.cuda.stream(self._stream(stream)):
                return torch.empty_strided(sizes, strides, dtype=dtype, device=self._device)
        if self._fast_empty is not None and self._current_device() == self._index:
            return self._fast_empty(tuple(sizes), tuple(strides), dtype)
        return torch.empty_strided(sizes, strides, dtype=dtype, device=self._device)

    def _stream(self, handle: int) -> Any:
        """torch's object for a raw stream. For the handle 0 `ExternalStream` would give any stream of torch's pool."""
        if handle in LEGACY:
            return self._torch.cuda.default_stream(self._device)
        return self._torch.cuda.ExternalStream(handle, device=self._device)

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
        array = storage.array
        if not isinstance(array, self._torch.Tensor):  # a view of another library's input
            return self._torch.from_dlpack(device_tensor_of(device, storage, dtype, sizes, strides, offset, stream))
        if offset == 0 and array.shape == sizes and array.stride() == strides:
            return array
        return array.as_strided(sizes, strides, array.storage_offset() + offset)


@cache
def _torch_cuda(index: int) -> TorchFramework:
    return TorchFramework(index)


_host = HostFramework("torch", torch_from_numpy)


def torch_framework(device: Device) -> Framework:
    """torch's memory on a GPU; CPU tensors for results of the simulator."""
    return _torch_cuda(device.index) if device.kind == "cuda" else _host


def advance_generator(index: int, words: int) -> tuple[int, int]:
    """(seed, offset in words) of torch's default generator of a GPU, which then stands `words` further on."""
    import torch

    torch.cuda.init()  # a program without tensor inputs may be the first to touch the GPU
    generator = torch.cuda.default_generators[index]
    offset = generator.get_offset()
    generator.set_offset(offset + words)
    return generator.initial_seed(), offset
