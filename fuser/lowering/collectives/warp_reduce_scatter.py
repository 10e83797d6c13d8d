"""Reduce-scatter over the lanes of a warp: of many sums, each lane ends up with one. Part of the pass expand_collectives.

An all-reduce takes five steps for each value, and all lanes end with all values. Here the lanes of a pair send each other
half of their values, and combine the other half: n values take n shuffles instead of 5 n. The remaining steps are those of
`warp_all_reduce` for one value.

    lane l of 32 has elements 0 .. n - 1          n a power of two up to 32, elements that are missing are identities
    16 apart   lanes below 16 keep elements 0 .. n/2 - 1, the others n/2 .. n - 1; and so on with half of them, 8 apart
    in the end lane l has element l // (32 / n)
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, const
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    Call,
    IndexValue,
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
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_shared_count
from fuser.lowering.parallel_axes import WARP, power_of_two
from fuser.records import record

MIN_ELEMENTS = 2
"""Values that are worth it."""


@record(eq=False)
class WarpScatterResult:
    """What lanes have: `one` is the reduction with a partial of one element, which is number `element` of all where it has so
    many; `copies` neighbouring lanes have the same."""

    one: Reduce
    element: Int
    copies: int


def may_reduce_scatter(r: Reduce) -> bool:
    """Whether the elements of a reduction can go to lanes of their own, and are enough for that."""
    size = r.partials[0].size
    return size.is_const and MIN_ELEMENTS <= size.value <= WARP and r.combine != "exp_sum" and not is_shared_count(r, 2)


def warp_reduce_scatter(combiner: PartialCombiner, r: Reduce, lane: Int) -> tuple[list[Stmt], WarpScatterResult]:
    """Statements for all lanes of a warp, and what each has then."""
    size = r.partials[0].size.value
    count = power_of_two(size)
    number = combiner.axes.number()
    held = tuple(Buffer(f"{p.name}_lanes{number}", p.dtype, MemoryType.local, const(count)) for p in r.partials)
    work = replace(r, partials=held)
    stmts: list[Stmt] = [Allocate(b) for b in held]
    for e in range(count):
        for b, p, identity in zip(held, r.partials, r.identity, strict=True):
            if e < size:
                stmts.append(Store(b, const(e), Load(p, const(e))))
            else:
                stmts.append(Store(b, const(e), identity, Role.initialise))
    left, offset = count, WARP // 2
    while offset >= 1:
        half = left // 2
        position = IndexValue(lane // offset % 2, DataType.Int32)
        is_upper = Call("eq", (position, Literal(1, DataType.Int32)), DataType.Int32, DataType.Bool)
        for e in range(max(half, 1)):
            got: list[Buffer] = []
            for b in held:
                mine, sent = Load(b, const(e)), Load(b, const(e))
                value: Value = sent
                other = Buffer(f"{b.name}_x{combiner.axes.number()}", b.dtype, MemoryType.local, ONE)
                stmts.append(Allocate(other))
                if half:
                    upper = Load(b, const(e + half))
                    value = Call("where", (is_upper, mine, upper), b.dtype, b.dtype)
                    stmts.append(Shuffle(other, ZERO, value, ShuffleKind.xor, const(offset)))
                    stmts.append(Store(b, const(e), Call("where", (is_upper, upper, mine), b.dtype, b.dtype)))
                else:
                    stmts.append(Shuffle(other, ZERO, value, ShuffleKind.xor, const(offset)))
                got.append(other)
            stmts += combiner.combine(work, const(e), tuple(Load(g, ZERO) for g in got))
        left, offset = max(half, 1), offset // 2
    alone = tuple(Buffer(f"{p.name}_alone{number}", p.dtype, MemoryType.local, ONE) for p in r.partials)
    for a, b in zip(alone, held, strict=True):
        stmts += [Allocate(a), Store(a, ZERO, Load(b, ZERO))]
    return stmts, WarpScatterResult(replace(r, partials=alone), lane // (WARP // count), WARP // count)
