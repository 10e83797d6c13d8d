"""Normalisations along the fastest dim: a row is read once and held in registers until it is written.

Rows that leave a block alone on its processor, or that need a cluster, lie in shared memory instead (`rows_in_shared`).

Loops, with K the kept dims, R the reduced ones, and constants v, tx, B, ty:

    K/ty -> grid_x, ty -> block_y, R/(v*tx*B*C) = 1, C -> grid_y, B unrolled, tx -> block_x, v -> vector

Copies of the row tensors live outside the loop over B: each thread issues B loads of v elements before it uses the first,
and holds [B][v] registers. The schedule asks for R <= v*tx*B*C, which makes the loop around C one iteration. A row within a
warp needs no block barrier; a row too long for a block is shared by the C blocks of a cluster, which reduce through each
other's shared memory. Where what the stages compute would not fit beside the row, it is computed again.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import ParallelType, SchedulerType
from fuser.ir.fusion import ExpSum, Fusion, Reduction, Welford, tensor_outputs
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.alignment import choose_accesses
from fuser.schedule.params import Accepted, InnerPersistentParams, Params, ParamsClass, Refused, SegmentInputs
from fuser.schedule.pointwise import cache_arguments, split_vector, vectorize
from fuser.schedule.reads import input_reads
from fuser.schedule.reduction import (
    ReductionScheduler,
    cut_trips,
    reduced_groups,
    reference_reduction,
    separate_results,
)
from fuser.schedule.reference import dim_groups, dim_order, resolving_graph, vector_limit
from fuser.schedule.rows_in_shared import (
    choose_shared_shape,
    inline_rows,
    params_in_shared,
    place_rows,
    rows_to_place,
    unrolled,
    vectorize_rows,
)
from fuser.schedule.stages import keep_stages, row_reductions, stage_levels
from fuser.schedule.total_reductions import rfactor_totals

WARP = 32
REGISTERS_FOR_ADDRESSES = 32
"""Registers of a thread beside the row: addresses, the row's statistics, temporaries."""
REGISTERS_FOR_DOUBLES = 48
"""As many more where rows are Doubles, whose quotients, roots and statistics take twice the registers and longer code."""


@record
class RowShape:
    """How a row is spread: over `cluster` blocks, `threads` of each along it, `batch` accesses of `vector` elements each;
    `rows` per block."""

    threads: int
    batch: int
    rows: int
    registers: int
    in_flight: int
    cluster: int = 1

    def is_crowded(self, vector: int, loaded: int, per_element: int) -> bool:
        """Whether registers hold the row badly: blocks share it, or an SM holds one such block only, or many threads keep more
        than was loaded."""
        is_alone = self.in_flight < 2 * self.threads * self.rows * self.batch * vector * loaded
        keeps_more = per_element > loaded and (self.threads > SMALL_BLOCK or self.registers > LARGE_THREAD)
        return is_alone or self.cluster > 1 or keeps_more


