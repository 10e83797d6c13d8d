"""Reduce-scatter of statistics over the lanes of a warp: each lane ends up with some elements. Part of expand_collectives.

The same sums as `warp_all_reduce` makes of (mean, m2, count), and the same bits. But the lanes of a pair send each other half
of their elements, and join the other half, so that n elements take n shuffles of each sum in place of n for every step. The
differences from the first lane's mean are taken of all elements, the divisions of those that are left.

    lane l of 32, of which `stride` beside one another have values of their own; g = l // stride of G = 32 // stride
    n elements, a power of two: lane l has elements g * n / G ... (g + 1) * n / G - 1, or, if n < G, element g * n // G
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, const
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
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
from fuser.lowering.combiners.join_partials import Joins, is_common
from fuser.lowering.combiners.welford import temporary
from fuser.lowering.parallel_axes import WARP
from fuser.records import record


@record(eq=False)
class OwnStatistics:
    """What a lane has: `mean` and `m2` of `elements` elements from number `first` on, as `copies` lanes of its group have. The
    count of all is that of the reduction."""

    mean: Buffer
    m2: Buffer
    first: Int
    elements: int
    copies: int


def may_reduce_scatter_statistics(r: Reduce, stride: int) -> bool:
    """Whether lanes `stride` apart can have elements of their own, and that saves something."""
    size = r.partials[0].size
    if r.combine != "welford" or r.partials[0].dtype.is_complex or not is_common(r, 2) or not size.is_const:
        return False
    return size.value > 1 and size.value & (size.value - 1) == 0 and stride < WARP


def statistics_reduce_scatter(joins: Joins, r: Reduce, stride: int) -> tuple[list[Stmt], OwnStatistics]:
    """Statements for all lanes of a warp, and what each has then; the count of `r` is that of all lanes."""
    mean, m2, count = r.partials
    name, real, dtype, integral = f"{r.name}_s{joins.axes.number()}", m2.dtype, mean.dtype, compute_dtype(count.dtype)
    size = mean.size.value
    origin, sums, squares = (
        Buffer(f"{name}_{what}", d, MemoryType.local, mean.size)
        for what, d in (("origin", dtype), ("sums", dtype), ("squares", real))
    )
    away, share = temporary(f"{name}_away", dtype), temporary(f"{name}_share", real)
    lane = joins.axes.thread

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    stmts: list[Stmt] = [Allocate(b) for b in (origin, sums, squares, away, share)]
    for e in map(const, range(size)):
        weighed = call("mul", Load(away, ZERO), Cast(Load(count, ZERO), real), dtype)
        stmts += [
            Shuffle(origin, e, Load(mean, e), ShuffleKind.index, lane % stride, WARP),
            Store(away, ZERO, call("sub", Load(mean, e), Load(origin, e), dtype)),
            Store(sums, e, weighed),
            Store(squares, e, call("add", Load(m2, e), call("mul", Load(sums, e), Load(away, ZERO), real), real)),
        ]
    left, offset, copies, first = size, WARP // 2, 1, ZERO
    while offset >= stride:
        half = left // 2
        position = lane // offset % 2
        is_upper = Call(
            "eq",
            (IndexValue(position, DataType.Int32), Literal(1, DataType.Int32)),
            DataType.Int32,
            DataType.Bool,
        )
        for e in range(max(half, 1)):
            for b in (sums, squares):
                other = Buffer(f"{b.name}_x{joins.axes.number()}", b.dtype, MemoryType.local, ONE)
                stmts.append(Allocate(other))
                lower, upper = Load(b, const(e)), Load(b, const(e + half))
                sent = Call("where", (is_upper, lower, upper), b.dtype, b.dtype) if half else lower
                stmts.append(Shuffle(other, ZERO, sent, ShuffleKind.xor, const(offset)))
                mine = Call("where", (is_upper, upper, lower), b.dtype, b.dtype) if half else lower
                stmts.append(Store(b, const(e), call("add", mine, Load(other, ZERO), b.dtype)))
            if half:
                lower, upper = Load(origin, const(e)), Load(origin, const(e + half))
                stmts.append(Store(origin, const(e), Call("where", (is_upper, upper, lower), dtype, dtype)))
        other = Buffer(f"{count.name}_x{joins.axes.number()}", count.dtype, MemoryType.local, ONE)
        total = Call("add", (Load(count, ZERO), Load(other, ZERO)), integral, count.dtype)
        stmts += [
            Allocate(other),
            Shuffle(other, ZERO, Load(count, ZERO), ShuffleKind.xor, const(offset)),
            Store(count, ZERO, total),
        ]
        if half:
            first = first + position * half
        else:
            copies *= 2
        left, offset = max(half, 1), offset // 2
    is_empty = Call("eq", (Load(count, ZERO), Literal(0, count.dtype)), integral, DataType.Bool)
    quotient = call("div", Literal(1.0, real), Cast(Load(count, ZERO), real), real)
    stmts.append(Store(share, ZERO, Call("where", (is_empty, Literal(0.0, real), quotient), real, real)))
    for e in map(const, range(left)):
        rest = call("sub", Load(squares, e), call("mul", Load(sums, e), Load(away, ZERO), dtype), real)
        stmts += [
            Store(away, ZERO, call("mul", Load(sums, e), Load(share, ZERO), dtype)),
            Store(squares, e, call("maximum", rest, Literal(0.0, real), real)),
            Store(sums, e, call("add", Load(origin, e), Load(away, ZERO), dtype)),
        ]
    return stmts, OwnStatistics(sums, squares, first, left, copies)
