"""What a scheduler is: its methods, their arguments and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import chain
from typing import Any

from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor, planned_layout
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.integers import Int
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.params import Params, ParamsClass
from fuser.schedule.print_params import difference
from fuser.schedule.tuning_candidates import neighbours


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


class Scheduler(ABC):
    """A strategy for a class of segments.

    type     its name
    params   the class of its parameters
    """

    type: SchedulerType
    params: ParamsClass

    @abstractmethod
    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """Whether the scheduler can schedule a segment; depends on its structure only."""

    @abstractmethod
    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """Parameters for the sizes, strides and alignment of `inputs` on a device."""

    @abstractmethod
    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """The schedule that parameters determine."""

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        """Further parameters, the most promising first, which may fail to lower or to fit on the device; if nothing else is
        said, neighbours of what is proposed."""
        return iter(()) if isinstance(proposed, Refused) else neighbours(proposed, device)

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterator[Params]:
        """What tuning measures: the proposal, then others, each once, with what distinguishes it from the first."""
        proposed = self.propose(segment, inputs, device)
        seen: dict[Params, None] = {}
        for params in chain((proposed,), self.others(proposed, segment, inputs, device)):
            if isinstance(params, Refused) or params in seen:
                continue
            first = next(iter(seen), None)
            seen[params] = None
            yield (
                params
                if first is None
                else replace(params, reasons=(f"unlike the proposal: {difference(first, params)}",))
            )
