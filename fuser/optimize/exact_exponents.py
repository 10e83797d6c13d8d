"""Compute exp(x - max(x)) of results in Float and Double from the difference before it is rounded.

Before: t2 = broadcast(t1); t3 = sub(t0, t2); t4 = exp(t3)
After:  t2 = broadcast(t1); t4 = exp_below(t0, t2)

A difference of 6 is rounded to a multiple of 2**-21 in Float, which is four units in the last place of its exponential: more
than all other errors of a softmax together. Where the result is rounded to 16 bits nothing of it shows.
"""

from __future__ import annotations

from fuser.ir.approximate_ops import EXP_BELOW
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Broadcast, Expr, ExpSum, Fusion, Pointwise, Reduction, Tensor, expr_inputs, expr_outputs
from fuser.optimize.remove_dead_code import remove_dead_code

WIDE = (DataType.Float, DataType.Double)


def exact_exponents(fusion: Fusion) -> Fusion:
    """The same outputs, or closer ones."""
    found = [e for e in fusion.exprs if isinstance(e, Pointwise) and e.op == "exp" and _is_wide(e)]
    if not found:
        return fusion
    wide = _wide_results(fusion)
    made: dict[Expr, Pointwise] = {}
    for expr in found:
        operands = _below_maximum(expr, fusion) if expr.output in wide else None
        if operands is not None:
            made[expr] = Pointwise(EXP_BELOW.name, operands, expr.output)
    if not made:
        return fusion
    exprs = tuple(made.get(e, e) for e in fusion.exprs)
    return remove_dead_code(Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars))


def _is_wide(expr: Pointwise) -> bool:
    return expr.output.dtype in WIDE and expr.inputs[0].dtype is expr.output.dtype


def _below_maximum(expr: Pointwise, fusion: Fusion) -> tuple[Tensor, Tensor] | None:
    """x and m of expr = exp(x - m), m = broadcast(max(x)); None where it has another form."""
    below = fusion.definitions.get(expr.inputs[0])
    if not (isinstance(below, Pointwise) and below.op == "sub" and _is_wide(below)):
        return None
    x, shift = below.inputs
    spread = fusion.definitions.get(shift)
    if not (isinstance(x, Tensor) and isinstance(spread, Broadcast)):
        return None
    match fusion.definitions.get(spread.input):
        case ExpSum() as largest if largest.input is x and largest.largest is spread.input:
            return x, spread.output
        case Reduction() as largest if largest.input is x and largest.op == "max":
            return x, spread.output
        case _:
            return None


def _wide_results(fusion: Fusion) -> set[object]:
    """What an output in Float or Double depends on without a 16-bit value between."""
    wide: set[object] = {t for t in fusion.output_tensors if t.dtype in WIDE}
    for expr in reversed(fusion.exprs):
        if any(v in wide for v in expr_outputs(expr)):
            wide.update(v for v in expr_inputs(expr) if isinstance(v, Tensor) and v.dtype in WIDE)
    return wide
