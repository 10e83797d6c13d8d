"""Recording: what a bound program asks of its device, as commands with the edges that their bytes ask for.

    Before:  AllocateStep(y), LaunchStep(a: x -> y), LaunchStep(b: x -> z), CopyStep(x <- y)
    After:   0 a    reads x, writes y
             1 b    reads x, writes z
             2 copy reads y, writes x         after 0 (y) and 1 (x is read until then)

What the device chooses is one command, with commands and edges of its own for each body: what one of them touches, the choice
touches, since nobody knows which one runs.

One pass over the steps. They run against a frame whose device notes what it is asked to do, so that a command is what the step
would have done: with these addresses and numbers, which are copied. Memory that no caller sees is taken once, and a later
recording of the same steps is given the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, assert_never

from fuser.errors import InternalError, LaunchError
from fuser.host_ir.executors.steps import (
    AllocateStep,
    BoundProgram,
    CopyInStep,
    CopyStep,
    DeallocateStep,
    FillStep,
    Frame,
    LaunchStep,
    LibraryStep,
    Place,
    RecordStep,
    Step,
    StreamStep,
    SwitchStep,
    SynchronizeStep,
    WaitStep,
)
from fuser.host_ir.instructions.dependencies import Dependencies, Range
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.arrays.storage import Framework, Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.streams import keep_until_done
from fuser.runtime.devices.strided_copy import copy_strided
from fuser.runtime.kernels.commands import (
    Command,
    CommandBody,
    CopyCommand,
    FillCommand,
    KernelCommand,
    LayoutCommand,
    LibraryCommand,
    SwitchCommand,
)
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.runtime.scalars import Scalar

Edges: TypeAlias = tuple[tuple[int, ...], ...]


@record(eq=False)
class Recording:
    """Commands in program order, of each those before that it waits for, and the memory of the run that was recorded."""

    commands: tuple[Command, ...]
    edges: Edges
    storages: tuple[Storage | None, ...]


class KeptMemory:
    """Memory of recordings that no caller sees, in the order in which they ask for it.

    A recording that asks for more than is there gets new memory in its place. What was there is given back by `settle`, when
    nothing runs on it any more; never, if a caller's graph has commands on it (`is_lent`).
    """

    def __init__(self, device: Device, framework: Framework) -> None:
        self._device = device
        self._framework = framework
        self._scratch = _Row()
        # Apart, for they are zero between launches.
        self._counters = _Row()
        self._replaced: list[Storage] = []
        self.is_lent = False

    def rewind(self) -> None:
        """The next recording begins."""
        self._scratch.asked = self._counters.asked = 0

    def take(self, nbytes: int, stream: int) -> Storage:
        """Memory of any content. Work on `stream` that comes next may use it."""
        return self._next(self._scratch, nbytes, stream)[0]

    def zeroed(self, count: int, stream: int) -> int:
        """Address of Int32 counters that are zero; every launch leaves them so."""
        storage, is_new = self._next(self._counters, 4 * count, stream)
        if is_new:
            self._device.fill(storage.address, bytes(4), count, stream)
        return storage.address

    def _next(self, row: _Row, nbytes: int, stream: int) -> tuple[Storage, bool]:
        place, row.asked = row.asked, row.asked + 1
        if place < len(row.storages) and row.storages[place].nbytes >= nbytes:
            return row.storages[place], False
        made = self._framework.scratch(self._device, nbytes, stream)
        self._replaced += row.storages[place : place + 1]
        row.storages[place : place + 1] = [made]
        return made, True

    def settle(self, stream: int) -> None:
        """The latest recording is what runs from now on. Work on `stream` may still use the memory of those before."""
        if not self.is_lent:
            storages, self._replaced = self._replaced, []
            self._give_back(storages, stream)

    def release(self, stream: int) -> None:
        """Give all of it back. Work on `stream` may still use it."""
        storages = [*self._scratch.storages, *self._counters.storages, *self._replaced]
        self._scratch, self._counters, self._replaced = _Row(), _Row(), []
        self._give_back(storages, stream)

    def _give_back(self, storages: Sequence[Storage], stream: int) -> None:
        # A library that orders memory by the stream that took it hears of `stream` in no other way.
        keep_until_done(self._device, stream, [s.array for s in storages if s.array is not None])
        for storage in storages:
            self._framework.release(self._device, storage, stream)


class _Row:
    """Memory in the order in which it is asked for, and how much of it was."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.asked = 0


