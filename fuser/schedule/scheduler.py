"""The protocol of schedulers: their methods, arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Protocol

from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor, planned_layout
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.integers import Int
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.params import Params, ParamsClass


@record
class Accepted:
    """A scheduler accepts the structure of a segment."""


@record
class Refused:
    """A scheduler refuses a segment or its sizes; the reason is a sentence for users."""

    reason: str


@record
class SegmentInputs:
    """Arguments of a segment: descriptors by tensor name, as kernels are planned for them (`planned_layout`), and the value of
    an extent expression for them, each of which is computed once. `answers`: what else was found out about them."""

    tensors: Mapping[str, TensorDescriptor]
    evaluate: Callable[[Int], int]
    answers: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", {name: planned_layout(t) for name, t in self.tensors.items()})
        values, evaluate = dict[Int, int](), self.evaluate

        def value(extent: Int) -> int:
            known = values.get(extent)
            if known is None:
                known = values[extent] = evaluate(extent)
            return known

        object.__setattr__(self, "evaluate", value)


class Scheduler(Protocol):
    """A strategy for a class of segments.

    accepts      whether the scheduler can schedule a segment; depends on its structure only
    propose      parameters for the sizes, strides and alignment of `inputs` on a device
    candidates   the parameters that tuning measures: the proposal, then others, the most promising first; empty if the sizes
                 are refused. A candidate other than the proposal may fail to lower or to fit on the device
    apply        the schedule that parameters determine
    params       the class of the parameters
    """

    type: SchedulerType
    params: ParamsClass

    def accepts(self, segment: Fusion) -> Accepted | Refused: ...

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused: ...

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]: ...

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder: ...
