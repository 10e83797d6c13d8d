"""Cut a fusion into segments that one scheduler each accepts.

The whole fusion first; else exprs are taken in order, each segment growing as long as some scheduler accepts it. Runs of the
definition order are acyclic whatever the graph. The length of a run is found by doubling and halving, so the number of
questions to schedulers grows as n log n with the number of exprs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuser.errors import SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import (
    ExtentOp,
    Fusion,
    Output,
    Scalar,
    ScalarOp,
    Tensor,
    TensorExpr,
    Val,
    expr_inputs,
    tensor_outputs,
)
from fuser.ir.integers import Symbol
from fuser.schedule.params import Refused, Scheduler
from fuser.schedule.registry import SCHEDULERS


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A group of exprs with the scheduler that takes it, and why the schedulers before it did not.

    `extent_inputs`: symbols the kernel needs that none of its tensor inputs carries, passed as scalars of the same name.
    """

    fusion: Fusion
    scheduler: Scheduler
    refusals: tuple[tuple[SchedulerType, str], ...]
    extent_inputs: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SegmentedFusion:
    """Segments in an order that respects their data."""

    fusion: Fusion
    segments: tuple[Segment, ...]


def choose_scheduler(fusion: Fusion) -> tuple[Scheduler | None, tuple[tuple[SchedulerType, str], ...]]:
    """The first scheduler that accepts, and the refusals of those before it (of all, if none does)."""
    refusals: list[tuple[SchedulerType, str]] = []
    for scheduler in SCHEDULERS:
        answer = scheduler.accepts(fusion)
        if not isinstance(answer, Refused):
            return scheduler, tuple(refusals)
        refusals.append((scheduler.type, answer.reason))
    return None, tuple(refusals)


def segment_fusion(fusion: Fusion) -> SegmentedFusion:
    """Segments of a fusion.

    Raises SchedulingError (`Can not find a scheduler to schedule fusion segment`) for an expr that no scheduler accepts.
    """
    whole, refusals = choose_scheduler(fusion)
    if whole is not None:
        return SegmentedFusion(fusion, (Segment(fusion, whole, refusals),))
    exprs = _ordered(fusion)
    segments: list[Segment] = []
    start = 0
    while start < len(exprs):
        end = _longest(fusion, exprs, start)
        part, extents = sub_fusion(fusion, exprs[start:end])
        scheduler, why = choose_scheduler(part)
        if scheduler is None:
            raise SchedulingError(
                f"Can not find a scheduler to schedule fusion segment {exprs[start]}: "
                + "; ".join(f"{t.name}: {reason}" for t, reason in why),
                location=tensor_outputs(exprs[start])[0].location,
            )
        segments.append(Segment(part, scheduler, why, extents))
        start = end
    return SegmentedFusion(fusion, tuple(segments))


def _longest(fusion: Fusion, exprs: Sequence[TensorExpr], start: int) -> int:
    """End of the longest run from `start` found by doubling, then halving the last step."""

    def works(end: int) -> bool:
        return choose_scheduler(sub_fusion(fusion, exprs[start:end])[0])[0] is not None

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
    made = {t for e in exprs for t in tensor_outputs(e)}
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
    carried = {d.extent for t in read for d in t.visible if isinstance(d.extent, Symbol)}
    mentioned: set[Symbol] = set()
    for t in (*made, *read):
        for d in t.logical:
            mentioned |= d.extent.symbols
    scalar_extents = dict(fusion.extent_scalars)
    missing = sorted((s for s in mentioned if s not in carried and s.name not in scalar_extents), key=lambda s: s.name)
    extra = tuple(Scalar(s.name, DataType.Int) for s in missing)
    scalar_exprs = tuple(e for e in fusion.exprs if not tensor_expr(e))
    part = Fusion(
        (*read, *scalars, *extra),
        (*scalar_exprs, *sorted(exprs, key=fusion.exprs.index)),
        tuple(outputs),
        (),
        {**scalar_extents, **{s.name: s.name for s in missing}},
    )
    return part, tuple(missing)


def _number(name: str) -> int:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits) if digits else 0
