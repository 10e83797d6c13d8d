"""Reduce once what is reduced in steps with nothing between them.

Before: t1 = sum(t0[n, k, m], [1]); t2 = sum(t1, [0])
After:  t2 = sum(t0, [0, 1])

Kernels would store and read `t1`. Steps that another reduction needs (`nest_reductions`) stay, and those whose results are
rounded between.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    IterKind,
    Output,
    Reduction,
    ScalarOp,
    Tensor,
    map_expr,
    tensor_inputs,
)
from fuser.ir.ops.op_table import compute_dtype
from fuser.optimize.nest_reductions import nest_reductions
from fuser.optimize.remove_dead_code import remove_dead_code


def join_reductions(fusion: Fusion) -> Fusion:
    """The same outputs, with one reduction in place of two of the same kind, the second of what the first one leaves."""
    read = [*fusion.output_tensors, *(t for e in fusion.tensor_exprs for t in tensor_inputs(e))]
    readers = Counter(t.name for t in read)
    exprs: list[Expr] = []
    replaced: dict[Tensor, Tensor] = {}
    first: dict[Tensor, Reduction] = {}
    for expr in fusion.exprs:
        if isinstance(expr, ScalarOp):
            exprs.append(expr)
            continue
        if isinstance(expr, ExtentOp):
            exprs.append(ExtentOp(replaced.get(expr.tensor, expr.tensor), expr.dim, expr.output))
            continue
        made = map_expr(expr, replaced)
        inner = first.get(made.input) if isinstance(made, Reduction) else None
        if (
            isinstance(made, Reduction)
            and inner is not None
            and _is_one(inner, made)
            and readers[inner.output.name] == 1
        ):
            output = _joined(inner, made)
            replaced[made.output] = output
            made = Reduction(made.op, inner.input, output)
        if isinstance(made, Reduction):
            first[made.output] = made
        exprs.append(made)
    if not replaced:
        return fusion
    outputs = tuple(Output(replaced.get(o.tensor, o.tensor), o.alias_of) for o in fusion.outputs)
    joined = remove_dead_code(Fusion(fusion.inputs, tuple(exprs), outputs, fusion.constraints, fusion.extent_scalars))
    return joined if nest_reductions(joined) is joined else fusion


def _is_one(inner: Reduction, outer: Reduction) -> bool:
    dtype = inner.output.dtype
    return inner.op == outer.op and dtype is outer.output.dtype and compute_dtype(dtype) is dtype


def _joined(inner: Reduction, outer: Reduction) -> Tensor:
    """The result of both, with dims of its own where the first one reduces."""
    left = iter(outer.output.logical)
    name = outer.output.name
    dims = tuple(
        IterDomain(f"{name}.{inner.output.name}.{i}", d.extent, IterKind.reduction, False)
        if d.is_reduction
        else next(left)
        for i, d in enumerate(inner.output.logical)
    )
    return replace(outer.output, logical=dims)
