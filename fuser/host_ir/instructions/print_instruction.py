"""Instructions of a host program as Python, for its text and for messages.

Kernels are named `kernels["<entry>_<first 8 digits of the content hash>"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from fuser.host_ir.instructions.bodies import walk
from fuser.host_ir.instructions.expressions import Size
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
    LibraryArgument,
    RecordEvent,
    RequireDisjoint,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
)
from fuser.ir.integers.integers import Int, Truth
from fuser.runtime.kernels.compiled_kernel import CompiledKernel


def kernel_label(kernel: CompiledKernel) -> str:
    """Short name of a kernel: entry and the start of its content hash."""
    return f"{kernel.entry}_{kernel.content_hash[:8]}"


def label_kernels(instructions: Sequence[Instruction]) -> dict[str, CompiledKernel]:
    """Each different kernel of a program by a name; equal labels of different kernels are told apart by a number."""
    found: dict[str, CompiledKernel] = {}
    known: set[int] = set()
    for instruction in walk(instructions):
        if isinstance(instruction, LaunchKernel) and id(instruction.kernel) not in known:
            known.add(id(instruction.kernel))
            label = base = kernel_label(instruction.kernel)
            number = 1
            while label in found:
                number += 1
                label = f"{base}_{number}"
            found[label] = instruction.kernel
    return found


def print_tuple(items: Sequence[str]) -> str:
    """Texts of items as that of a tuple."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _sizes(sizes: Sequence[Size]) -> str:
    return print_tuple([str(s) for s in sizes])


def print_instruction(instruction: Instruction, labels: Mapping[int, str] | None = None) -> str:
    """One instruction as Python. `labels` maps the id of a kernel to its name; without, the short name is used.

    Of an instruction with bodies it is the head: `If(extent('x', 0) < 4, ...)`.
    """
    match instruction:
        case Allocate(slot, shape, dtype, strides):
            more = "" if strides is None else f", {_sizes(strides)}"
            return f"Allocate({slot!r}, {_sizes(shape)}, {dtype!r}{more})"
        case Deallocate(slot):
            return f"Deallocate({slot!r})"
        case Alias(slot, of, sizes, strides, offset):
            parts = [repr(slot), repr(of)]
            if sizes is not None:
                parts.append(_sizes(sizes))
            if strides is not None:
                parts.append(f"strides={_sizes(strides)}")
            if not (isinstance(offset, int) and offset == 0):
                parts.append(f"offset={offset}")
            return f"Alias({', '.join(parts)})"
        case Copy(dst, src):
            return f"Copy({dst!r}, {src!r})"
        case Fill(slot, value):
            return f"Fill({slot!r}, {_number(value)})"
        case RequireDisjoint(slots, others):
            more = f", {print_tuple([repr(s) for s in others])}" if others else ""
            return f"RequireDisjoint({print_tuple([repr(s) for s in slots])}{more})"
        case LaunchKernel(kernel, args, launch):
            label = kernel_label(kernel) if labels is None else labels[id(kernel)]
            more = "" if launch is None else f", {launch!r}"
            words = print_tuple([_argument(a) for a in args])
            return f'LaunchKernel(kernels["{label}"], {words}{more})'
        case CallLibrary(op, outputs, arguments):
            given = ", ".join(f"{name!r}: {_library_argument(value)}" for name, value in arguments)
            return f"CallLibrary({op!r}, {print_tuple([repr(s) for s in outputs])}, {{{given}}})"
        case SetStream(name) | RecordEvent(name) | WaitEvent(name):
            return f"{type(instruction).__name__}({name!r})"
        case Synchronize():
            return "Synchronize()"
        case If() | Switch() | ForLoop():
            return f"{print_head(instruction)}, ...)"
        case _:
            assert_never(instruction)


def print_head(instruction: If | Switch | ForLoop) -> str:
    """The text of an instruction up to its bodies."""
    match instruction:
        case If(str() as slot) | Switch(str() as slot):
            return f"{type(instruction).__name__}({slot!r}"
        case If(condition):
            # True is what `a == b` of two expressions is, and refused.
            return f"If({int(condition.value) if isinstance(condition, Truth) else condition}"
        case Switch(selector):
            return f"Switch({selector}"
        case ForLoop(index, start, stop, step):
            return f"ForLoop({index!r}, {start}, {stop}, {step}"
        case _:
            assert_never(instruction)


def _argument(value: Argument) -> str:
    if isinstance(value, Int):
        return str(value)
    return repr(value) if isinstance(value, str) else _number(value)


def _library_argument(value: LibraryArgument) -> str:
    return "None" if value is None else _argument(value)


def _number(value: bool | int | float | complex) -> str:
    text = repr(value)
    # inf and nan have no literals.
    return (
        text if isinstance(value, int) or not ("inf" in text or "nan" in text) else f"{type(value).__name__}({text!r})"
    )