class InnerPersistentScheduler:
    """Accepts segments whose full-size data is needed by more than one stage; proposes for rows that fit in registers."""

    type = SchedulerType.inner_persistent
    params: ParamsClass = InnerPersistentParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        answer = ReductionScheduler().accepts(segment)
        if isinstance(answer, Refused):
            return answer
        if len(set(stage_levels(ScheduleBuilder(segment)).values())) < 2:
            return Refused("the data is needed once")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        graph = resolving_graph(segment)
        reference = reference_reduction(segment, graph)
        order = dim_order(graph, segment, reference, inputs)
        groups = dim_groups(graph, reference)
        reduced = reduced_groups(graph, reference)
        if groups[order[-1]] not in reduced:
            return Refused("the fastest dim is not reduced")
        extent = {g: inputs.evaluate(g.extent) for g in groups}
        length = math.prod(extent[g] for g in groups if g in reduced)
        rows = math.prod(extent[g] for g in groups if g not in reduced)
        if length < 1 or rows < 1:
            return Refused("there is no element")
        along = [
            read
            for read in input_reads(segment)
            if any(d is not None and graph.group(d) in reduced and not d.is_broadcast for d in read.dims)
        ]
        reads = [
            read
            for read in along
            if any(d is not None and graph.group(d) not in reduced and not d.is_broadcast for d in read.dims)
        ]
        if not reads:
            return Refused("no input has rows")
        full = [read.tensor for read in reads]
        fastest = groups[order[-1]]
        limit = vector_limit(graph, segment, fastest)
        row = [groups[d] for d in order if groups[d] in reduced and not groups[d].is_broadcast] or [fastest]
        accesses = choose_accesses(graph, segment, row, inputs, limit)
        vector = accesses.vector
        loaded = sum(t.dtype.itemsize for t in full)
        narrowest = min(t.dtype.itemsize for t in full)
        inputs_only = one_pass = False
        sums_exponentials = any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
        per_element = kept_bytes(segment)
        # The first part of a row that is cut where it is aligned may hold a single element of it.
        cut = vector - 1 if accesses.aligned_to else 0
        spread = length + cut
        shape = choose_row_shape(spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0)
        if isinstance(shape, Refused) and kept_bytes(segment, inputs_only=True) < per_element:
            inputs_only = True
            per_element = kept_bytes(segment, inputs_only=True)
            shape = choose_row_shape(spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0)
        in_shared = () if accesses.misaligned else rows_to_place(reads, accesses.vectorized, vector, device)
        if in_shared and (isinstance(shape, Refused) or shape.is_crowded(vector, loaded, per_element)):
            exchanges = stages_on_chip(segment) - 1
            beside = len(along) > len(reads)
            placed = choose_shared_shape(length, vector, loaded, exchanges, device, reads_beside=beside)
            if placed is not None:
                capacity = placed.threads * placed.batch * placed.cluster * vector
                bounds = row_bounds(segment, graph, reduced, inputs, capacity, order, groups)
                if not isinstance(bounds, Refused):
                    # One pass takes registers, and saves an exchange during which no other block of an SM loads.
                    return params_in_shared(
                        placed,
                        order,
                        vector,
                        accesses.vectorized,
                        bounds,
                        in_shared,
                        length,
                        one_pass=sums_exponentials and placed.resident == 1,
                    )
        if sums_exponentials and (isinstance(shape, Refused) or shape.cluster > 1):
            # Blocks that wait for one another had better do so once.
            one_pass = True
            per_element = kept_bytes(segment, inputs_only=inputs_only, one_pass=True)
            shape = choose_row_shape(spread, rows, vector, per_element, loaded, narrowest, device, is_cut=cut > 0)
        if isinstance(shape, Refused):
            return shape
        capacity = shape.threads * shape.batch * shape.cluster * vector - cut
        bounds = row_bounds(segment, graph, reduced, inputs, capacity, order, groups)
        if isinstance(bounds, Refused):
            return bounds
        return InnerPersistentParams(
            order,
            shape.threads,
            shape.rows,
            shape.batch,
            vector,
            accesses.vectorized,
            bounds,
            shape.cluster,
            inputs_only,
            misaligned=accesses.misaligned,
            aligned_to=accesses.aligned_to,
            one_pass=one_pass,
            reasons=(
                f"a row of {length} elements is {-(-spread // vector)} accesses of {vector}: {shape.batch} for each of "
                f"{shape.threads} threads, {shape.rows} rows a block, {shape.cluster} blocks a row",
                f"{per_element} bytes kept per element: about {shape.registers} registers a thread, "
                f"{shape.in_flight} bytes in flight per SM",
            ),
        )

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerPersistentParams)
        return self.schedule(segment, params)

    def schedule(self, segment: Fusion, params: InnerPersistentParams, blocks: int = 0) -> ScheduleBuilder:
        """The schedule, also of a segment with chained reductions. `blocks`: see `cut_trips`."""
        builder = ScheduleBuilder(segment)
        rfactor_totals(builder)
        for tensor, dim, low, high in params.bounds:
            builder.ask_extent_within(tensor, dim, low, high)
        in_two_passes(builder, exponentials=not params.one_pass)
        separate_results(builder)
        copies = cache_arguments(builder)
        placed = place_rows(builder, copies, params)
        keep_stages(builder, inputs_only=params.inputs_only)
        name = _reference_name(builder)
        self._transform(builder, name, params, params.blocks or blocks)
        in_registers = [a for a in params.vectorized if a in copies and a not in params.in_shared]
        vectorize(builder, copies, in_registers, misaligned=params.misaligned)
        vectorize_rows(builder, placed)
        inline_rows(builder, placed, persistent=params.blocks > 0)
        return builder

    def _transform(self, builder: ScheduleBuilder, name: str, params: InnerPersistentParams, blocks: int) -> None:
        loop = builder.state(name).loop
        graph = builder.graph()
        # Dims of one element stay out of the merged loops: tensors without them could not share those.
        trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
        kept = [d for d in params.order if d not in trivial and not loop[d].is_reduction]
        reduced = [d for d in params.order if loop[d].is_reduction]
        builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *trivial])})
        for _ in range(len(kept) - 1):
            builder.merge(name, 0, 1)
        at = 1 if kept else 0
        for _ in range(len(reduced) - 1):
            builder.merge(name, at, at + 1)
        types: list[tuple[int, ParallelType]] = []
        if kept:
            types.append((0, ParallelType.grid_x))
            if params.rows > 1:
                builder.split(name, 0, params.rows)
                at = 2
            at += cut_trips(builder, name, blocks)
            if params.rows > 1:
                types.append((at - 1, ParallelType.block_y))
        if params.vector > 1:
            split_vector(builder, name, at, params.vector, params.aligned_to)
        builder.split(name, at, params.threads)
        builder.split(name, at, params.batch)
        if params.cluster > 1:
            builder.split(name, at, params.cluster)
            at += 1
            types.append((at, ParallelType.grid_y))
            builder.set_cluster(ParallelType.grid_y, params.cluster)
        types.append((at + 2, ParallelType.block_x))
        at_once = unrolled(params.batch) if params.in_shared else 1
        if at_once > 1:
            builder.split(name, at + 1, at_once)
            types[-1] = at + 3, ParallelType.block_x
            types.append((at + 2, ParallelType.unroll))
        if params.aligned_to:
            # Only the first and the last vectors of a row test their elements.
            types.append((at + 3, ParallelType.unswitch))
        builder.transform_like(name)
        for position, parallel_type in types:
            builder.parallelize(name, position, parallel_type)
        builder.parallelize_like(name)


