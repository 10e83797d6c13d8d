"""What a part between library calls makes of things that have nothing to do with each other, apart.

    q = rotate(t1); k = rotate(t2); both by the angles cos(t0)      ->      [cos(t0), q], [cos(t0), k]

Runs of exprs are taken in the order of the outputs. Where a run ends in the middle of what makes one of them, its neighbours
are cut with it; taken apart, each is a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.ir.fusion import (
    COPIES,
    Expand,
    Expr,
    Full,
    Fusion,
    Iota,
    Pointwise,
    Resize,
    Tensor,
    TensorExpr,
    tensor_outputs,
)
from fuser.ir.iteration_graph import IterationGraph
from fuser.ir.live_order import exprs_below
from fuser.ir.sub_fusion import tensor_expr
from fuser.ir.views import ViewExpr


def separate_lots(fusion: Fusion, *, recomputing: bool) -> list[Fusion]:
    """The fusion as fusions that share nothing but inputs, one if it is in one piece.

    recomputing   what is cheap, beside results of more dims, is made by each for itself
    """
    cones = {t: [e for e in exprs_below([t], fusion.definitions) if tensor_expr(e)] for t in fusion.output_tensors}
    cheap = _cheap(fusion) if recomputing else frozenset()
    lots: list[tuple[set[Tensor], set[Expr]]] = []
    for t, cone in cones.items():
        own = {e for e in cone if e not in cheap}
        joined = [lot for lot in lots if not own.isdisjoint(lot[1])]
        lots = [lot for lot in lots if lot not in joined]
        lots.append(({t}.union(*(lot[0] for lot in joined)), own.union(*(lot[1] for lot in joined))))
    if len(lots) < 2:
        return [fusion]
    return [_alone(fusion, outputs, cones) for outputs, _ in _in_order(fusion, lots)]


def _in_order(fusion: Fusion, lots: Sequence[tuple[set[Tensor], set[Expr]]]) -> list[tuple[set[Tensor], set[Expr]]]:
    position = {t: k for k, t in enumerate(fusion.output_tensors)}
    return sorted(lots, key=lambda lot: min(position[t] for t in lot[0]))


def _alone(fusion: Fusion, outputs: set[Tensor], cones: dict[Tensor, list[Expr]]) -> Fusion:
    needed = {e for t in outputs for e in cones[t]}
    return replace(
        fusion,
        exprs=tuple(e for e in fusion.exprs if e in needed or not tensor_expr(e)),
        outputs=tuple(o for o in fusion.outputs if o.tensor in outputs),
    )


def _cheap(fusion: Fusion) -> frozenset[TensorExpr]:
    """Exprs that take next to nothing to compute again: those of fewer dims than some result, views, copies and casts, as far
    as all that is below them is such.
    """
    graph = fusion.resolved_dims
    most = max((_rank(graph, t) for t in fusion.output_tensors), default=0)
    shown = set(fusion.output_tensors)
    found: set[TensorExpr] = set()
    for e in fusion.tensor_exprs:
        (*_, t) = tensor_outputs(e)
        is_small = isinstance(e, (Pointwise, Expand, Full, Iota, Resize)) and _rank(graph, t) < most
        moves = isinstance(e, (ViewExpr, Expand)) or (isinstance(e, Pointwise) and e.op in (*COPIES, "cast"))
        below = [d for d in exprs_below([t], fusion.definitions) if tensor_expr(d) and d is not e]
        if (is_small or moves) and t not in shown and all(d in found for d in below):
            found.add(e)
    return frozenset(found)


def _rank(graph: IterationGraph, t: Tensor) -> int:
    return len({graph.group(d) for d in t.visible if not d.is_broadcast and not d.expanded})
