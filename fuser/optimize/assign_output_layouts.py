"""Give every output its memory order (fuser.ir.output_layout).

Before: t1 = neg(t0), t0 in column-major order, t1 row major by default
After:  t1 in column-major order
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.ir.fusion import Expr, ExtentOp, Fusion, Output, ScalarOp, Tensor, map_expr, memory_order
from fuser.ir.output_layout import output_stride_orders


def assign_output_layouts(fusion: Fusion) -> Fusion:
    """Outputs with the stride order that their definition implies."""
    return with_stride_orders(fusion, output_stride_orders(fusion))


def with_stride_orders(fusion: Fusion, orders: Mapping[Tensor, tuple[int, ...]]) -> Fusion:
    """The same fusion with other memory orders of some results; inputs keep theirs."""
    changed: dict[Tensor, Tensor] = {}
    for tensor, order in orders.items():
        if order == tensor.stride_order or tensor in fusion.input_tensors:
            continue
        dims = [tensor.visible[d] for d in memory_order(order)]
        contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in dims)
        changed[tensor] = Tensor(
            tensor.name, tensor.dtype, tensor.logical, order, contiguity, tensor.root, tensor.is_cpu, tensor.location
        )
    if not changed:
        return fusion
    exprs: list[Expr] = []
    for e in fusion.exprs:
        if isinstance(e, ExtentOp):
            exprs.append(ExtentOp(changed.get(e.tensor, e.tensor), e.dim, e.output))
        elif isinstance(e, ScalarOp):
            exprs.append(e)
        else:
            exprs.append(map_expr(e, changed))
    outputs = tuple(Output(changed.get(o.tensor, o.tensor), o.alias_of) for o in fusion.outputs)
    return Fusion(fusion.inputs, tuple(exprs), outputs, fusion.constraints, fusion.extent_scalars)