def record_program(
    bound: BoundProgram,
    inputs: Sequence[Storage],
    numbers: dict[str, Scalar],
    memory: KeptMemory,
    stream: int,
    last: Recording | None = None,
) -> Recording:
    """Record a run. `inputs` are the first roots in order. Outputs get memory of their own.

    last    another recording of the same `bound`, whose edges are those of this one: they follow from the steps and from what
            inputs share memory, which a bound program is bound for where it updates any

    Raises LaunchError for a step that a recording cannot hold: copies to and from host memory, waits of the host.
    """
    memory.rewind()
    notes = _Notes(bound.device, memory, last)
    frame = _RecordingFrame(
        notes, _Framework(bound.framework, bound.device, memory, notes), stream, bound.roots, numbers
    )
    for root, storage in enumerate(inputs):
        frame.storages[root] = storage
        frame.addresses[root] = storage.address
    _note_steps(bound.steps, frame)
    return Recording(tuple(notes.commands), notes.finish(), tuple(frame.storages))


def _note_steps(steps: Sequence[Step], frame: _RecordingFrame) -> None:
    for step in steps:
        if isinstance(step, (DeallocateStep, StreamStep, RecordStep, WaitStep)):
            # Memory lives as long as the recording, which may run again; its edges are those of the bytes.
            continue
        if isinstance(step, SwitchStep):
            _note_choice(step, frame)
            continue
        frame.notes.begin(step, frame.addresses)
        assert not isinstance(step, CopyInStep)
        step.run(frame)
    frame.scratch.clear()


def _note_choice(step: SwitchStep, frame: _RecordingFrame) -> None:
    """A command with commands of its own for each body; it touches what any of them touches."""
    notes = frame.notes
    root, offset = step.place
    address = frame.addresses[root] + offset
    known = notes.known_choice()
    value = (address, address + step.selector.dtype.itemsize)
    known_after = notes.writers(value) if known is None else known.known_after
    reads: list[Range] = [value]
    writes: list[Range] = []
    bodies: list[CommandBody] = []
    for number, body in enumerate(step.bodies):
        inner = frame.beside(None if known is None else known.bodies[number])
        _note_steps(body.steps, inner)
        bodies.append(CommandBody(tuple(inner.notes.commands), inner.notes.finish()))
        reads += inner.notes.all_reads
        writes += inner.notes.all_writes
    notes.begin_touching(reads, writes)
    notes.note(SwitchCommand(step.selector, address, tuple(bodies), known_after))


