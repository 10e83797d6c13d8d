"""Rows that lie in memory as short odd parts, neighbours of other rows' parts: batch norm of images of 7 x 7, say.

Channel c of an image is a run of B elements, that of the next image lies K * B elements further on. Where B is odd no access is
wider than an element, and a channel's part begins and ends within a sector that it shares with its neighbours'. G parts of
neighbouring channels are one run of G * B elements, in whole vectors if G is as many as a vector has.

Loops, with A parts of each of K rows and constants G, T, v:

    between device and shared memory   K/G -> grid_x, trips unswitched, G -> block_y, T -> block_x, v -> vector   of (A, G * B)
    everything else                    K/G -> grid_x, G -> block_y, B/T = 1, A unrolled, T -> block_x

A block's rows lie in shared memory as they do in device memory, [A][G][B], and so do its results before they are written.
"""

from __future__ import annotations

import math

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.fusion import Fusion
from fuser.ir.iteration_graph import Group
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.layout import ACCESS_BYTES, Argument, arguments_of
from fuser.schedule.params import InnerPersistentParams, Refused, SegmentInputs
from fuser.schedule.pointwise import cache_arguments
from fuser.schedule.room_for_exchanges import DRIVER, EXCHANGES
from fuser.schedule.rows import Rows, runs_of
from fuser.schedule.rows_over_grid import DEVICE_RATE, SM_RATE
from fuser.schedule.stages import keep_stages

ELEMENT_RATE = 1.9e6
"""Bytes a microsecond of a whole device by accesses of two bytes, of rows with statistics (batch norm bf16 64x2048x7x7)."""
BESIDE = 0.7
"""Microseconds that the way through shared memory takes by itself."""
WORTH = 0.9
"""The part of the time of accesses by element that a bundle is expected to take at most."""
LEAST_BUSY = 0.6
"""Of the threads along a part, how many have an element of it: whole warps are. A thread has that of each part, one after the
other, whose places follow from the first; along all parts in turn each takes two divisions (20.3 us for bf16 64x2048x7x7)."""
MOST_PARTS = 64
"""Elements of a thread: each has code of its own."""
WARP = 32


