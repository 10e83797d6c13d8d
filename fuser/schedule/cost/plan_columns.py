"""Threads, blocks and unrolling of reductions of columns: neighbouring threads take neighbouring results."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import LINE_BYTES, WARP, DeviceInfo
from fuser.schedule.cost.reduction_space import (
    BLOCK,
    LINE,
    LONG_BLOCK,
    MAX_UNROLL,
    RESIDENT,
    ReductionPlan,
    Space,
    ceil_div,
    even_unroll,
    flight_words,
    most_in_flight,
    parts_of,
    power_of_two,
)
from fuser.schedule.cost.scratch_budget import scratch_bytes
from fuser.schedule.cost.written_columns import plan_written_columns

# Rows that one thread has on their way at once, whatever its accesses, and those that threads take side by side where columns
# are few.
FEW_ROWS = 16
_ROWS_OF_FEW = 4
# Turns of a block that take as long as sharing the work with others, of plain sums and of statistics or sums in Double.
_TURNS = 2.5
_TURNS_OF_HEAVY = 4.5
# Parts of a column's sum that one block joins in about the time in which others read what they are of (H200: f32 100003x64 with
# 264 parts of 64 columns 16.4 us, 66 of 32 columns 14.3).
_MOST_PARTS = 66
# Bytes of an access so short that a thread has statistics of few columns, and accesses of such threads at once.
_SHORT_ACCESS = 4
_SHORT_UNROLL = 8


def plan_columns(space: Space, device: DeviceInfo) -> ReductionPlan:
    """Neighbouring threads take neighbouring columns, the others of a block other rows. Without columns it is as with one."""
    columns = max(1, ceil_div(space.kept, space.vector))
    return _with_room(_plan_alone_or_shared(space, device, columns), space, device)


def _with_room(plan: ReductionPlan, space: Space, device: DeviceInfo) -> ReductionPlan:
    """The same with so few threads along the reduced dims that what they join fits in the shared memory of a block."""
    along, across = plan.block_reduce, plan.block_iterate
    # Blocks that share columns join what all of them have in the same way.
    while along > 1 and scratch_bytes(space.joined, across, along, space.vector) > device.shared_per_block_optin:
        along //= 2
    if along == plan.block_reduce:
        return plan
    words = (
        f"{plan.block_reduce} threads along the reduced dims would have more to join than shared memory holds: {along}"
    )
    return replace(plan, block_reduce=along, reasons=(*plan.reasons, words))


def _plan_alone_or_shared(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """Columns that a block has to itself, or shares with others, the last of which joins all parts."""
    if space.reduced <= FEW_ROWS:
        return _plan_few_rows(space, device, columns)
    if space.written and space.may_split and not space.heavy:
        return plan_written_columns(space, device, columns)
    unroll = most_in_flight(space)
    if space.heavy and space.bytes_per_step <= _SHORT_ACCESS:
        unroll = min(unroll, _SHORT_UNROLL)
    if (
        space.vector == 1
        and space.reduced <= _ROWS_OF_FEW * LONG_BLOCK // WARP
        and columns < 2 * WARP * device.sm_count
    ):
        return _plan_iteration(space, device, columns)
    wanted = device.sm_count
    across, may_split = _side_by_side(space, device, columns, unroll)
    # Blocks of which an SM has several have fewer threads to join each (H200: f64 432x5120 12.1 -> 10.3 us).
    several = not space.heavy and may_split is not space.may_split and ceil_div(columns, across) >= wanted
    is_small = several or (space.heavy and may_split is not space.may_split and across < _line(space))
    most = (BLOCK if is_small else LONG_BLOCK) // across
    along = power_of_two(ceil_div(space.reduced, unroll), 1, most)
    # Numbers of rows that are not far apart share a kernel.
    is_whole = may_split is not space.may_split and along * 4 > most and ceil_div(columns, across) < wanted
    along = most if is_whole else max(along, WARP // across)
    blocks = max(1, ceil_div(columns, across))
    grid = 1
    is_short = space.bytes_per_step <= _SHORT_ACCESS
    if may_split and blocks < wanted:
        # Two blocks on an SM, so that none is without one: not where a thread has statistics of many columns in its registers.
        alone = (space.heavy and not is_short) or space.misaligned or blocks * 10 >= wanted * 9
        alone = alone or wanted * RESIDENT // LONG_BLOCK // blocks > _MOST_PARTS
        resident = 1 if alone else RESIDENT // LONG_BLOCK
        grid = parts_of(max(1, wanted * resident // blocks), space.reduced, along * unroll)
        unroll = max(1, unroll // resident) if grid > 1 and not space.heavy else unroll
        if grid > 1 and grid * along * unroll > 2 * space.reduced:
            unroll = max(1, unroll // 2)
        of_thread = ceil_div(ceil_div(space.reduced, grid), along)
        if space.heavy and is_short and grid > 1 and unroll < of_thread <= MAX_UNROLL:
            # One turn rather than two (H200: bf16 6230x257 8.35 -> 7.9 us).
            unroll = of_thread + of_thread % 2
    reasons = [f"{columns} accesses a row: {across} threads along the kept dims, {along} along the reduced ones"]
    if grid > 1:
        reasons.append(
            f"{blocks} blocks of columns leave SMs idle: {grid} blocks share one, the last one joins their results"
        )
    if grid == 1 and not is_whole and space.heavy and not is_short:
        unroll = even_unroll(ceil_div(space.reduced, along), unroll)
    elif grid == 1 and not is_whole:
        unroll = min(unroll, power_of_two(ceil_div(space.reduced, along), 1, MAX_UNROLL))
    reasons.append(flight_words(space, device, unroll))
    return ReductionPlan(along, across, grid, unroll, tuple(reasons))


def _side_by_side(space: Space, device: DeviceInfo, columns: int, unroll: int) -> tuple[int, bool]:
    """Threads of a block along the kept dims, and whether several blocks may share their columns."""
    across, wanted = power_of_two(columns, 1, WARP), device.sm_count
    if ceil_div(columns, across) * 5 >= wanted * 4:
        return across, space.may_split
    alone = _alone(space, device, columns, unroll)
    if alone:
        return alone, False
    if space.heavy:
        return _narrow(space, columns, across, wanted), space.may_split
    if space.misaligned:
        return across, space.may_split
    across = min(across, WARP // 2)
    wide = ceil_div(columns, across)
    parts = wanted * RESIDENT // LONG_BLOCK // wide
    if space.may_split and across > LINE and parts > _MOST_PARTS:
        # Of few columns more last blocks have fewer parts to join.
        return LINE, True
    is_half = parts == RESIDENT // LONG_BLOCK and ceil_div(columns, LINE) >= wanted and wide * 10 < wanted * 9
    if space.may_split and across > LINE and is_half:
        # Narrow blocks have nothing to join (H200: f32 1331x7168 16.9 -> 15.7 us).
        return LINE, False
    return across, space.may_split


def _plan_few_rows(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """All rows of a column at once by one thread, or by a few where that would be few threads."""
    along = 1
    while along * _ROWS_OF_FEW < space.reduced and 2 * along * columns <= device.sm_count * RESIDENT:
        along *= 2
    across = max(1, power_of_two(ceil_div(columns, device.sm_count), WARP, BLOCK) // along)
    across = power_of_two(columns, 1, max(across, WARP))
    unroll = even_unroll(ceil_div(space.reduced, along), MAX_UNROLL)
    reasons = (
        f"{space.reduced} rows of {columns} accesses: {across} threads along the kept dims, {along} along the reduced ones",
        flight_words(space, device, unroll),
    )
    return ReductionPlan(along, across, 1, unroll, reasons)


def _plan_iteration(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """Little data, read element by element: an iteration of a few rows a thread. All threads of a warp have the same
    rows, so that they test them alike and need no exchange (H200: f64 31x257 in warps of four rows 8.2 us, of one
    4.5)."""
    along = power_of_two(ceil_div(space.reduced, _ROWS_OF_FEW), 1, LONG_BLOCK // WARP)
    unroll = even_unroll(ceil_div(space.reduced, along), MAX_UNROLL)
    reasons = (
        f"{space.reduced} rows of {columns} elements: {WARP} threads along the kept dims, {along} along the reduced ones",
        flight_words(space, device, unroll),
    )
    return ReductionPlan(along, WARP, 1, unroll, reasons)


def _alone(space: Space, device: DeviceInfo, columns: int, unroll: int) -> int:
    """Accesses side by side in a block that has all of its columns' rows to itself, though SMs stay idle; 0 where several
    blocks should share them.

    Blocks that publish, wait for the last one and join take as long as some iterations of a block.
    """
    line = _line(space)
    # Statistics take so long to join that half a line is better than half of the SMs (H200: f64 314x1000 8.5 us, 7.5).
    idle = 2 if space.heavy else 4
    across = line if ceil_div(columns, line) * idle >= device.sm_count else max(1, line // 2)
    if space.heavy and ceil_div(columns, across) * 10 >= device.sm_count * 19:
        # An SM has one such block at a time.
        across *= 2
    iterations = space.reduced / (unroll * (LONG_BLOCK // across))
    most = _TURNS_OF_HEAVY if space.heavy or space.exact else _TURNS
    return across if iterations <= most and across <= columns else 0


def _line(space: Space) -> int:
    """Neighbouring threads whose accesses make up a line of memory, or a warp."""
    return min(WARP, max(LINE, LINE_BYTES // max(1, space.bytes_per_step)))


def _narrow(space: Space, columns: int, across: int, wanted: int) -> int:
    """Accesses side by side in a block of statistics whose rows several share: a line, so that few have parts to join, if all
    SMs but one in thirty then have a block; else as many as give most of them one."""

    def used(width: int) -> int:
        lines = max(1, ceil_div(columns, width))
        # An SM has one such block at a time: others come when it is done.
        return lines * max(1, wanted // lines) if lines <= wanted else lines * 9 // (10 * ceil_div(lines, wanted))

    least = WARP // 2 if space.exact else _line(space)
    widths = [w for w in (LINE, WARP // 2, WARP) if least <= w <= across] or [across]
    most = max(map(used, widths))
    return next(w for w in widths if used(w) * 31 >= most * 30)
