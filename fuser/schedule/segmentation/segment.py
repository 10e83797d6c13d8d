"""A segment: a group of exprs, the scheduler that accepts it, and the reasons of those that refuse it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import (
    Fusion,
    LibraryOp,
    Pointwise,
    Reshape,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.sub_fusion import sub_fusion
from fuser.ir.integers.integers import Symbol
from fuser.ir.ops.enums import SchedulerType
from fuser.records import record
from fuser.schedule.analysis.input_reads import displaced_intermediate
from fuser.schedule.scheduler import Accepted, Refused, Scheduler
from fuser.schedule.segmentation.registry import LAST_RESORT, SCHEDULERS


@record(eq=False)
class Segment:
    """A group of exprs, the scheduler that accepts it, and the refusals of the schedulers before it.

    `extent_inputs`: symbols the kernel needs that none of its tensor inputs carries, passed as scalars of the same name.
    `starts_next`, `co_resident`: see `LaunchPlan`. `follows_kernel`: the segment before it has a kernel as well.
    `excluded_schedulers`: schedulers that have refused these sizes or failed, and are skipped.
    """

    fusion: Fusion
    scheduler: Scheduler
    refusals: tuple[tuple[SchedulerType, str], ...]
    extent_inputs: tuple[Symbol, ...] = ()
    starts_next: bool = False
    co_resident: bool = False
    follows_kernel: bool = False
    excluded_schedulers: frozenset[SchedulerType] = frozenset()

    @property
    def call(self) -> LibraryOp | None:
        """The library op, if the segment is one: it has no kernel. Else None."""
        only = self.fusion.tensor_exprs[0] if len(self.fusion.tensor_exprs) == 1 else None
        return only if isinstance(only, LibraryOp) else None

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel computes the segment."""
        return self.call is None and self.scheduler.type is not SchedulerType.no_op


@record
class SizeRefusal:
    """A scheduler that accepted the structure of a segment but not its sizes.

    tensors   names of the tensors that the segment computes
    divisor   the scheduler is tried again for segments that compute at most 1 / divisor of these tensors. 2 after a failure,
              which bisects: the exprs that fail are alone after a few more attempts. None: it is not tried again
    """

    scheduler: SchedulerType
    tensors: frozenset[str]
    divisor: int | None = None

    def excludes(self, made: Set[str]) -> bool:
        """Whether the scheduler is skipped for a segment that computes these tensors."""
        common = len(self.tensors & made)
        return common > 0 if self.divisor is None else self.divisor * common > len(self.tensors)


class AcceptError(Exception):
    """A scheduler's `accepts` raised an error, which is the cause."""

    def __init__(self, fusion: Fusion, scheduler: SchedulerType) -> None:
        super().__init__(f"{scheduler.name} cannot be asked about {fusion}")
        self.fusion = fusion
        self.scheduler = scheduler


def forced_boundary(fusion: Fusion) -> Tensor | None:
    """The result of a `segment_set` that another expr of the fusion reads, which must be in a later kernel; or None."""
    marked = {e.output for e in fusion.tensor_exprs if isinstance(e, Pointwise) and e.op == "segment_set"}
    if not marked:
        return None
    return next((t for e in fusion.tensor_exprs for t in tensor_inputs(e) if t in marked), None)


def choose_scheduler(
    fusion: Fusion, size_refusals: Collection[SizeRefusal] = ()
) -> tuple[Scheduler | None, tuple[tuple[SchedulerType, str], ...]]:
    """The first scheduler that accepts, and the refusals of those before it (of all, if none does).

    `size_refusals`: schedulers that rejected the current sizes of a segment; they are skipped for its exprs.
    """
    reason = _refused_by_all(fusion)
    if reason is not None:
        return None, tuple((scheduler.type, reason) for scheduler in SCHEDULERS)
    refusals: list[tuple[SchedulerType, str]] = []
    reshape = next((e for e in fusion.tensor_exprs if isinstance(e, Reshape)), None)
    unfit = schedulers_to_skip(fusion, size_refusals)
    for scheduler in SCHEDULERS:
        if reshape is not None and scheduler.type is not SchedulerType.no_op:
            refusals.append(
                (scheduler.type, f"{reshape.output.name} is another view of {reshape.input.name} in memory")
            )
            continue
        answer = Refused(_OTHER_SIZES) if scheduler.type in unfit else _accepts(fusion, scheduler)
        if not isinstance(answer, Refused):
            return scheduler, tuple(refusals)
        refusals.append((scheduler.type, answer.reason))
    return None, tuple(refusals)


