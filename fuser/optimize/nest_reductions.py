"""Reduce everything in two steps where others reduce its rows, or what it has rows of: one kernel does both.

Before: t1 = sum(t0, [1]); t2 = sum(exp(t0), [0, 1])
After:  t1 = sum(t0, [1]); t3 = sum(exp(t0), [1]); t2 = sum(t3, [0])

Before: t2 = sum(t0[n], [0]); t3 = sum(where(broadcast(t0, [False, True]), t1[n, 4], 0), [0, 1])
After:  t2 = sum(t0[n], [0]); t4 = sum(where(broadcast(t0, [False, True]), t1[n, 4], 0), [1]); t3 = sum(t4, [0])

A kernel reduces one set of dims, and over all rows what is left of them. Rows are the last dims, as they lie in memory by
default. Statistics stay, as they need a result of all rows in the second step; so does what is reduced to one element for
values that have rows again, as it ends a kernel either way.

Stands behind the passes that move reductions' operands, as it asks which dims are one.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Reducing, Reduction, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.optimize.reduce_in_steps import reduce_in_steps
from fuser.records import record


@record
class _Dims:
    """Groups of the dims of an operand, in order, and those that are reduced."""

    of: tuple[Group, ...]
    reduced: frozenset[Group]


def nest_reductions(fusion: Fusion) -> Fusion:
    """The same outputs, with reductions to one element in steps where others have the dims of one of them."""
    reductions = [e for e in fusion.tensor_exprs if isinstance(e, Reducing)]
    if len(reductions) < 2:
        return fusion
    graph = fusion.resolved_dims
    dims = {e: _dims(e, graph) for e in reductions}
    last: dict[str, tuple[int, ...]] = {}
    for e in reductions:
        rows = next((r for o in reductions if (r := _rows(dims[e], dims[o])) is not None), None)
        is_step = isinstance(fusion.definitions.get(tensor_inputs(e)[0]), Reduction)
        if rows is not None and isinstance(e, Reduction) and not is_step and _ends_there(fusion, e):
            result = tensor_outputs(e)[0]
            last[result.name] = tuple(i for i, d in enumerate(result.logical) if graph.group(d) in rows)
    return reduce_in_steps(fusion, last) if last else fusion


def _dims(expr: Reducing, graph: IterationGraph) -> _Dims:
    result = tensor_outputs(expr)[0]
    of = tuple(g for g in map(graph.group, result.logical) if not g.is_broadcast)
    return _Dims(of, frozenset(graph.group(d) for d in result.logical if d.is_reduction).intersection(of))


def _rows(whole: _Dims, other: _Dims) -> frozenset[Group] | None:
    """The dims that rows are counted by where one kernel does both; None if there are none."""
    if whole.reduced != frozenset(whole.of):
        return None
    if frozenset(other.of) == whole.reduced:
        rows = whole.reduced - other.reduced
    elif whole.reduced.issuperset(other.of) and other.reduced == frozenset(other.of):
        rows = other.reduced
    else:
        return None
    if not rows or not other.reduced or rows == whole.reduced:
        return None
    return rows if frozenset(whole.of[: len(rows)]) == rows else None


def _ends_there(fusion: Fusion, expr: Reducing) -> bool:
    """Whether what is computed of a result has no dims."""
    found: set[Tensor] = set(tensor_outputs(expr))
    for e in fusion.tensor_exprs:
        if not found.isdisjoint(tensor_inputs(e)):
            found.update(tensor_outputs(e))
    return not any(not d.is_broadcast for t in found for d in t.visible)
