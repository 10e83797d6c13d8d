"""All-reduce over the lanes of a warp, by butterfly shuffles. Part of the pass expand_collectives.

Each lane exchanges its partials with the lane whose number differs in one bit, combines them, and continues with the next
bit. All lanes end with the same bits. The count, which all elements of statistics share, is exchanged once.

Statistics (mean, m2, n) first become sums of differences from a mean that all lanes know:

    d = mean - mean of the first lane;  a = n d;  b = m2 + n d^2;  n
    mean = mean of the first lane + a / n;  m2 = b - a^2 / n, and not below 0

so that a step is three additions, and no step divides. The mean of the first lane is one of the combined means; so b is at
most m2 times the number of combined lanes, which bounds its rounding. The first lane has the first values along the reduced
axes: it has some if any lane has.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, const
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    Cast,
    Literal,
    Load,
    Reduce,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
)
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_common
from fuser.lowering.combiners.combiner_values import compute, increment, safe_ratio, temporary
from fuser.lowering.combiners.exp_sum import exp_sum_scaled


def warp_all_reduce(combiner: PartialCombiner, r: Reduce, width: int, stride: int = 1) -> list[Stmt]:
    """Join the lanes of each aligned group of `width` that are a multiple of `stride` apart."""
    if r.combine == "exp_sum":
        return _of_pair(combiner, r, width, stride)
    if r.combine == "welford" and not r.partials[0].dtype.is_complex and width > stride:
        return _of_statistics(combiner, r, width, stride)
    if not is_common(r, 2):
        return combiner.elements(r, lambda e: _of_element(combiner, r, e, width, stride))
    stmts: list[Stmt] = []
    offset = width // 2
    while offset >= stride:
        lane = const(offset)
        number = combiner.axes.number()
        got = tuple(Buffer(f"{p.name}_x{number}", p.dtype, MemoryType.local, p.size) for p in r.partials)

        def shuffle(i: int, e: Int, got: tuple[Buffer, ...] = got, lane: Int = lane) -> list[Stmt]:
            return [Shuffle(got[i], e, Load(r.partials[i], e), ShuffleKind.xor, lane)]

        stmts += [*(Allocate(b) for b in got), *combiner.each(r, shuffle)]
        stmts += combiner.combine_each(r, lambda i, e, got=got: Load(got[i], e))
        offset //= 2
    return stmts


def _of_pair(combiner: PartialCombiner, r: Reduce, width: int, stride: int) -> list[Stmt]:
    """The maximum of all lanes first: then each scales its total once, and the totals are added."""
    largest = r.partials[0]
    old = Buffer(f"{largest.name}_own{combiner.axes.number()}", largest.dtype, MemoryType.local, largest.size)

    def alone(partial: int, combine: str) -> list[Stmt]:
        one = replace(r, partials=(r.partials[partial],), identity=(r.identity[partial],), combine=combine)
        return warp_all_reduce(combiner, one, width, stride)

    return [
        Allocate(old),
        *combiner.elements(r, lambda e: [Store(old, e, Load(largest, e))]),
        *alone(0, "maximum"),
        *combiner.elements(r, lambda e: exp_sum_scaled(r.partials, e, old)),
        *alone(1, "add"),
    ]


def _of_statistics(combiner: PartialCombiner, r: Reduce, width: int, stride: int) -> list[Stmt]:
    """Differences from the first lane's mean, sums of them over all lanes, and back."""
    mean, m2, count = r.partials
    name, real, dtype = f"{r.name}_l{combiner.axes.number()}", m2.dtype, mean.dtype
    origin = Buffer(f"{name}_origin", dtype, MemoryType.local, mean.size)
    away, share = temporary(f"{name}_away", dtype), temporary(f"{name}_share", real)
    first = combiner.axes.thread % stride

    def leave(e: Int) -> list[Stmt]:
        at = ZERO if is_common(r, 2) else e
        n = Cast(Load(count, at), real)
        weighed = compute("mul", dtype, Load(away, ZERO), n)
        return [
            Shuffle(origin, e, Load(mean, e), ShuffleKind.index, first, width),
            Store(away, ZERO, compute("sub", dtype, Load(mean, e), Load(origin, e))),
            Store(mean, e, weighed),
            Store(m2, e, compute("add", real, Load(m2, e), compute("mul", real, Load(mean, e), Load(away, ZERO)))),
        ]

    def divide(at: Int) -> list[Stmt]:
        return [Store(share, ZERO, safe_ratio(Literal(1.0, real), Load(count, at), real))]

    def come_back(e: Int) -> list[Stmt]:
        left = compute("sub", real, Load(m2, e), compute("mul", dtype, Load(mean, e), Load(away, ZERO)))
        return [
            *([] if is_common(r, 2) else divide(e)),
            Store(away, ZERO, compute("mul", dtype, Load(mean, e), Load(share, ZERO))),
            Store(m2, e, compute("maximum", real, left, Literal(0.0, real))),
            Store(mean, e, compute("add", dtype, Load(origin, e), Load(away, ZERO))),
        ]

    stmts: list[Stmt] = [*(Allocate(b) for b in (origin, away, share)), *combiner.elements(r, leave)]
    offset = width // 2
    while offset >= stride:
        lane, number = const(offset), combiner.axes.number()
        got = tuple(Buffer(f"{p.name}_x{number}", p.dtype, MemoryType.local, p.size) for p in r.partials)

        def shuffle(i: int, e: Int, got: tuple[Buffer, ...] = got, lane: Int = lane) -> list[Stmt]:
            return [Shuffle(got[i], e, Load(r.partials[i], e), ShuffleKind.xor, lane)]

        def add(i: int, e: Int, got: tuple[Buffer, ...] = got) -> list[Stmt]:
            p = r.partials[i]
            return [Store(p, e, increment(p, e, Load(got[i], e)))]

        stmts += [*(Allocate(b) for b in got), *combiner.each(r, shuffle), *combiner.each(r, add)]
        offset //= 2
    return [*stmts, *(divide(ZERO) if is_common(r, 2) else []), *combiner.elements(r, come_back)]


def _of_element(combiner: PartialCombiner, r: Reduce, at: Int, width: int, stride: int) -> list[Stmt]:
    """All lanes of each aligned group of `width`, a multiple of `stride` apart, end with what they have together."""
    stmts: list[Stmt] = []
    offset = width // 2
    while offset >= stride:
        received: list[Buffer] = []
        for partial in r.partials:
            number = combiner.axes.number()
            other = Buffer(f"{partial.name}_x{number}", partial.dtype, MemoryType.local, ONE)
            stmts += [
                Allocate(other),
                Shuffle(other, ZERO, Load(partial, at), ShuffleKind.xor, const(offset)),
            ]
            received.append(other)
        stmts += combiner.combine(r, at, tuple(Load(b, ZERO) for b in received))
        offset //= 2
    return stmts
