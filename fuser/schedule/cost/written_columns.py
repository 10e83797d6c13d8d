"""Reductions of columns whose values are written as well, such as the gradients of an activation with that of a bias.

A pass that writes what it reads is pointwise work first. Loads in flight are not enough for it: each SM needs as many threads
as for a copy, since some compute and store meanwhile. So blocks fill whole waves, and a thread has half as many loads at once
as one that only adds up: its results take registers as well.

Where rows begin within a sector of memory, two blocks write a part of the same sector, and of the same line. Parts are joined
in L2 if both come before it is evicted, so what the resident blocks move, from their first row to their last, should fit there.
H200: gelu_bwd bf16 9973x4863 takes 191 us where that is all of it, 160 for 100 MB, 145 for 59, 125 for 30; relu_bwd f32 of
that shape 328, 271 (202 MB), 219 (59), 190 (30). Aligned rows do not depend on it.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.records import record
from fuser.schedule.cost.reduction_space import (
    LINE,
    LONG_BLOCK,
    RESIDENT,
    ReductionPlan,
    Space,
    ceil_div,
    even_unroll,
    flight_words,
    most_in_flight,
    power_of_two,
)

_JOIN = 2
"""Turns that take as long as a block's first loads and its join."""
_SHARE_OF_CACHE = 2
"""Resident blocks move at most this part of L2 (one in so many): reads and other blocks need the rest."""


@record
class _Shape:
    """Threads of a block along the kept and the reduced dims, blocks that share a column, waves of blocks, and their
    iterations."""

    across: int
    along: int
    parts: int
    waves: int
    iterations: int


def plan_written_columns(space: Space, device: DeviceInfo, columns: int) -> ReductionPlan:
    """The plan for a space of which values are written, with `columns` accesses along the kept dims; blocks may share them."""
    unroll = most_in_flight(space)
    rows = _rounded(space.reduced)
    # Wide blocks have few sectors in common with others; of aligned rows half a warp has whole lines as well, and few parts to
    # join (H200: gelu_bwd bf16 100003x256 in 264 blocks of 16 accesses side by side 51.8 us, of 8 56.3).
    widths = (WARP,) if space.ragged else (WARP // 2, WARP, LINE)
    shapes = [_shape(space, device, rows, columns, power_of_two(columns, 1, width), unroll) for width in widths]
    best = min(shapes, key=lambda s: s.iterations)
    unroll = even_unroll(ceil_div(ceil_div(rows, best.parts), best.along), unroll)
    reasons = [
        f"{columns} accesses a row, written as well: {best.across} threads along the kept dims, "
        f"{best.along} along the reduced ones"
    ]
    if best.parts > 1:
        aim = "move no more at once than L2 holds" if space.ragged else "fill whole waves"
        reasons.append(f"blocks {aim}: {best.parts} of them share a column, the last one joins their results")
    reasons.append(flight_words(space, device, unroll))
    return ReductionPlan(best.along, best.across, best.parts, unroll, tuple(reasons))


def _shape(space: Space, device: DeviceInfo, rows: int, columns: int, across: int, unroll: int) -> _Shape:
    """The blocks of `across` threads along the kept dims whose waves take the fewest turns."""
    along = power_of_two(ceil_div(rows, unroll), 1, LONG_BLOCK // across)
    turn = along * unroll
    lines = max(1, ceil_div(columns, across))
    resident = max(1, min(RESIDENT, device.max_threads_per_sm) // (along * across)) * device.sm_count
    # A part is an iteration at least; its loads wait as often as those that join all parts.
    most = max(1, min(ceil_div(rows, turn), math.isqrt(rows // unroll)))
    least = min(most, _least_parts(space, device, rows, turn, unroll)) if space.ragged else 1

    def found(parts: int) -> _Shape:
        waves = ceil_div(lines * parts, resident)
        of_wave = ceil_div(ceil_div(rows, parts), turn) + _JOIN
        return _Shape(across, along, parts, waves, waves * of_wave)

    best = found(least)
    waves, parts = best.waves, least
    while parts < most and waves * (_JOIN + 1) < best.iterations:
        parts = max(least, min(most, waves * resident // lines))
        best = min(best, found(parts), key=lambda s: s.iterations)
        waves += 1
    return best


def _rounded(rows: int) -> int:
    """Up to a quarter of a power of two: numbers of rows that are not far apart share a kernel."""
    step = max(1, 1 << rows.bit_length() >> 3)
    return ceil_div(rows, step) * step


def _least_parts(space: Space, device: DeviceInfo, rows: int, turn: int, unroll: int) -> int:
    """Parts of a column of which the resident blocks move no more than L2 holds.

    They are whole iterations, since the rest of one tests each access, and no fewer than the join takes.
    """
    at_once = device.sm_count * device.max_threads_per_sm * unroll
    moved = at_once * (space.bytes_per_step + space.vector * space.written)
    iterations = max(_JOIN, device.l2_bytes // _SHARE_OF_CACHE // moved)
    return ceil_div(rows, iterations * turn)
