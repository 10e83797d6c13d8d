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

from collections.abc import Callable
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, const, less
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    Cast,
    If,
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
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_shared_count
from fuser.lowering.combiners.combiner_values import (
    accumulate,
    compute,
    increment,
    safe_ratio,
    subtract_square,
    temporary,
)
from fuser.lowering.combiners.exp_sum import exp_sum_scaled
from fuser.lowering.parallel_axes import WARP


def warp_all_reduce(combiner: PartialCombiner, r: Reduce, width: int, stride: int = 1) -> list[Stmt]:
    """Join the lanes of each aligned group of `width` that are a multiple of `stride` apart."""
    if width <= stride:
        return []
    if r.combine == "exp_sum":
        return _all_reduce_exp_sum(combiner, r, width, stride)
    if r.combine == "welford":
        return _all_reduce_welford(combiner, r, width, stride)
    return combiner.elements(r, lambda e: _all_reduce_element(combiner, r, e, width, stride))


def warp_combine(
    combiner: PartialCombiner, r: Reduce, value: Callable[[int, Int, Int], Value], parts: int, width: int = WARP
) -> list[Stmt]:
    """Set the partials of each lane to the combination of `parts` values: `value(i, e, k)` is the k-th.

    The lanes of each aligned group of `width` load one value each, and then combine them; more than `width` values only for a
    whole warp.
    """
    lane = combiner.axes.thread % width
    stmts = [] if parts >= width else combiner.clear(r)
    first = combiner.load(r, lambda i, e: value(i, e, lane))
    stmts += first if parts >= width else [If(less(lane, parts), tuple(first), role=Role.predicate)]
    for start in range(WARP, parts, WARP):
        number = lane + start
        more = combiner.combine_each(r, lambda i, e, number=number: value(i, e, number))
        stmts += more if start + WARP <= parts else [If(less(number, parts), tuple(more), role=Role.predicate)]
    return [*stmts, *warp_all_reduce(combiner, r, width)]


def _all_reduce_exp_sum(combiner: PartialCombiner, r: Reduce, width: int, stride: int) -> list[Stmt]:
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


def _all_reduce_welford(combiner: PartialCombiner, r: Reduce, width: int, stride: int) -> list[Stmt]:
    """Differences from the first lane's mean, sums of them over all lanes, and back."""
    mean, m2, count = r.partials
    name, dtype = f"{r.name}_l{combiner.axes.number()}", mean.dtype
    origin = Buffer(f"{name}_origin", dtype, MemoryType.local, mean.size)
    away, share = temporary(f"{name}_away", dtype), temporary(f"{name}_share", dtype)
    first = combiner.axes.thread % stride

    def shift_to_origin(e: Int) -> list[Stmt]:
        at = ZERO if is_shared_count(r, 2) else e
        n = Cast(Load(count, at), dtype)
        weighed = compute("mul", dtype, Load(away, ZERO), n)
        return [
            Shuffle(origin, e, Load(mean, e), ShuffleKind.index, first, width),
            Store(away, ZERO, compute("sub", dtype, Load(mean, e), Load(origin, e))),
            Store(mean, e, weighed),
            accumulate(m2, e, compute("mul", dtype, Load(mean, e), Load(away, ZERO))),
        ]

    def divide(at: Int) -> list[Stmt]:
        return [Store(share, ZERO, safe_ratio(Literal(1.0, dtype), Load(count, at), dtype))]

    def shift_back(e: Int) -> list[Stmt]:
        return [
            *([] if is_shared_count(r, 2) else divide(e)),
            Store(away, ZERO, compute("mul", dtype, Load(mean, e), Load(share, ZERO))),
            subtract_square(m2, e, Load(mean, e), Load(away, ZERO)),
            Store(mean, e, compute("add", dtype, Load(origin, e), Load(away, ZERO))),
        ]

    stmts: list[Stmt] = [*(Allocate(b) for b in (origin, away, share)), *combiner.elements(r, shift_to_origin)]
    offset = width // 2
    while offset >= stride:
        lane, number = const(offset), combiner.axes.number()
        got = tuple(Buffer(f"{p.name}_x{number}", p.dtype, MemoryType.local, p.size) for p in r.partials)

        def shuffle(i: int, e: Int, got: tuple[Buffer, ...] = got, lane: Int = lane) -> list[Stmt]:
            return [Shuffle(got[i], e, Load(r.partials[i], e), ShuffleKind.xor, lane)]

        stmts += [*(Allocate(b) for b in got), *combiner.each(r, shuffle)]
        stmts += combiner.load(r, lambda i, e, got=got: increment(r.partials[i], e, Load(got[i], e)))
        offset //= 2
    return [*stmts, *(divide(ZERO) if is_shared_count(r, 2) else []), *combiner.elements(r, shift_back)]


def _all_reduce_element(combiner: PartialCombiner, r: Reduce, at: Int, width: int, stride: int) -> list[Stmt]:
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
