"""What a host program must fulfil, and what follows from its text: checked once, when it is built.

Every slot has one definition (input, Allocate, Alias), is used after it and not after its Deallocate; what is read was
written; launches have the arguments, element types and sizes that their kernels declare; every output is a tensor that
outlives the program; what touches one memory on two streams is in order (`stream_order.py`). Inputs have no declared element
type: it follows from the kernels that take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, assert_never

from fuser.errors import DefinitionError, DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.accesses import output_positions
from fuser.host_ir.expressions import Size, sources_of
from fuser.host_ir.instructions import (
    Alias,
    Allocate,
    Argument,
    Copy,
    Deallocate,
    Fill,
    Instruction,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Synchronize,
    WaitEvent,
)
from fuser.host_ir.stream_order import Name, find_hazard, streams_of
from fuser.ir.dtypes import DataType
from fuser.ir.integers import Int
from fuser.ir.launch_plan import LaunchPlan
from fuser.records import record
from fuser.runtime.plan_evaluation import argument_dtypes
from fuser.runtime.raw_signature import RawKind, RawParameter


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
    """

    tensor_inputs: frozenset[str]
    scalar_inputs: frozenset[str]
    dtypes: dict[str, DataType]
    updates: tuple[str, ...]
    roots: dict[str, str]
    escaping: frozenset[str]
    streams: tuple[Name, ...] = (0,)
    synchronizes: bool = False


@dataclass(slots=True)
class _Slot:
    """What is known of a slot while walking the program."""

    root: str
    is_input: bool = False
    dtype: DataType | None = None
    rank: int | None = None
    is_live: bool = True
    is_written: bool = False  # kept on the root
    is_tensor: bool = False  # of inputs: used as a tensor
    is_scalar: bool = False  # of inputs: used as a number


@dataclass(slots=True)
class _Walk:
    slots: dict[str, _Slot] = field(default_factory=dict)
    updates: dict[str, None] = field(default_factory=dict)
    events: dict[Name, None] = field(default_factory=dict)
    index: int = -1
    instruction: Instruction | None = None

    def fail(self, message: str, kind: type[DefinitionError] = DefinitionRuntimeError) -> NoReturn:
        if self.instruction is None:
            raise kind(f"HostProgram: {message}")
        from fuser.host_ir.print import print_instruction

        raise kind(f"HostProgram, instruction {self.index}, {print_instruction(self.instruction)}: {message}")

    def define(self, name: object, slot: _Slot) -> None:
        if not isinstance(name, str) or not name:
            self.fail(f"a slot is named by a string that is not empty, got {name!r}", DefinitionTypeError)
        if name in self.slots:
            self.fail(f"slot {name!r} is defined twice")
        self.slots[name] = slot

    def use(self, name: object) -> _Slot:
        slot = self.slots.get(name) if isinstance(name, str) else None
        if slot is None:
            self.fail(f"slot {name!r} is not defined; defined are {', '.join(map(repr, self.slots)) or 'none'}")
        if not self.slots[slot.root].is_live:
            self.fail(f"slot {name!r} is used after the Deallocate of {slot.root!r}")
        return slot

    def use_tensor(self, name: object, dtype: DataType | None = None, rank: int | None = None) -> _Slot:
        slot = self.use(name)
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
        if not self.slots[slot.root].is_written:
            self.fail(f"slot {name!r} is read before anything was written to it")
        return slot

    def write(self, name: object, dtype: DataType | None = None, rank: int | None = None) -> _Slot:
        slot = self.use_tensor(name, dtype, rank)
        root = self.slots[slot.root]
        root.is_written = True
        if root.is_input:
            self.updates[slot.root] = None
        return slot

    def use_number(self, name: str) -> None:
        slot = self.use(name)
        if not slot.is_input:
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
        walk.define(name, _Slot(name, is_input=True, is_written=True))
    for walk.index, instruction in enumerate(instructions):
        if not isinstance(instruction, Instruction):
            walk.instruction = None
            walk.fail(
                f"instruction {walk.index} is a {type(instruction).__name__}, no instruction", DefinitionTypeError
            )
        walk.instruction = instruction
        _verify_instruction(walk, instruction)
    roots = {name: slot.root for name, slot in walk.slots.items()}
    _verify_order(walk, instructions, roots)
    walk.instruction = None
    for name in outputs:
        slot = walk.slots.get(name) if isinstance(name, str) else None
        if slot is None:
            walk.fail(f"output {name!r} is not defined; defined are {', '.join(map(repr, walk.slots)) or 'none'}")
        root = walk.slots[slot.root]
        if not root.is_live:
            walk.fail(f"output {name!r} was deallocated")
        if not root.is_written:
            walk.fail(f"output {name!r} was never written")
        slot.is_tensor = True
    escaping = frozenset(roots[n] for n in outputs)
    _verify_output_memory(walk, instructions, escaping)
    for name, slot in walk.slots.items():
        if slot.is_tensor:
            walk.slots[slot.root].is_tensor = True
        if slot.root != name and slot.dtype is not None:
            walk.slots[slot.root].dtype = walk.slots[slot.root].dtype or slot.dtype
    return ProgramFacts(
        frozenset(n for n in inputs if walk.slots[n].is_tensor),
        frozenset(n for n in inputs if walk.slots[n].is_scalar),
        {n: s.dtype for n, s in walk.slots.items() if s.dtype is not None},
        tuple(walk.updates),
        roots,
        escaping,
        streams_of(instructions),
        any(isinstance(i, Synchronize) for i in instructions),
    )


def _verify_order(walk: _Walk, instructions: Sequence[Instruction], roots: dict[str, str]) -> None:
    hazard = find_hazard(instructions, roots)
    if hazard is not None:
        walk.index, walk.instruction = hazard.second.index, hazard.second.instruction
        walk.fail(str(hazard))


def _verify_output_memory(walk: _Walk, instructions: Sequence[Instruction], escaping: frozenset[str]) -> None:
    """What goes out is memory of the caller's stream."""
    current: Name = 0
    for walk.index, instruction in enumerate(instructions):
        match instruction:
            case SetStream(stream):
                current = stream
            case Allocate(slot) if current != 0 and slot in escaping:
                walk.instruction = instruction
                walk.fail(f"the memory of slot {slot!r} goes out: allocate it on stream 0, not on stream {current!r}")
            case _:
                pass
    walk.instruction = None


def _stored(dtype: DataType) -> DataType:
    """Index tensors are int64 tensors."""
    return DataType.Int if dtype is DataType.Index else dtype


def _verify_instruction(walk: _Walk, instruction: Instruction) -> None:
    match instruction:
        case Allocate(slot, shape, dtype, strides):
            walk.check_layout(shape, strides)
            walk.define(slot, _Slot(slot, dtype=_stored(dtype), rank=len(shape), is_tensor=True))
        case Deallocate(slot):
            found = walk.use(slot)
            if found.is_input or found.root != slot:
                walk.fail(f"slot {slot!r} was not made by Allocate")
            found.is_live = False
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
        case RecordEvent(event):
            walk.events[event] = None
        case WaitEvent(event):
            if event not in walk.events:
                recorded = ", ".join(map(repr, walk.events)) or "none"
                walk.fail(f"event {event!r} is waited for, and nothing before has recorded it; recorded are {recorded}")
        case SetStream() | Synchronize():
            pass
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
    from fuser.ir.dtypes import from_numpy_name

    return from_numpy_name(parameter.dtype) if parameter.dtype else None
