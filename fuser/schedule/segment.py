"""Cut a fusion into segments that one scheduler each accepts.

The whole fusion first; else it is cut (`cuts.py`). What cannot be cut so is taken in order, each segment growing as long as
some scheduler accepts it. Runs of the definition order are acyclic whatever the graph. The length of a run is found by doubling
and halving, so the number of questions to schedulers grows as n log n with the number of exprs. An expr that no scheduler takes
is a kernel of its own, made by the last resort (`schedulers/expr_eval.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    LibraryOp,
    Output,
    Pointwise,
    Reducing,
    Reshape,
    ScalarOp,
    Squeeze,
    Tensor,
    TensorExpr,
    Val,
    expr_inputs,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import Symbol
from fuser.ir.iteration_graph import Group
from fuser.ir.library_ops import LIBRARY_OPS
from fuser.ir.library_regions import has_calls, parts_of
from fuser.ir.live_order import exprs_below
from fuser.ir.memoized import memoized
from fuser.ir.sub_fusion import sub_fusion, tensor_expr
from fuser.ir.views import ViewExpr, view_chain
from fuser.records import record
from fuser.schedule.analysis.independent_outputs import independent_outputs
from fuser.schedule.analysis.reads import displaced_intermediate
from fuser.schedule.analysis.reduced_dims import is_repeated
from fuser.schedule.cuts import cut_fusion
from fuser.schedule.params import Accepted, Refused, Scheduler
from fuser.schedule.registry import LAST_RESORT, SCHEDULERS
from fuser.schedule.schedulers.no_op import viewed_input


@record(eq=False)
class Segment:
    """A group of exprs with the scheduler that takes it, and why the schedulers before it did not.

    `extent_inputs`: symbols the kernel needs that none of its tensor inputs carries, passed as scalars of the same name.
    `starts_next`, `beside`: see `LaunchPlan`. `follows`: the segment before it has a kernel as well.
    `unfit`: schedulers that are not asked about the sizes at hand, they were.
    """

    fusion: Fusion
    scheduler: Scheduler
    refusals: tuple[tuple[SchedulerType, str], ...]
    extent_inputs: tuple[Symbol, ...] = ()
    starts_next: bool = False
    beside: bool = False
    follows: bool = False
    unfit: frozenset[SchedulerType] = frozenset()

    @property
    def call(self) -> LibraryOp | None:
        """What a library computes, where that is all of the segment: no kernel is made for it."""
        return library_call(self.fusion)

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel computes the segment."""
        return self.call is None and self.scheduler.type is not SchedulerType.no_op


@record
class SizesRefused:
    """A scheduler that took the structure of a segment and not its sizes. `tensors`: names of what the segment computes.

    parts   it may take a segment with one part of that many of these tensors. 2 where a stage failed on all of them: what it
            fails on is alone after a few more attempts. 1: it takes none
    """

    scheduler: SchedulerType
    tensors: frozenset[str]
    parts: int = 1

    def concerns(self, made: Set[str]) -> bool:
        """Whether the scheduler is not to be asked about a segment that computes these tensors."""
        common = len(self.tensors & made)
        return self.parts * common > len(self.tensors) if self.parts > 1 else common > 0


class AcceptError(Exception):
    """A scheduler raised an error, its cause, when it was asked about the structure of a segment."""

    def __init__(self, fusion: Fusion, scheduler: SchedulerType) -> None:
        super().__init__(f"{scheduler.name} cannot be asked about {fusion}")
        self.fusion = fusion
        self.scheduler = scheduler


@record(eq=False)
class SegmentedFusion:
    """Segments in an order that respects their data."""

    fusion: Fusion
    segments: tuple[Segment, ...]


def library_call(fusion: Fusion) -> LibraryOp | None:
    """The call of a library that is all of a fusion, or None."""
    only = fusion.tensor_exprs[0] if len(fusion.tensor_exprs) == 1 else None
    return only if isinstance(only, LibraryOp) else None


def forced_boundary(fusion: Fusion) -> Tensor | None:
    """The result of a `segment_set` that the same fusion goes on to read: a kernel has to end before that, or None."""
    marked = {e.output for e in fusion.tensor_exprs if isinstance(e, Pointwise) and e.op == "segment_set"}
    if not marked:
        return None
    return next((t for e in fusion.tensor_exprs for t in tensor_inputs(e) if t in marked), None)


