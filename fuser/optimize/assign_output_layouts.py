"""Give every output its memory order (fuser.ir.fusion.output_layout); all that no output shows is row major.

Before: t1 = neg(t0), t0 in column-major order, t1 row major by default
After:  t1 in column-major order

Before: t1 = stride_order(t0, [0, 1]);  t2 = reshape(t1, [-1]), t1 not an output
After:  t1 = set(t0), row major: the reshape is a view of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    Output,
    Pointwise,
    ScalarOp,
    Tensor,
    map_expr,
    memory_order,
    row_major_order,
)
from fuser.ir.fusion.output_layout import gives_order, output_stride_orders


def assign_output_layouts(fusion: Fusion) -> Fusion:
    """Outputs with the stride order that their definition implies, and row-major intermediates."""
    orders = output_stride_orders(fusion)
    if any(gives_order(e) and e.output not in orders for e in fusion.exprs):
        exprs: list[Expr] = []
        for e in fusion.exprs:
            if gives_order(e) and e.output not in orders:
                orders[e.output] = row_major_order(e.output.ndim)
                exprs.append(Pointwise("set", e.inputs, e.output))
            else:
                exprs.append(e)
        fusion = replace(fusion, exprs=tuple(exprs))
    return with_stride_orders(fusion, orders)


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
