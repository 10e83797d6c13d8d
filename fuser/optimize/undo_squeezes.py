"""Take what dims of one element are dropped from and added to again as what it was.

Before: t2 = squeeze(t1[i, b], [1]);  t3 = broadcast(t2, [False, True]);  t4 = sub(t1, t3)
After:  t4 = sub(t1, t1)

Reductions over dims of one element leave such pairs where they keep the dims. `t2` has no loops to stand in where those of `t1`
are the loops of a larger result.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Broadcast, Expr, ExtentOp, Fusion, ScalarOp, Squeeze, Tensor, map_expr
from fuser.optimize.remove_dead_code import remove_dead_code


def undo_squeezes(fusion: Fusion) -> Fusion:
    """The same outputs, without broadcasts that put back what a squeeze has dropped. Outputs stay what they are."""
    same: dict[Tensor, Tensor] = {}
    exprs: list[Expr] = []
    for e in fusion.exprs:
        match e:
            case ScalarOp():
                exprs.append(e)
            case ExtentOp():
                exprs.append(ExtentOp(same.get(e.tensor, e.tensor), e.dim, e.output))
            case _:
                exprs.append(map_expr(e, same))
        if isinstance(e, Broadcast) and e.output not in fusion.output_tensors:
            source = _restored(fusion, e)
            if source is not None:
                same[e.output] = same.get(source, source)
    if not same:
        return fusion
    return remove_dead_code(
        Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)
    )


def _restored(fusion: Fusion, expr: Broadcast) -> Tensor | None:
    """What a broadcast is the same as, if it puts back dims that were dropped."""
    dropped = fusion.definitions.get(expr.input)
    if not isinstance(dropped, Squeeze) or dropped.flags != expr.flags:
        return None
    dims = zip(dropped.input.visible, dropped.flags, strict=True)
    return dropped.input if all(d.is_broadcast for d, gone in dims if gone) else None
