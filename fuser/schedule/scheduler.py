"""What a scheduler is asked, and answers."""

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
    """The structure of a segment suits a scheduler."""


@record
class Refused:
    """It does not, for a reason in plain words."""

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
    """One way to make a kernel. `accepts` looks at structure only, `propose` also at sizes, `apply` builds the schedule.

    `candidates` are what tuning measures: the proposal, then others, the likeliest first; none where the sizes are refused.
    Those behind the proposal need not be lowered, nor fit.

    params    the class of what `propose` answers
    """

    type: SchedulerType
    params: ParamsClass

    def accepts(self, segment: Fusion) -> Accepted | Refused: ...

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused: ...

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]: ...

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder: ...
