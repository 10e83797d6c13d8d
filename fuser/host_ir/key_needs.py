"""What of a program's arguments belongs to the key of a call, beside how its tensors lie."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.host_ir.expressions import Size, sources_of
from fuser.host_ir.instructions import Alias, Allocate, Instruction, LaunchKernel
from fuser.host_ir.verify import ProgramFacts
from fuser.ir.facts import Aligned, Disjoint
from fuser.ir.integers import Int
from fuser.records import record
from fuser.runtime.plan_evaluation import evaluation_of


@record
class KeyNeeds:
    """fixing     numbers that sizes, launches or host arithmetic depend on; the others only pass through to kernels
    sharing    whether it matters which inputs share memory: one is updated, or a kernel assumes that two do not
    alignment  the largest of an address, in bytes, that a kernel assumes
    """

    fixing: frozenset[str]
    sharing: bool
    alignment: int


def key_needs(instructions: Sequence[Instruction], facts: ProgramFacts) -> KeyNeeds:
    """Those of a program."""
    fixing: set[str] = set()
    sizes: list[Size] = []
    sharing = bool(facts.updates)
    alignment = 1
    for instruction in instructions:
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
            case _:
                pass
    fixing.update(source.slot for size in sizes for source in sources_of(size) if source.what == "scalar")
    return KeyNeeds(frozenset(fixing), sharing, alignment)
