"""CUDA graphs of commands, built from explicit nodes.

One node a command, but for fills with patterns of several words, which are a node a word, and for choices, which are a kernel
and a conditional node that has a graph for each body (`cuda_switches.py`). Nodes are explicit, and none of a program's streams
is captured: parameters can then be set in place, and what a library does on its streams meanwhile cannot end up in the graph.
What a library is called for is captured by itself, on a stream of its own, and is a graph within the graph.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never

from fuser.errors import InternalError, LaunchError
from fuser.runtime import driver
from fuser.runtime.devices.cuda_binaries import LoadedKernel
from fuser.runtime.devices.cuda_launches import node_attributes
from fuser.runtime.devices.cuda_switches import ChoiceMemory, add_switch_node, choice_launch, count_switches
from fuser.runtime.devices.early_launches import early_edges, is_early
from fuser.runtime.devices.graph_device import GraphDevice
from fuser.runtime.devices.streams import keep_until_done
from fuser.runtime.kernels.commands import (
    Changes,
    Command,
    CopyCommand,
    Edges,
    FillCommand,
    KernelCommand,
    LayoutCommand,
    LibraryCommand,
    SwitchCommand,
)
from fuser.runtime.kernels.pack import ArgumentCells, ArgumentLayout
from fuser.runtime.launch import Launch

EDGE_DATA = (12, 3)
"""The first driver whose edges of graphs say when what is behind them starts."""


class CudaGraph:
    """An executable graph, and the graph that it was made of: the driver updates one by the nodes of the other.

    Raises LaunchError for a launch that the device cannot hold, naming kernel and sizes, and for every failed driver call.
    """

    def __init__(self, device: GraphDevice, commands: Sequence[Command], edges: Edges) -> None:
        self.device = device
        self._calls = _Calls()
        self._executable: Any = None
        self._memory: ChoiceMemory | None = None
        with device.current():
            self._graph: Any = driver.call("cuGraphCreate", 0)
            try:
                choices = count_switches(commands)
                if choices:
                    self._memory = ChoiceMemory(choices)
                early = early_edges(commands, edges, device.info) if driver.driver_version() >= EDGE_DATA else ()
                self._nodes = _Nodes(device, self._graph, commands, edges, self._memory, self._calls, early)
                self._executable = driver.call("cuGraphInstantiate", self._graph, 0)
            except BaseException:
                driver.call("cuGraphDestroy", self._graph)
                if self._memory is not None:
                    self._memory.release()
                raise
        if self._memory is not None:
            device.reports.watch(self._memory)

    def launch(self, stream: int) -> None:
        switched = driver.enter_context(self.device.context)
        try:
            driver.call("cuGraphLaunch", self._executable, stream)
        except driver.DriverError:
            self.device.drop_semaphores()
            raise
        finally:
            if switched:
                driver.leave_context()
        for memory in self._calls.shared.values():
            memory.launched()
        if self._calls.replaced:
            # The launch before may have been at them; this one comes behind it.
            replaced, self._calls.replaced = self._calls.replaced, []
            keep_until_done(self.device, stream, replaced)

    def relauncher(self, stream: int) -> Callable[[], bool]:
        context = self.device.context
        current = driver.function("cuCtxGetCurrent")
        capturing = functools.partial(driver.function("cuStreamIsCapturing"), stream)
        launch = functools.partial(driver.function("cuGraphLaunch"), self._executable, stream)

        def again() -> bool:
            # Whatever is not as it was, an error of a forked child included, is `launch`'s to deal with.
            found = current()
            if found[0] or int(found[1]) != context:
                return False
            found = capturing()
            return not found[0] and not found[1] and not launch()[0]

        return again

    def set(self, number: int, command: Command) -> bool:
        with self.device.current():
            return self._nodes.set(self._executable, number, command)

    def set_arguments(self, changes: Iterable[Changes]) -> bool:
        switched = driver.enter_context(self.device.context)
        try:
            return self._nodes.set_arguments(self._executable, changes)
        finally:
            if switched:
                driver.leave_context()

    def close(self, stream: int) -> None:
        handles = GraphHandles(self.device, self._graph, self._executable, self._memory)
        self._executable = self._graph = self._memory = None
        # With what libraries use while the last launch runs.
        keep_until_done(self.device, stream, [handles, self._nodes, self._calls])
        del self._nodes, self._calls


class _Calls:
    """What the library calls of a graph share, and those whose place others have taken."""

    def __init__(self) -> None:
        self.shared: dict[str, Any] = {}
        self.replaced: list[object] = []


class _Nodes:
    """The nodes of commands in one graph: the whole, or a body of a choice in it."""

    def __init__(
        self,
        device: GraphDevice,
        graph: Any,
        commands: Sequence[Command],
        edges: Edges,
        memory: ChoiceMemory | None,
        calls: _Calls,
        early: Sequence[Sequence[int]] = (),
    ) -> None:
        self._device = device
        self._graph = graph
        # Of each command whether there are edges by which it starts early.
        self._is_early: list[bool] = []
        self._calls = calls
        self._commands = list(commands)
        self._parts: list[list[_Part]] = []
        # Of each command the nodes that those after it wait for.
        self._last: list[list[Any]] = []
        for number, (command, before) in enumerate(zip(commands, edges, strict=True)):
            if isinstance(command, SwitchCommand):
                assert memory is not None
                waits = [node for n in before for node in self._last[n]]
                known = [node for n in command.known_after for node in self._last[n]]
                choice = _Choice(device, graph, command, known, waits, memory, calls)
                self._parts.append([choice])
                self._last.append([choice.node])
                self._is_early.append(False)
                continue
            parts = _parts(command, device, calls)
            soon = early[number] if early else ()
            if soon and not _may_start_early(parts):
                soon = ()
            waits = [node for n in before if n not in soon for node in self._last[n]]
            self._last.append([self._add(part, waits) for part in parts])
            self._parts.append(parts)
            self._is_early.append(bool(soon))
            if soon:
                _add_early_edges(graph, [node for n in soon for node in self._last[n]], self._last[number])

    def set(self, executable: Any, number: int, command: Command) -> bool:
        """`DeviceGraph.set`, in an executable graph."""
        old, before = self._commands[number], self._parts[number]
        if type(old) is not type(command):
            return False
        if isinstance(command, SwitchCommand):
            (choice,) = before
            assert isinstance(choice, _Choice)
            if not choice.set(executable, command):
                return False
            self._commands[number] = command
            return True
        if isinstance(command, LibraryCommand) and self._device.why_not_recorded(command.call):
            return False
        if isinstance(old, KernelCommand) and isinstance(command, KernelCommand):
            # The attributes of a node stay what they were; its function may be another one.
            same = (old.launch.cooperative, old.launch.cluster) == (command.launch.cooperative, command.launch.cluster)
            if not same:
                return False
        parts = _with_arguments(before, old, command) or _parts(command, self._device, self._calls)
        if [part.kind for part in parts] != [part.kind for part in before]:
            return False
        if parts is not before and self._is_early[number]:
            # Those who wait for the node rely on what it waits for.
            if not is_early(command, self._device.info) or not _may_start_early(parts):
                return False
        for node, part in zip(self._last[number], parts, strict=True):
            if not _set(self._device, executable, node, part):
                return False
        self._calls.replaced += [part for part in before if isinstance(part, _Called)]
        self._commands[number], self._parts[number] = command, parts
        return True

    def set_arguments(self, executable: Any, changes: Iterable[Changes]) -> bool:
        """`DeviceGraph.set_arguments`, in an executable graph."""
        tell = driver.function("cuGraphExecKernelNodeSetParams")
        try:
            for number, values in changes:
                (part,), (node,) = self._parts[number], self._last[number]
                assert isinstance(part, _Kernel)
                part.cells.put(values)
                if tell(executable, node, part.parameters)[0]:
                    return False
        except (struct.error, OverflowError, TypeError, ValueError):  # `ArgumentCells.write` says which and why
            return False
        return True

    def _add(self, part: _Part, waits: list[Any]) -> Any:
        if isinstance(part, _Kernel):
            return part.add(self._graph, waits)
        if isinstance(part, _Nothing):
            return driver.call("cuGraphAddEmptyNode", self._graph, waits, len(waits))
        if isinstance(part, _Called):
            return driver.call("cuGraphAddChildGraphNode", self._graph, waits, len(waits), part.graph)
        assert isinstance(part, _Memory)
        return driver.call(
            f"cuGraphAdd{part.kind}Node", self._graph, waits, len(waits), part.parameters, self._device.context
        )


def _may_start_early(parts: Sequence[_Part]) -> bool:
    return all(isinstance(part, _Kernel) and part.loaded.may_start_early() for part in parts)


def _add_early_edges(graph: Any, earlier: Sequence[Any], nodes: Sequence[Any]) -> None:
    """The node of a kernel starts when the blocks of those of kernels before it have ended, and waits within."""
    (node,) = nodes
    module = driver.bindings()
    data = module.CUgraphEdgeData()
    data.from_port = int(module.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
    data.type = int(module.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    count = len(earlier)
    driver.call("cuGraphAddDependencies", graph, list(earlier), [node] * count, [data] * count, count)


def _set(device: GraphDevice, executable: Any, node: Any, part: _Part) -> bool:
    """Give a node other parameters; False if the driver does not."""
    try:
        if isinstance(part, _Kernel):
            driver.call("cuGraphExecKernelNodeSetParams", executable, node, part.parameters)
        elif isinstance(part, _Called):
            driver.call("cuGraphExecChildGraphNodeSetParams", executable, node, part.graph)
        elif isinstance(part, _Memory):
            name = f"cuGraphExec{part.kind}NodeSetParams"
            driver.call(name, executable, node, part.parameters, device.context)
    except driver.DriverError:
        # Such as a fill of other extents: what fits into the work that a node was made for is the driver's business. A fault
        # that has another reason shows again when another graph is made.
        return False
    return True


class _Choice:
    """The nodes of a choice: the kernel that looks at the selector, the conditional node, and those of its bodies.

    The kernel waits for `known`, which wrote the selector, and the bodies for all else that they need.
    """

    kind = "Choice"

    def __init__(
        self,
        device: GraphDevice,
        graph: Any,
        command: SwitchCommand,
        known: list[Any],
        waits: list[Any],
        memory: ChoiceMemory,
        calls: _Calls,
    ) -> None:
        self._device = device
        self._command = command
        self._report = memory.report(command.selector)
        count = len(command.bodies)
        self._table = memory.table(command.selector, count) if count else 0
        self._handle: Any = driver.call("cuGraphConditionalHandleCreate", graph, device.context, 0, 0) if count else 0
        self._setter = self._launch(command).add(graph, known)
        self.node: Any = self._setter
        self._bodies: list[_Nodes] = []
        if count:
            others = [node for node in waits if node not in known]
            self.node, graphs = add_switch_node(device.context, graph, [self._setter, *others], self._handle, count)
            self._bodies = [
                _Nodes(device, inner, body.commands, body.edges, memory, calls)
                for inner, body in zip(graphs, command.bodies, strict=True)
            ]

    def set(self, executable: Any, command: SwitchCommand) -> bool:
        """`DeviceGraph.set` of the whole choice."""
        old = self._command
        before = old.selector, old.known_after, [body.edges for body in old.bodies]
        if before != (command.selector, command.known_after, [body.edges for body in command.bodies]):
            return False
        if old.address != command.address and not _set(self._device, executable, self._setter, self._launch(command)):
            return False
        for nodes, before, body in zip(self._bodies, old.bodies, command.bodies, strict=True):
            for number, (was, now) in enumerate(zip(before.commands, body.commands, strict=True)):
                if was != now and not nodes.set(executable, number, now):
                    return False
        self._command = command
        return True

    def _launch(self, command: SwitchCommand) -> _Kernel:
        launch = choice_launch(self._device.info.arch, command, self._table, self._report, int(self._handle))
        return _Kernel(self._device, launch)


class GraphHandles:
    """What the driver gave; given back when nothing needs it any more."""

    def __init__(self, device: GraphDevice, graph: Any, executable: Any, memory: ChoiceMemory | None = None) -> None:
        self._device = device
        self._graph = graph
        self._executable = executable
        self._memory = memory

    # Bound early: at interpreter exit the names of this module may be gone.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # they go with the process
        # Errors: the driver is shutting down.
        for name, handle in (("cuGraphExecDestroy", self._executable), ("cuGraphDestroy", self._graph)):
            with suppress(LaunchError), self._device.current(), driver.beside_captures():
                driver.call(name, handle)
        if self._memory is not None:
            self._device.reports.leave(self._memory)
            with suppress(LaunchError), self._device.current(), driver.beside_captures():
                self._memory.release()


class _Kernel:
    """The driver's parameters of a kernel node. The driver copies what `cells` points at when it is given them."""

    kind = "Kernel"

    def __init__(self, device: GraphDevice, command: KernelCommand) -> None:
        # When a node starts is said by its edges.
        self.launch: Launch = replace(command.launch, co_resident=False, early=False, shares_sms=False)
        self.loaded: LoadedKernel = device.prepare(command.kernel, self.launch)
        self.cells: ArgumentCells = ArgumentLayout.of(command.kernel).make_cells()
        self.cells.write(command.arguments)
        self.parameters: Any = driver.bindings().CUDA_KERNEL_NODE_PARAMS()
        self.parameters.func = self.loaded.function
        self.parameters.gridDimX, self.parameters.gridDimY, self.parameters.gridDimZ = self.launch.grid
        self.parameters.blockDimX, self.parameters.blockDimY, self.parameters.blockDimZ = self.launch.block
        self.parameters.sharedMemBytes = self.launch.shared_bytes
        self.parameters.kernelParams = self.cells.address

    def add(self, graph: Any, waits: list[Any]) -> Any:
        """A node of it."""
        node = driver.call("cuGraphAddKernelNode", graph, waits, len(waits), self.parameters)
        for attribute, value in node_attributes(self.launch):
            driver.call("cuGraphKernelNodeSetAttribute", node, attribute, value)
        return node


