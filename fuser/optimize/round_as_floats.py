"""Round to BFloat16 and read as a Float again in one step, where nothing keeps the 16 bits.

Before: t2 = cast(t1, BFloat16); t3 = cast(t2, Float)
After:  t3 = round_to_bfloat16(t1)

One instruction an element for two. What a reduction comes after is left alone: there the 16-bit tensor may be what is kept on
chip between passes, and is half as large.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Expr,
    Fusion,
    Pointwise,
    Reduction,
    Scan,
    Tensor,
    Val,
    Welford,
    expr_inputs,
    expr_outputs,
)
from fuser.ir.ops.approximate_ops import ROUND_TO_BFLOAT16
from fuser.ir.ops.dtypes import DataType


def round_as_floats(fusion: Fusion) -> Fusion:
    """The same values, without tensors of BFloat16 that are only widened."""
    kept = _kept(fusion)
    gone: dict[Expr, Pointwise] = {}
    replaced: dict[Expr, Pointwise] = {}
    for expr in fusion.exprs:
        narrow = _cast_of(expr, DataType.BFloat16, DataType.Float)
        rounding = None if narrow is None else fusion.definitions.get(narrow)
        if rounding is None or expr_outputs(rounding)[0] in kept:
            continue
        wide = _cast_of(rounding, DataType.Float, DataType.BFloat16)
        if wide is not None and isinstance(expr, Pointwise) and isinstance(rounding, Pointwise):
            replaced[expr] = Pointwise(ROUND_TO_BFLOAT16.name, (wide,), expr.output)
            gone[rounding] = rounding
    if not replaced:
        return fusion
    exprs = tuple(replaced.get(e, e) for e in fusion.exprs if e not in gone)
    return Fusion(fusion.inputs, exprs, fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _cast_of(expr: Expr, source: DataType, target: DataType) -> Tensor | None:
    """The tensor of `source` that an expr casts to `target`."""
    if not (isinstance(expr, Pointwise) and expr.op == "cast" and expr.output.dtype is target):
        return None
    (operand,) = expr.inputs
    return operand if isinstance(operand, Tensor) and operand.dtype is source else None


def _kept(fusion: Fusion) -> set[Val]:
    """Outputs, what has other uses than one cast to Float, and what something that is reduced or scanned depends on."""
    kept: set[Val] = set(fusion.output_tensors)
    below: set[Val] = set()
    uses: dict[Val, int] = {}
    for expr in reversed(fusion.exprs):
        is_before = isinstance(expr, (Reduction, Welford, Scan)) or any(v in below for v in expr_outputs(expr))
        for v in expr_inputs(expr):
            uses[v] = uses.get(v, 0) + 1
            if is_before:
                below.add(v)
    return kept | below | {v for v, count in uses.items() if count > 1}
