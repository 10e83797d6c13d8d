"""Segments without work: every output is an input, or a view of one."""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Tensor
from fuser.ir.fusion.views import view_chain
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import NoOpParams, Params, ParamsClass
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs


def view_source(fusion: Fusion, tensor: Tensor) -> Tensor | None:
    """The input that a tensor is a view of (itself, for an input), or None if it must be computed."""
    found = view_chain(fusion, tensor, fusion.input_tensors.__contains__)
    return None if found is None or found[0].is_cpu else found[0]


class NoOpScheduler(Scheduler):
    """Accepts fusions that launch nothing."""

    type = SchedulerType.no_op
    params: ParamsClass = NoOpParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        for output in segment.outputs:
            if output.alias_of is not None:
                return Refused(f"{output.tensor.name} is written into the input {output.alias_of.name}")
            if view_source(segment, output.tensor) is None:
                return Refused(f"{output.tensor.name} is not a view of an input")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        return NoOpParams()

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        return ScheduleBuilder(segment)
