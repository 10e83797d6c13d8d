"""The dims that the reductions of a segment reduce, and whether one loop nest serves all of them. All schedulers of
reductions use it.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Fusion,
    Reducing,
    Scan,
    Tensor,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized
from fuser.schedule.analysis.reference import (
    concrete_dims,
    dim_groups,
    refusal_of_space,
)
from fuser.schedule.scheduler import Accepted, Refused


@memoized
def reductions_of(segment: Fusion) -> tuple[Reducing, ...]:
    """Reductions in order."""
    return tuple(e for e in segment.tensor_exprs if isinstance(e, Reducing))


@memoized
def scans_of(segment: Fusion) -> tuple[Scan, ...]:
    """Scans in order."""
    return tuple(e for e in segment.tensor_exprs if isinstance(e, Scan))


@memoized
def reference_reduction(segment: Fusion) -> Tensor:
    """The first result of the reduction with most dims of more than one element."""
    graph = segment.resolved_dims
    return max((tensor_outputs(e)[0] for e in reductions_of(segment)), key=lambda t: concrete_dims(graph, t))


def reduced_groups(graph: IterationGraph, tensor: Tensor) -> frozenset[Group]:
    """Groups of the reduced dims of a reduction result."""
    return frozenset(graph.group(d) for d in tensor.logical if d.is_reduction)


@memoized
def accepts_reductions(segment: Fusion) -> Accepted | Refused:
    """Whether reductions run over the same dims of one iteration space, and nothing is scanned. Four schedulers ask."""
    scans = scans_of(segment)
    return Refused(f"{scans[0].input.name} is scanned") if scans else accepts_reductions_and_scans(segment)


@memoized
def accepts_reductions_and_scans(segment: Fusion) -> Accepted | Refused:
    """Whether reductions run over the same dims of one iteration space, and scans along the one dim that is reduced."""
    reductions = reductions_of(segment)
    if not reductions:
        return Refused("nothing is reduced")
    graph = segment.resolved_dims
    reference = reference_reduction(segment)
    reduced = reduced_groups(graph, reference)
    for e in reductions:
        result = tensor_outputs(e)[0]
        if reduced_groups(graph, result) != reduced:
            return Refused(f"{reference.name} and {result.name} are reduced over different dimensions")
    for scan in scans_of(segment):
        if {g for g in reduced if not g.is_broadcast} != {graph.group(scan.axis)}:
            return Refused(
                f"{scan.output.name} is scanned along other dimensions than {reference.name} is reduced over"
            )
    groups = dim_groups(graph, reference)
    kept = [g for g in groups if g not in reduced and not g.is_broadcast]
    refused = refusal_of_space(segment, reference, kept, groups)
    if refused is not None:
        return refused
    repeated = next((e.input for e in reductions if has_broadcast_reduced_dim(graph, e.input)), None)
    if repeated is not None:
        return Refused(f"{repeated.name} would be reduced again for each index of a dimension that it lacks")
    lacking = _partial_output(segment, reduced)
    if lacking is not None:
        return Refused(f"the output {lacking.name} lacks a dimension of {reference.name}")
    return Accepted()


def has_broadcast_reduced_dim(graph: IterationGraph, source: Tensor) -> bool:
    """Whether a dim of extent 1 of a reduction's input is broadcast to a larger extent elsewhere in the segment.

    The reduction would be inside of the loops over that dim: its input would be read once per iteration.
    """
    return any(d.is_broadcast and not graph.group(d).is_broadcast for d in source.visible)


def _partial_output(segment: Fusion, reduced: frozenset[Group]) -> Tensor | None:
    """A computed output with some of the reduced dims, but not all of them, or None."""
    graph = segment.resolved_dims
    for t in segment.output_tensors:
        own = graph.concrete_groups(t.visible) & reduced
        if own and t not in segment.input_tensors and not all(g in own or g.is_broadcast for g in reduced):
            return t
    return None
