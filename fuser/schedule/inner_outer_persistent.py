"""Backward normalisations: statistics of rows and sums of columns of one iteration space, in one pass over the data.

One cooperative kernel of as many blocks as the device holds. Each block goes through its share of the rows; a row is read
once, held in registers while its statistics are reduced over the block, and its results are written. Sums over the rows grow in
registers meanwhile. At the end every block joins what its rows side by side have and leaves it in device memory, the grid
waits, and all blocks together add up the parts, each for some columns, a thread many at a time: they come from a far cache.

Loops, with O the dims of the rows, I those along a row, and constants G (blocks), Z (rows side by side), U (rows in one trip),
v, tx, ty, B:

    pass    G -> grid_x, Z -> block_z, O/(G*Z*U) -> serial, U unrolled, I/(v*tx*ty*B) = 1, B unrolled, ty -> block_y,
            tx -> block_x, v -> vector
    sums    I/(tx*G) -> serial, G -> grid_x, tx -> block_x, G/(Z*ty*P) -> serial, P unrolled, Z -> block_z, ty -> block_y

Copies of the rows live outside the loop over U: the loads of all U rows are on their way before the first is used. Values
along a row alone, such as weights, are loaded once for all rows. What stages share is computed again in each from the copies,
because registers are what limits the rows in flight.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import GLOBAL_MEMORY, ParallelType, SchedulerType
from fuser.ir.fusion import (
    Fusion,
    Scan,
)
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.columns_in_blocks import ColumnsPass
from fuser.schedule.columns_model import choose_cluster_shape, choose_group_shape, side_by_side_time
from fuser.schedule.gradient_rows import SharedRows, choose_shared_rows
from fuser.schedule.independent_outputs import independent_outputs
from fuser.schedule.params import Accepted, InnerOuterParams, Params, ParamsClass, Refused, SegmentInputs
from fuser.schedule.pointwise import vectorize
from fuser.schedule.reference import resolving_graph
from fuser.schedule.row_shapes import NEEDED_IN_FLIGHT
from fuser.schedule.rows_in_shared import vectorize_rows
from fuser.schedule.sides import (
    Found,
    Load,
    SidesPass,
    choices_of,
    find_sides,
    kept_sizes,
    sides_of,
    sum_registers,
)

WARP = 32
BLOCK = 256
"""Threads that a block has at least, if there are rows for them."""
MOST_SIDE_BY_SIDE = 64
"""Threads of z that a block can have."""
SAFE_REGISTERS = 208
"""Registers that a thread is estimated to need at most, where there is a choice."""
PARTIAL_BYTES = 4
"""Bytes of a column sum, in registers and between blocks."""
SUMMING_BLOCKS = 100
"""Blocks that should have some columns to sum up: with so many the sums take no longer than with more."""
MOST_TRIPS = 16
"""Turns over its columns that a block takes before threads had better take columns than parts: each waits for a barrier."""
MOST_PARTS_AT_ONCE = 32
"""Parts of a column's sum that a thread asks for at once, a register each: nothing else is held then."""
WAIT_NS = 3000.0
"""What the wait of the grid and the sums after it cost at least."""
ALONE = 5.3
"""Microseconds that a kernel takes beside what is modelled (H200: 256x1000 bf16 9.1, 500x257 10.7, f32 100x5120 12.0)."""
OVERLAPPED, ONE_BLOCK = 0.8, 0.8
"""What is measured for what is modelled, where an SM has several blocks, and where it has one, its first trip apart."""
SURE = 0.97
"""The part of the time of rows in registers that rows in shared memory are expected to take at most."""
LEAST_APART = 200
"""Elements of rows that are worth kernels of their own; shorter ones lie side by side (f64 100003x64 52 us; 155)."""
BESIDE = (9, 0)
"""Devices that run two kernels side by side."""


@record
class PassShape:
    """How the pass is spread. `threads` share a row, B `batch` accesses each; see the head of this module for the others."""

    threads: int
    batch: int
    side_by_side: int
    rows: int
    per_sm: int
    blocks: int
    registers: int
    in_flight: int