def choose_scheduler(
    fusion: Fusion, without: Collection[SizesRefused] = ()
) -> tuple[Scheduler | None, tuple[tuple[SchedulerType, str], ...]]:
    """The first scheduler that accepts, and the refusals of those before it (of all, if none does).

    `without`: refusals of the sizes at hand; who refused those of a segment is not asked about its exprs again.
    """
    call = next((e for e in fusion.tensor_exprs if isinstance(e, LibraryOp)), None)
    if call is not None:
        reason = f"{call.outputs[0].name} is computed by a library: {LIBRARY_OPS[call.op].reason}"
        return None, tuple((scheduler.type, reason) for scheduler in SCHEDULERS)
    boundary = forced_boundary(fusion)
    if boundary is not None:
        reason = f"{boundary.name} is a segment_set: what reads it belongs to another kernel"
        return None, tuple((scheduler.type, reason) for scheduler in SCHEDULERS)
    displaced = displaced_intermediate(fusion)
    if displaced is not None:
        reason = f"{displaced[0].name} is computed here and read at other indices by {displaced[1].name}"
        return None, tuple((scheduler.type, reason) for scheduler in SCHEDULERS)
    refusals: list[tuple[SchedulerType, str]] = []
    reshape = next((e for e in fusion.tensor_exprs if isinstance(e, Reshape)), None)
    unfit = unfit_for(fusion, without)
    for scheduler in SCHEDULERS:
        if reshape is not None and scheduler.type is not SchedulerType.no_op:
            refusals.append(
                (scheduler.type, f"{reshape.output.name} is another view of {reshape.input.name} in memory")
            )
            continue
        answer = Refused(_OTHER_SIZES) if scheduler.type in unfit else _answer(fusion, scheduler)
        if not isinstance(answer, Refused):
            return scheduler, tuple(refusals)
        refusals.append((scheduler.type, answer.reason))
    return None, tuple(refusals)


def unfit_for(fusion: Fusion, without: Collection[SizesRefused]) -> frozenset[SchedulerType]:
    """Schedulers that are not to be asked about a fusion."""
    if not without:
        return frozenset()
    made = {t.name for e in fusion.tensor_exprs for t in tensor_outputs(e)}
    return frozenset(r.scheduler for r in without if r.concerns(made))


@memoized
def _answer(fusion: Fusion, scheduler: Scheduler) -> Accepted | Refused:
    try:
        return scheduler.accepts(fusion)
    except Exception as error:
        raise AcceptError(fusion, scheduler.type) from error


_OTHER_SIZES = "it does not take the sizes of a segment with some of these exprs, or has failed on it"


def candidates(segment: Segment) -> Iterator[Scheduler]:
    """Every scheduler that takes the structure of a segment, in priority order: the next is for sizes the first refuses."""
    yield segment.scheduler
    if segment.scheduler is LAST_RESORT:
        return
    for scheduler in SCHEDULERS[SCHEDULERS.index(segment.scheduler) + 1 :]:
        if scheduler.type not in segment.unfit and not isinstance(_answer(segment.fusion, scheduler), Refused):
            yield scheduler


def segment_fusion(fusion: Fusion, without: Collection[SizesRefused] = ()) -> SegmentedFusion:
    """Segments of a fusion. `without`: refusals of the sizes at hand.

    Raises AcceptError where a scheduler raises an error, SchedulingError for an expr that even the last resort does not take.
    """
    if not has_calls(fusion):
        return _in_order(_segments_between(fusion, without))
    segments: list[Segment] = []
    for part in parts_of(fusion):
        between, extents = sub_fusion(fusion, (part,) if isinstance(part, LibraryOp) else part)
        if isinstance(part, LibraryOp):
            segments.append(Segment(between, LAST_RESORT, (), extents))
            continue
        segments += [_with_extents(s, extents) for s in _segments_between(between, without).segments]
    return _in_order(SegmentedFusion(fusion, tuple(segments)))


def _in_order(segmented: SegmentedFusion) -> SegmentedFusion:
    """Segments that know whether they follow another kernel; one that moves no data is not between them."""
    segments: list[Segment] = []
    before: Segment | None = None
    for segment in segmented.segments:
        follows = segment.has_kernel and before is not None and before.has_kernel
        segments.append(replace(segment, follows=True) if follows else segment)
        if segment.has_kernel or segment.call is not None:
            before = segment
    return SegmentedFusion(segmented.fusion, tuple(segments))


