"""Add 1 to a tanh of a Double without cancellation.

Before: t3 = tanh(t2); t4 = add(t3, 1.0); t5 = mul(t1, t4)
After:  t4 = one_plus_tanh(t2); t5 = mul(t1, t4)

Near -1 a tanh has lost what the sum shows, so that a gelu of -5 has half its digits. 2 / (1 + exp(-2 x)) loses nothing, has no
branch, and takes two thirds of the operations of Double. What nothing else reads of the tanh is dropped.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Expr, Fusion, Pointwise, Scalar, Val
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.exact_ops import ONE_PLUS_TANH
from fuser.optimize.remove_dead_code import remove_dead_code


def uncancelled_sums(fusion: Fusion) -> Fusion:
    """The same outputs, or closer ones."""
    made: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        if isinstance(expr, Pointwise) and expr.op == "add" and expr.output.dtype is DataType.Double:
            operands = tanh_plus_one(expr, fusion)
            if operands is not None and operands[0].dtype is DataType.Double:
                made[expr] = Pointwise(ONE_PLUS_TANH.name, operands, expr.output)
    if not made:
        return fusion
    exprs = tuple(made.get(e, e) for e in fusion.exprs)
    return remove_dead_code(Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars))


def tanh_plus_one(expr: Pointwise, fusion: Fusion) -> tuple[Val, ...] | None:
    """The operand of tanh where `expr`, an add, adds 1 to it."""
    for one, other in (expr.inputs, expr.inputs[::-1]):
        source = fusion.definitions.get(other)
        if isinstance(one, Scalar) and one.value == 1 and isinstance(source, Pointwise) and source.op == "tanh":
            return source.inputs
    return None
