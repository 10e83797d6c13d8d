"""Pointwise segments: one thread computes a few consecutive elements of the largest output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Reducing, Scan, Tensor, memory_order
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.ops.enums import ParallelType, SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.inner_tile import SizedSegment, find_inner_tile, inner_tile_last, reduced_inner_tile
from fuser.schedule.analysis.input_reads import ACCESS_BYTES
from fuser.schedule.analysis.reference import (
    concrete_dims,
    dim_groups,
    dim_order,
    output_missing_dim,
    refusal_of_space,
)
from fuser.schedule.analysis.windows import require_slices_in_bounds
from fuser.schedule.cost.pointwise_heuristic import PointwiseHeuristic
from fuser.schedule.cost.pointwise_mappings import COPY_BLOCK
from fuser.schedule.params import Aligned, Params, ParamsClass, Peeled, PointwiseParams
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.transforms.loops import require_extents, set_loop_types, unswitch
from fuser.schedule.transforms.pointwise_loops import build_pointwise_loops, is_invariant_in_loop
from fuser.schedule.transforms.vectorize import cache_arguments, vectorize_by, vectorize_tile
from fuser.schedule.tuning_candidates import neighbours


def reference_output(segment: Fusion) -> Tensor | None:
    """The computed output with most dims."""
    graph = segment.resolved_dims
    computed = [t for t in segment.output_tensors if t not in segment.input_tensors]
    return max(computed, key=lambda t: (concrete_dims(graph, t), len(t.logical)), default=None)


class PointwiseScheduler(Scheduler):
    """Accepts segments without reductions and scans whose largest output has every dim, and whose outputs all have its dims,
    or all but the one along which it has a few computed values side by side."""

    type = SchedulerType.pointwise
    params: ParamsClass = PointwiseParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        reduced = next((e for e in segment.tensor_exprs if isinstance(e, Reducing)), None)
        if reduced is not None:
            return Refused(f"{reduced.input.name} is reduced")
        scanned = next((e for e in segment.tensor_exprs if isinstance(e, Scan)), None)
        if scanned is not None:
            return Refused(f"{scanned.input.name} is scanned")
        reference = reference_output(segment)
        if reference is None:
            return Refused("nothing is computed")
        graph = segment.resolved_dims
        values = _dim_of_values(segment)
        groups = dim_groups(graph, reference)
        spread = [g for g in groups if not g.is_broadcast and g is not values]
        return refusal_of_space(segment, reference, spread, groups, resolved=True) or Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> PointwiseParams:
        groups, order, plain = plan_of(segment, inputs, device)
        if plain is None:
            return PointwiseParams(order, (), 1, (), (COPY_BLOCK, 1), reasons=("one element",))
        tiled = None if plain.is_empty else _params_with_inner_tile(plain, groups, order)
        if tiled is None and not plain.is_empty and _needs_values(plain):
            tiled = _params_with_values(plain, order)
        return plain.params(order) if tiled is None else tiled

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        groups, order, plain = plan_of(segment, inputs, device)
        if plain is None:
            return
        assert isinstance(proposed, PointwiseParams)
        if not proposed.tile_dims and not proposed.whole_inputs:
            yield from plain.ranked_params(order)
        else:
            # How wide the accesses of a longer or shorter tile may be does not follow from those of this one.
            for vector in (proposed.vector // 2, proposed.vector * 2):
                tiled = _params_with_inner_tile(plain, groups, order, vector) if vector else None
                if tiled is not None:
                    yield tiled
        for found in neighbours(proposed, device):
            assert isinstance(found, PointwiseParams)
            if all(inputs.tensors[name].sizes[dim] % divisor == 0 for name, dim, divisor in found.extent_multiples):
                yield found

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, PointwiseParams)
        reference = reference_output(segment)
        assert reference is not None
        builder = ScheduleBuilder(segment)
        require_extents(builder, params.extent_ranges, params.extent_multiples)
        copies = cache_arguments(builder, params.whole_inputs)
        name = reference.name
        types: list[ParallelType] = []
        if params.merged_dims:
            # Dims of one element stay out of the merged loops: tensors without them could not share those.
            groups = dim_groups(segment.resolved_dims, reference)
            solid = [d for d in params.order if not groups[d].is_broadcast]
            order = [*solid, *(d for d in params.order if groups[d].is_broadcast)]
            builder.reorder(name, {dim: position for position, dim in enumerate(order)})
            types = build_pointwise_loops(builder, name, params)
        builder.transform_like(name)
        if types:
            set_loop_types(builder, name, enumerate(types))
        if not isinstance(params.access, Aligned):
            # Only the vectors at the ends of a row test their elements.
            unswitch(builder, name, builder.innermost(name))
        elif params.unroll > 1 and params.vector == 1 and not params.sequential:
            # A test for each element would be a branch, behind which loads wait for one another.
            unswitch(builder, name, len(types))
        if params.tile_dims or params.whole_inputs:
            first = builder.innermost(name) + 1 - (params.vector > 1) - (params.tile_dims > 0)
            vectorize_tile(builder, copies, params, first)
        else:
            vectorize_by(builder, copies, dict(params.vector_widths), params.access)
        require_slices_in_bounds(builder)
        # What is read stays outside the loops of a thread's elements: all of its loads are issued before the first use.
        loads = [made for read, made in copies.items() if read not in builder.output_names]
        if params.sequential:
            row = len(types)
            same = {t.name for t in builder.tensors if is_invariant_in_loop(builder, t.name, row)}
            limits = [(n, row) for n in same.difference(loads)]
            limits += [(n, builder.common_loops(n, name, row + (n not in same))) for n in loads]
        else:
            # What all iterations of a thread have in common is computed once.
            once = set(_single_elements(builder))
            if params.unroll > 1 and len(params.merged_dims) > 1 and not isinstance(params.access, Peeled):
                once |= {
                    t.name for t in builder.tensors if is_invariant_in_loop(builder, t.name, len(types))
                }.difference(loads)
            limits = [(n, builder.common_loops(n, name, len(types))) for n in loads if n not in once]
            limits += [(n, len(types)) for n in once]
        builder.inline_most(limits=limits)
        return builder


def plan_of(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
) -> tuple[Sequence[Group], tuple[int, ...], PointwiseHeuristic | None]:
    """Dims of the reference, their order, and the choice without inner tiles; None where there is one element."""
    reference = reference_output(segment)
    assert reference is not None
    groups = dim_groups(segment.resolved_dims, reference)
    order = dim_order(segment, reference, inputs)
    dims = {groups[d]: d for d in order if not groups[d].is_broadcast}
    return groups, order, PointwiseHeuristic(segment, inputs, dims, device) if dims else None


def _dim_of_values(segment: Fusion) -> Group | None:
    """The fastest dim of the largest output, where the definition says that it has a few elements, as many as an access has at
    most: values that are stored side by side. None where it does not, or the output has no other dim.

    A thread that has all of them stores once what has no such dim. Of more, or longer ones, it would store each apart.
    """
    graph, reference = segment.resolved_dims, reference_output(segment)
    if reference is None or concrete_dims(graph, reference) < 2:
        return None
    last = reference.visible[memory_order(reference.stride_order)[-1]]
    is_few = last.extent.is_const and 1 < last.extent.value <= ACCESS_BYTES // reference.dtype.itemsize
    return graph.group(last) if is_few and not last.is_broadcast else None


def _needs_values(plain: PointwiseHeuristic) -> bool:
    """Whether an output lacks the dim of values, which a thread has to have whole."""
    return output_missing_dim(plain.segment, list(plain.dims)) is not None


def _params_with_values(plain: PointwiseHeuristic, order: tuple[int, ...]) -> PointwiseParams | None:
    """The choice where a thread takes all values of the largest output, for sizes at which there is no other reason to."""
    segment, inputs = plain.segment, plain.described
    values = _dim_of_values(segment)
    assert values is not None
    cells = reduced_inner_tile(SizedSegment(segment, inputs), plain.arguments, [values])
    if cells is None:
        return None
    around = {g: d for g, d in plain.dims.items() if g is not values}
    choice = PointwiseHeuristic(segment, inputs, around, plain.device, cells)
    last = plain.dims[values]
    return choice.params_with_inner_tile((*(d for d in order if d != last), last))


def _params_with_inner_tile(
    plain: PointwiseHeuristic, groups: Sequence[Group], order: tuple[int, ...], vector: int = 0
) -> PointwiseParams | None:
    """The choice where a thread takes inner tiles, `vector` of them if that is given; None where there are none, where
    that would leave SMs idle or gains nothing, or where rows are better peeled.

    Where an output has one value beside several of the largest, all of these are in the tile, whatever that gains."""
    segment, inputs, device = plain.segment, plain.described, plain.device
    unmoved, unmoved_order = plain, order
    merged = inner_tile_last(plain.order, plain.sizes, plain.arguments)
    if merged != plain.order:
        order = (*(d for d in order if groups[d] not in merged), *map(groups.index, merged))
        plain = PointwiseHeuristic(segment, inputs, {g: groups.index(g) for g in merged}, device)
    cells = find_inner_tile(SizedSegment(segment, inputs), plain.arguments, plain.parts)
    if cells is None:
        return None
    choice = PointwiseHeuristic(segment, inputs, plain.dims, device, cells)
    is_needed = _needs_values(plain)
    if is_needed and _dim_of_values(segment) not in cells.inner:
        return None
    if not choice.has_threads() and not is_needed:
        return None
    found = choice.params_with_inner_tile(order, vector)
    if found is None:
        return None
    if found.vector > 1 or is_needed:
        return found
    # Without vectors neighbouring threads still store neighbours, where in rows without a divisor they else would not.
    stored, apart = choice.store_sector_bytes(found), unmoved.store_sector_bytes(unmoved.params(unmoved_order))
    if stored < apart:
        return found
    # Inner tiles that are one access each leave a block the dims around them: it covers two, and rows of any length.
    if stored == apart and plain.parts[-1] == list(cells.inner) and len(choice.parts) > 1:
        return found
    # There are elements that are read once, and tests that are none.
    gains = bool(cells.whole_inputs) or not choice.tested.isdisjoint(cells.inner)
    return found if gains and not plain.misaligned_accesses else None


def _single_elements(builder: ScheduleBuilder) -> list[str]:
    """What has one element and is no output: a thread computes it once, outside of the loops over its own elements."""
    graph = builder.exact_graph()
    return [
        t.name
        for t in builder.tensors
        if t.name not in builder.input_names
        and t.name not in builder.output_names
        and all(graph.group(a).is_broadcast for a in builder.state(t.name).loop)
    ]
