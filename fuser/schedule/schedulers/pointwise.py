"""Pointwise segments: one thread computes a few consecutive elements of the largest output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from fuser.ir.device_info import SECTOR_BYTES, DeviceInfo
from fuser.ir.enums import ParallelType, SchedulerType
from fuser.ir.fact_collection import GRID_LIMIT
from fuser.ir.fusion import Fusion, Pointwise, Reducing, Resize, Scan, Tensor, tensor_outputs
from fuser.ir.integers import const
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.op_instructions import expr_instructions
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.alignment import LEAST_VECTORS, least_cut, row_to_follow
from fuser.schedule.analysis.cells import Cells, SizedSegment, cells_last, find_cells
from fuser.schedule.analysis.layout import ACCESS_BYTES, AccessWidths, Argument, arguments_of, joined_dims
from fuser.schedule.analysis.reads import displaced_name
from fuser.schedule.analysis.reference import (
    concrete_dims,
    dim_groups,
    dim_order,
    lacking_output,
    resolving_graph,
    squeezed_dim,
    tangled_dims,
    uncovered,
)
from fuser.schedule.analysis.tile_accesses import tile_accesses
from fuser.schedule.analysis.windows import ask_for_unclamped, tested_groups
from fuser.schedule.cost.text_length import most_repeated
from fuser.schedule.neighbours import difference, neighbours
from fuser.schedule.params import (
    Accepted,
    Access,
    Aligned,
    Params,
    ParamsClass,
    Peeled,
    PointwiseParams,
    Refused,
    SegmentInputs,
    Unaligned,
)
from fuser.schedule.transforms.vectorize import cache_arguments, split_vector, vectorize_by, vectorize_tile

BLOCK = 256
"""Threads of a block when there is plenty of work: a plain copy is best with it."""
SMALL_BLOCK = 128
"""Threads of a block within one wave: SMs get more equal shares."""
THREAD_BYTES = 32
"""Most bytes of one argument that a thread holds: two 16-byte accesses."""
LEAST_THREADS = 256
"""Threads an SM should have before each takes more than one element."""
WANTED_THREADS = 1024
"""The same before accesses that begin anywhere are the widest there are: else they have half as many bytes (H200: swiglu bf16
77x5120 by vectors of 8 4.61 us, of 4 4.42; bias_gelu bf16 19x50257 6.18 and 5.95)."""
LEAST_USED = 0.75
"""Share of threads with work below which rows do not get threads of their own."""
LEAST_WAVES = 4
SHARED_LEFT = 0.125
"""Part of an element's own instructions that those which rows share may still take."""
IN_TURN_WAVES = 2
"""Waves of threads that go over rows in turn: each is busy for long, and some are late."""
MOSTLY_STORED = 2
"""Bytes stored for each one read above which stores are all that counts (H200: f32 2x513x1536x16 made of bf16 2x513x16 and one
value a row 52.2 us by vectors of 8, 33.9 of 4; of 20 others, not of outputs alone, none changes by more than 4 %)."""
MOST_ELEMENTS = 32
"""Elements of all inputs that a thread may have in flight."""

