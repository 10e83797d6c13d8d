"""Commands run one after another: by the host at each launch, or as a device without graphs does.

Which body of a choice runs is read by the host, when all work of the stream is done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

from fuser.runtime.devices.device import Device
from fuser.runtime.devices.host_bytes import read_number
from fuser.runtime.devices.strided_copy import copy_strided
from fuser.runtime.kernels.commands import (
    Changes,
    Command,
    CommandBody,
    CopyCommand,
    Edges,
    FillCommand,
    KernelCommand,
    LayoutCommand,
    LibraryCommand,
    SwitchCommand,
)
from fuser.runtime.kernels.selectors import NO_BODY


def run_command(device: Device, command: Command, stream: int) -> None:
    """Put one command on a stream. Of a choice the host reads the value, and puts one body on it."""
    match command:
        case KernelCommand():
            device.launch(command.kernel, command.launch, command.arguments, stream)
        case CopyCommand():
            device.copy(command.dst, command.src, command.nbytes, stream)
        case FillCommand():
            device.fill(command.address, command.pattern, command.count, stream)
        case LayoutCommand():
            to, source = (command.dst, command.dst_strides), (command.src, command.src_strides)
            copy_strided(device, command.dtype, command.sizes, *to, *source, stream)
        case LibraryCommand():
            device.call_library(command.call, command.addresses, stream)
        case SwitchCommand():
            body = choose_body(device, command, stream, device.reports.tell)
            for inner in () if body is None else body.commands:
                run_command(device, inner, stream)
        case _:
            assert_never(command)


def choose_body(device: Device, choice: SwitchCommand, stream: int, tell: Callable[[str], None]) -> CommandBody | None:
    """The body that the value asks for now, None for one that is empty."""
    selector = choice.selector
    value = read_number(device, selector.dtype, choice.address, stream)
    if selector.case_of(value) is None:
        tell(selector.complaint(value))
    body = selector.body_of(value)
    return None if body == NO_BODY else choice.bodies[body]


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
                body = choose_body(self.device, command, stream, told.append)
                if body is not None:
                    self._run(body.commands, body.edges, order, stream, told)
            else:
                run_command(self.device, command, stream)
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
            run_command(self.device, command, stream)

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