class _Memory:
    """The driver's parameters of a node that copies or fills; `kind` is how its calls name it."""

    def __init__(self, kind: str, parameters: Any) -> None:
        self.kind = kind
        self.parameters = parameters


class _Nothing:
    """A copy or fill of no bytes, which the driver has no node for: it is still what others wait for."""

    kind = "Empty"


class _Called:
    """What a library was asked for, captured. The driver copies the graph; the memory that is used in it lives with this."""

    kind = "ChildGraph"

    def __init__(self, device: GraphDevice, command: LibraryCommand, calls: _Calls) -> None:
        self._captured: Any = device.capture_library(command.call, command.addresses, calls.shared)
        self.graph: Any = driver.bindings().CUgraph(self._captured.graph)


_Part = _Kernel | _Memory | _Nothing | _Called | _Choice


def _parts(command: Command, device: GraphDevice, calls: _Calls) -> list[_Part]:
    match command:
        case KernelCommand():
            return [_Kernel(device, command)]
        case CopyCommand(nbytes=0) | FillCommand(count=0):
            return [_Nothing()]
        case CopyCommand(dst, src, nbytes):
            return [_Memory("Memcpy", _copy_parameters(dst, src, nbytes))]
        case FillCommand(address, pattern, count):
            return [_Memory("Memset", parameters) for parameters in _fill_parameters(address, pattern, count)]
        case LayoutCommand():
            raise LaunchError("a copy between two layouts is a kernel on a GPU")
        case LibraryCommand():
            return [_Called(device, command, calls)]
        case SwitchCommand():
            raise InternalError("a choice has several nodes", pass_name="cuda_graphs")
        case _:
            assert_never(command)


