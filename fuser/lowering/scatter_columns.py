"""Sums of statistics over lanes of a warp that are some lanes apart: each ends up with a part of the results. Part of the pass
expand_collectives.

Lanes of a pair send each other half of what they have, and add the other half to theirs: of E results in Double and n = 4 lanes
E/2 + E/4 are exchanged, where butterflies exchange 2 E. Shuffles of 32 bits an SM makes one a cycle.

    lane l of those `stride` apart has results 0 .. E - 1
    16 apart   lanes below 16 keep results 0 .. E/2 - 1, the others E/2 .. E - 1; then, 8 apart, half of those; and so on
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, const
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    IndexValue,
    Literal,
    Load,
    Reduce,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    Value,
)
from fuser.ir.op_table import compute_dtype
from fuser.lowering.join_partials import Joins, is_common
from fuser.lowering.moments import MOMENTS
from fuser.lowering.parallel_axes import WARP
from fuser.lowering.shifted_sums import SHIFTED, to_first_lane


def may_scatter_columns(r: Reduce, stride: int) -> bool:
    """Whether lanes `stride` apart can have equal parts of the results: of sums of statistics with one count."""
    size = r.partials[0].size
    return r.combine in (MOMENTS, SHIFTED) and is_common(r, 2) and size.is_const and size.value % (WARP // stride) == 0


def scatter_columns(joins: Joins, r: Reduce, stride: int) -> tuple[list[Stmt], Int]:
    """Statements after which the first elements of a thread's partials are its results, and which one is the first.

    What results have in common all lanes have.
    """
    stmts: list[Stmt] = []
    if r.combine == SHIFTED:
        stmts += to_first_lane(
            r.partials, joins.axes.thread % stride, lambda make: joins.elements(r, make), joins.axes.number()
        )
    left, first, offset = r.partials[0].size.value, ZERO, WARP // 2
    while offset >= stride:
        half = left // 2
        bit = joins.axes.thread // offset % 2
        first = first + bit * half
        is_upper = Call(
            "eq", (IndexValue(bit, DataType.Int32), Literal(1, DataType.Int32)), DataType.Int32, DataType.Bool
        )
        for i, p in enumerate(r.partials):
            dtype = p.dtype
            if is_common(r, i):
                got = Buffer(f"{p.name}_x{joins.axes.number()}", dtype, MemoryType.local, ONE)
                stmts += [Allocate(got), Shuffle(got, ZERO, Load(p, ZERO), ShuffleKind.xor, const(offset))]
                stmts.append(_added(p, ZERO, Load(p, ZERO), Load(got, ZERO)))
                continue
            for e in range(half):
                low, high = Load(p, const(e)), Load(p, const(e + half))
                kept = Call("where", (is_upper, high, low), dtype, dtype)
                if i == 3:
                    # All lanes have the same shifts.
                    stmts.append(Store(p, const(e), kept))
                    continue
                got = Buffer(f"{p.name}_x{joins.axes.number()}", dtype, MemoryType.local, ONE)
                sent = Call("where", (is_upper, low, high), dtype, dtype)
                stmts += [Allocate(got), Shuffle(got, ZERO, sent, ShuffleKind.xor, const(offset))]
                stmts.append(_added(p, const(e), kept, Load(got, ZERO)))
        left, offset = half, offset // 2
    return stmts, first


def _added(p: Buffer, at: Int, own: Value, other: Value) -> Store:
    return Store(p, at, Call("add", (own, other), compute_dtype(p.dtype), p.dtype))
