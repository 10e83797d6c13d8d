"""The schedulers in priority order: the first that accepts a segment schedules it."""

from __future__ import annotations

from fuser.ir.ops.enums import SchedulerType
from fuser.schedule.params import Params
from fuser.schedule.scheduler import Scheduler
from fuser.schedule.schedulers.chained_reduction import ChainedReductionScheduler
from fuser.schedule.schedulers.fallback import FallbackScheduler
from fuser.schedule.schedulers.inner_outer_persistent import InnerOuterPersistentScheduler
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.schedulers.no_op import NoOpScheduler
from fuser.schedule.schedulers.outer_persistent import OuterPersistentScheduler
from fuser.schedule.schedulers.pointwise import PointwiseScheduler
from fuser.schedule.schedulers.reduction import ReductionScheduler
from fuser.schedule.schedulers.scan import ScanScheduler
from fuser.schedule.schedulers.thread_reduction import ThreadReductionScheduler
from fuser.schedule.schedulers.transpose import TransposeScheduler

SCHEDULERS: tuple[Scheduler, ...] = (
    NoOpScheduler(),
    InnerPersistentScheduler(),
    InnerOuterPersistentScheduler(),
    OuterPersistentScheduler(),
    ChainedReductionScheduler(),
    ReductionScheduler(),
    ThreadReductionScheduler(),
    ScanScheduler(),
    TransposeScheduler(),
    PointwiseScheduler(),
)


LAST_RESORT: Scheduler = FallbackScheduler()
"""Schedules single exprs that all others have refused or failed on, and nothing else."""


def scheduler_by_type(scheduler_type: SchedulerType) -> Scheduler | None:
    """The scheduler of a type, or None if there is none."""
    return next((s for s in SCHEDULERS if s.type is scheduler_type), None)


def scheduler_by_params(params: Params) -> Scheduler:
    """The scheduler that proposes parameters of this class, and applies them."""
    return next(s for s in (*SCHEDULERS, LAST_RESORT) if isinstance(params, s.params))
