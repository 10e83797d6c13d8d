"""Classifies the reductions of a segment that has inner and outer ones: statistics of rows, and sums of columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fuser.ir.fusion.fusion import (
    Fusion,
    Reducing,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized
from fuser.records import record
from fuser.schedule.analysis.reduced_dims import reduced_groups, reductions_of
from fuser.schedule.analysis.reference import input_dims, refusal_of_space, solid_groups
from fuser.schedule.scheduler import Refused


@record
class InnerOuter:
    """The two kinds of reductions of a segment: `row` results are reduced over the dims `along` a row, `column` ones over all
    `others`, which distinguish the rows."""

    reference: Tensor
    along: frozenset[Group]
    others: frozenset[Group]
    row: tuple[Tensor, ...]
    column: tuple[Tensor, ...]


@memoized
def row_orientations(segment: Fusion) -> tuple[InnerOuter, ...]:
    """What may be the rows of a segment: what its first reduction reduces, or what it does not."""
    found = (classify_reductions(segment, first=first) for first in (True, False))
    return tuple(s for s in found if isinstance(s, InnerOuter))


@memoized
def classify_reductions(segment: Fusion, *, first: bool) -> InnerOuter | Refused:
    """The reductions of a segment by what they reduce; rows are what the first one reduces, or what it does not."""
    graph = segment.resolved_dims
    results = [tensor_outputs(e)[0] for e in reductions_of(segment)]
    if not results:
        return Refused("nothing is reduced")
    reduced = {t: concrete_reduced_groups(graph, t) for t in results}
    kinds = list(dict.fromkeys(reduced.values()))
    if len(kinds) != 2 or not all(kinds):
        return Refused("what is reduced is not two sets of dimensions")
    along, others = kinds if first else reversed(kinds)
    if along & others:
        return Refused("some dimension is reduced together with two sets of others")
    row = tuple(t for t in results if reduced[t] == along)
    column = tuple(t for t in results if reduced[t] == others)
    for t in results:
        if solid_groups(graph, t) != along | others:
            return Refused(f"{t.name} is reduced from less than the whole iteration space")
    refused = refusal_of_space(segment, row[0], threads=along | others)
    if refused is not None:
        return refused
    inner_outer = InnerOuter(row[0], along, others, row, column)
    if not input_dims(segment).keys() >= along | others:
        return Refused("no input has some dimension of the iteration space")
    after = downstream(segment.tensor_exprs, column)
    late = next((t for t in after if any(graph.group(d) in others for d in t.visible)), None)
    if late is not None:
        return Refused(f"{late.name} has rows and needs sums over all rows")
    return _outputs_refused(segment, inner_outer, after) or inner_outer


def _outputs_refused(segment: Fusion, inner_outer: InnerOuter, after: Collection[Tensor]) -> Refused | None:
    """Why an output is neither of full size, nor one value for each row or each column, or None."""
    graph = segment.resolved_dims
    statistics = downstream(segment.tensor_exprs, inner_outer.row)
    for t in segment.output_tensors:
        own = graph.concrete_groups(t.visible)
        if t in segment.input_tensors:
            return Refused(f"the output {t.name} is an input")
        is_sum = t in after or t in inner_outer.column
        is_statistic = t in statistics or t in inner_outer.row
        if own != (inner_outer.along if is_sum else inner_outer.along | inner_outer.others) and not (
            is_statistic and own == inner_outer.others
        ):
            return Refused(f"the output {t.name} is neither of full size nor a statistic of rows nor a sum of columns")
    return None


def concrete_reduced_groups(graph: IterationGraph, t: Tensor) -> frozenset[Group]:
    return frozenset(g for g in reduced_groups(graph, t) if not g.is_broadcast)


def downstream(exprs: Iterable[TensorExpr], sources: Iterable[Tensor]) -> list[Tensor]:
    """Tensors computed from some others, in order. `exprs` are in order; siblings of a source do not count."""
    reached = set(sources)
    found: list[Tensor] = []
    siblings = {
        t for e in exprs if isinstance(e, Reducing) and reached & set(tensor_outputs(e)) for t in tensor_outputs(e)
    }
    reached |= siblings
    for e in exprs:
        if any(t in reached for t in tensor_inputs(e)):
            for t in tensor_outputs(e):
                if t not in reached:
                    reached.add(t)
                    found.append(t)
    return found
