"""A device whose memory is host memory and whose kernels are Python functions, and kernels with hand-written plans.

`device.behaviours[entry] = function(arrays, values)` is what a kernel does: `arrays` are flat NumPy arrays over each
tensor parameter's memory from its address on, `values` the other parameters. Every call is recorded in `device.calls`;
`device.fail_at = k` makes call number k fail.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser.errors import LaunchError
from fuser.host_ir.instructions.expressions import Size
from fuser.ir.device_info import H200
from fuser.ir.integers.integers import Int, Symbol, as_int, ceil_div, symbol
from fuser.ir.kernel.kernel import (
    Buffer,
    ExtentParameter,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.kernel.launch_plan import Binding, ExtentOf, LaunchPlan, ScalarOf, ScalarStep, StrideOf, Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY
from fuser.runtime.devices.device import Allocation
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch


class HostDevice:
    """The fake device. Its memory is NumPy arrays filled with a pattern, so that unwritten values show."""

    kind = "fake"

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.info = H200
        self.calls: list[tuple[Any, ...]] = []
        self.live: dict[int, np.ndarray[Any, Any]] = {}
        self.behaviours: dict[str, Callable[[list[np.ndarray[Any, Any]], list[Any]], None]] = {}
        self.fail_at: int | None = None
        self.released: list[int] = []
        self._counters = np.zeros(64, np.int32)
        self._beside = np.zeros(64, np.int32)

    def _record(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail_at is not None and len(self.calls) - 1 == self.fail_at:
            raise LaunchError(f"planted failure of call {self.fail_at}: {call[0]}")

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        self._record("allocate", nbytes)
        raw = np.full(nbytes + 256, 0xAB, np.uint8)
        address = -(-raw.ctypes.data // 256) * 256
        self.live[address] = raw
        return Allocation(address, nbytes)

    def release(self, allocation: Allocation, stream: int) -> None:
        # Recorded before a planted failure: a failing release still gives the memory back, as cuMemFreeAsync would.
        self.released.append(allocation.address)
        del self.live[allocation.address]
        self._record("release", allocation.nbytes)

    def copy_from_host(self, address: int, data: np.ndarray[Any, Any], stream: int) -> None:
        self._record("copy_from_host", data.nbytes)
        assert data.flags.c_contiguous
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def copy_to_host(self, data: np.ndarray[Any, Any], address: int, stream: int) -> None:
        self._record("copy_to_host", data.nbytes)
        ctypes.memmove(data.ctypes.data, address, data.nbytes)

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._record("copy", nbytes)
        ctypes.memmove(dst, src, nbytes)

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        self._record("fill", pattern, count)
        ctypes.memmove(address, pattern * count, len(pattern) * count)

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        self._record("semaphores", count)
        return int((self._beside if co_resident else self._counters).ctypes.data)

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
        self._record("launch", kernel.entry, launch, tuple(arguments))
        behaviour = self.behaviours.get(kernel.entry)
        if behaviour is None:
            return
        arrays: list[np.ndarray[Any, Any]] = []
        values: list[Any] = []
        for parameter, value in zip(kernel.parameters, arguments, strict=True):
            if isinstance(parameter, TensorParameter):
                arrays.append(self.memory(value, parameter.buffer.dtype))
            else:
                values.append(value)
        behaviour(arrays, values)

    def memory(self, address: int, dtype: DataType) -> np.ndarray[Any, Any]:
        """The memory from an address to the end of its allocation."""
        for base, raw in self.live.items():
            end = raw.ctypes.data + raw.nbytes
            if base <= address < end:
                count = (end - address) // dtype.itemsize
                return np.frombuffer((ctypes.c_char * (end - address)).from_address(address), dtype.numpy, count)
        raise AssertionError(f"{address:#x} is in no allocation")

    def synchronize(self, stream: int) -> None:
        self._record("synchronize")

    def named(self, what: str) -> list[tuple[Any, ...]]:
        """The recorded calls of one kind."""
        return [call for call in self.calls if call[0] == what]


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


Source = ExtentOf | StrideOf | ScalarOf


class KernelMaker:
    """Compiled kernels with hand-written plans. `tensors` maps the id of each tensor argument to its dtype."""

    def __call__(
        self,
        entry: str = "add_one",
        *,
        inputs: dict[str, DataType] | None = None,
        outputs: dict[str, DataType] | None = None,
        scalars: dict[str, DataType] | None = None,
        steps: Sequence[ScalarStep] = (),
        bindings: dict[Symbol, Source] | None = None,
        grid: Sequence[Size] | None = None,
        block: Sequence[Size] = (128, 1, 1),
        shared: Size = 0,
        shapes: Sequence[Sequence[Int]] | None = None,
        strides: Sequence[Sequence[Int]] | None = None,
        workspaces: Sequence[Workspace] = (),
        semaphores: Int | None = None,
        extents: Sequence[Symbol] | None = None,
        facts: Sequence[Any] = (),
        content: str = "0123456789abcdef",
    ) -> CompiledKernel:
        inputs = {"x": DataType.Float} if inputs is None else inputs
        outputs = {"y": DataType.Float} if outputs is None else outputs
        scalars = scalars or {}
        n = symbol("n", 0)
        bindings = {n: ExtentOf(0, 0)} if bindings is None else bindings
        tensors = {**inputs, **outputs}
        parameters: list[Parameter] = []
        for position, (name, dtype) in enumerate(tensors.items()):
            buffer = Buffer(name, dtype, GLOBAL_MEMORY, n, name)
            parameters.append(TensorParameter(buffer, name, position, position >= len(inputs)))
        for workspace in workspaces:
            parameters.append(
                WorkspaceParameter(Buffer(workspace.name, workspace.dtype, GLOBAL_MEMORY, workspace.count))
            )
        if semaphores is not None:
            parameters.append(SemaphoreParameter(Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, semaphores)))
        parameters += [ExtentParameter(s) for s in (list(bindings) if extents is None else extents)]
        parameters += [ScalarParameter(name, dtype) for name, dtype in scalars.items()]
        chosen: Sequence[Size] = (ceil_div(n, 128), 1, 1) if grid is None else grid
        plan = LaunchPlan(
            tensor_arguments=tuple(tensors),
            scalar_arguments=tuple(name for name in scalars if name not in {s.name for s in steps}),
            bindings=tuple(Binding(s, source) for s, source in bindings.items()),
            scalars=tuple(steps),
            grid=(as_int(chosen[0]), as_int(chosen[1]), as_int(chosen[2])),
            block=(as_int(block[0]), as_int(block[1]), as_int(block[2])),
            shared_bytes=as_int(shared),
            workspaces=tuple(workspaces),
            semaphores=semaphores,
            output_shapes=tuple(tuple(s) for s in ([(n,)] * len(outputs) if shapes is None else shapes)),
            output_strides=tuple(tuple(s) for s in ([(as_int(1),)] * len(outputs) if strides is None else strides)),
        )
        return CompiledKernel(
            source="",
            entry=entry,
            arch="sm_90a",
            cubin=None,
            kernel_ir=None,
            parameters=tuple(parameters),
            plan=plan,
            facts=frozenset(facts),
            resources=None,
            max_block_size=0,
            register_limit=255,
            options=(),
            nvrtc_version=None,
            content_hash=content,
        )


@pytest.fixture
def make_kernel() -> KernelMaker:
    return KernelMaker()


def add_one(arrays: list[np.ndarray[Any, Any]], values: list[Any]) -> None:
    """y[:n] = x[:n] + 1."""
    n = values[0]
    arrays[1][:n] = arrays[0][:n] + 1