def in_two_passes(builder: ScheduleBuilder, *, exponentials: bool = True) -> None:
    """Welford's update only pays where data is read once: what is kept is summed twice. So may exponentials be."""
    for expr in row_reductions(builder):
        if (exponentials and isinstance(expr, ExpSum)) or (
            isinstance(expr, Welford) and not expr.input.dtype.is_complex
        ):
            builder.two_pass(tensor_outputs(expr)[0].name)


def _reference_name(builder: ScheduleBuilder) -> str:
    """The result of the first reduction: all of them have the same dims."""
    graph = builder.graph()
    from fuser.schedule.reference import concrete_dims

    results = [e.output for e in builder.exprs if isinstance(e, Reduction)]
    results += [tensor_outputs(e)[0] for e in builder.exprs if isinstance(e, (Welford, ExpSum))]
    return max(results, key=lambda t: concrete_dims(graph, t)).name


@lru_cache(maxsize=256)
def stages_on_chip(segment: Fusion) -> int:
    """How many stages the row goes through, statistics in two passes counted as what they become."""
    builder = ScheduleBuilder(segment)
    in_two_passes(builder)
    return len(set(stage_levels(builder).values()))


@lru_cache(maxsize=256)
def kept_bytes(segment: Fusion, *, inputs_only: bool = False, one_pass: bool = False) -> int:
    """Bytes per element of the row that are on chip at once, at most: what is kept between a stage and the next.

    It follows from the structure alone, which is how fusions compare: asked once for all shapes.
    """
    builder = ScheduleBuilder(segment)
    in_two_passes(builder, exponentials=not one_pass)
    cache_arguments(builder)
    kept = keep_stages(builder, inputs_only=inputs_only)
    size = {k.name: builder.state(k.name).tensor.dtype.itemsize for k in kept}
    stages = {s for k in kept for s in range(k.first, k.last)}
    return max((sum(size[k.name] for k in kept if k.first <= s < k.last) for s in stages), default=0)


