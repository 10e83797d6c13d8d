"""The reference executor of host programs: one instruction after another, every check made at every launch.

bind      inputs described, device and stream chosen, streams joined
execute   each instruction bound to a step (`steps.py`) and run; host arrays reach the device when first needed
finish    streams joined, updated host arrays written back, outputs handed out in the caller's kind of array
release   everything that did not go out, after errors too
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard, assert_never

from fuser.errors import FuserError, InputRuntimeError, InputTypeError, InternalError, LaunchError
from fuser.host_ir.executors.call_checks import check_call
from fuser.host_ir.executors.choices import MemoryAround, body_on_roots, selector_dtype, selector_for
from fuser.host_ir.executors.launch_checks import check_constraint, check_launch
from fuser.host_ir.executors.run_history import RunHistory
from fuser.host_ir.executors.run_inputs import borrow, check_updatable, device_of, host_number, make_ready, no_number
from fuser.host_ir.executors.steps import (
    AllocateStep,
    BodySteps,
    BoundProgram,
    CopyInStep,
    CopyStep,
    DeallocateStep,
    FillStep,
    Frame,
    InstructionStep,
    LaunchStep,
    LibraryStep,
    OutputPlan,
    Place,
    RecordStep,
    Span,
    Step,
    StreamStep,
    SwitchStep,
    SynchronizeStep,
    WaitStep,
    each_step,
)
from fuser.host_ir.instructions.accesses import named_tensors, output_positions
from fuser.host_ir.instructions.bodies import (
    bodies_of,
    body_numbers,
    choice_of,
    decisions_of,
    equal_bodies,
    numbered,
    selector_of,
    turns,
    walk,
)
from fuser.host_ir.instructions.expressions import Size, SizeFunction, SlotSource, compile_sizes, sources_of, symbol_of
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Argument,
    CallLibrary,
    Copy,
    Deallocate,
    Fill,
    ForLoop,
    If,
    Instruction,
    LaunchKernel,
    RecordEvent,
    RequireDisjoint,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
)
from fuser.host_ir.instructions.paths import Path
from fuser.host_ir.instructions.print_instruction import print_instruction
from fuser.host_ir.instructions.side_by_side import leaves_room
from fuser.host_ir.passes.stream_order import Name, find_hazard
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.facts import byte_span, shared_memory
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.array_view import KEPT_ALIGNMENT, ArrayKind, ArrayView
from fuser.runtime.arrays.arrays import cast_text, describe_array
from fuser.runtime.arrays.device_memory import HostFramework
from fuser.runtime.arrays.frameworks import framework_for
from fuser.runtime.arrays.library_choice import library_for
from fuser.runtime.arrays.storage import Framework
from fuser.runtime.devices.device import Device
from fuser.runtime.devices.early_launches import may_be_overlapped, starts_early
from fuser.runtime.devices.streams import join_streams, keep_until_done, own_stream, rejoin_streams, stream_handle
from fuser.runtime.devices.strided_copy import is_same_dense_layout
from fuser.runtime.kernels.library_calls import LibraryCall, Operand
from fuser.runtime.kernels.plan_evaluation import evaluation_of, scalar_as
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.runtime.kernels.selectors import NO_BODY
from fuser.runtime.kernels.variants import VARIANTS, KernelVariants
from fuser.runtime.launch import Launch
from fuser.runtime.layouts import element_span, row_major
from fuser.runtime.reports import raise_complaints
from fuser.runtime.scalars import Scalar, is_scalar, python_number

if TYPE_CHECKING:
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor slot while the program runs. Strides and `offset` (from the root's address) in elements."""

    root: int
    dtype: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """Bytes [first, past the last) that hold the elements, from the root's address."""
        return byte_span(self.sizes, self.strides, self.dtype.itemsize, self.offset * self.dtype.itemsize)

    @property
    def place(self) -> Place:
        return self.root, self.offset * self.dtype.itemsize


def interpret_and_bind(
    program: VerifiedProgram, history: RunHistory, inputs: Sequence[Any], stream: Any = None, device: Any = None
) -> tuple[list[Any], BoundProgram]:
    """Run a program once, and keep its steps for the launcher; `HostProgram.run` says what the arguments are."""
    run = InterpretedRun(program, history, inputs, stream, device)
    try:
        run.execute_body(program.instructions, 0)
        results = run.finish()
    finally:
        run.frame.release()
    history.count(run.counts)
    history.count(run.frame.chosen)
    if run.frame.told:
        raise_complaints(run.frame.told)
    return results, run.bound()


