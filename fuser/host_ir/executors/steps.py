"""Bound steps: instructions of a host program with every size, layout and launch filled in.

Grammar
    bound program := step*
    step          := AllocateStep | DeallocateStep | CopyInStep | CopyStep | FillStep | LaunchStep | LibraryStep
                   | SwitchStep                                                 bodies of which the device chooses one
                   | StreamStep | RecordStep | WaitStep | SynchronizeStep       streams and events by number
    place         := (root, byte offset)                    an address: root memory of the run plus a constant

The interpreter binds an instruction and runs the step at once; the launcher keeps the steps of a run and runs them again
for arguments of the same sizes, layouts and alignment. What may differ between the two runs is in the `Frame`: addresses,
and numbers that are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from fuser.host_ir.executors.run_history import RunHistory, Tally
from fuser.host_ir.instructions.paths import Path
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.array_view import ArrayKind
from fuser.runtime.arrays.storage import Framework, Storage
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.host_bytes import read_number
from fuser.runtime.devices.side_streams import SideStreams
from fuser.runtime.devices.strided_copy import copy_strided
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.kernels.plan_evaluation import scalar_as
from fuser.runtime.kernels.selectors import NO_BODY, Selector
from fuser.runtime.launch import Launch
from fuser.runtime.layouts import element_span, row_major
from fuser.runtime.scalars import Scalar

Place = tuple[int, int]
Span = tuple[int, int, int]


class Frame:
    """What belongs to one run: memory by root number, numbers by name.

    `owned` are the roots that the run has to give back, `scratch` the workspaces of the launch at hand. `stream` is the one
    that work goes to, the caller's unless the program has turned to another; `homes` are the numbers of those on which memory
    was taken, where that was another one. `chosen` counts what is known only when it has run, such as launches of bodies that
    the device chose; `told` is what was wrong with selectors.
    """

    __slots__ = (
        "_caller",
        "_number",
        "_side",
        "addresses",
        "chosen",
        "device",
        "framework",
        "homes",
        "numbers",
        "owned",
        "scratch",
        "storages",
        "stream",
        "told",
    )

    def __init__(
        self, device: Device, framework: Framework, stream: int, roots: int, numbers: dict[str, Scalar]
    ) -> None:
        self.device = device
        self.framework = framework
        self.stream = self._caller = stream
        self._number = 0
        self._side: SideStreams | None = None
        self.homes: dict[int, int] = {}
        self.storages: list[Storage | None] = [None] * roots
        self.addresses: list[int] = [0] * roots
        self.numbers = numbers
        self.owned: list[int] = []
        self.scratch: list[Storage] = []
        self.chosen: dict[str, int] = {}
        self.told: list[str] = []

    def run(self, step: InstructionStep) -> None:
        """One step of a body that was chosen."""
        step.run(self)

    def count(self, counts: Mapping[str, int]) -> None:
        """Count what a body has done that was chosen."""
        for name, n in counts.items():
            self.chosen[name] = self.chosen.get(name, 0) + n

    def workspace(self, nbytes: int) -> Storage:
        """Memory for one step."""
        storage = self.framework.scratch(self.device, nbytes, self.stream)
        self.scratch.append(storage)
        return storage

    def copy_strided(
        self,
        dtype: DataType,
        sizes: tuple[int, ...],
        dst: int,
        dst_strides: tuple[int, ...],
        src: int,
        src_strides: tuple[int, ...],
    ) -> None:
        """Copy elementwise between two addresses."""
        copy_strided(self.device, dtype, sizes, dst, dst_strides, src, src_strides, self.stream)

    # --- streams ------------------------------------------------------------------------------------------------------

    def open_streams(self, count: int) -> None:
        """Take streams of the device beside the caller's, until `release`."""
        self._side = SideStreams(self.device, self._caller, count)

    @property
    def side(self) -> SideStreams:
        """The streams of a run that has some beside the caller's."""
        assert self._side is not None
        return self._side

    @property
    def number(self) -> int:
        """That of the stream that work goes to."""
        return self._number

    def turn(self, number: int, *, begins: bool) -> None:
        """Put what follows on a stream."""
        self.release_workspaces()
        if begins:
            self.side.begin(number)
        self._number, self.stream = number, self.side.handles[number]

    def synchronize(self) -> None:
        """The host waits for all that there is on the streams of the run."""
        if self._side is None:
            self.device.synchronize(self._caller)
        else:
            self._side.synchronize()

    def join(self) -> None:
        """Put what follows on the caller's stream, behind all others."""
        if self._side is not None:
            self.release_workspaces()
            self._number, self.stream = 0, self._caller
            self._side.join()

    def release_workspaces(self) -> None:
        while self.scratch:
            self.framework.release(self.device, self.scratch.pop(), self.stream)

    def release(self) -> None:
        """Give back everything that is still owned. The first error is raised after all was tried."""
        failure: Exception | None = None
        side, self._side = self._side, None
        if side is not None:
            self.stream = self._caller
            try:
                # What is on other streams may still use the memory.
                side.close()
            except Exception as error:
                failure = error
        pending = [*self.scratch, *(s for s in (self.storages[root] for root in self.owned) if s is not None)]
        self.scratch.clear()
        self.owned.clear()
        for storage in pending:
            try:
                self.framework.release(self.device, storage, self.stream)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


