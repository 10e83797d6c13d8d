"""Between which numbers the elements of a fusion's tensors lie, as their definitions show.

    abs(x), exp(x), sqrt(x), x * x      from 0 on
    exp(x), x <= 0; sigmoid(x)          from 0 to 1
    x - max(x)                          up to 0, if the maximum is over dims that it is broadcast along
    bool                                from 0 to 1
    sum(exp(x - max(x)))                from 1 on, as one exponential that is computed with the maximum

Elements may be nan whatever their range says. The ends are rounded as elements are, so that ranges hold for all float types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fuser.ir.fusion.fusion import (
    COPIES,
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    Permute,
    Pointwise,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Squeeze,
    Tensor,
    Val,
    Welford,
    expr_inputs,
    expr_outputs,
)
from fuser.ir.ops.dtypes import DataType

Range = tuple[float, float]

MOVING = (Broadcast, Squeeze, Expand, Permute, Reshape, Resize, Cat)
"""Exprs whose elements are those of their operands."""
UNKNOWN: Range = (-math.inf, math.inf)
_NEVER_NEGATIVE: Range = (0.0, math.inf)
_FRACTION: Range = (0.0, 1.0)


def value_ranges(fusion: Fusion) -> dict[Val, Range]:
    """The range of each tensor of which one is known."""
    found: dict[Val, Range] = {}
    for expr in fusion.exprs:
        match expr:
            case ExtentOp():
                found[expr.output] = _NEVER_NEGATIVE
            case ScalarOp():
                rule = _RULES.get(expr.op)
                if rule is not None and expr.output.dtype.is_floating:
                    found[expr.output] = rule(*(range_of(v, found) for v in expr.inputs))
            case ExpSum():
                found[expr.total] = (1.0, math.inf)
            case Welford():
                found[expr.m2] = _NEVER_NEGATIVE
            case _:
                result = _range_of(expr, found, fusion)
                if result != UNKNOWN:
                    found.update(dict.fromkeys(expr_outputs(expr), result))
    return found


def range_of(value: Val, found: Mapping[Val, Range]) -> Range:
    """That of a tensor or a constant."""
    if isinstance(value, Scalar):
        is_number = isinstance(value.value, bool | int | float) and not math.isnan(value.value)
        number = (float(value.value), float(value.value)) if is_number else UNKNOWN  # pyright: ignore[reportArgumentType]
        return found.get(value, number)
    if isinstance(value, Tensor) and value.dtype is DataType.Bool:
        return _FRACTION
    return found.get(value, UNKNOWN)


def _range_of(expr: Expr, found: Mapping[Val, Range], fusion: Fusion) -> Range:
    match expr:
        case Pointwise(op="sub") if _is_below_maximum(expr, fusion):
            return (-math.inf, 0.0)
        case Pointwise(op="mul", inputs=(a, b)) if a is b and expr.output.dtype.is_floating:
            return _NEVER_NEGATIVE
        case Pointwise(op=op):
            rule = _RULES.get(op.removeprefix("near_").removeprefix("coarse_"))
            if rule is None or not _keeps_order(expr):
                return UNKNOWN
            # Condition, index and the like have ranges that their op's rule does not look at.
            return _in_type(rule(*(range_of(v, found) for v in expr.inputs)), expr.output.dtype)
        case Reduction(op="max" | "min"):
            return range_of(expr.input, found)
        case Reduction(op="sum"):
            low, high = range_of(expr.input, found)
            return (0.0 if low >= 0 else -math.inf, 0.0 if high <= 0 else math.inf)
        case Full():
            return range_of(expr.value, found)
        case Gather():
            return _union(*(range_of(v, found) for v in expr_inputs(expr) if v is not expr.index))
        case _ if isinstance(expr, MOVING):
            return _union(*(range_of(v, found) for v in expr_inputs(expr)))
        case _:
            return UNKNOWN


def _is_below_maximum(expr: Pointwise, fusion: Fusion) -> bool:
    """Whether `expr` is x - broadcast(max(x))."""
    x, shift = expr.inputs
    spread = fusion.definitions.get(shift)
    largest = fusion.definitions.get(spread.input) if isinstance(spread, Broadcast) else None
    match largest:
        case ExpSum():
            reduced = largest.largest
            is_maximum = largest.input is x and spread is not None and expr_inputs(spread)[0] is reduced
        case Reduction(op="max"):
            reduced = largest.output
            is_maximum = largest.input is x
        case _:
            return False
    assert isinstance(spread, Broadcast)
    return is_maximum and tuple(spread.flags) == tuple(d.is_reduction for d in reduced.logical)


def _keeps_order(expr: Pointwise) -> bool:
    """Whether integers of the expr can neither wrap nor come from floats that they do not hold."""
    return expr.output.dtype.is_floating or (expr.op in COPIES)


def _in_type(found: Range, dtype: DataType) -> Range:
    """Large numbers of a narrow type become infinite."""
    low, high = found
    if dtype in (DataType.Double, DataType.Float):
        return found
    return (low if low >= -1 else -math.inf, high if high <= 1 else math.inf)


def _union(*ranges: Range) -> Range:
    return min((low for low, _ in ranges), default=-math.inf), max((high for _, high in ranges), default=math.inf)


def _product(a: Range, b: Range) -> Range:
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)


def _exponential(x: Range) -> Range:
    return _FRACTION if x[1] <= 0 else _NEVER_NEGATIVE


def _magnitude(x: Range) -> Range:
    low, high = x
    return (max(low, -high, 0.0), max(-low, high))


def _quotient(a: Range, b: Range) -> Range:
    return _NEVER_NEGATIVE if a[0] >= 0 and b[0] >= 0 else UNKNOWN


_RULES: dict[str, Callable[..., Range]] = {
    "abs": _magnitude,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "cast": lambda x: x,
    "clamp": lambda x, low, high: (min(low[0], high[0]), high[1]),
    "div": _quotient,
    "exp": _exponential,
    "exp2": _exponential,
    "log1p": lambda x: _NEVER_NEGATIVE if x[0] >= 0 else UNKNOWN,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "mul": _product,
    "neg": lambda x: (-x[1], -x[0]),
    "reciprocal": lambda x: _quotient(_FRACTION, x),
    "relu": lambda x: (max(x[0], 0.0), max(x[1], 0.0)),
    "rsqrt": lambda x: _NEVER_NEGATIVE,
    "sigmoid": lambda x: _FRACTION,
    "sqrt": lambda x: (math.sqrt(max(x[0], 0.0)), math.inf),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "tanh": lambda x: (-1.0, 1.0),
    "truediv": _quotient,
    "where": lambda condition, a, b: _union(a, b),
    **dict.fromkeys(COPIES, lambda x, *rest: x),
}
