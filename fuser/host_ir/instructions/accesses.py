"""What an instruction reads and writes of the memory of its slots: said here, for the verifier and all passes.

Slots whose extents alone are asked are not in it. Making and ending memory is written as a write of it: what touches memory
must be in order with both. Bodies are looked at by themselves; what a choice reads itself is its selector.
"""

from __future__ import annotations

from typing import assert_never

from fuser.host_ir.instructions.bodies import selector_of
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
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
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.records import record
from fuser.runtime.kernels.plan_evaluation import argument_dtypes
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter


@record
class Accesses:
    """Slots by what is done to their memory. One may be in both."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


_NONE = Accesses()


def accesses_of(instruction: Instruction) -> Accesses:
    """What an instruction reads and writes."""
    match instruction:
        case Allocate(slot) | Deallocate(slot) | Fill(slot):
            return Accesses(writes=(slot,))
        case Copy(dst, src):
            return Accesses((src,), (dst,))
        case LaunchKernel():
            return _accesses_of_launch(instruction)
        case CallLibrary(_, outputs):
            return Accesses(tensors_of(instruction), outputs)
        case If() | Switch():
            selector = selector_of(instruction)
            return _NONE if selector is None else Accesses((selector,))
        case RequireDisjoint() | Alias() | SetStream() | RecordEvent() | WaitEvent() | Synchronize() | ForLoop():
            return _NONE
        case _:
            assert_never(instruction)


def _accesses_of_launch(instruction: LaunchKernel) -> Accesses:
    kernel = instruction.kernel
    written = output_positions(instruction)
    if kernel.plan is None:
        tensors = range(len(instruction.args))
        is_read = [isinstance(p, RawParameter) and p.kind is RawKind.pointer for p in kernel.parameters]
    else:
        tensors = range(len(kernel.plan.tensor_arguments))
        is_read = [dtype is not None for dtype in argument_dtypes(kernel)]
    reads: list[str] = []
    writes: list[str] = []
    for position in tensors:
        arg = instruction.args[position]
        if not isinstance(arg, str):
            continue
        if position in written:
            writes.append(arg)
        elif is_read[position]:
            reads.append(arg)
    return Accesses(tuple(reads), tuple(writes))


def tensors_of(instruction: CallLibrary) -> tuple[str, ...]:
    """Slots that a call reads as tensors."""
    return tuple(slot for _, slot in named_tensors(instruction))


def named_tensors(instruction: CallLibrary) -> list[tuple[str, str]]:
    """(parameter, slot) of each tensor that a call reads."""
    tensors = LIBRARY_OPS[instruction.op].tensors
    return [(name, arg) for name, arg in instruction.arguments if name in tensors and isinstance(arg, str)]


def output_positions(instruction: LaunchKernel) -> tuple[int, ...]:
    """Positions of the arguments that a launch writes."""
    kernel = instruction.kernel
    if kernel.plan is None:
        return tuple(
            i
            for i, (p, arg) in enumerate(zip(kernel.parameters, instruction.args, strict=False))
            if isinstance(p, RawParameter) and p.kind is RawKind.pointer and not p.is_const and isinstance(arg, str)
        )
    from fuser.ir.kernel.kernel import TensorParameter

    count = len(kernel.plan.tensor_arguments)
    found = set(range(count - len(kernel.plan.output_shapes), count))
    found.update(p.argument for p in kernel.parameters if isinstance(p, TensorParameter) and p.is_output)
    return tuple(sorted(found))
