"""Promoted accumulators: pairs (total, rest) of Floats that the lanes of warps join as Doubles. Part of expand_collectives.

    Before: Reduce((t11, t11_rest), compensated_add) over neighbouring threads of a block
    After:  wide = t11 + t11_rest;  Reduce((wide,), add);  t11 = Float(wide);  t11_rest = Float(wide - t11)

A step that joins two pairs takes two shuffles and seven additions, six of which depend on one another. A step of Doubles takes
the same shuffles and one addition, and a Double holds more digits than the pair. A value that is not finite has no
number as its rest: it is joined without one, so that it becomes what plain sums would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import Int
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, Literal, Load, Reduce, Stmt, Store
from fuser.lowering.combiners.compensated_sum import COMBINE
from fuser.lowering.combiners.join_partials import Joins
from fuser.lowering.parallel_axes import WARP, ParallelAxes

Double, Float = DataType.Double, DataType.Float


def is_promoted(r: Reduce, axes: ParallelAxes, *, are_flagged: bool = False) -> bool:
    """Whether threads of a warp that are neighbours join pairs of Floats, and go on with the result. `are_flagged`: or those of
    blocks, which post it.

    Blocks of a group or a cluster have lanes for each of many rows, and join few pairs a thread: as Doubles they take as long.
    """
    if r.combine != COMBINE or r.partials[0].dtype is not Float or (r.grid_axes and not are_flagged) or r.cluster_axes:
        return False
    reduced = [p for p in axes.active if p in r.block_axes]
    count, total = axes.count_of(reduced), axes.block_threads
    if not reduced or reduced != axes.active[: len(reduced)] or not (count.is_const and total.is_const):
        return False
    # Fewer threads make too few steps for what becoming Doubles takes.
    return count.value >= WARP and total.value % WARP == 0


def promoted(
    reduces: Sequence[Reduce], axes: ParallelAxes, joins: Joins, *, are_flagged: bool = False
) -> tuple[list[Stmt], list[Reduce], list[Stmt]]:
    """Statements before, the reductions to be made, and statements behind them. `are_flagged`: blocks post what
    they have."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    made: list[Reduce] = []
    for r in reduces:
        if not is_promoted(r, axes, are_flagged=are_flagged):
            made.append(r)
            continue
        total, rest = r.partials
        wide = Buffer(f"{total.name}_wide{axes.number()}", Double, MemoryType.local, total.size)

        def widen(e: Int, total: Buffer = total, rest: Buffer = rest, wide: Buffer = wide) -> list[Stmt]:
            is_number = Call("eq", (Load(rest, e), Load(rest, e)), Float, DataType.Bool)
            left = Call("where", (is_number, Load(rest, e), Literal(0.0, Float)), Float, Float)
            return [Store(wide, e, Call("add", (Cast(Load(total, e), Double), Cast(left, Double)), Double, Double))]

        def narrow(e: Int, total: Buffer = total, rest: Buffer = rest, wide: Buffer = wide) -> list[Stmt]:
            lost = Call("sub", (Load(wide, e), Cast(Load(total, e), Double)), Double, Double)
            return [Store(total, e, Cast(Load(wide, e), Float)), Store(rest, e, Cast(lost, Float))]

        before += [Allocate(wide), *joins.elements(r, widen)]
        after += joins.elements(r, narrow)
        made.append(replace(r, partials=(wide,), identity=(Literal(0.0, Double),), combine="add"))
    return before, made, after
