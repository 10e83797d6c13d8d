"""What differs between runs of a captured program on arguments that are alike: addresses of inputs and outputs, and numbers.

    launch 0 of (x, scratch, n)      x moves
    launch 1 of (scratch, y, lr)     y moves, and so does the number lr
    launch 2 of (scratch, scratch)   nothing does: its node is left as it is

A run on other tensors sets these arguments in the nodes that have some. It does without a recording, which asks each step anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fuser.host_ir.executors.recording import Recording
from fuser.host_ir.executors.steps import (
    AllocateStep,
    BoundProgram,
    DeallocateStep,
    LaunchStep,
    RecordStep,
    StreamStep,
    WaitStep,
)
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.runtime.arrays.storage import Storage
from fuser.runtime.kernels.commands import Changes, Command, KernelCommand
from fuser.runtime.kernels.plan_evaluation import scalar_as
from fuser.runtime.scalars import Scalar


@record(eq=False)
class _Launch:
    """`pointers`: (position, root, byte offset); `numbers`: (position, name, dtype)."""

    number: int
    pointers: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, str, DataType | None], ...]


class MovingArguments:
    """Those of one bound program. `outputs` are the steps that allocate what a caller gets."""

    def __init__(self, launches: Sequence[_Launch], outputs: Sequence[AllocateStep]) -> None:
        self._launches = tuple(launches)
        self.outputs = tuple(outputs)

    @staticmethod
    def of(bound: BoundProgram, recording: Recording) -> MovingArguments | None:
        """None where a run does more than launch, or gives views of inputs: that is recorded each time."""
        count = len(bound.types)
        launches: list[LaunchStep] = []
        outputs: list[AllocateStep] = []
        for step in bound.steps:
            match step:
                case LaunchStep():
                    launches.append(step)
                case AllocateStep(escapes=escapes):
                    outputs += [step] if escapes else []
                case DeallocateStep() | StreamStep() | RecordStep() | WaitStep():
                    pass
                case _:
                    return None
        commands = recording.commands
        if len(launches) != len(commands) or not all(isinstance(c, KernelCommand) for c in commands):
            return None
        made = {step.root for step in outputs}
        if any(plan.input is None and plan.root not in made for plan in bound.outputs):
            return None
        found: list[_Launch] = []
        for number, step in enumerate(launches):
            pointers = tuple(pointer for pointer in step.pointers if pointer[1] < count or pointer[1] in made)
            if pointers or step.numbers:
                found.append(_Launch(number, pointers, step.numbers))
        return MovingArguments(found, outputs)

    def changes(
        self, storages: Sequence[Storage | None], addresses: Sequence[int], numbers: dict[str, Scalar]
    ) -> list[Changes]:
        """The arguments of a run. `storages` by root, `addresses` of the inputs, which are the first roots.

        Raises InputTypeError for a number that a kernel does not take.
        """
        count = len(addresses)
        where = [addresses[k] if k < count else 0 if s is None else s.address for k, s in enumerate(storages)]
        return [
            (
                launch.number,
                [
                    *((position, where[root] + offset) for position, root, offset in launch.pointers),
                    *(
                        (position, numbers[name] if dtype is None else scalar_as(numbers[name], dtype, name))
                        for position, name, dtype in launch.numbers
                    ),
                ],
            )
            for launch in self._launches
        ]


def changed_commands(commands: Sequence[Command], changes: Iterable[Changes]) -> tuple[Command, ...]:
    """The commands of a recording with other arguments."""
    found = list(commands)
    for number, values in changes:
        command = found[number]
        assert isinstance(command, KernelCommand)
        found[number] = command.with_arguments(values)
    return tuple(found)
