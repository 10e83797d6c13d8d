"""Segmented reduction in a warp: neighbouring lanes join the parts of one result. Part of the pass expand_collectives.

P parts of each of E results for each of L lanes lie in memory, and the threads of a lane stand L apart in their warp. W of them
form a segment with one result: thread w of the segment adds up parts w, w + W, ..., as differences from the mean of part 0,
which all know. Then the W threads join by shuffles, and all of them divide once. One thread with all parts would wait for P
loads, and then for P additions in a row.

    d_k = mean_k - mean_0;  n = sum(n_k);  a = sum(n_k d_k);  b = sum(m2_k + n_k d_k^2)
    mean = mean_0 + a / n;  m2 = b - a^2 / n, and not below 0

Part 0 is one of those that are joined, so that b is at most as many times m2 as there are parts. It has values if any part has.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, Symbol, const
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    For,
    Literal,
    Load,
    Reduce,
    Role,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    Value,
)
from fuser.ir.op_table import compute_dtype
from fuser.lowering.collectives.block_reduce_scatter import Scatter
from fuser.lowering.combiners.join_partials import Joins
from fuser.lowering.combiners.welford import temporary
from fuser.lowering.parallel_axes import WARP

LEAST_PARTS = 8
"""Fewer are joined by one thread in the time of the shuffles."""
MOST_WORK = 1024
"""Parts that all threads of a block add up, also those that others have as well: all warps are busy with theirs (H200: batch
norm, channels last, f16 32x64x56x56, 512 threads with four each, 16.3 -> 16.6 us; 1x512x31x33, 128 with eight, 7.2 -> 6.7)."""


def warp_width(r: Reduce, scatter: Scatter, parts: int) -> int:
    """Threads that join a result together; 1 if one does it alone. Of statistics of Floats."""
    if (
        r.combine != "welford"
        or r.partials[0].dtype is not DataType.Float
        or not scatter.in_warps
        or parts < LEAST_PARTS
    ):
        return 1
    if not (scatter.lanes.is_const and scatter.threads.is_const) or WARP % scatter.lanes.value:
        return 1
    width = WARP // scatter.lanes.value
    while width > 1 and (parts % width or width * scatter.size > scatter.threads.value):
        width //= 2
    each = parts // width
    return width if each * scatter.threads.value * scatter.lanes.value <= MOST_WORK else 1


def segmented_warp_reduce(
    joins: Joins, r: Reduce, scatter: Scatter, parts: int, value: Callable[[int, Int], Value]
) -> list[Stmt]:
    """Set partials of one element to what `parts` have together, in every thread of a result: `value(i, k)` is partial i of
    part k of the result that the thread is for. All threads of the block come here."""
    mean, m2, count = r.partials
    real, integral, parts_each = m2.dtype, compute_dtype(count.dtype), const(parts // scatter.width)
    name = f"{r.name}_c{joins.axes.number()}"
    total = Buffer(f"{name}_total", count.dtype, MemoryType.local, ONE)
    moved = Buffer(f"{name}_moved", real, MemoryType.local, ONE)
    weight, share = temporary(f"{name}_weight", real), temporary(f"{name}_share", real)
    delta, pulled = temporary(f"{name}_delta", real), temporary(f"{name}_pulled", real)
    j: Symbol = joins.axes.symbol("k", parts_each)

    def part(i: int) -> Value:
        return value(i, scatter.position % scatter.width + j * scatter.width)

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), real, real)

    def of(b: Buffer) -> Load:
        return Load(b, ZERO)

    add = (
        Store(weight, ZERO, Cast(part(2), real)),
        Store(total, ZERO, Call("add", (of(total), part(2)), integral, count.dtype)),
        Store(delta, ZERO, call("sub", part(0), of(mean))),
        Store(pulled, ZERO, call("mul", of(delta), of(weight))),
        Store(moved, ZERO, call("add", of(moved), of(pulled))),
        Store(m2, ZERO, call("add", call("add", of(m2), part(1)), call("mul", of(pulled), of(delta)))),
    )
    is_empty = Call("eq", (of(total), Literal(0, count.dtype)), integral, DataType.Bool)
    inverse = call("div", Literal(1.0, real), Cast(of(total), real))
    left = call("sub", of(m2), call("mul", of(moved), of(pulled)))
    return [
        *(Allocate(b) for b in (total, moved, weight, share, delta, pulled)),
        Store(total, ZERO, Literal(0, count.dtype), Role.initialise),
        Store(mean, ZERO, value(0, ZERO)),
        *(Store(b, ZERO, Literal(0.0, real), Role.initialise) for b in (moved, m2)),
        For(j, ZERO, parts_each, ONE, add, unroll=True),
        *_added_up(joins, scatter, (moved, m2, total)),
        Store(share, ZERO, Call("where", (is_empty, Literal(0.0, real), inverse), real, real)),
        Store(count, ZERO, of(total)),
        Store(pulled, ZERO, call("mul", of(moved), of(share))),
        Store(m2, ZERO, call("maximum", left, Literal(0.0, real))),
        Store(mean, ZERO, call("add", of(mean), of(pulled))),
    ]


def _added_up(joins: Joins, scatter: Scatter, sums: tuple[Buffer, ...]) -> list[Stmt]:
    """Add up each of `sums` over the threads of a result, which all get the total."""
    stmts: list[Stmt] = []
    lanes = scatter.lanes.value
    offset = scatter.width * lanes // 2
    while offset >= lanes:
        number = joins.axes.number()
        got = [Buffer(f"{b.name}_x{number}", b.dtype, MemoryType.local, ONE) for b in sums]
        stmts += [Allocate(b) for b in got]
        stmts += [
            Shuffle(other, ZERO, Load(b, ZERO), ShuffleKind.xor, const(offset))
            for other, b in zip(got, sums, strict=True)
        ]
        for other, b in zip(got, sums, strict=True):
            total = Call("add", (Load(b, ZERO), Load(other, ZERO)), compute_dtype(b.dtype), b.dtype)
            stmts.append(Store(b, ZERO, total))
        offset //= 2
    return stmts
