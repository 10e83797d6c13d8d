"""The iteration space of a segment, at the sizes at hand, whose dims are reduced, or scanned, or kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

from fuser.ir.fusion.fusion import Fusion, IterDomain, Tensor
from fuser.ir.fusion.iteration_graph import Group
from fuser.schedule.analysis.input_reads import input_reads
from fuser.schedule.analysis.reduced_dims import reduced_groups, reference_reduction
from fuser.schedule.analysis.reference import dim_groups, dim_order
from fuser.schedule.scheduler import SegmentInputs


class ReducedSpace:
    """The dims of a segment, as those of its reference.

    groups, reduced   of all dims of the reference, and of those that are reduced or scanned
    sizes             elements of each; `length`: of all reduced ones, `kept`: of all others
    order             dims of the reference, slowest first: if none is given, see `dim_order`
    """

    def __init__(
        self,
        segment: Fusion,
        inputs: SegmentInputs,
        reference: Tensor,
        reduced: frozenset[Group],
        order: tuple[int, ...] | None = None,
    ) -> None:
        self.segment, self.inputs, self.graph = segment, inputs, segment.resolved_dims
        self.reference, self.reduced, self._order = reference, reduced, order
        self.groups = dim_groups(self.graph, self.reference)
        self.sizes = {g: inputs.evaluate(g.extent) for g in self.groups}
        self.kept = math.prod(n for g, n in self.sizes.items() if g not in self.reduced)
        self.length = math.prod(n for g, n in self.sizes.items() if g in self.reduced)

    @cached_property
    def order(self) -> tuple[int, ...]:
        return self._order or dim_order(self.segment, self.reference, self.inputs)

    @cached_property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes of all inputs, and of all outputs, that have reduced dims."""

        def count(dims: Iterable[IterDomain | None]) -> int:
            own = self.graph.concrete_groups(dims)
            return 0 if self.reduced.isdisjoint(own) else math.prod(self.sizes.get(g, 1) for g in own)

        read = sum(
            count(r.loop_dims) * r.tensor.dtype.itemsize for r in input_reads(self.segment) if not r.tensor.is_cpu
        )
        made = [t for t in self.segment.output_tensors if t not in self.segment.input_tensors]
        return read, sum(count(t.visible) * t.dtype.itemsize for t in made)

    def is_reduced(self, dims: Iterable[IterDomain | None]) -> bool:
        """Whether any of some dims is reduced."""
        return not self.reduced.isdisjoint(self.graph.concrete_groups(dims))

    def has_reduced_and_kept_dims(self, dims: Iterable[IterDomain | None]) -> bool:
        """Whether some of them are reduced, and some are not."""
        own = self.graph.concrete_groups(dims)
        return not own.isdisjoint(self.reduced) and not own <= self.reduced


def reduced_space(segment: Fusion, inputs: SegmentInputs) -> ReducedSpace:
    """That of a segment that `accepts_reductions` takes, for some inputs, of which it is found once."""
    key = ReducedSpace, segment
    found: ReducedSpace | None = inputs.answers.get(key)
    if found is None:
        reference = reference_reduction(segment)
        reduced = reduced_groups(segment.resolved_dims, reference)
        found = inputs.answers[key] = ReducedSpace(segment, inputs, reference, reduced)
    return found
