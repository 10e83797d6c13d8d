"""A CUDA driver that does nothing and a torch that has no GPU: what is left of a call then is this project's own Python.

The driver answers every call at once; memory is addresses that nobody reads, a launch is counted. The torch is as much of
the real one as `fuser.runtime.arrays.torch_arrays` asks: tensors with a layout, an address and a device, and the two private
functions by which memory and streams are had quickly. Its attributes cost about what torch's do.

    with idle_cuda() as driver:
        x = driver.torch.empty_strided((4, 8), (8, 1), driver.torch.float32)

Kernels are compiled for real (NVRTC is needed, a GPU is not).
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from fuser.runtime import driver
from fuser.runtime.devices import device as registry
from fuser.runtime.devices import streams

_CONTEXT = 0xC0
_ALIGNMENT = 512
# What torch gives for a stream that is told by no address.
_FROM_POOL = 0xF00
_ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "L2_CACHE_SIZE": 60 * 2**20,
    "WARP_SIZE": 32,
}
_FUNCTION_ATTRIBUTES = {"NUM_REGS": 32, "SHARED_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 1024}


class IdleDriver:
    """The bindings module as `fuser.runtime.driver` uses it. Types are the real ones.

    launches   how many there were; of the last one `config` and the address of its `parameters`
    status     what a launch answers
    context    the current one; `pushed` are those that were put above another one
    devices    how many there are
    """

    def __init__(self) -> None:
        from cuda.bindings import driver as real

        self._real = real
        self._addresses = itertools.count(1 << 32, 1 << 20)
        self.launches = 0
        self.config: Any = None
        self.parameters = 0
        # Called at each one, while the driver would read the parameters.
        self.on_launch: Callable[[], object] | None = None
        self.status = 0
        self.context = _CONTEXT
        self.pushed: list[int] = []
        self._below: list[int] = []
        self.devices = 1
        self.torch = StandInTorch()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cu") and not name.startswith("cuuint"):
            # What nobody asks the answer of.
            return lambda *_: (0,)
        return getattr(self._real, name)

    # Names and signatures are the driver's.

    def cuGetErrorString(self, code: Any) -> Any:
        return 0, b"the driver's words"

    def cuDeviceGetCount(self) -> Any:
        return 0, self.devices

    def cuDeviceGet(self, index: int) -> Any:
        return 0, index

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return 0, b"idle" + b"\0" * (length - 4)

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        return 0, _ATTRIBUTES.get(attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_"), 0)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, _CONTEXT + device

    def cuCtxGetCurrent(self) -> Any:
        return 0, self.context

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.context = context
        return (0,)

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.pushed.append(context)
        self._below.append(self.context)
        self.context = context
        return (0,)

    def cuCtxPopCurrent(self) -> Any:
        self.context = self._below.pop()
        return 0, 0

    def cuMemPoolCreate(self, properties: Any) -> Any:
        return 0, 0x900

    def cuMemAllocFromPoolAsync(self, nbytes: int, pool: int, stream: int) -> Any:
        return 0, next(self._addresses)

    def cuEventCreate(self, flags: int) -> Any:
        return 0, 0x600

    def cuStreamCreate(self, flags: int) -> Any:
        return 0, 0x500

    def cuStreamGetCaptureInfo(self, stream: int) -> Any:
        return 0, 0, 0, 0, (), (), 0

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return 0, 0

    cuStreamGetCaptureInfo_v3 = cuStreamGetCaptureInfo

    def cuPointerGetAttribute(self, attribute: Any, address: int) -> Any:
        return 0, 0

    def cuModuleLoadData(self, image: bytes) -> Any:
        return 0, 0x300

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        return 0, 0x400

    def cuFuncGetAttribute(self, attribute: Any, function: int) -> Any:
        return 0, _FUNCTION_ATTRIBUTES[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> Any:
        return 0, 8

    def cuOccupancyMaxActiveClusters(self, function: int, config: Any) -> Any:
        return 0, 16

    def cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> Any:
        self.launches += 1
        self.config = config
        self.parameters = parameters
        if self.on_launch is not None:
            self.on_launch()
        return (self.status,)


class StandInTorch(ModuleType):
    """The module `torch`, as far as it is asked."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.strided = "torch.strided"
        self.stream = 0
        self.device_index = 0
        self.allocations = 0
        # Called at each one, as a garbage collection would be.
        self.on_allocation: Callable[[], object] | None = None
        self._next = itertools.count(1 << 40, 1 << 24)
        for name in ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "bool"):
            setattr(self, name, _StandInDtype(name))
        self.Tensor = Tensor
        self._C = SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: self.stream,
            _cuda_getDevice=lambda: self.device_index,
            _dynamo=SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=self._empty)),
        )
        self.cuda = SimpleNamespace(
            init=lambda: None,
            is_available=lambda: True,
            current_device=lambda: self.device_index,
            stream=lambda stream: _On(self, stream),
            ExternalStream=lambda handle, device: handle or _FROM_POOL,
            default_stream=lambda device: 0,
        )

    def device(self, kind: str, index: int = 0) -> Any:
        """torch.device"""
        return SimpleNamespace(type=kind, index=index)

    def empty_strided(self, size: Sequence[int], stride: Sequence[int], dtype: Any, device: Any = None) -> Tensor:
        """A tensor on the GPU, at an address of its own."""
        return self._empty(size, stride, dtype, 0 if device is None else device.index)

    def _empty(self, size: Sequence[int], stride: Sequence[int], dtype: Any, index: int | None = None) -> Tensor:
        self.allocations += 1
        if self.on_allocation is not None:
            self.on_allocation()
        at = self.device_index if index is None else index
        return Tensor(tuple(size), tuple(stride), dtype, next(self._next), at)


