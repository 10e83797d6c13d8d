"""A host program as data: its text, checked, and what follows from it. It is what is printed, inlined and bound to arguments;
`HostProgram` is one with the ways to run it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from fuser.errors import DefinitionTypeError
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.instructions.print_instruction import label_kernels
from fuser.host_ir.instructions.side_by_side import Beside, side_by_side
from fuser.host_ir.passes.key_needs import KeyNeeds, key_needs
from fuser.host_ir.passes.verify import ProgramFacts, verify_program
from fuser.records import record
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.source_location import caller_location


@record(eq=False)
class VerifiedProgram:
    """The text of a program, and what follows from it.

    kernels       every kernel by its short name
    root_names    memory that slots go back to, numbered: first the inputs, numbers too, then what Allocate makes
    roots         of each tensor slot the number of its memory
    side_by_side  launches of kernels that are made to run beside the one before, by number
    needs         what of arguments belongs to the key of a call
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    facts: ProgramFacts
    kernels: dict[str, CompiledKernel]
    root_names: tuple[str, ...]
    roots: dict[str, int]
    side_by_side: dict[int, Beside]
    needs: KeyNeeds


def verified_program(
    inputs: Iterable[str], outputs: Iterable[str], instructions: Iterable[Instruction]
) -> VerifiedProgram:
    """The program of a text. Raises DefinitionRuntimeError and DefinitionTypeError, naming the instruction, for one that is not
    well formed."""
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(names, str):
            raise DefinitionTypeError(
                f"HostProgram: {what} must be a sequence of names, got the text {names!r}: write ({names!r},)",
                location=caller_location(),
            )
    if isinstance(instructions, get_args(Instruction)):
        raise DefinitionTypeError(
            "HostProgram: instructions must be a sequence, got one "
            f"{type(instructions).__name__}: write ({type(instructions).__name__}(...),)",
            location=caller_location(),
        )
    inputs, outputs, instructions = tuple(inputs), tuple(outputs), tuple(instructions)
    facts = verify_program(inputs, outputs, instructions)
    root_names = tuple(dict.fromkeys(facts.roots.values()))
    return VerifiedProgram(
        inputs,
        outputs,
        instructions,
        facts,
        label_kernels(instructions),
        root_names,
        {slot: root_names.index(root) for slot, root in facts.roots.items()},
        side_by_side(instructions),
        key_needs(instructions, facts),
    )
