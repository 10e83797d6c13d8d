"""The code of a bound call: the steps of an earlier run as one function without a loop, a lookup or a decision.

    Before:  AllocateStep(root 2, (32, 1024)), LaunchStep(kernel, pointers (0, root 0), (1, root 1), (2, root 2))
    After:   def run(inputs, addresses, stream):
                 ...
                 t2 = empty(c0, c1, c2)
                 r2 = t2.data_ptr()
                 w3[0] = r0
                 w3[1] = r1
                 w3[2] = r2
                 status = f3()[0]
                 if status: raise e3(status)
                 return [t2]

The source has no sizes: they are constants of the function, so that calls of other shapes share its code object. What a
run writes (argument buffers, the stream in a launch configuration) belongs to one function: each thread has its own, and a call
that begins while another one is under way in the same thread (from a signal handler, or from garbage collection) gets another.

A run returns NotImplemented if a property that it reads at each call is not the one that it was bound for; the interpreter
then runs the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, assert_never

from fuser.errors import InternalError
from fuser.generated_code import code_of
from fuser.host_ir.executors.run_inputs import borrow
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
    OutputPlan,
    RecordStep,
    StreamStep,
    SwitchStep,
    SynchronizeStep,
    WaitStep,
    each_step,
    roots_of,
)
from fuser.ir.ops.dtypes import DataType
from fuser.runtime import driver
from fuser.runtime.arrays.arrays import describe_array, known_kind
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.devices.side_streams import SideStreams
from fuser.runtime.devices.streams import join_streams, own_stream, rejoin_streams
from fuser.runtime.kernels.plan_evaluation import scalar_as
from fuser.runtime.reports import raise_complaints
from fuser.runtime.scalars import python_number

Run = Callable[[Sequence[Any], Sequence[int], "int | None"], Any]


def straight_line(bound: BoundProgram, again: Run) -> Run:
    """The function `run(inputs, addresses, stream)` of a bound program, for the calling thread.

    again    runs a call that comes in while this one is under way
    inputs, addresses   what a reader took and gave (`runtime/call_keys.py`)
    stream   raw handle, None for the library's current stream
    """
    return _Text(bound, again).build()


class _Text:
    """The text of one function, and the constants it is made with."""

    def __init__(self, bound: BoundProgram, again: Run) -> None:
        if bound.tally is None:
            raise InternalError("a bound program was not kept", pass_name="straight_line")
        self.bound = bound
        self.types = bound.types
        self.device: Any = bound.device
        self.framework: Any = bound.framework
        self.lines: list[str] = []
        # What the caller's numbers become, before anything is done.
        self.early: list[str] = []
        self.constants: dict[str, Any] = {"again": again, "tally": bound.tally, "lock": bound.tally.lock}
        # torch's tensors are their own storage, and go out as they are.
        self.is_torch = bound.kind == "torch"
        self.is_cuda = bound.device.kind == "cuda"
        self.needs_frame = False
        self.chooses = False
        # Only tensors of this project know the stream that their work goes to: other libraries have a current one.
        self.joins = self.is_cuda and bound.kind == "fuser" and bool(bound.tensors)
        # Scratch memory of launches before, which the next one gives back.
        self.scratch: list[str] = []
        self.allocated: dict[int, AllocateStep] = {}
        self.storages: set[int] = set()
        # Of each launch the number of its stream; of memory that was taken on another than the caller's, that.
        self.launches: list[int] = []
        self.homes: dict[int, int] = {}
        self.current = 0

    def add(self, line: str) -> None:
        self.lines.append(line)

    def const(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def build(self) -> Run:
        for k, step in enumerate(self.bound.steps):
            match step:
                case AllocateStep():
                    self.allocate(step)
                case DeallocateStep(root):
                    self.deallocate(root)
                case CopyInStep():
                    self.copy_in(step)
                case CopyStep(dst=dst, src=src):
                    self.run_step(step, (dst[0], src[0]))
                case FillStep(dst=dst):
                    self.run_step(step, (dst[0],))
                case LaunchStep():
                    self.launch(k, step)
                case LibraryStep():
                    self.call_library(step)
                case SwitchStep():
                    self.choose(step)
                case StreamStep(stream, begins):
                    self.turn(stream, begins=begins)
                case RecordStep(event):
                    self.add(f"side.record({event}, {self.current})")
                case WaitStep(event):
                    self.add(f"side.wait({event}, {self.current})")
                case SynchronizeStep():
                    self.constants["synchronize"] = self.device.synchronize
                    self.add("synchronize(stream)" if self.bound.streams == 1 else "side.synchronize()")
                case _:
                    assert_never(step)
        if self.bound.streams > 1:
            self.turn(0, begins=False)
            self.add("side.join()")
        for position, root, nbytes in self.bound.backs:
            self.constants["copy_back"] = copy_back
            self.add(f"copy_back(a{position}, r{root}, {self.const(nbytes)}, device, stream)")
        results = self.results()
        if self.joins:
            self.add("if joined: rejoin(stream, joined)")
        if self.chooses:
            self.constants.update(count=self.bound.history.count, complain=raise_complaints)
            self.add("count(frame.chosen)")
        self.add("with lock: tally.replays += 1")
        if self.chooses:
            self.add("if frame.told: complain(frame.told)")
        self.add(f"return [{', '.join(results)}]")
        return _make(self.text(), self.constants)

    # --- the frame around the steps ---------------------------------------------------------------------------------------

    def text(self) -> str:
        """The whole text: its constants are the parameters of what makes the function."""
        # This order: what stands first in the lines is put there last.
        before = self.before()
        after = [*(["frame.release()"] if self.needs_frame else []), "busy = False"]
        if not self.is_torch:
            self.constants.update(device=self.device, give_back=partial(_give_back, self.framework, self.device))
            after.insert(0, "if owned: give_back(owned, stream)")
        if self.bound.streams > 1:
            # Before memory is given back: what is on other streams may still use it.
            after.insert(0, "if side is not None: side.close()")
        if self.is_cuda:
            self.constants["enter"] = self.device.context_entry()
            self.constants["leave"] = driver.leave_context
            self.lines.insert(0, "entered = enter()")
            after.append("if entered: leave()")
        if self.early:
            # A number that a cell cannot hold is told before anything has run, by the checks of a first run.
            self.early = ["try:", *(f"    {line}" for line in self.early), "except Exception: return NotImplemented"]
        nested = [f"            {line}" for line in (*self.early, *self.lines)]
        return "\n".join(
            (
                f"def make({', '.join(self.constants)}):",
                "    busy = False",
                "    last = None",
                "    def run(inputs, addresses, stream):",
                "        nonlocal busy, last",
                "        if busy: return again(inputs, addresses, stream)",
                *(f"        {line}" for line in before),
                "        entered = False",
                "        try:",
                "            busy = True",
                *nested,
                "        finally:",
                *(f"            {line}" for line in _nested_finally(after)),
                "    return run",
            )
        )

    def before(self) -> list[str]:
        """What is asked before anything is done."""
        bound = self.bound
        count = len(self.types)
        lines = [f"{''.join(f'a{i}, ' for i in range(count))}= inputs"]
        conditions: list[str] = []
        arrays = [i for i in range(count) if i in bound.tensors]
        for i in arrays:
            dtype = bound.tensors[i]
            if self.is_torch and (dtype.is_floating or dtype.is_complex):
                conditions.append(f"a{i}.is_neg()")
                if dtype.is_complex:
                    conditions.append(f"a{i}.is_conj()")
        conditions += [f"not a{i}.flags.writeable" for i, _, _ in bound.backs]
        if self.is_torch:
            self.constants.update(self.framework.quick_calls())
            lines += ["now = current()", "if stream is None: stream = now"]
        elif not self.is_cuda:
            lines.append("stream = 0")
        elif bound.kind == "cupy":
            self.constants["current"] = partial(self.framework.current_stream, self.device)
            lines.append("if stream is None: stream = current()")
        else:
            self.constants["own"] = own_stream(self.device)
            lines.append("if stream is None: stream = own")
        if bound.synchronizes:
            self.constants["is_capturing"] = self.device.is_capturing
            conditions.append("is_capturing(stream)")
        if conditions:
            lines.append(f"if {' or '.join(conditions)}: return NotImplemented")
        if self.joins:
            others = " or ".join(f"a{i}.stream != stream" for i in arrays)
            streams = "".join(f"a{i}.stream, " for i in arrays)
            self.constants.update(join=partial(join_streams, self.device), rejoin=partial(rejoin_streams, self.device))
            lines.append(f"joined = join(stream, ({streams})) if {others} else None")
        lines.append(f"{''.join(f'r{i}, ' for i in range(count))}= addresses")
        if bound.draw is not None:
            self.constants["draw"] = bound.draw
            self.lines.insert(0, f"a{count}, a{count + 1} = draw()")
        if self.launches and self.is_cuda:
            # No stream is known for all launches before all of them have it.
            moves = "; ".join(f"m{k}({self.stream(number)})" for k, number in enumerate(self.launches))
            now = "stream" if bound.streams == 1 else "side.handles"
            self.lines[:0] = [f"if {now} != last:", f"    last = None; {moves}; last = {now}"]
        if bound.streams > 1:
            self.constants.update(open_streams=partial(SideStreams, self.device, in_context=True))
            names = "".join(f", q{k}" for k in range(1, bound.streams))
            self.lines[:0] = [f"side = open_streams(stream, {bound.streams})", f"_{names} = side.handles"]
            lines.append("side = None")
        if self.is_torch:
            lines.append(
                "empty = careful(stream)"
                if self.constants["fast"] is None
                else "empty = fast if stream == now and here() == index else careful(stream)"
            )
        else:
            framework = self.framework
            self.constants.update(scratch=framework.scratch, new_array=framework.new_array, release=framework.release)
            lines.append("owned = []")
        if self.needs_frame:
            self.constants.update(new_frame=Frame, framework=self.framework, device=self.device)
            lines.append(f"frame = new_frame(device, framework, stream, {self.const(bound.roots)}, {{}})")
        return lines

    # --- streams ------------------------------------------------------------------------------------------------------

    def stream(self, number: int | None = None) -> str:
        """The name of a stream's handle; of the one that work goes to."""
        number = self.current if number is None else number
        return f"q{number}" if number else "stream"

    def empty(self) -> str:
        """What takes memory of torch in the order of the stream that work goes to."""
        return f"careful({self.stream()})" if self.current else "empty"

    def turn(self, number: int, *, begins: bool) -> None:
        self.release_scratch()
        if begins:
            self.add(f"side.begin({number})")
        self.current = number

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, step: AllocateStep) -> None:
        root = step.root
        self.allocated[root] = step
        self.homes[root] = self.current
        if self.is_torch:
            from fuser.runtime.arrays.torch_arrays import torch_dtype

            if step.escapes:
                sizes, strides, dtype = (self.const(v) for v in (step.sizes, step.strides, torch_dtype(step.dtype)))
                self.add(f"t{root} = {self.empty()}({sizes}, {strides}, {dtype})")
            else:
                self.add(f"t{root} = {self.empty()}({self.const((max(step.nbytes, 1),))}, (1,), uint8)")
            self.add(f"r{root} = t{root}.data_ptr()")
            return
        self.storages.add(root)
        if step.escapes:
            dtype, sizes, strides = (self.const(v) for v in (step.dtype, step.sizes, step.strides))
            self.add(f"s{root} = new_array(device, {dtype}, {sizes}, {strides}, {self.stream()})")
        else:
            self.add(f"s{root} = scratch(device, {self.const(step.nbytes)}, {self.stream()})")
        self.add(f"owned.append(s{root})")
        self.add(f"r{root} = s{root}.address")

    def workspace(self, name: str, nbytes: int) -> str:
        """Scratch memory of one launch; the expression of its address."""
        self.scratch.append(name)
        if self.is_torch:
            self.add(f"{name} = {self.empty()}({self.const((max(nbytes, 1),))}, (1,), uint8)")
            return f"{name}.data_ptr()"
        self.add(f"{name} = scratch(device, {self.const(nbytes)}, {self.stream()})")
        self.add(f"owned.append({name})")
        return f"{name}.address"

    def deallocate(self, root: int) -> None:
        home = self.homes[root]
        if home != self.current:
            # Memory is given out again in the order of the stream that took it.
            self.add(f"side.order({home}, {self.current})")
        self.release(f"t{root}" if self.is_torch else f"s{root}", home)

    def release_scratch(self) -> None:
        while self.scratch:
            self.release(self.scratch.pop(), self.current)

    def release(self, name: str, number: int) -> None:
        """Give memory back before the end, on the stream that it was taken on."""
        if self.is_torch:
            self.add(f"{name} = None")
            return
        self.add(f"owned.remove({name})")
        self.add(f"release(device, {name}, {self.stream(number)})")

    def copy_in(self, step: CopyInStep) -> None:
        root = step.root
        self.constants["bytes_of"] = bytes_of
        shift, nbytes = self.const(step.shift), self.const(step.nbytes)
        self.add(f"s{root} = scratch(device, {nbytes} + {shift}, stream)")
        self.add(f"owned.append(s{root})")
        self.add(f"r{root} = s{root}.address + {shift}")
        if step.nbytes:
            self.constants["upload"] = self.device.copy_from_host
            self.add(f"upload(r{root}, bytes_of(a{root}), stream)")

    # --- steps --------------------------------------------------------------------------------------------------------

    def choose(self, step: SwitchStep) -> None:
        """One of several bodies, whose steps work on the frame: the host waits for the device before it knows which."""
        self.chooses = True
        names: dict[str, None] = {}
        for inner in each_step([step]):
            if isinstance(inner, LaunchStep):
                for _, name, dtype in inner.numbers:
                    names[name] = None
                    if dtype is not None and self.bound.numbers[name] < len(self.types):
                        # A number that does not fit is told before anything has run.
                        self.constants["fits"] = scalar_as
                        self.early.append(f"fits({self.number(name, None)}, {self.const(dtype)}, {name!r})")
                        self.check_range(name, dtype)
        self.run_step(step, sorted(roots_of(step)), names)

    def run_step(
        self, step: CopyStep | FillStep | SwitchStep, roots: Sequence[int], numbers: Iterable[str] = ()
    ) -> None:
        """A step that works on a frame, as for the interpreter."""
        self.needs_frame = True
        if self.bound.streams > 1:
            self.add(f"frame.stream = {self.stream()}")
        for root in dict.fromkeys(roots):
            self.add(f"frame.addresses[{root}] = r{root}")
        for name in numbers:
            self.add(f"frame.numbers[{name!r}] = {self.number(name, None)}")
        self.add(f"{self.const(step)}.run(frame)")

    def call_library(self, step: LibraryStep) -> None:
        self.constants["call_library"] = self.device.call_library
        addresses = [f"r{root} + {self.const(offset)}" if offset else f"r{root}" for root, offset in step.places]
        self.add(f"call_library({self.const(step.call)}, ({''.join(f'{a}, ' for a in addresses)}), {self.stream()})")

    def launch(self, k: int, step: LaunchStep) -> None:
        number = len(self.launches)
        self.launches.append(self.current)
        bind = getattr(self.device, "bind_launch", None)
        launch: Any = _PlainLaunch(self.device, step) if bind is None else bind(step.kernel, step.launch, step.template)
        words = self.const(launch.words)
        for position, root, offset in step.pointers:
            place = f"r{root} + {self.const(offset)}" if offset else f"r{root}"
            self.add(f"{words}[{launch.word_of(position)}] = {place}")
        for position, name, dtype in step.numbers:
            drawn = self.bound.numbers[name] >= len(self.types)
            lines = self.lines if drawn else self.early
            if not drawn and dtype is not None:
                self.check_range(name, dtype)
            lines.append(f"{self.const(launch.writer_of(position))}({self.number(name, dtype)})")
        if step.semaphores is not None:
            positions, count = step.semaphores
            co_resident = step.launch.co_resident
            lookup = getattr(self.device, "semaphore_lookup", None)
            find = (
                partial(self.device.semaphores, co_resident=co_resident)
                if lookup is None
                else lookup(co_resident=co_resident)
            )
            self.add(f"z = {self.const(find)}({self.const(count)}, {self.stream()})")
            for position in positions:
                self.add(f"{words}[{launch.word_of(position)}] = z")
        for j, (positions, nbytes) in enumerate(step.workspaces):
            address = self.workspace(f"x{k}_{j}", nbytes)
            for position in positions:
                self.add(f"{words}[{launch.word_of(position)}] = {address}")
        if bind is None:
            self.add(f"{self.const(launch.fire)}({self.stream()})")
        else:
            self.constants[f"m{number}"] = launch.set_stream
            self.constants["failed"] = self.device.drop_semaphores
            self.add(f"status = {self.const(launch.fire)}()[0]")
            self.add(f"if status: failed(); raise {self.const(launch.error)}(status)")
        if not step.holds:
            self.release_scratch()

    def check_range(self, name: str, dtype: DataType) -> None:
        """Leave a number that an integer type does not hold to a closer look: a cell would take its low bits."""
        if dtype.is_integral:
            low, high = dtype.integer_range
            line = f"if not {low} <= {self.number(name, None)} < {high}: return NotImplemented"
            if line not in self.early:
                self.early.append(line)

    def number(self, name: str, dtype: DataType | None) -> str:
        """The expression of a number as the kernel takes it; its kind is that of the first run."""
        position = self.bound.numbers[name]
        value = f"a{position}"
        if position < len(self.types):
            of_type = self.types[position]
            if known_kind(of_type) is not None:
                value = f"{value}.item()"
            if of_type not in (bool, int, float, complex):
                self.constants["python_number"] = python_number
                value = f"python_number({value})"
        if dtype is None:
            return value
        kind = "bool" if dtype is DataType.Bool else "int" if dtype.is_integral else "float"
        return f"{'complex' if dtype.is_complex else kind}({value})"

    # --- results ------------------------------------------------------------------------------------------------------

    def results(self) -> list[str]:
        """The expression of each output. A slot that is returned twice is one array."""
        names: dict[int, str] = {}
        for k, plan in enumerate(self.bound.outputs):
            if id(plan) not in names:
                names[id(plan)] = self.result(k, plan)
        return [names[id(plan)] for plan in self.bound.outputs]

    def result(self, k: int, plan: OutputPlan) -> str:
        if plan.input is not None:
            return f"a{plan.input}"
        made = self.allocated.get(plan.root)
        if self.is_torch:
            if made is not None and not plan.offset and (plan.sizes, plan.strides) == (made.sizes, made.strides):
                return f"t{plan.root}"
            sizes, strides, offset = (self.const(v) for v in (plan.sizes, plan.strides, plan.offset))
            if made is not None:
                self.add(f"o{k} = t{plan.root}.as_strided({sizes}, {strides}, {offset})")
            else:
                a = f"a{plan.root}"
                self.add(f"o{k} = {a}.as_strided({sizes}, {strides}, {a}.storage_offset() + {offset})")
            return f"o{k}"
        if made is None and plan.root not in self.storages:
            self.storages.add(plan.root)
            self.constants["storage_of"] = storage_of
            self.add(f"s{plan.root} = storage_of(a{plan.root})")
        self.constants["deliver"] = self.framework.deliver
        dtype, sizes, strides, offset = (self.const(v) for v in (plan.dtype, plan.sizes, plan.strides, plan.offset))
        self.add(f"o{k} = deliver(device, s{plan.root}, {dtype}, {sizes}, {strides}, {offset}, stream)")
        return f"o{k}"


