"""Means and sums of squared differences: combining partial results.

A partial is a triple of register arrays (mean, m2, count): m2 is the sum of squared differences from the mean. Sums of squares
that are subtracted from each other at the end would lose every digit for data with a large mean; these formulas do not.
"""

from __future__ import annotations

from fuser.ir.integers.integers import ZERO, Int, equal
from fuser.ir.kernel.kernel import Allocate, Buffer, Cast, If, IndexValue, Literal, Load, Role, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.lowering.combiners.combiner_values import accumulate, compute, increment, safe_ratio, temporary
from fuser.records import record


@record(eq=False)
class WelfordStep:
    """Registers that all elements of a thread's partials share: the number of values seen so far, the share of a new value or
    partial in that number, and the weight of the squared difference of the means.

    count   one register; one per element if the loop over elements runs outside the loop over values, as counts then differ
    shift   of values added one by one: the first value of each element. Until all are added, the partials are then the
            sums of the differences from it and of their squares (shifted_sums.py)
    visited_twice   the most values of an element, if a second loop over them computes the squares once the mean is known, else
                    0. The partials are then plain sums of the values, and `shift` has the sums of differences from the mean
    """

    count: Buffer
    fraction: Buffer
    weight: Buffer
    shift: Buffer | None = None
    visited_twice: int = 0

    def place_of_count(self, at: Int) -> Int:
        """Where the count of element `at` is."""
        return ZERO if self.count.size.value == 1 else at


def at_first_element(acc: tuple[Buffer, ...], at: Int, stmts: list[Stmt]) -> list[Stmt]:
    """What is done for all elements of a thread, when the first of them is visited."""
    return stmts if acc[0].size.value == 1 else [If(equal(at, 0), tuple(stmts), role=Role.plain)]


def welford_combine_common_count(
    acc: tuple[Buffer, ...], at: Int, other: tuple[Value, Value, Load], name: str, step: WelfordStep, lane: Int | None
) -> list[Stmt]:
    """`welford_combine` for partials whose counts are in common on both sides: one division for all of them.

    n = na + nb; f = nb / n (0 if n = 0); w = na * f; d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * w

    Where these are the partials of one thread, one after another (`lane` of them so far), n = (lane + 1) * nb and f is the
    constant 1 / (lane + 1).
    """
    dtype = acc[1].dtype
    total = temporary(f"{name}_n", step.count.dtype)
    other_mean, other_m2, number = other
    if lane is None:
        share = safe_ratio(Cast(number, dtype), Load(total, ZERO), dtype)
    else:
        share = compute("div", dtype, Literal(1.0, dtype), Cast(IndexValue(lane + 1, DataType.Int), dtype))
    counted = _combine_counts(step, total, number, share)
    delta, *joined = _combine_element(acc, at, other_mean, other_m2, name, step)
    return [delta, *at_first_element(acc, at, [Allocate(total), *counted]), *joined]


def welford_combine(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join two (mean, m2, count) triples (Chan et al. 1979); an empty side changes nothing.

    n = na + nb; f = nb / n (0 if n = 0); d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * na * f
    """
    mean, m2, count = acc
    dtype = mean.dtype
    total, other_count = temporary(f"{name}_n", count.dtype), temporary(f"{name}_nb", count.dtype)
    fraction, delta = temporary(f"{name}_f", dtype), temporary(f"{name}_delta", dtype)
    other_mean, other_m2, nb = other
    change = Load(delta, ZERO)
    weight = compute("mul", dtype, Cast(Load(count, at), dtype), Load(fraction, ZERO))
    gain = compute("mul", dtype, compute("mul", dtype, change, weight), change)
    return [
        *(Allocate(b) for b in (total, other_count, fraction, delta)),
        Store(other_count, ZERO, nb),
        Store(total, ZERO, increment(count, at, Load(other_count, ZERO))),
        Store(fraction, ZERO, safe_ratio(Cast(Load(other_count, ZERO), dtype), Load(total, ZERO), dtype)),
        Store(delta, ZERO, compute("sub", dtype, other_mean, Load(mean, at))),
        accumulate(mean, at, compute("mul", dtype, change, Load(fraction, ZERO))),
        accumulate(m2, at, compute("add", dtype, other_m2, gain)),
        Store(count, at, Load(total, ZERO)),
    ]


class CommonCountCombine:
    """`welford_combine` for triples of arrays whose elements have one count in common on each side.

    `counted` comes first, once; then `element` for each element.
    """

    def __init__(self, acc: tuple[Buffer, ...], name: str) -> None:
        self._acc = acc
        self._name = name
        dtype = acc[1].dtype
        self._step = WelfordStep(acc[2], temporary(f"{name}_f", dtype), temporary(f"{name}_w", dtype))

    def counted(self, other: Value) -> list[Stmt]:
        """n = na + nb; f = nb / n (0 if n = 0); w = na * f."""
        step, dtype = self._step, self._acc[1].dtype
        total = temporary(f"{self._name}_n", step.count.dtype)
        other_count = temporary(f"{self._name}_nb", step.count.dtype)
        number = Load(other_count, ZERO)
        share = safe_ratio(Cast(number, dtype), Load(total, ZERO), dtype)
        return [
            *(Allocate(b) for b in (total, other_count, step.fraction, step.weight)),
            Store(other_count, ZERO, other),
            *_combine_counts(step, total, number, share),
        ]

    def element(self, at: Int, other_mean: Value, other_m2: Value) -> list[Stmt]:
        """d = mean_b - mean_a; mean = mean_a + d * f; m2 = m2_a + m2_b + d * d * w."""
        return _combine_element(self._acc, at, other_mean, other_m2, self._name, self._step)


def _combine_counts(step: WelfordStep, total: Buffer, other: Value, share: Value) -> list[Stmt]:
    """n = na + `other`; f = `share`; w = na * f."""
    dtype = step.weight.dtype
    return [
        Store(total, ZERO, increment(step.count, ZERO, other)),
        Store(step.fraction, ZERO, share),
        Store(step.weight, ZERO, compute("mul", dtype, Cast(Load(step.count, ZERO), dtype), Load(step.fraction, ZERO))),
        Store(step.count, ZERO, Load(total, ZERO)),
    ]


def _combine_element(
    acc: tuple[Buffer, ...], at: Int, other_mean: Value, other_m2: Value, name: str, step: WelfordStep
) -> list[Stmt]:
    """d = mean_b - mean_a; mean += d * f; m2 += m2_b + d * d * w. The register of d comes first."""
    mean, m2, _ = acc
    dtype = mean.dtype
    delta = temporary(f"{name}_delta", dtype)
    change = Load(delta, ZERO)
    gain = compute("mul", dtype, compute("mul", dtype, change, change), Load(step.weight, ZERO))
    return [
        Allocate(delta),
        Store(delta, ZERO, compute("sub", dtype, other_mean, Load(mean, at))),
        accumulate(mean, at, compute("mul", dtype, change, Load(step.fraction, ZERO))),
        accumulate(m2, at, compute("add", dtype, other_m2, gain)),
    ]
