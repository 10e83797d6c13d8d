"""Compute a float no more exactly than its uses can show.

Before: t3 = exp(t2); t4 = sum(t3); t5 = div(t3, t4); t6 = cast(t5, BFloat16)
After:  t3 = coarse_exp(t2); t4 = sum(t3); t5 = coarse_div(t3, t4); t6 = cast(t5, BFloat16)

For every tensor the largest relative error that is allowed it is found, from outputs back to inputs; an op is replaced by its
approximate form (`ir/ops/approximate_ops.py`) where that form's error fits.

    a 16-bit output       a quarter of its unit in the last place, at least: its rounding adds half a unit
    a 16-bit tensor that is computed with
                          4 units of a float: a rounding that goes the other way shows in what follows, and should be rare
    products, quotients, roots, magnitudes, selections, maxima, sums of numbers that are never negative, and functions that
    no relative error grows in, as tanh
                          pass on what is allowed their results, products half of it to each factor
    terms exp(x - max(x)) of a sum over what the maximum is of
                          what a few units of a float change: the sum is 1 or more, so it does not matter how small terms are
                          rounded, whatever the sum is for
    quotients, reciprocals and roots of Floats
                          twice the error of a correctly rounded one, unless a comparison, a rounding to a whole number or an
                          integer depends on it, which may jump
    all else              nothing: differences and sums of both signs magnify an error, a Float or Double output is the result
                          itself
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.ir.fusion.fusion import (
    COPIES,
    Broadcast,
    Expr,
    Fusion,
    Gather,
    Pointwise,
    Reduction,
    Tensor,
    Val,
    expr_inputs,
    expr_outputs,
)
from fuser.ir.ops.approximate_ops import APPROXIMATE, COARSE_FORM, NEAR
from fuser.ir.ops.dtypes import DataType
from fuser.optimize.uncancelled_sums import tanh_plus_one
from fuser.optimize.value_ranges import MOVING, Range, range_of, value_ranges

_OUTPUT_ERROR = {DataType.BFloat16: 2.0**-10, DataType.Half: 2.0**-13}
"""A quarter of a unit in the last place of the smallest result that has one, relative."""
_ROUNDED_ERROR = 2.0**-21
"""For 16-bit tensors that more is computed from."""

# Results with a relative error no larger than the operands' (roots: half of it), and results that are operands.
_PASSING = frozenset(("neg", "abs", "sqrt", "rsqrt", "relu", "maximum", "minimum", "where", *COPIES))
_DAMPING = frozenset(("asinh", "atan", "erf", "tanh"))
"""Functions f with |x f'(x)| <= |f(x)|: results have a relative error no larger than the operand's. So is log1p from 0 on."""
_PRODUCTS = frozenset(("mul", "div", "truediv", "reciprocal"))
_WHOLE = frozenset(("ceil", "floor", "fmod", "frac", "remainder", "round", "trunc"))
_EXACT_ON_16_BITS = frozenset(("neg", "abs", "relu", "maximum", "minimum", "where", *COPIES))


def use_approximate_ops(fusion: Fusion) -> Fusion:
    """The same outputs, to within their dtypes' last places."""
    ranges = value_ranges(fusion)
    allowed = _allowed_errors(fusion, ranges) if any(t.dtype in _OUTPUT_ERROR for t in fusion.tensors) else {}
    compared = _compared(fusion)
    replaced: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        if isinstance(expr, Pointwise):
            found = _approximate_form(expr, allowed.get(expr.output, 0.0), fusion)
            near = f"{NEAR}_{expr.op}"
            if found is None and near in APPROXIMATE and expr.output not in compared and _computes_in_float(expr):
                found = Pointwise(near, expr.inputs, expr.output)
            if found is not None and range_of(found.inputs[0], ranges)[0] >= APPROXIMATE[found.op].least:
                replaced[expr] = found
    if not replaced:
        return fusion
    return _without_unused(fusion, [replaced.get(e, e) for e in fusion.exprs])


def _approximate_form(expr: Pointwise, allowed: float, fusion: Fusion) -> Pointwise | None:
    """The approximate op that computes the same with an error of at most `allowed`."""
    if not _computes_in_float(expr):
        return None
    if expr.op == "add":
        name, inputs = "coarse_one_plus_tanh", _tanh_plus_one(expr, fusion)
    else:
        name, inputs = f"{COARSE_FORM}_{expr.op}", expr.inputs
    found = APPROXIMATE.get(name)
    if found is not None and inputs is not None and found.error <= allowed:
        return Pointwise(name, inputs, expr.output)
    if expr.op == "exp" and _is_term_beside_one(expr, fusion):
        return Pointwise("coarse_exp_of_negative", expr.inputs, expr.output)
    return None