class _StandInDtype:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


class _On:
    """`with torch.cuda.stream(...)`"""

    def __init__(self, torch: StandInTorch, stream: int) -> None:
        self._torch, self._stream, self._before = torch, stream, torch.stream

    def __enter__(self) -> None:
        self._torch.stream = self._stream

    def __exit__(self, *_: object) -> None:
        self._torch.stream = self._before


class Tensor:
    """torch.Tensor on a GPU that is not there."""

    __module__ = "torch"
    __slots__ = ("_index", "_pointer", "_stride", "conjugated", "dtype", "is_cuda", "layout", "negated", "shape")

    def __init__(self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: Any, pointer: int, index: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.layout = "torch.strided"
        self.is_cuda = index >= 0
        self.negated = self.conjugated = False
        self._stride = stride
        self._pointer = pointer
        self._index = index

    def stride(self) -> tuple[int, ...]:
        return self._stride

    def data_ptr(self) -> int:
        return self._pointer

    def get_device(self) -> int:
        return self._index

    @property
    def device(self) -> Any:
        return SimpleNamespace(type="cuda" if self.is_cuda else "cpu", index=self._index)

    def is_neg(self) -> bool:
        return self.negated

    def is_conj(self) -> bool:
        return self.conjugated

    def storage_offset(self) -> int:
        return 0

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: 0)

    def resolve_conj(self) -> Tensor:
        return self

    def resolve_neg(self) -> Tensor:
        """A copy with the values that the flag stands for."""
        return Tensor(self.shape, self._stride, self.dtype, self._pointer + (1 << 23), self._index)

    def as_strided(self, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Tensor:
        """Another view of the same memory; 4-byte elements."""
        return Tensor(tuple(size), tuple(stride), self.dtype, self._pointer + 4 * offset, self._index)


@contextmanager
def idle_cuda() -> Generator[IdleDriver]:
    """The idle driver under `fuser.runtime.driver` and the stand-in under `torch`; what was there comes back after."""
    from fuser.runtime.arrays import torch_arrays

    idle = IdleDriver()
    names = ("_bindings", "_process", "_functions", "_contexts", "_version", "_count")
    before = {name: getattr(driver, name) for name in names}
    kept = (registry._devices, streams._own_streams)
    copies = [dict(known) for known in kept]
    modules = {name: sys.modules.get(name) for name in ("torch",)}
    strided = torch_arrays._strided
    for name, value in zip(names, (idle, os.getpid(), {}, {}, (12, 0), 1), strict=True):
        setattr(driver, name, value)
    for known in kept:
        known.clear()
    sys.modules["torch"] = idle.torch
    torch_arrays._strided = None
    _forget(torch_arrays)
    try:
        yield idle
    finally:
        for name, value in before.items():
            setattr(driver, name, value)
        for known, copy in zip(kept, copies, strict=True):
            known.clear()
            known.update(copy)
        for name, module in modules.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
        torch_arrays._strided = strided
        _forget(torch_arrays)


def _forget(torch_arrays: ModuleType) -> None:
    """What that module keeps of the torch that it met."""
    torch_arrays.torch_dtype.cache_clear()
    torch_arrays._torch_cuda.cache_clear()