@record(eq=False)
class AllocateStep:
    root: int
    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    escapes: bool  # may go out as a result

    def run(self, frame: Frame) -> None:
        if self.escapes:
            storage = frame.framework.new_array(frame.device, self.dtype, self.sizes, self.strides, frame.stream)
        else:
            storage = frame.framework.scratch(frame.device, self.nbytes, frame.stream)
        frame.storages[self.root] = storage
        frame.addresses[self.root] = storage.address
        frame.owned.append(self.root)
        if frame.number or frame.homes:
            frame.homes[self.root] = frame.number


@record(eq=False)
class DeallocateStep:
    root: int

    def run(self, frame: Frame) -> None:
        storage = frame.storages[self.root]
        frame.owned.remove(self.root)
        frame.storages[self.root] = None
        home = frame.homes.get(self.root, 0)
        stream = frame.stream
        if home != frame.number:
            # Memory is given out again in the order of the stream that took it.
            frame.side.order(home, frame.number)
            stream = frame.side.handles[home]
        if storage is not None:
            frame.framework.release(frame.device, storage, stream)


@record(eq=False)
class CopyInStep:
    """Memory for a host array that is an input, and its bytes: `nbytes` of them, `shift` behind an aligned address.

    The interpreter does so when it comes to the first use.
    """

    root: int
    nbytes: int
    shift: int


@record(eq=False)
class CopyStep:
    """`nbytes` is set where both sides have one dense layout."""

    dtype: DataType
    sizes: tuple[int, ...]
    dst: Place
    dst_strides: tuple[int, ...]
    src: Place
    src_strides: tuple[int, ...]
    nbytes: int | None

    def run(self, frame: Frame) -> None:
        dst = frame.addresses[self.dst[0]] + self.dst[1]
        src = frame.addresses[self.src[0]] + self.src[1]
        itemsize = self.dtype.itemsize
        to = dst + element_span(self.sizes, self.dst_strides) * itemsize
        end = src + element_span(self.sizes, self.src_strides) * itemsize
        if dst < end and src < to:
            if dst == src and self.dst_strides == self.src_strides:
                return
            self._through_temporary(frame, dst, src)
        elif self.nbytes is not None:
            frame.device.copy(dst, src, self.nbytes, frame.stream)
        else:
            self._copy(frame, dst, self.dst_strides, src, self.src_strides)

    def _through_temporary(self, frame: Frame, dst: int, src: int) -> None:
        dense = row_major(self.sizes)
        memory = frame.workspace(element_span(self.sizes, dense) * self.dtype.itemsize)
        self._copy(frame, memory.address, dense, src, self.src_strides)
        self._copy(frame, dst, self.dst_strides, memory.address, dense)
        frame.release_workspaces()

    def _copy(
        self, frame: Frame, dst: int, dst_strides: tuple[int, ...], src: int, src_strides: tuple[int, ...]
    ) -> None:
        frame.copy_strided(self.dtype, self.sizes, dst, dst_strides, src, src_strides)


@record(eq=False)
class FillStep:
    """`count` is set where the layout is dense."""

    dtype: DataType
    sizes: tuple[int, ...]
    dst: Place
    strides: tuple[int, ...]
    pattern: bytes
    count: int | None

    def run(self, frame: Frame) -> None:
        address = frame.addresses[self.dst[0]] + self.dst[1]
        if self.count is not None:
            frame.device.fill(address, self.pattern, self.count, frame.stream)
            return
        one = frame.workspace(len(self.pattern))
        frame.device.fill(one.address, self.pattern, 1, frame.stream)
        nowhere = (0,) * len(self.sizes)
        frame.copy_strided(self.dtype, self.sizes, address, self.strides, one.address, nowhere)
        frame.release_workspaces()


