"""Welford's running mean and sum of squared differences: adding an element, joining partial results.

A partial is a triple of register arrays (mean, m2, count): m2 is the sum of squared differences from the mean. Sums of squares
that are subtracted from each other at the end would lose every digit for data with a large mean; these formulas do not.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import FALSE, ONE, TRUE, ZERO, Cond, Int, Symbol, equal
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, For, If, IndexValue, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.op_table import compute_dtype
from fuser.records import record
from fuser.runtime.variants import MAX_BLOCK


def temporary(name: str, dtype: DataType) -> Buffer:
    """A register of one element."""
    return Buffer(name, dtype, MemoryType.local, ONE)


@record(eq=False)
class WelfordStep:
    """What all elements of a thread's partials have in common, a register each: how many values each has seen, the share of
    what comes in among all seen, and the weight of the squared difference of the means.

    count   one for each element where a loop over them runs around one over their values: they are not counted together then
    shift   of real values added one by one: the first value of each element. Until they are complete the partials are then the
            sums of the differences from it and of their squares
    visited_twice   how many values each element has at most where they are visited again when their mean is known: nothing
                    is squared before that, and the partials are sums of the values themselves. `shift` then has the sums of
                    the differences from the mean. Else 0
    """

    count: Buffer
    fraction: Buffer
    weight: Buffer
    shift: Buffer | None = None
    visited_twice: int = 0

    def place_of_count(self, at: Int) -> Int:
        """Where the count of element `at` is."""
        return ZERO if self.count.size.value == 1 else at


def welford_add(acc: tuple[Buffer, ...], at: Int, x: Value, name: str) -> list[Stmt]:
    """Fold one element into (mean, m2, count): Welford's update (Welford 1962).

    delta = x - mean; mean += delta / count; m2 += delta * (x - mean)
    """
    mean, m2, count = acc
    real = m2.dtype
    value, delta = temporary(f"{name}_x", mean.dtype), temporary(f"{name}_delta", mean.dtype)
    change = Load(delta, ZERO)
    quotient = Call("div", (change, Cast(Load(count, at), real)), mean.dtype, mean.dtype)
    rest = Call("sub", (Load(value, ZERO), Load(mean, at)), mean.dtype, mean.dtype)
    return [
        Allocate(value),
        Allocate(delta),
        Store(value, ZERO, x),
        _increment(count, at),
        Store(delta, ZERO, Call("sub", (Load(value, ZERO), Load(mean, at)), mean.dtype, mean.dtype)),
        Store(mean, at, Call("add", (Load(mean, at), quotient), mean.dtype, mean.dtype)),
        Store(m2, at, Call("add", (Load(m2, at), Call("mul", (change, rest), real, real)), real, real)),
    ]


def shifted_add(
    acc: tuple[Buffer, ...], at: Int, x: Value, name: str, step: WelfordStep, *, may_be_first: Cond
) -> list[Stmt]:
    """Fold one element into (sum of differences, sum of their squares), the differences from the first one of the element.

    Nothing but the additions waits for the value before, and a large common part of all values costs no digits. The first value
    lies within the data: the squares are larger than those of the differences from the mean by no more than a factor of the
    number of values. So where all values can be visited again (`add_deviation`), they are only added up here. `may_be_first`:
    false where values were seen before for certain.
    """
    away, squares, _ = acc
    shift = step.shift
    assert shift is not None
    dtype = away.dtype
    value, delta = temporary(f"{name}_x", dtype), temporary(f"{name}_delta", dtype)
    change = Load(delta, ZERO)
    count_at = step.place_of_count(at)
    increment: list[Stmt] = [_increment(step.count, count_at)]
    is_first = Call("eq", (Load(step.count, count_at), Literal(1, step.count.dtype)), step.count.dtype, DataType.Bool)
    keep = Store(shift, at, Call("where", (is_first, Load(value, ZERO), Load(shift, at)), dtype, dtype))
    kept: list[Stmt] = [] if may_be_first is FALSE else [keep]
    if may_be_first not in (TRUE, FALSE):
        kept = [If(may_be_first, (keep,), role=Role.plain)]

    def call(op: str, a: Value, b: Value) -> Call:
        return Call(op, (a, b), dtype, dtype)

    counted = [
        Allocate(value),
        Store(value, ZERO, x),
        *(_once(acc, at, increment) if count_at is ZERO else increment),
        *kept,
    ]
    if step.visited_twice:
        return [*counted, Store(away, at, call("add", Load(away, at), Load(value, ZERO)))]
    return [
        *counted,
        Allocate(delta),
        Store(delta, ZERO, call("sub", Load(value, ZERO), Load(shift, at))),
        Store(away, at, call("add", Load(away, at), change)),
        Store(squares, at, call("add", Load(squares, at), call("mul", change, change))),
    ]


def add_deviation(acc: tuple[Buffer, ...], left: Buffer, at: Int, x: Value, name: str) -> list[Stmt]:
    """The second visit of a value: d = x - mean; left += d; m2 += d^2."""
    mean, m2, _ = acc
    dtype = mean.dtype
    delta = temporary(f"{name}_delta", dtype)

    def add(into: Buffer, value: Value) -> Store:
        return Store(into, at, Call("add", (Load(into, at), value), dtype, dtype))

    return [
        Allocate(delta),
        Store(delta, ZERO, Call("sub", (x, Load(mean, at)), dtype, dtype)),
        add(left, Load(delta, ZERO)),
        add(m2, Call("mul", (Load(delta, ZERO), Load(delta, ZERO)), dtype, dtype)),
    ]


def unshift(
    acc: tuple[Buffer, ...], step: WelfordStep, elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]
) -> list[Stmt]:
    """Turn what `shifted_add` made into a mean and a sum of squared differences from it.

    f = sum / n;  mean = shift + f;  m2 = squares - f sum, and not below 0.
    """
    mean, m2, _ = acc
    assert step.shift is not None
    shift, dtype = step.shift, mean.dtype

    def settle(e: Int) -> list[Stmt]:
        moved = _call("mul", dtype, Load(mean, e), Load(step.fraction, ZERO))
        left = _call("sub", dtype, Load(m2, e), _call("mul", dtype, Load(mean, e), moved))
        settled = Store(m2, e, _call("maximum", dtype, left, Literal(0.0, dtype)))
        return [settled, Store(mean, e, _call("add", dtype, Load(shift, e), moved))]

    return _with_share(step, elements, settle)


def centre(
    acc: tuple[Buffer, ...], step: WelfordStep, elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]
) -> list[Stmt]:
    """What differences are taken from at the second visit: sum / n, or the first value where that is the same but for rounding,
    so that differences of equal values are 0."""
    mean, shift = acc[0], step.shift
    assert shift is not None

    def settle(e: Int) -> list[Stmt]:
        return _centred(mean, e, Load(mean, e), Load(step.fraction, ZERO), Load(shift, e), step.visited_twice)

    return _with_share(step, elements, settle)


def _centred(mean: Buffer, at: Int, total: Value, share: Value, first: Value, number: int) -> list[Stmt]:
    """mean = total * share of `number` numbers; `first`, which is the first of them, where all may be equal."""
    dtype = mean.dtype
    # Of `number` additions or products, of the share, and of what is multiplied by it.
    rounding = Literal(number * 2.0 ** (-52 if dtype is DataType.Double else -23), dtype)
    away = _call("abs", dtype, _call("sub", dtype, Load(mean, at), first))
    is_first = Call("le", (away, _call("mul", dtype, _call("abs", dtype, first), rounding)), dtype, DataType.Bool)
    return [
        Store(mean, at, _call("mul", dtype, total, share)),
        Store(mean, at, Call("where", (is_first, first, Load(mean, at)), dtype, dtype)),
    ]


def settle_deviations(
    acc: tuple[Buffer, ...],
    left: Buffer,
    step: WelfordStep,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
) -> list[Stmt]:
    """What rounding of the centre left over (Chan, Golub, LeVeque 1983, the corrected two-pass algorithm).

    f = left / n;  mean = centre + f;  m2 = squares - f left, and not below 0.
    """
    mean, m2, _ = acc
    dtype = mean.dtype

    def settle(e: Int) -> list[Stmt]:
        moved = _call("mul", dtype, Load(left, e), Load(step.fraction, ZERO))
        rest = _call("sub", dtype, Load(m2, e), _call("mul", dtype, Load(left, e), moved))
        return [
            Store(m2, e, _call("maximum", dtype, rest, Literal(0.0, dtype))),
            Store(mean, e, _call("add", dtype, Load(mean, e), moved)),
        ]

    return _with_share(step, elements, settle)


def _call(op: str, dtype: DataType, *args: Value) -> Call:
    return Call(op, args, dtype, dtype)


def _with_share(
    step: WelfordStep,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    make: Callable[[Int], list[Stmt]],
) -> list[Stmt]:
    """`make(e)` for every element e where `step.fraction` is 1 / n, or 0 for no values: once for all if they are counted
    together."""
    dtype, integral = step.fraction.dtype, compute_dtype(step.count.dtype)

    def share_of(e: Int) -> Store:
        number = Load(step.count, step.place_of_count(e))
        is_empty = Call("eq", (number, Literal(0, step.count.dtype)), integral, DataType.Bool)
        share = _call("div", dtype, Literal(1.0, dtype), Cast(number, dtype))
        return Store(step.fraction, ZERO, Call("where", (is_empty, Literal(0.0, dtype), share), dtype, dtype))

    if step.count.size.value != 1:
        return elements(lambda e: [share_of(e), *make(e)])
    return [share_of(ZERO), *elements(make)]


def _increment(count: Buffer, at: Int) -> Store:
    one = Literal(1, count.dtype)
    return Store(count, at, Call("add", (Load(count, at), one), compute_dtype(count.dtype), count.dtype))


def _once(acc: tuple[Buffer, ...], at: Int, stmts: list[Stmt]) -> list[Stmt]:
    """What is done for all elements of a thread, when the first of them is visited."""
    return stmts if acc[0].size.value == 1 else [If(equal(at, 0), tuple(stmts), role=Role.plain)]


def welford_join(
    acc: tuple[Buffer, ...],
    at: Int,
    other: tuple[Value, ...],
    name: str,
    step: WelfordStep,
    source: WelfordStep,
    lane: Int | None,
) -> list[Stmt]:
    """`welford_combine` for partials whose counts are in common on both sides: one division for all of them.

    n = na + nb; f = nb / n (0 if n = 0); w = na * f; d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * w

    Where these are the partials of one thread, one after another (`lane` of them so far), n = (lane + 1) * nb and f is the
    constant 1 / (lane + 1).
    """
    mean, m2, _ = acc
    real, dtype = m2.dtype, mean.dtype
    delta, total = temporary(f"{name}_delta", dtype), temporary(f"{name}_n", step.count.dtype)
    integral = compute_dtype(step.count.dtype)

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    is_empty = Call("eq", (Load(total, ZERO), Literal(0, total.dtype)), integral, DataType.Bool)
    share: Value
    if lane is None:
        quotient = call("div", Cast(Load(source.count, ZERO), real), Cast(Load(total, ZERO), real), real)
        share = Call("where", (is_empty, Literal(0.0, real), quotient), real, real)
    else:
        share = call("div", Literal(1.0, real), Cast(IndexValue(lane + 1, DataType.Int), real), real)
    counted: list[Stmt] = [
        Allocate(total),
        Store(total, ZERO, Call("add", (Load(step.count, ZERO), Load(source.count, ZERO)), integral, total.dtype)),
        Store(step.fraction, ZERO, share),
        Store(step.weight, ZERO, call("mul", Cast(Load(step.count, ZERO), real), Load(step.fraction, ZERO), real)),
        Store(step.count, ZERO, Load(total, ZERO)),
    ]
    return [
        Allocate(delta),
        *_once(acc, at, counted),
        Store(delta, ZERO, call("sub", other[0], Load(mean, at), dtype)),
        *_moved(acc, at, delta, other[1], step.fraction, step.weight),
    ]


def welford_combine(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join two (mean, m2, count) triples (Chan et al. 1979); an empty side changes nothing.

    n = na + nb; f = nb / n (0 if n = 0); d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * na * f
    """
    mean, m2, count = acc
    real = m2.dtype
    dtype = mean.dtype
    total = temporary(f"{name}_n", count.dtype)
    other_count = temporary(f"{name}_nb", count.dtype)
    fraction, delta = temporary(f"{name}_f", real), temporary(f"{name}_delta", dtype)
    other_mean, other_m2, nb = other

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    integral = compute_dtype(count.dtype)
    is_empty = Call("eq", (Load(total, ZERO), Literal(0, count.dtype)), integral, DataType.Bool)
    quotient = call("div", Cast(Load(other_count, ZERO), real), Cast(Load(total, ZERO), real), real)
    share = call("mul", Cast(Load(count, at), real), Load(fraction, ZERO), real)
    gain = call("mul", call("mul", Load(delta, ZERO), share, real), Load(delta, ZERO), real)
    return [
        *(Allocate(b) for b in (total, other_count, fraction, delta)),
        Store(other_count, ZERO, nb),
        Store(total, ZERO, Call("add", (Load(count, at), Load(other_count, ZERO)), integral, count.dtype)),
        Store(fraction, ZERO, Call("where", (is_empty, Literal(0.0, real), quotient), real, real)),
        Store(delta, ZERO, call("sub", other_mean, Load(mean, at), dtype)),
        Store(
            mean, at, call("add", Load(mean, at), call("mul", Load(delta, ZERO), Load(fraction, ZERO), dtype), dtype)
        ),
        Store(m2, at, call("add", Load(m2, at), call("add", other_m2, gain, real), real)),
        Store(count, at, Load(total, ZERO)),
    ]


