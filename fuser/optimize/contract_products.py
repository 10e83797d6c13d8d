"""Round a product together with what it is added to, between the statistics of a row and its results.

Before: t4 = mul(t3, weight); t5 = add(t4, bias)
After:  t5 = fma(t3, weight, bias)

The compiler contracts them anyway. Where results show to more than 16 bits lowering carries along what rounding loses
(`lowering/loop_nests/carried_rests.py`), and has to know what is rounded: a sum that takes in such a product needs an
instruction more, not six.
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.exact_ops import FMA
from fuser.ir.fusion import Expr, Fusion, Pointwise, Reducing, Tensor, Val, expr_inputs, expr_outputs
from fuser.optimize.remove_dead_code import remove_dead_code

_WIDE = (DataType.Float, DataType.Double)


def contract_products(fusion: Fusion) -> Fusion:
    """The same outputs, or closer ones."""
    if not any(isinstance(e, Reducing) for e in fusion.exprs):
        return fusion
    shown = _shown(fusion)
    if not shown:
        return fusion
    made: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        if isinstance(expr, Pointwise) and expr.op == "add" and expr.output in shown:
            contracted = _contracted(expr, fusion)
            if contracted is not None:
                made[expr] = contracted
    if not made:
        return fusion
    exprs = tuple(made.get(e, e) for e in fusion.exprs)
    return remove_dead_code(Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars))


def _contracted(expr: Pointwise, fusion: Fusion) -> Pointwise | None:
    """The sum with the first of its operands that is a product for it alone."""
    for product, other in (expr.inputs, expr.inputs[::-1]):
        made = fusion.definitions.get(product)
        if not (isinstance(made, Pointwise) and made.op == "mul" and made.output not in fusion.output_tensors):
            continue
        if (
            len(fusion.uses(made.output)) == 1
            and product is not other
            and _is_of(expr.output.dtype, *made.inputs, other)
        ):
            return Pointwise(FMA.name, (*made.inputs, other), expr.output)
    return None


def _is_of(dtype: DataType, *values: Val) -> bool:
    return all(v.dtype is dtype or not isinstance(v, Tensor) for v in values)


def _shown(fusion: Fusion) -> set[Val]:
    """Floats and Doubles that depend on a reduction, that no reduction follows, and that an output shows to more than 16
    bits."""
    followed: set[Val] = set()
    shown: set[Val] = {t for t in fusion.output_tensors if t.dtype in _WIDE}
    for expr in reversed(fusion.exprs):
        outputs, inputs = expr_outputs(expr), expr_inputs(expr)
        if isinstance(expr, Reducing) or any(v in followed for v in outputs):
            followed.update(inputs)
        if any(v in shown for v in outputs):
            shown.update(v for v in inputs if isinstance(v, Tensor) and v.dtype in _WIDE)
    after: set[Val] = set()
    for expr in fusion.exprs:
        if isinstance(expr, Reducing) or any(v in after for v in expr_inputs(expr)):
            after.update(expr_outputs(expr))
    return (shown & after) - followed
