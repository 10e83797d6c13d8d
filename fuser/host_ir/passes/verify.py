"""What a host program must fulfil, and what follows from its text: checked once, when it is built.

Every slot has one definition (input, Allocate, Alias), is used after it and not after its Deallocate; what is read was
written; launches have the arguments, element types and sizes that their kernels declare; every output is a tensor that
outlives the program; what touches one memory on two streams is in order (`stream_order.py`). Inputs have no declared element
type: it follows from the kernels that take them.

A body is checked like a program that begins with what is there before the instruction that it belongs to. Behind that stands
what every body leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, assert_never

from fuser.errors import DefinitionError, DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.accesses import named_tensors, output_positions
from fuser.host_ir.instructions.bodies import (
    bodies_of,
    body_numbers,
    decisions_of,
    is_selector_type,
    numbered,
    selector_of,
)
from fuser.host_ir.instructions.bodies import walk as each
from fuser.host_ir.instructions.expressions import Size, sources_of
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
from fuser.host_ir.instructions.print_instruction import print_instruction
from fuser.host_ir.passes.stream_order import Name, find_hazard, streams_of
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.integers.integers import Int
from fuser.ir.kernel.launch_plan import LaunchPlan
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.plan_evaluation import argument_dtypes
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter


@record
class ProgramFacts:
    """What follows from a program's text.

    tensor_inputs  inputs used as tensors
    scalar_inputs  inputs used as numbers
    dtypes         element type of every tensor slot where it is known (Index is Int)
    updates        inputs whose memory the program writes
    roots          each tensor slot's memory: the input or Allocate it goes back to
    escaping       roots that outputs show: their memory goes out
    streams        by number, as the program calls them; number 0 is the caller's
    synchronizes   whether the host waits within the program
    selectors      tensors that decide which bodies run
    ends           by number of an instruction with bodies: of each body the memory that ends with it
    """

    tensor_inputs: frozenset[str]
    scalar_inputs: frozenset[str]
    dtypes: dict[str, DataType]
    updates: tuple[str, ...]
    roots: dict[str, str]
    escaping: frozenset[str]
    streams: tuple[Name, ...] = (0,)
    synchronizes: bool = False
    selectors: frozenset[str] = frozenset()
    ends: dict[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Slot:
    """What is known of a slot while walking the program."""

    root: str
    is_input: bool = False
    dtype: DataType | None = None
    rank: int | None = None
    is_number: bool = False  # the index of a loop
    is_tensor: bool = False  # of inputs: used as a tensor
    is_scalar: bool = False  # of inputs: used as a number
    made: Allocate | None = None


@dataclass(slots=True)
class _Here:
    """What holds at one place of the program: slots by name, memory that was given back or written, events that were
    recorded, the stream that is turned to."""

    slots: dict[str, _Slot] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    events: dict[Name, None] = field(default_factory=dict)
    stream: Name = 0

    def copy(self) -> _Here:
        return _Here(dict(self.slots), dict(self.ended), dict(self.written), dict(self.events), self.stream)


@dataclass(slots=True)
class _Walk:
    here: _Here = field(default_factory=_Here)
    updates: dict[str, None] = field(default_factory=dict)
    # All events that ever were.
    recorded: dict[Name, None] = field(default_factory=dict)
    # All slots that ever were, and the memory that a name stands for.
    every: list[tuple[str, _Slot]] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    ends: dict[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    # Memory that is not the caller's stream's: who made it, and where.
    elsewhere: dict[str, tuple[int, Instruction, Name]] = field(default_factory=dict)
    # The choice by the device that the instructions at hand are in: its number and text.
    chosen_by: str | None = None
    index: int = -1
    instruction: Instruction | None = None

    @property
    def slots(self) -> dict[str, _Slot]:
        return self.here.slots

    def fail(self, message: str, kind: type[DefinitionError] = DefinitionRuntimeError) -> NoReturn:
        if self.instruction is None:
            raise kind(f"HostProgram: {message}")
        raise kind(f"HostProgram, instruction {self.index}, {print_instruction(self.instruction)}: {message}")

    def define(self, name: object, slot: _Slot) -> None:
        if not isinstance(name, str) or not name:
            self.fail(f"a slot is named by a string that is not empty, got {name!r}", DefinitionTypeError)
        if name in self.slots:
            self.fail(f"slot {name!r} is defined twice")
        self.slots[name] = slot
        self.every.append((name, slot))
        if not slot.is_number:
            other = self.roots.setdefault(name, slot.root)
            if other != slot.root:
                self.fail(f"slot {name!r} is memory of {slot.root!r} here and of {other!r} elsewhere: use two names")

    def use(self, name: object) -> _Slot:
        slot = self.slots.get(name) if isinstance(name, str) else None
        if not isinstance(name, str):
            kind = type(name).__name__
            self.fail(f"a slot is named by a text, got {kind}; arrays are handed to run", DefinitionTypeError)
        if slot is None:
            defined = f"defined are {', '.join(map(repr, self.slots)) or 'none'}"
            if any(other == name for other, _ in self.every):
                self.fail(
                    f"slot {name!r} is not defined here: it ended with the body that made it; {defined}. What is used behind "
                    "a body is made before it, or, by Allocate, alike in all bodies of an If or Switch"
                )
            self.fail(f"slot {name!r} is not defined; {defined}")
        if slot.root in self.here.ended:
            self.fail(f"slot {name!r} is used after the Deallocate of {slot.root!r}")
        return slot

    def use_tensor(self, name: object, dtype: DataType | None = None, rank: int | None = None) -> _Slot:
        slot = self.use(name)
        if slot.is_number:
            self.fail(f"slot {name!r} is the index of a loop, but a tensor is needed here")
        slot.is_tensor = True
        if dtype is not None:
            dtype = _stored(dtype)
            if slot.dtype is None:
                slot.dtype = dtype
            elif slot.dtype is not dtype:
                self.fail(f"slot {name!r} has dtype {slot.dtype.name}, but {dtype.name} is needed here")
        if rank is not None:
            if slot.rank is None:
                slot.rank = rank
            elif slot.rank != rank:
                self.fail(f"slot {name!r} has rank {slot.rank}, but rank {rank} is needed here")
        return slot

    def read(self, name: object, dtype: DataType | None = None) -> _Slot:
        slot = self.use_tensor(name, dtype)
        if slot.root not in self.here.written:
            self.fail(f"slot {name!r} is read before anything was written to it")
        return slot

    def write(self, name: object, dtype: DataType | None = None, rank: int | None = None) -> _Slot:
        slot = self.use_tensor(name, dtype, rank)
        self.here.written[slot.root] = None
        if self.slots[slot.root].is_input:
            self.updates[slot.root] = None
        return slot

    def use_number(self, name: str) -> None:
        slot = self.use(name)
        if not (slot.is_input or slot.is_number):
            self.fail(f"slot {name!r} is a tensor, but a number is needed here")
        slot.is_scalar = True

    def use_argument(self, arg: Argument) -> None:
        """An argument that is a number."""
        if isinstance(arg, str):
            self.use_number(arg)
        elif isinstance(arg, Int):
            self.use_sizes((arg,))

    def use_sizes(self, sizes: Sequence[Size]) -> None:
        for size in sizes:
            for source in sources_of(size):
                if source.what == "scalar":
                    self.use_number(source.slot)
                    continue
                slot = self.use_tensor(source.slot)
                if slot.rank is not None and source.dim >= slot.rank:
                    self.fail(f"{source.what}({source.slot!r}, {source.dim}): the slot has rank {slot.rank}")

    def check_layout(self, shape: Sequence[Size], strides: Sequence[Size] | None) -> None:
        self.use_sizes(shape)
        if strides is not None:
            self.use_sizes(strides)
            if len(strides) != len(shape):
                self.fail(f"{len(shape)} sizes but {len(strides)} strides")
        for n in shape:
            if isinstance(n, int) and n < 0:
                self.fail(f"size {n} is negative")
        for s in strides or ():
            if isinstance(s, int) and s < 0:
                self.fail(f"stride {s} is negative")


def verify_program(inputs: Sequence[str], outputs: Sequence[str], instructions: Sequence[Instruction]) -> ProgramFacts:
    """Check a program and return what follows from it.

    Raises DefinitionRuntimeError (DefinitionTypeError for objects of the wrong type) naming the instruction.
    """
    walk = _Walk()
    for name in inputs:
        walk.define(name, _Slot(name, is_input=True))
        walk.here.written[name] = None
    for index, instruction in enumerate(instructions):
        if not isinstance(instruction, Instruction):
            launched = ": write LaunchKernel(kernel, slots)" if isinstance(instruction, CompiledKernel) else ""
            kind = type(instruction).__name__
            walk.fail(f"instruction {index} is a {kind}, no instruction{launched}", DefinitionTypeError)
    _verify_body(walk, instructions, 0)
    hazard = find_hazard(instructions, walk.roots, walk.ends)
    if hazard is not None:
        walk.index, walk.instruction = hazard.second.index, hazard.second.instruction
        walk.fail(str(hazard))
    for name in outputs:
        slot = walk.slots.get(name) if isinstance(name, str) else None
        if slot is None:
            walk.fail(f"output {name!r} is not defined; defined are {', '.join(map(repr, walk.slots)) or 'none'}")
        if slot.root in walk.here.ended:
            walk.fail(f"output {name!r} was deallocated")
        if slot.root not in walk.here.written:
            walk.fail(f"output {name!r} was never written")
        slot.is_tensor = True
    escaping = frozenset(walk.roots[n] for n in outputs)
    for root, (index, instruction, stream) in walk.elsewhere.items():
        if root in escaping:
            walk.index, walk.instruction = index, instruction
            walk.fail(f"the memory of slot {root!r} goes out: allocate it on stream 0, not on stream {stream!r}")
    every = dict(walk.every)
    for _, slot in walk.every:
        if not slot.is_number:
            root_slot = every[slot.root]
            root_slot.is_tensor = root_slot.is_tensor or slot.is_tensor
            root_slot.dtype = root_slot.dtype or slot.dtype
    return ProgramFacts(
        frozenset(n for n in inputs if walk.slots[n].is_tensor),
        frozenset(n for n in inputs if walk.slots[n].is_scalar),
        {n: s.dtype for n, s in walk.every if s.dtype is not None},
        tuple(walk.updates),
        walk.roots,
        escaping,
        streams_of(instructions),
        any(isinstance(i, Synchronize) for i in each(instructions)),
        frozenset(slot for slot in map(selector_of, each(instructions)) if slot is not None),
        walk.ends,
    )


def _verify_body(walk: _Walk, body: Sequence[Instruction], first: int) -> None:
    for index, instruction in numbered(body, first):
        walk.index, walk.instruction = index, instruction
        _verify_instruction(walk, instruction)
    walk.instruction = None


def _verify_bodies(walk: _Walk, instruction: If | Switch | ForLoop) -> None:
    """Each body from what is there, and what all of them leave."""
    index, before = walk.index, walk.here
    is_loop = isinstance(instruction, ForLoop)
    walk.use_sizes(decisions_of(instruction))
    outer = walk.chosen_by
    selector = selector_of(instruction)
    if selector is not None:
        _verify_selector(walk, selector)
        walk.chosen_by = f"instruction {index}, {print_instruction(instruction)}"
    leaves: list[_Here] = []
    for body, first in zip(bodies_of(instruction), body_numbers(index, instruction), strict=True):
        walk.here = before.copy()
        if isinstance(instruction, ForLoop):
            walk.define(instruction.index, _Slot(instruction.index, is_number=True))
        _verify_body(walk, body, first)
        walk.index, walk.instruction = index, instruction
        if walk.here.stream != before.stream:
            walk.fail(
                f"a body begins on stream {before.stream!r} and ends on stream {walk.here.stream!r}: put "
                f"SetStream({before.stream!r}) at its end"
            )
        leaves.append(walk.here)
    walk.chosen_by = outer
    for name in before.slots:
        ended = sum(name in here.ended for here in leaves)
        if name not in before.ended and ended and (is_loop or ended < len(leaves)):
            walk.fail(
                f"slot {name!r} is deallocated in a body that may run {'again' if is_loop else 'or not'}: what was made "
                f"outside of it is deallocated outside{'' if is_loop else ', or in every body'}"
            )
    slots = dict(before.slots)
    if not is_loop:
        alike = {n: s for n, s in leaves[0].slots.items() if all(_is_alike(n, s, here) for here in leaves)}
        slots |= {n: s for n, s in alike.items() if n not in slots}
    walk.ends[index] = tuple(
        tuple(n for n, s in here.slots.items() if s.made is not None and n not in slots and n not in here.ended)
        for here in leaves
    )
    walk.here = _Here(
        slots,
        {n: None for n in leaves[0].ended if n in slots},
        {n: None for n in leaves[0].written if n in slots and all(n in here.written for here in leaves)},
        before.events if is_loop else {e: None for e in leaves[0].events if all(e in here.events for here in leaves)},
        before.stream,
    )


def _verify_selector(walk: _Walk, name: str) -> None:
    """A tensor of one element, an integer or a Bool, that was written."""
    slot = walk.use(name)
    if slot.is_number:
        walk.fail(f"slot {name!r} is the index of a loop, which the host knows: write scalar({name!r})")
    slot = walk.read(name)
    if slot.dtype is not None and not is_selector_type(slot.dtype):
        walk.fail(
            f"slot {name!r} has dtype {slot.dtype.name}, and what decides is an integer or a Bool", DefinitionTypeError
        )
    shape = () if slot.made is None else slot.made.shape
    if any(isinstance(n, int) and n != 1 for n in shape):
        walk.fail(f"slot {name!r} has shape {list(shape)}, and what decides has one element: make an Alias of it")


def _is_alike(name: str, slot: _Slot, here: _Here) -> bool:
    """Whether a slot that one body made is there, as it was made, behind another."""
    other = here.slots.get(name)
    return slot.made is not None and other is not None and other.made == slot.made and name not in here.ended


def _stored(dtype: DataType) -> DataType:
    """Index tensors are int64 tensors."""
    return DataType.Int if dtype is DataType.Index else dtype


def _verify_instruction(walk: _Walk, instruction: Instruction) -> None:
    if walk.chosen_by is not None and isinstance(instruction, (SetStream, RecordEvent, WaitEvent, Synchronize)):
        walk.fail(
            f"it stands in a body of {walk.chosen_by}, which the device chooses: a conditional node of a graph holds no "
            "streams, events or waits of the host. Put it before or behind that instruction"
        )
    match instruction:
        case Allocate(slot, shape, dtype, strides):
            walk.check_layout(shape, strides)
            walk.define(slot, _Slot(slot, dtype=_stored(dtype), rank=len(shape), is_tensor=True, made=instruction))
            if walk.here.stream != 0:
                walk.elsewhere[slot] = walk.index, instruction, walk.here.stream
        case Deallocate(slot):
            found = walk.use(slot)
            if found.is_input or found.root != slot:
                walk.fail(f"slot {slot!r} was not made by Allocate")
            walk.here.ended[slot] = None
        case Alias(slot, of, sizes, strides, offset):
            source = walk.use_tensor(of)
            if sizes is not None:
                walk.check_layout(sizes, strides)
            elif strides is not None:
                walk.fail("strides without sizes")
            walk.use_sizes((offset,))
            rank = source.rank if sizes is None else len(sizes)
            walk.define(slot, _Slot(source.root, dtype=source.dtype, rank=rank, is_tensor=True))
        case Copy(dst, src):
            source = walk.read(src)
            target = walk.write(dst, source.dtype, source.rank)
            if source.dtype is None and target.dtype is not None:
                walk.use_tensor(src, target.dtype)
            if dst == src:
                walk.fail("a slot is copied into itself")
        case Fill(slot, value):
            if not isinstance(value, (bool, int, float, complex)):
                walk.fail(f"a slot is filled with a number, got {value!r}", DefinitionTypeError)
            walk.write(slot)
        case RequireDisjoint(slots, others):
            for name in (*slots, *others):
                walk.use_tensor(name)
        case LaunchKernel(kernel, args, launch):
            if kernel.plan is None:
                if launch is None:
                    walk.fail(
                        f"kernel {kernel.entry} is raw source without a launch plan: pass launch=LaunchParams(...)"
                    )
                _verify_raw_launch(walk, instruction)
            else:
                _verify_planned_launch(walk, instruction, kernel.plan)
            del args
        case CallLibrary():
            _verify_call(walk, instruction)
        case RecordEvent(event):
            walk.here.events[event] = walk.recorded[event] = None
        case WaitEvent(event):
            if event not in walk.here.events:
                recorded = f"recorded are {', '.join(map(repr, walk.here.events)) or 'none'}"
                if event in walk.recorded:
                    walk.fail(
                        f"event {event!r} is waited for, and it may not have been recorded: a body does that, which may not "
                        f"run; {recorded}. Record it before that body too, or in all bodies of an If or Switch"
                    )
                walk.fail(f"event {event!r} is waited for, and nothing before has recorded it; {recorded}")
        case SetStream(stream):
            walk.here.stream = stream
        case Synchronize():
            pass
        case If() | Switch() | ForLoop():
            if isinstance(instruction, ForLoop) and instruction.step == 0:
                walk.fail("a loop has no steps of 0")
            _verify_bodies(walk, instruction)
        case _:
            assert_never(instruction)


def _verify_planned_launch(walk: _Walk, instruction: LaunchKernel, plan: LaunchPlan) -> None:
    args = instruction.args
    tensors, scalars = plan.tensor_arguments, plan.scalar_arguments
    if len(args) != len(tensors) + len(scalars):
        names = ", ".join((*tensors, *scalars))
        walk.fail(
            f"kernel {instruction.kernel.entry} takes {len(tensors) + len(scalars)} arguments ({names}), got {len(args)}"
        )
    dtypes = argument_dtypes(instruction.kernel)
    outputs = output_positions(instruction)
    for position, (name, arg) in enumerate(zip(tensors, args, strict=False)):
        if not isinstance(arg, str):
            walk.fail(f"argument {position} is the tensor {name}, got the number {arg!r}")
        if position in outputs:
            continue
        if dtypes[position] is None:
            walk.use_tensor(arg)  # only its extents are read
        else:
            walk.read(arg, dtypes[position])
    for position in outputs:
        which = position - (len(tensors) - len(plan.output_shapes))
        rank = len(plan.output_shapes[which]) if 0 <= which < len(plan.output_shapes) else None
        walk.write(args[position], dtypes[position], rank)
    for arg in args[len(tensors) :]:
        walk.use_argument(arg)


def _verify_call(walk: _Walk, instruction: CallLibrary) -> None:
    row = LIBRARY_OPS[instruction.op]
    given = dict(instruction.arguments)
    takes = f"{row.name} takes {', '.join(row.parameters)}"
    for name, value in given.items():
        if name not in row.parameters:
            walk.fail(f"there is no argument {name!r}: {takes}")
        if name in row.tensors and not isinstance(value, str):
            walk.fail(f"argument {name!r} is a tensor: give it a slot, not {value!r}")
    for name in row.tensors:
        if name not in given and name not in row.optional:
            walk.fail(f"argument {name!r} is missing: {takes}")
    if len(instruction.outputs) != len(row.outputs):
        names = ", ".join(row.outputs)
        walk.fail(
            f"{row.name} gives {len(row.outputs)} results ({names}), and {len(instruction.outputs)} slots are given"
        )
    tensors = named_tensors(instruction)
    for _, slot in tensors:
        walk.read(slot)
    for name, value in given.items():
        if name not in row.tensors and value is not None:
            walk.use_argument(value)
    roots = {walk.slots[slot].root for _, slot in tensors}
    for slot in instruction.outputs:
        written = walk.write(slot)
        if written.root in roots:
            walk.fail(f"slot {slot!r} is memory that the call reads: libraries write elsewhere")
        roots.add(written.root)


def _verify_raw_launch(walk: _Walk, instruction: LaunchKernel) -> None:
    parameters, args = instruction.kernel.parameters, instruction.args
    if len(parameters) != len(args):
        names = ", ".join(getattr(p, "name", "") or f"#{i}" for i, p in enumerate(parameters))
        walk.fail(f"kernel {instruction.kernel.entry} takes {len(parameters)} arguments ({names}), got {len(args)}")
    for position, (parameter, arg) in enumerate(zip(parameters, args, strict=True)):
        if not isinstance(parameter, RawParameter):
            walk.fail(f"kernel {instruction.kernel.entry} is raw source but declares {parameter!r}")
        _verify_raw_argument(walk, parameter, position, arg)


def _verify_raw_argument(walk: _Walk, parameter: RawParameter, position: int, arg: Argument) -> None:
    name = parameter.name or f"#{position}"
    match parameter.kind:
        case RawKind.pointer:
            if not isinstance(arg, str):
                walk.fail(f"parameter {name} is a {parameter.type_name}: give it a slot, not the number {arg!r}")
            dtype = raw_dtype(parameter)
            if parameter.is_const:
                walk.read(arg, dtype)
            else:
                walk.write(arg, dtype)
        case RawKind.scalar:
            walk.use_argument(arg)
        case RawKind.struct:
            walk.fail(f"parameter {name} is a {parameter.type_name}: host programs pass no structures")
        case _:
            assert_never(parameter.kind)


def raw_dtype(parameter: RawParameter) -> DataType | None:
    """Element type of the tensors a raw pointer may take; None where the declaration leaves it open.

    Vectors (`float4*`) take tensors of their element; types without tensors here (`unsigned char*`) take any.
    """
    from fuser.ir.ops.dtypes import from_numpy_name

    return from_numpy_name(parameter.dtype) if parameter.dtype else None