def _note(index: int, instruction: Instruction) -> str:
    return f"while running instruction {index} of a host program: {print_instruction(instruction)}"


# Of longer runs the steps are not kept: they are the turns of a loop, each with a text of its own.
_MAX_STEPS = 4096


class CountingFrame(Frame):
    """A frame that counts what launches ask of the table of variants."""

    __slots__ = ()

    def run(self, step: InstructionStep) -> None:
        if not isinstance(step, LaunchStep):
            step.run(self)
            return
        variants: KernelVariants = getattr(self.device, "variants", VARIANTS)
        before = variants.counters()
        step.run(self)
        after = variants.counters()
        # A kernel that brought a binary needs another one only for a larger block.
        compiled = "recompiles" if step.kernel.cubin is not None else "compiles"
        self.count({"variant_hits": after.hits - before.hits, compiled: after.compiles - before.compiles})


class InterpretedRun:
    """State of one execution."""

    device: Device
    framework: Framework
    frame: CountingFrame

    def __init__(
        self, program: VerifiedProgram, history: RunHistory, inputs: Sequence[Any], stream: Any, device: Any
    ) -> None:
        self.begin(program, history, inputs)
        views = list(self.inputs.values())
        self.device = device_of(views, device)
        self.framework = framework_for(views[0] if views else None, self.device)
        self.place(stream)
        if len(program.facts.streams) > 1:
            self._check_shared_inputs()
            self.frame.open_streams(len(program.facts.streams))

    def place(self, stream: Any) -> None:
        """Choose the stream, join those of the inputs, and make the frame that steps run on."""
        roots = self.program.roots
        self.joined: set[int] = set()
        self.in_use: list[object] = []
        self.copied_in = 0
        self.stream = self._choose_stream(stream, list(self.inputs.values()))
        self.frame = CountingFrame(self.device, self.framework, self.stream, len(roots), self.numbers)
        for name, view in self.inputs.items():
            root = roots[name]
            self.frame.storages[root] = storage = borrow(view)
            self.frame.addresses[root] = storage.address
            if view.is_host:
                self.frame.owned.append(root)

    # --- bind ---------------------------------------------------------------------------------------------------------

    def begin(self, program: VerifiedProgram, history: RunHistory, inputs: Sequence[Any]) -> None:
        """All that needs no device. Raises InputError classes for arguments that do not fit."""
        self.program = program
        self.history = history
        self.tensors: dict[str, Tensor] = {}
        self.numbers: dict[str, Scalar] = {}
        self.inputs: dict[str, ArrayView] = {}
        self.counts: dict[str, int] = {"runs": 1}
        self.steps: list[Step] = []
        # Around the choice of the device whose bodies are bound, and the steps of the one at hand.
        self.around: MemoryAround | None = None
        self.body: list[InstructionStep] = []
        self.begun: set[Name] = {0}
        self.events: dict[Name, int] = {}
        self._bind(inputs)

    def _bind(self, inputs: Sequence[Any]) -> None:
        program = self.program
        facts = program.facts
        if len(inputs) != len(program.inputs):
            raise InputRuntimeError(
                f"Expected {len(program.inputs)} inputs ({', '.join(program.inputs)}), got {len(inputs)}"
            )
        for position, (name, value) in enumerate(zip(program.inputs, inputs, strict=True)):
            if is_scalar(value):
                if name in facts.tensor_inputs:
                    advice = f", or write scalar({name!r}) where it decides" if name in facts.selectors else ""
                    raise InputTypeError(
                        f"Expected input {position}, {name}, to be a tensor but got scalar {value}: pass an array{advice}"
                    )
                self.numbers[name] = python_number(value)
                continue
            view = value if isinstance(value, ArrayView) else describe_array(value)
            if name in facts.scalar_inputs:
                if view.sizes or not view.is_host:
                    raise no_number(position, name, view)
                self.numbers[name] = host_number(view)
                if name not in facts.tensor_inputs:
                    continue
            expected = facts.dtypes.get(name)
            if expected is not None and view.dtype is not expected:
                raise InputTypeError(
                    f"Expected input {position}, {name}, to be bound to a tensor of dtype {expected.c_name}, "
                    f"but got a tensor of dtype {view.dtype.c_name}: pass {cast_text(view.kind, expected)}"
                )
            if name in facts.updates:
                check_updatable(view, position, name)
            self.inputs[name] = view
            self.tensors[name] = Tensor(program.roots[name], view.dtype, view.sizes, view.strides)

    def _choose_stream(self, requested: Any, views: Sequence[ArrayView]) -> int:
        device = self.device
        if device.kind != "cuda":
            self._check_synchronizes(0)
            return 0
        current = self.framework.current_stream(device)
        if requested is not None:
            stream = stream_handle(requested)
        elif current is not None:
            stream = current
        else:
            others = (framework_for(v, device).current_stream(device) for v in views if not v.is_host)
            stream = next((s for s in others if s is not None), own_stream(device))
        self._check_synchronizes(stream)
        for view in views:
            if view.is_host or (view.kind == self.framework.kind and requested is None and current is not None):
                continue
            self._join(view, stream, is_explicit=requested is not None)
        return stream

    def _check_synchronizes(self, stream: int) -> None:
        """Raise LaunchError where the host is to wait for work that only joins a caller's graph."""
        if self.program.facts.selectors and self.device.is_capturing(stream):
            raise LaunchError(
                f"a program in which tensors decide what is run ({', '.join(sorted(self.program.facts.selectors))}) is run "
                "inside a stream capture, where the host cannot read them: run it before the capture begins, or make a graph "
                "of it by HostProgram.capture, in which the device decides"
            )
        if self.program.facts.synchronizes and self.device.is_capturing(stream):
            raise LaunchError(
                "a program with Synchronize is run inside a stream capture, where nothing is done that the host could wait "
                "for: run it before the capture begins, or leave Synchronize out"
            )

    def _check_shared_inputs(self) -> None:
        """Raise InputRuntimeError where inputs share memory that the program uses on two streams without order."""
        if not self.program.needs.sharing:
            return
        roots = dict(self.program.facts.roots)
        # Each with those before that it overlaps, so that all that hang together have one root.
        spans: list[tuple[int, int, str]] = []
        for name, view in self.inputs.items():
            low, high = self.tensors[name].span
            first, last = view.address + low, view.address + high
            for other_first, other_last, other in spans:
                if first < other_last and other_first < last and not view.is_host:
                    old, new = roots[name], roots[other]
                    roots = {slot: new if root == old else root for slot, root in roots.items()}
            if not view.is_host:
                spans.append((first, last, name))
        hazard = find_hazard(self.program.instructions, roots, self.program.facts.ends)
        if hazard is not None:
            raise InputRuntimeError(f"inputs of a program with several streams share memory, and {hazard}")

    def _join(self, view: ArrayView, stream: int, is_explicit: bool) -> None:
        """Make the run's stream wait for the work that makes an input, and note who must wait for the run."""
        device = self.device
        other: int | None = None
        match view.kind:
            case "torch" | "cupy":
                # Whoever names a stream orders it against the library's own.
                if not is_explicit:
                    other = framework_for(view, device).current_stream(device)
            case "fuser":
                other = view.owner.stream
            case "jax" | "interface":
                self.in_use += (view.array, view.owner)
                other = make_ready(view, stream)
            case "numpy":
                pass
        if other is not None and other not in self.joined:
            self.joined |= join_streams(device, stream, (other,))

    # --- execute ------------------------------------------------------------------------------------------------------

    def read(self, source: SlotSource) -> int:
        """Value of a leaf of a size expression."""
        if source.what == "scalar":
            value = self.numbers[source.slot]
            if not isinstance(value, int):
                raise InputTypeError(f"Scalar value {value} of {source.slot} is used as a size and must be an integer")
            return int(value)
        tensor = self.tensors[source.slot]
        row = tensor.sizes if source.what == "extent" else tensor.strides
        if source.dim >= len(row):
            raise InputRuntimeError(
                f"{source.what}({source.slot!r}, {source.dim}) is asked for, but the tensor has rank {len(row)}"
            )
        return row[source.dim]

    def sizes(self, values: tuple[Size, ...]) -> tuple[int, ...]:
        """Sizes with the slots' extents filled in."""
        try:
            return _size_function(values)(self)
        except ZeroDivisionError:
            text = ", ".join(str(value) for value in values if not isinstance(value, int))
            raise InputRuntimeError(f"these arguments ask for a division by 0: {text}") from None

    def execute_body(self, body: Sequence[Instruction], first: int) -> None:
        """Bind instructions and run their steps; `first` is the number of the first one."""
        for index, instruction in numbered(body, first):
            if bodies_of(instruction):
                self._execute_bodies(index, instruction)
                continue
            try:
                self.execute(index, instruction)
            except FuserError as error:
                error.add_note(_note(index, instruction))
                raise

    def _execute_bodies(self, index: int, instruction: Instruction) -> None:
        """The bodies of an instruction that are to run, one after another."""
        if selector_of(instruction) is not None:
            try:
                self._choose(index, instruction)
            except FuserError as error:
                error.add_note(_note(index, instruction))
                raise
            return
        try:
            choice = choice_of(instruction, self.sizes(decisions_of(instruction)))
        except FuserError as error:
            error.add_note(_note(index, instruction))
            raise
        for which, numbers in turns(instruction, choice):
            self.numbers.update(numbers)
            self._execute_one(index, instruction, which)
            for name in numbers:
                del self.numbers[name]

    def _execute_one(self, index: int, instruction: Instruction, which: int) -> None:
        """One body of an instruction, and the end of its memory."""
        self.execute_body(bodies_of(instruction)[which], list(body_numbers(index, instruction))[which])
        for root in self.program.facts.ends[index][which]:
            self._run_step(DeallocateStep(self.program.roots[root]))

    def _choose(self, index: int, instruction: Instruction) -> None:
        """A choice of the device: all bodies are bound, equal ones once, and one runs."""
        slot = selector_of(instruction)
        assert slot is not None
        tensor = self.tensors[slot]
        dtype = selector_dtype(slot, tensor.dtype, tensor.sizes)
        self._address(tensor)
        first = equal_bodies(instruction)
        is_condition = isinstance(instruction, If)
        if not any(first):
            # Nothing to choose. A selector out of range is told all the same.
            if not is_condition:
                look = selector_for(self.program, index, instruction, dtype, [NO_BODY] * len(first))
                self._run_step(SwitchStep(look, tensor.place, ()))
            self._execute_one(index, instruction, 0)
            return
        is_outermost = self.around is None
        if self.around is None:
            self.around = MemoryAround()
        around, outside, counts = self.around, self.body, self.counts
        made: list[BodySteps] = []
        numbers: dict[int, int] = {}
        for body in dict.fromkeys(first):
            self.body, self.counts = [], {}
            if is_outermost:
                around.body = body
            self._execute_one(index, instruction, body)
            numbers[body] = len(made) if self.body else NO_BODY
            if self.body:
                made.append(BodySteps(tuple(self.body), self.counts))
        self.body, self.counts = outside, counts
        if is_outermost:
            self.around = None
            shared = around.share()
            made = [body_on_roots(body, shared) for body in made]
            for root in shared:
                # It was needed to bind launches, and runs like this one will not have it.
                DeallocateStep(root).run(self.frame)
            self.frame.count({"allocations": len(shared), "deallocations": len(shared)})
            self.steps += around.made.values()
            self.count("allocations", len(around.made))
        if made or not is_condition:
            decider = selector_for(self.program, index, instruction, dtype, [numbers[body] for body in first])
            self._run_step(SwitchStep(decider, tensor.place, tuple(made)))
        if is_outermost:
            for root in around.ended:
                self._run_step(DeallocateStep(root))

    def execute(self, index: int, instruction: Instruction) -> None:
        """Bind one instruction without bodies and run the step, if it needs one."""
        step: InstructionStep | None
        match instruction:
            case Allocate(slot, shape, dtype, strides):
                sizes = self.sizes(shape)
                step = self._allocate(slot, sizes, row_major(sizes) if strides is None else self.sizes(strides), dtype)
            case Deallocate(slot):
                step = DeallocateStep(self.program.roots[slot])
            case Alias(slot, of, sizes, strides, offset):
                self._alias(slot, of, sizes, strides, offset)
                return
            case Copy(dst, src):
                step = self._copy(dst, src)
                self.count("copies")
            case Fill(slot, value):
                step = self._fill(slot, value)
                self.count("fills")
            case RequireDisjoint(slots, others):
                self._check_disjoint(slots, others)
                return
            case LaunchKernel(kernel):
                step = (
                    self._launch_raw(instruction) if kernel.plan is None else self._launch_planned(index, instruction)
                )
                self.count("skipped_launches" if step is None else "launches")
            case CallLibrary():
                step = self._call_library(instruction)
                self.count("skipped_launches" if step is None else "library_calls")
            case SetStream() | RecordEvent() | WaitEvent() if len(self.program.facts.streams) == 1:
                return  # all of it is in order
            case SetStream(stream):
                step = StreamStep(self.program.facts.streams.index(stream), stream not in self.begun)
                self.begun.add(stream)
            case RecordEvent(event):
                step = RecordStep(self.events.setdefault(event, len(self.events)))
            case WaitEvent(event):
                step = WaitStep(self.events[event])
            case Synchronize():
                step = SynchronizeStep()
            case If() | Switch() | ForLoop():
                raise InternalError("an instruction with bodies has no step", pass_name="interpreter")
            case _:
                assert_never(instruction)
        if step is not None:
            self._run_step(step)

    def _run_step(self, step: InstructionStep) -> None:
        if self.around is not None:
            # It runs with the choice that it is in.
            if not self.around.keeps(step, self.frame):
                self.body.append(step)
            return
        if isinstance(step, AllocateStep):
            self.count("allocations")
        elif isinstance(step, DeallocateStep):
            self.count("deallocations")
        self.do(step)
        self.steps.append(step)

    def do(self, step: InstructionStep) -> None:
        """Run a step that is bound."""
        self.frame.run(step)

    def count(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def _address(self, tensor: Tensor) -> int:
        """Address of the first element; a host array is copied to the device here."""
        storage = self.frame.storages[tensor.root]
        assert storage is not None
        if storage.pending is not None:
            from fuser.runtime.arrays.host_arrays import copy_in

            view = self.inputs[self.program.root_names[tensor.root]]
            copy_in(view, storage, self.device, self.framework, self.stream)
            self.frame.addresses[tensor.root] = storage.address
            self.steps.append(CopyInStep(tensor.root, storage.nbytes, view.address % KEPT_ALIGNMENT))
            self.copied_in += 1
        return storage.address + tensor.offset * tensor.dtype.itemsize

    def _allocate(
        self, slot: str, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: DataType
    ) -> InstructionStep:
        if any(n < 0 for n in sizes) or any(s < 0 for s in strides):
            raise InputRuntimeError(
                f"slot {slot!r} would have shape {list(sizes)} with strides {list(strides)}, and none may be negative"
            )
        root = self.program.roots[slot]
        self.tensors[slot] = Tensor(root, dtype, sizes, strides)
        nbytes = element_span(sizes, strides) * dtype.itemsize
        return AllocateStep(root, dtype, sizes, strides, nbytes, slot in self.program.facts.escaping)

    def _alias(
        self, slot: str, of: str, sizes: tuple[Size, ...] | None, strides: tuple[Size, ...] | None, offset: Size
    ) -> None:
        source = self.tensors[of]
        shape = source.sizes if sizes is None else self.sizes(sizes)
        if strides is not None:
            layout = self.sizes(strides)
        else:
            layout = source.strides if sizes is None else row_major(shape)
        (shift,) = self.sizes((offset,))
        tensor = Tensor(source.root, source.dtype, shape, layout, source.offset + shift)
        low, high = tensor.span
        first, last = self.tensors[self.program.root_names[source.root]].span
        if any(n < 0 for n in shape) or (low != high and not (first <= low and high <= last)):
            raise InputRuntimeError(
                f"alias {slot!r} with shape {list(shape)}, strides {list(layout)} and offset {shift} needs bytes "
                f"[{low}, {high}) of {of!r}, which has [{first}, {last})"
            )
        self.tensors[slot] = tensor

    def _copy(self, dst: str, src: str) -> InstructionStep | None:
        target, source = self.tensors[dst], self.tensors[src]
        if target.sizes != source.sizes:
            shapes = f"{src!r} of shape {list(source.sizes)} is copied to {dst!r} of shape {list(target.sizes)}"
            raise InputRuntimeError(shapes)
        if target.dtype is not source.dtype:
            dtypes = f"{src!r} of dtype {source.dtype.name} is copied to {dst!r} of dtype {target.dtype.name}"
            raise InputTypeError(dtypes)
        if 0 in target.sizes:
            return None
        self._address(target)
        self._address(source)
        nbytes: int | None = None
        if is_same_dense_layout(target.sizes, target.strides, source.strides):
            nbytes = element_span(target.sizes, target.strides) * target.dtype.itemsize
        return CopyStep(target.dtype, target.sizes, target.place, target.strides, source.place, source.strides, nbytes)

    def _check_disjoint(self, slots: Sequence[str], others: Sequence[str]) -> None:
        """Raise InputRuntimeError where one of `slots` shares bytes with another of them, or with one of `others`."""
        # Arrays of the caller may share memory. That of each host array, a copy, and what the program makes is its own.
        by_memory: dict[int | None, list[tuple[str, int, int]]] = {}
        for name in dict.fromkeys((*slots, *others)):
            tensor = self.tensors[name]
            view = self.inputs.get(self.program.root_names[tensor.root])
            is_callers = view is not None and not view.is_host
            base = view.address if view is not None and is_callers else 0
            low, high = tensor.span
            by_memory.setdefault(None if is_callers else tensor.root, []).append((name, base + low, base + high))
        for row in by_memory.values():
            for i, j in shared_memory(tuple((first, last) for _, first, last in row)):
                (one, *a), (other, *b) = row[i], row[j]
                if one in slots:
                    raise InputRuntimeError(
                        f"this program cannot run on these arguments: it was made for {one} and {other} in memory that does "
                        f"not overlap, but got bytes [{a[0]:#x}, {a[1]:#x}) and [{b[0]:#x}, {b[1]:#x})"
                    )

    def _fill(self, slot: str, value: Scalar) -> InstructionStep | None:
        import numpy as np

        from fuser.ir.ops.op_table import numpy_cast

        tensor = self.tensors[slot]
        if 0 in tensor.sizes:
            return None
        pattern = numpy_cast(np.asarray(scalar_as(value, tensor.dtype, slot)), tensor.dtype).tobytes()
        self._address(tensor)
        count: int | None = None
        if is_same_dense_layout(tensor.sizes, tensor.strides, tensor.strides):
            count = element_span(tensor.sizes, tensor.strides)
        return FillStep(tensor.dtype, tensor.sizes, tensor.place, tensor.strides, pattern, count)

    # --- launches -----------------------------------------------------------------------------------------------------

    def _number(self, arg: Argument) -> Scalar:
        if isinstance(arg, Int):
            return self.sizes((arg,))[0]
        return self.numbers[arg] if isinstance(arg, str) else arg

    def _is_of_caller(self, arg: Argument) -> TypeGuard[str]:
        """Whether an argument is a number that the caller gives; another one is known, the index of a loop too."""
        return isinstance(arg, str) and arg in self.program.facts.scalar_inputs

    def _launch_planned(self, index: int, instruction: LaunchKernel) -> InstructionStep | None:
        kernel, wanted = instruction.kernel, instruction.launch
        evaluation = evaluation_of(kernel)
        plan = evaluation.plan
        count = len(plan.tensor_arguments)
        tensors = [self.tensors[a] for a in instruction.args[:count] if isinstance(a, str)]
        numbers = instruction.args[count:]
        addresses = [self._address(t) for t in tensors]
        values = evaluation.evaluate(
            [t.sizes for t in tensors], [t.strides for t in tensors], addresses, [self._number(a) for a in numbers]
        )
        if wanted is not None:
            check_constraint(kernel.entry, wanted, values)
        if values.is_empty:
            return None
        cluster = plan.cluster if wanted is None or wanted.cluster is None else wanted.cluster
        # The kernel beside which this one runs, if that was launched: with nothing to do it is not.
        side = self.program.side_by_side.get(index)
        steps = self.steps if self.around is None else self.body
        last = next((s for s in reversed(steps) if not isinstance(s, AllocateStep)), None) if side else None
        before = last if isinstance(last, LaunchStep) and last.holds else None
        if side is not None:
            self.count("launches_beside" if before is not None else "launches_kept_apart")
        starts_next = any(side.starter == index for side in self.program.side_by_side.values())
        shares_sms = starts_next and leaves_room(values.grid, self.device.info)
        if before is not None:
            shares_sms = before.launch.shares_sms
        beside = before is not None
        launch = Launch(
            values.grid, values.block, values.shared_bytes, cluster, plan.cooperative, beside, shares_sms=shares_sms
        )
        if self._starts_early(kernel, launch):
            self.count("launches_early")
            launch = replace(launch, early=True)
        check_launch(kernel.entry, launch, self.device)
        parameters = evaluation.parameter_values(values)
        slot_of = {
            name: arg for name, arg in zip(plan.scalar_arguments, numbers, strict=True) if self._is_of_caller(arg)
        }
        return LaunchStep(
            kernel,
            launch,
            parameters.template,
            tuple((position, *tensors[argument].place) for position, argument in parameters.pointers),
            tuple((p, slot_of[name], dtype) for p, name, dtype in parameters.scalars if name in slot_of),
            tuple(
                (positions, n * w.dtype.itemsize)
                for positions, n, w in zip(parameters.workspaces, values.workspaces, plan.workspaces, strict=True)
            ),
            None if values.semaphores is None else (parameters.semaphores, values.semaphores),
            starts_next,
            *self._spans(instruction),
        )

    def _starts_early(self, kernel: CompiledKernel, launch: Launch) -> bool:
        """Whether a launch starts while the one before it on the stream ends; none of a body does, whose place is not known."""
        before = next((s for s in reversed(self.steps) if not isinstance(s, (AllocateStep, DeallocateStep))), None)
        if self.around is not None or not isinstance(before, LaunchStep) or not may_be_overlapped(before.kernel):
            return False
        return starts_early(kernel, launch, self.device.info)

    def _spans(self, instruction: LaunchKernel) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
        """What a launch reads, and what it writes, of its tensors."""
        written = output_positions(instruction)
        reads: list[Span] = []
        writes: list[Span] = []
        for position, arg in enumerate(instruction.args):
            if isinstance(arg, str) and arg in self.tensors:
                tensor = self.tensors[arg]
                if instruction.kernel.plan is None:
                    # Raw code may go from a pointer to anywhere in its memory.
                    tensor = self.tensors[self.program.root_names[tensor.root]]
                (writes if position in written else reads).append((tensor.root, *tensor.span))
        return tuple(reads), tuple(writes)

    def _launch_raw(self, instruction: LaunchKernel) -> InstructionStep:
        kernel, wanted = instruction.kernel, instruction.launch
        if wanted is None:
            raise LaunchError(f"kernel {kernel.entry} is raw source and needs launch=LaunchParams(...)")
        template: list[Scalar] = []
        pointers: list[tuple[int, int, int]] = []
        numbers: list[tuple[int, str, DataType | None]] = []
        for position, (parameter, arg) in enumerate(zip(kernel.parameters, instruction.args, strict=True)):
            template.append(0)
            if isinstance(parameter, RawParameter) and parameter.kind is RawKind.pointer and isinstance(arg, str):
                self._address(self.tensors[arg])
                pointers.append((position, *self.tensors[arg].place))
            elif self._is_of_caller(arg):
                numbers.append((position, arg, None))
            else:
                template[position] = self._number(arg)
        launch = wanted.launch()
        check_launch(kernel.entry, launch, self.device)
        reads, writes = self._spans(instruction)
        return LaunchStep(kernel, launch, tuple(template), tuple(pointers), tuple(numbers), reads=reads, writes=writes)

    def _call_library(self, instruction: CallLibrary) -> InstructionStep | None:
        read = [(name, self.tensors[slot]) for name, slot in named_tensors(instruction)]
        slots = {slot for _, slot in named_tensors(instruction)}
        numbers = {
            name: None if arg is None else self._number(arg)
            for name, arg in instruction.arguments
            if not (isinstance(arg, str) and arg in slots)
        }
        row = LIBRARY_OPS[instruction.op]
        written = [self.tensors[slot] for slot in instruction.outputs]
        call = LibraryCall(
            instruction.op,
            library_for(instruction.op, self.framework.kind, self.device),
            tuple(Operand(name, t.dtype, t.sizes, t.strides) for name, t in read),
            tuple(Operand(name, t.dtype, t.sizes, t.strides) for name, t in zip(row.outputs, written, strict=True)),
            tuple({**row.defaults, **numbers}.items()),
        )
        check_call(call)
        tensors = [t for _, t in read]
        for t in (*tensors, *written):
            self._address(t)
        if all(0 in t.sizes for t in written):
            return None
        self.history.note_call(call)
        reads = tuple((t.root, *t.span) for t in tensors)
        writes = tuple((t.root, *t.span) for t in written)
        return LibraryStep(call, tuple(t.place for t in (*tensors, *written)), reads, writes)

    # --- finish -------------------------------------------------------------------------------------------------------

    def finish(self) -> list[Any]:
        """Write updates back to host arrays and make the outputs."""
        program = self.program
        if self.copied_in:
            self.count("host_to_device", self.copied_in)
        self.frame.join()
        for name in program.facts.updates:
            view = self.inputs[name]
            storage = self.frame.storages[program.roots[name]]
            if view.is_host and storage is not None:
                from fuser.runtime.arrays.host_arrays import copy_back

                copy_back(view, storage, self.device, self.stream)
                self.count("device_to_host")
        made: dict[str, Any] = {}
        for name in program.outputs:
            if name not in made:
                made[name] = self._output(name)
        rejoin_streams(self.device, self.stream, self.joined)
        keep_until_done(self.device, self.stream, self.in_use)
        return [made[name] for name in program.outputs]

    def _output(self, name: str) -> Any:
        if name in self.inputs:
            return self.inputs[name].array
        tensor = self.tensors[name]
        storage = self.frame.storages[tensor.root]
        assert storage is not None
        if isinstance(self.framework, HostFramework) and storage.host is None and storage.pending is None:
            self.count("device_to_host")
        return self.framework.deliver(
            self.device, storage, tensor.dtype, tensor.sizes, tensor.strides, tensor.offset, self.stream
        )

    def bound(self) -> BoundProgram:
        """The steps of this run, for the launcher."""
        program = self.program
        position = {name: i for i, name in enumerate(program.inputs)}
        # One plan for a slot, however often it is returned: its array is made once.
        plans: dict[str, OutputPlan] = {}
        for name in program.outputs:
            if name in self.inputs:
                plans[name] = OutputPlan(position[name])
            else:
                t = self.tensors[name]
                plans[name] = OutputPlan(None, t.root, t.dtype, t.sizes, t.strides, t.offset)
        backs: list[tuple[int, int, int]] = []
        copied = {step.root: step.nbytes for step in self.steps if isinstance(step, CopyInStep)}
        for name in program.facts.updates:
            root = program.roots[name]
            if root in copied:
                backs.append((position[name], root, copied[root]))
        kinds: list[ArrayKind] = [v.kind for v in self.inputs.values()]
        return BoundProgram(
            program=program,
            history=self.history,
            steps=tuple(self.steps),
            outputs=tuple(plans[name] for name in program.outputs),
            counts=self.counts,
            device=self.device,
            framework=self.framework,
            kind=kinds[0] if kinds else "fuser",
            tensors={position[name]: view.dtype for name, view in self.inputs.items()},
            spans=tuple(
                (position[name], *Tensor(0, v.dtype, v.sizes, v.strides).span) for name, v in self.inputs.items()
            ),
            numbers={name: position[name] for name in self.numbers},
            backs=tuple(backs),
            roots=len(program.root_names),
            why_not=self._why_not_again(plans.values()),
            fixing=frozenset(position[name] for name in program.needs.fixing),
            sharing_matters=program.needs.sharing,
            alignment=program.needs.alignment,
            streams=len(program.facts.streams),
            synchronizes=program.facts.synchronizes or bool(program.facts.selectors),
            path=self._path(position) if program.needs.deciding else None,
        )

    def _path(self, position: dict[str, int]) -> Path:
        """What numbers decide, for inputs of the same key."""
        program = self.program
        sources = {s for i in walk(program.instructions) for d in decisions_of(i) for s in sources_of(d)}
        known: dict[Symbol, int] = {}
        positions: dict[Symbol, int] = {}
        for source in sources:
            if source.what == "scalar":
                # The index of a loop is no input.
                if source.slot in position:
                    positions[symbol_of(source)] = position[source.slot]
            elif source.slot in self.inputs and source.dim < len(self.inputs[source.slot].sizes):
                known[symbol_of(source)] = self.read(source)
        return Path(program.instructions, program.needs.deciding, known, positions)

    def _why_not_again(self, outputs: Iterable[OutputPlan]) -> str | None:
        """Why arguments of the same key must be looked at again, None if they need not."""
        views = list(self.inputs.values())
        if not views:
            return "no input is an array"
        first = views[0]
        if any(v.kind != first.kind or v.device != first.device for v in views):
            return "inputs of several libraries or devices"
        if first.kind == "jax":
            return "inputs of JAX"
        if first.kind == "interface":
            return "inputs of a library that is not known"
        if first.kind == "torch" and first.is_host:
            return "tensors of torch in host memory"
        if any(v.owner is not v.array for v in views):
            return "tensors that are conjugated or negated lazily"
        if sum(1 for _ in each_step(self.steps)) > _MAX_STEPS:
            return f"more than {_MAX_STEPS} steps"
        if any(name in self.inputs for name in self.numbers):
            return "an array that is used as a number as well"
        if first.is_host and any(p.input is None and p.root < len(self.program.inputs) for p in outputs):
            return "outputs that are views of inputs in host memory"
        return None


_size_functions: dict[tuple[Size, ...], SizeFunction] = {}


def _size_function(values: tuple[Size, ...]) -> SizeFunction:
    """The compiled form of a row of sizes. Expressions are interned, so the row itself is the key."""
    found = _size_functions.get(values)
    if found is None:
        found = _size_functions[values] = compile_sizes(values)
    return found
