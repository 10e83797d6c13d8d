"""Reduction segments, normalisations included: a block takes some rows (or columns) and passes over them once per stage.

A *stage* is a pass over the full-size data: it ends in reductions whose inputs depend on the same number of earlier
reductions, or in full-size outputs. Values that two stages need are recomputed in each, so that only reduction results pass
between stages and a row of any length fits. Loops, with K the kept dims and R the reduced ones:

    inner (the fastest dim is reduced):  K/ty -> grid_x, ty -> block_y, R/v/tx -> serial, tx -> block_x, v -> vector
    outer (the fastest dim is kept):     K/v/tx -> grid_x, tx -> block_x, v -> vector, R/ty -> serial, ty -> block_y

With `grid_reduce` blocks of grid_y per reduction, R is cut into that many parts first and the last block joins them.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import ParallelType, SchedulerType
from fuser.ir.fusion import (
    ExtentOp,
    Fusion,
    Reduction,
    ScalarOp,
    Tensor,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.params import Accepted, Params, ParamsClass, ReductionParams, Refused, SegmentInputs
from fuser.schedule.pointwise import cache_arguments, vectorize
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


def reductions_of(segment: Fusion) -> list[Reduction | Welford]:
    """Reductions in order."""
    return [e for e in segment.tensor_exprs if isinstance(e, (Reduction, Welford))]


def reference_reduction(segment: Fusion, graph: IterationGraph) -> Tensor:
    """The first result of the reduction with most dims of more than one element."""
    return max((tensor_outputs(e)[0] for e in reductions_of(segment)), key=lambda t: concrete_dims(graph, t))


def reduced_groups(graph: IterationGraph, tensor: Tensor) -> frozenset[Group]:
    """Groups of the reduced dims of a reduction result."""
    return frozenset(graph.group(d) for d in tensor.logical if d.is_reduction)


class ReductionScheduler:
    """Accepts segments whose reductions run over the same dims of one iteration space."""

    type = SchedulerType.reduction
    params: ParamsClass = ReductionParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        reductions = reductions_of(segment)
        if not reductions:
            return Refused("nothing is reduced")
        graph = resolving_graph(segment)
        reference = reference_reduction(segment, graph)
        reduced = reduced_groups(graph, reference)
        for e in reductions:
            result = tensor_outputs(e)[0]
            if reduced_groups(graph, result) != reduced:
                return Refused(f"{reference.name} and {result.name} are reduced over different dimensions")
        missing = uncovered(graph, reference, segment)
        if missing is not None:
            return Refused(f"{missing.name} has a dimension that {reference.name} does not have")
        kept = [g for g in dim_groups(graph, reference) if g not in reduced and not g.is_broadcast]
        lacking = lacking_output(graph, segment, kept) or _partial_output(graph, segment, reduced)
        if lacking is not None:
            return Refused(f"the output {lacking.name} lacks a dimension of {reference.name}")
        if any(len(set(dim_groups(graph, t))) != len(t.logical) for t in segment.tensors):
            return Refused("a tensor has one dimension twice")
        ambiguous = ambiguous_dim(segment)
        if ambiguous is not None:
            return Refused(f"{ambiguous.name} is broadcast to two different dimensions")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        graph = resolving_graph(segment)
        reference = reference_reduction(segment, graph)
        order = dim_order(graph, segment, reference, inputs)
        groups = dim_groups(graph, reference)
        reduced = reduced_groups(graph, reference)
        extent = {g: inputs.evaluate(g.extent) for g in groups}
        count_reduced = math.prod(extent[g] for g in groups if g in reduced)
        count_kept = math.prod(extent[g] for g in groups if g not in reduced)
        inner = groups[order[-1]] in reduced
        fastest = groups[order[-1]]
        # Each kept element of a thread is an accumulator of every reduction: four are plenty.
        limit = vector_limit(graph, segment, fastest)
        vector, vectorized = choose_vector(graph, segment, fastest, inputs, limit if inner else min(4, limit))
        stages = len(set(stage_levels(segment).values()))
        threads = 256
        if inner:
            along = _power_of_two(-(-count_reduced // vector), 32, threads)
            across = max(1, min(threads // along, 8)) if count_kept > device.sm_count * 4 else 1
        else:
            across = 32
            along = _power_of_two(count_reduced, 1, threads // across)
        blocks = -(-count_kept // (across * (1 if inner else vector)))
        grid = 1
        if stages == 1 and not _full_size_outputs(segment, graph, reduced) and blocks < device.sm_count:
            work = count_reduced // max(1, along * (vector if inner else 1) * 4)
            grid = max(1, min(work, device.sm_count * 2 // max(blocks, 1), 1024))
            grid = 1 << (grid.bit_length() - 1)
        return ReductionParams(order, inner, along, across, vector, vectorized, grid)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, ReductionParams)
        graph = resolving_graph(segment)
        name = reference_reduction(segment, graph).name
        builder = ScheduleBuilder(segment)
        separate_results(builder)
        copies = cache_arguments(builder)
        # An output that is itself the reference becomes a copy; the reduction goes on under the copy's source.
        definition = builder.definition(name)
        if definition is not None and not isinstance(definition, (Reduction, Welford)):
            name = tensor_inputs(definition)[0].name
        stages = split_stages(builder)
        self._transform(builder, name, params)
        for argument in params.vectorized:
            made = copies.get(argument)
            if made is not None:
                vectorize(builder, {argument: made}, [argument])
                for clone in stages.get(made, ()):
                    vectorize(builder, {argument: clone}, [argument])
        builder.inline_most()
        return builder

    def _transform(self, builder: ScheduleBuilder, name: str, params: ReductionParams) -> None:
        loop = builder.state(name).loop
        # Dims of one element stay out of the merged loops: tensors without them could not share those.
        graph = builder.graph()
        trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
        kept = [d for d in params.order if d not in trivial and not loop[d].is_reduction]
        reduced = [d for d in params.order if loop[d].is_reduction]
        builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *trivial])})
        for _ in range(len(kept) - 1):
            builder.merge(name, 0, 1)
        if not kept:
            at = 0
        else:
            at = 1
        for _ in range(len(reduced) - 1):
            builder.merge(name, at, at + 1)
        types: list[tuple[int, ParallelType]] = []
        if params.inner:
            if kept and params.block_iterate > 1:
                builder.split(name, 0, params.block_iterate)
                types.append((1, ParallelType.block_y))
                at = 2
            if kept:
                types.append((0, ParallelType.grid_x))
            # The vector is cut off first: every part of the grid then starts at a multiple of it.
            if params.vector > 1:
                builder.split(name, at, params.vector)
            if params.grid_reduce > 1:
                builder.split(name, at, params.grid_reduce, False)
                types.append((at, ParallelType.grid_y))
                at += 1
            builder.split(name, at, params.block_reduce)
            types.append((at + 1, ParallelType.block_x))
        else:
            # K/v/tx, tx, [grid part,] R/ty, ty, v
            if params.vector > 1:
                builder.split(name, 0, params.vector)
            builder.split(name, 0, params.block_iterate)
            types += [(0, ParallelType.grid_x), (1, ParallelType.block_x)]
            at = 2
            if params.vector > 1:
                builder.reorder(name, {2: 3})  # the vector axis goes inside the reduction
            if params.grid_reduce > 1:
                builder.split(name, at, params.grid_reduce, False)
                types.append((at, ParallelType.grid_y))
                at += 1
            if params.block_reduce > 1:
                builder.split(name, at, params.block_reduce)
                types.append((at + 1, ParallelType.block_y))
        builder.transform_like(name)
        for position, parallel_type in types:
            builder.parallelize(name, position, parallel_type)
        builder.parallelize_like(name)


def stage_levels(segment: Fusion) -> dict[str, int]:
    """Stage of each reduction and output: how many reductions must come before it, one after another."""
    return _levels(ScheduleBuilder(segment))


def _levels(builder: ScheduleBuilder) -> dict[str, int]:
    """Stages of the sinks: reduction results and full-size outputs."""
    depth: dict[str, int] = {}
    result: dict[str, int] = {}
    for expr in builder.exprs:
        below = max((depth.get(t.name, 0) for t in tensor_inputs(expr)), default=0)
        is_reduction = isinstance(expr, (Reduction, Welford))
        for t in tensor_outputs(expr):
            depth[t.name] = below + is_reduction
            if is_reduction:
                result[t.name] = below
    reductions = [e for e in builder.exprs if isinstance(e, (Reduction, Welford))]
    graph = builder.graph()
    reduced = frozenset(graph.group(d) for e in reductions for d in tensor_outputs(e)[0].logical if d.is_reduction)
    for name in builder.output_names - builder.input_names:
        t = builder.state(name).tensor
        if any(graph.group(d) in reduced for d in t.visible):
            result[name] = depth.get(name, 0)
    return result


def _partial_output(graph: IterationGraph, segment: Fusion, reduced: frozenset[Group]) -> Tensor | None:
    """An output with some of the reduced dims, or one with a broadcast dim of an input in place of a reduced dim, or None."""
    for t in segment.output_tensors:
        own = {graph.group(d) for d in t.visible if not d.is_broadcast} & reduced
        if t in segment.input_tensors or (own and all(g in own or g.is_broadcast for g in reduced)):
            continue
        pending = [t]
        while pending:
            value = pending.pop()
            if own or (value in segment.input_tensors and _resolved(graph, value, reduced)):
                return t
            expr = segment.definitions.get(value)
            if expr is None or isinstance(expr, (ScalarOp, ExtentOp, Reduction, Welford)):
                continue
            if _resolved(graph, value, reduced):
                pending += tensor_inputs(expr)
    return None


def _resolved(graph: IterationGraph, tensor: Tensor, reduced: frozenset[Group]) -> bool:
    """Whether a tensor has a broadcast dim that meets a reduced dim somewhere."""
    return any(d.is_broadcast and graph.group(d) in reduced for d in tensor.visible)


def separate_results(builder: ScheduleBuilder) -> None:
    """Recompute row results, such as a mean of shape [rows, 1], where full-size values read them.

    Such an output would else take part in the loop over the row, because its broadcast dim is the dim it is broadcast to.
    """
    graph = builder.graph()
    reductions = [e for e in builder.exprs if isinstance(e, (Reduction, Welford))]
    reduced = frozenset(graph.group(d) for e in reductions for d in tensor_outputs(e)[0].logical if d.is_reduction)
    resolved = {t.name for t in builder.tensors if _resolved(graph, t, reduced)}
    for name in builder.output_names - builder.input_names:
        if name not in resolved:
            continue
        uses = [tensor_outputs(e)[0].name for e in builder.uses(name)]
        if uses:
            builder.recompute(name, uses)
        pending = [name]
        while pending:
            consumer = pending.pop()
            definition = builder.definition(consumer)
            assert definition is not None
            for producer in {t.name for t in tensor_inputs(definition)}:
                if producer in resolved:
                    pending.append(builder.recompute(producer, [consumer]))


def split_stages(builder: ScheduleBuilder) -> dict[str, list[str]]:
    """Recompute every full-size value that several stages need, once per further stage; tensor -> its second computations."""
    level = _levels(builder)
    graph = builder.graph()
    reductions = [e for e in builder.exprs if isinstance(e, (Reduction, Welford))]
    reduced = frozenset(graph.group(d) for e in reductions for d in tensor_outputs(e)[0].logical if d.is_reduction)
    full = {t.name for t in builder.tensors if any(graph.group(d) in reduced for d in t.visible)}
    stage: dict[str, int] = dict(level)
    made: dict[str, list[str]] = {}
    order = [t.name for e in builder.exprs for t in tensor_outputs(e)]
    for name in reversed(order):
        if name not in full or name in level or name in builder.input_names:
            continue
        by_stage: dict[int, list[str]] = {}
        for use in builder.uses(name):
            target = tensor_outputs(use)[0].name
            by_stage.setdefault(stage.get(target, 0), []).append(target)
        if not by_stage:
            continue
        first, *others = sorted(by_stage)
        stage[name] = first
        for s in others:
            clone = builder.recompute(name, by_stage[s])
            stage[clone] = s
            made.setdefault(name, []).append(clone)
    return made


def _full_size_outputs(segment: Fusion, graph: IterationGraph, reduced: frozenset[Group]) -> bool:
    return any(graph.group(d) in reduced for t in segment.output_tensors for d in t.visible)


def _power_of_two(value: int, low: int, high: int) -> int:
    """The power of two nearest above `value`, within [low, high]."""
    n = 1
    while n < value:
        n *= 2
    return max(low, min(n, high))