def _with_arguments(parts: list[_Part], old: Command, new: Command) -> list[_Part]:
    """The parts of a launch with the arguments of another one that is the same but for them; none if it is not.

    The frequent case of other tensors: what was looked up and checked for the node holds.
    """
    if not isinstance(old, KernelCommand) or not isinstance(new, KernelCommand):
        return []
    if old.kernel is not new.kernel or old.launch != new.launch:
        return []
    for part in parts:
        assert isinstance(part, _Kernel)
        part.cells.write(new.arguments)
    return parts


def _copy_parameters(dst: int, src: int, nbytes: int) -> Any:
    module = driver.bindings()
    parameters = module.CUDA_MEMCPY3D()
    parameters.srcMemoryType = parameters.dstMemoryType = module.CUmemorytype.CU_MEMORYTYPE_DEVICE
    parameters.srcDevice, parameters.dstDevice = src, dst
    parameters.WidthInBytes, parameters.Height, parameters.Depth = nbytes, 1, 1
    return parameters


def _fill_parameters(address: int, pattern: bytes, count: int) -> Iterable[Any]:
    """Of a pattern of one word one node, else of each word one, which writes a column."""
    width = len(pattern)
    if width not in (1, 2, 4, 8, 16):
        raise LaunchError(f"a fill pattern has 1, 2, 4, 8 or 16 bytes, not {width}")
    size = min(width, 4)
    words = [int.from_bytes(pattern[i : i + size], "little") for i in range(0, width, size)]
    for i, word in enumerate(words):
        parameters = driver.bindings().CUDA_MEMSET_NODE_PARAMS()
        parameters.dst = address + size * i
        parameters.value, parameters.elementSize = word, size
        if len(words) == 1:
            parameters.pitch, parameters.width, parameters.height = 0, count, 1
        else:
            parameters.pitch, parameters.width, parameters.height = width, 1, count
        yield parameters
