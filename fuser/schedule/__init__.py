"""Schedule: segmentation, and the schedulers, each of which turns a segment into a scheduled fusion.

A scheduler is a file and a line in registry.py. The first one in that order that accepts a segment schedules it.

    accepts(segment)                      looks at structure only; `Accepted`, or `Refused` with a reason in plain words
    propose(segment, inputs, device)      looks at sizes and strides too; `Params`, or `Refused`
    candidates(segment, inputs, device)   what tuning measures: the proposal, then its neighbours (tuning_candidates.py)
    apply(segment, params)                records the verbs in a `ScheduleBuilder` (ir/schedule/schedule.py)

`Params` are frozen records of all decisions that change the text of a kernel (params.py); the facts that a schedule
asks for are the rest of what a kernel knows of its arguments (ir/facts.py). Planning stages see a device as
`DeviceInfo`, its limits as plain data, so that any GPU can be compiled for on any machine. The table of
docs/ARCHITECTURE.md says what each scheduler takes; the docstring of its module draws the loops.

Sub-packages and files; upper ones import lower ones
    segmentation.py       splits a fusion into segments; view_segments.py: views; partition_fusion.py,
                          greedy_segments.py: the rest, in order; recompute_boundaries.py: what is stored between them
    segment.py            a segment, and the scheduler that accepts it
    registry.py           the schedulers, in the order in which they are asked
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

Segmentation (segmentation.py)
    1.  The whole fusion, if some scheduler accepts it. Views of inputs, and reshapes that only outputs need, are segments of
        their own.
    2.  Groups of outputs that share nothing but cheap values, such as the gradients of rows and of columns
        (analysis/independent_outputs.py). Their kernels do not depend on each other and run co-resident, in pairs:
        see `starts_next` and `beside` of ir/kernel/launch_plan.py.
    3.  Reductions over less than the largest iteration space first, such as a count of the labels that a gradient is
        divided by, if one scheduler accepts all the rest.
    4.  Levels (partition_fusion.py): outputs that share no stored value are split apart; the rest is split below the
        highest level that schedulers accept. Values that take fewer bytes to recompute than to store and read again
        are recomputed in each kernel that needs them: casts, masks made of positions, slices.
    5.  What cannot be split so, and everything if that gives fewer kernels: exprs in depth-first order from the outputs, in
        runs as long as some scheduler accepts the run (greedy_segments.py).
    6.  However it was split: what its readers compute with no more bytes than it takes to store it and to read it again is not
        stored (recompute_boundaries.py).

    An expr that no scheduler accepts is a kernel of its own, one thread per element, with a warning
    (schedulers/expr_eval.py): no valid program is refused. compiler/segment_failures.py says when a fusion is
    split again. `fd.explain` shows every refusal in segments.py, and what was chosen and why in params.py.

Library calls
    An op that a library computes (ir/fusion/library_ops.py) is a segment without a kernel. The exprs between calls are
    divided into regions: exprs of the same depth, the longest chain of calls before them, are one region, split as a
    fusion by itself (ir/fusion/library_regions.py). So three products of one tensor have one region before and one after them.
    Values that only a later region reads are computed there; views that only calls read are aliases. Values between a region
    and a call are row-major; if no strides make a reshape of one a view, a kernel copies it (ir/fusion/concretize.py).
    docs/decisions/0017-library-calls.md has the reasons.
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
