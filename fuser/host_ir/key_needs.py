"""What of a program's arguments belongs to the key of a call, beside how its tensors lie."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.host_ir.bodies import decisions_of, walk
from fuser.host_ir.expressions import Size, sources_of
from fuser.host_ir.instructions import Alias, Allocate, ForLoop, If, Instruction, LaunchKernel, Switch
from fuser.host_ir.verify import ProgramFacts
from fuser.ir.facts import Aligned, Disjoint
from fuser.ir.integers import Int
from fuser.records import record
from fuser.runtime.plan_evaluation import evaluation_of


@record
class KeyNeeds:
    """What belongs to a key, or stands beside it.

    fixing     numbers that sizes, launches or host arithmetic depend on; the others only pass through to kernels
    sharing    whether it matters which inputs share memory: one is updated, or a kernel assumes that two do not
    alignment  the largest of an address, in bytes, that a kernel assumes
    deciding   instructions with bodies of which numbers decide: not the numbers but what they decide stands beside the key.
               Where they are compared with what the program makes, such numbers are fixing
    """

    fixing: frozenset[str]
    sharing: bool
    alignment: int
    deciding: tuple[If | Switch | ForLoop, ...] = ()


def key_needs(instructions: Sequence[Instruction], facts: ProgramFacts) -> KeyNeeds:
    """Those of a program."""
    inputs = facts.tensor_inputs | facts.scalar_inputs
    deciding: dict[If | Switch | ForLoop, None] = {}
    fixing: set[str] = set()
    sizes: list[Size] = []
    sharing = bool(facts.updates)
    alignment = 1
    for instruction in walk(instructions):
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
            case Allocate(_, shape, _, strides):
                sizes += (*shape, *(strides or ()))
            case Alias(_, _, shape, strides, offset):
                sizes += (*(shape or ()), *(strides or ()), offset)
            case If() | Switch() | ForLoop():
                sources = [source for size in decisions_of(instruction) for source in sources_of(size)]
                if not all(source.slot in inputs for source in sources):
                    sizes += decisions_of(instruction)
                elif any(source.what == "scalar" for source in sources):
                    deciding[instruction] = None
            case _:
                pass
    fixing.update(source.slot for size in sizes for source in sources_of(size) if source.what == "scalar")
    # The index of a loop is no number of the caller's.
    return KeyNeeds(frozenset(fixing & inputs), sharing, alignment, tuple(deciding))
