"""A CUDA driver made of host memory, for tests of what is called, in which order, and what a failing call leads to.

Memory, copies and fills are real (in host memory); a launch records its sizes and the bytes of its parameters. Calls can
be made to fail by number or by name. Arguments must be of the number and types that the installed bindings ask for, and what
the documentation says the driver refuses is refused: fills of other extents in an executable graph, nodes of no bytes, waits
across the border of a capture, and what ends a capture that somebody else is at. Kernels do nothing, but for the one that sets
a conditional node (`fuser/runtime/devices/cuda_switches.py`), which does here what its text says.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import struct
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.ir.integers.integers import symbol
from fuser.ir.kernel.kernel import Buffer, ScalarParameter, TensorParameter
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY
from fuser.runtime import driver
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.nvrtc import CompileResult, NvrtcUnavailableError

ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "L2_CACHE_SIZE": 60 * 2**20,
    "WARP_SIZE": 32,
}
CONTEXT = 0xC0
_RELAXED = 2
_INVALID, _CAPTURE_ENDED, _OUTSIDE_OF_CAPTURE, _IMPLICIT, _CAPTURED_EVENT = 1, 900, 905, 906, 907
# What ends a capture in the usual mode, wherever it comes from, unless the thread's own mode is relaxed.
_UNSAFE = ("cuEventQuery", "cuEventSynchronize", "cuMemPoolCreate", "cuModuleLoadData", "cuStreamSynchronize")
# What puts work on a stream, and which argument that is.
_ON_STREAMS = {
    "cuEventRecord": 1,
    "cuMemAllocFromPoolAsync": 2,
    "cuMemFreeAsync": 1,
    "cuMemcpyDtoHAsync": 3,
    "cuMemcpyHtoDAsync": 3,
    "cuStreamSynchronize": 0,
    "cuStreamWaitEvent": 0,
}
_PLAIN = {"int": int, "size_t": int, "unsigned": int, "char": bytes, "void_ptr": int}


@cache
def _parameter_types(name: str) -> tuple[tuple[type, ...], ...]:
    """The types that the installed bindings take for each parameter; none for handles, which may be numbers as well.

    Of `cuA(hNode, attr: CUattr, CUvalue value: Optional[CUvalue], size_t n)`, the first line of the function's own text.
    """
    from cuda.bindings import driver as real

    text = re.sub(r"\[[^\[\]]*\[.*?\]\]", "", (getattr(real, name).__doc__ or "").split("\n")[0])
    found: list[tuple[type, ...]] = []
    for parameter in filter(None, re.split(r",\s*", text.partition("(")[2].rpartition(")")[0])):
        declared, _, annotation = parameter.partition(":")
        words = declared.split()
        if annotation.strip().startswith("CU"):
            found.append((getattr(real, annotation.strip()),))
        elif len(words) > 1:
            kind = _PLAIN.get(words[0]) or getattr(real, words[0])
            found.append((kind,))
        else:
            found.append(())
    return tuple(found)


def _check_arguments(name: str, arguments: tuple[Any, ...]) -> None:
    types = _parameter_types(name)
    assert len(arguments) == len(types), f"{name} takes {len(types)} arguments, got {len(arguments)}"
    for value, expected in zip(arguments, types, strict=True):
        assert not expected or isinstance(value, expected), f"{name}: {type(value)} is no {expected}"


class FakeDriver:
    """The bindings module as `fuser.runtime.driver` uses it. `calls` holds (name, arguments) of every call."""

    def __init__(self) -> None:
        from cuda.bindings import driver as real

        self._real = real
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fail_at = -1
        self.fail_names: dict[str, int] = {}
        self.current = 0
        self.memory: dict[int, Any] = {}
        self.freed: list[int] = []
        # The capture that all streams are in but the legacy one, 0 for none; those that other threads are at.
        self.capture = 0
        # An error has ended the capture; it is one of a stream that waits for the default stream.
        self.is_ended = False
        self.blocks_default = False
        self.others_capture = False
        self.ended_captures = 0
        self.mode = 0
        self.of_graphs: set[int] = set()
        self.event_captures: dict[int, int] = {}
        self.blocks_per_sm = 2
        self.clusters = 4
        self.registers = 32
        self.static_shared = 0
        self.max_threads = 1024
        self.attributes: dict[tuple[int, str], int] = {}
        self.parameter_sizes: list[int] = []
        self.launches: list[SimpleNamespace] = []
        self.functions = 0
        self.streams = 0
        # Of each node what it does; of each executable graph its nodes in order. `graph_launches` counts.
        self.nodes: list[SimpleNamespace] = []
        self.graphs: dict[int, list[SimpleNamespace]] = {}
        self.graph_launches = 0
        # Graphs within graphs, as often as they were run.
        self.children: list[int] = []
        self.destroyed: list[int] = []
        # Of each function its name; of each handle of a conditional node the value that was set.
        self.names_of: dict[int, str] = {}
        self.handles: dict[int, int | None] = {}
        self.pinned: dict[int, Any] = {}
        # Of graphs of bodies how many nodes they are in.
        self.levels: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cuuint"):
            return getattr(self._real, name)
        if name == "cuGetErrorString":
            return lambda code: (0, b"the driver's words")
        implementation = getattr(self, f"_{name}")

        def function(*arguments: Any) -> Any:
            number = len(self.calls)
            self.calls.append((name, arguments))
            _check_arguments(name, arguments)
            if name in _UNSAFE and (self.capture or self.others_capture) and self.mode != _RELAXED:
                self.ended_captures += 1
                return (self._real.CUresult(_CAPTURE_ENDED),)
            if name in _ON_STREAMS and arguments[_ON_STREAMS[name]] in (0, 1) and self.blocks_default:
                self.ended_captures += 1
                return (self._real.CUresult(_IMPLICIT),)
            if number == self.fail_at:
                return (self._real.CUresult(1),)
            if name in self.fail_names:
                return (self._real.CUresult(self.fail_names[name]),)
            return implementation(*arguments)

        return function

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    # devices and contexts

    def _cuDeviceGetCount(self) -> Any:
        return 0, 1

    def _cuDeviceGet(self, index: int) -> Any:
        return 0, index

    def _cuDeviceGetName(self, length: int, device: int) -> Any:
        # The bindings leave what the driver does not write as the spaces that they hand to it.
        return 0, b"Fake H200\0".ljust(length)

    def _cuDeviceTotalMem(self, device: int) -> Any:
        return 0, 144 * 2**30

    def _cuDeviceGetAttribute(self, attribute: Any, device: int) -> Any:
        return 0, ATTRIBUTES[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def _cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, CONTEXT

    def _cuCtxGetCurrent(self) -> Any:
        return 0, self.current

    def _cuCtxSetCurrent(self, context: int) -> Any:
        self.current = context
        return (0,)

    # memory

    def _cuMemPoolCreate(self, properties: Any) -> Any:
        return 0, 0x900

    def _cuMemPoolSetAttribute(self, pool: int, attribute: Any, value: Any) -> Any:
        return (0,)

    def _cuMemPoolTrimTo(self, pool: int, kept: int) -> Any:
        return (0,)

    def _cuMemAllocFromPoolAsync(self, nbytes: int, pool: int, stream: int) -> Any:
        raw = ctypes.create_string_buffer(b"\xab" * (nbytes + 512))
        address = -(-ctypes.addressof(raw) // 256) * 256
        self.memory[address] = raw
        if self.capture_of(stream):
            self.of_graphs.add(address)
        return 0, address

    def _cuMemFreeAsync(self, address: int, stream: int) -> Any:
        if self.capture_of(stream) and address not in self.of_graphs:
            return (self._real.CUresult(_INVALID),)
        self.freed.append(address)
        return (0,)

    def _cuMemcpyHtoDAsync(self, dst: int, src: int, nbytes: int, stream: int) -> Any:
        ctypes.memmove(dst, src, nbytes)
        return (0,)

    _cuMemcpyDtoHAsync = _cuMemcpyHtoDAsync
    _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _memset(self, address: int, value: int, count: int, width: int) -> Any:
        ctypes.memmove(address, value.to_bytes(width, "little") * count, width * count)
        return (0,)

    def _cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._memset(address, value, count, 1)

    def _cuMemsetD16Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._memset(address, value, count, 2)

    def _cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._memset(address, value, count, 4)

    def _cuMemsetD2D32Async(self, address: int, pitch: int, value: int, width: int, height: int, stream: int) -> Any:
        for row in range(height):
            self._memset(address + row * pitch, value, width, 4)
        return (0,)

    # streams and events

    def _cuStreamCreate(self, flags: int) -> Any:
        self.streams += 1
        return 0, 0x4FF + self.streams

    def _cuStreamSynchronize(self, stream: int) -> Any:
        return (0,)

    def capture_of(self, stream: int) -> int:
        return 0 if stream == 0 else self.capture

    def _cuStreamGetCaptureInfo(self, stream: int) -> Any:
        number = self.capture_of(stream)
        return 0, self._status(number), number, 0, (), (), 0

    def _cuStreamIsCapturing(self, stream: int) -> Any:
        if stream in (0, 1) and self.blocks_default:
            return self._real.CUresult(_IMPLICIT), None
        return 0, self._status(self.capture_of(stream))

    def _status(self, capture: int) -> int:
        return (2 if self.is_ended else 1) if capture else 0

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        before, self.mode = self.mode, int(mode)
        return 0, self._real.CUstreamCaptureMode(before)

    _cuStreamGetCaptureInfo_v3 = _cuStreamGetCaptureInfo

    def _cuEventCreate(self, flags: int) -> Any:
        return 0, 0xE0 + len(self.calls)

    def _cuEventRecord(self, event: int, stream: int) -> Any:
        self.event_captures[event] = self.capture_of(stream)
        return (0,)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        inside = self.capture_of(stream) == self.event_captures[event]
        return (self._real.CUresult(0 if inside else _OUTSIDE_OF_CAPTURE),)

    def _cuEventSynchronize(self, event: int) -> Any:
        return (0,)

    def _cuEventElapsedTime(self, first: int, second: int) -> Any:
        return 0, 0.25

    def _cuEventDestroy(self, event: int) -> Any:
        return (0,)

    # kernels

    def _cuModuleLoadData(self, image: bytes) -> Any:
        return 0, 0x300

    def _cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        self.functions += 1
        self.names_of[0x400 + self.functions] = name.decode()
        return 0, 0x400 + self.functions

    def _cuFuncGetAttribute(self, attribute: Any, function: int) -> Any:
        values = {
            "NUM_REGS": self.registers,
            "SHARED_SIZE_BYTES": self.static_shared,
            "MAX_THREADS_PER_BLOCK": self.max_threads,
        }
        return 0, values[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def _cuFuncSetAttribute(self, function: int, attribute: Any, value: int) -> Any:
        self.attributes[function, attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")] = value
        return (0,)

    def _cuFuncGetParamInfo(self, function: int, index: int) -> Any:
        return 0, 0, self.parameter_sizes[index]

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> Any:
        return 0, self.blocks_per_sm

    def _cuOccupancyMaxActiveClusters(self, function: int, config: Any) -> Any:
        return 0, self.clusters

    # graphs: nodes copy their parameters when they are made or set, and an executable graph has nodes of its own

    def _cuGraphCreate(self, flags: int) -> Any:
        self.graphs[0x6000 + len(self.graphs)] = []
        return 0, 0x5FFF + len(self.graphs)

    def _add(self, graph: int, waits: Any, count: int, run: Any, parameters: Any) -> Any:
        assert len(waits) == count
        graph = int(graph)
        known = {id(node) for node in self.graphs[graph]}
        assert all(id(node) in known for node in waits)
        assert len({id(node) for node in waits}) == count, "a node that is waited for twice"
        node = SimpleNamespace(
            waits=list(waits),
            early=[],
            run=run(parameters),
            shape=_shape(parameters),
            attributes=[],
            number=len(self.nodes),
            level=self.levels.get(graph, 0),
        )
        if 0 in node.shape:
            return (self._real.CUresult(_INVALID),)
        self.nodes.append(node)
        self.graphs[graph].append(node)
        return 0, node

    def _kernel(self, parameters: Any) -> Any:
        launch = SimpleNamespace(
            grid=(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block=(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            shared=parameters.sharedMemBytes,
            function=int(parameters.func),
            # What stands in the cells now: they are the caller's.
            values=[parameter(SimpleNamespace(parameters=parameters.kernelParams), k, "Q") for k in range(1)],
        )
        name = self.names_of.get(launch.function, "")
        if name.startswith(("choose_", "check_")):
            return self._chooser(name, SimpleNamespace(parameters=parameters.kernelParams))
        return lambda: self.launches.append(launch)

    def _chooser(self, name: str, launch: SimpleNamespace) -> Any:
        """What sets a conditional node, or only looks at a selector."""
        selector, cases, bodies, otherwise, flag, report, handle = (
            parameter(launch, k, code) for k, code in enumerate("QQQIQQQ")
        )
        kind = {"int32": ctypes.c_int32, "uint8": ctypes.c_uint8}.get(name.split("_")[-1], ctypes.c_int64)

        def run() -> None:
            value = kind.from_address(selector).value
            number = int(value == 0) if "condition" in name else value % (1 << 64)
            body = otherwise
            if number < cases:
                body = ctypes.c_uint32.from_address(bodies + 4 * number).value if bodies else number
            else:
                for address, word in ((report + 8, number), (report, 1), (flag, 1)):
                    ctypes.c_uint64.from_address(address).value = word
            if name.startswith("choose_"):
                self.handles[handle] = body

        return run

    def _copy(self, parameters: Any) -> Any:
        dst, src, nbytes = int(parameters.dstDevice), int(parameters.srcDevice), parameters.WidthInBytes
        assert (parameters.Height, parameters.Depth) == (1, 1)
        assert parameters.srcMemoryType == parameters.dstMemoryType == self._real.CUmemorytype.CU_MEMORYTYPE_DEVICE
        return lambda: ctypes.memmove(dst, src, nbytes)

    def _set(self, parameters: Any) -> Any:
        dst, value, size = int(parameters.dst), parameters.value, parameters.elementSize
        pitch, width, height = parameters.pitch, parameters.width, parameters.height

        def run() -> None:
            for row in range(height):
                self._memset(dst + row * pitch, value, width, size)

        return run

    def _cuGraphAddKernelNode(self, graph: int, waits: Any, count: int, parameters: Any) -> Any:
        status, *node = self._add(graph, waits, count, self._kernel, parameters)
        for made in node:
            made.is_kernel = True
        return status, *node

    def _cuGraphAddDependencies(self, graph: int, earlier: Any, nodes: Any, data: Any, count: int) -> Any:
        assert len(earlier) == len(nodes) == len(data) == count
        known = {id(node) for node in self.graphs[int(graph)]}
        for first, node, edge in zip(earlier, nodes, data, strict=True):
            assert {id(first), id(node)} <= known
            assert not any(other is first for other in (*node.waits, *node.early)), "an edge that is there"
            # Only kernels have a port for those who start early.
            assert getattr(first, "is_kernel", False)
            assert (edge.from_port, edge.to_port, int(edge.type)) == (1, 0, 1)
            node.early.append(first)
        return (0,)

    def _cuGraphAddMemcpyNode(self, graph: int, waits: Any, count: int, parameters: Any, context: int) -> Any:
        return self._add(graph, waits, count, self._copy, parameters)

    def _cuGraphAddMemsetNode(self, graph: int, waits: Any, count: int, parameters: Any, context: int) -> Any:
        return self._add(graph, waits, count, self._set, parameters)

    def _cuGraphAddEmptyNode(self, graph: int, waits: Any, count: int) -> Any:
        return self._add(graph, waits, count, lambda _: lambda: None, None)

    def _cuGraphConditionalHandleCreate(self, graph: int, context: int, default: int, flags: int) -> Any:
        assert int(graph) in self.graphs
        self.handles[0x800 + len(self.handles)] = None
        return 0, self._real.CUgraphConditionalHandle(0x7FF + len(self.handles))

    def _cuGraphAddNode(self, graph: int, waits: Any, data: Any, count: int, parameters: Any) -> Any:
        assert parameters.type == self._real.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        choice = parameters.conditional
        assert choice.type == self._real.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_SWITCH
        assert int(choice.ctx) == CONTEXT
        handle = int(choice.handle)
        bodies = [int(self._cuGraphCreate(0)[1]) for _ in range(choice.size)]
        # The driver's array of graphs, in the third word of the structure.
        array = self.pinned[handle] = (ctypes.c_void_p * len(bodies))(*bodies)
        ctypes.c_void_p.from_address(choice.getPtr() + 16).value = ctypes.addressof(array)
        status, node = self._add(graph, waits, count, lambda _: lambda: None, None)
        node.bodies, node.handle = bodies, handle
        for body in bodies:
            self.levels[body] = node.level + 1
        return status, node

    _cuGraphAddNode_v2 = _cuGraphAddNode

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> Any:
        raw = ctypes.create_string_buffer(b"\xcd" * (nbytes + 16))
        address = -(-ctypes.addressof(raw) // 16) * 16
        self.pinned[address] = raw
        return 0, address

    def _cuMemFreeHost(self, address: int) -> Any:
        del self.pinned[address]
        return (0,)

    def _cuMemAlloc(self, nbytes: int) -> Any:
        return self._cuMemAllocFromPoolAsync(nbytes, 0, 0)

    def _cuMemFree(self, address: int) -> Any:
        self.freed.append(address)
        return (0,)

    def _cuMemcpyHtoD(self, dst: int, src: int, nbytes: int) -> Any:
        return self._cuMemcpyHtoDAsync(dst, src, nbytes, 0)

    def _cuGraphAddChildGraphNode(self, graph: int, waits: Any, count: int, child: Any) -> Any:
        return self._add(graph, waits, count, lambda _: partial(self.children.append, int(child)), None)

    def _cuGraphExecChildGraphNodeSetParams(self, executable: Any, node: Any, child: Any) -> Any:
        executable.runs[node.number] = partial(self.children.append, int(child))
        return (0,)

    def _cuGraphKernelNodeSetAttribute(self, node: Any, attribute: Any, value: Any) -> Any:
        node.attributes.append(attribute.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"))
        return (0,)

    def _cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        orders: dict[int, list[SimpleNamespace]] = {}
        open_graphs = [graph]
        while open_graphs:
            here = int(open_graphs.pop())
            orders[here] = list(self.graphs[here])
            open_graphs += [body for node in orders[here] for body in getattr(node, "bodies", ())]
        runs = {node.number: node.run for order in orders.values() for node in order}
        return 0, SimpleNamespace(graph=int(graph), orders=orders, runs=runs)

    def _cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, parameters: Any) -> Any:
        executable.runs[node.number] = self._kernel(parameters)
        return (0,)

    def _cuGraphExecMemcpyNodeSetParams(self, executable: Any, node: Any, parameters: Any, context: int) -> Any:
        executable.runs[node.number] = self._copy(parameters)
        return (0,)

    def _cuGraphExecMemsetNodeSetParams(self, executable: Any, node: Any, parameters: Any, context: int) -> Any:
        before, after = node.shape, _shape(parameters)
        # One row may become longer or shorter. Several stay as they are.
        if 0 in after or before[2] != after[2] or (before[2] > 1 and before != after):
            return (self._real.CUresult(_INVALID),)
        executable.runs[node.number] = self._set(parameters)
        return (0,)

    def _cuGraphLaunch(self, executable: Any, stream: int) -> Any:
        self.graph_launches += 1
        for handle in self.handles:
            self.handles[handle] = None
        self._run_all(executable, executable.graph)
        return (0,)

    def _run_all(self, executable: Any, graph: int) -> None:
        for node in executable.orders[graph]:
            executable.runs[node.number]()
            if hasattr(node, "bodies"):
                value = self.handles[node.handle]
                assert value is not None, "a conditional node that nothing has set"
                if value < len(node.bodies):
                    self._run_all(executable, node.bodies[value])

    def _cuGraphExecDestroy(self, executable: Any) -> Any:
        self.destroyed.append(executable)
        return (0,)

    def _cuGraphDestroy(self, graph: int) -> Any:
        self.destroyed.append(graph)
        return (0,)

    def _cuEventQuery(self, event: int) -> Any:
        return (self._real.CUresult(_CAPTURED_EVENT if self.event_captures.get(event) else 0),)

    def _cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> Any:
        self.launches.append(
            SimpleNamespace(
                grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
                block=(config.blockDimX, config.blockDimY, config.blockDimZ),
                shared=config.sharedMemBytes,
                stream=int(config.hStream),
                attributes=[
                    (a.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_"), a.value) for a in config.attrs[: config.numAttrs]
                ],
                function=function,
                parameters=parameters,
            )
        )
        return (0,)


def _shape(parameters: Any) -> tuple[int, ...]:
    """The extents of what a node does."""
    if hasattr(parameters, "elementSize"):
        return parameters.elementSize, parameters.width, parameters.height
    return (parameters.WidthInBytes,) if hasattr(parameters, "WidthInBytes") else ()


def parameter(launch: SimpleNamespace, position: int, code: str) -> Any:
    """The value of a parameter of the latest launch, read where the driver would read it."""
    (address,) = struct.unpack("<Q", ctypes.string_at(launch.parameters + 8 * position, 8))
    return struct.unpack(f"<{code}", ctypes.string_at(address, struct.calcsize(f"<{code}")))[0]


def install(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Put a fake driver under `fuser.runtime.driver` for one test."""
    fake = FakeDriver()
    monkeypatch.setattr(driver, "_bindings", fake)
    monkeypatch.setattr(driver, "_process", os.getpid())
    monkeypatch.setattr(driver, "_functions", {})
    monkeypatch.setattr(driver, "_contexts", {})
    monkeypatch.setattr(driver, "_version", (13, 0))
    return fake


def no_compiler(*_: Any, **__: Any) -> CompileResult:
    raise NvrtcUnavailableError("no NVRTC here")


def kernel_of(**changes: Any) -> CompiledKernel:
    pointer = TensorParameter(Buffer("T0", DataType.Float, GLOBAL_MEMORY, symbol("n", 0, 64)), "t0", 0, True)
    kernel = CompiledKernel(
        source="text",
        entry="k",
        arch="sm_90a",
        cubin=b"cubin",
        kernel_ir=None,
        parameters=(pointer, ScalarParameter("alpha", DataType.Float)),
        plan=None,
        facts=frozenset(),
        resources=None,
        max_block_size=256,
        register_limit=255,
        options=(),
        nvrtc_version=(12, 9),
        content_hash="",
    )
    return dataclasses.replace(kernel, **changes)