def _refused_by_all(fusion: Fusion) -> str | None:
    """Why all schedulers refuse a fusion, or None."""
    call = next((e for e in fusion.tensor_exprs if isinstance(e, LibraryOp)), None)
    if call is not None:
        return f"{call.outputs[0].name} is computed by a library: {LIBRARY_OPS[call.op].reason}"
    boundary = forced_boundary(fusion)
    if boundary is not None:
        return f"{boundary.name} is a segment_set: what reads it belongs to another kernel"
    displaced = displaced_intermediate(fusion)
    if displaced is not None:
        return f"{displaced[0].name} is computed here and read at other indices by {displaced[1].name}"
    return None


def schedulers_to_skip(fusion: Fusion, size_refusals: Collection[SizeRefusal]) -> frozenset[SchedulerType]:
    """Types of the schedulers that are skipped for a fusion."""
    if not size_refusals:
        return frozenset()
    made = {t.name for e in fusion.tensor_exprs for t in tensor_outputs(e)}
    return frozenset(r.scheduler for r in size_refusals if r.excludes(made))


@memoized
def _accepts(fusion: Fusion, scheduler: Scheduler) -> Accepted | Refused:
    try:
        return scheduler.accepts(fusion)
    except Exception as error:
        raise AcceptError(fusion, scheduler.type) from error


_OTHER_SIZES = "it does not take the sizes of a segment with some of these exprs, or has failed on it"


def accepting_schedulers(segment: Segment) -> Iterator[Scheduler]:
    """The schedulers that accept the structure of a segment, in priority order: the next one is for sizes that one refuses."""
    yield segment.scheduler
    if segment.scheduler is LAST_RESORT:
        return
    for scheduler in SCHEDULERS[SCHEDULERS.index(segment.scheduler) + 1 :]:
        if scheduler.type not in segment.excluded_schedulers and not isinstance(
            _accepts(segment.fusion, scheduler), Refused
        ):
            yield scheduler


def refusals_of_both(fusion: Fusion, first: Segment, second: Segment) -> tuple[tuple[SchedulerType, str], ...]:
    """Why no scheduler takes two segments of a fusion as one kernel; empty where one would, so that sizes or costs decided, or
    where the fusion does not have their exprs as they are."""
    both = {*first.fusion.tensor_exprs, *second.fusion.tensor_exprs}
    exprs = [e for e in fusion.tensor_exprs if e in both]
    if len(exprs) < len(both):
        return ()
    scheduler, why = choose_scheduler(sub_fusion(fusion, exprs)[0])
    return why if scheduler is None else ()


def accepted_segment(
    part: Fusion, extents: tuple[Symbol, ...], size_refusals: Collection[SizeRefusal] = ()
) -> Segment | None:
    """A whole fusion as a segment, if some scheduler accepts it; else None."""
    scheduler, why = choose_scheduler(part, size_refusals)
    return (
        None
        if scheduler is None
        else Segment(part, scheduler, why, extents, excluded_schedulers=schedulers_to_skip(part, size_refusals))
    )


def segment_of(fusion: Fusion, exprs: Sequence[TensorExpr], size_refusals: Collection[SizeRefusal]) -> Segment:
    """The segment of some exprs, perhaps with the scheduler of last resort. SchedulingError if that refuses it, too."""
    part, extents = sub_fusion(fusion, exprs)
    scheduler, why = choose_scheduler(part, size_refusals)
    if scheduler is None and LAST_RESORT.type not in schedulers_to_skip(part, size_refusals):
        answer = LAST_RESORT.accepts(part)
        scheduler = LAST_RESORT if not isinstance(answer, Refused) else None
    if scheduler is None:
        raise SchedulingError(
            f"Can not find a scheduler to schedule fusion segment {exprs[0]}: "
            + "; ".join(f"{t.name}: {reason}" for t, reason in why),
            location=tensor_outputs(exprs[0])[0].location,
        )
    return Segment(part, scheduler, why, extents, excluded_schedulers=schedulers_to_skip(part, size_refusals))