def choose_row_shape(
    length: int,
    rows: int,
    vector: int,
    per_element: int,
    loaded: int,
    itemsize: int,
    device: DeviceInfo,
    *,
    is_cut: bool = False,
) -> RowShape | Refused:
    """The spread of a row over threads that keeps most bytes in flight, up to what the memory needs.

    length       elements of a row
    per_element  bytes kept per element
    loaded       bytes read per element of a row
    itemsize     bytes of an element of the narrowest row tensor
    is_cut       the ends of a row may cut its first and its last vector: each vector of a thread has code for both cases
    """
    best: tuple[tuple[float, ...], RowShape] | None = None
    for cluster in (1, 2, 4, 8, 16):
        if cluster > device.max_cluster or (cluster > 1 and length < cluster * vector * WARP):
            break
        accesses = math.ceil(length / (vector * cluster))
        for batch in range(1, (MOST_CUT if is_cut else 64) + 1):
            # Beside what is kept, a quarter of the row is on its way through the arithmetic: what would take the last register
            # spills. The vectors of a cut row go through it one after another.
            moving = vector if is_cut else batch * vector // 4
            shape = _row_shape(accesses, batch, cluster, rows, vector, per_element, loaded, itemsize, moving, device)
            if shape is None:
                continue
            found, resident = shape
            used = length / vector / (found.threads * batch * cluster)
            # Fewer bytes a thread mean more barriers per byte; more mean long bodies and few threads to hide latencies behind.
            distance = abs(math.log2(batch * vector * loaded / BYTES_PER_THREAD))
            alone = 1.0 if resident > 1 else ALONE
            score = (
                # Long cut rows: few blocks, and as many vectors a thread as may be, hide the tests and shifts of each best.
                *((-cluster, batch) if is_cut and length > MOST_CUT * WARP * vector else (0, 0)),
                min(found.in_flight * used, NEEDED_IN_FLIGHT)
                * alone
                * used
                * CLUSTER_STEP ** (cluster.bit_length() - 1),
                -distance,
                -found.threads,
            )
            if best is None or score > best[0]:
                best = score, found
    if best is None:
        return Refused(f"a row of {length} elements does not fit in the registers of a block or a cluster")
    return best[1]


