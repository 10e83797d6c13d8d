"""Divide by what many elements have in common with its reciprocal, which is found once.

Before: t2 = broadcast(t1, [False, True]); t3 = near_truediv(t0, t2)             in Float, t1 known to be no tiny number
After:  t4 = near_truediv(1.0, t1); t3 = mul(t0, broadcast(t4))

A product with the rounded reciprocal is off by at most twice what a rounded quotient is, which the approximate op allows; by
2**-21.7 where the divisor is above 2**126 and its reciprocal has few bits. The reciprocal is computed where the divisor is: in
an earlier kernel where that is one of its results, as with statistics of columns.

Before: t2 = broadcast(t1, [False, True]); t3 = truediv(t0, t2)                  in Double
After:  t4 = divisor_scale(t1); t5 = scaled_divisor(t1); t6 = reciprocal(t5)
        t3 = divide_by_common(t0, broadcast(t4), broadcast(t5), broadcast(t6))

or, where t0 is the exponential of which t1 is the sum, between 0 and 1 and at least 1:

        t3 = divide_by_sum(t0, broadcast(t1), broadcast(reciprocal(t1)))

A division of Doubles takes some twenty instructions and a branch; a quotient corrected by its exact remainder takes three, and
rounds as well. Floats that comparisons depend on do so anyway (`codegen/float_functions.py`).
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    ExpSum,
    Fusion,
    Pointwise,
    Scalar,
    Tensor,
    next_number,
)
from fuser.ir.ops.approximate_ops import EXP_OF_NEGATIVE
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.exact_ops import DIVIDE_BY_COMMON, DIVIDE_BY_SUM, DIVISOR_SCALE, SCALED_DIVISOR
from fuser.optimize.compute_before_broadcast import tensor_of
from fuser.optimize.remove_dead_code import remove_dead_code
from fuser.optimize.value_ranges import range_of, value_ranges

_DIVISIONS = ("div", "truediv")
_APPROXIMATE_DIVISIONS = ("near_div", "near_truediv", "coarse_div", "coarse_truediv")
_LEAST_NORMAL = 2.0**-126


def common_divisors(fusion: Fusion) -> Fusion:
    """The same outputs, but where dividend and divisor are both below 2**-900 maybe a unit of the last place from them."""
    return _divide_doubles(_divide_floats(fusion))


def _divide_floats(fusion: Fusion) -> Fusion:
    found = {
        e: b for e in fusion.exprs if (b := _divisor(e, fusion, DataType.Float, _APPROXIMATE_DIVISIONS)) is not None
    }
    ranges = value_ranges(fusion) if found else {}
    found = {e: b for e, b in found.items() if range_of(b.input, ranges)[0] >= _LEAST_NORMAL}
    if not found:
        return fusion
    number = next_number(fusion)
    one = Scalar(f"c{number}", DataType.Double, 1.0)
    made: dict[Broadcast, Tensor] = {}
    exprs: list[Expr] = []
    for expr in fusion.exprs:
        spread = found.get(expr)
        if spread is None:
            exprs.append(expr)
            continue
        assert isinstance(expr, Pointwise)
        if spread not in made:
            common = spread.input
            reciprocal = tensor_of(f"t{number}", common.visible, spread.output, common)
            made[spread] = tensor_of(f"t{number + 1}", spread.output.visible, spread.output, common)
            exprs += [
                Pointwise("near_truediv", (one, common), reciprocal),
                Broadcast(reciprocal, made[spread], spread.flags),
            ]
            number += 2
        exprs.append(Pointwise("mul", (expr.inputs[0], made[spread]), expr.output))
    return remove_dead_code(
        Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)
    )


def _divide_doubles(fusion: Fusion) -> Fusion:
    if not any(_divisor(e, fusion) for e in fusion.exprs):
        return fusion
    number = next_number(fusion)
    made: dict[Broadcast, tuple[Tensor, ...]] = {}
    sums: dict[Broadcast, Tensor] = {}
    exprs: list[Expr] = []
    for expr in fusion.exprs:
        spread = _divisor(expr, fusion)
        if spread is None:
            exprs.append(expr)
            continue
        assert isinstance(expr, Pointwise)
        if _is_term(expr, spread, fusion):
            if spread not in sums:
                common = spread.input
                reciprocal = tensor_of(f"t{number}", common.visible, spread.output, common)
                sums[spread] = tensor_of(f"t{number + 1}", spread.output.visible, spread.output, common)
                exprs += [
                    Pointwise("reciprocal", (common,), reciprocal),
                    Broadcast(reciprocal, sums[spread], spread.flags),
                ]
                number += 2
            exprs.append(Pointwise(DIVIDE_BY_SUM.name, (*expr.inputs, sums[spread]), expr.output))
            continue
        if spread not in made:
            common = spread.input
            narrow = common.visible
            scale, scaled, reciprocal = (tensor_of(f"t{number + k}", narrow, spread.output, common) for k in range(3))
            dims = spread.output.visible
            wide = tuple(tensor_of(f"t{number + 3 + k}", dims, spread.output, common) for k in range(3))
            exprs += [
                Pointwise(DIVISOR_SCALE.name, (common,), scale),
                Pointwise(SCALED_DIVISOR.name, (common,), scaled),
                Pointwise("reciprocal", (scaled,), reciprocal),
                *(Broadcast(t, w, spread.flags) for t, w in zip((scale, scaled, reciprocal), wide, strict=True)),
            ]
            number += 6
            made[spread] = wide
        exprs.append(Pointwise(DIVIDE_BY_COMMON.name, (expr.inputs[0], *made[spread]), expr.output))
    return remove_dead_code(
        Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)
    )


def _is_term(expr: Pointwise, spread: Broadcast, fusion: Fusion) -> bool:
    """Whether what is divided is an exponential, and the divisor the sum of those of its row up to the largest one."""
    term, total = fusion.definitions.get(expr.inputs[0]), fusion.definitions.get(spread.input)
    if not (isinstance(term, Pointwise) and term.op == EXP_OF_NEGATIVE.name and isinstance(total, ExpSum)):
        return False
    below = fusion.definitions.get(term.inputs[0])
    if not (isinstance(below, Pointwise) and below.op == "sub" and below.inputs[0] is total.input):
        return False
    largest = fusion.definitions.get(below.inputs[1])
    is_of_row = isinstance(largest, Broadcast) and largest.input is total.largest and largest.flags == spread.flags
    return total.total is spread.input and is_of_row


def _divisor(
    expr: Expr, fusion: Fusion, dtype: DataType = DataType.Double, ops: tuple[str, ...] = _DIVISIONS
) -> Broadcast | None:
    """The broadcast of what numbers of a dtype are divided by; None where an expr is nothing of the kind."""
    if not (isinstance(expr, Pointwise) and expr.op in ops and expr.output.dtype is dtype):
        return None
    a, b = expr.inputs
    if not all(isinstance(v, Tensor) and v.dtype is dtype for v in (a, b)):
        return None
    dividend, spread = fusion.definitions.get(a), fusion.definitions.get(b)
    # A dividend that is as common as the divisor is divided once.
    if isinstance(dividend, Broadcast) or not isinstance(spread, Broadcast):
        return None
    # What is only read is divided by as it is: a number on the host has no place for what is computed from it.
    return spread if spread.input in fusion.definitions else None
