"""Compute a float no more exactly than its uses can show.

Before: t3 = exp(t2); t4 = sum(t3); t5 = div(t3, t4); t6 = cast(t5, BFloat16)
After:  t3 = coarse_exp(t2); t4 = sum(t3); t5 = coarse_div(t3, t4); t6 = cast(t5, BFloat16)

For every tensor the largest relative error that is allowed it is found, from outputs back to inputs; an op is replaced by its
approximate form (`ir/approximate_ops.py`) where that form's error fits.

    a 16-bit output       a quarter of its unit in the last place, at least: its rounding adds half a unit
    a 16-bit tensor that is computed with
                          4 units of a float: a rounding that goes the other way shows in what follows, and should be rare
    products, quotients, roots, magnitudes, selections, maxima, and sums of numbers that are never negative
                          pass on what is allowed their results, products half of it to each factor
    terms exp(x - max(x)) of a sum over what the maximum is of
                          what a few units of a float change: the sum is 1 or more, so it does not matter how small terms are
                          rounded, whatever the sum is for
    all else              nothing: differences and sums of both signs magnify an error, comparisons and integers may jump,
                          a Float or Double output is the result itself
"""

from __future__ import annotations

from fuser.ir.approximate_ops import APPROXIMATE, COARSE_FORM, NEAR
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import (
    COPIES,
    Broadcast,
    Cat,
    Expand,
    Expr,
    Full,
    Fusion,
    Gather,
    Permute,
    Pointwise,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    Squeeze,
    Tensor,
    Val,
    expr_inputs,
    expr_outputs,
)
from fuser.optimize.uncancelled_sums import tanh_plus_one

_OUTPUT_ERROR = {DataType.BFloat16: 2.0**-10, DataType.Half: 2.0**-13}
"""A quarter of a unit in the last place of the smallest result that has one, relative."""
_ROUNDED_ERROR = 2.0**-21
"""For 16-bit tensors that more is computed from."""

# Results with a relative error no larger than the operands' (roots: half of it), and results that are operands.
_PASSING = frozenset(("neg", "abs", "sqrt", "rsqrt", "relu", "maximum", "minimum", "where", *COPIES))
_PRODUCTS = frozenset(("mul", "div", "truediv", "reciprocal"))
_MOVING = (Broadcast, Squeeze, Expand, Permute, Reshape, Resize, Cat)
_EXACT_ON_16_BITS = frozenset(("neg", "abs", "relu", "maximum", "minimum", "where", *COPIES))
_NEVER_NEGATIVE = frozenset(("exp", "exp2", "sigmoid", "abs", "sqrt", "rsqrt"))


def use_approximate_ops(fusion: Fusion) -> Fusion:
    """The same outputs, to within their dtypes' last places."""
    allowed = _allowed_errors(fusion) if any(t.dtype in _OUTPUT_ERROR for t in fusion.tensors) else {}
    replaced: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        if isinstance(expr, Pointwise):
            coarse = _approximate_form(expr, allowed.get(expr.output, 0.0), fusion)
            if coarse is not None:
                replaced[expr] = coarse
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
    if found is None or found.error > allowed:
        near = APPROXIMATE.get(f"{NEAR}_{expr.op}")
        if near is not None and near.error <= allowed:
            name, found = near.row.name, near
    if found is None or inputs is None or found.error > allowed:
        if expr.op != "exp" or not _is_term_beside_one(expr, fusion):
            return None
        name, inputs = "coarse_exp_of_negative", expr.inputs
    return Pointwise(name, inputs, expr.output)


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


def _allowed_errors(fusion: Fusion) -> dict[Tensor, float]:
    """The largest relative error that each tensor may have; 0 for those that are not listed."""
    signless = _never_negative(fusion)
    outputs = set(fusion.output_tensors)
    allowed: dict[Tensor, float] = {t: _OUTPUT_ERROR.get(t.dtype, 0.0) for t in outputs}
    for expr in reversed(fusion.tensor_exprs):
        (result, *others) = expr_outputs(expr)
        assert isinstance(result, Tensor)
        limit = 0.0 if others else allowed.get(result, 0.0)
        for operand in expr_inputs(expr):
            if isinstance(operand, Tensor):
                asked = (
                    _asked_of(expr, operand, limit, signless)
                    if operand.dtype in (DataType.Float, *_OUTPUT_ERROR)
                    else 0.0
                )
                allowed[operand] = min(allowed.get(operand, 1.0), asked)
    return allowed


def _asked_of(expr: Expr, operand: Tensor, limit: float, signless: set[Val]) -> float:
    """The error that an op allows an operand, if `limit` is what its own result may have."""
    is_wide = operand.dtype is DataType.Float
    match expr:
        case Gather():
            return limit if operand is expr.input else 0.0
        case Reduction(op="max" | "min"):
            return limit
        case Reduction(op="sum") if is_wide and expr.output.dtype is DataType.Float:
            return limit if operand in signless else 0.0
        case Pointwise(op="cast"):
            if not is_wide:
                return _ROUNDED_ERROR
            # To a narrower float; Double and integers would show the error.
            return limit if expr.output.dtype in _OUTPUT_ERROR else 0.0
        case Pointwise():
            if not is_wide:
                return limit if expr.op in _EXACT_ON_16_BITS else _ROUNDED_ERROR
            return _asked_by_op(expr, limit, signless) if expr.output.dtype is DataType.Float else 0.0
        case _:
            return limit if isinstance(expr, _MOVING) else 0.0


def _asked_by_op(expr: Pointwise, limit: float, signless: set[Val]) -> float:
    if expr.op in _PRODUCTS:
        return limit / 2
    if expr.op in _PASSING:
        return limit
    if expr.op == "add":
        return limit if all(v in signless or _is_constant(v) for v in expr.inputs) else 0.0
    return 0.0


def _is_constant(value: Val) -> bool:
    """A constant that is not negative."""
    return isinstance(value, Scalar) and isinstance(value.value, bool | int | float) and value.value >= 0


def _never_negative(fusion: Fusion) -> set[Val]:
    """Tensors without a number below zero, as their definitions show. They may hold nan."""
    found: set[Val] = set()

    def is_signless(value: Val) -> bool:
        return value in found or _is_constant(value)

    for expr in fusion.tensor_exprs:
        match expr:
            case Pointwise(op="where"):
                signless = all(map(is_signless, expr.inputs[1:]))
            case Pointwise(op="maximum"):
                signless = any(map(is_signless, expr.inputs))
            case Pointwise(op="mul", inputs=(a, b)):
                signless = a is b or (is_signless(a) and is_signless(b))
            case Pointwise(op="relu"):
                signless = True
            case Pointwise(op=op):
                signless = op in _NEVER_NEGATIVE or (
                    op in ("add", "div", "truediv", "reciprocal", "minimum", "cast", *COPIES)
                    and all(map(is_signless, expr.inputs))
                )
            case Reduction(op="sum" | "max" | "min"):
                signless = is_signless(expr.input)
            case Full():
                signless = is_signless(expr.value)
            case Gather():
                signless = is_signless(expr.input)
            case _ if isinstance(expr, _MOVING):
                signless = all(map(is_signless, expr_inputs(expr)))
            case _:
                signless = False
        if signless:
            found.update(expr_outputs(expr))
    return found
