"""The maximum of some values and the sum of exp(value - maximum): adding a group of values, combining partial results.

A partial is a pair of register arrays (largest, total). In a total the largest element always counts as 1, so that nothing
overflows; when the largest grows, the total is scaled by exp(old - new). Values of -infinity add nothing, even if there are
no others: only the complete total of such a row is nan, as exp(-inf - -inf) is. A nan or +infinity among the values makes
the total nan at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, const
from fuser.ir.kernel.kernel import Allocate, Buffer, Call, For, Literal, Load, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.lowering.combiners.combiner_values import PartialsReader, accumulate, compare, compute, temporary
from fuser.records import record

MAX_GROUP = 32
"""Values that a thread holds before it folds them: one maximum and one scaling serve all of them."""
_CHAINS = 8
"""Of those, folded side by side at most: each step waits for the one before."""


@record(eq=False)
class FoldBuffer:
    """Values that a thread collects before it folds them into its partials.

    depth   loops from here on run through them
    axes    their axes in `values`: the kept ones, of which there are `kept`, are fastest
    """

    depth: int
    values: Buffer
    axes: tuple[tuple[Group, Int], ...]
    kept: int


def exponential(x: Value, dtype: DataType) -> Value:
    """exp(x) for x <= 0, or nan. In Double "exp_summand" is as good as "exp"."""
    return compute("exp_summand", dtype, x)


def rescale_factor(low: Value, high: Value, dtype: DataType) -> Value:
    """exp(low - high) for low <= high, or nan: what scales a total."""
    return exponential(compute("sub", dtype, low, high), dtype)


def exp_sum_combine(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join two pairs; (-infinity, 0) changes nothing. One exponential.

    m = max(ma, mb); f = exp(min(ma, mb) - m), 1 where they are equal; s = sa + sb f if ma >= mb, else sb + sa f
    """
    largest, total = acc
    dtype = total.dtype

    peer, more = temporary(f"{name}_m", dtype), temporary(f"{name}_s", dtype)
    top, factor = temporary(f"{name}_top", dtype), temporary(f"{name}_f", dtype)
    mine, theirs, high = Load(largest, at), Load(peer, ZERO), Load(top, ZERO)
    low = compute("minimum", dtype, mine, theirs)
    below = rescale_factor(low, high, dtype)
    scale = compute("where", dtype, compare("eq", low, high, dtype), Literal(1.0, dtype), below)
    first, second, f = Load(total, at), Load(more, ZERO), Load(factor, ZERO)
    joined = compute(
        "where",
        dtype,
        compare("ge", mine, theirs, dtype),
        compute("add", dtype, first, compute("mul", dtype, second, f)),
        compute("add", dtype, second, compute("mul", dtype, first, f)),
    )
    return [
        *(Allocate(b) for b in (peer, more, top, factor)),
        Store(peer, ZERO, other[0]),
        Store(more, ZERO, other[1]),
        Store(top, ZERO, compute("maximum", dtype, mine, theirs)),
        Store(factor, ZERO, scale),
        Store(total, at, joined),
        Store(largest, at, high),
    ]


def exp_sum_combine_many(acc: tuple[Buffer, ...], at: Int, parts: PartialsReader, name: str) -> list[Stmt]:
    """Set element `at` to the pairs of all parts (the largest, the total), in order.

    Their maximum comes first, so that each takes one exponential.
    """
    largest, total = acc
    dtype = total.dtype
    top, shift = temporary(f"{name}_top", dtype), temporary(f"{name}_shift", dtype)
    high = Load(top, ZERO)

    def part(k: Int) -> Value:
        return compute(
            "mul", dtype, parts.read(1, at, k), rescale_factor(parts.read(0, at, k), Load(shift, ZERO), dtype)
        )

    k, j = parts.index(), parts.index()
    return [
        Allocate(top),
        Allocate(shift),
        Store(top, ZERO, parts.read(0, at, ZERO)),
        parts.loop(k, [Store(top, ZERO, compute("largest", dtype, high, parts.read(0, at, k)))], ONE),
        Store(shift, ZERO, _finite(high)),
        Store(total, at, part(ZERO)),
        parts.loop(j, [accumulate(total, at, part(j))], ONE),
        Store(largest, at, high),
    ]


def exp_sum_scaled(acc: tuple[Buffer, ...], at: Int, old: Buffer) -> list[Stmt]:
    """The total of values up to `old[at]`, as what it adds to one of values up to `largest[at]`."""
    largest, total = acc
    dtype = total.dtype
    scale = rescale_factor(Load(old, at), _finite(Load(largest, at)), dtype)
    return [accumulate(total, at, scale, "mul")]


