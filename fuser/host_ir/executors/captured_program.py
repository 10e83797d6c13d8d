"""Captured programs: a run recorded once as a graph of the device, and launched as often as one likes.

A launch climbs as few steps of a ladder as it can, each counted:

    launched        the same memory and numbers as the last time
    parameters_set  other addresses, numbers, launch sizes or kernels: those nodes are told, the graph stays
    instantiated    other kinds of commands, other edges, or what the device does not change in place: another graph
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fuser import locks
from fuser.errors import InputRuntimeError, LaunchError
from fuser.host_ir.executors.launcher import Launcher
from fuser.host_ir.executors.moving_arguments import MovingArguments, changed_commands
from fuser.host_ir.executors.recording import KeptMemory, Recording, record_program
from fuser.host_ir.executors.run_inputs import borrow, check_stream, host_number, no_number
from fuser.host_ir.executors.steps import BoundProgram
from fuser.missing_names import says_instead
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.arrays import describe_array, input_sequence
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.call_keys import KINDS
from fuser.runtime.devices.run_commands import run_command
from fuser.runtime.devices.streams import keep_until_done, order_after, own_stream, stream_handle
from fuser.runtime.kernels.commands import Changes, Command, DeviceGraph, SwitchCommand
from fuser.runtime.scalars import Scalar, is_scalar, python_number
from fuser.tracebacks import short_tracebacks

COUNTERS = ("launched", "parameters_set", "instantiated", "nodes_set")


_RUN = "captured.run([x, y]) runs it on new inputs, captured.replay() on the last ones as they are now"


@says_instead(_RUN, dict.fromkeys(("execute", "launch", "call", "forward"), _RUN))
@short_tracebacks
class CapturedProgram:
    """What a launcher runs, as a graph; `HostProgram.capture` makes it.

    `run` takes inputs and gives new outputs, `replay` repeats the last run in the memory that it had. One at a time is under
    way: launches from several threads or on several streams follow one another. Memory that no caller sees, inputs and outputs
    of the last run are kept as long as the captured program is. After a run or replay that failed on the device there is
    nothing to replay, and the next run begins anew.

    Nobody waits for a launch. So what the device finds wrong in one, such as a selector out of range, is raised later: by
    `synchronize`, by the next run or replay, or where the host next reads memory of the device through this project.

    On a stream that a caller captures the commands become part of the caller's graph, one by one. A replay there keeps its
    memory, which lives until the captured program is closed, as the caller's graph needs; a run is that of `HostProgram.run`,
    and no run to replay.
    """

    def __init__(self, launcher: Launcher, numbers: Mapping[int, str], device: Any = None) -> None:
        """`numbers` are the names, by position, of inputs that are no tensors."""
        self._launcher = launcher
        self._numbers = numbers
        self._device = device
        self._lock = locks.reentrant_lock()
        self._counts: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._is_closed = False
        self._graph: DeviceGraph | None = None
        self._recording: Recording | None = None
        self._memory: KeptMemory | None = None
        self._bound: BoundProgram | None = None
        self._inputs: list[Any] = []
        # Where launches write their outputs, and what the last run gave: a first run has memory of its own.
        self._outputs: list[Any] = []
        self._results: list[Any] = []
        self._stream = 0
        # Streams that work on those inputs and outputs goes to.
        self._theirs: set[int] = set()
        # Launches the graph once more on `stream`, where all tensors are.
        self._again: Callable[[], bool] | None = None
        # What differs from run to run, and what of it the graph has where that is not what was recorded.
        self._moving: MovingArguments | None = None
        self._moved: list[Changes] = []
        # What graphs of callers use.
        self._lent: list[tuple[KeptMemory, list[Any], list[Any]]] = []

    @property
    def outputs(self) -> list[Any]:
        """The outputs of the last run or replay."""
        return list(self._results)

    @property
    def edges(self) -> tuple[tuple[int, ...], ...]:
        """Of each command, in program order, the numbers of those before that it waits for."""
        return () if self._recording is None else self._recording.edges

    def counters(self) -> dict[str, int]:
        """How often each step of the ladder was the highest that a launch needed, and how many nodes were set."""
        with self._lock:
            return dict(self._counts)

    def run(self, inputs: Sequence[Any], stream: Any = None, also: Any = None) -> list[Any]:
        """Run once and return new outputs.

        Inputs of types, sizes, layouts or an alignment that are new, or that share memory in a new way, are run as by
        `HostProgram.run` first: that call compiles and checks, and takes as long. `also` is what else the launcher's program
        depends on. Raises what `HostProgram.run` raises, and InputRuntimeError for arrays that a graph cannot read.
        """
        with self._lock:
            self._check_open()
            self._raise_reported()
            listed = input_sequence(inputs)
            arrays = [value.array if isinstance(value, ArrayView) else value for value in listed]
            views = _views(arrays, self._numbers)
            found = self._launcher.bound_for(arrays, self._device, also)
            # A number that its type does not hold is left to the launcher, which says what is wrong with it.
            if found is not None and found[0].takes(_numbers(found[0], arrays, views)):
                bound, addresses = found
                _check_memory(bound, views)
                handle = _handle(bound, stream)
                if not bound.device.is_capturing(handle):
                    if not self._move(bound, arrays, addresses, views, handle):
                        self._follow(bound, handle, _streams(arrays))
                        self._adopt(bound, arrays, views, handle)
                    self._launch(handle)
                    return self.outputs
            results = self._launcher.run(arrays, stream, self._device, also)
            found = self._launcher.bound_for(arrays, self._device, also)
            if found is None:
                latest = self._launcher.latest
                why = "inputs like these" if latest is None or latest.why_not is None else latest.why_not
                raise InputRuntimeError(f"a program cannot be captured with {why}; it was run once")
            bound, _ = found
            _check_memory(bound, views)
            handle = _handle(bound, stream)
            if not bound.device.is_capturing(handle):
                self._follow(bound, handle, ())
                self._adopt(bound, arrays, views, handle)
            self._results = results
            return self.outputs

    def replay(self, stream: Any = None) -> list[Any]:
        """Run once more on the inputs of the last run, as they are now. The outputs are the same arrays each time, those of the
        last `run` too, unless that was a first one.
        """
        with self._lock:
            self._check_open()
            if self._bound is None:
                raise LaunchError("there is no run to replay, or the last one failed: call run first")
            self._raise_reported()
            handle = _handle(self._bound, stream)
            if self._again is not None and handle == self._stream and self._again():
                self._results = self._outputs
                self._counts["launched"] += 1
            elif self._bound.device.is_capturing(handle):
                self._lend(handle)
            else:
                self._follow(self._bound, handle, self._theirs)
                self._launch(handle)
                self._counts["launched"] += 1
                if self._again is None and self._theirs <= {handle}:
                    # There is nobody to follow, and nobody who follows.
                    assert self._graph is not None
                    self._again = self._graph.relauncher(handle)
            return self.outputs

    def synchronize(self) -> None:
        """Wait until the last launch is done. Raises LaunchError for what went wrong on the device, in this or earlier ones."""
        with self._lock:
            if self._bound is not None:
                self._bound.device.synchronize(self._stream)

    def _raise_reported(self) -> None:
        if self._bound is not None:
            self._bound.device.reports.check()

    def close(self) -> None:
        """Give everything back when the last launch is done. A captured program that nobody has any more does so itself."""
        with self._lock:
            self._is_closed = True
            self._give_back()
            self._inputs, self._outputs, self._results, self._theirs = [], [], [], set()
            lent, self._lent = self._lent, []
            for memory, _, _ in lent:
                memory.release(self._stream)

    # Bound early: at interpreter exit the names of this module may be gone.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # all of it goes with the process
        # Errors: the driver is shutting down.
        with suppress(LaunchError):
            self.close()

    # --- recordings and launches ------------------------------------------------------------------------------------------

    def _adopt(self, bound: BoundProgram, inputs: list[Any], views: dict[int, ArrayView], stream: int) -> None:
        """Record a run, and make the graph that of the recording by as little as will do."""
        last, known = self._bound, self._recording if self._bound is bound else None
        if last is None or last.device is not bound.device or last.framework is not bound.framework:
            self._give_back()
            self._memory = KeptMemory(bound.device, bound.framework)
        self._bound, self._again = bound, None
        assert self._memory is not None
        # From here on that stream is the last one to use memory: it comes after the one before.
        self._stream = stream
        # The program may have inputs behind the caller's: those that it draws.
        values = [*inputs, *(bound.draw() if bound.draw is not None else ())]
        numbers = _numbers(bound, values, views)
        read = {i for i in views if i in bound.tensors}
        storages = [borrow(views[i]) if i in read else Storage(0, 0) for i in range(len(values))]
        try:
            recording = record_program(bound, storages, numbers, self._memory, stream, known)
            outputs = _delivered(bound, recording.storages, inputs, stream)
            self._climb(recording, stream)
            self._memory.settle(stream)
        except BaseException:
            # The graph may be half one and half the other.
            self._give_back()
            raise
        self._keep_until_done(bound)
        self._recording, self._inputs, self._outputs = recording, inputs, outputs
        self._theirs = _streams((*inputs, *outputs))
        self._moving, self._moved = MovingArguments.of(bound, recording), []

    def _move(
        self,
        bound: BoundProgram,
        inputs: list[Any],
        addresses: Sequence[int],
        views: dict[int, ArrayView],
        stream: int,
    ) -> bool:
        """Make the graph that of a run on other memory, if no more than arguments differ from the last run, on one stream."""
        moving, graph, recording = self._moving, self._graph, self._recording
        if bound is not self._bound or stream != self._stream or moving is None or graph is None or recording is None:
            return False
        if not all(other == stream for other in (*self._theirs, *_streams(inputs))):
            return False
        values = [*inputs, *(bound.draw() if bound.draw is not None else ())]
        numbers = _numbers(bound, values, views)
        storages = list(recording.storages)
        storages[: len(addresses)] = [None] * len(addresses)
        for step in moving.outputs:
            storages[step.root] = bound.framework.new_array(bound.device, step.dtype, step.sizes, step.strides, stream)
        outputs = _delivered(bound, storages, inputs, stream)
        changes = moving.changes(storages, addresses, numbers)
        differing = (
            [new for new, old in zip(changes, self._moved, strict=True) if new != old] if self._moved else changes
        )
        is_set = False
        try:
            is_set = graph.set_arguments(differing)
        finally:
            if not is_set:
                # It is half one and half the other; a recording makes another.
                self._give_back()
        if not is_set:
            return False
        self._counts["parameters_set" if differing else "launched"] += 1
        self._counts["nodes_set"] += len(differing)
        self._recording = Recording(recording.commands, recording.edges, tuple(storages))
        self._moved, self._inputs, self._outputs = changes, inputs, outputs
        return True

    def _commands(self) -> tuple[Command, ...]:
        """Those of the last run."""
        assert self._recording is not None
        return changed_commands(self._recording.commands, self._moved)

    def _climb(self, recording: Recording, stream: int) -> None:
        old, graph = self._recording, self._graph
        if old is not None and graph is not None and old.edges == recording.edges:
            pairs = enumerate(zip(self._commands(), recording.commands, strict=True))
            changed = [k for k, (before, after) in pairs if before != after]
            if all(graph.set(k, recording.commands[k]) for k in changed):
                self._counts["parameters_set" if changed else "launched"] += 1
                self._counts["nodes_set"] += len(changed)
                return
        self._graph = None
        if graph is not None:
            graph.close(stream)
        assert self._bound is not None
        self._graph = self._bound.device.make_graph(recording.commands, recording.edges)
        self._counts["instantiated"] += 1

    def _launch(self, stream: int) -> None:
        assert self._graph is not None
        assert self._bound is not None
        if stream != self._stream:
            self._stream, self._again = stream, None
        try:
            self._graph.launch(stream)
        except BaseException:
            # Nobody knows how far it came, and what its counters hold.
            self._give_back()
            raise
        self._results = self._outputs
        # Whoever uses these tensors next does so on their streams.
        for other in self._theirs:
            if other != stream:
                order_after(self._bound.device, other, stream)

    def _lend(self, stream: int) -> None:
        """Put the commands into the graph of a caller, who replays it as long as this captured program is not closed."""
        assert self._bound is not None
        assert self._recording is not None
        assert self._memory is not None
        choice = next((c for c in self._recording.commands if isinstance(c, SwitchCommand)), None)
        if choice is not None:
            raise LaunchError(
                f"a captured program cannot become part of another graph where a tensor decides what is run, as in "
                f"{choice.selector.text}: replay it outside of captures"
            )
        self._memory.is_lent = True
        self._lent.append((self._memory, self._inputs, self._outputs))
        for command in self._commands():
            run_command(self._bound.device, command, stream)
        self._results = self._outputs

    def _give_back(self) -> None:
        """Graph and memory, when the last launch is done."""
        graph, self._graph, self._again = self._graph, None, None
        memory, self._memory = self._memory, None
        bound, self._bound = self._bound, None
        self._recording = None
        self._moving, self._moved = None, []
        if bound is not None:
            self._keep_until_done(bound)
        if graph is not None:
            graph.close(self._stream)
        if memory is not None and not memory.is_lent:
            memory.release(self._stream)

    def _keep_until_done(self, bound: BoundProgram) -> None:
        """What the launches until now use goes when they are done."""
        keep_until_done(bound.device, self._stream, [self._inputs, self._outputs])

    def _check_open(self) -> None:
        if self._is_closed:
            raise LaunchError("the captured program is closed: capture the program again")

    def _follow(self, bound: BoundProgram, stream: int, theirs: Iterable[int]) -> None:
        """Order a launch after the work that makes its inputs, and after the last launch, whose memory it shares."""
        for other in theirs:
            if other != stream:
                order_after(bound.device, stream, other)
        if self._stream != stream and self._bound is not None and self._bound.device is bound.device:
            order_after(bound.device, stream, self._stream)


def _handle(bound: BoundProgram, stream: Any) -> int:
    """The stream of a launch. Raises InputTypeError for what is none, on the simulator too."""
    if stream is not None:
        check_stream(
            stream, "a captured program is run on one list of all inputs, and replayed on those of the last run"
        )
    if bound.device.kind != "cuda":
        return 0
    current = bound.framework.current_stream(bound.device) if stream is None else stream_handle(stream)
    return own_stream(bound.device) if current is None else current


def _streams(arrays: Iterable[Any]) -> set[int]:
    """Those that the work on tensors of this project goes to; other libraries order theirs by themselves."""
    return {array.stream for array in arrays if isinstance(array, DeviceTensor)}


def _check_memory(bound: BoundProgram, views: dict[int, ArrayView]) -> None:
    """Raise InputRuntimeError for a tensor in host memory; numbers may come in such."""
    for position, view in views.items():
        if view.is_host and position in bound.tensors:
            raise _misplaced(position, "in host memory")


def _misplaced(position: int, where: str) -> InputRuntimeError:
    return InputRuntimeError(
        f"input {position} is an array {where}, and a captured program takes arrays of torch, CuPy or fuser in the memory of "
        "the device: place it there first, or run without a graph"
    )


def _numbers(bound: BoundProgram, values: Sequence[Any], views: dict[int, ArrayView]) -> dict[str, Scalar]:
    """The numbers of a run by name, as far as there are values; `views` describes those that come in arrays."""
    return {
        name: host_number(views[i]) if i in views else python_number(values[i])
        for name, i in bound.numbers.items()
        if i < len(values)
    }


def _delivered(bound: BoundProgram, storages: Sequence[Storage | None], inputs: list[Any], stream: int) -> list[Any]:
    """The arrays that launches write. `storages` by root."""
    outputs: list[Any] = []
    made: dict[int, Any] = {}
    for plan in bound.outputs:
        if plan.input is not None:
            outputs.append(inputs[plan.input])
            continue
        # An output that is returned twice has one plan, and is one array.
        if id(plan) not in made:
            storage = storages[plan.root]
            assert storage is not None
            made[id(plan)] = bound.framework.deliver(
                bound.device, storage, plan.dtype, plan.sizes, plan.strides, plan.offset, stream
            )
        outputs.append(made[id(plan)])
    return outputs


def _views(inputs: Sequence[Any], numbers: Mapping[int, str]) -> dict[int, ArrayView]:
    """The arrays by position. Raises InputTypeError for one in the place of a number, and InputRuntimeError for those that a
    graph cannot read where they are.
    """
    found: dict[int, ArrayView] = {}
    for position, value in enumerate(inputs):
        if is_scalar(value):
            continue
        view = describe_array(value)
        if view.sizes and position in numbers:
            raise no_number(position, numbers[position], view)
        if view.sizes and (view.is_host or view.kind not in KINDS):
            library = "of JAX" if view.kind == "jax" else "of a library that is not known"
            raise _misplaced(position, "in host memory" if view.is_host else library)
        if view.owner is not view.array:
            raise InputRuntimeError(
                f"input {position} is a lazily conjugated or negated tensor, and a captured program reads memory as it is: "
                "call resolve_conj() or resolve_neg()"
            )
        found[position] = view
    return found
