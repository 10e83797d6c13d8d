"""The loop of passes that put other exprs in place of some, and results of these in place of what was there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fuser.ir.fusion.fusion import Expr, ExtentOp, Fusion, Output, ScalarOp, Tensor, TensorExpr, map_expr


def replace_exprs(
    fusion: Fusion, replaced: dict[Tensor, Tensor], change: Callable[[TensorExpr, TensorExpr], Iterable[Expr]]
) -> Fusion:
    """The fusion with what `change` makes of each tensor expr, over tensors as they are now.

    replaced  tensors by what they were; `change` adds to it, for the exprs that follow and the outputs
    change    is given an expr as it was, and over what is replaced
    """
    exprs: list[Expr] = []
    for expr in fusion.exprs:
        match expr:
            case ScalarOp():
                exprs.append(expr)
            case ExtentOp(tensor, dim, output):
                exprs.append(ExtentOp(replaced.get(tensor, tensor), dim, output))
            case _:
                exprs.extend(change(expr, map_expr(expr, replaced)))
    outputs = tuple(Output(replaced.get(o.tensor, o.tensor), o.alias_of) for o in fusion.outputs)
    return Fusion(fusion.inputs, tuple(exprs), outputs, fusion.constraints, fusion.extent_scalars)
