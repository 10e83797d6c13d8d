"""Bound steps: instructions of a host program with every size, layout and launch filled in.

Grammar
    bound program := step*
    step          := AllocateStep | DeallocateStep | CopyStep | FillStep | LaunchStep
    place         := (root, byte offset)                    an address: root memory of the run plus a constant

The interpreter binds an instruction and runs the step at once; the launcher keeps the steps of a run and runs them again
for arguments of the same sizes, layouts and alignment. What may differ between the two runs is in the `Frame`: addresses,
and numbers that are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fuser.ir.dtypes import DataType
from fuser.records import record
from fuser.runtime.arrays import Scalar, element_span, row_major
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device, Launch
from fuser.runtime.frameworks import Framework, Storage
from fuser.runtime.plan_evaluation import scalar_as
from fuser.runtime.strided_copy import copy_strided

Place = tuple[int, int]


class Frame:
    """What belongs to one run: memory by root number, numbers by name.

    `owned` are the roots that the run has to give back, `scratch` the workspaces of the launch at hand.
    """

    __slots__ = ("addresses", "device", "framework", "numbers", "owned", "scratch", "storages", "stream")

    def __init__(
        self, device: Device, framework: Framework, stream: int, roots: int, numbers: dict[str, Scalar]
    ) -> None:
        self.device = device
        self.framework = framework
        self.stream = stream
        self.storages: list[Storage | None] = [None] * roots
        self.addresses: list[int] = [0] * roots
        self.numbers = numbers
        self.owned: list[int] = []
        self.scratch: list[Storage] = []

    def workspace(self, nbytes: int) -> Storage:
        """Memory for one step."""
        storage = self.framework.scratch(self.device, nbytes, self.stream)
        self.scratch.append(storage)
        return storage

    def release_workspaces(self) -> None:
        while self.scratch:
            self.framework.release(self.device, self.scratch.pop(), self.stream)

    def release(self) -> None:
        """Give back everything that is still owned. The first error is raised after all was tried."""
        failure: Exception | None = None
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


@record(eq=False)
class DeallocateStep:
    root: int

    def run(self, frame: Frame) -> None:
        storage = frame.storages[self.root]
        frame.owned.remove(self.root)
        frame.storages[self.root] = None
        if storage is not None:
            frame.framework.release(frame.device, storage, frame.stream)


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
        copy_strided(frame.device, self.dtype, self.sizes, dst, dst_strides, src, src_strides, frame.stream)


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
        copy_strided(frame.device, self.dtype, self.sizes, address, self.strides, one.address, nowhere, frame.stream)
        frame.release_workspaces()


@record(eq=False)
class LaunchStep:
    """A launch. `template` has the parameter values that never change; the other fields say what goes where in it.

    pointers    (position, root, byte offset)
    numbers     (position, name, dtype): user scalars passed on; None: as the caller gave it
    workspaces  (positions, bytes)
    semaphores  (positions, count)
    holds       its workspaces stay in use while the next launch runs beside it
    """

    kernel: CompiledKernel
    launch: Launch
    template: tuple[Scalar, ...]
    pointers: tuple[tuple[int, int, int], ...] = ()
    numbers: tuple[tuple[int, str, DataType | None], ...] = ()
    workspaces: tuple[tuple[tuple[int, ...], int], ...] = ()
    semaphores: tuple[tuple[int, ...], int] | None = None
    holds: bool = False

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
            _put(values, positions, frame.device.semaphores(count, frame.stream, beside=self.launch.beside))
        for positions, nbytes in self.workspaces:
            _put(values, positions, frame.workspace(nbytes).address)
        frame.device.launch(self.kernel, self.launch, values, frame.stream)
        if frame.scratch and not self.holds:
            frame.release_workspaces()


def _put(values: list[Scalar], positions: Sequence[int], value: int) -> None:
    for position in positions:
        values[position] = value


Step = AllocateStep | DeallocateStep | CopyStep | FillStep | LaunchStep


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
    """The steps of one run, for arguments of one key.

    outputs   one entry per output of the program, in order
    disjoint  (root, first byte, past the last, root, first byte, past the last): inputs that must not overlap
    counts    what one run adds to the program's counters
    replays   how often the launcher ran it
    """

    steps: tuple[Step, ...]
    outputs: tuple[OutputPlan, ...]
    disjoint: tuple[tuple[int, int, int, int, int, int], ...]
    counts: dict[str, int] = field(default_factory=dict)
    replays: int = 0
