"""Compute before values are broadcast, not behind: once for a row, not once for each of its elements.

Before: t1 = sum(t0, [1]); t2 = broadcast(t1, [False, True]); t3 = add(t2, 1e-5); t4 = rsqrt(t3)
After:  t1 = sum(t0, [1]); t5 = add(t1, 1e-5); t6 = rsqrt(t5); t4 = broadcast(t6, [False, True])

An op moves where all of its tensors are broadcast along the same dims. Elements are computed by the same ops in the same
order. What is an output stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    Fusion,
    IterDomain,
    Pointwise,
    Tensor,
    Val,
    expr_outputs,
    next_number,
)
from fuser.optimize.remove_dead_code import remove_dead_code


def compute_before_broadcast(fusion: Fusion) -> Fusion:
    """The same outputs, with pointwise ops in front of the broadcasts of their operands."""
    number = next_number(fusion)
    outputs = set(fusion.output_tensors)
    wide: dict[Val, Broadcast] = {}
    exprs: list[Expr] = []
    moved = False
    for expr in fusion.exprs:
        made = _moved(expr, wide, f"t{number}") if not outputs.intersection(expr_outputs(expr)) else None
        if made is not None:
            number += 1
            moved = True
            exprs += made
            wide[made[1].output] = made[1]
            continue
        exprs.append(expr)
        if isinstance(expr, Broadcast):
            wide[expr.output] = expr
    if not moved:
        return fusion
    return remove_dead_code(
        Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)
    )


def _moved(expr: Expr, wide: dict[Val, Broadcast], name: str) -> tuple[Pointwise, Broadcast] | None:
    """The op on what its operands are broadcasts of, as `name`, and the broadcast of that; None if it cannot move."""
    if not isinstance(expr, Pointwise) or expr.op == "stride_order":
        return None
    tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
    broadcasts = [wide[t] for t in tensors if t in wide]
    if not broadcasts or len(broadcasts) < len(tensors):
        return None
    first = broadcasts[0]
    if any(b.flags != first.flags for b in broadcasts):
        return None
    sources = [b.input for b in broadcasts]
    kept = [d for d, is_new in zip(expr.output.visible, first.flags, strict=True) if not is_new]
    narrow = tensor_of(name, kept, expr.output, sources[0])
    by_wide = dict(zip(tensors, sources, strict=True))
    operands = tuple(by_wide[v] if isinstance(v, Tensor) else v for v in expr.inputs)
    return Pointwise(expr.op, operands, narrow), Broadcast(narrow, expr.output, first.flags)


def tensor_of(name: str, like: Sequence[IterDomain], output: Tensor, source: Tensor) -> Tensor:
    """A tensor with dims like these, of the dtype and place in the program of `output`, where `source` is."""
    dims = tuple(IterDomain(f"{name}_d{k}", d.extent, d.kind, d.expanded) for k, d in enumerate(like))
    order = tuple(reversed(range(len(dims))))
    contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in dims)
    return Tensor(name, output.dtype, dims, order, contiguity, None, source.is_cpu, output.location)
