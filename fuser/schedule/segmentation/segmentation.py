"""Splits a fusion into segments, each accepted by one scheduler.

The whole fusion is tried first. Else views, independent outputs and small reductions become segments, and the rest is split
by levels (`partition_fusion.py`). What cannot be split so is split in order (`greedy_segments.py`). An expr that no
scheduler accepts gets a kernel of its own from the scheduler of last resort (`schedulers/fallback.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Expr,
    Fusion,
    LibraryOp,
    Output,
    Reducing,
    Tensor,
    TensorExpr,
    expr_inputs,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.library_regions import has_calls, parts_of
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.sub_fusion import sub_fusion, tensor_expr
from fuser.ir.integers.integers import Symbol
from fuser.records import record
from fuser.schedule.analysis.reduced_dims import has_broadcast_reduced_dim
from fuser.schedule.segmentation.greedy_segments import depth_first, greedy_segments, independent_segments
from fuser.schedule.segmentation.partition_fusion import partition_fusion, ranks
from fuser.schedule.segmentation.recompute_boundaries import recompute_boundaries
from fuser.schedule.segmentation.registry import LAST_RESORT
from fuser.schedule.segmentation.segment import Segment, SizeRefusal, accepted_segment, segment_of
from fuser.schedule.segmentation.view_segments import returned_views, view_segment, views_of_inputs, views_of_results


@record(eq=False)
class SegmentedFusion:
    """Segments in an order that respects their data."""

    fusion: Fusion
    segments: tuple[Segment, ...]


def segment_fusion(fusion: Fusion, size_refusals: Collection[SizeRefusal] = ()) -> SegmentedFusion:
    """Segments of a fusion. `size_refusals`: refusals of the sizes at hand.

    Raises AcceptError where a scheduler raises an error, SchedulingError for an expr that even the last resort does not take.
    """
    if not has_calls(fusion):
        return _mark_consecutive_kernels(_segments_between(fusion, size_refusals))
    segments: list[Segment] = []
    for part in parts_of(fusion):
        between, extents = sub_fusion(fusion, (part,) if isinstance(part, LibraryOp) else part)
        if isinstance(part, LibraryOp):
            segments.append(Segment(between, LAST_RESORT, (), extents))
            continue
        segments += [_with_extents(s, extents) for s in _segments_between(between, size_refusals).segments]
    return _mark_consecutive_kernels(SegmentedFusion(fusion, tuple(segments)))


def _mark_consecutive_kernels(segmented: SegmentedFusion) -> SegmentedFusion:
    """Segments that know whether they follow another kernel; one that moves no data is not between them."""
    segments: list[Segment] = []
    before: Segment | None = None
    for segment in segmented.segments:
        follows = segment.has_kernel and before is not None and before.has_kernel
        segments.append(replace(segment, follows_kernel=True) if follows else segment)
        if segment.has_kernel or segment.call is not None:
            before = segment
    return SegmentedFusion(segmented.fusion, tuple(segments))


def _with_extents(segment: Segment, extents: Sequence[Symbol]) -> Segment:
    """With those of the part that it is cut from, which are inputs there."""
    names = {v.name for v in segment.fusion.inputs}
    known = {s.name for s in segment.extent_inputs}
    more = tuple(s for s in extents if s.name in names and s.name not in known)
    return replace(segment, extent_inputs=(*segment.extent_inputs, *more)) if more else segment


def _segments_between(fusion: Fusion, size_refusals: Collection[SizeRefusal]) -> SegmentedFusion:
    """Segments of a fusion without library calls."""
    views = returned_views(fusion) | views_of_inputs(fusion)
    after = views_of_results(fusion)
    rest = _remaining(fusion, views)
    is_whole = rest is fusion and not _has_unread_inputs(fusion)
    if is_whole and not after:
        whole = accepted_segment(fusion, (), size_refusals)
        if whole is not None:
            return SegmentedFusion(fusion, (whole,))
    segments: list[Segment] = []
    if views:
        # Views come first: an input that is viewed and updated is still as it was.
        segments.append(view_segment(fusion, views))
    exprs = [e for e in depth_first(rest) if e not in after]
    last = tuple(segment_of(rest, after, size_refusals) for _ in after[:1])
    if not exprs:
        return SegmentedFusion(fusion, (*segments, *last))
    if after or not is_whole:
        all_left = accepted_segment(*sub_fusion(rest, exprs), size_refusals)
        if all_left is not None:
            return SegmentedFusion(fusion, (*segments, all_left, *last))
    apart = [] if views or after else independent_segments(rest, rest, size_refusals)
    if apart and _has_shared_input(apart):
        joined = _split(rest, size_refusals)
        apart = joined if len(joined) < len(apart) else apart
    if apart:
        return SegmentedFusion(fusion, tuple(apart))
    small = _smaller_reductions(rest, exprs)
    others = [e for e in exprs if e not in small]
    if small and accepted_segment(*sub_fusion(rest, others), size_refusals) is not None:
        runs = greedy_segments(rest, [e for e in exprs if e in small], size_refusals)
        # What views of results are of is needed, though no kernel reads it.
        viewed = dict.fromkeys(t for e in after for t in tensor_inputs(e))
        shown = replace(rest, outputs=(*rest.outputs, *map(Output, viewed)))
        both = recompute_boundaries(shown, (*runs, segment_of(rest, others, size_refusals)), size_refusals)
        return SegmentedFusion(fusion, (*segments, *both, *last))
    core, extents = sub_fusion(rest, exprs) if after else (rest, ())
    cut = (_with_extents(s, extents) for s in _split(core, size_refusals))
    return SegmentedFusion(fusion, (*segments, *cut, *last))


def _has_shared_input(segments: Sequence[Segment]) -> bool:
    """Whether some segments read one tensor with as many dims as any of theirs: merged, they would read it once."""
    seen: set[Tensor] = set()
    for s in segments:
        rank = ranks(s.fusion)
        most = max(rank.values())
        largest = {t for t in s.fusion.input_tensors if rank[t] == most}
        if not seen.isdisjoint(largest):
            return True
        seen |= largest
    return False


def _has_unread_inputs(fusion: Fusion) -> bool:
    """Whether a tensor is an input and nothing else: no kernel needs it, and its dims say nothing of the loops of one."""
    used = {v for e in fusion.tensor_exprs for v in expr_inputs(e)}
    if not used:
        return False
    used.update(t for o in fusion.outputs for t in (o.tensor, o.alias_of) if t is not None)
    return not used.issuperset(fusion.input_tensors)


def _split(fusion: Fusion, size_refusals: Collection[SizeRefusal]) -> list[Segment]:
    """Segments of what no scheduler takes whole: cut where levels end, or in order where that makes fewer kernels.

    Of two ways with as many kernels the one in which more are co-resident.
    """
    segments: list[Segment] = []
    for part, extents in partition_fusion(fusion, lambda part: accepted_segment(part, (), size_refusals) is not None):
        whole = accepted_segment(part, extents, size_refusals)
        if whole is not None:
            segments.append(whole)
        else:
            # What it would compute again, and a part before it stores, it reads.
            made = {t for s in segments for t in s.fusion.output_tensors}
            segments += [
                _with_extents(s, extents) for s in greedy_segments(part, depth_first(part, made), size_refusals)
            ]
    segments = recompute_boundaries(fusion, segments, size_refusals)
    in_order = recompute_boundaries(fusion, greedy_segments(fusion, depth_first(fusion), size_refusals), size_refusals)
    stored = [t for s in segments for t in s.fusion.output_tensors]
    if len(set(stored)) < len(stored):
        # Two segments store one tensor, and segments between them may read it.
        return in_order
    return min(
        segments, in_order, key=lambda found: (sum(s.has_kernel for s in found), -sum(s.co_resident for s in found))
    )


def _remaining(fusion: Fusion, made: frozenset[Tensor]) -> Fusion:
    """What is left to compute where some tensors are made: of what only these need, and of what nobody does but for its size,
    nothing is. The fusion itself if that is all of it."""
    outputs = tuple(o for o in fusion.outputs if o.tensor not in made)
    needed = set(depth_first(replace(fusion, outputs=outputs), made))
    exprs = tuple(e for e in fusion.exprs if e in needed or not tensor_expr(e))
    return fusion if len(exprs) == len(fusion.exprs) else replace(fusion, exprs=exprs, outputs=outputs)


def _smaller_reductions(fusion: Fusion, exprs: Collection[TensorExpr]) -> frozenset[TensorExpr]:
    """Reductions of what has not all the dims of the largest, such as the number of labels that count, with all they need.

    Results of all rows are no part of a kernel whose blocks have rows: they have to be complete before it starts. And what has
    no rows would be reduced again for each of them.
    """
    graph = fusion.resolved_dims
    below: dict[Expr | None, frozenset[Group]] = {}
    for e in fusion.tensor_exprs:
        dims = (d for t in (*tensor_inputs(e), *tensor_outputs(e)) for d in t.logical)
        own = frozenset(g for g in map(graph.group, dims) if not g.is_broadcast)
        needed = (fusion.definitions.get(t) for t in tensor_inputs(e))
        below[e] = own.union(*(below[d] for d in needed if d in below))
    reductions = [e for e in exprs if isinstance(e, Reducing)]
    largest = max((below[e] for e in reductions), key=len, default=frozenset())
    smaller = [e for e in reductions if below[e] < largest or has_broadcast_reduced_dim(graph, e.input)]
    results = [t for e in smaller for t in tensor_outputs(e)]
    needed_by_them = set(exprs_below(results, fusion.definitions))
    return frozenset(e for e in exprs if e in needed_by_them)
