"""What a device can be asked to do later, once or many times, as data: commands, and what a graph of them can do.

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.kernels.selectors import Selector
from fuser.runtime.launch import ArgumentValue, Launch


@record
class KernelCommand:
    kernel: CompiledKernel
    launch: Launch
    arguments: tuple[ArgumentValue, ...]

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


@record
class FillCommand:
    address: int
    pattern: bytes
    count: int


@record
class LayoutCommand:
    """Strides in elements. The two places do not overlap."""

    dtype: DataType
    sizes: tuple[int, ...]
    dst: int
    dst_strides: tuple[int, ...]
    src: int
    src_strides: tuple[int, ...]


@record
class LibraryCommand:
    call: LibraryCall
    addresses: tuple[int, ...]


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
