"""Which launches of a program run side by side, and what keeps others apart.

A kernel that is made to run beside the one before it (`LaunchPlan.co_resident`) does so where that one lets it start
(`LaunchPlan.starts_next`) and nothing but the making of slots stands between their launches: all else is put on the stream, or
gives memory back that the first may still use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.host_ir.instructions.bodies import bodies_of, body_numbers, numbered
from fuser.host_ir.instructions.instructions import Alias, Allocate, Instruction, LaunchKernel, RequireDisjoint
from fuser.ir.device_info import DeviceInfo
from fuser.records import record


@record
class Beside:
    """A launch whose kernel is made to run beside the one before it; numbers of instructions.

    starter  the launch beside which it runs, None if it is kept apart
    between  what keeps it apart: None where no launch before it lets another start
    """

    starter: int | None
    between: int | None = None


def side_by_side(instructions: Sequence[Instruction]) -> dict[int, Beside]:
    """Every launch of a kernel that is made to run beside another, by its number."""
    found: dict[int, Beside] = {}
    _find(instructions, 0, found)
    return found


def _find(instructions: Sequence[Instruction], first: int, found: dict[int, Beside]) -> None:
    starter: int | None = None
    between: int | None = None
    for index, instruction in numbered(instructions, first):
        if isinstance(instruction, (Allocate, Alias, RequireDisjoint)):
            continue
        if not isinstance(instruction, LaunchKernel):
            for body, start in zip(bodies_of(instruction), body_numbers(index, instruction), strict=True):
                _find(body, start, found)
            between = index if between is None else between
            continue
        plan = instruction.kernel.plan
        if plan is not None and plan.co_resident:
            apart = starter is None or between is not None
            found[index] = Beside(None if apart else starter, None if starter is None else between)
        starter = index if plan is not None and plan.starts_next else None
        between = None


def leaves_room(grid: tuple[int, int, int], device: DeviceInfo) -> bool:
    """Whether SMs with blocks of such a grid had better have blocks of the next kernel, too: it has one on each SM at most.

    Of more blocks all SMs are busy, and what makes room for others is cache that they lose (H200: layer_norm backward bf16
    500x16384 25.7 us, so 28.5).
    """
    return math.prod(grid) <= device.sm_count