def _compared(fusion: Fusion) -> set[Val]:
    """What a comparison, a rounding to a whole number or an integer depends on."""
    found: set[Val] = set()
    for expr in reversed(fusion.tensor_exprs):
        outputs = expr_outputs(expr)
        is_discrete = any(isinstance(t, Tensor) and not t.dtype.is_floating and not t.dtype.is_complex for t in outputs)
        if is_discrete or (isinstance(expr, Pointwise) and expr.op in _WHOLE) or not found.isdisjoint(outputs):
            found.update(expr_inputs(expr))
    return found


def _computes_in_float(expr: Pointwise) -> bool:
    narrow = (DataType.Float, *_OUTPUT_ERROR)
    return expr.output.dtype in narrow and all(v.dtype in narrow for v in expr.inputs if isinstance(v, Tensor))


def _tanh_plus_one(expr: Pointwise, fusion: Fusion) -> tuple[Val, ...] | None:
    """The operand of a tanh that is computed in Float where `expr` adds 1 to it."""
    found = tanh_plus_one(expr, fusion)
    return found if found is None or found[0].dtype in (DataType.Float, *_OUTPUT_ERROR) else None


def _is_term_beside_one(expr: Pointwise, fusion: Fusion) -> bool:
    """Whether an exp(x - max(x)) is only summed, over the dims of the maximum: one term is 1, and none is more."""
    difference = fusion.definitions.get(expr.inputs[0])
    if not (isinstance(difference, Pointwise) and difference.op == "sub"):
        return False
    value, subtracted = difference.inputs
    spread = fusion.definitions.get(subtracted)
    largest = None if not isinstance(spread, Broadcast) else fusion.definitions.get(spread.input)
    if not (isinstance(largest, Reduction) and largest.op == "max" and largest.input is value):
        return False
    flags = [d.is_reduction for d in largest.output.produced]
    uses = [] if expr.output in fusion.output_tensors else fusion.uses(expr.output)
    assert isinstance(spread, Broadcast)
    return (
        bool(uses)
        and list(spread.flags) == flags
        and all(
            isinstance(u, Reduction) and u.op == "sum" and [d.is_reduction for d in u.output.produced] == flags
            for u in uses
        )
    )


def _without_unused(fusion: Fusion, exprs: list[Expr]) -> Fusion:
    """`fusion` with these exprs, less the tanh that nothing reads any more."""
    read = {v for e in exprs for v in expr_inputs(e)} | {o.tensor for o in fusion.outputs}
    kept = tuple(
        e
        for e in exprs
        if not (isinstance(e, Pointwise) and e.op == "tanh" and not any(v in read for v in expr_outputs(e)))
    )
    return Fusion(fusion.inputs, kept, fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _allowed_errors(fusion: Fusion, ranges: Mapping[Val, Range]) -> dict[Tensor, float]:
    """The largest relative error that each tensor may have; 0 for those that are not listed."""
    outputs = set(fusion.output_tensors)
    allowed: dict[Tensor, float] = {t: _OUTPUT_ERROR.get(t.dtype, 0.0) for t in outputs}
    for expr in reversed(fusion.tensor_exprs):
        (result, *others) = expr_outputs(expr)
        assert isinstance(result, Tensor)
        limit = 0.0 if others else allowed.get(result, 0.0)
        for operand in expr_inputs(expr):
            if isinstance(operand, Tensor):
                asked = (
                    _asked_of(expr, operand, limit, ranges)
                    if operand.dtype in (DataType.Float, *_OUTPUT_ERROR)
                    else 0.0
                )
                allowed[operand] = min(allowed.get(operand, 1.0), asked)
    return allowed


def _asked_of(expr: Expr, operand: Tensor, limit: float, ranges: Mapping[Val, Range]) -> float:
    """The error that an op allows an operand, if `limit` is what its own result may have."""
    is_wide = operand.dtype is DataType.Float
    match expr:
        case Gather():
            return limit if operand is expr.input else 0.0
        case Reduction(op="max" | "min"):
            return limit
        case Reduction(op="sum") if is_wide and expr.output.dtype is DataType.Float:
            return limit if range_of(operand, ranges)[0] >= 0 else 0.0
        case Pointwise(op="cast"):
            if not is_wide:
                return _ROUNDED_ERROR
            # To a narrower float; Double and integers would show the error.
            return limit if expr.output.dtype in _OUTPUT_ERROR else 0.0
        case Pointwise():
            if not is_wide:
                return limit if expr.op in _EXACT_ON_16_BITS else _ROUNDED_ERROR
            return _asked_by_op(expr, limit, ranges) if expr.output.dtype is DataType.Float else 0.0
        case _:
            return limit if isinstance(expr, MOVING) else 0.0


def _asked_by_op(expr: Pointwise, limit: float, ranges: Mapping[Val, Range]) -> float:
    if expr.op in _PRODUCTS:
        return limit / 2
    if expr.op in _PASSING or expr.op in _DAMPING:
        return limit
    if expr.op == "log1p":
        return limit if range_of(expr.inputs[0], ranges)[0] >= 0 else 0.0
    if expr.op == "add":
        return limit if all(range_of(v, ranges)[0] >= 0 for v in expr.inputs) else 0.0
    return 0.0
