"""Pointwise segments: one thread computes a few consecutive elements of the largest output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import ParallelType, SchedulerType
from fuser.ir.fusion import Fusion, Reduction, Tensor, Welford, tensor_outputs
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.params import Accepted, Params, ParamsClass, PointwiseParams, Refused, SegmentInputs
from fuser.schedule.reads import displaced_name, is_displaced
from fuser.schedule.reference import (
    ambiguous_dim,
    choose_vector,
    concrete_dims,
    dim_groups,
    dim_order,
    lacking_output,
    resolving_graph,
    uncovered,
    vector_limit,
)

BLOCK = 128


def reference_output(segment: Fusion) -> Tensor | None:
    """The computed output with most dims."""
    graph = resolving_graph(segment)
    computed = [t for t in segment.output_tensors if t not in segment.input_tensors]
    return max(computed, key=lambda t: (concrete_dims(graph, t), len(t.logical)), default=None)


class PointwiseScheduler:
    """Accepts segments without reductions whose largest output has every dim."""

    type = SchedulerType.pointwise
    params: ParamsClass = PointwiseParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        reduced = next((e for e in segment.tensor_exprs if isinstance(e, (Reduction, Welford))), None)
        if reduced is not None:
            return Refused(f"{reduced.input.name} is reduced")
        reference = reference_output(segment)
        if reference is None:
            return Refused("nothing is computed")
        missing = uncovered(resolving_graph(segment), reference, segment)
        if missing is not None:
            return Refused(f"{missing.name} has a dimension that the largest output, {reference.name}, does not have")
        graph = resolving_graph(segment)
        lacking = lacking_output(graph, segment, [g for g in dim_groups(graph, reference) if not g.is_broadcast])
        if lacking is not None:
            return Refused(f"the output {lacking.name} lacks a dimension of {reference.name}, the largest")
        if any(len(set(dim_groups(graph, t))) != len(t.logical) for t in segment.tensors):
            return Refused("a tensor has one dimension twice")
        ambiguous = ambiguous_dim(segment)
        if ambiguous is not None:
            return Refused(f"{ambiguous.name} is broadcast to two different dimensions")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        reference = reference_output(segment)
        assert reference is not None
        graph = resolving_graph(segment)
        order = dim_order(graph, segment, reference, inputs)
        if not order:
            return PointwiseParams((), 1, (), BLOCK)
        fastest = dim_groups(graph, reference)[order[-1]]
        limit = vector_limit(graph, segment, fastest)
        total = 1
        for d in reference.logical:
            total *= inputs.evaluate(d.extent)
        # Narrow accesses beat idle processors: keep a thread per element until every SM has a few blocks.
        while limit > 1 and total < limit * BLOCK * device.sm_count * 2:
            limit //= 2
        vector, vectorized = choose_vector(graph, segment, fastest, inputs, limit)
        return PointwiseParams(order, vector, vectorized, BLOCK)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, PointwiseParams)
        reference = reference_output(segment)
        assert reference is not None
        builder = ScheduleBuilder(segment)
        copies = cache_arguments(builder)
        name = reference.name
        # Dims of one element stay out of the merged loop: tensors without them could not share it.
        groups = dim_groups(resolving_graph(segment), reference)
        merged = [d for d in params.order if not groups[d].is_broadcast]
        rank = len(merged)
        if rank:
            order = [*merged, *(d for d in params.order if groups[d].is_broadcast)]
            builder.reorder(name, {dim: position for position, dim in enumerate(order)})
            for _ in range(rank - 1):
                builder.merge(name, 0, 1)
            if params.vector > 1:
                builder.split(name, 0, params.vector)
            builder.split(name, 0, params.block)
        builder.transform_like(name)
        if rank:
            builder.parallelize(name, 0, ParallelType.grid_x)
            builder.parallelize(name, 1, ParallelType.block_x)
            builder.parallelize_like(name)
        if params.vector > 1:
            vectorize(builder, copies, params.vectorized)
        builder.inline_most()
        return builder


def cache_arguments(builder: ScheduleBuilder) -> dict[str, str]:
    """Copies of the inputs, and outputs as copies of what computes them: argument -> name of the copy's result.

    A slice, pad or gather of an input is a copy as it stands, under the name of that read (fuser.schedule.reads).
    """
    copies: dict[str, str] = {}
    for t in builder.fusion.input_tensors:
        uses = [] if t.is_cpu else builder.uses(t.name)
        direct = [e for e in uses if not is_displaced(e, t)]
        copies |= {displaced_name(e, t): tensor_outputs(e)[0].name for e in uses if e not in direct}
        if direct:
            copies[t.name] = builder.cache_after(t.name, cached_uses=direct if len(direct) < len(uses) else ())
    reads = {made: read for read, made in copies.items()}
    for t in builder.fusion.output_tensors:
        if t.name not in builder.input_names:
            # What others read of an output stays in registers: whoever stores an element need not be the one that reads it.
            before = builder.cache_before(t.name, move_uses=bool(builder.uses(t.name)))
            if t.name in reads:
                copies[reads[t.name]] = before
            copies[t.name] = t.name
    return copies


def vectorize(builder: ScheduleBuilder, copies: Mapping[str, str], arguments: Iterable[str]) -> None:
    """Vectorize the innermost loop axis of the copies of some arguments (dims of one element may come after it)."""
    for argument in arguments:
        name = copies.get(argument)
        if name is not None:
            loop = builder.state(name).loop
            innermost = max(i for i, axis in enumerate(loop) if not axis.is_broadcast)
            builder.parallelize(name, innermost, ParallelType.vectorize)
