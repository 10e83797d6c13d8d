"""What of a program's arguments belongs to the key of a call, beside how its tensors lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from fuser.host_ir.instructions.bodies import bodies_of, body_numbers, decisions_of, numbered
from fuser.host_ir.instructions.expressions import Size, SlotSource, sources_of
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    CallLibrary,
    ForLoop,
    If,
    Instruction,
    LaunchKernel,
    RequireDisjoint,
    Switch,
)
from fuser.host_ir.passes.verify import ProgramFacts
from fuser.ir.facts import Aligned, Disjoint
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.integers.integers import Int
from fuser.records import record
from fuser.runtime.kernels.plan_evaluation import evaluation_of


@record
class KeyNeeds:
    """What belongs to a key, or stands beside it.

    fixing     numbers that sizes, launches or host arithmetic depend on; the others only pass through to kernels
    sharing    whether it matters which inputs share memory: one is updated, or a kernel or the program assumes that two do not
    alignment  the largest of an address, in bytes, that a kernel assumes
    deciding   numbers of the instructions with bodies of which numbers of the caller decide: not those but what they decide
               stands beside the key. Where that, or whether they are reached, depends on what the program makes too, such
               as the index of a loop, they are fixing
    """

    fixing: frozenset[str]
    sharing: bool
    alignment: int
    deciding: frozenset[int] = frozenset()


def key_needs(instructions: Sequence[Instruction], facts: ProgramFacts) -> KeyNeeds:
    """Those of a program."""
    inputs = facts.tensor_inputs | facts.scalar_inputs
    deciding: set[int] = set()
    fixing: set[str] = set()
    sizes: list[Size] = []
    sharing = bool(facts.updates)
    alignment = 1
    for number, instruction, is_reached in _each(instructions, 0, inputs):
        match instruction:
            case LaunchKernel(kernel, args):
                sizes += [a for a in args if isinstance(a, Int)]
                if kernel.plan is None:
                    continue
                # Two arguments that are inputs, or views of them.
                sharing = sharing or any(isinstance(fact, Disjoint) for fact in kernel.facts)
                alignment = max((alignment, *(f.bytes for f in kernel.facts if isinstance(f, Aligned))))
                used = evaluation_of(kernel).fixing_scalars
                numbers = args[len(kernel.plan.tensor_arguments) :]
                for name, arg in zip(kernel.plan.scalar_arguments, numbers, strict=True):
                    if name in used and isinstance(arg, str):
                        fixing.add(arg)
            case RequireDisjoint():
                sharing = True
            case CallLibrary(op, _, arguments):
                tensors = LIBRARY_OPS[op].tensors
                sizes += [a for _, a in arguments if isinstance(a, Int)]
                fixing.update(a for name, a in arguments if isinstance(a, str) and name not in tensors)
            case Allocate(_, shape, _, strides):
                sizes += (*shape, *(strides or ()))
            case Alias(_, _, shape, strides, offset):
                sizes += (*(shape or ()), *(strides or ()), offset)
            case If() | Switch() | ForLoop():
                if not (is_reached and _is_of(inputs, instruction)):
                    sizes += decisions_of(instruction)
                elif any(source.what == "scalar" for source in _sources(instruction)):
                    deciding.add(number)
            case _:
                pass
    fixing.update(source.slot for size in sizes for source in sources_of(size) if source.what == "scalar")
    # The index of a loop is no number of the caller's.
    return KeyNeeds(frozenset(fixing & inputs), sharing, alignment, frozenset(deciding))


def _each(
    instructions: Sequence[Instruction], first: int, inputs: Set[str], *, is_reached: bool = True
) -> Iterator[tuple[int, Instruction, bool]]:
    """All there are with their numbers, and whether inputs alone say if one is reached."""
    for number, instruction in numbered(instructions, first):
        yield number, instruction, is_reached
        for body, start in zip(bodies_of(instruction), body_numbers(number, instruction), strict=True):
            yield from _each(body, start, inputs, is_reached=is_reached and _is_of(inputs, instruction))


def _is_of(inputs: Set[str], instruction: Instruction) -> bool:
    """Whether inputs alone decide which bodies run."""
    return all(source.slot in inputs for source in _sources(instruction))


def _sources(instruction: Instruction) -> list[SlotSource]:
    return [source for size in decisions_of(instruction) for source in sources_of(size)]
