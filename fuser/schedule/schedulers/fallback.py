"""The scheduler of last resort: one expr as a kernel, one thread for each element of its result.

It has no requirements on layout, sizes or alignment, and uses no caches, vectors, barriers or collectives. A thread that
reduces or scans processes all elements serially. Any expr can be computed in this way, so that no valid program is refused.
It is slow, and is tried only after all other schedulers have refused or failed.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, LibraryOp, Reshape, Scan, tensor_outputs
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import ExprEvalParams, Params, ParamsClass
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.transforms.loops import merge_axes

BLOCK = 128
"""Threads of a block: some for each of an SM's four schedulers. Nothing depends on it."""


class FallbackScheduler(Scheduler):
    """Accepts a single expr."""

    type = SchedulerType.expr_eval
    params: ParamsClass = ExprEvalParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        if len(segment.tensor_exprs) != 1:
            return Refused(f"it takes one expr, and here are {len(segment.tensor_exprs)}")
        if isinstance(segment.tensor_exprs[0], Reshape):
            return Refused("a reshape is a view")
        if isinstance(segment.tensor_exprs[0], LibraryOp):
            return Refused("a library computes it")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        return ExprEvalParams()

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        (expr,) = segment.tensor_exprs
        builder = ScheduleBuilder(segment)
        # Several results of one expr have the same dims and share its loops.
        name = tensor_outputs(expr)[0].name
        loop = builder.state(name).loop
        serial = {d for d, axis in enumerate(loop) if axis.is_reduction or axis.is_broadcast}
        if isinstance(expr, Scan):
            serial.add(expr.dim)
        kept = [d for d in range(len(loop)) if d not in serial]
        builder.reorder(name, {d: p for p, d in enumerate([*kept, *sorted(serial)])})
        merge_axes(builder, name, 0, len(kept))
        if kept:
            builder.split(name, 0, BLOCK)
            builder.parallelize(name, 0, ParallelType.grid_x)
            builder.parallelize(name, 1, ParallelType.block_x)
        return builder
