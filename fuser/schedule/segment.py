"""Cut a fusion into segments that one scheduler each accepts.

The whole fusion first; else exprs are taken in order, each segment growing as long as some scheduler accepts it. Runs of the
definition order are acyclic whatever the graph. The length of a run is found by doubling and halving, so the number of
questions to schedulers grows as n log n with the number of exprs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import (
    ExtentOp,
    Fusion,
    IterDomain,
    Output,
    Pointwise,
    Reshape,
    Scalar,
    ScalarOp,
    Squeeze,
    Tensor,
    TensorExpr,
    Val,
    expr_extents,
    expr_inputs,
    extent_operands,
    map_expr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import Symbol
from fuser.ir.live_order import exprs_below
from fuser.ir.once import once
from fuser.ir.views import ViewExpr, view_chain
from fuser.records import record
from fuser.schedule.independent_outputs import independent_outputs
from fuser.schedule.no_op import viewed_input
from fuser.schedule.params import Accepted, Refused, Scheduler
from fuser.schedule.reads import displaced_intermediate
from fuser.schedule.registry import SCHEDULERS


@record(eq=False)
class Segment:
    """A group of exprs with the scheduler that takes it, and why the schedulers before it did not.

    `extent_inputs`: symbols the kernel needs that none of its tensor inputs carries, passed as scalars of the same name.
    `starts_next`, `beside`: see `LaunchPlan`. `unfit`: schedulers that are not asked about the sizes at hand, they were.
    """

    fusion: Fusion
    scheduler: Scheduler
    refusals: tuple[tuple[SchedulerType, str], ...]
    extent_inputs: tuple[Symbol, ...] = ()
    starts_next: bool = False
    beside: bool = False
    unfit: frozenset[SchedulerType] = frozenset()


@record
class SizesRefused:
    """A scheduler that took the structure of a segment and not its sizes. `tensors`: names of what the segment computes.

    is_whole  whether it may take parts of the segment: what it proposed for all of it cannot be lowered
    """

    scheduler: SchedulerType
    tensors: frozenset[str]
    is_whole: bool = False

    def concerns(self, made: Set[str]) -> bool:
        """Whether the scheduler is not to be asked about a segment that computes these tensors."""
        return self.tensors <= made if self.is_whole else not self.tensors.isdisjoint(made)


@record(eq=False)
class SegmentedFusion:
    """Segments in an order that respects their data."""

    fusion: Fusion
    segments: tuple[Segment, ...]


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


@once
def _answer(fusion: Fusion, scheduler: Scheduler) -> Accepted | Refused:
    return scheduler.accepts(fusion)


_OTHER_SIZES = "it does not take the sizes of a segment with some of these exprs"


def candidates(segment: Segment) -> Iterator[Scheduler]:
    """Every scheduler that takes the structure of a segment, in priority order: the next is for sizes the first refuses."""
    yield segment.scheduler
    for scheduler in SCHEDULERS[SCHEDULERS.index(segment.scheduler) + 1 :]:
        if scheduler.type not in segment.unfit and not isinstance(_answer(segment.fusion, scheduler), Refused):
            yield scheduler


def segment_fusion(fusion: Fusion, without: Collection[SizesRefused] = ()) -> SegmentedFusion:
    """Segments of a fusion. `without`: refusals of the sizes at hand.

    Raises SchedulingError (`Can not find a scheduler to schedule fusion segment`) for an expr that no scheduler accepts.
    """
    views = _returned_views(fusion) | _views_of_inputs(fusion)
    after = _views_of_results(fusion)
    if not views and not after:
        whole, refusals = choose_scheduler(fusion, without)
        if whole is not None:
            return SegmentedFusion(fusion, (Segment(fusion, whole, refusals, unfit=unfit_for(fusion, without)),))
    segments: list[Segment] = []
    exprs = _ordered(fusion)
    if views:
        # Views come first: an input that is viewed and updated is still as it was.
        segments.append(_view_segment(fusion, views))
    exprs = [e for e in exprs if not views.issuperset(tensor_outputs(e)) and e not in after]
    last = tuple(_segment_of(fusion, after, without) for _ in after[:1])
    if exprs and (views or after):
        part, extents = sub_fusion(fusion, exprs)
        scheduler, why = choose_scheduler(part, without)
        if scheduler is not None:
            segments.append(Segment(part, scheduler, why, extents, unfit=unfit_for(part, without)))
            return SegmentedFusion(fusion, (*segments, *last))
    apart = [] if views or after else _apart(fusion, fusion, without)
    if apart:
        return SegmentedFusion(fusion, tuple(apart))
    start = 0
    while start < len(exprs):
        lots, end = _run_apart(fusion, exprs, start, without)
        if lots:
            segments += lots
            start = end
            continue
        end = _longest(fusion, exprs, start, without)
        segments.append(_segment_of(fusion, exprs[start:end], without))
        start = end
    return SegmentedFusion(fusion, (*segments, *last))


def _segment_of(fusion: Fusion, exprs: Sequence[TensorExpr], without: Collection[SizesRefused]) -> Segment:
    part, extents = sub_fusion(fusion, exprs)
    scheduler, why = choose_scheduler(part, without)
    if scheduler is None:
        raise SchedulingError(
            f"Can not find a scheduler to schedule fusion segment {exprs[0]}: "
            + "; ".join(f"{t.name}: {reason}" for t, reason in why),
            location=tensor_outputs(exprs[0])[0].location,
        )
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
        found.append(Segment(part, scheduler, why, extents, not is_second, is_second, unfit_for(part, without)))
    return found


def _run_apart(
    fusion: Fusion, exprs: Sequence[TensorExpr], start: int, without: Collection[SizesRefused]
) -> tuple[list[Segment], int]:
    """The lots of a run whose sizes were refused, and where it ends; nothing if there is no such run or it has none."""
    if not without:
        return [], start
    end = _longest(fusion, exprs, start, ())
    run, _ = sub_fusion(fusion, exprs[start:end])
    scheduler, _ = choose_scheduler(run)
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
    exprs = [e for e in exprs_below(views, fusion.definitions) if not isinstance(e, (ScalarOp, ExtentOp))]
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


def _ordered(fusion: Fusion) -> list[TensorExpr]:
    """Exprs depth first from the outputs, so that chains stay together."""
    seen: dict[TensorExpr, None] = {}
    definitions = fusion.definitions

    def visit(value: Val) -> None:
        stack: list[tuple[Val, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            expr = definitions.get(v)
            if expr is None or expr in seen or not tensor_expr(expr):
                continue
            if ready:
                seen[expr] = None  # type: ignore[index]
                continue
            stack.append((v, True))
            stack += [(i, False) for i in reversed(expr_inputs(expr)) if isinstance(i, Tensor)]

    for output in fusion.outputs:
        visit(output.tensor)
    return list(seen)


def tensor_expr(expr: object) -> bool:
    """Whether an expr is computed by kernels."""
    return not isinstance(expr, (ScalarOp, ExtentOp))


def sub_fusion(fusion: Fusion, exprs: Sequence[TensorExpr]) -> tuple[Fusion, tuple[Symbol, ...]]:
    """Some exprs as a fusion of their own: inputs are what they read from outside, outputs what others read of them."""
    inside = set(exprs)
    made = dict.fromkeys(t for e in exprs for t in tensor_outputs(e))
    read: dict[Tensor, None] = {}
    for e in exprs:
        for v in expr_inputs(e):
            if isinstance(v, Tensor) and v not in made:
                read[v] = None
    needed_outside = {
        v for e in fusion.tensor_exprs if e not in inside for v in expr_inputs(e) if isinstance(v, Tensor)
    }
    outputs: list[Output] = []
    for o in fusion.outputs:
        if o.tensor in made:
            outputs.append(o if o.alias_of is None or o.alias_of in read else Output(o.tensor))
    listed = {o.tensor for o in outputs}
    outputs += [Output(t) for t in made if t in needed_outside and t not in listed]
    outputs.sort(key=lambda o: _number(o.tensor.name))
    scalars = [v for v in fusion.inputs if isinstance(v, Scalar)]
    # What is read comes first: an extent asked of a tensor that is computed from it would need itself.
    members = dict.fromkeys((*read, *made))
    scalar_exprs = _scalar_exprs(fusion, exprs, members)
    carried = {d.extent for t in read for d in t.visible if isinstance(d.extent, Symbol)}
    mentioned: set[Symbol] = {s for t in members for d in t.logical for s in d.extent.symbols}
    mentioned |= {s for e in exprs for x in expr_extents(e) for s in x.symbols}
    foreign = [e for e in scalar_exprs if isinstance(e, ExtentOp) and e.tensor not in members]
    mentioned |= {s for e in foreign for s in e.tensor.visible[e.dim].extent.symbols}
    scalar_extents = dict(fusion.extent_scalars)
    missing = sorted((s for s in mentioned if s not in carried and s.name not in scalar_extents), key=lambda s: s.name)
    extra = {s: Scalar(s.name, DataType.Int) for s in missing}
    order = {e: i for i, e in enumerate(fusion.exprs)}
    bare = {t: _bare(t) for t in read if t.root is not None}
    own = [_own_extent(e, members, extra) for e in scalar_exprs]
    part = Fusion(
        (*(bare.get(t, t) for t in read), *scalars, *extra.values()),
        (
            *(ExtentOp(bare.get(e.tensor, e.tensor), e.dim, e.output) if isinstance(e, ExtentOp) else e for e in own),
            *(map_expr(e, bare) if bare else e for e in sorted(exprs, key=order.__getitem__)),
        ),
        tuple(outputs),
        (),
        {**scalar_extents, **{s.name: s.name for s in missing}},
    )
    return part, tuple(missing)


def _bare(t: Tensor) -> Tensor:
    """A tensor that another segment made by transforming dims, as dims of its own."""
    dims = tuple(IterDomain(d.name, d.extent, d.kind, d.expanded) for d in t.visible)
    return replace(t, logical=dims, root=None)


def _scalar_exprs(
    fusion: Fusion, exprs: Sequence[TensorExpr], members: Collection[Tensor]
) -> tuple[ScalarOp | ExtentOp, ...]:
    """Host arithmetic that some exprs and the extents of their tensors need, in order."""
    symbols = {s.name for t in members for d in t.logical for s in d.extent.symbols}
    symbols |= {s.name for e in exprs for x in expr_extents(e) for s in x.symbols}
    needed: set[str] = {scalar for symbol, scalar in fusion.extent_scalars.items() if symbol in symbols}
    for e in exprs:
        needed.update(v.name for v in (*expr_inputs(e), *extent_operands(e)) if isinstance(v, Scalar))
    found: list[ScalarOp | ExtentOp] = []
    for e in reversed(fusion.exprs):
        if isinstance(e, (ScalarOp, ExtentOp)) and e.output.name in needed:
            found.append(e)
            if isinstance(e, ScalarOp):
                needed.update(v.name for v in e.inputs)
    return tuple(reversed(found))


def _own_extent(
    expr: ScalarOp | ExtentOp, members: Collection[Tensor], extra: Mapping[Symbol, Scalar]
) -> ScalarOp | ExtentOp:
    """An extent of a tensor of another segment, asked of a tensor of this one or of the scalar that is passed for it."""
    if not isinstance(expr, ExtentOp) or expr.tensor in members:
        return expr
    extent = expr.tensor.visible[expr.dim].extent
    if isinstance(extent, Symbol) and extent in extra:
        return ScalarOp("cast", (extra[extent],), expr.output)
    for t in members:
        for d, dim in enumerate(t.visible):
            if dim.extent is extent and not dim.is_broadcast:
                return ExtentOp(t, d, expr.output)
    return expr


def _number(name: str) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) if digits else 0
