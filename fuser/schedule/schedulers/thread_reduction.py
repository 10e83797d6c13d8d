"""Reductions of few elements that are not adjacent in memory, or are read many times: each thread reduces all elements of
its results.

If the threads of a block shared such a reduction, they would exchange partial results every few elements, and would read
only some elements of each contiguous range. Here a thread computes several results, adjacent along the fastest kept dims,
and loads all elements that they are reduced from: the inner tiles of `analysis/inner_tile.py`, in the loops of a pointwise
kernel. Nothing is exchanged, all loads are issued before the first use, and values that several data passes need stay in
registers.

    t1[i, j] = sum of t0[i, 2, j, 2]      4 indices of j per thread: two vectors of 8 of t0, one of 4 of t1
    t1[j] = sum of t0[8, j]               4 indices of j per thread: eight vectors of 4 of t0, one of 4 of t1

If each input lacks a kept dim, as in pairwise distances, a thread also reads elements that are adjacent in memory: they come
from the cache, the results determine the traffic, and the loops are in the order of the results' memory.

    t2[i, j] = sum of t0[i, 3] * t1[j, 3]   4 indices of j per thread: three vectors of 4 of t1, one of 4 of t2

    K -> grid, threads (, u), v, R        K kept, u rows of a thread, v of its indices, R reduced: each dim a loop
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import (
    empty_schedule,
    recompute_cheap_values,
    sink_pass_count,
)
from fuser.schedule.analysis.inner_tile import INNER_TILE_BYTES, SizedSegment, reduced_inner_tile
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, input_reads
from fuser.schedule.analysis.layout import Argument, arguments_of
from fuser.schedule.analysis.reduced_dims import accepts_reductions
from fuser.schedule.analysis.reduced_space import reduced_space
from fuser.schedule.analysis.windows import require_slices_in_bounds
from fuser.schedule.cost.pointwise_heuristic import PointwiseHeuristic
from fuser.schedule.cost.pointwise_space import MIN_THREADS
from fuser.schedule.params import Params, ParamsClass, ThreadReductionParams
from fuser.schedule.reasons import Reasons
from fuser.schedule.scheduler import Accepted, Refused, Scheduler, SegmentInputs
from fuser.schedule.transforms.loops import (
    computed_source,
    reference_result,
    require_extents,
    set_loop_types,
    unswitch,
)
from fuser.schedule.transforms.pointwise_loops import build_pointwise_loops, is_invariant_in_loop
from fuser.schedule.transforms.vectorize import cache_arguments, vectorize_tile
from fuser.schedule.tuning_candidates import neighbours

MAX_LOADED_BYTES = 128
"""Most bytes of what a thread loads: half of the registers that it has where an SM holds a thousand threads."""


class ThreadReductionScheduler(Scheduler):
    """Accepts what the reduction scheduler does; proposes where a thread can hold all that its results are reduced from."""

    type = SchedulerType.thread_reduction
    params: ParamsClass = ThreadReductionParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        return accepts_reductions(segment)

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        return propose_by_thread(segment, inputs, device)

    def others(
        self, proposed: Params | Refused, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Iterator[Params | Refused]:
        if isinstance(proposed, ThreadReductionParams):
            vector = proposed.loops.vector
            for other in (vector // 2, vector * 2):
                if other:
                    yield propose_by_thread(segment, inputs, device, other)
            yield from neighbours(proposed, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        assert isinstance(params, ThreadReductionParams)
        loops = params.loops
        builder = ScheduleBuilder(segment)
        require_extents(builder, loops.extent_ranges, loops.extent_multiples)
        name = reference_result(builder)
        copies = cache_arguments(builder)
        name = computed_source(builder, name)
        recompute_cheap_values(builder)
        builder.reorder(name, {dim: position for position, dim in enumerate(loops.order)})
        types = build_pointwise_loops(builder, name, replace(loops, tile_dims=0))
        builder.transform_like(name)
        set_loop_types(builder, name, enumerate(types))
        if loops.unroll > 1:
            # A test for each row would be a branch, behind which loads wait for one another.
            unswitch(builder, name, len(types))
        first = len(types) + (loops.unroll > 1)
        vectorize_tile(builder, copies, loops, first)
        require_slices_in_bounds(builder)
        # What is read stays outside the loops of a thread's elements: all of its loads are issued before the first use.
        loads = [made for read, made in copies.items() if read not in builder.output_names]
        limits = [(n, builder.common_loops(n, name, len(types))) for n in loads]
        if loops.vector > 1:
            # So does what is the same for neighbours, such as the weights of a row: it is computed once for all of them.
            same = (
                t.name for t in builder.tensors if t.name not in loads and is_invariant_in_loop(builder, t.name, first)
            )
            limits += [(n, first) for n in same]
        builder.inline_most(limits=limits)
        return builder


def is_thread_reduction_faster(segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, vector: int) -> bool:
    """Whether a thread should reduce all that a result is made of, rather than threads that share it.

    Accesses are no shorter then, and something is gained: longer ones; elements that follow one another in memory, which
    threads that share a result would read, and join, in pieces; later passes, which find the elements in registers; or what is
    looked up, all places of which are known before the first of them is read. Where results are all that memory moves, threads
    that share one would wait for an exchange, and all but one would store nothing.

    vector   elements of an access of threads that share a result
    """
    found = propose_by_thread(segment, inputs, device)
    if isinstance(found, Refused):
        return False
    space = reduced_space(segment, inputs)
    solid = [g for g in space.groups if space.sizes[g] != 1]
    arguments = arguments_of(segment, inputs)
    if _is_outer_product(arguments, segment, solid):
        return True
    loops = found.loops
    reads = {r.name for r in input_reads(segment)}
    width = max((w for n, w in loops.vector_widths if n in reads), default=1)
    has_runs = any(n in reads and dict(loops.tile_vector_dims).get(n, 1) for n in loops.tile_contiguous)
    has_data_passes = sink_pass_count(empty_schedule(segment)) > 1
    has_gather = any(r.lookups for r in input_reads(segment))
    is_elsewhere = not _reads_runs(arguments, segment, space.reduced)
    return width > vector or (width == vector and (has_runs or has_data_passes or has_gather or is_elsewhere))


def propose_by_thread(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo, vector: int = 0
) -> ThreadReductionParams | Refused:
    """What is proposed for a segment that is accepted, with `vector` indices of a thread if that is given."""
    space = reduced_space(segment, inputs)
    groups, reduced, sizes, count = space.groups, space.reduced, space.sizes, space.length
    if not 1 < count <= MAX_LOADED_BYTES:
        return Refused(f"{count} elements are no few that a thread should reduce")
    if space.kept < MIN_THREADS * device.sm_count:
        return Refused("there are too few results for a thread each")
    order = space.order
    solid = [d for d in order if not groups[d].is_broadcast]
    kept = [d for d in solid if groups[d] not in reduced]
    # Runs at the end of what a thread takes are counted from the last dim.
    inner = sorted((d for d in solid if groups[d] in reduced), key=lambda d: sizes[groups[d]] != 1)
    arguments = arguments_of(segment, inputs)
    whole = [groups[d] for d in solid if sizes[groups[d]] != 1]
    is_combined = _is_outer_product(arguments, segment, whole)
    if is_combined:
        largest = max((a for a in arguments if a.tensor in segment.output_tensors), key=lambda a: a.nbytes)
        kept.sort(key=lambda d: (sizes[groups[d]] == 1, largest.stride(groups[d])), reverse=True)
    elif reduced.issuperset(dropwhile(lambda g: g not in reduced, whole)) and _reads_runs(arguments, segment, reduced):
        # All reduced dims are faster than all kept ones.
        return Refused("what is reduced is one run in memory")
    sized = SizedSegment(segment, inputs)
    cells = reduced_inner_tile(sized, arguments, [groups[d] for d in inner])
    if cells is None:
        return Refused("how much is reduced follows from no input")
    last = {groups[d] for d in kept[-1:]}
    read = [a for a in cells.arguments if a.tensor in segment.input_tensors]
    # What is the same for neighbours is loaded once for all of a thread's results.
    own, shared = (
        sum(a.itemsize for a in read if any(map(a.stride, last)) is has_stride) for has_stride in (True, False)
    )
    if own + shared > MAX_LOADED_BYTES:
        return Refused(f"a thread would hold {own + shared} bytes for each result")
    runs = {a.name: cells.runs.get(a.name, 1) * a.tensor.dtype.itemsize for a in cells.arguments}
    if max(runs.values()) > INNER_TILE_BYTES and not is_combined:
        return Refused("threads side by side would read places too far apart")
    choice = PointwiseHeuristic(segment, inputs, {groups[d]: d for d in kept}, device, cells)
    most = max(
        1, min(ACCESS_BYTES // min(runs.values()), MAX_LOADED_BYTES // max(1, own), choice.max_unrolled // count)
    )
    while most > 1 and not choice.has_threads(most):
        most //= 2
    found = choice.params_with_inner_tile((*kept, *inner, *(d for d in order if d not in solid)), vector, most)
    if found is None:
        return Refused("an end of a row would cut vectors")
    words = (
        f"a thread reduces {count} elements for each result, and loads {own * found.vector} bytes before the first use"
    )
    return ThreadReductionParams(replace(found, reasons=()), Reasons(lambda: (words, *found.reasons)))


def _is_outer_product(arguments: Sequence[Argument], segment: Fusion, order: Sequence[Group]) -> bool:
    """Whether no input has all of some dims: each is read many times, from the cache, and results are what memory moves."""
    reads = [a for a in arguments if a.tensor in segment.input_tensors]
    return not any(a.displaced is not None or all(map(a.stride, order)) for a in reads)


def _reads_runs(arguments: Sequence[Argument], segment: Fusion, reduced: frozenset[Group]) -> bool:
    """Whether an input has what is reduced where its dims say, which threads that share it read as vectors. Windows do not."""
    reads = [a for a in arguments if a.tensor in segment.input_tensors and any(map(a.stride, reduced))]
    return any(a.displaced is None for a in reads)
