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
from collections.abc import Collection, Iterable

from fuser.ir.device_info import DeviceInfo
from fuser.ir.enums import GLOBAL_MEMORY, ParallelType, SchedulerType
from fuser.ir.fusion import (
    ExpSum,
    Fusion,
    IterDomain,
    Reducing,
    Scan,
    Tensor,
    TensorExpr,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.schedule import ScheduleBuilder
from fuser.ir.wide_results import wide_results
from fuser.records import record
from fuser.runtime.variants import rung_of
from fuser.schedule.inner_persistent import NEEDED_IN_FLIGHT
from fuser.schedule.params import Accepted, InnerOuterParams, Params, ParamsClass, Refused, SegmentInputs
from fuser.schedule.pointwise import vectorize
from fuser.schedule.reduction import reduced_groups, reductions_of, separate_results
from fuser.schedule.reference import choose_vector, dim_groups, dim_order, resolving_graph, tangled_dims, uncovered
from fuser.schedule.rows import row_bounds
from fuser.schedule.stages import keep_stages

WARP = 32
BLOCK = 256
"""Threads that a block has at least, if there are rows for them."""
MOST_SIDE_BY_SIDE = 64
"""Threads of z that a block can have."""
OWN_REGISTERS = 30
"""Registers of a thread beside row data and column sums: addresses, statistics, temporaries."""
REST_REGISTERS = 16
"""Temporaries of sums that keep what their roundings leave over."""
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


@record
class Sides:
    """The two kinds of reductions of a segment: `row` results are reduced over the dims `along` a row, `column` ones over all
    `others`, which tell the rows apart."""

    reference: Tensor
    along: frozenset[Group]
    others: frozenset[Group]
    row: tuple[Tensor, ...]
    column: tuple[Tensor, ...]

    def is_full(self, graph: IterationGraph, t: Tensor) -> bool:
        """Whether a tensor has elements of its own along and across rows."""
        own = _concrete(graph, t)
        return bool(own & self.along) and bool(own & self.others)


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
        first = sides_of(segment, graph, first=True)
        if isinstance(first, Refused) and isinstance(sides_of(segment, graph, first=False), Refused):
            return first
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        graph = resolving_graph(segment)
        choices = _choices(segment, graph)
        reference = choices[0].reference
        groups = dim_groups(graph, reference)
        order = dim_order(graph, segment, reference, inputs)
        sides = next((s for s in choices if groups[order[-1]] in s.along), None)
        if sides is None:
            return Refused("the fastest dim is not one along the rows")
        groups = dim_groups(graph, sides.reference)
        order = dim_order(graph, segment, sides.reference, inputs)
        order = tuple(sorted(order, key=lambda d: (not groups[d].is_broadcast, groups[d] in sides.along)))
        extent = {g: inputs.evaluate(g.extent) for g in groups}
        length = math.prod(extent[g] for g in groups if g in sides.along)
        rows = math.prod(extent[g] for g in groups if g in sides.others)
        if length < 1 or rows < 1:
            return Refused("there is no element")
        read = [t for t in segment.input_tensors if not t.is_cpu and sides.is_full(graph, t)]
        written = [t for t in segment.output_tensors if sides.is_full(graph, t)]
        if not read:
            return Refused("no input has rows")
        widest = max(t.dtype.itemsize for t in (*read, *written))
        vector, vectorized = choose_vector(graph, segment, groups[order[-1]], inputs, max(1, 16 // widest))
        sums = {t.name for t in segment.output_tensors if not sides.is_full(graph, t)}
        weights = [
            t for t in segment.input_tensors if not t.is_cpu and t not in read and _concrete(graph, t) & sides.along
        ]
        names = {tensor_outputs(e)[0].name for e in reductions_of(segment)}
        load = Load(
            loaded=sum(t.dtype.itemsize for t in read),
            moved=sum(t.dtype.itemsize for t in (*read, *written)),
            row_registers=_registers(read, vector),
            held_registers=_registers(weights, vector) + vector * _sums(segment, sides),
            kept_registers=_registers(_Pass(segment, order, sides.reference.name).kept(), vector),
            sums=len(sides.column),
            own_registers=OWN_REGISTERS + (REST_REGISTERS if wide_results(ScheduleBuilder(segment)) & names else 0),
        )
        shape = choose_pass_shape(length, rows, vector, load, device)
        if isinstance(shape, Refused):
            return shape
        capacity = shape.threads * shape.batch * vector
        bounds = row_bounds(segment, graph, sides.along, inputs, capacity, order, groups)
        if isinstance(bounds, Refused):
            return bounds
        across = columns_of_block(length, shape)
        trip = shape.side_by_side * shape.rows
        return InnerOuterParams(
            order,
            sides.reference.name,
            across,
            shape.threads // across,
            shape.batch,
            vector,
            tuple(n for n in vectorized if n not in sums),
            shape.side_by_side,
            shape.rows,
            shape.blocks,
            shape.per_sm,
            True,
            bounds,
            (
                f"a row of {length} elements is {-(-length // vector)} accesses of {vector}: {shape.batch} for each of "
                f"{shape.threads} threads",
                f"{shape.blocks} blocks, {shape.per_sm} on each SM: about {shape.registers} registers a thread, "
                f"{shape.in_flight} bytes in flight per SM",
                f"every block makes {-(-rows // (shape.blocks * trip))} trips over {trip} rows, and leaves "
                f"{len(sides.column)} sums of {length} columns",
            ),
        )

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, InnerOuterParams)
        return _Pass(segment, params.order, params.reference).schedule(params)


# --- structure --------------------------------------------------------------------------------------------------------


def _choices(segment: Fusion, graph: IterationGraph) -> list[Sides]:
    found = (sides_of(segment, graph, first=first) for first in (True, False))
    return [s for s in found if isinstance(s, Sides)]


def sides_of(segment: Fusion, graph: IterationGraph, *, first: bool) -> Sides | Refused:
    """The reductions of a segment by what they reduce; rows are what the first one reduces, or what it does not."""
    results = [tensor_outputs(e)[0] for e in reductions_of(segment)]
    if not results:
        return Refused("nothing is reduced")
    reduced = {t: _reduced(graph, t) for t in results}
    kinds = list(dict.fromkeys(reduced.values()))
    if len(kinds) != 2 or not all(kinds):
        return Refused("what is reduced is not two sets of dimensions")
    along, others = kinds if first else reversed(kinds)
    if along & others:
        return Refused("some dimension is reduced together with two sets of others")
    row = tuple(t for t in results if reduced[t] == along)
    column = tuple(t for t in results if reduced[t] == others)
    for t in results:
        if {g for g in dim_groups(graph, t) if not g.is_broadcast} != along | others:
            return Refused(f"{t.name} is reduced from less than the whole iteration space")
    missing = uncovered(graph, row[0], segment)
    if missing is not None:
        return Refused(f"{missing.name} has a dimension that {row[0].name} does not have")
    tangled = tangled_dims(segment, graph)
    if tangled is not None:
        return Refused(tangled)
    sides = Sides(row[0], along, others, row, column)
    if len(_dims(segment, graph, along | others)) < len(along | others):
        return Refused("no input has some dimension of the iteration space")
    after = _downstream(segment.tensor_exprs, column)
    late = next((t for t in after if any(graph.group(d) in others for d in t.visible)), None)
    if late is not None:
        return Refused(f"{late.name} has rows and needs sums over all rows")
    return _outputs_refused(segment, graph, sides, after) or sides


def _outputs_refused(segment: Fusion, graph: IterationGraph, sides: Sides, after: Collection[Tensor]) -> Refused | None:
    """Why an output is neither of full size, nor one value for each row or each column, or None."""
    statistics = _downstream(segment.tensor_exprs, sides.row)
    for t in segment.output_tensors:
        own = _concrete(graph, t)
        if t in segment.input_tensors:
            return Refused(f"the output {t.name} is an input")
        is_sum = t in after or t in sides.column
        is_statistic = t in statistics or t in sides.row
        if own != (sides.along if is_sum else sides.along | sides.others) and not (
            is_statistic and own == sides.others
        ):
            return Refused(f"the output {t.name} is neither of full size nor a statistic of rows nor a sum of columns")
    return None


def _concrete(graph: IterationGraph, t: Tensor) -> frozenset[Group]:
    """Groups of the dims along which a tensor has elements of its own."""
    return frozenset(graph.group(d) for d in t.visible if not d.is_broadcast)


def _reduced(graph: IterationGraph, t: Tensor) -> frozenset[Group]:
    return frozenset(g for g in reduced_groups(graph, t) if not g.is_broadcast)


def _downstream(exprs: Iterable[TensorExpr], sources: Iterable[Tensor]) -> list[Tensor]:
    """Tensors computed from some others, in order. `exprs` are in order; siblings of a source do not count."""
    reached = set(sources)
    found: list[Tensor] = []
    siblings = {
        t for e in exprs if isinstance(e, Welford) and reached & set(tensor_outputs(e)) for t in tensor_outputs(e)
    }
    reached |= siblings
    for e in exprs:
        if any(t in reached for t in tensor_inputs(e)):
            for t in tensor_outputs(e):
                if t not in reached:
                    reached.add(t)
                    found.append(t)
    return found


def _registers(tensors: Iterable[Tensor], vector: int) -> int:
    """Registers of an access to each of some tensors."""
    return sum(-(-vector * t.dtype.itemsize // 4) for t in tensors)


def _sums(segment: Fusion, sides: Sides) -> int:
    """Registers of a column's sums: Welford has a mean, a sum of squares, what they are differences from and, at the end, a
    long count; beside a sum that shows to more than 16 bits is what its roundings left over."""
    wide = wide_results(ScheduleBuilder(segment))
    results = [(e, tensor_outputs(e)[0]) for e in reductions_of(segment) if tensor_outputs(e)[0] in sides.column]
    numbers = ((5 if isinstance(e, Welford) else 2 if t.name in wide else 1, t.dtype.itemsize) for e, t in results)
    return sum(count * max(1, size // 4) for count, size in numbers)


# --- shape ------------------------------------------------------------------------------------------------------------


@record
class Load:
    """What a row costs. Bytes of an element: `loaded` from memory, `moved` in all. Registers of an access: for a row, those
    held for all rows, and those that values kept between stages take while a row is computed. `sums`: how many a column has.
    `own_registers`: of a thread beside those."""

    loaded: int
    moved: int
    row_registers: int
    held_registers: int
    kept_registers: int
    sums: int
    own_registers: int = OWN_REGISTERS


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


class _Pass:
    """Makes the schedule; one use. `order`, `reference`: see InnerOuterParams."""

    params: InnerOuterParams

    def __init__(self, segment: Fusion, order: tuple[int, ...], reference: str) -> None:
        self.builder = ScheduleBuilder(segment)
        graph = resolving_graph(segment)
        sides = next(s for s in _choices(segment, graph) if s.reference.name == reference)
        self.sums = {t.name for t in sides.column}
        self.along = _dims(segment, graph, sides.along)
        # Input dims, one for each dim of the reference that has several elements, slowest first.
        groups = dim_groups(graph, sides.reference)
        self.order = [_dims(segment, graph, [groups[d]])[0] for d in order if not groups[d].is_broadcast]

    def kept(self) -> list[Tensor]:
        """Values of full size that are kept from one stage to the next beside the copies of inputs."""
        b = self.builder
        _, copies, kept = self._compute()
        graph = b.graph()
        along = frozenset(map(graph.group, self.along))
        tensors = [b.state(n).tensor for n in kept if n not in copies.values()]
        return [t for t in tensors if _concrete(graph, t) & along]

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
        late, copies, _ = self._compute()
        row, column = self._reductions()
        reference = row[0]
        for name in (reference, *column):
            self._order_dims(name)
        self._cut_rows(reference)
        b.transform_like(reference, column)
        parts = [part for name in column for part in self._parts(name)]
        got = {b.cache_after(part) for part in parts}
        self._cut_columns(reference)
        siblings = {s for name in column for s in b.siblings(name)}
        after = self._after(column) | late
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
        vectorize(b, copies, [a for a in p.vectorized if a in copies])
        loaded = {copies[n] for n in b.input_names if n in copies} & set(main)
        b.inline_most([t.name for t in b.tensors if t.name not in loaded | left | got | b.input_names])
        for name in column:
            b.inline_at(name, asked, True, sorted(got))
        rows = self._rowwise(loaded)
        if rows:
            b.inline_at(reference, self.within - (p.rows > 1), selected=rows)
        for name in rows if p.ahead else ():
            b.load_ahead(name, best_effort=True)
        return b

    # --- what there is to compute ---

    def _compute(self) -> tuple[set[str], dict[str, str], list[str]]:
        """Decide what is computed where; names for what follows the sums, copies of arguments, and what stages keep."""
        b = self.builder
        separate_results(b)
        late = self._compute_apart()
        copies = self._cache(late)
        row, _ = self._reductions()
        for name in row:
            expr = b.definition(name)
            if isinstance(expr, ExpSum) or (isinstance(expr, Welford) and not expr.input.dtype.is_complex):
                b.two_pass(name)
        kept = keep_stages(b, few_registers=True)
        return late, copies, [k.name for k in kept]

    def _reductions(self) -> tuple[list[str], list[str]]:
        """Names of the results of row and of column reductions (one of each triple)."""
        b = self.builder
        graph = b.graph()
        along = frozenset(map(graph.group, self.along))
        results = [tensor_outputs(e)[0] for e in b.exprs if isinstance(e, Reducing)]
        row = [t.name for t in results if _reduced(graph, t) == along]
        return row, [t.name for t in results if t.name not in row]

    def _after(self, column: Iterable[str]) -> set[str]:
        tensors = [self.builder.state(n).tensor for n in column]
        return {t.name for t in _downstream(self.builder.exprs, tensors)}

    def _compute_apart(self) -> set[str]:
        """Compute anew, for what follows the sums, all that it needs beside them; the names made."""
        b = self.builder
        made: set[str] = set()
        pending = sorted(self._after(self.sums))
        siblings = {s for n in self.sums for s in b.siblings(n)}
        while pending:
            consumer = pending.pop()
            expr = b.definition(consumer)
            assert expr is not None
            for t in dict.fromkeys(tensor_inputs(expr)):
                if t.name in made | siblings or t.name in self._after(self.sums) or t.is_cpu:
                    continue
                if t.name in b.input_names:
                    made.add(b.cache_after(t.name, cached_uses=[consumer]))
                    continue
                clone = b.recompute(t.name, [consumer])
                made.add(clone)
                pending.append(clone)
        return made

    def _cache(self, late: set[str]) -> dict[str, str]:
        """Copies of the inputs for the pass, and outputs as copies of what computes them: argument -> its copy."""
        b = self.builder
        copies: dict[str, str] = {}
        for t in b.fusion.input_tensors:
            uses = [tensor_outputs(e)[0].name for e in b.uses(t.name)]
            early = [n for n in uses if n not in late]
            if not t.is_cpu and early:
                copies[t.name] = b.cache_after(t.name, cached_uses=early)
        for t in b.fusion.output_tensors:
            # What others read of an output stays in registers: who stores an element need not be who reads it.
            b.cache_before(t.name, move_uses=bool(b.uses(t.name)))
            copies[t.name] = t.name
        return copies

    def _rowwise(self, loaded: Iterable[str]) -> list[str]:
        """The copies of inputs that differ from row to row."""
        b = self.builder
        graph = b.graph()
        along = frozenset(leaf for d in self.along for leaf in [graph.group(d)])
        return sorted(
            n
            for n in loaded
            if any(not d.is_broadcast and graph.group(d) not in along for d in b.state(n).tensor.visible)
        )

    # --- loops ---

    def _order_dims(self, name: str) -> None:
        """The dims of a reduction result in the order of memory, rows first; those of one element last."""
        b = self.builder
        graph = b.graph()
        rank = {graph.group(d): i for i, d in enumerate(self.order)}
        loop = b.state(name).loop
        order = sorted(range(len(loop)), key=lambda i: rank.get(graph.group(loop[i]), len(rank)))
        b.reorder(name, {old: new for new, old in enumerate(order)})

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


def _dims(segment: Fusion, graph: IterationGraph, groups: Iterable[Group]) -> list[IterDomain]:
    """An input dim for each of some groups that inputs have."""
    found: dict[Group, IterDomain] = {}
    for t in segment.input_tensors:
        for d in t.visible:
            if not d.is_broadcast:
                found.setdefault(graph.group(d), d)
    return [found[g] for g in groups if g in found]
