"""Statistics whose mean has a rest: (mean, m2, count, rest), where mean + rest is the mean before it is rounded.

A mean alone is a rounded number. The differences between the means of threads are what m2 is joined from: of data around 1000
with a deviation of 1/8 they lose most of their digits, all in one direction where the data are few different numbers. And a
mean near zero is joined from means of threads that are a hundred times as large. So a sum of two numbers is split exactly
into what it is rounded to and what that loses (`split_sum`), and so are products with counts.

Results that are rounded to 16 bits show nothing of this: they have triples (`exact_statistics`).
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import FALSE, ONE, TRUE, ZERO, Cond, Int, Symbol
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, For, If, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.combiners.compensated_sum import add_term, split_sum

MUCH_NEARER = 0.0625
"""Times the first value: of data around a mean the first is as good a shift as the second, and not the one nearer to zero."""

COMBINE_EXACTLY = "welford_exact"
"""What a collective over (mean, m2, count, rest) is called; "welford" has no rest."""


def add_difference(
    acc: tuple[Buffer, Buffer], at: Int, x: Value, shift: Buffer, squares_rest: Buffer | None, name: str
) -> list[Stmt]:
    """Fold x - shift into (sum of differences, sum of their squares)."""
    away, squares = acc
    dtype = away.dtype
    delta = _register(f"{name}_delta", dtype)
    change = Load(delta, ZERO)
    product = _call("mul", change, change, dtype)
    square: list[Stmt] = [Store(squares, at, _call("add", Load(squares, at), product, dtype))]
    if squares_rest is not None:
        square = add_term(squares, squares_rest, at, product, f"{name}_q", exact=False)
    return [
        Allocate(delta),
        Store(delta, ZERO, _call("sub", x, Load(shift, at), dtype)),
        Store(away, at, _call("add", Load(away, at), change, dtype)),
        *square,
    ]


def add_exactly(
    acc: tuple[Buffer, Buffer, Buffer, Buffer],
    at: Int,
    x: Value,
    shift: Buffer,
    count: Buffer,
    name: str,
    *,
    may_be_second: Cond,
) -> list[Stmt]:
    """Fold x into (sum, sum of the squares of differences from the shift, rest of the sum, that of the squares).

    The sum is that of the values themselves, split exactly: a sum of differences would need what each difference loses, too.
    `differences` makes one of the other. What a square and its addition lose is found by fused multiply-adds.

    The second value becomes the shift where it is much nearer to zero than the first: squares of differences from a value far
    from all others cost those digits. Till then there is one difference, whose square is that from the new shift. `count`
    counts x already; `may_be_second`: a necessary condition for x to be the second.
    """
    total, squares, rest, squares_rest = acc
    dtype = total.dtype
    delta, both = (_register(f"{name}_{part}", dtype) for part in ("delta", "both"))
    change = Load(delta, ZERO)
    kept = _call("sub", Load(both, ZERO), Load(squares, at), dtype)
    lost = Call("fma", (change, change, Call("neg", (kept,), dtype, dtype)), dtype, dtype)
    return [
        Allocate(delta),
        Allocate(both),
        Store(delta, ZERO, _call("sub", x, Load(shift, at), dtype)),
        *where_possible(may_be_second, _nearer_shift(shift, at, x, count)),
        *add_term(total, rest, at, x, f"{name}_s", exact=True),
        Store(both, ZERO, Call("fma", (change, change, Load(squares, at)), dtype, dtype)),
        Store(squares_rest, at, _call("add", Load(squares_rest, at), lost, dtype)),
        Store(squares, at, Load(both, ZERO)),
    ]


def differences(acc: tuple[Buffer, Buffer], at: Int, shift: Value, count: Value, name: str) -> list[Stmt]:
    """Turn (sum, its rest) of values into those of their differences from the shift.

    p = n shift; sum + lost = sum - p; rest = rest + lost - what p lost

    The rest is then below half an ulp of the sum: of values that are all the same both are 0.
    """
    total, rest = acc
    dtype = total.dtype
    common = _register(f"{name}_common", dtype)
    missing = Call("product_error", (count, shift), dtype, dtype)
    minus = Call("neg", (Load(common, ZERO),), dtype, dtype)
    stmts, s, lost = split_sum(Load(total, at), minus, dtype, f"{name}_d")
    return [
        Allocate(common),
        Store(common, ZERO, Call("product", (count, shift), dtype, dtype)),
        *stmts,
        Store(rest, at, _call("add", Load(rest, at), _call("sub", lost, missing, dtype), dtype)),
        Store(total, at, s),
        *finish_mean(total, rest, at, f"{name}_n"),
    ]


def where_possible(condition: Cond, stmts: list[Stmt]) -> list[Stmt]:
    """Statements that do nothing unless the condition holds, only where it may."""
    if condition is FALSE:
        return []
    return stmts if condition is TRUE else [If(condition, tuple(stmts), role=Role.plain)]


def _nearer_shift(shift: Buffer, at: Int, x: Value, count: Buffer) -> list[Stmt]:
    """Take the second value as shift where it is much nearer to zero."""
    dtype = shift.dtype
    bound = _call("mul", Literal(MUCH_NEARER, dtype), Call("abs", (Load(shift, at),), dtype, dtype), dtype)
    is_second = Call("eq", (Load(count, ZERO), Literal(2, count.dtype)), compute_dtype(count.dtype), DataType.Bool)
    is_nearer = Call("lt", (Call("abs", (x,), dtype, dtype), bound), dtype, DataType.Bool)
    taken = Call("logical_and", (is_second, is_nearer), DataType.Bool, DataType.Bool)
    return [Store(shift, at, Call("where", (taken, x, Load(shift, at)), dtype, dtype))]


def exact_mean(acc: tuple[Buffer, Buffer], at: Int, shift: Value, share: Value, count: Value, name: str) -> list[Stmt]:
    """Turn (sum of differences, its rest) into (mean, rest of the mean): what 1 / n and a product with it lose is found again.

    moved = sum / n; left = (sum - n moved) + rest; mean + lost = shift + moved; rest = lost + left / n

    sum - n moved is a fused multiply-add: with a product the compiler may fuse it or not, and what is lost is another.
    """
    mean, rest = acc
    dtype = mean.dtype
    moved, left, number = (_register(f"{name}_{part}", dtype) for part in ("moved", "left", "number"))

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    missing = remainder(Load(mean, at), Load(number, ZERO), Load(moved, ZERO))
    stmts, s, lost = split_sum(shift, Load(moved, ZERO), dtype, name)
    return [
        *(Allocate(b) for b in (moved, left, number)),
        Store(number, ZERO, count),
        Store(moved, ZERO, call("mul", Load(mean, at), share)),
        Store(left, ZERO, call("add", missing, Load(rest, at))),
        *stmts,
        Store(rest, at, call("add", lost, call("mul", Load(left, ZERO), share))),
        Store(mean, at, s),
    ]


def remainder(total: Value, number: Value, share: Value) -> Call:
    """total - number * share, rounded once."""
    dtype = total.dtype
    return Call("fma", (Call("neg", (number,), dtype, dtype), share, total), dtype, dtype)


def exact_squares(
    acc: tuple[Buffer, Buffer, Buffer, Buffer], at: Int, moved: Value, share: Value, count: Value
) -> Value:
    """sum((x - mean)^2) of (sum of differences, sum of their squares, rest of the sum, that of the squares); `moved`: sum / n.

    (squares - sum moved) + (rest of the squares - rest moved - sum left / n), left = (sum - n moved) + rest
    """
    away, squares, rest, squares_rest = acc
    dtype, total = away.dtype, Load(away, at)

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    left = call("mul", call("add", remainder(total, count, moved), Load(rest, at)), share)
    further = call("add", call("mul", Load(rest, at), moved), call("mul", total, left))
    return call("add", remainder(Load(squares, at), total, moved), call("sub", Load(squares_rest, at), further))


def moved_exactly(
    acc: tuple[Buffer, Buffer, Buffer],
    at: Int,
    other: tuple[Value, Value, Value],
    fraction: Buffer,
    weight: Buffer,
    name: str,
) -> list[Stmt]:
    """Join (mean, m2, rest) of `other`, whose share of all values is f, with a weight w = f times the number of values so far.

    d = mean_b - mean_a; r = rest_b - rest_a; mean + lost = mean_a + d f; rest = rest_a + r f + lost;
    m2 = m2_a + m2_b + (d + r)**2 w

    Floats have their sums from Double. In Double what d and d f lose is found, too: means of a few values are far apart where
    that of all is near zero. What f lacks is left: counts are mostly equal, and f a power of two.
    """
    mean, m2, rest = acc
    dtype = mean.dtype
    apart, more, delta = (_register(f"{name}_{part}", dtype) for part in ("apart", "more", "delta"))

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    is_exact = dtype is DataType.Double
    product = "product" if is_exact else "mul"
    moved = call(product, Load(apart, ZERO), Load(fraction, ZERO))
    stmts, s, lost = split_sum(Load(mean, at), moved, dtype, name)
    between: list[Stmt] = [Store(apart, ZERO, call("sub", other[0], Load(mean, at)))]
    further = call("sub", other[2], Load(rest, at))
    if is_exact:
        minus = Call("neg", (Load(mean, at),), dtype, dtype)
        between, difference, missing = split_sum(other[0], minus, dtype, f"{name}_d")
        between.append(Store(apart, ZERO, difference))
        further = call("add", further, missing)
    # In this order nothing overflows where the weight is 0.
    gain = call("mul", call("mul", Load(delta, ZERO), Load(weight, ZERO)), Load(delta, ZERO))
    shared = call("mul", Load(more, ZERO), Load(fraction, ZERO))
    if is_exact:
        shared = call("add", shared, call("product_error", Load(apart, ZERO), Load(fraction, ZERO)))
    return [
        *(Allocate(b) for b in (apart, more, delta)),
        *between,
        Store(more, ZERO, further),
        Store(delta, ZERO, call("add", Load(apart, ZERO), Load(more, ZERO))),
        Store(m2, at, call("add", call("add", Load(m2, at), other[1]), gain)),
        *stmts,
        Store(rest, at, call("add", call("add", Load(rest, at), shared), lost)),
        Store(mean, at, s),
    ]


def finish_mean(mean: Buffer, rest: Buffer, at: Int, name: str) -> list[Stmt]:
    """mean += rest, and the rest is what that loses; none of a mean (or a sum) that is not finite."""
    dtype = mean.dtype
    value, lost = _register(f"{name}_value", dtype), _register(f"{name}_lost", dtype)

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    def number(of: Buffer, other: Value) -> Call:
        is_number = Call("eq", (Load(of, ZERO), Load(of, ZERO)), dtype, DataType.Bool)
        return Call("where", (is_number, Load(of, ZERO), other), dtype, dtype)

    return [
        Allocate(value),
        Allocate(lost),
        Store(value, ZERO, call("add", Load(mean, at), Load(rest, at))),
        Store(lost, ZERO, call("sub", Load(rest, at), call("sub", Load(value, ZERO), Load(mean, at)))),
        Store(mean, at, number(value, Load(mean, at))),
        Store(rest, at, number(lost, Literal(0.0, dtype))),
    ]


def pool_exactly(
    acc: tuple[Buffer, ...],
    others: Callable[[int, Int, Int], Value],
    number: Int,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    make_symbol: Callable[[str, Int], Symbol],
    name: str,
    *,
    unroll: bool = False,
) -> list[Stmt]:
    """`pool_statistics` for (mean, m2, count, rest).

    n = sum(n_k);  c = mean_0 + sum(n_k (mean_k - mean_0)) / n;  d_k = mean_k - c + rest_k
    mean + rest = c + sum(n_k d_k) / n;  m2 = sum(m2_k + n_k d_k^2) - sum(n_k d_k)^2 / n

    c is near the mean, so that no digits are lost in m2. Differences and products of the second sum are split exactly, and both
    sums are compensated: what a chain of forty additions loses would be the largest error of all. A part's m2 may be larger
    than those before together.
    """
    mean, m2, count, rest = acc
    common = count.size is not mean.size
    dtype, integral = mean.dtype, compute_dtype(count.dtype)

    def array(suffix: str, like: Buffer) -> Buffer:
        return Buffer(f"{name}_{suffix}", like.dtype, MemoryType.local, like.size)

    total, moved, left, lost_m2 = array("total", count), array("moved", mean), array("left", mean), array("lost", m2)
    weight, inverse, delta, apart = (_register(f"{name}_{part}", dtype) for part in ("weight", "inverse", "d", "apart"))

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    def weigh(e: Int, k: Int) -> Store:
        return Store(weight, ZERO, Cast(others(2, e, k), dtype))

    def each(once: Callable[[Int], list[Stmt]], rest_of: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        """`once` for each count, `rest_of` for each element."""
        return [*once(ZERO), *elements(rest_of)] if common else elements(lambda e: [*once(e), *rest_of(e)])

    def clear(e: Int) -> list[Stmt]:
        return [Store(total, e, Literal(0, count.dtype), Role.initialise)]

    def start(e: Int) -> list[Stmt]:
        return [Store(mean, e, others(0, e, ZERO)), Store(moved, e, Literal(0.0, dtype), Role.initialise)]

    k = make_symbol("k", number)

    def count_up(e: Int) -> list[Stmt]:
        return [weigh(e, k), Store(total, e, Call("add", (Load(total, e), others(2, e, k)), integral, count.dtype))]

    def move(e: Int) -> list[Stmt]:
        away = call("sub", others(0, e, k), Load(mean, e))
        return [Store(moved, e, call("add", Load(moved, e), call("mul", away, Load(weight, ZERO))))]

    def divide(e: Int) -> list[Stmt]:
        is_empty = Call("eq", (Load(total, e), Literal(0, count.dtype)), integral, DataType.Bool)
        share = call("div", Literal(1.0, dtype), Cast(Load(total, e), dtype))
        return [
            Store(inverse, ZERO, Call("where", (is_empty, Literal(0.0, dtype), share), dtype, dtype)),
            Store(count, e, Load(total, e)),
        ]

    def centre(e: Int) -> list[Stmt]:
        near = call("add", Load(mean, e), call("mul", Load(moved, e), Load(inverse, ZERO)))
        zero = Literal(0.0, dtype)
        return [Store(mean, e, near), *(Store(b, e, zero, Role.initialise) for b in (moved, left, m2, lost_m2))]

    j = make_symbol("k", number)

    def add(e: Int) -> list[Stmt]:
        minus = Call("neg", (Load(mean, e),), dtype, dtype)
        stmts, d, lost = split_sum(others(0, e, j), minus, dtype, f"{name}_a")
        product = call("mul", Load(apart, ZERO), Load(weight, ZERO))
        missing = Call("product_error", (Load(apart, ZERO), Load(weight, ZERO)), dtype, dtype)
        gain = call("mul", call("mul", Load(delta, ZERO), Load(weight, ZERO)), Load(delta, ZERO))
        more = call("mul", call("add", lost, others(3, e, j)), Load(weight, ZERO))
        return [
            *stmts,
            Store(apart, ZERO, d),
            Store(left, e, call("add", call("add", Load(left, e), missing), more)),
            Store(delta, ZERO, call("add", Load(apart, ZERO), others(3, e, j))),
            *add_term(moved, left, e, product, f"{name}_s", exact=True),
            *add_term(m2, lost_m2, e, others(1, e, j), f"{name}_q", exact=True),
            *add_term(m2, lost_m2, e, gain, f"{name}_g", exact=True),
        ]

    def settle(e: Int) -> list[Stmt]:
        both, share = Load(delta, ZERO), Load(apart, ZERO)
        stmts, s, lost = split_sum(Load(mean, e), share, dtype, f"{name}_m")
        squares = call("add", Load(m2, e), Load(lost_m2, e))
        return [
            Store(delta, ZERO, call("add", Load(moved, e), Load(left, e))),
            Store(apart, ZERO, call("mul", both, Load(inverse, ZERO))),
            Store(m2, e, call("maximum", call("sub", squares, call("mul", both, share)), Literal(0.0, dtype))),
            *stmts,
            Store(rest, e, lost),
            Store(mean, e, s),
        ]

    return [
        *(Allocate(b) for b in (total, moved, left, lost_m2, weight, inverse, delta, apart)),
        *each(clear, start),
        For(k, ZERO, number, ONE, tuple(each(count_up, move)), unroll=unroll),
        *each(divide, centre),
        For(j, ZERO, number, ONE, tuple(each(lambda e: [weigh(e, j)], add)), unroll=unroll),
        *elements(settle),
    ]


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, ONE)


def _call(op: str, a: Value, b: Value, dtype: DataType) -> Call:
    return Call(op, (a, b), dtype, dtype)
