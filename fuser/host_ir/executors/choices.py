"""What the interpreter needs to bind a choice of the device: a body may be the one, and so all of them are bound.

    Before:  Switch("k", ((Allocate(t), a(x, t), b(t, y)), (Allocate(u), c(x, u), d(u, y)), (Allocate(t), a(x, t), b(t, y))))
    After:   AllocateStep(u)             the larger of the two: one body runs
             SwitchStep(k: bodies 0, 1, 0; a(x, u), b(u, y) | c(x, u), d(u, y))
             DeallocateStep(u)

Their memory is made before the choice and given back behind it, whichever runs: a graph can make none in a body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from fuser.errors import InputRuntimeError, InputTypeError, InternalError
from fuser.host_ir.executors.steps import (
    AllocateStep,
    BodySteps,
    CopyStep,
    DeallocateStep,
    FillStep,
    Frame,
    InstructionStep,
    LaunchStep,
    LibraryStep,
    Place,
    Span,
    SwitchStep,
)
from fuser.host_ir.instructions.bodies import is_selector_type
from fuser.host_ir.instructions.instructions import If, Instruction
from fuser.host_ir.instructions.print_instruction import print_instruction
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.selectors import NO_BODY, Selector


@dataclass(slots=True, eq=False)
class MemoryAround:
    """Memory of the bodies of a choice, and of choices within them.

    made    by root: the largest that a body asks for, which all of them use
    ended   what ends with the choice
    body    the number of the body at hand
    """

    made: dict[int, AllocateStep] = field(default_factory=dict)
    ended: dict[int, None] = field(default_factory=dict)
    body: int = 0
    _bodies: dict[int, set[int]] = field(default_factory=dict)

    def keeps(self, step: InstructionStep, frame: Frame) -> bool:
        """Whether a step of a body is one about memory. What it makes is made now, for launches are bound to its addresses."""
        if isinstance(step, DeallocateStep):
            self.ended[step.root] = None
            return True
        if not isinstance(step, AllocateStep):
            return False
        self.ended.pop(step.root, None)
        self._bodies.setdefault(step.root, set()).add(self.body)
        earlier = self.made.get(step.root)
        if earlier is None or earlier.nbytes < step.nbytes:
            if earlier is not None:
                DeallocateStep(step.root).run(frame)
            step.run(frame)
            self.made[step.root] = step
        return True

    def share(self) -> dict[int, int]:
        """Let memory of one body be that of others, of which none runs then: of each root that has none of its own any more
        the one whose memory it is.

        The largest of each body are one memory, the second largest, and so on.
        """
        rows: dict[int, list[AllocateStep]] = {}
        for root in self.ended:
            step = self.made.get(root)
            if step is not None and len(self._bodies[root]) == 1:
                rows.setdefault(min(self._bodies[root]), []).append(step)
        for row in rows.values():
            row.sort(key=lambda step: -step.nbytes)
        shared: dict[int, int] = {}
        for together in zip_longest(*rows.values()):
            steps = [step for step in together if step is not None]
            host = max(steps, key=lambda step: step.nbytes)
            shared |= {step.root: host.root for step in steps if step is not host}
        for root in shared:
            del self.made[root], self.ended[root]
        return shared


def on_roots(step: InstructionStep, roots: Mapping[int, int]) -> InstructionStep:
    """A step of a body with the memory of other roots."""

    def place(at: Place) -> Place:
        return roots.get(at[0], at[0]), at[1]

    def spans(rows: Sequence[Span]) -> tuple[Span, ...]:
        return tuple((roots.get(root, root), first, end) for root, first, end in rows)

    match step:
        case CopyStep(dst=dst, src=src):
            return replace(step, dst=place(dst), src=place(src))
        case FillStep(dst=dst):
            return replace(step, dst=place(dst))
        case LaunchStep(pointers=pointers, reads=reads, writes=writes):
            moved = tuple((position, roots.get(root, root), offset) for position, root, offset in pointers)
            return replace(step, pointers=moved, reads=spans(reads), writes=spans(writes))
        case LibraryStep(places=places, reads=reads, writes=writes):
            return replace(step, places=tuple(map(place, places)), reads=spans(reads), writes=spans(writes))
        case SwitchStep(place=at, bodies=bodies):
            return replace(step, place=place(at), bodies=tuple(body_on_roots(body, roots) for body in bodies))
        case _:
            raise InternalError(f"a body has a {type(step).__name__}", pass_name="choices")


def body_on_roots(body: BodySteps, roots: Mapping[int, int]) -> BodySteps:
    """`on_roots` of all steps."""
    return BodySteps(tuple(on_roots(step, roots) for step in body.steps), body.counts)


def selector_dtype(slot: str, dtype: DataType, sizes: Sequence[int]) -> DataType:
    """That of the value. Raises InputTypeError and InputRuntimeError for a tensor that has none that could decide."""
    if not is_selector_type(dtype):
        raise InputTypeError(f"{slot!r} has dtype {dtype.name}, and what decides is an integer or a Bool")
    if any(n != 1 for n in sizes):
        raise InputRuntimeError(f"{slot!r} has shape {list(sizes)}, and what decides has one element")
    return DataType.Int if dtype is DataType.Index else dtype


def selector_for(
    program: VerifiedProgram, index: int, instruction: Instruction, dtype: DataType, which: Sequence[int]
) -> Selector:
    """What decides in a program's instruction; `which` is, of each of its bodies, the number among those that are left."""
    text = (
        f"instruction {index}, {print_instruction(instruction)}, of the host program "
        f"({', '.join(program.inputs)}) -> ({', '.join(program.outputs)})"
    )
    if isinstance(instruction, If):
        return Selector(text, dtype, tuple(which), NO_BODY, is_condition=True)
    return Selector(text, dtype, tuple(which[:-1]), which[-1])
