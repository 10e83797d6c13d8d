"""What the interpreter needs to bind a choice of the device: a body may be the one, and so all of them are bound.

    Before:  Switch("k", ((Allocate(t), a(x, t), b(t, y)), (Allocate(t), Fill(y)), (Allocate(t), a(x, t), b(t, y))))
    After:   AllocateStep(t)             the larger of the two
             SwitchStep(k: bodies 0, 1, 0; a(x, t), b(t, y) | Fill(y))
             DeallocateStep(t)

Their memory is made before the choice and given back behind it, whichever runs: a graph can make none in a body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuser.errors import InputRuntimeError, InputTypeError
from fuser.host_ir.bodies import bodies_of, numbers_in
from fuser.host_ir.instructions import If, Instruction
from fuser.host_ir.steps import AllocateStep, DeallocateStep, Frame, InstructionStep
from fuser.host_ir.verify import is_selector_type
from fuser.ir.dtypes import DataType
from fuser.runtime.selectors import NO_BODY, Selector

if TYPE_CHECKING:
    from fuser.host_ir.program import HostProgram


@dataclass(slots=True, eq=False)
class MemoryAround:
    """Memory of the bodies of a choice, and of choices within them.

    made    by root: the largest that a body asks for, which all of them use
    ended   what ends with the choice
    """

    made: dict[int, AllocateStep] = field(default_factory=dict)
    ended: dict[int, None] = field(default_factory=dict)

    def keeps(self, step: InstructionStep, frame: Frame) -> bool:
        """Whether a step of a body is one about memory. What it makes is made now, for launches are bound to its addresses."""
        if isinstance(step, DeallocateStep):
            self.ended[step.root] = None
            return True
        if not isinstance(step, AllocateStep):
            return False
        self.ended.pop(step.root, None)
        earlier = self.made.get(step.root)
        if earlier is None or earlier.nbytes < step.nbytes:
            if earlier is not None:
                DeallocateStep(step.root).run(frame)
            step.run(frame)
            self.made[step.root] = step
        return True


def equal_bodies(instruction: Instruction) -> list[int]:
    """Of each body the number of the first that is equal to it."""
    bodies = [(body, numbers_in(body)) for body in bodies_of(instruction)]
    # Not by hash: launch sizes may be changed, and have none.
    return [bodies.index(body) for body in bodies]


def selector_dtype(slot: str, dtype: DataType, sizes: Sequence[int]) -> DataType:
    """That of the value. Raises InputTypeError and InputRuntimeError for a tensor that has none that could decide."""
    if not is_selector_type(dtype):
        raise InputTypeError(f"{slot!r} has dtype {dtype.name}, and what decides is an integer or a Bool")
    if any(n != 1 for n in sizes):
        raise InputRuntimeError(f"{slot!r} has shape {list(sizes)}, and what decides has one element")
    return DataType.Int if dtype is DataType.Index else dtype


def selector_for(
    program: HostProgram, index: int, instruction: Instruction, dtype: DataType, which: Sequence[int]
) -> Selector:
    """What decides in a program's instruction; `which` is, of each of its bodies, the number among those that are left."""
    from fuser.host_ir.print import print_instruction

    text = (
        f"instruction {index}, {print_instruction(instruction)}, of the host program "
        f"({', '.join(program.inputs)}) -> ({', '.join(program.outputs)})"
    )
    if isinstance(instruction, If):
        return Selector(text, dtype, tuple(which), NO_BODY, is_condition=True)
    return Selector(text, dtype, tuple(which[:-1]), which[-1])
