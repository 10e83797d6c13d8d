"""The largest of some values and the sum of exp(value - largest): adding a group of values, joining partial results.

A partial is a pair of register arrays (largest, total). A total counts the largest element as 1 whatever its size, so that
nothing overflows; where the largest grows, the total is scaled by exp(old - new). Values of -infinity add nothing, not even
where there are no others: only the complete total of such a row is nan, as exp(-inf - -inf) is. A nan or +infinity among the
values makes the total nan at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.integers import ONE, ZERO, Int, Symbol, const
from fuser.ir.iteration_graph import Group
from fuser.ir.kernel import Allocate, Buffer, Call, For, Literal, Load, Stmt, Store, Value
from fuser.lowering.combiners.welford import temporary
from fuser.records import record

MAX_GROUP = 32
"""Values that a thread holds before it folds them: one maximum and one scaling serve all of them."""
_CHAINS = 8
"""Of those, folded side by side at most: each step waits for the one before."""


@record(eq=False)
class HeldGroup:
    """Values that a thread collects before it folds them into its partials.

    depth   loops from here on run through them
    axes    where in `values` each lies: the kept ones, of which there are `kept`, are fastest
    """

    depth: int
    values: Buffer
    axes: tuple[tuple[Group, Int], ...]
    kept: int


def exponential(x: Value, dtype: DataType) -> Value:
    """exp(x) for x <= 0, or nan. In Double "exp_summand" is as good as "exp"."""
    return Call("exp_summand", (x,), dtype, dtype)


def scale_of(low: Value, high: Value, dtype: DataType) -> Value:
    """exp(low - high) for low <= high, or nan: what scales a total."""
    return exponential(Call("sub", (low, high), dtype, dtype), dtype)


def exp_sum_combine(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join two pairs; (-infinity, 0) changes nothing. One exponential.

    m = max(ma, mb); f = exp(min(ma, mb) - m), 1 where they are equal; s = sa + sb f if ma >= mb, else sb + sa f
    """
    largest, total = acc
    dtype = total.dtype

    def call(op: str, *args: Value) -> Call:
        return Call(op, args, dtype, dtype)

    def test(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, DataType.Bool)

    peer, more = temporary(f"{name}_m", dtype), temporary(f"{name}_s", dtype)
    top, factor = temporary(f"{name}_top", dtype), temporary(f"{name}_f", dtype)
    mine, theirs, high = Load(largest, at), Load(peer, ZERO), Load(top, ZERO)
    low = call("minimum", mine, theirs)
    below = scale_of(low, high, dtype)
    scale = call("where", test("eq", low, high), Literal(1.0, dtype), below)
    first, second, f = Load(total, at), Load(more, ZERO), Load(factor, ZERO)
    joined = call(
        "where",
        test("ge", mine, theirs),
        call("add", first, call("mul", second, f)),
        call("add", second, call("mul", first, f)),
    )
    return [
        *(Allocate(b) for b in (peer, more, top, factor)),
        Store(peer, ZERO, other[0]),
        Store(more, ZERO, other[1]),
        Store(top, ZERO, call("maximum", mine, theirs)),
        Store(factor, ZERO, scale),
        Store(total, at, joined),
        Store(largest, at, high),
    ]


