"""Statistics of Floats that are added up in Double: sums of differences from a value of the data, and of their squares.

A sum of differences and one of squares in Double need no care: differences from any one value of the data lose at most as many
digits of the variance as there are values, and a Double has twice those of a Float. So a thread adds without a division,
threads are joined in one pass, and both results are those of exact sums, rounded once.

What leaves a thread are Floats again: the mean, what it loses (its rest), and the sum of squared differences from both
(`exact_welford.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, TRUE, ZERO, Cond, Int, Symbol, const
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, For, If, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.lowering.combiners.common_shift import choose_shift

Double, Float = DataType.Double, DataType.Float
_ZERO = Literal(0.0, Double)
_CHUNK = 8
_LARGEST = 3.4028234663852886e38


def add_wide(
    sums: tuple[Buffer, Buffer],
    shift: Buffer,
    count: Buffer,
    at: Int,
    x: Value,
    name: str,
    *,
    may_be_first: Cond,
    firsts: tuple[Buffer, ...] = (),
) -> list[Stmt]:
    """Fold one Float into (sum, sum of squares) of the differences from the first one; `count` counts it already.

    firsts   what the shift is chosen from where all threads of a result have the same
    """
    total, squares = sums
    value, d = _register(f"{name}_x", Double), _register(f"{name}_d", Double)
    is_first = Call("eq", (Load(count, ZERO), Literal(1, count.dtype)), count.dtype, DataType.Bool)
    # A difference between infinities would be no number, where the mean of them all is infinite.
    size = Call("abs", (Load(value, ZERO),), Double, Double)
    finite = Call("le", (size, Literal(_LARGEST, Double)), Double, DataType.Bool)
    chosen = Call("logical_and", (is_first, finite), DataType.Bool, DataType.Bool)
    keep = Store(shift, at, Call("where", (chosen, Load(value, ZERO), Load(shift, at)), Double, Double))
    if firsts:
        keep = choose_shift(shift, firsts, at)
    kept: list[Stmt] = [keep] if may_be_first is TRUE else [If(may_be_first, (keep,), role=Role.plain)]
    change = Load(d, ZERO)
    return [
        Allocate(value),
        Allocate(d),
        Store(value, ZERO, Cast(x, Double)),
        *kept,
        Store(d, ZERO, _call("sub", Load(value, ZERO), Load(shift, at))),
        Store(total, at, _call("add", Load(total, at), change)),
        Store(squares, at, _call("add", Load(squares, at), _call("mul", change, change))),
    ]


def join_wide(
    sums: tuple[Buffer, Buffer],
    shift: Buffer,
    count: Buffer,
    at: Int,
    other: tuple[Value, Value, Value, Value],
    name: str,
) -> list[Stmt]:
    """Join (sum, sum of squares, shift, count) of a step; the first step's shift stays.

    d = shift_b - shift; m = n_b d + sum_b;  sum += m;  squares += squares_b + d (m + sum_b)

    `count`: of the values before.
    """
    total, squares = sums
    d, moved = (_register(f"{name}_{part}", Double) for part in ("d", "moved"))
    sum_b, squares_b, shift_b, count_b = other
    is_first = Call("eq", (Load(count, ZERO), Literal(0, count.dtype)), count.dtype, DataType.Bool)
    change = _call("mul", Load(d, ZERO), _call("add", Load(moved, ZERO), sum_b))
    return [
        *(Allocate(b) for b in (d, moved)),
        Store(shift, at, Call("where", (is_first, shift_b, Load(shift, at)), Double, Double)),
        Store(d, ZERO, _call("sub", shift_b, Load(shift, at))),
        Store(moved, ZERO, _call("add", _call("mul", Cast(count_b, Double), Load(d, ZERO)), sum_b)),
        Store(total, at, _call("add", Load(total, at), Load(moved, ZERO))),
        Store(squares, at, _call("add", _call("add", Load(squares, at), squares_b), change)),
    ]


def settle_wide(
    acc: tuple[Buffer, Buffer, Buffer],
    sums: tuple[Buffer, Buffer],
    shift: Callable[[Int], Value],
    count: Buffer,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    name: str,
) -> list[Stmt]:
    """Set (mean, m2, rest) to what the sums of differences from `shift(e)` say.

    f = sum / n;  mean + rest = shift + f;  m2 = squares - f sum, and not below 0
    """
    mean, m2, rest = acc
    total, squares = sums
    share, moved, exact = (_register(f"{name}_{part}", Double) for part in ("share", "moved", "mean"))
    is_common = count.size is not mean.size

    def divide(e: Int) -> list[Stmt]:
        # 1 / n in Float, and a step of Newton: a division in Double would take ten times as long.
        is_empty = Call("eq", (Load(count, e), Literal(0, count.dtype)), compute_dtype(count.dtype), DataType.Bool)
        near = Call("div", (Literal(1.0, Float), Cast(Load(count, e), Float)), Float, Float)
        left = _call("sub", Literal(1.0, Double), _call("mul", Cast(Load(count, e), Double), Load(share, ZERO)))
        return [
            Store(share, ZERO, Cast(Call("where", (is_empty, Literal(0.0, Float), near), Float, Float), Double)),
            Store(share, ZERO, _call("add", Load(share, ZERO), _call("mul", Load(share, ZERO), left))),
        ]

    def settle(e: Int) -> list[Stmt]:
        left = _call("sub", Load(squares, e), _call("mul", Load(total, e), Load(moved, ZERO)))
        lost = _call("sub", Load(exact, ZERO), Cast(Load(mean, e), Double))
        return [
            *([] if is_common else divide(e)),
            Store(moved, ZERO, _call("mul", Load(total, e), Load(share, ZERO))),
            Store(exact, ZERO, _call("add", _wide(shift(e)), Load(moved, ZERO))),
            Store(m2, e, Cast(_call("maximum", left, _ZERO), m2.dtype)),
            Store(mean, e, Cast(Load(exact, ZERO), mean.dtype)),
            Store(rest, e, Cast(lost, rest.dtype)),
        ]

    return [
        *(Allocate(b) for b in (share, moved, exact)),
        *(divide(ZERO) if is_common else []),
        *elements(settle),
    ]


def pool_wide(
    acc: tuple[Buffer, ...],
    others: Callable[[int, Int, Int], Value],
    number: Int,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    make_symbol: Callable[[str, Int], Symbol],
    name: str,
    *,
    unroll: bool = False,
) -> list[Stmt]:
    """Set (mean, m2, count, rest) to those of `number` parts together: `others(i, e, k)` is array i of part k.

    d_k = mean_k - mean_0 + rest_k;  sum = sum(n_k d_k);  squares = sum(m2_k + n_k d_k^2);  then `settle_wide`
    """
    mean, m2, count, rest = acc
    is_common = count.size is not mean.size
    integral = compute_dtype(count.dtype)
    sums = tuple(Buffer(f"{name}_{part}", Double, MemoryType.local, mean.size) for part in ("sum", "squares"))
    total = Buffer(f"{name}_total", count.dtype, MemoryType.local, count.size)
    first = Buffer(f"{name}_first", mean.dtype, MemoryType.local, mean.size)
    weight, d, moved = (_register(f"{name}_{part}", Double) for part in ("weight", "d", "moved"))
    # Loads of a few parts are on their way at once.
    chunk = math.gcd(number.value, _CHUNK) if number.is_const and not unroll else 1
    base, part = make_symbol("k", number), make_symbol("j", const(chunk))
    k = base + part if chunk > 1 else base

    def each(once: Callable[[Int], list[Stmt]], rest_of: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        return [*once(ZERO), *elements(rest_of)] if is_common else elements(lambda e: [*once(e), *rest_of(e)])

    def clear(e: Int) -> list[Stmt]:
        return [Store(total, e, Literal(0, count.dtype), Role.initialise)]

    def start(e: Int) -> list[Stmt]:
        return [Store(first, e, others(0, e, ZERO)), *(Store(b, e, _ZERO, Role.initialise) for b in sums)]

    def weigh(e: Int) -> list[Stmt]:
        return [
            Store(weight, ZERO, Cast(others(2, e, k), Double)),
            Store(total, e, Call("add", (Load(total, e), others(2, e, k)), integral, count.dtype)),
        ]

    def add(e: Int) -> list[Stmt]:
        away = _call("sub", _wide(others(0, e, k)), Cast(Load(first, e), Double))
        gain = _call("mul", Load(moved, ZERO), Load(d, ZERO))
        return [
            Store(d, ZERO, _call("add", away, _wide(others(3, e, k)))),
            Store(moved, ZERO, _call("mul", Load(weight, ZERO), Load(d, ZERO))),
            Store(sums[0], e, _call("add", Load(sums[0], e), Load(moved, ZERO))),
            Store(sums[1], e, _call("add", _call("add", Load(sums[1], e), _wide(others(1, e, k))), gain)),
        ]

    def keep(e: Int) -> list[Stmt]:
        return [Store(count, e, Load(total, e))]

    turn = each(weigh, add)
    if chunk > 1:
        turn = [For(part, ZERO, const(chunk), ONE, tuple(turn), unroll=True)]
    results = settle_wide((mean, m2, rest), (sums[0], sums[1]), lambda e: Load(first, e), total, elements, f"{name}_s")
    return [
        *(Allocate(b) for b in (*sums, total, first, weight, d, moved)),
        *each(clear, start),
        For(base, ZERO, number, const(chunk), tuple(turn), unroll=unroll),
        *results,
        *(keep(ZERO) if is_common else elements(keep)),
    ]


def _wide(value: Value) -> Value:
    return value if value.dtype is Double else Cast(value, Double)


def _call(op: str, a: Value, b: Value) -> Call:
    return Call(op, (a, b), Double, Double)


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, ONE)
