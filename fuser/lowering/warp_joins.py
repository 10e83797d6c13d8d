"""Joining the parts of one result by neighbours in a warp. Part of the pass expand_collectives.

P parts of each of E results for each of L lanes lie in memory, and the threads of a lane stand L apart in their warp. W of them
have a result each time: thread w of those adds up parts w, w + W, ..., as differences from the mean of part 0, which all know;
then the W meet by shuffles, and all of them divide once. One thread with all parts would wait for P additions in a row, and
before them for as many reads.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, const
from fuser.ir.kernel import Allocate, Buffer, Call, Load, Reduce, Shuffle, ShuffleKind, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.join_partials import Joins
from fuser.lowering.parallel_axes import WARP
from fuser.lowering.pool_once import pool_once
from fuser.lowering.spread_joins import Spread

LEAST_PARTS = 8
"""Fewer are joined by one thread in the time of the shuffles."""
MOST_WORK = 1024
"""Parts that all threads of a block add up, also those that others have as well: all warps are busy with theirs (H200: batch
norm, channels last, f16 32x64x56x56, 512 threads with four each, 16.3 -> 16.6 us; 1x512x31x33, 128 with eight, 7.2 -> 6.7)."""


def warp_width(r: Reduce, spread: Spread, parts: int) -> int:
    """Threads that join a result together; 1 if one does it alone. Of statistics of Floats, whose parts are pooled at once."""
    if (
        r.combine != "welford"
        or r.partials[0].dtype is not DataType.Float
        or not spread.in_warps
        or parts < LEAST_PARTS
    ):
        return 1
    if not (spread.lanes.is_const and spread.threads.is_const) or WARP % spread.lanes.value:
        return 1
    width = WARP // spread.lanes.value
    while width > 1 and (parts % width or width * spread.size > spread.threads.value):
        width //= 2
    each = parts // width
    return width if each * spread.threads.value * spread.lanes.value <= MOST_WORK else 1


def join_in_warps(
    joins: Joins, r: Reduce, spread: Spread, parts: int, value: Callable[[int, Int], Value]
) -> list[Stmt]:
    """Set partials of one element to what `parts` have together, in every thread of a result: `value(i, k)` is partial i of
    part k of the result that the thread is for. All threads of the block come here."""
    mine = spread.position % spread.width

    def part(i: int, _: Int, j: Int) -> Value:
        return value(i, mine + j * spread.width)

    def meet(sums: tuple[Buffer, ...]) -> list[Stmt]:
        stmts: list[Stmt] = []
        lanes = spread.lanes.value
        offset = spread.width * lanes // 2
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

    name = f"{r.name}_c{joins.axes.number()}"
    number = const(parts // spread.width)
    return pool_once(joins, r.partials, part, number, name, origin=value(0, ZERO), meet=meet)
