"""Schedule: segmentation, and the schedulers, each of which turns a segment into a scheduled fusion.

A scheduler is a file and a line in registry.py. The first in that order that accepts a segment takes it.

    accepts(segment)                      looks at structure only; `Accepted`, or `Refused` with a reason in plain words
    propose(segment, inputs, device)      looks at sizes and strides too; `Params`, or `Refused`
    candidates(segment, inputs, device)   what tuning measures: the proposal, then its neighbours (neighbours.py)
    apply(segment, params)                records the verbs in a `ScheduleBuilder` (ir/schedule.py)

`Params` are frozen records of all decisions that change the text of a kernel (params.py); the facts that a schedule
asks for are the rest of what a kernel knows of its arguments (ir/facts.py). Planning stages see a device as
`DeviceInfo`, its limits as plain data, so that any GPU can be compiled for on any machine. The table of
docs/ARCHITECTURE.md says what each scheduler takes; the docstring of its module draws the loops.

Sub-packages and files, the upper ones import the lower
    segmentation.py the fusion cut into segments; view_segments.py, cuts.py, runs.py: views, parts, what is left, in order
    segment.py      a segment, and who takes it
    registry.py     the schedulers, in the order in which they are asked
    schedulers/     each scheduler: what it accepts, proposes and records
    cost/           what a choice of threads, blocks and residency costs, and the choice of least time
    transforms/     verbs that several schedulers share
    analysis/       what the structure of a segment and the memory of its arguments say
    scheduler.py    what a scheduler is asked and answers; params.py: parameters
    neighbours.py   parameters near those that are proposed, for tuning; print_params.py: parameters as text

Stages
    A stage of a reduction segment is a pass over the full-size data between reductions that depend on each other. A
    reduction that is chained to others reduces, over the other dims, what those have become, and is no stage. Full-size
    values that two stages need are kept on chip by the persistent schedulers, and computed again by `reduction`
    (docs/decisions/0003-recompute-before-persistence.md).

Segmentation (segmentation.py)
    1.  The whole fusion, if some scheduler accepts it. Views of inputs, and reshapes that only outputs are made of, are
        segments of their own.
    2.  Groups of outputs that share nothing but cheap values, such as the gradients of rows and of columns
        (analysis/independent_outputs.py). Their kernels need nothing of each other and run co-resident, two by two:
        see `starts_next` and `beside` of ir/launch_plan.py.
    3.  Reductions over less than the largest iteration space first, such as a count of the labels that a gradient is
        divided by, if one scheduler takes all the rest.
    4.  Cuts (cuts.py): outputs that share nothing that has to be stored are cut each by itself; what is left, below the
        highest level that schedulers accept. What takes fewer bytes to compute again than to store and to read is
        computed in each kernel that needs it, such as a cast, a mask made of positions, a slice.
    5.  What cannot be cut so, and all where that makes fewer kernels: exprs, depth first from the outputs, in runs as
        long as some scheduler accepts the run (runs.py).

    An expr that no scheduler takes is a kernel of its own, one thread for each element, with a warning
    (schedulers/expr_eval.py): no valid program is refused. compiler/segment_failures.py says when a fusion is
    cut again. `fd.explain` shows every refusal in segments.py, and what was chosen and why in params.py.

Library calls
    What a library computes (ir/library_ops.py) is a segment without a kernel. What lies between calls is taken in
    parts: exprs with as many calls one behind the other below them are one part, cut as a fusion by itself
    (ir/library_regions.py). So three products of one tensor have one part before and one behind them. What only a later
    part reads is computed there; views that only calls read are aliases. Values between a part and a call are row
    major; where no strides make a reshape of one a view, a kernel copies it (ir/concretize.py).
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