def pool_statistics(
    acc: tuple[Buffer, ...],
    others: Callable[[int, Int, Int], Value],
    number: Int,
    elements: Callable[[Callable[[Int], list[Stmt]]], list[Stmt]],
    make_symbol: Callable[[str, Int], Symbol],
    name: str,
    *,
    unroll: bool = False,
) -> list[Stmt]:
    """Set (mean, m2, count) to those of `number` triples together: `others(i, e, k)` is array i of triple k for element e.

    n = sum(n_k);  centre = sum(n_k mean_k) / n;  d_k = mean_k - centre;  f = sum(n_k d_k) / n
    mean = centre + f;  m2 = sum(m2_k + n_k d_k^2) - f sum(n_k d_k), and not below 0

    One division for all of them instead of one for each, and no step waits for the mean of those before. What rounding of the
    centre left over is added in the end, so that it costs no digits; see `_centred`. A triple of no values has weight 0.
    """
    mean, m2, count = acc
    common = count.size is not mean.size
    real, dtype, integral = m2.dtype, mean.dtype, compute_dtype(count.dtype)
    total, moved = (
        Buffer(f"{name}_total", count.dtype, MemoryType.local, count.size),
        Buffer(f"{name}_moved", dtype, MemoryType.local, mean.size),
    )
    weight, inverse, delta, weighted = (
        temporary(f"{name}_weight", real),
        temporary(f"{name}_inverse", real),
        temporary(f"{name}_delta", dtype),
        temporary(f"{name}_weighted", dtype),
    )

    most = MAX_BLOCK if number.hi is None else number.hi

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    def weigh(e: Int, k: Int) -> Store:
        return Store(weight, ZERO, Cast(others(2, e, k), real))

    def each(once: Callable[[Int], list[Stmt]], rest: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        """`once` for each count, `rest` for each element."""
        return [*once(ZERO), *elements(rest)] if common else elements(lambda e: [*once(e), *rest(e)])

    def start(e: Int) -> list[Stmt]:
        return [Store(moved, e, Literal(0.0, dtype), Role.initialise)]

    k = make_symbol("k", number)

    def count_up(e: Int) -> list[Stmt]:
        return [weigh(e, k), Store(total, e, Call("add", (Load(total, e), others(2, e, k)), integral, count.dtype))]

    def move(e: Int) -> list[Stmt]:
        weighted = call("mul", others(0, e, k), Load(weight, ZERO), dtype)
        return [Store(moved, e, call("add", Load(moved, e), weighted, dtype))]

    def divide(e: Int) -> list[Stmt]:
        is_empty = Call("eq", (Load(total, e), Literal(0, count.dtype)), integral, DataType.Bool)
        share = call("div", Literal(1.0, real), Cast(Load(total, e), real), real)
        return [
            Store(inverse, ZERO, Call("where", (is_empty, Literal(0.0, real), share), real, real)),
            Store(count, e, Load(total, e)),
        ]

    def settle(e: Int) -> list[Stmt]:
        return [
            *_centred(mean, e, Load(moved, e), Load(inverse, ZERO), others(0, e, ZERO), most),
            Store(moved, e, Literal(0.0, dtype), Role.initialise),
            Store(m2, e, Literal(0.0, real), Role.initialise),
        ]

    j = make_symbol("k", number)

    def add(e: Int) -> list[Stmt]:
        gain = call("mul", Load(delta, ZERO), Load(weighted, ZERO), real)
        return [
            Store(delta, ZERO, call("sub", others(0, e, j), Load(mean, e), dtype)),
            Store(weighted, ZERO, call("mul", Load(delta, ZERO), Load(weight, ZERO), dtype)),
            Store(moved, e, call("add", Load(moved, e), Load(weighted, ZERO), dtype)),
            Store(m2, e, call("add", Load(m2, e), call("add", others(1, e, j), gain, real), real)),
        ]

    def finish(e: Int) -> list[Stmt]:
        change = call("mul", Load(moved, e), Load(inverse, ZERO), dtype)
        left = call("sub", Load(m2, e), call("mul", Load(moved, e), change, real), real)
        return [
            Store(m2, e, Call("maximum", (left, Literal(0.0, real)), real, real)),
            Store(mean, e, call("add", Load(mean, e), change, dtype)),
        ]

    def clear(e: Int) -> list[Stmt]:
        return [Store(total, e, Literal(0, count.dtype), Role.initialise)]

    return [
        *(Allocate(b) for b in (total, moved, weight, inverse, delta, weighted)),
        *each(clear, start),
        For(k, ZERO, number, ONE, tuple(each(count_up, move)), unroll=unroll),
        *each(divide, settle),
        For(j, ZERO, number, ONE, tuple(each(lambda e: [weigh(e, j)], add)), unroll=unroll),
        *each(lambda e: [] if common or mean.size.value == 1 else divide(e), finish),
    ]


class CommonJoin:
    """`welford_combine` for triples of arrays whose elements have one count in common on each side.

    `counted` comes first, once; then `element` for each element.
    """

    def __init__(self, acc: tuple[Buffer, ...], name: str) -> None:
        self._acc = acc
        self._name = name
        real = acc[1].dtype
        self._fraction, self._weight = temporary(f"{name}_f", real), temporary(f"{name}_w", real)

    def counted(self, other: Value) -> list[Stmt]:
        """n = na + nb; f = nb / n (0 if n = 0); w = na * f."""
        count, real = self._acc[2], self._acc[1].dtype
        total, other_count = temporary(f"{self._name}_n", count.dtype), temporary(f"{self._name}_nb", count.dtype)
        integral = compute_dtype(count.dtype)
        is_empty = Call("eq", (Load(total, ZERO), Literal(0, count.dtype)), integral, DataType.Bool)
        quotient = Call("div", (Cast(Load(other_count, ZERO), real), Cast(Load(total, ZERO), real)), real, real)
        before = Cast(Load(count, ZERO), real)
        return [
            *(Allocate(b) for b in (total, other_count, self._fraction, self._weight)),
            Store(other_count, ZERO, other),
            Store(total, ZERO, Call("add", (Load(count, ZERO), Load(other_count, ZERO)), integral, count.dtype)),
            Store(self._fraction, ZERO, Call("where", (is_empty, Literal(0.0, real), quotient), real, real)),
            Store(self._weight, ZERO, Call("mul", (before, Load(self._fraction, ZERO)), real, real)),
            Store(count, ZERO, Load(total, ZERO)),
        ]

    def element(self, at: Int, other_mean: Value, other_m2: Value) -> list[Stmt]:
        """d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * w."""
        delta = temporary(f"{self._name}_delta", self._acc[0].dtype)
        difference = Call("sub", (other_mean, Load(self._acc[0], at)), delta.dtype, delta.dtype)
        return [
            Allocate(delta),
            Store(delta, ZERO, difference),
            *_moved(self._acc, at, delta, other_m2, self._fraction, self._weight),
        ]


def _moved(
    acc: tuple[Buffer, ...], at: Int, delta: Buffer, other_m2: Value, fraction: Buffer, weight: Buffer
) -> list[Stmt]:
    """mean += d * f; m2 += m2_b + d * d * w."""
    mean, m2 = acc[:2]
    real, dtype, change = m2.dtype, mean.dtype, Load(delta, ZERO)

    def call(op: str, a: Value, b: Value, d: DataType) -> Call:
        return Call(op, (a, b), d, d)

    gain = call("mul", call("mul", change, change, real), Load(weight, ZERO), real)
    return [
        Store(mean, at, call("add", Load(mean, at), call("mul", change, Load(fraction, ZERO), dtype), dtype)),
        Store(m2, at, call("add", Load(m2, at), call("add", other_m2, gain, real), real)),
    ]
