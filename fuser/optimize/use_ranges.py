"""Compute functions by forms for the range that their operands lie in.

Before: t3 = sub(t0, broadcast(max(t0))); t4 = exp(t3)                  of Doubles
After:  t3 = sub(t0, broadcast(max(t0))); t4 = exp_of_negative(t3)      no branch

Before: t2 = exp(neg(abs(t0))); t3 = log1p(t2)                          a softplus
After:  t2 = exp(neg(abs(t0))); t3 = log1p_of_fraction(t2)              half of the instructions, in Float

Before: t2 = maximum(t0, 0.003); t3 = pow(t2, 0.41)
After:  t2 = maximum(t0, 0.003); t3 = pow_of_positive(t2, 0.41)         likewise
"""

from __future__ import annotations

import math

from fuser.ir.fusion.fusion import Expr, Fusion, Pointwise
from fuser.ir.ops.approximate_ops import EXP_OF_NEGATIVE, LOG1P_OF_FRACTION, POW_OF_POSITIVE
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.pointwise_op import PointwiseOp
from fuser.optimize.value_ranges import Range, range_of, value_ranges

_FORMS: dict[tuple[str, DataType], tuple[Range, PointwiseOp]] = {
    ("exp", DataType.Double): ((-math.inf, 0.0), EXP_OF_NEGATIVE),
    ("pow", DataType.Float): ((0.0, math.inf), POW_OF_POSITIVE),
    ("log1p", DataType.Float): ((0.0, 1.0), LOG1P_OF_FRACTION),
}
"""By op and dtype: the range that its first operand has to be in, and what computes the same there."""


def use_ranges(fusion: Fusion) -> Fusion:
    """The same outputs, to within the bounds of the ops."""
    if not any(_form(e) for e in fusion.exprs):
        return fusion
    ranges = value_ranges(fusion)
    made: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        form = _form(expr)
        if form is None:
            continue
        assert isinstance(expr, Pointwise)
        (least, most), row = form
        low, high = range_of(expr.inputs[0], ranges)
        if least <= low and high <= most:
            made[expr] = Pointwise(row.name, expr.inputs, expr.output)
    if not made:
        return fusion
    exprs = tuple(made.get(e, e) for e in fusion.exprs)
    return Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _form(expr: Expr) -> tuple[Range, PointwiseOp] | None:
    """The form that a function of another value of its own dtype may have."""
    if not isinstance(expr, Pointwise) or expr.op not in {op for op, _ in _FORMS}:
        return None
    is_same = getattr(expr.inputs[0], "dtype", None) is expr.output.dtype
    return _FORMS.get((expr.op, expr.output.dtype)) if is_same else None