# Instructions of an op against those of an add, roughly: what hides loads less the heavier it is.
_WEIGHTS = {
    **dict.fromkeys(("tanh", "erf", "erfc", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"), 4),
    **dict.fromkeys(("asinh", "acosh", "atanh", "lgamma", "erfinv", "erfcinv", "pow", "fmod", "mod", "remainder"), 4),
}


def reference_output(segment: Fusion) -> Tensor | None:
    """The computed output with most dims."""
    graph = resolving_graph(segment)
    computed = [t for t in segment.output_tensors if t not in segment.input_tensors]
    return max(computed, key=lambda t: (concrete_dims(graph, t), len(t.logical)), default=None)


class PointwiseScheduler:
    """Accepts segments without reductions whose largest output has every dim."""

    type = SchedulerType.pointwise
    params: ParamsClass = PointwiseParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        reduced = next((e for e in segment.tensor_exprs if isinstance(e, Reducing)), None)
        if reduced is not None:
            return Refused(f"{reduced.input.name} is reduced")
        scanned = next((e for e in segment.tensor_exprs if isinstance(e, Scan)), None)
        if scanned is not None:
            return Refused(f"{scanned.input.name} is scanned")
        reference = reference_output(segment)
        if reference is None:
            return Refused("nothing is computed")
        missing = uncovered(resolving_graph(segment), reference, segment)
        if missing is not None:
            return Refused(f"{missing.name} has a dimension that the largest output, {reference.name}, does not have")
        graph = resolving_graph(segment)
        lacking = lacking_output(graph, segment, [g for g in dim_groups(graph, reference) if not g.is_broadcast])
        if lacking is not None:
            return Refused(f"the output {lacking.name} lacks a dimension of {reference.name}, the largest")
        groups = dim_groups(graph, reference)
        tangled = tangled_dims(segment, graph) or squeezed_dim(segment, graph, groups, resolved=True)
        if tangled is not None:
            return Refused(tangled)
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> PointwiseParams:
        """See Scheduler."""
        groups, order, plain = _plain(segment, inputs, device)
        if plain is None:
            return PointwiseParams(order, (), 1, (), (BLOCK, 1), reasons=("one element",))
        tiled = None if plain.is_empty else _tiled(plain, groups, order)
        return plain.params(order) if tiled is None else tiled

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        proposed = self.propose(segment, inputs, device)
        yield proposed
        if proposed.whole or proposed.held:
            # How wide the accesses of a longer or shorter tile may be does not follow from those of this one.
            groups, order, plain = _plain(segment, inputs, device)
            assert plain is not None
            for vector in (proposed.vector // 2, proposed.vector * 2):
                tiled = _tiled(plain, groups, order, vector) if vector else None
                if tiled is not None:
                    yield replace(tiled, reasons=(f"beside what was proposed: {difference(proposed, tiled)}",))
        for found in neighbours(proposed, device):
            assert isinstance(found, PointwiseParams)
            if all(inputs.tensors[name].sizes[dim] % divisor == 0 for name, dim, divisor in found.divisors):
                yield found

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, PointwiseParams)
        reference = reference_output(segment)
        assert reference is not None
        builder = ScheduleBuilder(segment)
        for tensor, dim, low, high in params.bounds:
            builder.ask_extent_within(tensor, dim, low, high)
        for tensor, dim, divisor in params.divisors:
            builder.ask_extent_divisible(tensor, dim, divisor)
        copies = cache_arguments(builder, params.held)
        name = reference.name
        types: list[ParallelType] = []
        if params.parts:
            # Dims of one element stay out of the merged loops: tensors without them could not share those.
            groups = dim_groups(resolving_graph(segment), reference)
            solid = [d for d in params.order if not groups[d].is_broadcast]
            order = [*solid, *(d for d in params.order if groups[d].is_broadcast)]
            builder.reorder(name, {dim: position for position, dim in enumerate(order)})
            types = tile_loops(builder, name, params)
        builder.transform_like(name)
        for position, parallel_type in enumerate(types):
            builder.parallelize(name, position, parallel_type)
        if types:
            builder.parallelize_like(name)
        if not isinstance(params.access, Aligned):
            # Only the vectors at the ends of a row test their elements.
            builder.parallelize(name, builder.innermost(name), ParallelType.unswitch)
            builder.parallelize_like(name, types=frozenset({ParallelType.unswitch}))
        elif params.unroll > 1 and params.vector == 1 and not params.in_turn:
            # A test for each element would be a branch, behind which loads wait for one another.
            builder.parallelize(name, len(types), ParallelType.unswitch)
            builder.parallelize_like(name, types=frozenset({ParallelType.unswitch}))
        if params.whole or params.held:
            first = builder.innermost(name) + 1 - (params.vector > 1) - params.whole
            vectorize_tile(builder, copies, params, first)
        else:
            vectorize_by(builder, copies, dict(params.widths), params.access)
        ask_for_unclamped(builder)
        # What is read stays outside the loops of a thread's elements: all of its loads are issued before the first use.
        loads = [made for read, made in copies.items() if read not in builder.output_names]
        if params.in_turn:
            row = len(types)
            same = {t.name for t in builder.tensors if lacks_loop(builder, t.name, row)}
            limits = [(n, row) for n in same.difference(loads)]
            limits += [(n, builder.common_loops(n, name, row + (n not in same))) for n in loads]
        else:
            ones = _of_one_element(builder)
            limits = [(n, builder.common_loops(n, name, len(types))) for n in loads if n not in ones]
            limits += [(n, len(types)) for n in ones]
        builder.inline_most(limits=limits)
        return builder


def _plain(
    segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
) -> tuple[Sequence[Group], tuple[int, ...], Choice | None]:
    """Dims of the reference, their order, and the choice without cells; None where there is one element."""
    reference = reference_output(segment)
    assert reference is not None
    graph = resolving_graph(segment)
    groups = dim_groups(graph, reference)
    order = dim_order(graph, segment, reference, inputs)
    merged = [groups[d] for d in order if not groups[d].is_broadcast]
    return groups, order, Choice(graph, segment, inputs, merged, device) if merged else None


def _tiled(plain: Choice, groups: Sequence[Group], order: tuple[int, ...], vector: int = 0) -> PointwiseParams | None:
    """The choice where a thread takes cells, `vector` of them if that is given; None where there are none, where that would
    leave processors idle or gains nothing, or where rows are better cut at aligned places."""
    graph, segment, inputs, device = plain.graph, plain.segment, plain.described, plain.device
    unmoved, unmoved_order = plain, order
    merged = cells_last(plain.order, plain.sizes, plain.arguments)
    if merged != plain.order:
        order = (*(d for d in order if groups[d] not in merged), *map(groups.index, merged))
        plain = Choice(graph, segment, inputs, merged, device)
    cells = find_cells(SizedSegment(graph, segment, inputs), plain.arguments, plain.parts)
    if cells is None:
        return None
    choice = Choice(graph, segment, inputs, merged, device, cells)
    if choice.total < LEAST_THREADS * device.sm_count:
        return None
    found = choice.tiled(order, vector)
    if found is None:
        return None
    if found.vector > 1:
        return found
    # Without vectors neighbouring threads still store neighbours, where in rows without a divisor they else would not.
    stored, apart = choice.stored_bytes(found), unmoved.stored_bytes(unmoved.params(unmoved_order))
    if stored < apart:
        return found
    # Cells that are one access each leave a block the dims around them: it covers two, and rows of any length.
    if stored == apart and plain.parts[-1] == list(cells.inner) and len(choice.parts) > 1:
        return found
    # There are elements that are read once, and tests that are none.
    gains = bool(cells.held) or not choice.tested.isdisjoint(cells.inner)
    return found if gains and plain.misaligned_accesses() is None else None


def tile_loops(builder: ScheduleBuilder, name: str, params: PointwiseParams) -> list[ParallelType]:
    """Make the loops of the reference: [blocks..., threads..., further rows, elements]; the types of the first ones."""
    for at, count in enumerate(params.parts):
        for _ in range(count - 1):
            builder.merge(name, at, at + 1)
    # All elements of the last part are behind those loops.
    parts = len(params.parts) - params.whole
    while params.linear and parts > 1:
        builder.merge(name, 0, 1)
        parts -= 1
    wide, high = params.threads
    last = parts - 1
    if params.vector > 1:
        split_vector(builder, name, last, params.vector, params.access)
    if wide:
        builder.split(name, last, wide)
    # [outer parts, rows, columns / wide if they are more than a block takes, columns, elements]
    if parts == 1:
        if params.unroll > 1:
            builder.split(name, 0, params.unroll)
            builder.reorder(name, {1: 2})
        return [ParallelType.grid_x, ParallelType.block_x]
    row = parts - 2
    if high > 1:
        builder.split(name, row, high)
        if wide:
            builder.reorder(name, {row + 1: row + 2})
    if params.unroll > 1:
        # [.., rows, unroll, .., (columns / wide), (high), columns, elements]
        at = last - params.rows_of
        builder.split(name, at, params.unroll)
        builder.reorder(name, {at + 1: parts + (wide > 0) + (high > 1)})
    grid = row + 1 + (wide > 0)
    while grid > (1 if params.merged else 3):
        builder.merge(name, 0, 1)
        grid -= 1
    blocks = [ParallelType.grid_z, ParallelType.grid_y, ParallelType.grid_x][3 - grid :]
    return [*blocks, *([ParallelType.block_y] if high > 1 else []), ParallelType.block_x]


@memoized
def _instructions_along(segment: Fusion, graph: IterationGraph) -> list[tuple[frozenset[Group], int]]:
    """The dims of each expr, and its instructions for an element."""
    # Of one element along rows, where it is said so, is computed for each of them all the same.
    return [
        (frozenset(graph.group(d) for d in tensor_outputs(e)[0].visible), expr_instructions(e))
        for e in segment.tensor_exprs
    ]


@memoized
def _weight(segment: Fusion) -> int:
    """Of its heaviest op."""
    return max((_WEIGHTS.get(e.op, 1) for e in segment.tensor_exprs if isinstance(e, Pointwise)), default=1)


@memoized
def _slices(segment: Fusion) -> frozenset[str]:
    """Names of the reads that are slices."""
    resized = [e for e in segment.tensor_exprs if isinstance(e, Resize) and e.fill is None]
    return frozenset(displaced_name(e, e.input) for e in resized)


class Choice:
    """Vector width, block and rows of a thread for one set of sizes."""

    def __init__(
        self,
        graph: IterationGraph,
        segment: Fusion,
        inputs: SegmentInputs,
        order: Sequence[Group],
        device: DeviceInfo,
        cells: Cells | None = None,
    ) -> None:
        self.graph, self.segment, self.described, self.cells = graph, segment, inputs, cells
        self.order = order = [g for g in order if cells is None or g not in cells.inner]
        self.arguments = arguments_of(graph, segment, inputs) if cells is None else list(cells.arguments)
        extents = {g: inputs.evaluate(g.extent) for g in order}
        # Nothing is launched for tensors without elements: the plainest loops are right for them.
        self.is_empty = min(extents.values(), default=1) < 1
        self.sizes = sizes = {g: max(1, n) for g, n in extents.items()}
        self.widths = AccessWidths(graph, segment, inputs, self.arguments, sizes)
        self.device = device
        self.total = math.prod(sizes.values())
        self.repeated = most_repeated(segment, device)
        self.weight = _weight(segment)
        self.tested = tested_groups(graph, segment, inputs.evaluate)
        self.parts = joined_dims(order, sizes, self.arguments, self.tested)
        self.inputs = segment.input_tensors
        self.slices = _slices(segment)

    def params(self, order: tuple[int, ...]) -> PointwiseParams:
        """The choice."""
        if self.is_empty:
            return self._params(order, 1, ())
        accesses = self.misaligned_accesses()
        if accesses is not None:
            flat = self._flat(order)
            if flat is not None:
                return flat
            vector, widths, access = accesses
            if isinstance(access, Peeled) and math.prod(self.sizes[g] for g in self.parts[-1]) < least_cut(vector):
                return self._aligned(order)
            found = self._params(order, vector, widths, access)
            # One linear index of all dims has no rows whose ends could be cut.
            if not found.linear:
                return found
        return self._aligned(order)

    def _aligned(self, order: tuple[int, ...]) -> PointwiseParams:
        """The choice with accesses that are aligned and whole."""
        widths, divisors = self.widths.along_asked(self.parts[-1], self.most_elements)
        wide = tuple((n, w) for n, w in widths.items() if w > 1)
        found = self._params(order, max(widths.values(), default=1), wide)
        found = self._rows_in_turn(found)
        return replace(found, divisors=divisors) if divisors else found

    def _rows_in_turn(self, params: PointwiseParams) -> PointwiseParams:
        """The same with further rows of a thread, one after another, if instructions take longer than memory does, and what is
        computed for a row is in part the same for others."""
        if params.linear or len(params.parts) < 2:
            return params
        along = self.parts[-1 - params.rows_of]
        own = shared = 0
        for groups, instructions in _instructions_along(self.segment, self.graph):
            if not groups.isdisjoint(along):
                own += instructions
            elif not groups.isdisjoint(self.parts[-1]):
                shared += instructions
        machine = self.device
        issued = self.total * (own + shared) / machine.warp_size
        computing = issued / (machine.rates.issue * machine.sm_count) * machine.cycle
        if computing < sum(a.nbytes for a in self.arguments) / machine.memory_rate:
            return params
        rows = math.prod(self.sizes[g] for g in along)
        threads = self.total // params.vector
        resident = machine.sm_count * machine.max_threads_per_sm
        count = 1
        while (
            shared > count * own * SHARED_LEFT and threads >= 2 * count * IN_TURN_WAVES * resident and rows > 2 * count
        ):
            count *= 2
        if count <= params.unroll:
            return params
        words = f"{count} rows a thread, in turn: {shared} of {own + shared} instructions of an element are the same for them"
        return replace(params, unroll=count, in_turn=True, reasons=(*params.reasons, words))

    def tiled(self, order: tuple[int, ...], vector: int = 0, most: int = 0) -> PointwiseParams | None:
        """The choice where a thread takes cells: `vector` of them, or at most `most`, if that is given. None where that cuts
        vectors."""
        assert self.cells is not None
        cells = self.cells
        vectors = [
            vector or 1 << k for k in reversed(range(1 if vector else (most or self.most_elements).bit_length()))
        ]
        sized = SizedSegment(self.graph, self.segment, self.described)
        found = tile_accesses(sized, cells, self.parts[-1], self.sizes, vectors)
        if found is None:
            return None
        params = self._params(order, found.vector, found.widths)
        return replace(
            params,
            parts=(*params.parts, len(cells.inner)) if cells.inner else params.parts,
            whole=bool(cells.inner),
            held=cells.held,
            runs=found.runs,
            tails=found.tails,
            bounds=(*params.bounds, *cells.bounds),
            divisors=found.divisors,
        )

    def _params(
        self, order: tuple[int, ...], vector: int, widths: tuple[tuple[str, int], ...], access: Access = Aligned()
    ) -> PointwiseParams:
        lengths = [math.prod(self.sizes[g] for g in part) for part in self.parts]
        # The first part of a row that is cut where it is aligned may hold a single element of it.
        vectors = -(-(lengths[-1] + (vector - 1 if isinstance(access, Peeled) else 0)) // vector)
        few = self.total < vector * self.device.sm_count * self.device.max_threads_per_sm
        # A thread of one cell has several elements.
        block = SMALL_BLOCK if few or (vector == 1 and self.cells is None) else BLOCK
        words = [f"{vector} elements a thread"]
        threads = (block, 1)
        if len(lengths) > 1:
            wide, high = _block_shape(vectors, lengths[-2], block)
            used = _share(vectors, wide) * _share(lengths[-2], high)
            warp = self.device.warp_size
            used *= wide * high / (-(-wide * high // warp) * warp)
            words.append(f"{len(lengths)} runs, {wide} x {high} threads, {used:.0%} of their lanes have work")
            if used < LEAST_USED:
                words[-1] += ": one linear index instead"
                lengths = lengths[:1]
            else:
                threads = wide if vectors > block else 0, high
        runs = len(lengths)
        rows_of, shared = self._shared_part(vector) if runs > 1 else (1, 0)
        is_taken = self.cells is not None and runs > 2 and rows_of == 1 and lengths[-2] <= threads[1]
        if is_taken:
            # The block has all of these rows: what they share stays in the first-level cache.
            rows_of, shared = 2, 0
        count = lengths[-1 - rows_of] // (threads[1] if rows_of == 1 else 1) if runs > 1 else 0
        unroll = self._unroll(vector, count or self.total // (vector * block), shared)
        rows_of = rows_of if unroll > 1 or not is_taken else 1
        if isinstance(access, Peeled) and shared:
            # Rows are cut at places of their own: what they have in common is read at others for each.
            unroll = 1
        if unroll > 1:
            words.append(f"{unroll} {'rows' if runs > 1 else 'vectors'} a thread")
            words += [f"{shared} bytes are read once for them"] if shared else []
        is_merged = False
        if runs > 1:
            columns = [-(-vectors // threads[0])] if threads[0] else []
            blocks = [*lengths[:-2], -(-lengths[-2] // threads[1]), *columns]
            place = len(lengths) - 1 - rows_of
            blocks[place] = -(-blocks[place] // unroll)
            by_y_and_z = [math.prod(blocks[:-2]), *blocks[-2:-1]]
            is_merged = max(by_y_and_z) > GRID_LIMIT
        return PointwiseParams(
            order,
            tuple(len(p) for p in self.parts),
            vector,
            widths,
            threads,
            unroll,
            rows_of,
            is_merged,
            access,
            linear=runs < len(self.parts),
            reasons=tuple(words),
        )

    def _flat(self, order: tuple[int, ...]) -> PointwiseParams | None:
        """All elements as one run, cut at multiples of a vector, where rows are short and only some arguments have rows: those
        are read by element, with one division for the elements of a thread. None where that cannot be."""
        vector = self.most_elements
        if len(self.parts) != 2 or vector == 1:
            return None
        solid = [[g for g in part if self.sizes[g] != 1] for part in self.parts]
        if any(len(part) != 1 for part in solid):
            return None
        (rows,), (columns,) = solid
        length = self.sizes[columns]
        whole = [a for a in self.arguments if a.stride(columns) == 1 and a.stride(rows) == length]
        beside = [a for a in self.arguments if a not in whole]
        if not vector <= length < least_cut(vector) or any(a.displaced is not None for a in self.arguments):
            return None
        if any(a.stride(rows) and a.stride(columns) for a in beside) or not any(a.tensor in self.inputs for a in whole):
            return None
        widths = {a.name: min(vector, ACCESS_BYTES // a.tensor.dtype.itemsize) for a in whole}
        if any(a.alignment % (widths[a.name] * a.tensor.dtype.itemsize) for a in whole):
            return None
        place = next(
            ((a.name, a.dims[columns]) for a in self.arguments if a.tensor in self.inputs and a.stride(columns)), None
        )
        if place is None:
            return None
        blocks = self.total // (vector * BLOCK)
        unroll = (
            2 if blocks >= 2 * LEAST_WAVES * self.device.sm_count * (self.device.max_threads_per_sm // BLOCK) else 1
        )
        return PointwiseParams(
            order,
            (sum(len(p) for p in self.parts),),
            vector,
            tuple((n, w) for n, w in widths.items() if w > 1),
            (BLOCK, 1),
            unroll,
            access=Unaligned(),
            bounds=((*place, vector, GRID_LIMIT),),
            reasons=(
                f"{vector} elements a thread of one run of all rows: {length} are too few to cut a row",
                f"{len(beside)} arguments are read by element",
            ),
        )

    def _shared_part(self, vector: int) -> tuple[int, int]:
        """The best part to take more rows of: its place, counted from the last, and how many bytes are the same in all."""
        best = 1, 0
        for place in range(1, len(self.parts)):
            same = [a for a in self.arguments if not any(a.stride(g) for g in self.parts[-1 - place])]
            wide = [a for a in same if any(a.stride(g) for g in self.parts[-1])]
            shared = sum(vector * a.itemsize for a in wide)
            best = max(best, (place, shared), key=lambda p: (p[1], -p[0]))
        return best

    def misaligned_accesses(self) -> tuple[int, tuple[tuple[str, int], ...], Access] | None:
        """(elements of a thread, width of each argument's accesses, where they begin) where accesses that are aligned and
        whole would be less than half as wide as they could be; else None."""
        run, limit = self.parts[-1], self.most_elements
        if limit > 2 and self.total < limit * WANTED_THREADS * self.device.sm_count:
            limit //= 2
        length = math.prod(self.sizes[g] for g in run)
        solid = [g for g in run if self.sizes[g] != 1]
        if not solid or limit == 1 or length < LEAST_VECTORS * limit:
            return None
        along = [a for a in self.arguments if a.stride(solid[-1]) == 1]
        # What a pad or a gather reads has no address that follows from the place in the row.
        is_moved = any(a.displaced is not None and a.name not in self.slices for a in self.arguments)
        if is_moved or not any(a.tensor in self.inputs for a in along):
            return None
        wanted = {a.name: min(limit, ACCESS_BYTES // a.tensor.dtype.itemsize) for a in along}
        aligned, _ = self.widths.along_asked(run, limit)
        if max(aligned.values()) * 2 >= limit and all(
            aligned[a.name] * 2 >= wanted[a.name] for a in along if a.tensor in self.inputs
        ):
            return None
        widths = tuple((n, w) for n, w in wanted.items() if w > 1)
        to = row_to_follow(
            self.arguments, run, self.sizes, limit, [a.name for a in along if a.tensor not in self.inputs]
        )
        return None if to is None else (limit, widths, to)

    def stored_bytes(self, params: PointwiseParams) -> float:
        """Bytes of the sectors that all stores touch: of those of a warp, each touches what lies between two threads, or a
        sector where that is more."""
        count, run = params.vector, self.parts[-1]
        if len(self.parts) > 1 and math.prod(self.sizes[g] for g in run) <= count:
            # A thread has all of the last dims: its neighbour is along those around them.
            count, run = 1, self.parts[-2]
        last = next((g for g in reversed(run) if self.sizes[g] != 1), None)
        widths = dict(params.widths)
        touched = 0.0
        for a in self.arguments:
            if a.tensor not in self.inputs and last is not None and a.stride(last):
                itemsize = a.tensor.dtype.itemsize
                distance = min(a.stride(last) * count * itemsize, SECTOR_BYTES)
                touched += a.nbytes * distance / (widths.get(a.name, 1) * itemsize)
        return touched

    def _gathered(self) -> list[Argument]:
        """Reads of rows that are looked up: a table's elements are few, and read for each index."""
        return [a for a in self.arguments if a.displaced is not None and None in a.displaced.dims]

    def _read_bytes(self) -> int:
        """Bytes that are read, of what is looked up for each index."""
        gathered = self._gathered()
        read = [a for a in self.arguments if a.tensor in self.inputs]
        return sum(self.total * a.itemsize if a in gathered else a.nbytes for a in read)

    @cached_property
    def most_elements(self) -> int:
        """Most elements of a thread."""
        run = self.parts[-1]
        along = [a for a in self.arguments if any(a.stride(g) for g in run)]
        # Elements across cells are accessed cell by cell.
        runs = {a.name for a in along} if self.cells is None else self.cells.runs
        narrow = min((a.itemsize if a.name in runs else a.tensor.dtype.itemsize for a in along), default=4)
        wide = max((a.itemsize for a in along), default=4)
        limit = max(1, min(ACCESS_BYTES // narrow, THREAD_BYTES // wide))
        stored = [a for a in self.arguments if a.tensor not in self.inputs]
        if self.cells is None and sum(a.nbytes for a in stored) > MOSTLY_STORED * self._read_bytes():
            # A second access to an output writes the other halves of sectors: nothing else takes long enough to hide that.
            limit = max(1, min(limit, *(ACCESS_BYTES // a.itemsize for a in stored)))
        limit = 1 << (limit.bit_length() - 1)
        # Narrow accesses beat idle processors: halve until every SM has some warps.
        while limit > 1 and self.total < limit * LEAST_THREADS * self.device.sm_count:
            limit //= 2
        return limit

    def _unroll(self, vector: int, count: int, shared: int) -> int:
        """Rows (or vectors), of `count`, of a thread: enough bytes in flight.

        A gathered address is known only after a load: more of them have to be under way. `shared` bytes are the same for all
        rows: two rows where that is as much as what is read for each of them.
        """
        gathered = self._gathered()
        full = [a for a in self.arguments if a.tensor in self.inputs and (a in gathered or 2 * a.seen > self.total)]
        if not full and self.cells is None:
            return 1
        in_flight = sum(vector * a.itemsize for a in full)
        if self.cells is not None:
            # What is loaded is unpacked or repeated: a thread should move as much as one of a copy does.
            stored = sum(vector * a.itemsize for a in self.arguments if a.tensor not in self.inputs)
            in_flight = max(in_flight, (in_flight + stored) // 2)
        wanted = ACCESS_BYTES * (4 if gathered else 2 if self.weight > 1 else 1)
        least = 2 if shared >= sum(vector * t.dtype.itemsize for t in {a.tensor for a in full}) else 1
        unroll = 1
        held = vector * max(1, len(full))
        while (in_flight * unroll < wanted or unroll < least) and unroll * held < MOST_ELEMENTS:
            unroll *= 2
        while unroll > 1 and unroll * vector > self.repeated:
            unroll //= 2
        per_wave = self.device.sm_count * self.device.max_threads_per_sm
        # Threads of single elements are soon done.
        waves = 1 if gathered else LEAST_WAVES if vector > 1 else LEAST_WAVES / 2
        while unroll > 1 and (self.total < unroll * vector * per_wave * waves or count < 2 * unroll):
            unroll //= 2
        return unroll


def _of_one_element(builder: ScheduleBuilder) -> list[str]:
    """What has one element and is no output: a thread computes it once, outside of the loops over its own elements."""
    graph = builder.exact_graph()
    return [
        t.name
        for t in builder.tensors
        if t.name not in builder.input_names
        and t.name not in builder.output_names
        and all(graph.group(a).is_broadcast for a in builder.state(t.name).loop)
    ]


def lacks_loop(builder: ScheduleBuilder, name: str, position: int) -> bool:
    """Whether a tensor has nothing that a loop of its consumers is over."""
    axes = builder.state(name).loop
    return len(axes) > position and axes[position].is_broadcast and axes[position].extent is const(1)


def _block_shape(columns: int, rows: int, block: int) -> tuple[int, int]:
    """Threads (along columns, along rows): all columns if a block can take them, else the power of two with least waste."""
    if columns > block:
        wide = max(
            (32 << k for k in range((block // 32).bit_length())), key=lambda w: (round(_share(columns, w), 1), w)
        )
        return wide, block // wide
    high = 1
    while 2 * high * columns <= block and high < rows:
        high *= 2
    return max(columns, 1), high


def _share(count: int, size: int) -> float:
    """Part of the work of ceil(count / size) groups of `size` that is not past the end."""
    return count / (-(-count // size) * size) if count else 1.0
