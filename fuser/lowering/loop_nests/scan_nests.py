"""The storage of a scan in its loop nest: the carried value, the elements of a collective, and the collective.

One thread folds the whole dim:  carry = fold(carry, x[i]); y[i] = carry            at each element
Threads of a block share it:     values[...] = x[...] (the identity outside the tensor); then Scan(values, carry)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Scan as ScanExpr
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.integers.integers import ONE, Int, const
from fuser.ir.kernel.kernel import Axes, Buffer, Literal, Scan
from fuser.ir.ops.enums import THREAD_TYPES, MemoryType, ParallelType
from fuser.ir.ops.op_table import SCANS
from fuser.ir.schedule.scan_loops import check_scanned_order, collective_depth, scanned_positions
from fuser.lowering.context import LoweringContext
from fuser.records import record


@record(eq=False)
class ScanNest:
    """Registers of a scan.

    start       depth at which the carried value lives: outside every axis of the scanned dim
    depth       depth of the collective; that of the innermost statement, if there is none
    carry       what was folded so far, one element per kept axis in `carry_axes`
    axes        how the elements that the collective takes are in its `values`
    indexing    positions of the loops over elements of these arrays
    """

    expr: ScanExpr
    start: int
    depth: int
    combine: str
    identity: Literal
    carry: Buffer
    carry_axes: tuple[tuple[Group, Int], ...]
    axes: tuple[tuple[Group, Int], ...]
    collective: Scan | None
    indexing: frozenset[int]


def plan_scan(context: LoweringContext, expr: ScanExpr) -> ScanNest:
    """Registers and collective of a scan under its schedule.

    Raises SchedulingError for axes that are out of order, spread over blocks, or need a number of registers that depends on
    the sizes.
    """
    name = expr.output.name
    state = context.state(name)
    check_scanned_order(expr, state)
    loops = context.loops(name)
    positions = scanned_positions(expr, state)
    types = [state.parallel_type(axis) for axis in state.loop]
    depth, start = collective_depth(expr, state), positions[0]
    cluster = _cluster_axes(context, expr, depth)
    if context.sharing.positions[name] > depth:
        raise SchedulingError(
            f"the consumers of {name} share loop {depth} with it, which threads scan together: parallelize {name} before "
            "inlining it",
            location=expr.output.location,
        )

    def held(first: int) -> list[int]:
        """Loops from `first` on whose elements a thread holds apart."""
        return [
            k for k in range(first, len(loops)) if types[k] not in THREAD_TYPES and not loops[k].is_broadcast
            and loops[k].extent is not ONE
        ]  # fmt: skip

    threads = [k for k in positions if types[k].is_block]
    row = SCANS[expr.op]
    dtype = expr.output.dtype
    identity = Literal(row.identity(dtype), dtype)
    inside = held(depth)
    kept = [k for k in held(start) if k not in positions]
    outside = [k for k in kept if threads and k < depth]
    if outside:
        raise SchedulingError(
            f"{name}: the loop over {loops[outside[0]].name} stands between those of the scanned dim; reorder it",
            location=expr.output.location,
        )
    strides = _strides(expr, loops, inside if threads else ())
    carry_strides = _strides(expr, loops, kept)

    def registers(what: str, chosen: list[int]) -> Buffer:
        count = math.prod(loops[k].extent.value for k in chosen)
        return Buffer(f"{name}_{what}", dtype, MemoryType.local, const(count))

    carry = registers("carry", kept)
    collective: Scan | None = None
    if threads:
        tiles = [k for k in inside if k in positions and k < threads[0]]
        run = [k for k in inside if k in positions and k > threads[0]]
        if any(k < threads[-1] for k in run):
            raise SchedulingError(
                f"{name}: a loop over the scanned dim stands between two axes of its threads",
                location=expr.output.location,
            )

        def layout(chosen: list[int]) -> Axes:
            return tuple((loops[k].extent.value, strides[k]) for k in chosen)

        collective = Scan(
            registers("scan", inside),
            carry,
            row.combine,
            identity,
            tuple(types[k] for k in threads),
            layout(kept),
            layout(tiles),
            layout(run),
            name,
            cluster,
        )
    return ScanNest(
        expr,
        start,
        depth,
        row.combine,
        identity,
        carry,
        tuple((loops[k], const(carry_strides[k])) for k in kept),
        tuple((loops[k], const(strides[k])) for k in inside) if threads else (),
        collective,
        frozenset(inside if threads else kept),
    )


def _cluster_axes(context: LoweringContext, expr: ScanExpr, depth: int) -> tuple[ParallelType, ...]:
    """The grid axis that the blocks of a cluster scan along, if there is one: right outside the collective."""
    name = expr.output.name
    state = context.state(name)
    positions = scanned_positions(expr, state)
    spread = [k for k in positions if state.parallel_type(state.loop[k]).is_grid]
    if not spread:
        return ()
    axis = state.parallel_type(state.loop[spread[-1]])
    size = context.builder.cluster.get(axis)
    if len(spread) > 1 or size is None:
        raise SchedulingError(
            f"{name} is scanned along {axis.name}: blocks run in any order, a scan has to stay within one or within a cluster",
            location=expr.output.location,
        )
    inside = [k for k in positions if k > spread[0]]
    extent = context.loops(name)[spread[0]].extent
    if not inside or inside[0] != depth or not (extent.is_const and extent.value == size):
        raise SchedulingError(
            f"{name} is scanned along {axis.name}, a cluster of {size} blocks: that axis must have the extent {size} and stand "
            "right outside those of the threads and of what each of them holds",
            location=expr.output.location,
        )
    return (axis,)


def _strides(expr: ScanExpr, loops: Sequence[Group], chosen: Sequence[int]) -> dict[int, int]:
    """Strides of an array over some loops, the last one fastest."""
    strides: dict[int, int] = {}
    running = 1
    for k in reversed(chosen):
        extent = loops[k].extent
        if not extent.is_const:
            raise SchedulingError(
                f"{expr.output.name} would hold {extent} elements per thread along {loops[k].name}: that must be a constant",
                location=expr.output.location,
            )
        strides[k] = running
        running *= extent.value
    return strides