def _with_extents(segment: Segment, extents: Sequence[Symbol]) -> Segment:
    """With those of the part that it is cut from, which are inputs there."""
    names = {v.name for v in segment.fusion.inputs}
    known = {s.name for s in segment.extent_inputs}
    more = tuple(s for s in extents if s.name in names and s.name not in known)
    return replace(segment, extent_inputs=(*segment.extent_inputs, *more)) if more else segment


def _segments_between(fusion: Fusion, without: Collection[SizesRefused]) -> SegmentedFusion:
    """Segments of a fusion without library calls."""
    views = _returned_views(fusion) | _views_of_inputs(fusion)
    after = _views_of_results(fusion)
    rest = _left_of(fusion, views)
    is_whole = rest is fusion and not _has_unread_inputs(fusion)
    if is_whole and not after:
        whole, refusals = choose_scheduler(fusion, without)
        if whole is not None:
            return SegmentedFusion(fusion, (Segment(fusion, whole, refusals, unfit=unfit_for(fusion, without)),))
    segments: list[Segment] = []
    if views:
        # Views come first: an input that is viewed and updated is still as it was.
        segments.append(_view_segment(fusion, views))
    exprs = [e for e in _ordered(rest) if e not in after]
    last = tuple(_segment_of(rest, after, without) for _ in after[:1])
    if not exprs:
        return SegmentedFusion(fusion, (*segments, *last))
    if exprs and (after or not is_whole):
        part, extents = sub_fusion(rest, exprs)
        scheduler, why = choose_scheduler(part, without)
        if scheduler is not None:
            segments.append(Segment(part, scheduler, why, extents, unfit=unfit_for(part, without)))
            return SegmentedFusion(fusion, (*segments, *last))
    apart = [] if views or after else _apart(rest, rest, without)
    if apart:
        return SegmentedFusion(fusion, tuple(apart))
    small = _smaller_reductions(rest, exprs)
    others = [e for e in exprs if e not in small]
    if small and choose_scheduler(sub_fusion(rest, others)[0], without)[0] is not None:
        segments += _runs(rest, [e for e in exprs if e in small], without)
        return SegmentedFusion(fusion, (*segments, _segment_of(rest, others, without), *last))
    core, extents = sub_fusion(rest, exprs) if after else (rest, ())
    cut = (_with_extents(s, extents) for s in _cut(core, without))
    return SegmentedFusion(fusion, (*segments, *cut, *last))


def _has_unread_inputs(fusion: Fusion) -> bool:
    """Whether a tensor is an input and nothing else: no kernel needs it, and its dims say nothing of the loops of one."""
    used = {v for e in fusion.tensor_exprs for v in expr_inputs(e)}
    if not used:
        return False
    used.update(t for o in fusion.outputs for t in (o.tensor, o.alias_of) if t is not None)
    return not used.issuperset(fusion.input_tensors)


def _cut(fusion: Fusion, without: Collection[SizesRefused]) -> list[Segment]:
    """Segments of what no scheduler takes whole: cut where levels end, or in order where that makes fewer kernels.

    Of two ways with as many kernels the one in which more are co-resident.
    """
    segments: list[Segment] = []
    for part, extents in cut_fusion(fusion, lambda part: choose_scheduler(part, without)[0] is not None):
        if choose_scheduler(part, without)[0] is not None:
            segments.append(_whole(part, extents, without))
        else:
            # What it would compute again, and a part before it stores, it reads.
            made = {t for s in segments for t in s.fusion.output_tensors}
            segments += [_with_extents(s, extents) for s in _runs(part, _ordered(part, made), without)]
    in_order = _runs(fusion, _ordered(fusion), without)
    stored = [t for s in segments for t in s.fusion.output_tensors]
    if len(set(stored)) < len(stored):
        # A run stores what a part behind it stores as well, and others may have read by then.
        return in_order
    return min(segments, in_order, key=lambda found: (sum(s.has_kernel for s in found), -sum(s.beside for s in found)))


def _left_of(fusion: Fusion, made: frozenset[Tensor]) -> Fusion:
    """What is left to compute where some tensors are made: of what only these need, and of what nobody does but for its size,
    nothing is. The fusion itself if that is all of it."""
    outputs = tuple(o for o in fusion.outputs if o.tensor not in made)
    needed = set(_ordered(replace(fusion, outputs=outputs), made))
    exprs = tuple(e for e in fusion.exprs if e in needed or not tensor_expr(e))
    return fusion if len(exprs) == len(fusion.exprs) else replace(fusion, exprs=exprs, outputs=outputs)


