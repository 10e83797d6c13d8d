"""Schedule: segmentation, and the schedulers, each of which turns a segment into a scheduled fusion.

A scheduler is a file and a line in segmentation/registry.py. The first one in that order that accepts a segment schedules it.

    accepts(segment)                      looks at structure only; `Accepted`, or `Refused` with a reason in plain words
    propose(segment, inputs, device)      looks at sizes and strides too; `Params`, or `Refused`
    candidates(segment, inputs, device)   what tuning measures: the proposal, then its neighbours (tuning_candidates.py)
    apply(segment, params)                records the verbs in a `ScheduleBuilder` (ir/schedule/schedule.py)

`Params` are frozen records of all decisions that change the text of a kernel (params.py); the facts that a schedule
asks for are the rest of what a kernel knows of its arguments (ir/facts.py). Planning stages see a device as
`DeviceInfo`, its limits as plain data, so that any GPU can be compiled for on any machine. The table of
docs/ARCHITECTURE.md says what each scheduler takes; the docstring of its module draws the loops.

Sub-packages and files; upper ones import lower ones
    segmentation/         splits a fusion into segments, and chooses the scheduler of each
    schedulers/           each scheduler: what it accepts, proposes and records
    cost/                 what a choice of threads, blocks and residency costs, and the cheapest choice
    transforms/           scheduling primitives and rewrites that several schedulers share
    analysis/             what the structure of a segment and the memory of its arguments imply
    tuning_candidates.py  parameters near the proposed ones, for tuning; print_params.py: parameters as text
    scheduler.py          what a scheduler is asked and answers; params.py: parameters; reasons.py: why these

Stages
    A stage of a reduction segment is a data pass: a loop nest over the full-size data between reductions that depend on each
    other. A chained reduction reduces the results of others over other dims; it is no stage. Full-size values that two stages
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
