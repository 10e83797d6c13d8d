"""Drop exprs that no output depends on.

Before: t2 = exp(t0); t3 = neg(t0); outputs t3
After:  t3 = neg(t0); outputs t3
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Expr, Fusion, Val, expr_outputs
from fuser.ir.fusion.live_order import all_operands


def remove_dead_code(fusion: Fusion) -> Fusion:
    """The same outputs from the exprs they need; scalars used as extents stay."""
    names = set(fusion.extent_scalars.values())
    needed: set[Val] = {o.tensor for o in fusion.outputs}
    kept: list[Expr] = []
    for expr in reversed(fusion.exprs):
        if any(v in needed or v.name in names for v in expr_outputs(expr)):
            kept.append(expr)
            needed.update(all_operands(expr))
    if len(kept) == len(fusion.exprs):
        return fusion
    return Fusion(fusion.inputs, tuple(reversed(kept)), fusion.outputs, fusion.constraints, fusion.extent_scalars)
