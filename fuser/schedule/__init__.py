"""Schedule: segmentation, and the schedulers, each of which turns a segment into a scheduled fusion.

A scheduler is a file and a line in segmentation/registry.py. The first one in that order that accepts a segment schedules it.

    accepts(segment)                      depends on structure only; `Accepted`, or `Refused` with a reason
    propose(segment, inputs, device)      depends on sizes and strides, too; `Params`, or `Refused`
    candidates(segment, inputs, device)   what tuning measures: the proposal, then others of its ranking, or its neighbours
    apply(segment, params)                records scheduling primitives in a `ScheduleBuilder` (ir/schedule/schedule.py)

`Params` are frozen records of all decisions that change the source of a kernel (params.py). The facts that a schedule
requires are all else that a kernel assumes about its arguments (ir/facts.py). The target is a `DeviceInfo`, a record of
its capacities and rates, so that any machine can compile for any GPU. The table of docs/ARCHITECTURE.md says what each
scheduler accepts; the docstring of its module shows the loops.

Sub-packages and files; upper ones import lower ones
    segmentation/         splits a fusion into segments, and chooses the scheduler of each
    schedulers/           the schedulers
    cost/                 cost models: times of mappings to threads, blocks and memories, and the fastest mapping
    transforms/           scheduling primitives and rewrites that several schedulers share
    analysis/             properties of a segment and of the memory of its arguments, on which decisions depend
    scheduler.py          what a scheduler is
    tuning_candidates.py  neighbours of proposed parameters, for tuning; print_params.py: parameters as text
    params.py             parameters; reasons.py: why these were chosen

Data passes
    A data pass of a reduction segment is a loop nest over the full-size data between reductions that depend on each other. A
    chained reduction, which reduces the results of others over other dims, is not one. Full-size values that several of them
    need are kept on chip by the persistent schedulers, and recomputed by `reduction`
    (docs/decisions/0003-recompute-before-persistence.md).
"""

from __future__ import annotations

from typing import NoReturn

from fuser.errors import missing_from_module
from fuser.tracebacks import short_traceback


@short_traceback
def __getattr__(name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise missing_from_module(
        f"this folder has the schedulers and no {name!r}; scheduling functions are fd.sched.{name}, or those of "
        "`from fuser import schedule`",
        name,
    )