def _row_shape(
    accesses: int,
    batch: int,
    cluster: int,
    rows: int,
    vector: int,
    per_element: int,
    loaded: int,
    itemsize: int,
    moving: int,
    device: DeviceInfo,
) -> tuple[RowShape, int] | None:
    """The spread of a block's `accesses` with `batch` a thread, and how many such blocks an SM holds; None if it holds none."""
    threads = -(-accesses // batch)
    threads = 1 << max(0, (threads - 1).bit_length()) if threads <= WARP else -(-threads // WARP) * WARP
    # With a larger batch and the same threads, some accesses would be idle for every thread.
    if threads > device.max_threads_per_block or -(-accesses // threads) < batch:
        return None
    # The threads along a row read whole lines of memory at a time, unless they have all of a short row.
    if batch > 1 and threads < WARP and threads * vector * itemsize < LINE:
        return None
    elements = batch * vector
    registers = REGISTERS_FOR_ADDRESSES + elements * per_element // 4 + (REGISTERS_FOR_DOUBLES if itemsize > 4 else 0)
    limit = device.registers_per_sm // (-(-threads // WARP) * WARP) // REGISTER_STEP * REGISTER_STEP
    if registers + moving >= min(device.registers_per_thread, limit):
        return None
    # A barrier holds up every row of a block: rows share one only where a row stays within a warp.
    per_block = 1 if threads > WARP else max(1, min(BLOCK // threads, rows // device.sm_count))
    per_block = 1 << (per_block.bit_length() - 1)
    warps = -(-threads * per_block // WARP)
    resident = min(
        device.max_threads_per_sm // (warps * WARP),
        device.registers_per_sm // (registers * warps * WARP),
        device.max_blocks_per_sm,
    )
    if resident < 1:
        return None
    in_flight = resident * warps * WARP * elements * loaded
    return RowShape(threads, batch, per_block, registers, in_flight, cluster), resident


MOST_CUT = 8
"""Vectors of a thread that may be cut: the code for whole ones is there twice, with tests and without."""

LARGE_THREAD = 96
"""Registers of a thread above which bodies are long and warps few."""

SMALL_BLOCK = 256
"""Threads of a block up to which registers hold a row well, even if they keep more than was loaded (H200: softmax of 16384
elements takes 73 us in registers, 69 in shared memory)."""

ALONE = 0.8
"""What a block without another one beside it on its SM gets done: nothing is loaded while it waits for its own row."""

CLUSTER_STEP = 0.97
"""What each doubling of a cluster costs: one exchange takes longer the more blocks take part."""

REGISTER_STEP = 8
"""Registers a thread come in multiples of this."""

LINE = 128
"""Bytes of a line of memory."""

BLOCK = 128
"""Threads of a block whose rows need no barrier."""

BYTES_PER_THREAD = 64
"""Bytes of the row tensors that a thread loads: four accesses of 16 bytes were best on an H200 for rows of 1024 to 16384."""

NEEDED_IN_FLIGHT = 48 * 1024
"""Bytes per SM that must be on their way for the memory to be busy (H200: latency times bandwidth is about 45 KB)."""


def row_bounds(
    segment: Fusion,
    graph: IterationGraph,
    reduced: frozenset[Group],
    inputs: SegmentInputs,
    capacity: int,
    order: tuple[int, ...],
    groups: list[Group],
) -> tuple[tuple[str, int, int, int], ...] | Refused:
    """(input, dim, low, high) for each reduced dim of unknown extent, so that the product of the highs is at most `capacity`.

    The outermost one gets the room that is left: a kernel serves every row that its registers hold. A row that fills them is
    asked for exactly: then no access needs a test.
    """
    mine = [groups[d] for d in order if groups[d] in reduced]
    sizes = {g: inputs.evaluate(g.extent) for g in mine}
    result: list[tuple[str, int, int, int]] = []
    exact = math.prod(sizes.values()) == capacity
    room = capacity
    for g in reversed(mine):
        if g.extent.is_const:
            room //= sizes[g]
            continue
        place = next(
            (
                (t.name, d)
                for t in segment.input_tensors
                for d, dim in enumerate(t.visible)
                if graph.group(dim) is g and not dim.is_broadcast and not t.is_cpu
            ),
            None,
        )
        if place is None:
            return Refused(f"no input has the reduced dim {g.name}")
        others = math.prod(sizes[m] for m in mine if m is not g)
        limit = room if others == 1 or g is mine[0] else sizes[g]
        result.append((*place, sizes[g] if exact else 1, limit))
        room //= limit
    return tuple(result)
