"""How the loops of a scheduled scan divide the work: what one thread folds in order, and where threads join.

The axes that schedules make of the scanned dim are, from outside in,

    serial ...       steps: a value is carried from one to the next
    unroll ...       tiles that one collective takes at once,    } from the first of these on the result is complete only
    block ...        threads, in the order of their elements     } after the loops: what consumes it shares the loops
    serial ...       the run of a thread                         } outside them

Without a block axis one thread folds everything in the order of the loops, and each element is complete at once.
"""

from __future__ import annotations

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import IterDomain, Scan, Split
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.scheduled_fusion import TensorState

_TILES = (ParallelType.unroll, ParallelType.unswitch)


def scanned_positions(scan: Scan, state: TensorState) -> tuple[int, ...]:
    """Positions of the loop axes that were made of the scanned dim, in loop order."""
    return tuple(k for k, axis in enumerate(state.loop) if _is_made_from(axis, scan.axis))


def collective_depth(scan: Scan, state: TensorState) -> int:
    """The number of loops that stand around the collective; that of all loops, if one thread folds everything."""
    positions = scanned_positions(scan, state)
    first = next((i for i, k in enumerate(positions) if state.parallel_type(state.loop[k]).is_block), None)
    if first is None:
        return len(state.loop)
    while first and state.parallel_type(state.loop[positions[first - 1]]) in _TILES:
        first -= 1
    return positions[first]


def check_scanned_order(scan: Scan, state: TensorState) -> None:
    """Raise SchedulingError unless the axes made of the scanned dim are of it alone and in the order of its elements."""
    name = state.tensor.name
    places: list[tuple[int, ...]] = []
    for k in scanned_positions(scan, state):
        place = _place(state.loop[k], scan.axis)
        if place is None:
            raise SchedulingError(
                f"{name} is scanned along {scan.axis.name}, which cannot be merged with another dim",
                location=state.tensor.location,
            )
        places.append(place)
    if places != sorted(places):
        raise SchedulingError(
            f"{name} is scanned along {scan.axis.name}: the axes made of that dim must stay in the order of its elements",
            location=state.tensor.location,
        )


def _is_made_from(axis: IterDomain, dim: IterDomain) -> bool:
    if axis is dim:
        return True
    t = axis.definition
    if t is None:
        return False
    if isinstance(t, Split):
        return _is_made_from(t.source, dim)
    return _is_made_from(t.outer, dim) or _is_made_from(t.inner, dim)


def _place(axis: IterDomain, dim: IterDomain) -> tuple[int, ...] | None:
    """For each split from `dim` to the axis whether it is the outer (0) or the inner (1) part; None past a merge."""
    if axis is dim:
        return ()
    t = axis.definition
    if not isinstance(t, Split):
        return None
    place = _place(t.source, dim)
    return None if place is None else (*place, int(t.inner is axis))
