"""When a reduction is better done in two steps, each a kernel of its own.

Where a kept dim lies in memory between those that are reduced, as the groups of a group norm with channels last do, a row is
many short runs: some elements, then those of other rows. The memory moves bursts: of runs of 20 bytes, each takes one or two of
them, 80 bytes. Reduced over the slow dims alone, the same data are columns: whole vectors, neighbours in neighbouring threads.
What that leaves is small, and is reduced over the fast dims by a second kernel (`optimize/reduce_in_steps.py`). Against that
stands the time of launches, and that a kernel which keeps its rows on chip reads them once.

Both times are what moves, by the device's rate, and what waits: phases of blocks that share rows, loads of columns that have
few blocks, launches. The launch of a first kernel is in both and left out. What two steps may save is bytes: where they would
move as many, as of runs that fill bursts, it stays one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from fuser.ir.device_info import BURST_BYTES, DeviceInfo
from fuser.ir.fusion.fusion import (
    Broadcast,
    Expand,
    Fusion,
    Permute,
    Pointwise,
    Reducing,
    Reshape,
    Squeeze,
    has_steps,
    memory_order,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.number_trace import searched
from fuser.records import record
from fuser.schedule.analysis.data_passes import empty_schedule, sink_pass_count
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, input_reads
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reduced_space import reduced_space
from fuser.schedule.analysis.rows import find_rows
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.mapping_search import MAX_REMEMBERED, best_mapping
from fuser.schedule.cost.reduction_mappings import REDUCTIONS
from fuser.schedule.cost.reduction_space import ReductionSpace
from fuser.schedule.cost.rounding import OF_ROWS, round_to_significant_bits, round_up_length
from fuser.schedule.cost.row_mappings import RowMapping, row_work_of
from fuser.schedule.cost.row_search import best_row_mapping
from fuser.schedule.cost.row_space import RowSpace, row_space
from fuser.schedule.params import Aligned, InnerPersistentParams, Params, ReductionParams
from fuser.schedule.scheduler import Refused, SegmentInputs


@record
class TwoKernelSplit:
    """Reductions that are better done in two steps at the sizes at hand.

    last    for each reduction, the name of its first result, and the reduced dims of its operand that the second step is over
    """

    last: tuple[tuple[str, tuple[int, ...]], ...]


@record(eq=False)
class StridedRows:
    """Rows that are runs in memory, with other rows between them.

    fast            groups along a run
    run             bytes of the shortest run of an argument
    read, written   bytes of arguments that have rows
    spread          bytes of the bursts that these lie in, for each of them
    columns, rows   results of the first step, and elements of each
    vector          elements of an access of the first step
    """

    graph: IterationGraph
    fast: frozenset[Group]
    run: int
    read: int
    written: int
    spread: float
    columns: int
    rows: int
    vector: int


@record
class TwoKernelTimes:
    """Microseconds of one kernel and of two steps, and the kernels of these; without the launch of a first one."""

    one: float
    steps: float
    kernels: int


def burst_overhead(run: int) -> float:
    """Bytes of bursts for each byte of runs of so many, which begin at any multiple of that."""
    return (run + BURST_BYTES - math.gcd(run, BURST_BYTES)) / run


def choose_two_kernels(
    segment: Fusion, params: Params, inputs: SegmentInputs, device: DeviceInfo
) -> tuple[TwoKernelSplit, str] | None:
    """Two steps in place of what is proposed for a segment, and why; None if one kernel should be as fast."""
    if not isinstance(params, InnerPersistentParams | ReductionParams) or not _has_steps(segment):
        return None
    if isinstance(params, InnerPersistentParams) and not isinstance(params.access, Aligned):
        return None
    parts = find_strided_rows(segment, inputs)
    if parts is None:
        return None
    times = compare_times(segment, params, parts, inputs, device)
    if times is None or times.steps >= times.one:
        return None
    results = [tensor_outputs(e)[0] for e in reductions_of(segment)]
    found = tuple(
        (t.name, tuple(i for i, d in enumerate(t.logical) if parts.graph.group(d) in parts.fast)) for t in results
    )
    why = (
        f"rows are runs of {parts.run} bytes that lie apart, one kernel should take {times.one:.1f} us; {times.kernels} "
        f"kernels that reduce in two steps {times.steps:.1f} us"
    )
    return TwoKernelSplit(found), why


def compare_times(
    segment: Fusion,
    params: InnerPersistentParams | ReductionParams,
    parts: StridedRows,
    inputs: SegmentInputs,
    device: DeviceInfo,
) -> TwoKernelTimes | None:
    """What should be chosen by; None if two steps would move as much."""
    levels = sink_pass_count(empty_schedule(segment))
    # `reduction` reads the rows once for each data pass.
    passes = levels if isinstance(params, ReductionParams) else 1
    if levels * parts.read + parts.written >= (passes * parts.read + parts.written) * parts.spread:
        return None
    rate = device.memory_rate
    if isinstance(params, ReductionParams):
        one = (passes * parts.read + parts.written) * parts.spread / rate + passes * _latency(device)
    else:
        rows = find_rows(segment, inputs)
        assert not isinstance(rows, Refused)
        row = row_space(segment, rows, device)
        m = best_row_mapping(row, device)
        assert m is not None
        one = _kept_rows_time(row, m, parts.spread, device)
    is_written = parts.written > 0
    kernels = 2 * (levels - is_written) + is_written
    launch = device.launch_behind
    both = (levels - is_written) * (_columns_time(parts, device) + _latency(device))
    last = (parts.read + parts.written) / rate + _latency(device) if is_written else 0.0
    steps = both + last + (kernels - 1) * launch
    return TwoKernelTimes(one, steps, kernels)


@memoized
def _has_steps(segment: Fusion) -> bool:
    """Whether only its reductions' results pass between kernels where they are in two steps."""
    updates = any(o.alias_of is not None for o in segment.outputs)
    plain = (Reducing, Pointwise, Broadcast, Expand, Squeeze, Permute, Reshape)
    cheap = all(isinstance(e, plain) for e in segment.tensor_exprs)
    return cheap and not updates and all(map(has_steps, reductions_of(segment)))