class InnerOuterPersistentScheduler:
    """Accepts segments that reduce some dims of an iteration space and, apart from that, all its others."""

    type = SchedulerType.inner_outer_persistent
    params: ParamsClass = InnerOuterParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        scanned = next((e for e in segment.tensor_exprs if isinstance(e, Scan)), None)
        if scanned is not None:
            return Refused(f"{scanned.input.name} is scanned")
        graph = resolving_graph(segment)
        choices = choices_of(segment, graph)
        if not choices:
            refused = sides_of(segment, graph, first=True)
            assert isinstance(refused, Refused)
            return refused
        if len(choices) == 1:
            # What `propose` asks for any sizes.
            kept_sizes(segment, graph, choices[0])
            sum_registers(segment, choices[0])
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        found = find_sides(segment, inputs)
        if isinstance(found, Refused):
            return found
        apart = math.inf
        if found.length >= LEAST_APART and can_be_apart(segment) and device.compute_capability >= BESIDE:
            apart = side_by_side_time(found.length, found.rows, found.load)
        near = self._in_cluster(found, inputs, device, apart) or self._in_rows(found, inputs, device, apart)
        return near if isinstance(near, InnerOuterParams) else self._in_group(found, inputs, device) or near

    def _in_group(self, found: Found, inputs: SegmentInputs, device: DeviceInfo) -> InnerOuterParams | None:
        """Parameters for rows over all blocks of the grid, where that should be faster than two kernels."""
        shape = choose_group_shape(found.length, found.rows, found.vector, found.load, device)
        if shape is None:
            return None
        capacity = shape.threads * shape.batch * shape.vector * shape.sharing
        bounds = found.bounds(inputs, capacity, shape.rows if shape.trips == 1 else 0)
        if isinstance(bounds, Refused):
            return None
        return InnerOuterParams(
            found.order,
            found.sides.reference.name,
            shape.threads,
            1,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            1,
            shape.rows,
            1,
            1,
            shape.ahead,
            bounds,
            shape.sharing,
            in_shared=found.read if shape.in_shared else (),
            reasons=(
                f"a row of {found.length} elements lies over {shape.sharing} blocks of the grid, {shape.threads} threads with "
                f"{shape.batch} accesses of {shape.vector} each",
                f"{shape.trips} trips over {shape.rows} of {found.rows} rows: about {shape.time:.1f} us, {shape.registers} "
                "registers",
            ),
        )

    def _in_cluster(
        self, found: Found, inputs: SegmentInputs, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | None:
        """Parameters for one cluster that has all rows, where that should be faster than anything else, as two kernels are."""
        shape = choose_cluster_shape(found.length, found.rows, found.vector, found.load, device, apart)
        if shape is None:
            return None
        capacity = shape.threads * shape.batch * shape.vector * shape.sharing
        bounds = found.bounds(inputs, capacity, shape.blocks * shape.side_by_side * shape.rows)
        if isinstance(bounds, Refused):
            return None
        what = "columns" if shape.sharing > 1 else "rows"
        return InnerOuterParams(
            found.order,
            found.sides.reference.name,
            shape.threads,
            1,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            shape.side_by_side,
            shape.rows,
            shape.blocks,
            1,
            False,
            bounds,
            shape.sharing,
            True,
            reasons=(
                f"{found.rows} rows of {found.length} elements are held at once by {shape.sharing * shape.blocks} blocks of a "
                f"cluster, which have {what} of their own",
                f"{shape.side_by_side} rows side by side, {shape.threads} threads with {shape.batch} accesses of "
                f"{shape.vector} each, {shape.rows} rows a thread: about {shape.time:.1f} us, {shape.registers} registers",
            ),
        )

    def _in_rows(
        self, found: Found, inputs: SegmentInputs, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | Refused:
        """Parameters for blocks that have rows of their own, where that should be faster than two kernels."""
        length, rows, vector, load = found.length, found.rows, found.vector, found.load
        shape = choose_pass_shape(length, rows, vector, load, device)
        time = math.inf
        if not isinstance(shape, Refused):
            cost = _model(shape, length, rows, vector, load, device)[1] / 1000
            trips = -(-rows // (shape.blocks * shape.side_by_side * shape.rows))
            time = ALONE + cost * (OVERLAPPED if shape.per_sm > 1 else ONE_BLOCK + 1 / trips)
        shared = choose_shared_rows(found, device)
        if shared is not None and shared.time < SURE * time:
            return self._in_shared(found, inputs, shared, device, apart)
        if isinstance(shape, Refused):
            return shape
        if apart < time:
            return Refused(f"two kernels should take {apart:.1f} us, one {time:.1f}")
        bounds = found.bounds(inputs, shape.threads * shape.batch * vector)
        if isinstance(bounds, Refused):
            return bounds
        across = columns_of_block(length, shape)
        trip = shape.side_by_side * shape.rows
        trips = -(-rows // (shape.blocks * trip))
        return InnerOuterParams(
            found.order,
            found.sides.reference.name,
            across,
            shape.threads // across,
            shape.batch,
            vector,
            found.vectorized,
            shape.side_by_side,
            shape.rows,
            shape.blocks,
            shape.per_sm,
            trips > 1,
            bounds,
            reasons=(
                f"a row of {length} elements is {-(-length // vector)} accesses of {vector}: {shape.batch} for each of "
                f"{shape.threads} threads",
                f"{shape.blocks} blocks, {shape.per_sm} on each SM: about {shape.registers} registers a thread, "
                f"{shape.in_flight} bytes in flight per SM",
                f"every block makes {trips} trips over {trip} rows, and leaves {load.sums} sums of {length} columns",
            ),
        )

    def _in_shared(
        self, found: Found, inputs: SegmentInputs, shape: SharedRows, device: DeviceInfo, apart: float
    ) -> InnerOuterParams | Refused:
        """Parameters for blocks that have rows of their own in shared memory, where two kernels should take longer."""
        if apart < shape.time:
            return Refused(f"two kernels should take {apart:.1f} us, one {shape.time:.1f}")
        bounds = found.bounds(inputs, shape.threads * shape.batch * shape.vector)
        if isinstance(bounds, Refused):
            return bounds
        blocks = min(device.sm_count, found.rows)
        across = columns_of_block(
            found.length, PassShape(shape.threads, shape.batch, 1, 1, 1, blocks, shape.registers, 0)
        )
        return InnerOuterParams(
            found.order,
            found.sides.reference.name,
            across,
            shape.threads // across,
            shape.batch,
            shape.vector,
            found.vectorized if shape.vector > 1 else (),
            1,
            1,
            blocks,
            1,
            blocks < found.rows,
            bounds,
            in_shared=found.read,
            reasons=(
                f"{shape.threads} threads for a row of {found.length} elements, {shape.batch} accesses of {shape.vector} each",
                f"{blocks} blocks, with two rows each in shared memory: about {shape.time:.1f} us, {shape.registers} registers",
            ),
        )

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerOuterParams)
        if params.sharing > 1 or params.in_cluster:
            return ColumnsPass(segment, params.order, params.reference).schedule(params)
        return _Pass(segment, params.order, params.reference).schedule(params)


@lru_cache(maxsize=256)
def can_be_apart(segment: Fusion) -> bool:
    """Whether rows and columns can be kernels of their own that need nothing of each other. It follows from the structure."""
    return bool(independent_outputs(segment))


# --- shape ------------------------------------------------------------------------------------------------------------


def choose_pass_shape(length: int, rows: int, vector: int, load: Load, device: DeviceInfo) -> PassShape | Refused:
    """The shape that a model of time finds fastest.

    A thread holds the rows of one trip and those of the next. Time is that of the memory, as far as enough bytes are in
    flight and blocks overlap, for the rows of the longest block; then each block's sums are written and read again through the
    second-level cache.
    """
    accesses = -(-length // vector)
    best: tuple[tuple[float, ...], PassShape] | None = None
    for batch in range(1, 65):
        threads = -(-accesses // batch)
        threads = 1 << (threads - 1).bit_length() if threads <= WARP else -(-threads // WARP) * WARP
        if threads > device.max_threads_per_block or (batch > 1 and -(-accesses // threads) < batch):
            continue
        room = min(BLOCK, device.max_threads_per_block) // threads
        side_by_side = max(1, min(room, rows // device.sm_count, MOST_SIDE_BY_SIDE))
        side_by_side = 1 << (side_by_side.bit_length() - 1)
        block = -(-threads * side_by_side // WARP) * WARP
        for trip in (1, 2):
            # Accesses of one element have tests and addresses of their own.
            tests = 4 * trip if vector == 1 else 0
            # When the second row is computed the registers of the first are free again.
            loads = 2 * trip * load.row_registers - (trip - 1) * load.row_registers // 2
            per_access = loads + load.held_registers + load.kept_registers + tests
            registers = load.own_registers + 8 * (side_by_side > 1) + batch * per_access
            registers = -(-registers // 8) * 8
            if registers > device.registers_per_thread:
                continue
            most = min(
                device.max_blocks_per_sm,
                device.max_threads_per_sm // block,
                device.registers_per_sm // (block * registers),
            )
            for per_sm in range(1, most + 1):
                if _granted(per_sm, block, device) < registers:
                    continue
                shape, cost = _model(
                    PassShape(threads, batch, side_by_side, trip, per_sm, 0, registers, 0),
                    length,
                    rows,
                    vector,
                    load,
                    device,
                )
                # The last registers are those that the model may miss.
                key = (registers > SAFE_REGISTERS, cost, float(per_sm))
                if best is None or key < best[0]:
                    best = key, shape
    if best is None:
        return Refused(f"a row of {length} elements does not fit in the registers of a block")
    return best[1]


def _granted(per_sm: int, block: int, device: DeviceInfo) -> int:
    """Registers that a thread may have if `per_sm` blocks are asked for: bounds are in blocks of the rung's size."""
    top, most = rung_of(block)
    return min(most, device.registers_per_sm // (top * -(-per_sm * block // top)) // 8 * 8)


def _model(
    shape: PassShape, length: int, rows: int, vector: int, load: Load, device: DeviceInfo
) -> tuple[PassShape, float]:
    """The shape with its grid and bytes in flight, and its time in ns."""
    together = shape.side_by_side * shape.rows
    blocks = min(device.sm_count * shape.per_sm, -(-rows // together))
    trips = -(-rows // (blocks * together))
    used = length / (shape.threads * shape.batch * vector)
    held = shape.per_sm * shape.threads * shape.side_by_side * shape.batch * vector * shape.rows
    in_flight = int(held * load.loaded * used)
    # A block that waits for its barriers, the longer the more warps meet there, leaves the SM to the others.
    warps = shape.threads / WARP
    resident = shape.per_sm * warps * shape.side_by_side
    overlap = resident / (resident + 1) / (1 + 0.012 * warps) * shape.per_sm / (shape.per_sm + 0.1)
    busy = min(1.0, in_flight / NEEDED_IN_FLIGHT) * overlap
    moved = trips * blocks * together * length * load.moved
    parts = blocks * length * load.sums * PARTIAL_BYTES
    cost = moved / (device.memory_bytes_per_ns * busy) + 2 * parts / (1.5 * device.memory_bytes_per_ns) + WAIT_NS
    made = PassShape(
        shape.threads, shape.batch, shape.side_by_side, shape.rows, shape.per_sm, blocks, shape.registers, in_flight
    )
    return made, cost


def columns_of_block(length: int, shape: PassShape) -> int:
    """Threads of x: columns that a block sums up at once. As many as leave most SMs some; 32 bytes of each part at least.

    Few blocks would take their columns in a hundred trips: there no more threads share a column than it has parts.
    """
    width = min(WARP, shape.threads)
    while width > 8 and length < width * min(shape.blocks, SUMMING_BLOCKS):
        width //= 2
    width = math.gcd(width, shape.threads)
    if length <= MOST_TRIPS * width * shape.blocks:
        return width
    sharing = next(n for n in range(min(shape.blocks, shape.threads), 0, -1) if shape.threads % n == 0)
    return max(width, shape.threads // sharing)


# --- schedule ---------------------------------------------------------------------------------------------------------


class _Pass(SidesPass):
    """Makes the schedule; one use."""

    params: InnerOuterParams

    def schedule(self, params: InnerOuterParams) -> ScheduleBuilder:
        """The whole schedule."""
        self.params = p = params
        b = self.builder
        # Where the loops over rows begin and end in the reference.
        self.trips = 1 + (p.side_by_side > 1)
        self.within = self.trips + 1 + (p.rows > 1)
        for tensor, dim, low, high in p.bounds:
            b.ask_extent_within(tensor, dim, low, high)
        b.ask_blocks_per_sm(p.blocks_per_sm)
        late, copies, _ = self.compute(p.in_shared)
        row, column = self.reductions()
        reference = row[0]
        for name in (reference, *column):
            self.order_dims(name)
        self._cut_rows(reference)
        b.transform_like(reference, column)
        parts = [part for name in column for part in self._parts(name)]
        got = {b.cache_after(part) for part in parts}
        self._cut_columns(reference)
        siblings = {s for name in column for s in b.siblings(name)}
        after = self.after(column) | late
        main = [t.name for t in b.tensors if t.name not in after | siblings | got | b.input_names]
        others = [n for n in main if n not in b.siblings(reference)]
        b.transform_like(reference, others)
        types = {0: ParallelType.grid_x, self.within + 2: ParallelType.block_y, self.within + 3: ParallelType.block_x}
        if p.side_by_side > 1:
            types[1] = ParallelType.block_z
        for position, parallel_type in types.items():
            b.parallelize(reference, position, parallel_type)
        b.parallelize_like(reference, -1, others)
        left = {self._leave(part) for part in parts}
        asked = self._add_up(column, sorted(((after | siblings) - b.input_names) | got))
        vectorize(b, copies, [a for a in p.vectorized if a in copies and a not in self.placed])
        if p.vector > 1:
            vectorize_rows(b, self.placed.values(), misaligned=False)
        loaded = {self.placed.get(n, copies[n]) for n in b.input_names if n in copies} & set(main)
        b.inline_most([t.name for t in b.tensors if t.name not in loaded | left | got | b.input_names])
        for name in column:
            b.inline_at(name, asked, True, sorted(got))
        rows = self.rowwise(loaded)
        if rows:
            b.inline_at(reference, self.within - (p.rows > 1), selected=rows)
        for name in rows if p.ahead else ():
            b.load_ahead(name, best_effort=True, trips=2 if name in self.placed.values() else 1)
        return b

    def _cut_rows(self, name: str) -> None:
        """O -> G, [Z,] O/(G*Z*U), [U]."""
        b, p = self.builder, self.params
        for _ in range(len(self.order) - len(self.along) - 1):
            b.merge(name, 0, 1)
        together = p.side_by_side * p.rows
        b.split(name, 0, p.blocks * together)
        if together > 1:
            b.split(name, 1, together)
        if p.side_by_side > 1 and p.rows > 1:
            b.split(name, 2, p.rows)
        b.reorder(name, {0: self.trips})

    def _cut_columns(self, name: str) -> None:
        """I -> I/(v*tx*ty*B), B, ty, tx, [v]."""
        b, p = self.builder, self.params
        at = self.within
        for _ in range(len(self.along) - 1):
            b.merge(name, at, at + 1)
        if p.vector > 1:
            b.split(name, at, p.vector)
        b.split(name, at, p.across)
        b.split(name, at, p.along)
        b.split(name, at, p.batch)

    def _parts(self, name: str) -> tuple[str, ...]:
        """The sums that a block has of its own rows."""
        made = self.builder.rfactor(name, range(1, self.within))
        return (made,) if isinstance(made, str) else made

    def _leave(self, part: str) -> str:
        """The copy of such sums in device memory, in accesses as wide as can be."""
        b = self.builder
        name = b.cache_after(part)
        b.set_memory_type(name, GLOBAL_MEMORY)
        if self.params.vector > 1:
            loop = b.state(name).loop
            innermost = max(i for i, axis in enumerate(loop) if not axis.is_broadcast)
            wide = max(1, 16 // b.state(name).tensor.dtype.itemsize)
            if self.params.vector > wide:
                b.split(name, innermost, wide)
                innermost += 1
            b.parallelize(name, innermost, ParallelType.vectorize)
        return name

    def _add_up(self, column: list[str], after: list[str]) -> int:
        """Spread the columns over all blocks, and what was left for one of them over threads.

        A thread asks for several parts before it adds the first: else it would wait for each of them. Returns the position of
        the loop over those.
        """
        b, p = self.builder, self.params
        name = column[0]
        # G, I, dims of one element
        count = len(self.along)
        b.reorder(name, {0: count})
        for _ in range(count - 1):
            b.merge(name, 0, 1)
        b.split(name, 0, p.across)
        b.split(name, 0, p.blocks)  # I/(tx*G), G, tx, the parts of G blocks
        b.split(name, 3, p.along)
        if p.side_by_side > 1:
            b.split(name, 3, p.side_by_side)
        b.split(name, 3, parts_at_once(p.blocks, p.along * p.side_by_side))
        rest = [n for n in after if n not in b.siblings(name)]
        b.transform_like(name, rest)
        types = {1: ParallelType.grid_x, 2: ParallelType.block_x, 4: ParallelType.unswitch}
        if p.side_by_side > 1:
            types[5] = ParallelType.block_z
        types[5 + (p.side_by_side > 1)] = ParallelType.block_y
        for position, parallel_type in types.items():
            b.parallelize(name, position, parallel_type)
        b.parallelize_like(name, -1, rest)
        return 4


def parts_at_once(blocks: int, threads: int) -> int:
    """Parts that one of the `threads` asks for at once, of those that `blocks` have left: few turns, all nearly full."""
    each = -(-blocks // threads)
    return -(-each // -(-each // MOST_PARTS_AT_ONCE))