def exp_sum_element(acc: tuple[Buffer, ...], at: Int, x: Value, name: str) -> list[Stmt]:
    """Fold one value: the pair of x is (x, 1), with 0 for -infinity, and nan for +infinity and nan."""
    dtype = acc[1].dtype
    value = temporary(f"{name}_x", dtype)
    v = Load(value, ZERO)
    counted = compute("add", dtype, Literal(1.0, dtype), compute("sub", dtype, v, v))
    weight = compute("where", dtype, _is_empty(v), Literal(0.0, dtype), counted)
    return [Allocate(value), Store(value, ZERO, x), *exp_sum_combine(acc, at, (v, weight), name)]


def exp_sum_group(
    acc: tuple[Buffer, ...],
    group: FoldBuffer,
    name: str,
    make_symbol: Callable[[Int, str], Symbol],
    *,
    is_only: bool,
) -> list[Stmt]:
    """Fold all held values: their maximum first, so that each takes one exponential and the total one scaling.

    `is_only`: there is no group before this one, whose total would be scaled.
    """
    largest, total = acc
    dtype = total.dtype
    values, kept = group.values, group.kept
    count = values.size.value // kept
    chains = next(n for n in range(_CHAINS, 0, -1) if count % n == 0)
    tops, sums = (Buffer(f"{name}_{what}", dtype, largest.memory, const(chains)) for what in ("tops", "sums"))
    top, shift = temporary(f"{name}_top", dtype), temporary(f"{name}_shift", dtype)

    def loop(extent: int, make: Callable[[Int], list[Stmt]], start: int = 0) -> list[Stmt]:
        if extent - start <= 0:
            return []
        i = make_symbol(const(extent), "g")
        return [For(i, const(start), const(extent), ONE, tuple(make(i)), unroll=True)]

    def joined(e: Int) -> list[Stmt]:
        """The total of what came before and the sums of all chains."""
        if is_only:
            first = loop(chains, lambda j: [accumulate(sums, ZERO, Load(sums, j))], 1)
            return [*first, Store(total, e, Load(sums, ZERO))]
        old = rescale_factor(Load(largest, e), Load(shift, ZERO), dtype)
        return [
            accumulate(total, e, old, "mul"),
            *loop(chains, lambda j: [accumulate(total, e, Load(sums, j))]),
        ]

    def fold(e: Int) -> list[Stmt]:
        def value(i: Int, j: Int) -> Load:
            return Load(values, (i * chains + j) * kept + e)

        def below(i: Int, j: Int) -> Value:
            return compute("sub", dtype, value(i, j), Load(shift, ZERO))

        def term(i: Int, j: Int) -> Value:
            return exponential(below(i, j), dtype)

        def added(old: Value, i: Int, j: Int) -> Value:
            # Of Doubles, the last operation of the exponential is that of the sum.
            if dtype is DataType.Double:
                return compute("add_exp_summand", dtype, old, below(i, j))
            return compute("add", dtype, old, term(i, j))

        def chained(
            into: Buffer, make: Callable[[Int, Int], Value], join: Callable[[Value, Int, Int], Value]
        ) -> list[Stmt]:
            """`chains` folds side by side."""
            first = loop(chains, lambda j: [Store(into, j, make(ZERO, j))])
            rest = loop(
                count // chains,
                lambda i: loop(chains, lambda j: [Store(into, j, join(Load(into, j), i, j))]),
                1,
            )
            return [Allocate(into), *first, *rest]

        high = Load(top, ZERO)
        return [
            *chained(tops, value, lambda old, i, j: compute("largest", dtype, old, value(i, j))),
            Allocate(top),
            Store(top, ZERO, Load(tops, ZERO) if is_only else Load(largest, e)),
            *loop(
                chains,
                lambda j: [Store(top, ZERO, compute("largest", dtype, high, Load(tops, j)))],
                1 if is_only else 0,
            ),
            Allocate(shift),
            Store(shift, ZERO, _finite(high)),
            *chained(sums, term, added),
            *joined(e),
            Store(largest, e, high),
        ]

    return fold(ZERO) if kept == 1 else loop(kept, fold)


def exp_sum_complete(acc: tuple[Buffer, ...], at: Int) -> list[Stmt]:
    """The total of a whole row: nan where nothing is larger than -infinity."""
    largest, total = acc
    dtype = total.dtype
    nan = Literal(math.nan, dtype)
    return [Store(total, at, compute("where", dtype, _is_empty(Load(largest, at)), nan, Load(total, at)))]


def _finite(x: Value) -> Call:
    """What is subtracted from values up to x: they are -infinity where x is, and must stay so."""
    return compute("where", x.dtype, _is_empty(x), Literal(0.0, x.dtype), x)


def _is_empty(x: Value) -> Call:
    return compare("eq", x, Literal(-math.inf, x.dtype), x.dtype)
