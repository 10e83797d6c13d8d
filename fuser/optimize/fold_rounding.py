"""Let a division round to 16 bits by itself where its result does nothing else.

Before: t3 = div(t1, t2); t4 = cast(t3, BFloat16)
After:  t4 = div(t1, t2) computed in Float, rounded to BFloat16

Of the float that is rounded next, the last bits do not show: ops with a text for that (`PointwiseOp.rounded`) are taken.
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Expr, Fusion, Pointwise, Tensor
from fuser.ir.op_table import POINTWISE


def fold_rounding(fusion: Fusion) -> Fusion:
    """The same outputs, with casts folded into what they round."""
    outputs = set(fusion.output_tensors)
    folded: dict[Expr, Pointwise] = {}
    gone: set[Expr] = set()
    for cast in fusion.tensor_exprs:
        source = _rounded_by(cast, fusion)
        if source is None or source.output in outputs or len(fusion.uses(source.output)) > 1:
            continue
        assert isinstance(cast, Pointwise)
        folded[cast] = Pointwise(source.op, source.inputs, cast.output)
        gone.add(source)
    if not folded:
        return fusion
    exprs = tuple(folded.get(e, e) for e in fusion.exprs if e not in gone)
    return Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _rounded_by(expr: Expr, fusion: Fusion) -> Pointwise | None:
    """The op in Float whose result a cast to a 16-bit float takes, if it has a text for that."""
    if not (
        isinstance(expr, Pointwise) and expr.op == "cast" and expr.output.dtype in (DataType.Half, DataType.BFloat16)
    ):
        return None
    (operand,) = expr.inputs
    source = fusion.definitions.get(operand)
    if not (isinstance(operand, Tensor) and operand.dtype is DataType.Float and isinstance(source, Pointwise)):
        return None
    row = POINTWISE.get(source.op)
    return source if row is not None and row.rounded is not None else None