@record(eq=False)
class LaunchStep:
    """A launch. `template` has the parameter values that never change; the other fields say what goes where in it.

    pointers    (position, root, byte offset)
    numbers     (position, name, dtype): user scalars passed on; None: as the caller gave it
    workspaces  (positions, bytes)
    semaphores  (positions, count)
    holds       its workspaces stay in use while the next launch runs beside it
    reads, writes   (root, first byte, past the last) of its tensors; what is read and written is in `writes`
    """

    kernel: CompiledKernel
    launch: Launch
    template: tuple[Scalar, ...]
    pointers: tuple[tuple[int, int, int], ...] = ()
    numbers: tuple[tuple[int, str, DataType | None], ...] = ()
    workspaces: tuple[tuple[tuple[int, ...], int], ...] = ()
    semaphores: tuple[tuple[int, ...], int] | None = None
    holds: bool = False
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()

    def run(self, frame: Frame) -> None:
        values = list(self.template)
        addresses = frame.addresses
        for position, root, offset in self.pointers:
            values[position] = addresses[root] + offset
        for position, name, dtype in self.numbers:
            number = frame.numbers[name]
            values[position] = number if dtype is None else scalar_as(number, dtype, name)
        if self.semaphores is not None:
            positions, count = self.semaphores
            _put(values, positions, frame.device.semaphores(count, frame.stream, co_resident=self.launch.co_resident))
        for positions, nbytes in self.workspaces:
            _put(values, positions, frame.workspace(nbytes).address)
        frame.device.launch(self.kernel, self.launch, values, frame.stream)
        if frame.scratch and not self.holds:
            frame.release_workspaces()


@record(eq=False)
class LibraryStep:
    """A call of a library. `places`: of its inputs, then of its outputs; spans as of a launch."""

    call: LibraryCall
    places: tuple[Place, ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]

    def run(self, frame: Frame) -> None:
        addresses = [frame.addresses[root] + offset for root, offset in self.places]
        frame.device.call_library(self.call, addresses, frame.stream)


@record(eq=False)
class StreamStep:
    """`begins`: the stream is turned to for the first time."""

    stream: int
    begins: bool

    def run(self, frame: Frame) -> None:
        frame.turn(self.stream, begins=self.begins)


@record(eq=False)
class RecordStep:
    event: int

    def run(self, frame: Frame) -> None:
        frame.side.record(self.event, frame.number)


@record(eq=False)
class WaitStep:
    event: int

    def run(self, frame: Frame) -> None:
        frame.side.wait(self.event, frame.number)


@record(eq=False)
class SynchronizeStep:
    def run(self, frame: Frame) -> None:
        frame.synchronize()


@record(eq=False)
class BodySteps:
    """The steps of one body: launches, copies, fills and choices. `counts` is what they add to the program's counters."""

    steps: tuple[InstructionStep, ...]
    counts: dict[str, int]


@record(eq=False)
class SwitchStep:
    """One of several bodies, by the number at `place`: here the host waits for it and reads it.

    Memory of the bodies is made before this step and given back behind it, whichever runs.
    """

    selector: Selector
    place: Place
    bodies: tuple[BodySteps, ...]

    def run(self, frame: Frame) -> None:
        root, offset = self.place
        value = read_number(frame.device, self.selector.dtype, frame.addresses[root] + offset, frame.stream)
        frame.count({"host_reads": 1})
        if self.selector.case_of(value) is None:
            frame.told.append(self.selector.complaint(value))
        which = self.selector.body_of(value)
        if which == NO_BODY:
            return
        body = self.bodies[which]
        for step in body.steps:
            frame.run(step)
        frame.count(body.counts)


def _put(values: list[Scalar], positions: Sequence[int], value: int) -> None:
    for position in positions:
        values[position] = value


# What an instruction becomes; arrays in host memory are copied in where one needs them first.
StreamOrderStep = StreamStep | RecordStep | WaitStep | SynchronizeStep
InstructionStep = (
    AllocateStep | DeallocateStep | CopyStep | FillStep | LaunchStep | LibraryStep | SwitchStep | StreamOrderStep
)
Step = InstructionStep | CopyInStep


def each_step(steps: Sequence[Step]) -> Iterator[Step]:
    """All there are, those of bodies behind the choice among them."""
    for step in steps:
        yield step
        if isinstance(step, SwitchStep):
            for body in step.bodies:
                yield from each_step(body.steps)