def _nested_finally(lines: Sequence[str]) -> list[str]:
    """Each line is run, whatever those before it raise."""
    if len(lines) == 1:
        return [lines[0]]
    return ["try:", f"    {lines[0]}", "finally:", *(f"    {line}" for line in _nested_finally(lines[1:]))]


def _make(text: str, constants: dict[str, Any]) -> Run:
    space: dict[str, Any] = {}
    exec(code_of(text, "<bound call>"), space)
    return space["make"](**constants)


# --- what the text calls ----------------------------------------------------------------------------------------------


class _PlainLaunch:
    """A launch on a device that takes the values of all parameters at once."""

    def __init__(self, device: Any, step: LaunchStep) -> None:
        self.words = list(step.template)
        self.fire = partial(device.launch, step.kernel, step.launch, self.words)

    def word_of(self, position: int) -> int:
        """Index of a parameter's value."""
        return position

    def writer_of(self, position: int) -> Callable[[Any], None]:
        """What sets the value of a parameter."""
        return partial(self.words.__setitem__, position)


def _give_back(framework: Any, device: Any, storages: Sequence[Storage], stream: int) -> None:
    """Give back memory that did not go out. The first error is raised after all was tried."""
    failure: Exception | None = None
    for storage in storages:
        try:
            framework.release(device, storage, stream)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def bytes_of(array: Any) -> Any:
    """The stored bytes of a host array, as they are copied to the device."""
    from fuser.runtime.arrays.host_arrays import stored_bytes

    if array.flags.c_contiguous:
        return array.reshape(-1).view("uint8")
    return stored_bytes(array, describe_array(array))


def copy_back(array: Any, address: int, nbytes: int, device: Any, stream: int) -> None:
    """Write what the device holds into a host array that was updated."""
    from fuser.runtime.arrays import host_arrays

    host_arrays.copy_back(describe_array(array), Storage(address, nbytes), device, stream)


def storage_of(array: Any) -> Storage:
    """The caller's memory as storage."""
    return borrow(describe_array(array))


__all__ = ["Run", "straight_line"]
