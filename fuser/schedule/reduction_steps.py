"""When a reduction is better done in two steps, each a kernel of its own.

Where a kept dim lies in memory between those that are reduced, as the groups of a group norm with channels last do, a row is
many short runs: some elements, then those of other rows. The memory moves sectors: each run of 20 bytes takes one and a half
of them, and accesses are as short as a run allows. Reduced over the slow dims alone, the same data are columns: whole vectors,
neighbours in neighbouring threads. What that leaves is small, and is reduced over the fast dims by a second kernel
(`optimize/reduce_in_steps.py`). Against that stands the time of launches, and that a kernel which keeps its rows on chip reads
them once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion import Fusion, IterDomain, Reducing, has_steps, memory_order, tensor_outputs
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.once import once
from fuser.records import record
from fuser.schedule.held_rows import adds_in_double, stages_on_chip
from fuser.schedule.inner_persistent import room_of
from fuser.schedule.params import InnerPersistentParams, Params, ReductionParams, Refused, SegmentInputs
from fuser.schedule.reads import input_reads
from fuser.schedule.reduced_dims import reduced_groups, reductions_of, reference_reduction
from fuser.schedule.reduction_stages import is_cheap
from fuser.schedule.reference import dim_groups, dim_order, resolving_graph
from fuser.schedule.rows import find_rows
from fuser.schedule.rows_over_grid import Row, group_time, near_time
from fuser.schedule.stages import as_defined, stage_levels

SECTOR = 32
"""Bytes that the memory moves at once."""

LINE = 128
"""Bytes of a run from which on it is read as well as any: what its ends waste is less than another pass costs."""

BEHIND = 4.5
"""Microseconds of one more kernel behind another: its launch, its first trip to memory, and that its last blocks end alone."""

WORTH = 0.9
"""The part of the time of one kernel that two steps are expected to take at most: estimates are coarse."""


@record
class InSteps:
    """Reductions that are better done in two steps at the sizes at hand.

    last    for each reduction, the name of its first result, and the reduced dims of its operand that the second step is over
    """

    last: tuple[tuple[str, tuple[int, ...]], ...]


@record(eq=False)
class Parts:
    """Rows that are runs in memory, with other rows between them.

    fast            groups along a run
    run             bytes of the shortest run of an argument
    read, written   bytes of arguments that have rows
    spread          bytes of the sectors that these lie in, for each of them
    """

    graph: IterationGraph
    fast: frozenset[Group]
    run: int
    read: int
    written: int
    spread: float


def sectors_moved(run: int) -> float:
    """Bytes of sectors for each byte of runs of so many, which begin at any multiple of that."""
    return (run + SECTOR - math.gcd(run, SECTOR)) / run


def worth_steps(
    segment: Fusion, params: Params, inputs: SegmentInputs, device: DeviceInfo
) -> tuple[InSteps, str] | None:
    """Two steps in place of what is proposed for a segment, and why; None if one kernel should be as fast."""
    if not isinstance(params, InnerPersistentParams | ReductionParams) or not _has_steps(segment):
        return None
    parts = find_parts(segment, inputs)
    if parts is None or parts.run >= LINE:
        return None
    levels = len(set(stage_levels(as_defined(segment)).values()))
    rate = device.memory_bytes_per_ns * 1e3
    if isinstance(params, ReductionParams):
        # Each stage is a pass.
        one = (levels * parts.read + parts.written) * parts.spread / rate
    elif params.bundle or params.misaligned:
        return None
    elif params.cluster == 1:
        # While the threads of a block wait for one another, other blocks of its SM load.
        one = (parts.read + parts.written) * parts.spread / rate
    else:
        one = _shared_row_time(segment, params, parts, inputs, device)
    is_written = parts.written > 0
    kernels = 2 * (levels - is_written) + is_written
    steps = (levels * parts.read + parts.written) / rate + (kernels - 1) * BEHIND
    if steps > WORTH * one:
        return None
    results = [tensor_outputs(e)[0] for e in reductions_of(segment)]
    last = tuple(
        (t.name, tuple(i for i, d in enumerate(t.logical) if parts.graph.group(d) in parts.fast)) for t in results
    )
    why = (
        f"rows are runs of {parts.run} bytes that lie apart, one kernel should take {one:.1f} us; {kernels} kernels that "
        f"reduce in two steps {steps:.1f} us"
    )
    return InSteps(last), why


@once
def _has_steps(segment: Fusion) -> bool:
    """Whether `reduction_stages` can cut it where its reductions are in two steps."""
    updates = any(o.alias_of is not None for o in segment.outputs)
    cheap = all(map(is_cheap, (e for e in segment.tensor_exprs if not isinstance(e, Reducing))))
    return cheap and not updates and all(map(has_steps, reductions_of(segment)))


def find_parts(segment: Fusion, inputs: SegmentInputs) -> Parts | None:
    """The rows of a segment as parts; None where they are one run each, or kept dims are the fastest."""
    graph = resolving_graph(segment)
    reference = reference_reduction(segment, graph)
    groups = dim_groups(graph, reference)
    reduced = reduced_groups(graph, reference)
    solid = [groups[d] for d in dim_order(graph, segment, reference, inputs) if not groups[d].is_broadcast]
    fast = frozenset(takewhile(reduced.__contains__, reversed(solid)))
    if not fast or fast == reduced & set(solid):
        return None
    size = {g: inputs.evaluate(g.extent) for g in solid}
    runs: list[int] = []
    read = written = 0
    moved = 0.0

    def has_rows(dims: Iterable[IterDomain | None]) -> bool:
        own = {graph.group(d) for d in dims if d is not None and not d.is_broadcast}
        return bool(own & reduced) and bool(own - reduced)

    def moved_by(count: int, itemsize: int, along: Iterable[Group]) -> float:
        run = math.prod(size[g] for g in takewhile(fast.__contains__, along)) * itemsize
        runs.append(run)
        return count * itemsize * (sectors_moved(run) if run > itemsize else 1.0)

    for r in input_reads(segment):
        if not r.tensor.is_cpu and has_rows(r.dims):
            described = inputs.tensors[r.tensor.name]
            order = sorted(range(len(r.dims)), key=lambda d: described.strides[d])
            found = [d for d in (r.dims[k] for k in order) if d is not None and not d.is_broadcast]
            count = math.prod(size.get(graph.group(d), 1) for d in found)
            read += count * r.tensor.dtype.itemsize
            moved += moved_by(count, r.tensor.dtype.itemsize, map(graph.group, found))
    for t in segment.output_tensors:
        if t not in segment.input_tensors and has_rows(t.visible):
            found = [d for k in reversed(memory_order(t.stride_order)) if not (d := t.visible[k]).is_broadcast]
            count = math.prod(size.get(graph.group(d), 1) for d in found)
            written += count * t.dtype.itemsize
            moved += moved_by(count, t.dtype.itemsize, map(graph.group, found))
    if not read:
        return None
    return Parts(graph, fast, min(runs), read, written, moved / (read + written))


def _shared_row_time(
    segment: Fusion, params: InnerPersistentParams, parts: Parts, inputs: SegmentInputs, device: DeviceInfo
) -> float:
    """Of a kernel whose blocks share rows that they keep on chip, by the sectors that it moves."""
    rows = find_rows(segment, inputs)
    assert not isinstance(rows, Refused)
    is_double = any(t.dtype.itemsize > 4 for t in (*segment.input_tensors, *segment.output_tensors))
    exchanges = 1 if params.one_pass else stages_on_chip(segment) - 1
    moved = math.ceil(rows.moved * parts.spread)
    row = Row(rows.length, params.vector, moved, exchanges, is_double, params.misaligned, adds_in_double(segment))
    in_shared = bool(params.in_shared)
    if params.in_grid:
        shape = params.threads, params.batch, params.cluster, params.blocks
        return group_time(row, rows.rows, *shape, device, in_shared=in_shared)
    room = room_of(
        segment, rows, is_double, inputs_only=params.inputs_only, one_pass=params.one_pass, in_shared=in_shared
    )
    return near_time(row, rows.rows, params.cluster, params.threads, params.batch, room, device)