def find_strided_rows(segment: Fusion, inputs: SegmentInputs) -> StridedRows | None:
    """The rows of a segment as parts; None where they are one run each or empty, or kept dims are the fastest."""
    space = reduced_space(segment, inputs)
    graph, reduced = space.graph, space.reduced
    solid = [space.groups[d] for d in space.order if not space.groups[d].is_broadcast]
    fast = frozenset(takewhile(reduced.__contains__, reversed(solid)))
    if not fast or fast == reduced & set(solid):
        return None
    size = {g: space.sizes[g] for g in solid}
    if 0 in size.values():
        return None
    runs: list[int] = []
    read = written = 0
    widest = 1
    moved = 0.0

    def moved_by(itemsize: int, along: Sequence[Group]) -> tuple[int, float]:
        """Bytes of what lies along some groups, the fastest first, and of the bursts that these are in."""
        run = math.prod(size[g] for g in takewhile(fast.__contains__, along)) * itemsize
        runs.append(run)
        own = math.prod(size.get(g, 1) for g in along) * itemsize
        return own, own * (burst_overhead(run) if run > itemsize else 1.0)

    for r in input_reads(segment):
        if not r.tensor.is_cpu and space.has_reduced_and_kept_dims(r.dims):
            described = inputs.tensors[r.tensor.name]
            order = sorted(range(len(r.dims)), key=lambda d: described.strides[d])
            found = [graph.group(d) for d in (r.dims[k] for k in order) if d is not None and not d.is_broadcast]
            own, of_bursts = moved_by(r.tensor.dtype.itemsize, found)
            widest = max(widest, r.tensor.dtype.itemsize)
            read, moved = read + own, moved + of_bursts
    for t in segment.output_tensors:
        if t not in segment.input_tensors and space.has_reduced_and_kept_dims(t.visible):
            dims = (t.visible[k] for k in reversed(memory_order(t.stride_order)))
            own, of_bursts = moved_by(t.dtype.itemsize, [graph.group(d) for d in dims if not d.is_broadcast])
            written, moved = written + own, moved + of_bursts
    if not read:
        return None
    columns = math.prod(n for g, n in size.items() if g not in reduced or g in fast)
    rows = math.prod(n for g, n in size.items() if g in reduced and g not in fast)
    # Vectors go along all that is kept by the first step and lies together.
    whole = math.prod(size[g] for g in takewhile(lambda g: g not in reduced or g in fast, reversed(solid)))
    vector = math.gcd(whole, max(1, ACCESS_BYTES // widest))
    return StridedRows(graph, fast, min(runs), read, written, moved / (read + written), columns, rows, vector)


@searched
@lru_cache(maxsize=MAX_REMEMBERED)
def _kept_rows_time(row: RowSpace, m: RowMapping, spread: float, device: DeviceInfo) -> float:
    """Of a kernel that keeps its rows on chip, by the bursts that it moves."""
    work = row_work_of(row, m, device)
    work = work._replace(moved=work.moved * spread)
    return total_time(work, device) - device.launch


def _latency(device: DeviceInfo) -> float:
    """From the first load of a kernel to its last store, where several blocks have to be there."""
    return device.first_to_last + device.cluster_start


def _columns_time(parts: StridedRows, device: DeviceInfo) -> float:
    """Of the kernel of a first step, without its launch."""
    size = max(1, parts.read // (parts.columns * parts.rows))
    columns = ReductionSpace(
        inner=False,
        kept=round_up_length(parts.columns),
        reduced=round_to_significant_bits(parts.rows, OF_ROWS),
        run=1,
        runs=1,
        vector=parts.vector,
        bytes_per_step=parts.vector * size,
        statistics=True,
    )
    best = best_mapping(REDUCTIONS, columns, device)
    assert best is not None
    return best[0] - device.launch