def exp_sum_parts(
    acc: tuple[Buffer, ...],
    at: Int,
    count: Int,
    read: Callable[[int, Int], Value],
    name: str,
    make_symbol: Callable[[str, Int], Symbol],
    *,
    unroll: bool,
) -> list[Stmt]:
    """The pairs of `count` parts, in order: `read(i, k)` is element 0 (the largest) or 1 (the total) of part k.

    Their maximum comes first, so that each takes one exponential; `acc` is only written.
    """
    largest, total = acc
    dtype = total.dtype
    top, shift = temporary(f"{name}_top", dtype), temporary(f"{name}_shift", dtype)
    high = Load(top, ZERO)

    def call(op: str, *args: Value) -> Call:
        return Call(op, args, dtype, dtype)

    def part(k: Int) -> Value:
        return call("mul", read(1, k), scale_of(read(0, k), Load(shift, ZERO), dtype))

    def rest(make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        k = make_symbol("k", count)
        return [For(k, ONE, count, ONE, tuple(make(k)), unroll=unroll)]

    return [
        Allocate(top),
        Allocate(shift),
        Store(top, ZERO, read(0, ZERO)),
        *rest(lambda k: [Store(top, ZERO, call("largest", high, read(0, k)))]),
        Store(shift, ZERO, _finite(high)),
        Store(total, at, part(ZERO)),
        *rest(lambda k: [Store(total, at, call("add", Load(total, at), part(k)))]),
        Store(largest, at, high),
    ]


def exp_sum_scaled(acc: tuple[Buffer, ...], at: Int, old: Buffer) -> list[Stmt]:
    """The total of values up to `old[at]`, as what it adds to one of values up to `largest[at]`."""
    largest, total = acc
    dtype = total.dtype
    scale = scale_of(Load(old, at), _finite(Load(largest, at)), dtype)
    return [Store(total, at, Call("mul", (Load(total, at), scale), dtype, dtype))]


def exp_sum_element(acc: tuple[Buffer, ...], at: Int, x: Value, name: str) -> list[Stmt]:
    """Fold one value: the pair of x is (x, 1), with 0 for -infinity, and nan for +infinity and nan."""
    dtype = acc[1].dtype
    value = temporary(f"{name}_x", dtype)
    v = Load(value, ZERO)
    counted = Call("add", (Literal(1.0, dtype), Call("sub", (v, v), dtype, dtype)), dtype, dtype)
    weight = Call("where", (_is_empty(v), Literal(0.0, dtype), counted), dtype, dtype)
    return [Allocate(value), Store(value, ZERO, x), *exp_sum_combine(acc, at, (v, weight), name)]


def exp_sum_group(
    acc: tuple[Buffer, ...],
    group: HeldGroup,
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

    def call(op: str, *args: Value) -> Call:
        return Call(op, args, dtype, dtype)

    def loop(extent: int, make: Callable[[Int], list[Stmt]], start: int = 0) -> list[Stmt]:
        if extent - start <= 0:
            return []
        i = make_symbol(const(extent), "g")
        return [For(i, const(start), const(extent), ONE, tuple(make(i)), unroll=True)]

    def joined(e: Int) -> list[Stmt]:
        """The total of what came before and the sums of all chains."""
        if is_only:
            return [*_added(sums, chains, loop), Store(total, e, Load(sums, ZERO))]
        old = scale_of(Load(largest, e), Load(shift, ZERO), dtype)
        scaled = Store(total, e, call("mul", Load(total, e), old))
        return [scaled, *loop(chains, lambda j: [Store(total, e, call("add", Load(total, e), Load(sums, j)))])]

    def fold(e: Int) -> list[Stmt]:
        def value(i: Int, j: Int) -> Load:
            return Load(values, (i * chains + j) * kept + e)

        def below(i: Int, j: Int) -> Value:
            return call("sub", value(i, j), Load(shift, ZERO))

        def term(i: Int, j: Int) -> Value:
            return exponential(below(i, j), dtype)

        def added(old: Value, i: Int, j: Int) -> Value:
            # Of Doubles, the last operation of the exponential is that of the sum.
            if dtype is DataType.Double:
                return call("add_exp_summand", old, below(i, j))
            return call("add", old, term(i, j))

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
            *chained(tops, value, lambda old, i, j: call("largest", old, value(i, j))),
            Allocate(top),
            Store(top, ZERO, Load(tops, ZERO) if is_only else Load(largest, e)),
            *loop(chains, lambda j: [Store(top, ZERO, call("largest", high, Load(tops, j)))], 1 if is_only else 0),
            Allocate(shift),
            Store(shift, ZERO, _finite(high)),
            *chained(sums, term, added),
            *joined(e),
            Store(largest, e, high),
        ]

    return fold(ZERO) if kept == 1 else loop(kept, fold)


def _added(sums: Buffer, count: int, loop: Callable[[int, Callable[[Int], list[Stmt]], int], list[Stmt]]) -> list[Stmt]:
    """The first of the sums becomes that of all."""
    dtype = sums.dtype

    def add(j: Int) -> list[Stmt]:
        return [Store(sums, ZERO, Call("add", (Load(sums, ZERO), Load(sums, j)), dtype, dtype))]

    return loop(count, add, 1)


def exp_sum_complete(acc: tuple[Buffer, ...], at: Int) -> list[Stmt]:
    """The total of a whole row: nan where nothing is larger than -infinity."""
    largest, total = acc
    dtype = total.dtype
    nan = Literal(math.nan, dtype)
    return [Store(total, at, Call("where", (_is_empty(Load(largest, at)), nan, Load(total, at)), dtype, dtype))]


def _finite(x: Value) -> Call:
    """What is subtracted from values up to x: they are -infinity where x is, and must stay so."""
    return Call("where", (_is_empty(x), Literal(0.0, x.dtype), x), x.dtype, x.dtype)


def _is_empty(x: Value) -> Call:
    return Call("eq", (x, Literal(-math.inf, x.dtype)), x.dtype, DataType.Bool)
