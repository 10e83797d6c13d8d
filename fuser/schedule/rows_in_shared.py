"""Rows in shared memory: inner-persistent schedules whose rows are copied there asynchronously, and read by each stage.

Loops, with the names of `inner_persistent`, G blocks that go over the rows, and U accesses that are unrolled:

    G -> grid_x, K/G serial, R/(v*tx*B*C) = 1, C -> grid_y, B/U serial, U unrolled, tx -> block_x, v -> vector

Nothing of a row stays in registers between stages, so that threads are small and shared memory, not registers, says how many
blocks an SM holds. Each thread copies what it reads itself: no barrier stands between copy and reads. Where blocks go over the
rows, each copies the next row, access by access, behind the last read of this one: the load overlaps with the last stage and
its stores. That is never proposed: blocks that are handed out one by one share an SM's time better (benchmarks/NOTES.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.fusion import Pointwise, tensor_inputs, tensor_outputs
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.params import InnerPersistentParams
from fuser.schedule.reads import InputRead
from fuser.schedule.room_for_exchanges import BESIDE_ROW
from fuser.schedule.stages import reduced_groups_of

UNROLLED = 4
"""Accesses of a thread at once: enough loads of shared memory in flight, and bodies that the compiler still handles well."""


REGISTERS = 40
"""Registers of a thread, about: an access, its elements on their way through the arithmetic, statistics, addresses."""

WANTED_IN_FLIGHT = 96 * 1024
"""Bytes per SM from which more do not help: twice what latency times bandwidth is, because stages and stores take turns."""

WANTED_THREADS = 512
"""Threads per SM that keep its instruction pipes busy."""

HIDING_THREADS = 1536
"""Threads per SM that hide the latency of what is read beside the row, weights say."""

ALONE = 0.85
"""What each further exchange leaves of the speed of a block that has its SM to itself: nothing is loaded meanwhile."""

CLUSTER = 0.9
"""What rows over two blocks cost: both have to be there, and wait for each other."""

CLUSTER_STEP = 0.96
"""What each further doubling of a cluster costs."""

ACCESSES = 8
"""Accesses of a thread that are best where nothing else decides."""

FEW_ACCESSES = (0.6, 0.7, 0.9)
"""What blocks get done whose threads have one, two or three accesses: most of their time goes into exchanges."""

WARP = 32


@record
class SharedShape:
    """How a row is spread: over `cluster` blocks, `threads` of each along it, `batch` accesses of a thread; `resident` blocks
    share an SM and hold `in_flight` bytes."""

    threads: int
    batch: int
    cluster: int
    resident: int
    in_flight: int


def rows_to_place(
    full: Sequence[InputRead], vectorized: Collection[str], vector: int, device: DeviceInfo
) -> tuple[str, ...]:
    """Names of the row tensors if all can be copied asynchronously to shared memory, in whole accesses; else none."""
    fits = all(
        r.name == r.tensor.name and r.name in vectorized and vector * r.tensor.dtype.itemsize in (4, 8, 16)
        for r in full
    )
    return tuple(r.name for r in full) if fits and device.compute_capability >= (8, 0) else ()


def choose_shared_shape(
    length: int,
    vector: int,
    loaded: int,
    exchanges: int,
    device: DeviceInfo,
    *,
    reads_beside: bool = False,
) -> SharedShape | None:
    """The spread of rows of `length` elements, `loaded` bytes read for each; None if no cluster holds a row.

    exchanges      how often the threads of a row have to wait for one another
    reads_beside   whether the elements of a row need others that all rows share
    """
    wanted = HIDING_THREADS if reads_beside else WANTED_THREADS
    best: tuple[tuple[float, ...], SharedShape] | None = None
    for cluster in (1, 2, 4, 8, 16):
        if cluster > device.max_cluster or length < cluster * vector * WARP:
            break
        accesses = math.ceil(length / (vector * cluster))
        for threads in (32, 64, 128, 256, 512, 1024):
            batch = -(-accesses // threads)
            found = _shared_shape(threads, batch, cluster, vector * loaded, device)
            if found is None or accesses < threads:
                continue
            used = accesses / (threads * batch)
            score = min(found.in_flight * used, WANTED_IN_FLIGHT) * used
            score *= min(1.0, found.resident * threads / wanted)
            if found.resident == 1:
                score *= ALONE ** (exchanges - 1)
            if cluster > 1:
                score *= CLUSTER * CLUSTER_STEP ** (cluster.bit_length() - 2)
            if batch <= len(FEW_ACCESSES):
                score *= FEW_ACCESSES[batch - 1]
            key = score, -abs(math.log2(batch / ACCESSES))
            if best is None or key > best[0]:
                best = key, found
    return None if best is None else best[1]


def _shared_shape(threads: int, batch: int, cluster: int, access_bytes: int, device: DeviceInfo) -> SharedShape | None:
    held = threads * batch * access_bytes
    if held + BESIDE_ROW > device.shared_per_block_optin or threads > device.max_threads_per_block:
        return None
    resident = min(
        device.shared_per_sm // (held + BESIDE_ROW),
        device.max_threads_per_sm // threads,
        device.registers_per_sm // (REGISTERS * threads),
        device.max_blocks_per_sm,
    )
    return SharedShape(threads, batch, cluster, resident, resident * held) if resident else None


def params_in_shared(
    shape: SharedShape,
    order: tuple[int, ...],
    vector: int,
    vectorized: tuple[str, ...],
    bounds: tuple[tuple[str, int, int, int], ...],
    in_shared: tuple[str, ...],
    length: int,
    *,
    one_pass: bool,
) -> InnerPersistentParams:
    """The parameters for a shape, with reasons."""
    return InnerPersistentParams(
        order,
        shape.threads,
        1,
        shape.batch,
        vector,
        vectorized,
        bounds,
        shape.cluster,
        True,
        in_shared,
        one_pass=one_pass,
        reasons=(
            f"a row of {length} elements lies in the shared memory of {shape.cluster} blocks of {shape.threads} threads, "
            f"{shape.batch} accesses of {vector} each",
            f"{shape.resident} blocks and {shape.in_flight} bytes of rows per SM",
        ),
    )


def place_rows(builder: ScheduleBuilder, copies: dict[str, str], params: InnerPersistentParams) -> list[str]:
    """Put a copy of each row tensor into shared memory, between the input and its copy in registers; names of those made."""
    placed: list[str] = []
    for name in params.in_shared:
        if name not in copies:
            continue
        # Other reads of the row, at gathered indices, are of elements that other threads copy.
        if name in params.realigned:
            made = builder.cache_after(name, cached_uses=[copies[name]])
            builder.set_memory_type(made, MemoryType.shared)
        else:
            made = builder.cache_after(name, LoadStoreOpType.cp_async, cached_uses=[copies[name]])
        placed.append(made)
    return placed


def pass_through_registers(builder: ScheduleBuilder, placed: Iterable[str]) -> None:
    """A copy in registers before each row in shared memory that no asynchronous copy fills."""
    for name in placed:
        made = builder.definition(name)
        if made is not None and builder.state(name).op_type is not LoadStoreOpType.cp_async:
            builder.cache_after(tensor_inputs(made)[0].name, cached_uses=[name])


def unrolled(batch: int) -> int:
    """The largest number of accesses up to `UNROLLED` that divides those of a thread."""
    return next(u for u in range(min(UNROLLED, batch), 0, -1) if batch % u == 0)


def vectorize_rows(builder: ScheduleBuilder, placed: Iterable[str], *, misaligned: bool) -> None:
    """One access for each vector: copies to shared memory, and from there to registers in each stage.

    misaligned   the ends of a row may cut vectors
    """
    for name in placed:
        source = builder.definition(name)
        assert source is not None
        loaded = [t.name for t in tensor_inputs(source) if t.name not in builder.input_names]
        readers = [t.name for t in builder.consumers(name)]
        for each in (*loaded, name, *readers):
            state, innermost = builder.state(each), builder.innermost(each)
            if state.parallel_type(state.loop[innermost]) is not ParallelType.vectorize:
                builder.parallelize(each, innermost, ParallelType.vectorize)
            if misaligned:
                builder.allow_misaligned(each)


def inline_rows(
    builder: ScheduleBuilder,
    placed: list[str],
    *,
    persistent: bool,
    apart: Collection[str] = (),
) -> None:
    """Every stage in its own loops over the row; the rows in shared memory outside of those, one row ahead where blocks go
    over many, and what is to be `apart` outside of all loops."""
    ahead = _of_a_row(builder)
    if not persistent and not apart:
        builder.inline_most(limits=ahead)
        return
    outside = (*apart, *(placed if persistent else ()))
    builder.inline_most(
        [t.name for t in builder.tensors if t.name not in outside and t.name not in builder.input_names], ahead
    )
    for name in apart:
        builder.load_first(name)
    if not persistent:
        return
    for name in placed:
        builder.inline_at(name, 2, selected=[name])
        # As many rows as blocks go over them, which facts may say, leave no next row, and no loop.
        builder.load_ahead(name, best_effort=True)


def _of_a_row(builder: ScheduleBuilder) -> list[tuple[str, int]]:
    """What a single row has one of, and no loop: in those over its elements it would be computed for each of them, quotients
    and roots one after the other where elements are tested."""
    return [(n, 0) for n, state in builder.states.items() if state.loop and all(a.is_broadcast for a in state.loop)]


def take_together(builder: ScheduleBuilder, name: str, params: InnerPersistentParams) -> None:
    """Split off, as the last loop, the rows that a thread works on at once: those of a block, `vector` rows apart.

    Whatever the pitch is, rows so far apart begin at the same place behind an aligned one.
    """
    apart = params.vector if params.aligned_to else 1
    builder.split(name, 0, apart)
    builder.split(name, 0, params.together)
    last = len(builder.state(name).loop) - 1
    builder.reorder(name, {1: last})
    builder.merge(name, 0, 1)


def inline_together(builder: ScheduleBuilder, copies: Iterable[str], rows: int) -> None:
    """Every stage in its own loops; outside of the loop over the rows of a thread, which is number `rows`, what they share is
    read, and what each row has one of is computed. `copies`: of the inputs in registers."""
    graph = builder.graph()
    reduced = reduced_groups_of(builder)
    places: dict[str, int] = {}
    for copy in copies:
        axes = builder.state(copy).loop
        if rows < len(axes) and axes[rows].is_broadcast:
            places[copy] = rows
    for expr in builder.exprs:
        target = tensor_outputs(expr)[0]
        is_full = any(graph.group(d) in reduced and not d.is_broadcast for d in target.visible)
        if isinstance(expr, Pointwise) and not is_full:
            places[target.name] = min(1, len(builder.state(target.name).loop))
    builder.inline_most(limits=[*places.items()])
