"""Statistics of the values of one thread, from sums of differences: first from its first value, then from approximately
their mean.

A partial is a triple of register arrays (mean, m2, count), as in welford.py. While a thread accumulates values, its partials
are the sums of the differences from the first value and of their squares: only additions depend on the value before, and a
large common offset of all values loses no digits. The first value is one of the data, so that the squares exceed those of
the differences from the mean at most by a factor of the number of values. If all values can be visited twice, the first
visit only adds them up, and the second takes squares of differences from the approximate mean.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import FALSE, TRUE, ZERO, Cond, Int
from fuser.ir.kernel.kernel import Allocate, Buffer, If, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.lowering.combiners.combiner_values import (
    Elements,
    accumulate,
    compare,
    compute,
    increment,
    safe_ratio,
    subtract_square,
    temporary,
)
from fuser.lowering.combiners.welford import WelfordStep, at_first_element


def shifted_add(
    acc: tuple[Buffer, ...], at: Int, x: Value, name: str, step: WelfordStep, *, may_be_first: Cond
) -> list[Stmt]:
    """Fold one element into (sum of differences, sum of their squares), the differences from the first one of the element.

    `may_be_first`: false where values were seen before for certain.
    """
    away, squares, _ = acc
    shift = step.shift
    assert shift is not None
    dtype = away.dtype
    value, delta = temporary(f"{name}_x", dtype), temporary(f"{name}_delta", dtype)
    change = Load(delta, ZERO)
    count_at = step.place_of_count(at)
    one = Literal(1, step.count.dtype)
    counted: list[Stmt] = [Store(step.count, count_at, increment(step.count, count_at, one))]
    is_first = compare("eq", Load(step.count, count_at), one, step.count.dtype)
    keep = Store(shift, at, compute("where", dtype, is_first, Load(value, ZERO), Load(shift, at)))
    kept: list[Stmt] = [] if may_be_first is FALSE else [keep]
    if may_be_first not in (TRUE, FALSE):
        kept = [If(may_be_first, (keep,), role=Role.plain)]
    stmts = [
        Allocate(value),
        Store(value, ZERO, x),
        *(at_first_element(acc, at, counted) if count_at is ZERO else counted),
        *kept,
    ]
    if step.visited_twice:
        return [*stmts, accumulate(away, at, Load(value, ZERO))]
    return [
        *stmts,
        Allocate(delta),
        Store(delta, ZERO, compute("sub", dtype, Load(value, ZERO), Load(shift, at))),
        accumulate(away, at, change),
        accumulate(squares, at, compute("mul", dtype, change, change)),
    ]


def finish_shifted(acc: tuple[Buffer, ...], step: WelfordStep, elements: Elements) -> list[Stmt]:
    """Turn what `shifted_add` made into a mean and a sum of squared differences from it.

    f = sum / n;  mean = shift + f;  m2 = squares - f sum, and not below 0.
    """
    mean, m2, _ = acc
    assert step.shift is not None
    shift, dtype = step.shift, mean.dtype

    def set_mean_and_m2(e: Int) -> list[Stmt]:
        moved = compute("mul", dtype, Load(mean, e), Load(step.fraction, ZERO))
        return [
            subtract_square(m2, e, Load(mean, e), moved),
            Store(mean, e, compute("add", dtype, Load(shift, e), moved)),
        ]

    return _for_each_element(step, elements, set_mean_and_m2)


def add_deviation(acc: tuple[Buffer, ...], left: Buffer, at: Int, x: Value, name: str) -> list[Stmt]:
    """The second visit of a value: d = x - mean; left += d; m2 += d^2."""
    mean, m2, _ = acc
    dtype = mean.dtype
    delta = temporary(f"{name}_delta", dtype)
    change = Load(delta, ZERO)
    return [
        Allocate(delta),
        Store(delta, ZERO, compute("sub", dtype, x, Load(mean, at))),
        accumulate(left, at, change),
        accumulate(m2, at, compute("mul", dtype, change, change)),
    ]


def centre(acc: tuple[Buffer, ...], step: WelfordStep, elements: Elements) -> list[Stmt]:
    """What differences are taken from at the second visit: sum / n, or the first value where that is the same but for rounding,
    so that differences of equal values are 0."""
    mean, shift = acc[0], step.shift
    assert shift is not None

    def set_mean(e: Int) -> list[Stmt]:
        return centred(mean, e, Load(mean, e), Load(step.fraction, ZERO), Load(shift, e), step.visited_twice)

    return _for_each_element(step, elements, set_mean)


def centred(mean: Buffer, at: Int, total: Value, share: Value, first: Value, number: int) -> list[Stmt]:
    """mean = total * share of `number` numbers; `first`, which is the first of them, where all may be equal."""
    dtype = mean.dtype
    # Of `number` additions or products, of the share, and of what is multiplied by it.
    rounding = Literal(number * 2.0 ** (-52 if dtype is DataType.Double else -23), dtype)
    away = compute("abs", dtype, compute("sub", dtype, Load(mean, at), first))
    is_first = compare("le", away, compute("mul", dtype, compute("abs", dtype, first), rounding), dtype)
    return [
        Store(mean, at, compute("mul", dtype, total, share)),
        Store(mean, at, compute("where", dtype, is_first, first, Load(mean, at))),
    ]


def correct_deviations(acc: tuple[Buffer, ...], left: Buffer, step: WelfordStep, elements: Elements) -> list[Stmt]:
    """What rounding of the centre left over (Chan, Golub, LeVeque 1983, the corrected two-pass algorithm).

    f = left / n;  mean = centre + f;  m2 = squares - f left, and not below 0.
    """
    mean, m2, _ = acc
    dtype = mean.dtype

    def correct(e: Int) -> list[Stmt]:
        moved = compute("mul", dtype, Load(left, e), Load(step.fraction, ZERO))
        return [subtract_square(m2, e, Load(left, e), moved), accumulate(mean, e, moved)]

    return _for_each_element(step, elements, correct)


def _for_each_element(step: WelfordStep, elements: Elements, make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
    """`make(e)` for every element e where `step.fraction` is 1 / n, or 0 for no values: once for all if they are counted
    together."""
    dtype = step.fraction.dtype

    def share(e: Int) -> Store:
        count = Load(step.count, step.place_of_count(e))
        return Store(step.fraction, ZERO, safe_ratio(Literal(1.0, dtype), count, dtype))

    if step.count.size.value != 1:
        return elements(lambda e: [share(e), *make(e)])
    return [share(ZERO), *elements(make)]
