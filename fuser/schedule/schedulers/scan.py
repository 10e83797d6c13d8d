"""Scan segments: running folds along one dim, with everything pointwise around them.

Loops, with K the kept dims and S the scanned one:

    inner (S is the fastest dim):   K/ty -> grid_x, ty -> block_y, S/v/tx/b/c -> serial, c -> grid_y, b -> tiles, tx -> block_x,
                                    v -> vector
    outer (a kept dim is fastest):  K/v/tx -> grid_x, tx -> block_x, S/b/ty/c -> serial, c -> grid_y, ty -> block_y, b -> rows,
                                    v -> vector

Data is read once and written once. Threads along S hold b tiles of v elements each: all of them are loaded before the first
is used, and one collective scans them; what comes before is carried in a register. Where there are fewer rows or columns
than the processors can work on, the blocks of a cluster share them: they exchange their totals in every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import ParallelType, SchedulerType
from fuser.ir.fusion import Fusion, Reducing, Scan, tensor_inputs, tensor_outputs
from fuser.ir.iteration_graph import IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.alignment import RowAccesses, choose_accesses, min_peeled_length
from fuser.schedule.analysis.reference import (
    choose_vector,
    concrete_dims,
    dim_conflict,
    dim_groups,
    dim_order,
    find_output_missing_dim,
    find_uncovered_tensor,
    resolving_graph,
    vector_limit,
)
from fuser.schedule.analysis.rows import row_bounds
from fuser.schedule.cost.scan_model import LEAST_AHEAD, ClusterScanRows, block_time, choose_scan_cluster
from fuser.schedule.params import Params, ParamsClass, Peeled, ScanParams
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize
from fuser.schedule.tuning_candidates import with_neighbours

# Threads of a block along the scanned dim. On an H200 a row of 16 KiB held two accesses a thread by 512 threads streams at 0.99
# of a copy; four accesses by 256 at 0.97, two steps of such halves at 0.94, and 1024 threads at 0.81 or less.
_THREADS = 512
_ROW_BYTES = 32
# With a block or two on a processor, each has to keep more in flight; so do columns, whose threads meet more often.
_HELD_BYTES = 64
# Most that a thread holds of a row that takes one step so, and two or more otherwise (H200: 748 rows of 5120 floats 13.5 us in
# two steps, in one 12.1 by 256 threads of five accesses, 12.3 by 320 of four or 512 of three, 12.4 by 640 of two).
_STEP_BYTES = 80
_ACCESS_BYTES = 16
# Few rows: blocks that are wanted on a processor, for which several share a row (`schedule/cost/scan_model.py`).
_BLOCKS_PER_SM = 3
_FEW_ROWS = 4
# Rows on a processor up to which short ones that begin anywhere are read by element, and elements of an access of more: bf16
# 189 rows of 257 4.8 us by element, 5.3 cut, 1000 5.1 and 5.5; 30965 22 by element, 24.3 cut into eights (32 threads a row),
# 19.6 into fours and 17.9 with 16 threads a row.
_MOST_BY_ELEMENT = 16
_SHORT_VECTOR = 4
# Threads on a processor that fold columns, and the bytes of a row that one transaction moves.
_COLUMN_THREADS = 1024
_SECTOR_BYTES = 64
_MOST_TILES = 8


def scans_of(segment: Fusion) -> list[Scan]:
    """Scans in order."""
    return [e for e in segment.tensor_exprs if isinstance(e, Scan)]


def reference_scan(segment: Fusion, graph: IterationGraph) -> Scan:
    """The scan of the tensor with most dims of more than one element."""
    return max(scans_of(segment), key=lambda e: concrete_dims(graph, e.output))


@memoized
def live_values(segment: Fusion) -> int:
    """How many values of an element are in registers at once where it is scanned, at most: what is computed by then and used
    from then on."""
    graph = resolving_graph(segment)
    exprs = segment.tensor_exprs
    count = concrete_dims(graph, reference_scan(segment, graph).output)
    made = {t: i for i, e in enumerate(exprs) for t in tensor_outputs(e)}
    used = {t: i for i, e in enumerate(exprs) for t in tensor_inputs(e)}
    full = [t for t in (*segment.input_tensors, *made) if concrete_dims(graph, t) == count]
    scans = [i for i, e in enumerate(exprs) if isinstance(e, Scan)]
    return max(sum(made.get(t, -1) <= i < used.get(t, len(exprs)) for t in full) for i in scans)


class ScanScheduler:
    """Accepts segments whose scans run along the same dim of one iteration space, the largest there is."""

    type = SchedulerType.scan
    params: ParamsClass = ScanParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        scans = scans_of(segment)
        if not scans:
            return Refused("nothing is scanned")
        reduced = next((e for e in segment.tensor_exprs if isinstance(e, Reducing)), None)
        if reduced is not None:
            return Refused(f"{reduced.input.name} is reduced")
        graph = resolving_graph(segment)
        reference = reference_scan(segment, graph)
        for e in scans:
            if graph.group(e.axis) is not graph.group(reference.axis):
                return Refused(f"{reference.output.name} and {e.output.name} are scanned along different dimensions")
        missing = find_uncovered_tensor(graph, reference.output, segment)
        if missing is not None:
            return Refused(f"{missing.name} has a dimension that {reference.output.name} does not have")
        groups = [g for g in dim_groups(graph, reference.output) if not g.is_broadcast]
        lacking = find_output_missing_dim(graph, segment, groups)
        if lacking is not None:
            return Refused(f"the output {lacking.name} lacks a dimension of {reference.output.name}")
        tangled = dim_conflict(segment, graph)
        if tangled is not None:
            return Refused(tangled)
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        graph = resolving_graph(segment)
        reference = reference_scan(segment, graph)
        order = dim_order(graph, segment, reference.output, inputs)
        groups = dim_groups(graph, reference.output)
        scanned = graph.group(reference.axis)
        length = inputs.evaluate(scanned.extent)
        kept = math.prod(inputs.evaluate(g.extent) for g in groups if g is not scanned)
        fastest = groups[order[-1]]
        full = [t for t in (*segment.input_tensors, *segment.output_tensors) if not t.is_cpu]
        count = concrete_dims(graph, reference.output)
        moved = sum(t.dtype.itemsize for t in full if concrete_dims(graph, t) == count)
        limit = vector_limit(segment, graph, fastest)
        widest = _ACCESS_BYTES // limit
        if fastest is scanned:
            # Of few short rows the ends are what all wait for; of many, accesses count.
            least = min_peeled_length(limit) if limit > 1 else 0
            at_least = least if kept < _MOST_BY_ELEMENT * device.sm_count else 0
            accesses = choose_accesses(graph, segment, [fastest], inputs, limit, least=at_least)
            if isinstance(accesses.access, Peeled) and length < least and limit > _SHORT_VECTOR:
                accesses = choose_accesses(graph, segment, [fastest], inputs, _SHORT_VECTOR)
            # The first part of a row that is cut where it is aligned may hold a single element of it.
            spread = length + (accesses.vector - 1 if isinstance(accesses.access, Peeled) else 0)
            params = _inner(order, spread, kept, accesses, widest, moved, device)
            capacity = params.block_scan * params.batch * params.cluster * params.vector - (spread - length)
            bounds: tuple[tuple[str, int, int, int], ...] | Refused = ()
            if 1 < length <= capacity:
                bounds = row_bounds(segment, graph, frozenset([scanned]), inputs, capacity, order, groups)
            return replace(
                params,
                access=accesses.access,
                bounds=() if isinstance(bounds, Refused) else bounds,
            )
        vector, vectorized = choose_vector(graph, segment, fastest, inputs, limit)
        return _outer(order, length, kept, vector, vectorized, widest, moved, live_values(segment), device)

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        return with_neighbours(self, segment, inputs, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, ScanParams)
        scan = reference_scan(segment, resolving_graph(segment))
        builder = ScheduleBuilder(segment)
        for tensor, at, low, high in params.bounds:
            builder.ask_extent_within(tensor, at, low, high)
        copies = cache_arguments(builder)
        name = scan.output.name
        # An output that is itself the reference becomes a copy; the scan goes on under the copy's source.
        definition = builder.definition(name)
        if definition is not None and not isinstance(definition, Scan):
            name = tensor_inputs(definition)[0].name
        outside, held = _transform(builder, name, scan.dim, params)
        vectorize(builder, copies, params.vectorized, params.access)
        # Loads are held from there on: all of a step's are issued before the first is used. What is the same all along the
        # scanned dim is loaded and computed once, before the first step.
        once = _same_along(builder, scan)
        loads = {copy for argument, copy in copies.items() if copy != argument}
        builder.inline_most(
            limits=[
                *((n, builder.common_loops(n, name, outside)) for n in once),
                *((n, builder.common_loops(n, name, held)) for n in copies.values() if n in loads and n not in once),
            ]
        )
        for argument, copy in copies.items() if params.ahead else ():
            if argument in builder.input_names:
                builder.load_ahead(copy, best_effort=True)
        return builder


def _inner(
    order: tuple[int, ...],
    length: int,
    kept: int,
    found: RowAccesses,
    widest: int,
    element_bytes: int,
    device: DeviceInfo,
) -> ScanParams:
    vector, vectorized = found.vector, found.vectorized
    accesses = max(1, -(-length // vector))
    limit = min(_THREADS, device.max_threads_per_block)
    few = kept < _FEW_ROWS * device.sm_count
    in_one_go = accesses * vector * widest <= limit * _ROW_BYTES
    held = _HELD_BYTES if few and not in_one_go else _ROW_BYTES
    most = max(1, min(_MOST_TILES, held // (vector * widest)))
    threads, cluster, ahead = _power_of_two(-(-accesses // most), 1, limit), 1, False
    if device.max_cluster > 1 and accesses > limit * most and 2 * kept <= _BLOCKS_PER_SM * device.sm_count:
        shared = ClusterScanRows(kept, accesses, vector, widest, kept * length * element_bytes)
        shape = choose_scan_cluster(shared, device)
        if shape is not None:
            threads, most, cluster, ahead = shape.threads, shape.accesses, shape.blocks, shape.ahead
    if threads < device.warp_size:
        # A row shorter than a warp's share: as many lanes as it has accesses, up to a warp.
        threads = _power_of_two(accesses, 1, device.warp_size)
    tiles = max(1, min(most, -(-accesses // (threads * cluster))))
    if isinstance(found.access, Peeled) and threads <= device.warp_size and tiles > 1:
        # Accesses with nothing to do take as long as others.
        half = device.warp_size // 2
        fewer = -(-accesses // half)
        if fewer * half < threads * tiles and fewer * vector * widest <= _STEP_BYTES:
            threads, tiles = half, fewer
    if cluster == 1 and accesses > limit * most:
        threads, tiles = _one_step(accesses, limit, _STEP_BYTES // (vector * widest), device) or (threads, tiles)
    rows = max(1, min(128 // threads, _power_of_two(kept, 1, 128)))
    steps = -(-accesses // (threads * tiles * cluster))
    # A cluster's shape says it for itself: its blocks wait for one another.
    ahead = ahead if cluster > 1 else steps >= LEAST_AHEAD
    reasons = (
        f"{length} elements of a row in {accesses} accesses of {vector}",
        f"{threads} threads a row, {tiles} accesses each in registers, {rows} rows a block",
        *([f"{kept} rows leave SMs idle: the {cluster} blocks of a cluster share one"] if cluster > 1 else []),
        "a row is read in one go" if steps == 1 else f"{steps} steps a row, each carries into the next",
    )
    return ScanParams(
        order,
        True,
        threads,
        rows,
        tiles,
        vector,
        vectorized,
        cluster=cluster,
        ahead=ahead,
        reasons=reasons,
    )


def _one_step(accesses: int, limit: int, most: int, device: DeviceInfo) -> tuple[int, int] | None:
    """(threads, accesses of each) that hold a row at once, nearly all of them with work; None if so many do not."""
    warp = device.warp_size
    shapes = [(-(-accesses // (tiles * warp)) * warp, tiles) for tiles in range(1, most + 1)]
    fitting = [shape for shape in shapes if shape[0] <= limit]
    return min(fitting, key=lambda shape: (shape[0] * shape[1], -shape[1]), default=None)


def _outer(
    order: tuple[int, ...],
    length: int,
    kept: int,
    vector: int,
    vectorized: tuple[str, ...],
    widest: int,
    element_bytes: int,
    live: int,
    device: DeviceInfo,
) -> ScanParams:
    columns = max(1, -(-kept // vector))
    batch = max(1, min(_MOST_TILES, _HELD_BYTES // (vector * widest), length))
    # One thread folds a column if there are columns enough to keep every processor's memory busy; else several share it.
    wanted = device.sm_count * _COLUMN_THREADS
    if columns >= wanted // 2:
        along, down = 128, 1
    else:
        # Whole sectors of a row, and two blocks for every processor: one computes while the other waits for memory.
        least = max(1, _SECTOR_BYTES // (vector * widest))
        along = 1 << round(math.log2(max(1.0, columns / (2 * device.sm_count))))
        along = _power_of_two(columns, 1, max(least, min(along, device.warp_size // 2)))
        most = device.max_threads_per_block // (2 * along)
        down = _power_below(min(wanted // columns, -(-length // batch), most))
    cluster, ahead = 1, False
    blocks = -(-columns // along)
    if device.max_cluster > 1 and length > down * batch and blocks < device.sm_count:
        # A block's columns side by side are as long a row.
        shared = ClusterScanRows(blocks, length * along, vector, widest, kept * length * element_bytes, live)
        shape = choose_scan_cluster(shared, device)
        if shape is not None and shape.time_us < block_time(shared, down * along, batch, device):
            down, batch, cluster, ahead = shape.threads // along, shape.accesses, shape.blocks, shape.ahead
    reasons = (
        f"{columns} columns of {vector} elements, {length} rows",
        f"{along} columns a block, {down} threads a column, {batch} rows of each in registers",
        *([f"{blocks} blocks leave SMs idle: the {cluster} blocks of a cluster share columns"] if cluster > 1 else []),
    )
    return ScanParams(
        order, False, down, along, batch, vector, vectorized, cluster=cluster, ahead=ahead, reasons=reasons
    )


def _same_along(builder: ScheduleBuilder, scan: Scan) -> list[str]:
    """Results that the scanned dim is no dim of."""
    graph = builder.graph()
    scanned = graph.group(scan.axis)
    results = (t for e in builder.exprs for t in tensor_outputs(e))
    return [t.name for t in results if all(d.is_broadcast or graph.group(d) is not scanned for d in t.visible)]


def _transform(builder: ScheduleBuilder, name: str, dim: int, params: ScanParams) -> tuple[int, int]:
    """Loops of all tensors; returns how many of them stand around those of the scanned dim, and around the accesses that a
    thread holds at once."""
    loop = builder.state(name).loop
    graph = builder.graph()
    # Other dims of one element stay out of the merged loops: tensors without them could not share those.
    trivial = [d for d in params.order if d != dim and graph.group(loop[d]).is_broadcast]
    kept = [d for d in params.order if d != dim and d not in trivial]
    builder.reorder(name, {d: p for p, d in enumerate([*kept, dim, *trivial])})
    for _ in range(len(kept) - 1):
        builder.merge(name, 0, 1)
    at = 1 if kept else 0
    types: list[tuple[int, ParallelType]] = []
    if params.inner:
        if kept:
            types.append((0, ParallelType.grid_x))
            if params.block_iterate > 1:
                builder.split(name, 0, params.block_iterate)
                types.append((1, ParallelType.block_y))
                at = 2
        if params.vector > 1:
            split_vector(builder, name, at, params.vector, params.access)
        builder.split(name, at, params.block_scan)
        if params.batch > 1:
            builder.split(name, at, params.batch)
            # Steps that are inside the row test nothing.
            types.append((at + 1, ParallelType.unswitch))
        types.append((at + (2 if params.batch > 1 else 1), ParallelType.block_x))
        if params.cluster > 1:
            builder.split(name, at, params.cluster)
            builder.set_cluster(ParallelType.grid_y, params.cluster)
            types = [(p if p <= at else p + 1, t) for p, t in types]
            types.append((at + 1, ParallelType.grid_y))
            at += 1
    else:
        if params.vector > 1:
            builder.split(name, 0, params.vector)
            builder.reorder(name, {1: 2})  # the vector axis goes inside the scanned dim
        builder.split(name, 0, params.block_iterate)
        types += [(0, ParallelType.grid_x), (1, ParallelType.block_x)]
        at = 2
        if params.batch > 1:
            builder.split(name, at, params.batch)
        if params.block_scan > 1:
            builder.split(name, at, params.block_scan)
            types.append((at + 1, ParallelType.block_y))
        elif params.batch > 1:
            types.append((at + 1, ParallelType.unroll))
        if params.cluster > 1:
            builder.split(name, at, params.cluster)
            builder.set_cluster(ParallelType.grid_y, params.cluster)
            types = [(p if p <= at else p + 1, t) for p, t in types]
            types.append((at + 1, ParallelType.grid_y))
            at += 1
    outside = at if params.cluster == 1 else at - 1
    builder.transform_like(name)
    for position, parallel_type in types:
        builder.parallelize(name, position, parallel_type)
    builder.parallelize_like(name)
    return outside, at + 1


def _power_below(value: int) -> int:
    """The largest power of two up to `value`; 1 for none."""
    return 1 << (max(value, 1).bit_length() - 1)


def _power_of_two(value: int, low: int, high: int) -> int:
    """The power of two nearest above `value`, within [low, high]."""
    n = 1
    while n < value:
        n *= 2
    return max(low, min(n, high))
