"""Few rows that blocks share which post what they have: to the last block of a row by number, and that on to the last of all.

The blocks of a cluster join their parts sooner, but there are sixteen of them at most, and rows times blocks seldom come to all
processors. Posts take as long whatever the number of blocks, if all are on the device at once: some wait. A plain sum over
blocks has no need of a counter.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.schedule.reduction_space import ReductionPlan, Space

SUM_REGISTERS, WIDE_SUM_REGISTERS = 20, 32
"""Of a thread, beside what it reads in a turn: accesses of four registers."""


def posted_sums(space: Space, plan: ReductionPlan, device: DeviceInfo) -> int:
    """Blocks of an SM where those that share a sum of each of several rows post what they have; 0 where they do not fit."""
    shares = plan.grid_reduce > 1 and not (plan.cluster or plan.one_turn)
    is_plain = space.inner and not (space.heavy or space.held) and plan.block_iterate == 1 and plan.block_outer == 0
    if not shares or not is_plain or space.kept < 2:
        return 0
    registers = plan.unroll * space.bytes_per_step // 4 + (WIDE_SUM_REGISTERS if space.exact else SUM_REGISTERS)
    # As many whatever the number of rows: they share a kernel.
    each = min(device.registers_per_sm // registers, device.max_threads_per_sm) // plan.block_reduce
    return each if space.kept * plan.grid_reduce <= each * device.sm_count else 0
