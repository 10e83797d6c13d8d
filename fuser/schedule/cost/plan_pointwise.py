"""Pointwise kernels: the vector width, the block and the rows of a thread."""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.ir.fact_collection import GRID_LIMIT
from fuser.ir.fusion import Fusion, tensor_outputs
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.op_instructions import expr_instructions
from fuser.schedule.analysis.alignment import min_peeled_length
from fuser.schedule.analysis.cells import SizedSegment
from fuser.schedule.analysis.layout import ACCESS_BYTES
from fuser.schedule.analysis.tile_accesses import tile_accesses
from fuser.schedule.cost.pointwise_space import PointwiseSpace
from fuser.schedule.params import Access, Aligned, Peeled, PointwiseParams, Unaligned

BLOCK = 256
"""Threads of a block when there is plenty of work: a plain copy is best with it."""
SMALL_BLOCK = 128
"""Threads of a block within one wave: SMs get more equal shares."""
LEAST_USED = 0.75
"""Share of threads with work below which rows do not get threads of their own."""
LEAST_WAVES = 4
SHARED_LEFT = 0.125
"""Part of an element's own instructions that those which rows share may still take."""
IN_TURN_WAVES = 2
"""Waves of threads that go over rows in turn: each is busy for long, and some are late."""
MOST_ELEMENTS = 32
"""Elements of all inputs that a thread may have in flight."""


@memoized
def _instructions_along(segment: Fusion, graph: IterationGraph) -> list[tuple[frozenset[Group], int]]:
    """The dims of each expr, and its instructions for an element."""
    # Of one element along rows, where it is said so, is computed for each of them all the same.
    return [
        (frozenset(graph.group(d) for d in tensor_outputs(e)[0].visible), expr_instructions(e))
        for e in segment.tensor_exprs
    ]


class PointwiseHeuristic(PointwiseSpace):
    """Vector width, block and rows of a thread for one set of sizes."""

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
            if isinstance(access, Peeled) and math.prod(self.sizes[g] for g in self.parts[-1]) < min_peeled_length(
                vector
            ):
                return self._aligned(order)
            found = self._params(order, vector, widths, access)
            # One linear index of all dims has no rows whose ends could be cut.
            if len(found.merged_dims) == len(self.parts):
                return found
        return self._aligned(order)

    def _aligned(self, order: tuple[int, ...]) -> PointwiseParams:
        """The choice with accesses that are aligned and whole."""
        widths, divisors = self.widths.along_asked(self.parts[-1], self.most_elements)
        wide = tuple((n, w) for n, w in widths.items() if w > 1)
        found = self._params(order, max(widths.values(), default=1), wide)
        found = self._rows_in_turn(found)
        return replace(found, extent_multiples=divisors) if divisors else found

    def _rows_in_turn(self, params: PointwiseParams) -> PointwiseParams:
        """The same with further rows of a thread, one after another, if instructions take longer than memory does, and what is
        computed for a row is in part the same for others."""
        if len(params.merged_dims) < 2:
            return params
        along = self.parts[-1 - params.unroll_loop]
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
        return replace(params, unroll=count, sequential=True, reasons=(*params.reasons, words))

    def params_with_inner_tile(self, order: tuple[int, ...], vector: int = 0, most: int = 0) -> PointwiseParams | None:
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
            extent_ranges=(*params.extent_ranges, *cells.bounds),
            extent_multiples=found.divisors,
            tile_dims=len(cells.inner),
            tile_contiguous=found.runs,
            tile_vector_dims=found.tails,
            whole_inputs=cells.held,
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
        rows_of, shared = self.shared_part(vector) if runs > 1 else (1, 0)
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
        is_flat = False
        if runs > 1:
            columns = [-(-vectors // threads[0])] if threads[0] else []
            blocks = [*lengths[:-2], -(-lengths[-2] // threads[1]), *columns]
            place = len(lengths) - 1 - rows_of
            blocks[place] = -(-blocks[place] // unroll)
            by_y_and_z = [math.prod(blocks[:-2]), *blocks[-2:-1]]
            is_flat = max(by_y_and_z) > GRID_LIMIT
        dims = tuple(len(p) for p in self.parts)
        return PointwiseParams(
            order,
            (dims,) if runs < len(dims) else tuple((n,) for n in dims),
            vector,
            widths,
            threads,
            unroll,
            rows_of,
            grid_axes=1 if is_flat else 3,
            access=access,
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
        if not vector <= length < min_peeled_length(vector) or any(a.displaced is not None for a in self.arguments):
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
            ((sum(len(p) for p in self.parts),),),
            vector,
            tuple((n, w) for n, w in widths.items() if w > 1),
            (BLOCK, 1),
            unroll,
            access=Unaligned(),
            extent_ranges=((*place, vector, GRID_LIMIT),),
            reasons=(
                f"{vector} elements a thread of one run of all rows: {length} are too few to cut a row",
                f"{len(beside)} arguments are read by element",
            ),
        )

    def _unroll(self, vector: int, count: int, shared: int) -> int:
        """Rows (or vectors), of `count`, of a thread: enough bytes in flight.

        A gathered address is known only after a load: more of them have to be under way. `shared` bytes are the same for all
        rows: two rows where that is as much as what is read for each of them.
        """
        gathered = self.gathered()
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
        while unroll > 1 and unroll * vector > self.max_unrolled:
            unroll //= 2
        per_wave = self.device.sm_count * self.device.max_threads_per_sm
        # Threads of single elements are soon done.
        waves = 1 if gathered else LEAST_WAVES if vector > 1 else LEAST_WAVES / 2
        while unroll > 1 and (self.total < unroll * vector * per_wave * waves or count < 2 * unroll):
            unroll //= 2
        return unroll


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
