"""End a kernel behind some tensors: what reads one of them goes on in another.

Before: t1 = sum(t0, [0, 1]); t2 = div(t0, broadcast(t1))
After:  t1 = sum(t0, [0, 1]); t3 = segment_set(t1); t2 = div(t0, broadcast(t3))

No pass of the pipeline: whether more kernels are faster depends on sizes (`schedule/kernel_split.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from fuser.ir.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    Pointwise,
    ScalarOp,
    Tensor,
    map_expr,
    next_number,
    row_major_order,
    tensor_outputs,
)


def end_kernels(fusion: Fusion, names: Collection[str]) -> Fusion:
    """The same outputs, with a `segment_set` behind each tensor of these names for all that reads it."""
    exprs: list[Expr] = []
    replaced: dict[Tensor, Tensor] = {}
    number = next_number(fusion)
    for expr in fusion.exprs:
        if isinstance(expr, ExtentOp):
            exprs.append(ExtentOp(replaced.get(expr.tensor, expr.tensor), expr.dim, expr.output))
            continue
        exprs.append(expr if isinstance(expr, ScalarOp) else map_expr(expr, replaced))
        for t in tensor_outputs(expr) if not isinstance(expr, ScalarOp) else ():
            if t.name in names:
                replaced[t] = _copy_of(t, f"t{number}")
                exprs.append(Pointwise("segment_set", (t,), replaced[t]))
                number += 1
    return Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _copy_of(tensor: Tensor, name: str) -> Tensor:
    """A dense tensor with the dims that are left of one."""
    dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(tensor.visible))
    contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in dims)
    order = row_major_order(len(dims))
    return Tensor(name, tensor.dtype, dims, order, contiguity, None, tensor.is_cpu, tensor.location)