class _Notes:
    """A device that notes what it is asked to do. `last`: commands like those that come, whose edges are known."""

    def __init__(self, device: Device, memory: KeptMemory, last: Recording | CommandBody | None) -> None:
        self._device = device
        self._memory = memory
        self._last = last
        self.commands: list[Command] = []
        self._edges: list[tuple[int, ...]] = []
        self.all_reads: list[Range] = []
        self.all_writes: list[Range] = []
        self._dependencies = Dependencies()
        self._reads: list[Range] = []
        self._writes: list[Range] = []

    def __getattr__(self, name: str) -> Any:
        """What the device is: kind, index, limits, variants."""
        if name in ("copy_from_host", "copy_to_host", "synchronize"):
            raise LaunchError(f"a recording has no {name}: it runs on the device alone")
        return getattr(self._device, name)

    def begin(self, step: Step, addresses: Sequence[int]) -> None:
        """The next step, for the bytes that it touches; memory that it takes meanwhile comes on top."""
        if self._last is None:
            self.begin_touching(*_accesses(step, addresses))

    def begin_touching(self, reads: list[Range], writes: list[Range]) -> None:
        """The same, with the bytes themselves."""
        self._reads, self._writes = reads, writes

    def known_choice(self) -> SwitchCommand | None:
        """Where edges are known, those within the choice that comes next are, too."""
        if self._last is None:
            return None
        choice = self._last.commands[len(self.commands)]
        assert isinstance(choice, SwitchCommand)
        return choice

    def writers(self, bytes_: Range) -> tuple[int, ...]:
        """The commands that wrote some bytes last."""
        return self._dependencies.writers(*bytes_)

    def finish(self) -> Edges:
        """The edges of all commands."""
        edges = tuple(self._edges) if self._last is None else self._last.edges
        if len(edges) != len(self.commands):
            raise InternalError(
                f"{len(self.commands)} commands where another recording had {len(edges)}", pass_name="record_program"
            )
        return edges

    def touches(self, storage: Storage) -> None:
        self._writes.append((storage.address, storage.address + storage.nbytes))

    def note(self, command: Command) -> None:
        # A step of several commands makes one after another: each writes what the step writes.
        if self._last is None:
            self._edges.append(self._dependencies.add(self._reads, self._writes))
            self.all_reads += self._reads
            self.all_writes += self._writes
        self.commands.append(command)

    def apart(self, last: CommandBody | None) -> _Notes:
        """Notes of other commands on the same device, with memory from the same place."""
        return _Notes(self._device, self._memory, last)

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[ArgumentValue], stream: int) -> None:
        del stream
        self.note(KernelCommand(kernel, launch, tuple(arguments)))

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        del stream
        self.note(CopyCommand(dst, src, nbytes))

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        del stream
        self.note(FillCommand(address, pattern, count))

    def call_library(self, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
        del stream
        self.note(LibraryCommand(call, tuple(addresses)))

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        """Counters of this launch alone: others may run at the same time."""
        del co_resident
        return self._memory.zeroed(count, stream)


class _Framework:
    """What steps ask of a framework: memory for callers from theirs, all other from what the recording keeps."""

    def __init__(self, framework: Framework, device: Device, memory: KeptMemory, notes: _Notes) -> None:
        self._framework = framework
        self._device = device
        self._memory = memory
        self._notes = notes

    def beside(self, notes: _Notes) -> _Framework:
        """The same for other notes."""
        return _Framework(self._framework, self._device, self._memory, notes)

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        del device
        return self._framework.new_array(self._device, dtype, sizes, strides, stream)

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        del device
        storage = self._memory.take(nbytes, stream)
        self._notes.touches(storage)
        return storage

    def release(self, device: Device, storage: Storage, stream: int) -> None:
        """The recording keeps it."""


class _RecordingFrame(Frame):
    """The frame of a run that is noted."""

    __slots__ = ("_made_by", "notes")

    def __init__(
        self, notes: _Notes, framework: _Framework, stream: int, roots: int, numbers: dict[str, Scalar]
    ) -> None:
        device: Any = notes
        taken: Any = framework
        super().__init__(device, taken, stream, roots, numbers)
        self._made_by = framework
        self.notes = notes

    def beside(self, last: CommandBody | None) -> _RecordingFrame:
        """The same memory and numbers, for commands that are noted by themselves; `last` as for the notes."""
        notes = self.notes.apart(last)
        frame = _RecordingFrame(notes, self._made_by.beside(notes), self.stream, 0, self.numbers)
        frame.storages, frame.addresses = self.storages, self.addresses
        return frame

    def copy_strided(
        self,
        dtype: DataType,
        sizes: tuple[int, ...],
        dst: int,
        dst_strides: tuple[int, ...],
        src: int,
        src_strides: tuple[int, ...],
    ) -> None:
        if self.device.kind == "cuda":
            copy_strided(self.device, dtype, sizes, dst, dst_strides, src, src_strides, self.stream)
        else:
            self.notes.note(LayoutCommand(dtype, sizes, dst, dst_strides, src, src_strides))


def _accesses(step: Step, addresses: Sequence[int]) -> tuple[list[Range], list[Range]]:
    """The bytes that a step reads and writes, of memory that there is before it."""
    match step:
        case LaunchStep(reads=reads, writes=writes):
            return _ranges(reads, addresses), _ranges(writes, addresses)
        case LibraryStep(call, _, reads, writes):
            shared = [] if call.library == "numpy" else [_WORKSPACE]
            return _ranges(reads, addresses), [*_ranges(writes, addresses), *shared]
        case CopyStep(dtype, sizes, dst, dst_strides, src, src_strides):
            read = _range(dtype, sizes, src, src_strides, addresses)
            return [read], [_range(dtype, sizes, dst, dst_strides, addresses)]
        case FillStep(dtype, sizes, dst, strides):
            return [], [_range(dtype, sizes, dst, strides, addresses)]
        case AllocateStep():
            return [], []
        case (
            DeallocateStep()
            | CopyInStep()
            | SwitchStep()
            | StreamStep()
            | RecordStep()
            | WaitStep()
            | SynchronizeStep()
        ):
            raise LaunchError(f"a recording has no {type(step).__name__}: it runs on the device alone")
        case _:
            assert_never(step)


# What calls of a library have in common beside their operands, at an address that nobody has: they follow one another.
_WORKSPACE: Range = (0, 1)


def _ranges(spans: Sequence[tuple[int, int, int]], addresses: Sequence[int]) -> list[Range]:
    return [(addresses[root] + first, addresses[root] + end) for root, first, end in spans]


def _range(
    dtype: DataType, sizes: tuple[int, ...], place: Place, strides: tuple[int, ...], addresses: Sequence[int]
) -> Range:
    return TensorDescriptor(dtype, sizes, strides, address=addresses[place[0]] + place[1]).byte_range
