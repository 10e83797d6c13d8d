"""Reduction segments, normalisations included: a block takes some rows (or columns) and passes over them once per stage.

A *stage* is a pass over the full-size data: it ends in reductions whose inputs depend on the same number of earlier
reductions, or in full-size outputs. Values that two stages need are recomputed in each, so that only reduction results pass
between stages and a row of any length fits (the loops: reduction_loops.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fuser.ir.device_info import REGISTER_BYTES, SECTOR_BYTES, DeviceInfo
from fuser.ir.dtypes import DataType
from fuser.ir.enums import SchedulerType
from fuser.ir.fusion import (
    ExpSum,
    Fusion,
    Welford,
    tensor_outputs,
)
from fuser.ir.integers import Symbol
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.alignment import LEAST_VECTORS, RowAccesses, choose_accesses, one_run
from fuser.schedule.analysis.reads import input_reads
from fuser.schedule.analysis.reduced_dims import accepts_reductions, reduced_groups, reductions_of, reference_reduction
from fuser.schedule.analysis.reference import dim_groups, dim_order, resolving_graph
from fuser.schedule.analysis.stages import (
    as_defined,
    stage_levels,
)
from fuser.schedule.cost.plan_columns import FEW_ROWS
from fuser.schedule.cost.plan_reduction import plan_reduction
from fuser.schedule.cost.reduction_space import ReductionPlan, Space, ceil_div
from fuser.schedule.cost.scratch_budget import joined_bytes
from fuser.schedule.cost.text_length import element_instructions, most_repeated, row_instructions
from fuser.schedule.neighbours import neighbours
from fuser.schedule.params import (
    Accepted,
    Aligned,
    Params,
    ParamsClass,
    ReductionParams,
    Refused,
    SegmentInputs,
)
from fuser.schedule.schedulers.reduction_loops import schedule_reduction
from fuser.schedule.schedulers.thread_reduction import is_better_by_thread

# Accumulators of a thread along kept dims: more would push the loads in flight out of its registers.
_ACCUMULATORS = 32
# Bytes of an access where results are as many as reads, or where an access that begins anywhere would be two.
_SHORT_ACCESS = 4
# Vectors of a row that are read from any address where its ends cut none.
_LEAST_WHOLE = 8
# Bytes of inputs whose accesses are short rather than two in one.
_LITTLE = 4 << 20
# Elements of a step of sums of exponentials, of which a thread first needs the largest.
_HELD = 32
# Part of the memory's rate that is read; instructions of a thread for an access behind a division (H200: sum_all f32 468x128256
# of wider rows 108 us, read by element), cycles of the division before anything is read, and of each element of a vector that a
# row's end cuts.
_READ_RATE, _DIVISION, _DIVISION_ALONE, _ENDS = 0.84, 54, 790, 350
# Accesses of an SM from which on rows are told apart.
_MANY_ACCESSES = 1024
# Columns that are read once leave the cache first where they would take more than this part of it (one in so many).
_OF_CACHE = 4
# And sums of everything that many blocks share this part.
_OF_CACHE_IN_PARTS = 8


def _streams(space: Space, plan: ReductionPlan, moved: int, device: DeviceInfo) -> bool:
    """Whether what is read, once, should leave the cache first.

    Where blocks share long rows nothing was gained by it, but for sums of everything (H200: sum_all f64 803x7168, 46 MB,
    21.3 -> 19.2 us; bf16 352x16384, 11.5 MB, 9.7 both ways; f32 8192x8192 in blocks of many turns 73.4 and 73.7).
    """
    if not space.may_split:
        return False
    if space.inner and plan.grid_reduce > 1:
        return space.kept == 1 and not plan.cluster and moved > device.l2_bytes // _OF_CACHE_IN_PARTS
    if space.ragged and not space.inner:
        # A block reads sectors of which another one needs the rest (H200: relu_bwd bf16 96x1009x770 212 us streamed, 185 not).
        return False
    return moved > (device.l2_bytes if space.inner else device.l2_bytes // _OF_CACHE)


def _should_cut(elements: int, nbytes: int, merged: RowAccesses, cut: RowAccesses, device: DeviceInfo) -> bool:
    """Whether rows that lie apart in memory should be loops of their own, and not one axis with the dims around them.

    One axis costs a division for each access, but rows that begin anywhere have ends that are read by element. Few accesses
    have time for a division each: they are done by few blocks, which share no rows.
    """
    if elements < device.sm_count * _MANY_ACCESSES * cut.vector:
        return False
    reading = elements * nbytes / (_READ_RATE * device.memory_rate)
    dividing = elements / merged.vector * _DIVISION * device.thread_time / device.sm_count
    together = max(reading, dividing) + _DIVISION_ALONE * device.cycle
    return reading + (_ENDS * cut.vector * device.cycle if not isinstance(cut.access, Aligned) else 0.0) <= together


class ReductionScheduler:
    """Accepts segments whose reductions run over the same dims of one iteration space."""

    type = SchedulerType.reduction
    params: ParamsClass = ReductionParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        return accepts_reductions(segment)

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        shared = self.propose_in_blocks(segment, inputs, device)
        if is_better_by_thread(segment, inputs, device, shared.vector):
            return Refused("a thread has all that a result is reduced from")
        return shared

    def propose_in_blocks(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> ReductionParams:
        """What is proposed where threads share a reduction."""
        graph = resolving_graph(segment)
        reference = reference_reduction(segment, graph)
        order = dim_order(graph, segment, reference, inputs)
        groups = dim_groups(graph, reference)
        reduced = reduced_groups(graph, reference)
        extent = {g: inputs.evaluate(g.extent) for g in groups}
        inner = groups[order[-1]] in reduced
        reductions = reductions_of(segment)
        registers = sum(len(tensor_outputs(e)) for e in reductions)
        reads = _reduced_reads(segment, graph, reduced)
        largest = max((dims for _, dims in reads), default=0)
        outputs = _written_sizes(segment, graph, reduced)
        limit = max(1, 16 // max([*(size for size, dims in reads if dims == largest), *outputs], default=4))
        most = most_repeated(segment, device)
        while (not inner and limit > 1 and limit * registers > _ACCUMULATORS) or limit > most:
            limit //= 2
        kept_count = math.prod(extent[g] for g in groups if g not in reduced)
        reduced_count = math.prod(extent[g] for g in groups if g in reduced)
        full = sum(size for size, dims in reads if dims == largest)
        # What all elements of an access share comes from a cache, but takes registers.
        shared = sum(size for size, dims in reads if dims != largest)
        moved = kept_count * reduced_count * full
        widest = max([*(size for size, _ in reads), *(t.dtype.itemsize for t in segment.output_tensors)], default=4)
        short = max(1, _SHORT_ACCESS // widest)
        if not inner and reduced_count <= FEW_ROWS:
            # Results are as many as what is read: neighbouring threads should store neighbours.
            limit = min(limit, short)
        row = _fastest_groups([groups[d] for d in order], reduced)
        heavy = any(isinstance(e, Welford) for e in reductions)
        # The lanes of a row's last vector would have seen fewer values than others: counts would not be in common.
        is_held = any(isinstance(e, ExpSum) for e in reductions)
        # Of two bytes a vector from any address is two accesses for eight, of which no end of a row cuts any.
        is_whole = (
            inner and is_held and all(size < 4 for size, _ in reads) and reduced_count % (_LEAST_WHOLE * limit) == 0
        )
        # Kept dims are one axis: where a vector would cross from one part of it to the next, no end of a row may cut one.
        others = [g for g in groups if g not in row and g not in reduced and not g.is_broadcast]
        may_cut = not heavy if inner else _has_whole_parts(segment, row, others, extent, limit)
        least = _LEAST_WHOLE if is_whole else LEAST_VECTORS
        accesses = choose_accesses(
            graph,
            segment,
            row,
            inputs,
            limit,
            may_cut=may_cut,
            may_follow=inner,
            may_span=not inner,
            least_vectors=least,
        )
        run = one_run(graph, segment, row, extent, inputs) if inner else row
        run_dims = 0
        if len(run) < len(row):
            cut = choose_accesses(graph, segment, run, inputs, limit, may_cut=not heavy, may_follow=True)
            if _should_cut(kept_count * reduced_count, full, accesses, cut, device):
                row, accesses, run_dims = run, cut, sum(not g.is_broadcast for g in run)
        if not inner and not isinstance(accesses.access, Aligned) and (moved <= _LITTLE or reduced_count <= FEW_ROWS):
            # An access of two elements that begins anywhere would be three of one.
            accesses = choose_accesses(graph, segment, row, inputs, min(limit, short), may_cut=False, may_follow=False)
        is_cut = not isinstance(accesses.access, Aligned)
        vector = accesses.vector
        space = Space(
            inner=inner,
            kept=kept_count,
            reduced=reduced_count,
            run=math.prod(extent[g] for g in row if g in reduced),
            runs=math.prod(extent[g] for g in groups if g in reduced and g not in row),
            vector=vector,
            bytes_per_step=vector * (full + shared if is_cut or widest > 4 else full),
            heavy=heavy,
            exact=any(tensor_outputs(e)[0].dtype is DataType.Double for e in reductions),
            misaligned=is_cut,
            held=_HELD if is_held else 0,
            joined=joined_bytes(segment, 1 if inner else vector),
            wide=any(size > 4 for size, _ in reads),
            may_split=len(set(stage_levels(as_defined(segment)).values())) == 1,
            written=sum(outputs),
            element_work=element_instructions(segment),
            row_work=row_instructions(segment),
            results=registers,
            partials=sum(ceil_div(t.dtype.itemsize, REGISTER_BYTES) for e in reductions for t in tensor_outputs(e)),
            ragged=any(math.prod(extent[g] for g in row) * size % SECTOR_BYTES for size in outputs),
        )
        plan = _cached_text(plan_reduction(space, device), segment, vector, most)
        return ReductionParams(
            order,
            inner,
            plan.block_reduce,
            plan.block_iterate,
            vector,
            accesses.vectorized,
            plan.grid_reduce,
            plan.unroll,
            plan.block_outer,
            plan.unroll_outer,
            run_dims,
            plan.grid_along,
            access=accesses.access,
            cluster=plan.cluster,
            streaming=_streams(space, plan, moved, device),
            reasons=plan.reasons,
        )

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        proposed = self.propose_in_blocks(segment, inputs, device)
        return (proposed, *neighbours(proposed, device))

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, ReductionParams)
        return schedule_reduction(segment, params)


def _fastest_groups(order: list[Group], reduced: frozenset[Group]) -> list[Group]:
    """The dims that follow one another in memory up to the fastest one, and are all reduced or all kept as it is."""
    found: list[Group] = []
    for group in reversed(order):
        if (group in reduced) is not (order[-1] in reduced) and not group.is_broadcast:
            break
        if not group.is_broadcast or group is order[-1]:
            found.insert(0, group)
    return found


def _has_whole_parts(
    segment: Fusion, row: Sequence[Group], others: Sequence[Group], sizes: Mapping[Group, int], vector: int
) -> bool:
    """Whether vectors along the kept dims stay within a part that is one run in memory, of which `row` are the dims, as far as
    kernels know: the `others` have one element, or the length of a part is a multiple of the vector."""
    owned = {d.extent for t in segment.input_tensors if not t.is_cpu for d in t.visible}

    def is_known(group: Group) -> bool:
        # Facts are about the extents of inputs.
        return group.extent.is_const or (isinstance(group.extent, Symbol) and group.extent in owned)

    return all(sizes[g] == 1 and is_known(g) for g in others) or any(
        sizes[g] % vector == 0 and is_known(g) for g in row
    )


def _cached_text(plan: ReductionPlan, segment: Fusion, vector: int, most: int) -> ReductionPlan:
    """The plan with as few accesses at once that the instruction cache holds what an iteration repeats: `most` elements."""
    unroll = max(1, most // vector)
    if plan.unroll <= unroll:
        return plan
    words = f"{element_instructions(segment)} instructions an element: {most} of a thread are as many as are cached"
    return replace(plan, unroll=unroll, reasons=(*plan.reasons, words))


def _written_sizes(segment: Fusion, graph: IterationGraph, reduced: frozenset[Group]) -> list[int]:
    """Bytes of an element of every output along a reduced dim."""
    outputs = (
        t for t in segment.output_tensors if any(graph.group(d) in reduced and not d.is_broadcast for d in t.visible)
    )
    return [t.dtype.itemsize for t in outputs]


@memoized
def _reduced_reads(segment: Fusion, graph: IterationGraph, reduced: frozenset[Group]) -> list[tuple[int, int]]:
    """(bytes of an element, number of dims) of every read along a reduced dim."""
    found: list[tuple[int, int]] = []
    for read in input_reads(segment):
        own = [d for d in read.followed if not d.is_broadcast]
        if any(graph.group(d) in reduced for d in own):
            found.append((read.tensor.dtype.itemsize, len(own)))
    return found
