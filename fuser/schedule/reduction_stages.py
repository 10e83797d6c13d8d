"""A fusion whose reductions reduce what others leave, cut so that little passes between its kernels.

    t1 = cast(t0); t2 = sum(t1, pixels); t3 = sum(t2, channels); t4 = rsqrt(t3); t5 = mul(t1, broadcast(t4))
    ->  [t1, t2]   [t3, t4]   [t1, t5]

Each kernel makes what reductions of one depth leave, with what is computed of that alone; the last one all that has the dims
which they reduce. What is computed of inputs alone is computed in each kernel that needs it, not stored at full size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuser.ir.fusion import (
    Broadcast,
    Expand,
    Fusion,
    Output,
    Pointwise,
    Reducing,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import Symbol
from fuser.ir.iteration_graph import Group
from fuser.ir.sub_fusion import sub_fusion, tensor_expr
from fuser.ir.views import ViewExpr


def reduction_stages(fusion: Fusion, is_accepted: Callable[[Fusion], bool]) -> list[tuple[Fusion, tuple[Symbol, ...]]]:
    """Such parts in order, each of as many depths as are accepted together, with the extents that each is told.

    None if no reduction has what another leaves, if a part is not accepted, if an output is an input that is updated, or if
    what several parts would compute is no `is_cheap`.
    """
    if any(o.alias_of is not None for o in fusion.outputs):
        return []
    left = _left_by_reductions(fusion)
    depth = max(left.values(), default=0)
    made: set[Tensor] = set()
    computed: set[TensorExpr] = set()
    parts: list[tuple[Fusion, tuple[Symbol, ...]]] = []
    start = 1 if depth > 1 else depth + 2
    while start <= depth + 1:
        for end in range(depth + 1, start - 1, -1):
            wanted = _wanted(fusion, left, made, None if end > depth else end)
            exprs = _below(fusion, wanted, made)
            part = sub_fusion(_made_of(fusion, exprs, wanted), exprs)
            if is_accepted(part[0]):
                break
        else:
            return []
        if not all(map(is_cheap, computed.intersection(exprs))):
            return []
        parts.append(part)
        computed.update(exprs)
        made.update(wanted)
        start = end + 1
    return parts


def is_cheap(expr: TensorExpr) -> bool:
    """Whether several kernels may compute it, each for itself, of no more than they read: pointwise ops and views."""
    return isinstance(expr, (Pointwise, Broadcast, Expand, ViewExpr))


def _wanted(fusion: Fusion, left: dict[Tensor, int], made: set[Tensor], depth: int | None) -> list[Tensor]:
    """What a part that ends at this depth hands over, beside what is `made`: what later ones read, and outputs. None: all
    outputs that are left."""
    outputs = [t for t in fusion.output_tensors if t not in made and t not in fusion.input_tensors]
    if depth is None:
        return outputs

    def is_later(e: TensorExpr) -> bool:
        return any(left.get(t, depth + 1) > depth for t in tensor_outputs(e))

    read = {t for e in fusion.tensor_exprs if is_later(e) for t in tensor_inputs(e)}
    return [t for t, n in left.items() if n <= depth and t not in made and (t in read or t in outputs)]


def _made_of(fusion: Fusion, exprs: Sequence[TensorExpr], wanted: Sequence[Tensor]) -> Fusion:
    """The fusion with these exprs alone."""
    own = set(exprs)
    kept = tuple(e for e in fusion.exprs if e in own or not tensor_expr(e))
    return replace(fusion, exprs=kept, outputs=tuple(map(Output, wanted)))


def _left_by_reductions(fusion: Fusion) -> dict[Tensor, int]:
    """What is computed of reductions' results and has none of the dims that those reduce, and how many follow one another."""
    graph = fusion.resolved_dims
    reduced: dict[Tensor, frozenset[Group]] = {}
    depth: dict[Tensor, int] = {}
    found: dict[Tensor, int] = {}
    for e in fusion.tensor_exprs:
        sources = tensor_inputs(e)
        below = frozenset[Group]().union(*(reduced.get(t, frozenset()) for t in sources))
        deep = max((depth.get(t, 0) for t in sources), default=0) + isinstance(e, Reducing)
        for t in tensor_outputs(e):
            own = below | {graph.group(d) for d in t.logical if d.is_reduction}
            reduced[t], depth[t] = own, deep
            if own and not isinstance(e, Broadcast) and own.isdisjoint(graph.group(d) for d in t.visible):
                found[t] = deep
    return found


def _below(fusion: Fusion, wanted: Sequence[Tensor], made: set[Tensor]) -> list[TensorExpr]:
    """Exprs that some tensors need beside those that are made, in order."""
    needed = set(wanted)
    found: list[TensorExpr] = []
    for e in reversed(fusion.tensor_exprs):
        if any(t in needed and t not in made for t in tensor_outputs(e)):
            found.append(e)
            needed.update(tensor_inputs(e))
    return found[::-1]