def roots_of(step: Step) -> set[int]:
    """The memory that a step is about, by root; of a choice that of all bodies."""
    match step:
        case AllocateStep(root) | DeallocateStep(root) | CopyInStep(root):
            return {root}
        case CopyStep(dst=dst, src=src):
            return {dst[0], src[0]}
        case FillStep(dst=dst):
            return {dst[0]}
        case LaunchStep(pointers=pointers):
            return {root for _, root, _ in pointers}
        case LibraryStep(places=places):
            return {root for root, _ in places}
        case SwitchStep(place=place, bodies=bodies):
            return {place[0]}.union(*(roots_of(inner) for body in bodies for inner in body.steps))
        case StreamStep() | RecordStep() | WaitStep() | SynchronizeStep():
            return set()
        case _:
            assert_never(step)


def memory_of(steps: Sequence[Step]) -> tuple[int, int]:
    """(most bytes that steps have of the device at a time, all that they ask for one after the other), outputs included."""
    most = total = now = 0
    live: dict[int, int] = {}
    held = 0
    for step in steps:
        passing = 0
        if isinstance(step, (AllocateStep, CopyInStep)):
            live[step.root] = step.nbytes
            now += step.nbytes
            total += step.nbytes
        elif isinstance(step, DeallocateStep):
            now -= live.pop(step.root, 0)
        elif isinstance(step, LaunchStep):
            passing = sum(nbytes for _, nbytes in step.workspaces)
            total += passing
            most = max(most, now + passing + held)
            held = passing if step.holds else 0
        elif isinstance(step, SwitchStep):
            # One of its bodies runs.
            sums = [memory_of(body.steps) for body in step.bodies]
            passing = max((peak for peak, _ in sums), default=0)
            total += max((asked for _, asked in sums), default=0)
        most = max(most, now + passing)
    return most, total


@record(eq=False)
class OutputPlan:
    """How an output is made: the caller's own array (`input` is its position), or a layout over a root."""

    input: int | None
    root: int = 0
    dtype: DataType = DataType.Float
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0  # elements


@dataclass(slots=True, eq=False)
class BoundProgram:
    """The steps of one run, for arguments of one key, and what they were bound to.

    history   of all runs of the program
    steps     in order
    outputs   one entry per output of the program, in order
    counts    what one run adds to the program's counters
    device, framework, kind   where it ran, whose memory it took, and the library of all its tensor inputs
    tensors   element type of each tensor input by position
    spans     (position, first byte, past the last) of those inputs, from their addresses
    numbers   position of each number by name
    backs     (position, root, bytes) of host arrays that are updated
    roots     how many memories there are
    why_not   why the steps cannot be run again for arguments of the same key; None if they can
    fixing    positions of numbers whose values belong to the key
    sharing_matters   whether it belongs to the key which inputs share memory
    streams   how many streams it has, with the caller's
    synchronizes   whether the host waits within it, if it is no graph
    path      what numbers decide of a call, where the steps are those of one decision; beside the key
    alignment how much of the alignment of addresses does, in bytes
    draw      (seed, offset) for the two numbers that follow the caller's inputs
    note      what an executor of fusions remembers of the call
    types     of the caller's inputs
    tally     where runs of it are counted
    """

    program: VerifiedProgram
    history: RunHistory
    steps: tuple[Step, ...]
    outputs: tuple[OutputPlan, ...]
    counts: dict[str, int]
    device: Device
    framework: Framework
    kind: ArrayKind
    tensors: dict[int, DataType]
    spans: tuple[tuple[int, int, int], ...]
    numbers: dict[str, int]
    backs: tuple[tuple[int, int, int], ...]
    roots: int
    why_not: str | None
    fixing: frozenset[int]
    sharing_matters: bool
    alignment: int
    streams: int = 1
    synchronizes: bool = False
    path: Path | None = None
    draw: Callable[[], tuple[int, int]] | None = None
    note: object = None
    types: tuple[type, ...] = ()
    tally: Tally | None = None
    _ranges: tuple[tuple[str, int, int], ...] | None = field(default=None, init=False, repr=False)

    def takes(self, numbers: Mapping[str, Scalar]) -> bool:
        """Whether the types of kernels' parameters hold all integers among a caller's numbers."""
        ranges = self._ranges
        if ranges is None:
            passed = {
                (name, *dtype.integer_range)
                for step in each_step(self.steps)
                if isinstance(step, LaunchStep)
                for _, name, dtype in step.numbers
                if dtype is not None and dtype.is_integral and self.numbers[name] < len(self.types)
            }
            ranges = self._ranges = tuple(sorted(passed))
        for name, low, high in ranges:
            number = numbers[name]
            if isinstance(number, int) and not low <= number < high:
                return False
        return True
