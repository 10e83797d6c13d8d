"""Statistics of 16-bit numbers from two plain sums, of the values and of their squares.

In Double neither sum loses anything that shows in a Float (`ir/exact_statistics.value_digits`), so nothing is subtracted from
the values first, and what threads and blocks have is joined by additions alone: no divisions, no differences of means. The
mean and the squares of the differences from it come of the complete sums, once.

Values of few digits are added up in Float first, over an iteration of a thread (a *run*): their squares are exact
there. A run of values of any size would overflow where a Float holds their variance: values beyond 2**60 are taken as
differences from the first of their thread, if that is as large. All others are taken as they are: a first value far
from the rest would cost every difference its digits.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import FALSE, ONE, ZERO, Cond, Int, Symbol, const, equal
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, If, Literal, Load, LoadIndex, Role, Stmt, Store, Value
from fuser.lowering.combiners.welford import WelfordStep

MOMENTS = "moments"
"""What a collective over (sum, sum of squares, count) is called."""

Double, Float = DataType.Double, DataType.Float
_HUGE = 2.0**60
_LARGEST = 3.4028234663852886e38


def add_to_run(step: WelfordStep, total: WelfordStep, at: Int, x: Value, name: str, *, is_first: Cond) -> list[Stmt]:
    """Fold one Float into the sums of a run; `total`: the step of what the run is added to, whose shift it takes.

    `is_first`: whether it is the first that its thread sees, if that has any where this holds.
    """
    assert step.sums is not None
    assert total.shift is not None
    shift = total.shift
    value, d = _register(f"{name}_x", Float), _register(f"{name}_d", Float)
    first, change = Load(value, ZERO), Load(d, ZERO)
    size = Call("abs", (first,), Float, Float)
    beyond = Call("lt", (Literal(_HUGE, Float), size), Float, DataType.Bool)
    finite = Call("le", (size, Literal(_LARGEST, Float)), Float, DataType.Bool)
    is_huge = Call("logical_and", (beyond, finite), DataType.Bool, DataType.Bool)
    keep = Store(shift, at, Call("where", (is_huge, first, Load(shift, at)), Float, Float))
    return [
        Allocate(value),
        Allocate(d),
        Store(value, ZERO, x),
        *([] if is_first is FALSE else [If(is_first, (keep,), role=Role.plain)]),
        Store(d, ZERO, _call("sub", first, Load(shift, at))),
        *_added(step.sums, at, change, _call("mul", change, change)),
    ]


def add_value(step: WelfordStep, at: Int, x: Value, name: str) -> list[Stmt]:
    """Fold one Float into sums in Double."""
    assert step.sums is not None
    value = _register(f"{name}_x", Double)
    wide = Load(value, ZERO)
    return [
        Allocate(value),
        Store(value, ZERO, Cast(x, Double)),
        *_added(step.sums, at, wide, _call("mul", wide, wide)),
    ]


def add_run(sums: tuple[Buffer, Buffer], at: Int, run: tuple[Value, Value]) -> list[Stmt]:
    """Add the sums of a run to those of its thread."""
    return _added(sums, at, Cast(run[0], Double), Cast(run[1], Double))


def unshifted(
    step: WelfordStep,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    make_symbol: Callable[[Int, str], Symbol],
    name: str,
) -> list[Stmt]:
    """Make a thread's sums of differences from `shift` those of the values themselves.

    sum' = sum + n shift;  squares' = squares + shift (sum + sum')

    Hardly any thread has a shift: the others test for one and go on.
    """
    if step.shift is None:
        return []
    assert step.sums is not None
    (total, squares), shift = step.sums, step.shift
    by, moved, number = (_register(f"{name}_{part}", Double) for part in ("by", "moved", "number"))

    def move(e: Int) -> list[Stmt]:
        both = _call("add", Load(total, e), Load(moved, ZERO))
        return [
            Store(by, ZERO, Cast(Load(shift, e), Double)),
            Store(moved, ZERO, _call("add", Load(total, e), _call("mul", Load(number, ZERO), Load(by, ZERO)))),
            Store(squares, e, _call("add", Load(squares, e), _call("mul", Load(by, ZERO), both))),
            Store(total, e, Load(moved, ZERO)),
        ]

    away = Buffer(f"{name}_away", DataType.Int32, MemoryType.local, ONE)
    found = make_symbol(const(2), "away")
    one = Literal(1, DataType.Int32)

    def look(e: Int) -> list[Stmt]:
        is_away = Call("ne", (Load(shift, e), Literal(0.0, Float)), Float, DataType.Bool)
        return [Store(away, ZERO, Call("where", (is_away, one, Load(away, ZERO)), DataType.Int32, DataType.Int32))]

    move_all = (
        *(Allocate(b) for b in (by, moved, number)),
        Store(number, ZERO, Cast(Load(step.count, ZERO), Double)),
        *elements(move),
    )
    return [
        Allocate(away),
        Store(away, ZERO, Literal(0, DataType.Int32), Role.initialise),
        *elements(look),
        LoadIndex(found, away, ZERO),
        If(equal(found, 1), move_all, role=Role.plain),
    ]


def settle_moments(
    acc: tuple[Buffer, Buffer, Buffer],
    step: WelfordStep,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    name: str,
) -> list[Stmt]:
    """Set (mean, m2, rest) to what the complete sums of n values and of their squares say.

    f = sum / n, rounded once;  r = sum - n f, exactly;  mean + rest = f;  m2 = (squares - f sum) - f r, and not below 0

    What is left of squares where the values are nearly the same is small beside either product: those are not rounded.
    """
    assert step.sums is not None
    mean, m2, rest = acc
    (total, squares), count = step.sums, step.count
    share, number, f, missing, lost = (
        _register(f"{name}_{part}", Double) for part in ("share", "number", "f", "missing", "lost")
    )
    is_empty = Call("eq", (Load(count, ZERO), Literal(0, count.dtype)), count.dtype, DataType.Bool)
    near = Call("div", (Literal(1.0, Float), Cast(Load(count, ZERO), Float)), Float, Float)

    def settle(e: Int) -> list[Stmt]:
        of_sum, mean_of = Load(total, e), Load(f, ZERO)
        # What is left of a sum that is not finite is nan.
        nearer = _fma(Load(missing, ZERO), Load(share, ZERO), mean_of)
        left_of_sum = _fma(_minus(mean_of), Load(number, ZERO), of_sum)
        left = _fma(_minus(mean_of), Load(missing, ZERO), _fma(_minus(mean_of), of_sum, Load(squares, e)))
        return [
            Store(f, ZERO, _call("mul", of_sum, Load(share, ZERO))),
            Store(missing, ZERO, left_of_sum),
            Store(f, ZERO, _number(nearer, mean_of)),
            Store(missing, ZERO, left_of_sum),
            Store(m2, e, Cast(_call("maximum", left, Literal(0.0, Double)), m2.dtype)),
            Store(mean, e, Cast(mean_of, mean.dtype)),
            Store(lost, ZERO, _call("sub", mean_of, Cast(Load(mean, e), Double))),
            Store(rest, e, Cast(_number(Load(lost, ZERO), Literal(0.0, Double)), rest.dtype)),
        ]

    return [
        *(Allocate(b) for b in (share, number, f, missing, lost)),
        Store(number, ZERO, Cast(Load(count, ZERO), Double)),
        # 1 / n in Float, and a step of Newton: a division in Double would take ten times as long.
        Store(share, ZERO, Cast(Call("where", (is_empty, Literal(0.0, Float), near), Float, Float), Double)),
        Store(
            share,
            ZERO,
            _fma(
                Load(share, ZERO),
                _fma(_minus(Load(number, ZERO)), Load(share, ZERO), Literal(1.0, Double)),
                Load(share, ZERO),
            ),
        ),
        *elements(settle),
    ]


def _number(value: Value, other: Value) -> Value:
    """A value, or the other one where it is nan."""
    return Call("where", (Call("eq", (value, value), Double, DataType.Bool), value, other), Double, Double)


def _minus(value: Value) -> Value:
    return Call("neg", (value,), value.dtype, value.dtype)


def _fma(a: Value, b: Value, c: Value) -> Value:
    return Call("fma", (a, b, c), Double, Double)


def _added(sums: tuple[Buffer, Buffer], at: Int, x: Value, square: Value) -> list[Stmt]:
    return [Store(b, at, _call("add", Load(b, at), term)) for b, term in zip(sums, (x, square), strict=True)]


def _call(op: str, a: Value, b: Value) -> Call:
    return Call(op, (a, b), a.dtype, a.dtype)


def _register(name: str, dtype: DataType) -> Buffer:
    return Buffer(name, dtype, MemoryType.local, ONE)
