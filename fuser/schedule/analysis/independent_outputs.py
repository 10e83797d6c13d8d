"""Outputs that share nothing but cheap values: each lot becomes a kernel that computes those for itself.

Gradients of a normalisation are reductions of rows on the one hand and of columns on the other. Where no scheduler takes them
together, cutting the exprs in order would make a kernel for what both need, and write and read it: more bytes than the inputs
it is computed from.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Fusion,
    Pointwise,
    Reducing,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.sub_fusion import exprs_for
from fuser.ir.fusion.views import ViewExpr


def independent_outputs(fusion: Fusion) -> list[list[TensorExpr]]:
    """Exprs for each lot of outputs that need reductions over the same dims, with all that they depend on.

    Nothing if there are several iteration spaces (a scheduler may take all of one), if there are not several lots, if two of
    them need the same reduction or the same output, or if what they share is costly: other ops than pointwise ones and views,
    or more bytes of inputs than it would take to store it and to read it again.
    """
    graph = fusion.resolved_dims
    spaces = {_space(graph, e) for e in fusion.tensor_exprs if isinstance(e, Reducing)}
    if len(spaces) != 1:
        return []
    kinds: dict[frozenset[frozenset[Group]], list[Tensor]] = {}
    if len(fusion.output_tensors) < 2 or any(o.alias_of is not None for o in fusion.outputs):
        return []
    for t in fusion.output_tensors:
        found = (e for e in exprs_below([t], fusion.definitions) if isinstance(e, Reducing))
        kinds.setdefault(frozenset(_reduced(graph, e) for e in found), []).append(t)
    if len(kinds) < 2:
        return []
    lots = [exprs_for(fusion, outputs) for outputs in kinds.values()]
    several = _in_several(lots)
    if not all(isinstance(e, (Pointwise, ViewExpr)) for e in several):
        return []
    if any(t in fusion.output_tensors for e in several for t in tensor_outputs(e)):
        return []
    return [] if _is_costly(lots, several, graph) else lots


def _space(graph: IterationGraph, expr: Reducing) -> frozenset[Group]:
    return frozenset(g for g in map(graph.group, tensor_outputs(expr)[0].logical) if not g.is_broadcast)


def _reduced(graph: IterationGraph, expr: Reducing) -> frozenset[Group]:
    groups = (graph.group(d) for d in tensor_outputs(expr)[0].logical if d.is_reduction)
    return frozenset(g for g in groups if not g.is_broadcast)


def _in_several(lots: list[list[TensorExpr]]) -> set[TensorExpr]:
    seen: set[TensorExpr] = set()
    several: set[TensorExpr] = set()
    for lot in lots:
        several |= seen.intersection(lot)
        seen.update(lot)
    return several


def _is_costly(lots: list[list[TensorExpr]], several: set[TensorExpr], graph: IterationGraph) -> bool:
    """Whether computing shared values for each lot moves more than storing them once and reading them in the others."""
    if not several:
        return False
    made = {t for e in several for t in tensor_outputs(e)}
    # What a lot reads beside the values it shares is read either way.
    own = [{t for e in lot if e not in several for t in tensor_inputs(e)} for lot in lots]
    sources = {t for e in several for t in tensor_inputs(e)} - made
    most = max(_rank(graph, t) for t in (*made, *sources))
    again = sum(t.dtype.itemsize for t in sources if _rank(graph, t) == most and any(t not in read for read in own))
    stored = {t for t in made if any(t in read for read in own)}
    return again > sum(2 * t.dtype.itemsize for t in stored if _rank(graph, t) == most)


def _rank(graph: IterationGraph, t: Tensor) -> int:
    return len({graph.group(d) for d in t.visible if not d.is_broadcast})