def _runs(fusion: Fusion, exprs: Sequence[TensorExpr], without: Collection[SizesRefused]) -> list[Segment]:
    """Segments of exprs taken in order, each as long as some scheduler accepts it."""
    segments: list[Segment] = []
    start = 0
    while start < len(exprs):
        lots, end = _run_apart(fusion, exprs, start, without)
        if lots:
            segments += lots
            start = end
            continue
        end = _longest(fusion, exprs, start, without)
        if end < len(exprs) and any(r.parts > 1 for r in without):
            end = _seam(fusion, exprs, start, end)
        segments.append(_segment_of(fusion, exprs[start:end], without))
        start = end
    return segments


def _seam(fusion: Fusion, exprs: Sequence[TensorExpr], start: int, end: int) -> int:
    """Where the end of a run leaves least to hand over, in its second half: there schedulers do not say where it ends."""
    readers: dict[Tensor, int] = {}
    for k, e in enumerate(exprs):
        readers |= dict.fromkeys(tensor_inputs(e), k)
    made = {t: k for k, e in enumerate(exprs) for t in tensor_outputs(e)}

    def handed_over(at: int) -> int:
        # What is reduced is small.
        return sum(
            0 if any(d.is_reduction for d in t.logical) else 1
            for t, k in made.items()
            if start <= k < at <= readers.get(t, -1)
        )

    return min(range(end, start + (end - start) // 2, -1), key=handed_over)


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
    smaller = [e for e in reductions if below[e] < largest or is_repeated(graph, e.input)]
    results = [t for e in smaller for t in tensor_outputs(e)]
    needed_by_them = set(exprs_below(results, fusion.definitions))
    return frozenset(e for e in exprs if e in needed_by_them)


def _segment_of(fusion: Fusion, exprs: Sequence[TensorExpr], without: Collection[SizesRefused]) -> Segment:
    part, extents = sub_fusion(fusion, exprs)
    scheduler, why = choose_scheduler(part, without)
    if scheduler is None and LAST_RESORT.type not in unfit_for(part, without):
        answer = LAST_RESORT.accepts(part)
        scheduler = LAST_RESORT if not isinstance(answer, Refused) else None
    if scheduler is None:
        raise SchedulingError(
            f"Can not find a scheduler to schedule fusion segment {exprs[0]}: "
            + "; ".join(f"{t.name}: {reason}" for t, reason in why),
            location=tensor_outputs(exprs[0])[0].location,
        )
    return Segment(part, scheduler, why, extents, unfit=unfit_for(part, without))


def _whole(part: Fusion, extents: tuple[Symbol, ...], without: Collection[SizesRefused]) -> Segment:
    """The segment of a part that some scheduler accepts."""
    scheduler, why = choose_scheduler(part, without)
    assert scheduler is not None
    return Segment(part, scheduler, why, extents, unfit=unfit_for(part, without))


def _apart(fusion: Fusion, run: Fusion, without: Collection[SizesRefused]) -> list[Segment]:
    """A segment for each lot of outputs of a run of exprs that share only cheap values, if schedulers take all; else nothing.

    None needs what another makes, so that they run two by two, side by side. `run`: the whole fusion, or a part of it.
    """
    found: list[Segment] = []
    members = set(run.tensor_exprs)
    if not members.issubset(fusion.tensor_exprs):
        return []
    for exprs in independent_outputs(run):
        own = set(exprs)
        others = {t for e in members - own for t in tensor_outputs(e)}
        # What other lots compute as well is no result of this one.
        rest = tuple(e for e in fusion.exprs if e in own or e not in members)
        alone = replace(fusion, exprs=rest, outputs=tuple(o for o in fusion.outputs if o.tensor not in others))
        part, extents = sub_fusion(alone, exprs)
        scheduler, why = choose_scheduler(part, without)
        if scheduler is None:
            return []
        is_second = len(found) % 2 == 1
        found.append(Segment(part, scheduler, why, extents, not is_second, is_second, unfit=unfit_for(part, without)))
    return found


def _run_apart(
    fusion: Fusion, exprs: Sequence[TensorExpr], start: int, without: Collection[SizesRefused]
) -> tuple[list[Segment], int]:
    """The lots of a run whose sizes were refused, and where it ends; nothing if there is no such run or it has none."""
    if not without:
        return [], start
    parts = [r for r in without if r.parts > 1]
    end = _longest(fusion, exprs, start, parts)
    run, _ = sub_fusion(fusion, exprs[start:end])
    scheduler, _ = choose_scheduler(run, parts)
    fitting, _ = choose_scheduler(run, without)
    return (_apart(fusion, run, without) if scheduler is not fitting else []), end


def _views_of_inputs(fusion: Fusion) -> frozenset[Tensor]:
    """What reshapes of inputs give, and what those reshape."""
    found: set[Tensor] = set()
    for e in fusion.tensor_exprs:
        chain = view_chain(fusion, e.output, fusion.input_tensors.__contains__) if isinstance(e, Reshape) else None
        if chain is not None and not chain[0].is_cpu:
            found.update(view.output for view in chain[1])
    return frozenset(found)


def _views_of_results(fusion: Fusion) -> list[TensorExpr]:
    """Reshapes, and views around them, that only outputs are made of: they come after every kernel."""
    first = _views_of_inputs(fusion)
    found: set[TensorExpr] = set()
    for t in fusion.output_tensors if any(isinstance(e, Reshape) for e in fusion.tensor_exprs) else ():
        chain = view_chain(fusion, t, lambda t: not isinstance(fusion.definitions.get(t), ViewExpr))
        exprs = chain[1] if chain is not None else []
        start = next((i for i, e in enumerate(exprs) if isinstance(e, Reshape) and e.output not in first), len(exprs))
        # What has the memory order of the output is computed: views before that are part of it.
        follows = 0 < start < len(exprs) and isinstance(exprs[start - 1], Squeeze)
        found.update(exprs[start - follows :])
    for e in reversed(fusion.tensor_exprs):
        found -= {fusion.definitions[t] for t in tensor_inputs(e) if e not in found and t in fusion.definitions}
    return [e for e in fusion.tensor_exprs if e in found]


def _returned_views(fusion: Fusion) -> frozenset[Tensor]:
    """Outputs that are views of inputs, where there are others that are not."""
    updating = {o.tensor for o in fusion.outputs if o.alias_of is not None}
    shown = {t for t in fusion.output_tensors if t not in updating and t not in fusion.input_tensors}
    views = frozenset(t for t in shown if viewed_input(fusion, t) is not None)
    return views if updating or views != shown else frozenset()


def _view_segment(fusion: Fusion, views: frozenset[Tensor]) -> Segment:
    """Views of inputs that are returned or read by kernels, and that no kernel has to make."""
    made = (t for e in fusion.tensor_exprs for t in tensor_outputs(e))
    exprs = [
        e
        for e in exprs_below(filter(views.__contains__, made), fusion.definitions)
        if not isinstance(e, (ScalarOp, ExtentOp))
    ]
    inputs = tuple(t for t in fusion.input_tensors if any(t in tensor_inputs(e) for e in exprs))
    read = {t for e in fusion.tensor_exprs if views.isdisjoint(tensor_outputs(e)) for t in tensor_inputs(e)}
    outputs = [Output(t) for t in fusion.output_tensors if t in views]
    outputs += [Output(t) for e in exprs for t in tensor_outputs(e) if t in views and t in read]
    part = Fusion(inputs, tuple(exprs), tuple(dict.fromkeys(outputs)), (), {})
    scheduler, why = choose_scheduler(part)
    assert scheduler is not None
    return Segment(part, scheduler, why)


def _longest(fusion: Fusion, exprs: Sequence[TensorExpr], start: int, without: Collection[SizesRefused]) -> int:
    """End of the longest run from `start` found by doubling, then halving the last step."""

    def works(end: int) -> bool:
        return choose_scheduler(sub_fusion(fusion, exprs[start:end])[0], without)[0] is not None

    good, step = start + 1, 1
    while good < len(exprs) and works(min(good + step, len(exprs))):
        good = min(good + step, len(exprs))
        step *= 2
    while step > 1:
        step //= 2
        if good + step <= len(exprs) and works(good + step):
            good += step
    return good


def _ordered(fusion: Fusion, made: Collection[Tensor] = ()) -> list[TensorExpr]:
    """Exprs depth first from the outputs, so that chains stay together; none of those that only what is `made` needs."""
    seen: dict[TensorExpr, None] = {}
    definitions = fusion.definitions

    def visit(value: Val) -> None:
        stack: list[tuple[Val, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            expr = definitions.get(v)
            if expr is None or v in made or expr in seen or not tensor_expr(expr):
                continue
            if ready:
                seen[expr] = None  # type: ignore[index]
                continue
            stack.append((v, True))
            stack += [(i, False) for i in reversed(expr_inputs(expr)) if isinstance(i, Tensor)]

    for output in fusion.outputs:
        visit(output.tensor)
    return list(seen)
