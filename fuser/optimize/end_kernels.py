"""End a kernel behind some tensors: what reads one of them goes on in another.

Before: t1 = sum(t0, [0, 1]); t2 = div(t0, broadcast(t1)); t4 = mul(t1, 0.1)          t2, t4 are outputs
After:  t1 = sum(t0, [0, 1]); t3 = segment_set(t1); t2 = div(t0, broadcast(t3)); t4 = mul(t1, 0.1)

Outputs of no more dims than those tensors, computed of them by ops on elements, such as running statistics, stay in the kernel
that ends. What both kernels need for it, both compute.

No pass of the pipeline: whether more kernels are faster depends on sizes (`schedule/kernel_split.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expand,
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    Permute,
    Pointwise,
    ScalarOp,
    Squeeze,
    Tensor,
    map_expr,
    next_number,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.live_order import exprs_below

_SMALL = (Pointwise, Broadcast, Expand, Squeeze, Permute)


def end_kernels(fusion: Fusion, names: Collection[str]) -> Fusion:
    """The same outputs, with a `segment_set` behind each tensor of these names for what goes on in another kernel."""
    named = [t for t in fusion.tensors if t.name in names]
    ending = _ending_outputs(fusion, named)
    before = set(exprs_below(ending, fusion.definitions))
    behind = set(exprs_below([t for t in fusion.output_tensors if t not in ending], fusion.definitions))
    exprs: list[Expr] = []
    replaced: dict[Tensor, Tensor] = {}
    number = next_number(fusion)
    for expr in fusion.exprs:
        if isinstance(expr, ExtentOp):
            exprs.append(ExtentOp(replaced.get(expr.tensor, expr.tensor), expr.dim, expr.output))
            continue
        if isinstance(expr, ScalarOp):
            exprs.append(expr)
            continue
        goes_on = any(t in replaced for t in tensor_inputs(expr))
        if expr in before or not goes_on:
            exprs.append(expr)
        if goes_on and (expr in behind or expr not in before):
            again = tensor_outputs(expr) if expr in before else ()
            for k, t in enumerate(again):
                replaced[t] = _like(t, f"t{number + k}")
            number += len(again)
            exprs.append(map_expr(expr, replaced))
        for t in tensor_outputs(expr):
            if t.name in names:
                copied = replaced.get(t, t)
                replaced[t] = _copy_of(copied, f"t{number}")
                exprs.append(Pointwise("segment_set", (copied,), replaced[t]))
                number += 1
    return Fusion(fusion.inputs, tuple(exprs), fusion.outputs, fusion.constraints, fusion.extent_scalars)


def _ending_outputs(fusion: Fusion, named: Iterable[Tensor]) -> list[Tensor]:
    """Outputs that need nothing larger than named tensors which one kernel makes, and are computed of these by elements."""
    graph = fusion.resolved_dims
    needs: dict[Tensor, frozenset[Tensor]] = {}
    depth: dict[Tensor, int] = {}
    large: set[Tensor] = set()
    dims = {graph.group(d) for t in named for d in t.visible if not d.is_broadcast}
    own = set(named)
    for e in fusion.tensor_exprs:
        below = frozenset[Tensor]().union(*(needs.get(t, frozenset()) for t in tensor_inputs(e)))
        is_large = below and not (isinstance(e, _SMALL) and large.isdisjoint(tensor_inputs(e)))
        for t in tensor_outputs(e):
            needs[t] = below
            if is_large or not dims.issuperset(graph.group(d) for d in t.visible if not d.is_broadcast):
                large.add(t)
            if t in own:
                depth[t] = 1 + max((depth[s] for s in below), default=0)
                needs[t] = frozenset({t})
                large.discard(t)
    found = [t for t in fusion.output_tensors if needs.get(t) and t not in large and t not in own]
    return [t for t in found if len({depth[s] for s in needs[t]}) == 1]


def _like(tensor: Tensor, name: str) -> Tensor:
    """Another tensor of the same values."""
    dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(tensor.logical))
    return replace(tensor, name=name, logical=dims)


def _copy_of(tensor: Tensor, name: str) -> Tensor:
    """A dense tensor with the dims that are left of one."""
    dims = tuple(IterDomain(f"{name}.{i}", d.extent, d.kind, d.expanded) for i, d in enumerate(tensor.visible))
    contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in dims)
    order = row_major_order(len(dims))
    return Tensor(name, tensor.dtype, dims, order, contiguity, None, tensor.is_cpu, tensor.location)