def propose_bundle(
    segment: Fusion, found: Rows, inputs: SegmentInputs, device: DeviceInfo, *, one_pass: bool
) -> InnerPersistentParams | None:
    """Parameters for rows in bundles, where those should be faster than accesses by element; None if they do not apply."""
    if found.accesses.vector > 1 or found.accesses.misaligned or not found.is_apart or found.along != found.reads:
        return None
    order = [found.groups[d] for d in found.order if not found.groups[d].is_broadcast]
    kept = [k for k, g in enumerate(order) if g not in found.reduced]
    if len(kept) != 1 or any(o.alias_of is not None for o in segment.outputs):
        return None
    along = [a for a in arguments_of(found.graph, segment, inputs) if any(g in found.reduced for g in a.strides)]
    if not along:
        # Rows of one element, or of one that is seen many times: there are no parts to copy.
        return None
    widest = max(a.tensor.dtype.itemsize for a in along)
    vector = ACCESS_BYTES // widest
    names = {a.name for a in along}
    extent = [inputs.evaluate(g.extent) for g in order]
    rows, part = extent[kept[0]], math.prod(extent[kept[0] + 1 :])
    if widest > 2 or rows % vector or not all(_is_dense(a, found, order, extent, vector) for a in along):
        return None
    if any(r.name not in names for r in found.reads):
        return None
    threads = -(-part // WARP) * WARP
    element = sum(a.tensor.dtype.itemsize for a in along)
    shared = vector * found.length * element + EXCHANGES
    if (
        part < LEAST_BUSY * threads
        or found.length > MOST_PARTS * part
        or threads * vector > device.max_threads_per_block
        or shared > device.shared_per_block_optin
    ):
        return None
    blocks = rows // vector
    resident = min(device.shared_per_sm // (shared + DRIVER), device.max_threads_per_sm // (threads * vector))
    busy = min(blocks, device.sm_count)
    per_sm = -(-blocks // device.sm_count)
    waves = -(-per_sm // max(1, min(per_sm, resident)))
    time = BESIDE * waves + per_sm * vector * found.length * element / min(SM_RATE, DEVICE_RATE / busy)
    by_element = rows * found.length * element / ELEMENT_RATE
    if time > WORTH * by_element:
        return None
    batch = -(-found.length // (vector * threads))
    bounds = found.bounds(segment, inputs, found.length)
    if isinstance(bounds, Refused):
        return None
    return InnerPersistentParams(
        found.order,
        threads,
        vector,
        batch,
        vector,
        tuple(sorted(names)),
        bounds,
        one_pass=one_pass,
        # Else ptxas takes so few registers that loads of a thread wait for one another.
        resident=max(1, min(per_sm, resident)),
        bundle=vector,
        reasons=(
            f"parts of {part} elements, of {vector} rows each time, are whole vectors of {vector}: they pass through shared "
            f"memory, {shared} bytes a block",
            f"{threads} threads along a part; about {time:.1f} us, {by_element:.1f} by element",
        ),
    )


def _is_dense(a: Argument, found: Rows, order: list[Group], extent: list[int], vector: int) -> bool:
    """Whether an argument lies as the loops go, without gaps, from an aligned address on."""
    running = 1
    for g, n in zip(reversed(order), reversed(extent), strict=True):
        if n != 1 and a.stride(g) != running:
            return False
        running *= n
    return a.displaced is None and a.alignment % (vector * a.tensor.dtype.itemsize) == 0


def schedule_bundle(builder: ScheduleBuilder, params: InnerPersistentParams, name: str) -> ScheduleBuilder:
    """Schedule rows in bundles, `name` being the result of a reduction of them. Statistics have their passes already."""
    copies = cache_arguments(builder)
    placed: list[str] = []
    wide: list[str] = []
    gathered: list[str] = []
    for argument in params.vectorized:
        if argument in builder.output_names:
            gathered.append(builder.cache_before(argument))
            builder.set_memory_type(gathered[-1], MemoryType.shared)
            wide += [builder.cache_before(argument), argument]
        else:
            placed.append(builder.cache_after(argument, LoadStoreOpType.cp_async, cached_uses=[copies[argument]]))
    keep_stages(builder, inputs_only=True)
    wide += placed
    # [K/G, G, A, B]
    _arrange(builder, name, params)
    builder.transform_like(name)
    for shared in (*placed, *gathered):
        builder.set_allocation_domain(shared, [f"loop:{i}" for i in (0, 2, 1, 3)])
    narrow = [t.name for t in builder.tensors if t.name not in (*wide, name, *builder.input_names)]
    # [K/G, G, B/T, A, T]
    builder.split(name, 3, params.threads)
    builder.reorder(name, {2: 3})
    builder.transform_like(name, narrow)
    of_block = {0: ParallelType.grid_x, 4: ParallelType.block_x}
    _parallelize(builder, name, narrow, {**of_block, 1: ParallelType.block_y, 3: ParallelType.unroll})
    first, *others = wide
    builder.reorder(first, {1: 2})
    builder.merge(first, 2, 3)
    builder.split(first, 2, params.vector)
    builder.merge(first, 1, 2)
    builder.split(first, 1, params.threads)
    builder.split(first, 1, params.bundle)
    builder.split(first, 1, params.batch)
    builder.transform_like(first, others)
    _parallelize(builder, first, others, {**of_block, 3: ParallelType.block_y, 2: ParallelType.unswitch})
    for each in wide:
        builder.parallelize(each, 5, ParallelType.vectorize)
    builder.inline_most()
    if params.resident:
        builder.ask_blocks_per_sm(params.resident)
    return builder


def _arrange(builder: ScheduleBuilder, name: str, params: InnerPersistentParams) -> None:
    """The loops as [K/G, G, A, B], those of one element behind them."""
    loop = builder.state(name).loop
    graph = builder.graph()
    trivial = [d for d in params.order if graph.group(loop[d]).is_broadcast]
    reduced = [d for d in params.order if d not in trivial and loop[d].is_reduction]
    kept = [d for d in params.order if d not in trivial and d not in reduced]
    runs = runs_of(params.order, trivial, reduced)
    builder.reorder(name, {d: p for p, d in enumerate([*kept, *reduced, *trivial])})
    for at, count in enumerate(runs):
        for _ in range(count - 1):
            builder.merge(name, 1 + at, 2 + at)
    builder.split(name, 0, params.bundle)


def _parallelize(builder: ScheduleBuilder, name: str, others: list[str], types: dict[int, ParallelType]) -> None:
    for position, kind in types.items():
        builder.parallelize(name, position, kind)
    builder.parallelize_like(name, 5, others)
