"""What a device can be asked to do later, once or many times: commands, and the graphs that are made of them.

Grammar
    command := KernelCommand(kernel, launch, arguments)        one launch; addresses and numbers as they are
             | CopyCommand(dst, src, nbytes)                   bytes within the device
             | FillCommand(address, pattern, count)            a pattern of 1, 2, 4, 8 or 16 bytes
             | LayoutCommand(dtype, sizes, dst, ...)           elementwise between two layouts of one shape
             | LibraryCommand(call, addresses)                 what a library computes
             | SwitchCommand(selector, address, bodies)        the one of its bodies that a number on the device asks for
    body    := CommandBody(commands, edges)

A graph is commands and, for each, the commands before that it waits for. Those that no path joins may run at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fuser.ir.dtypes import DataType
from fuser.records import record
from fuser.runtime.device import ArgumentValue, Device, Launch
from fuser.runtime.library_calls import LibraryCall
from fuser.runtime.selectors import NO_BODY, Selector

if TYPE_CHECKING:
    from fuser.runtime.compiled_kernel import CompiledKernel


@record
class KernelCommand:
    kernel: CompiledKernel
    launch: Launch
    arguments: tuple[ArgumentValue, ...]

    def run(self, device: Device, stream: int) -> None:
        device.launch(self.kernel, self.launch, self.arguments, stream)

    def with_arguments(self, values: Iterable[tuple[int, ArgumentValue]]) -> KernelCommand:
        """The same launch with other (position, value)."""
        arguments = list(self.arguments)
        for position, value in values:
            arguments[position] = value
        return KernelCommand(self.kernel, self.launch, tuple(arguments))


@record
class CopyCommand:
    dst: int
    src: int
    nbytes: int

    def run(self, device: Device, stream: int) -> None:
        device.copy(self.dst, self.src, self.nbytes, stream)


@record
class FillCommand:
    address: int
    pattern: bytes
    count: int

    def run(self, device: Device, stream: int) -> None:
        device.fill(self.address, self.pattern, self.count, stream)


@record
class LayoutCommand:
    """Strides in elements. The two places do not overlap."""

    dtype: DataType
    sizes: tuple[int, ...]
    dst: int
    dst_strides: tuple[int, ...]
    src: int
    src_strides: tuple[int, ...]

    def run(self, device: Device, stream: int) -> None:
        from fuser.runtime.strided_copy import copy_strided

        copy_strided(device, self.dtype, self.sizes, self.dst, self.dst_strides, self.src, self.src_strides, stream)


@record
class LibraryCommand:
    call: LibraryCall
    addresses: tuple[int, ...]

    def run(self, device: Device, stream: int) -> None:
        device.call_library(self.call, self.addresses, stream)


@record
class CommandBody:
    """Commands of which all run or none, and their edges among each other."""

    commands: tuple[Command, ...]
    edges: tuple[tuple[int, ...], ...]


@record
class SwitchCommand:
    """`address` is that of the selector's value.

    known_after   of the commands before those that write the value: it may be looked at as soon as they are done
    """

    selector: Selector
    address: int
    bodies: tuple[CommandBody, ...]
    known_after: tuple[int, ...] = ()

    def run(self, device: Device, stream: int) -> None:
        """The host reads the value, and puts one body on the stream."""
        body = self.choose(device, stream, device.reports.tell)
        for command in () if body is None else body.commands:
            command.run(device, stream)

    def choose(self, device: Device, stream: int, tell: Callable[[str], None]) -> CommandBody | None:
        """The body that the value asks for now, None for one that is empty."""
        value = self.selector.read(device, self.address, stream)
        if self.selector.case_of(value) is None:
            tell(self.selector.complaint(value))
        body = self.selector.body_of(value)
        return None if body == NO_BODY else self.bodies[body]


Command: TypeAlias = KernelCommand | CopyCommand | FillCommand | LayoutCommand | LibraryCommand | SwitchCommand
Edges: TypeAlias = Sequence[Sequence[int]]
"""Of each command the numbers of those before that it waits for."""
Changes: TypeAlias = tuple[int, Sequence[tuple[int, ArgumentValue]]]
"""The number of a launch among the commands, and (position, value) of arguments that it is to have."""


def library_commands(commands: Iterable[Command]) -> Iterator[LibraryCommand]:
    """Those of libraries, in bodies too."""
    for command in commands:
        if isinstance(command, LibraryCommand):
            yield command
        elif isinstance(command, SwitchCommand):
            for body in command.bodies:
                yield from library_commands(body.commands)


class DeviceGraph(Protocol):
    """Commands made ready for one device. One launch at a time is under way: the next one waits for it."""

    def launch(self, stream: int) -> None:
        """Run all commands; ordered on `stream`."""
        ...

    def relauncher(self, stream: int) -> Callable[[], bool] | None:
        """What launches on that stream and no other, while nobody captures it, with less ado than `launch`; it answers False
        where it has launched nothing. None for a graph that has no quicker way.
        """
        ...

    def set(self, number: int, command: Command) -> bool:
        """Another command in the place of one, for launches from now on; False if the graph cannot take it there."""
        ...

    def set_arguments(self, changes: Iterable[Changes]) -> bool:
        """Other arguments of launches, from now on; False if the graph cannot take one of them, and holds some of them then."""
        ...

    def close(self, stream: int) -> None:
        """Give up what the graph has of the device, when the work of `stream` is done."""
        ...


class SequenceGraph:
    """A graph on a device that runs one command after another: any order that the edges allow, a different one each time, so
    that an edge too few is found.
    """

    def __init__(self, device: Any, commands: Sequence[Command], edges: Edges) -> None:
        self.device = device
        self.commands = list(commands)
        self.edges = [tuple(before) for before in edges]

    def launch(self, stream: int) -> None:
        told: list[str] = []
        self._run(self.commands, self.edges, random.Random(self.device.seed), stream, told)
        # The host hears of it at its next synchronisation, and not within the launch.
        for complaint in told:
            self.device.reports.tell(complaint)

    def _run(
        self, commands: Sequence[Command], edges: Edges, order: random.Random, stream: int, told: list[str]
    ) -> None:
        waits = [len(before) for before in edges]
        after: list[list[int]] = [[] for _ in edges]
        for number, before in enumerate(edges):
            for earlier in before:
                after[earlier].append(number)
        ready = [number for number, count in enumerate(waits) if count == 0]
        while ready:
            number = ready.pop(order.randrange(len(ready)))
            command = commands[number]
            if isinstance(command, SwitchCommand):
                body = command.choose(self.device, stream, told.append)
                if body is not None:
                    self._run(body.commands, body.edges, order, stream, told)
            else:
                command.run(self.device, stream)
            for later in after[number]:
                waits[later] -= 1
                if waits[later] == 0:
                    ready.append(later)

    def relauncher(self, stream: int) -> Callable[[], bool] | None:
        return None

    def set(self, number: int, command: Command) -> bool:
        if type(command) is not type(self.commands[number]):
            return False
        self.commands[number] = command
        return True

    def set_arguments(self, changes: Iterable[Changes]) -> bool:
        _set_arguments(self.commands, changes)
        return True

    def close(self, stream: int) -> None:
        self.commands.clear()
        self.edges.clear()


class StreamCommands:
    """Commands that are put on a stream at each launch, in program order: what is left where a device has no graph of them."""

    def __init__(self, device: Device, commands: Sequence[Command]) -> None:
        self.device = device
        self.commands = list(commands)

    def launch(self, stream: int) -> None:
        for command in self.commands:
            command.run(self.device, stream)

    def relauncher(self, stream: int) -> Callable[[], bool] | None:
        return None

    def set(self, number: int, command: Command) -> bool:
        self.commands[number] = command
        return True

    def set_arguments(self, changes: Iterable[Changes]) -> bool:
        _set_arguments(self.commands, changes)
        return True

    def close(self, stream: int) -> None:
        self.commands.clear()


def _set_arguments(commands: list[Command], changes: Iterable[Changes]) -> None:
    for number, values in changes:
        command = commands[number]
        assert isinstance(command, KernelCommand)
        commands[number] = command.with_arguments(values)
