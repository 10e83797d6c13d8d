"""Subsets of outputs that have only cheap values in common: each becomes a kernel, which recomputes these values.

The gradients of a normalisation are reductions of rows and reductions of columns. If no scheduler accepts both together,
splitting the exprs in order would store the values that both need and read them again: more bytes than the inputs that they are
computed from.
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
from fuser.schedule.analysis.inner_outer import concrete_reduced_groups
from fuser.schedule.analysis.reference import solid_groups


def independent_outputs(fusion: Fusion) -> list[list[TensorExpr]]:
    """For each subset of computed outputs that need reductions over the same dims: the exprs that it depends on.

    An output that is an input counts for none: no expr computes it.
    Empty if reductions have different iteration spaces, if there is only one subset, if two subsets need the same reduction or
    the same output, or if the values in common are costly: computed by other exprs than pointwise ones and views, or from more
    bytes of inputs than storing and reading them again takes.
    """
    graph = fusion.resolved_dims
    reduced = [tensor_outputs(e)[0] for e in fusion.tensor_exprs if isinstance(e, Reducing)]
    if len({solid_groups(graph, t) for t in reduced}) != 1:
        return []
    kinds: dict[frozenset[frozenset[Group]], list[Tensor]] = {}
    computed = [t for t in fusion.output_tensors if t in fusion.definitions]
    if len(computed) < 2 or any(o.alias_of is not None for o in fusion.outputs):
        return []
    for t in computed:
        found = (e for e in exprs_below([t], fusion.definitions) if isinstance(e, Reducing))
        own = frozenset(concrete_reduced_groups(graph, tensor_outputs(e)[0]) for e in found)
        kinds.setdefault(own, []).append(t)
    if len(kinds) < 2:
        return []
    subsets = [exprs_for(fusion, outputs) for outputs in kinds.values()]
    several = _shared_exprs(subsets)
    if not all(isinstance(e, (Pointwise, ViewExpr)) for e in several):
        return []
    if any(t in fusion.output_tensors for e in several for t in tensor_outputs(e)):
        return []
    return [] if _is_costly(subsets, several, graph) else subsets


def _shared_exprs(subsets: list[list[TensorExpr]]) -> set[TensorExpr]:
    seen: set[TensorExpr] = set()
    several: set[TensorExpr] = set()
    for subset in subsets:
        several |= seen.intersection(subset)
        seen.update(subset)
    return several


def _is_costly(subsets: list[list[TensorExpr]], several: set[TensorExpr], graph: IterationGraph) -> bool:
    """Whether recomputing shared values in each kernel moves more bytes than storing them once and reading them again."""
    if not several:
        return False
    made = {t for e in several for t in tensor_outputs(e)}
    # What a subset reads besides the shared values is read in any case.
    own = [{t for e in subset if e not in several for t in tensor_inputs(e)} for subset in subsets]
    sources = {t for e in several for t in tensor_inputs(e)} - made
    most = max(_rank(graph, t) for t in (*made, *sources))
    again = sum(t.dtype.itemsize for t in sources if _rank(graph, t) == most and any(t not in read for read in own))
    stored = {t for t in made if any(t in read for read in own)}
    return again > sum(2 * t.dtype.itemsize for t in stored if _rank(graph, t) == most)


def _rank(graph: IterationGraph, t: Tensor) -> int:
    return len(graph.concrete_groups(t.visible))
