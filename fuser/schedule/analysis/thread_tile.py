"""Tiles of a thread where the innermost dims are few elements: interleaved, stacked, packed and repeated values.

Vectors along a dim of two or four elements are short, and what lacks that dim, or is cut into slices along it, is read element
by element. Here a thread takes several indices of the next dim, and of each all elements of the innermost dims: a cell. An
argument that has them is accessed as one run, one that lacks them along the next dim. An input that is sliced or padded along
such dims of its own is read whole, once: what is taken of it are elements of a copy in registers. As all of these extents are
constants, which part of a concatenation an element is of is known when the kernel is compiled.

    t2[n, 2] = cat(t0[n, 1], t1[n, 1])      4 indices of n a thread: vectors of 4 of t0 and t1, one of 8 of t2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fuser.ir.dim_pairs import displaced_dims
from fuser.ir.enums import ParallelType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Expr, Fusion, Gather, Resize, Tensor, tensor_inputs
from fuser.ir.integers import Int, Symbol, const
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.layout import ACCESS_BYTES, Argument, Divisor, extents_by_group, owners_of_extents
from fuser.schedule.analysis.reads import is_divisible, read_width
from fuser.schedule.params import SegmentInputs

CELL_BYTES = 32
"""Most bytes of a cell: a sector, of which a slice leaves nothing unread, and two accesses of a thread."""
LANE_BYTES = 4
"""Of a line of 128 bytes, what each thread of a warp has."""
LEAST_MOVED = 2 * ACCESS_BYTES
"""Bytes that a thread should load and store, as one of a copy does."""

Place = tuple[str, int]
"""A dim of an input: its name and position."""
Bound = tuple[str, int, int, int]
"""(input, dim, low, high)"""


@record(eq=False)
class Cells:
    """What lies inside of the loops' dims.

    arguments   with the held inputs' reads as one, and whose strides are those of the dims around the cells
    inner       dims of the loops that a thread takes whole, slowest first: a part of their own
    held        inputs that are read whole, once
    runs        elements that follow one another at the end of a cell, for arguments where that is a run of several, or of one
                that has a loop
    apart       for arguments whose cells are not one run each: how many of their fastest dims, and the strides of the others
    bounds      (input, dim, low, high): extents that are constants then
    """

    arguments: tuple[Argument, ...]
    inner: tuple[Group, ...]
    held: tuple[str, ...]
    runs: Mapping[str, int]
    apart: Mapping[str, tuple[int, tuple[int, ...]]]
    bounds: tuple[Bound, ...]


@record
class TileAccesses:
    """Vectors of a tile.

    vector     indices of a thread along the last dims around the cells
    widths     elements of one access, for arguments where that is more than one
    runs       of those the ones whose neighbours are along the dims around the cells, and then along `tails`
    tails      how many of a cell's fastest dims a vector goes along, for those arguments where these are not all
    divisors   (input, dim, divisor): extents that are multiples, so that no vector is cut
    """

    vector: int
    widths: tuple[tuple[str, int], ...]
    runs: tuple[str, ...]
    tails: tuple[tuple[str, int], ...]
    divisors: tuple[Divisor, ...]


class _Extents:
    """How the tensors of a segment call the extents of its dims, and which inputs have these."""

    def __init__(self, graph: IterationGraph, segment: Fusion, evaluate: Callable[[Int], int]) -> None:
        self.evaluate = evaluate
        self.extents = extents_by_group(segment, graph)
        self.owners = owners_of_extents(segment)

    def asked_constant(self, extents: Collection[Int]) -> tuple[Bound, ...] | None:
        """What has to be asked for so that equal extents are one constant; None where that is not enough."""
        # By place: numbers of a trace cannot be keys.
        asked: dict[Place, Bound] = {}
        is_known = any(e.is_const for e in extents)
        for e in sorted(extents, key=str):
            if isinstance(e, Symbol) and is_known:
                continue  # equal to the constant, which is checked before a launch
            for s in sorted(e.symbols, key=str):
                if s not in self.owners:
                    return None
                asked[self.owners[s]] = (*self.owners[s], self.evaluate(s), self.evaluate(s))
        return tuple(asked.values())

    def asked_divisible(self, group: Group, divisor: int) -> tuple[Divisor, ...] | None:
        """What has to be asked for so that the extent of a dim is a multiple; None where that is not enough."""
        asked: dict[Divisor, None] = {}
        for e in sorted(self.extents[group], key=str):
            symbols = [s for s in sorted(e.symbols, key=str) if s in self.owners and self.evaluate(s) % divisor == 0]
            if self.evaluate(e) % divisor or not is_divisible(e, divisor, symbols):
                return None
            asked |= {(*self.owners[s], divisor): None for s in symbols if e.multiple % divisor}
        return tuple(asked)


def cells_last(order: Sequence[Group], sizes: Mapping[Group, int], arguments: Sequence[Argument]) -> list[Group]:
    """An order of dims (slowest first) in which those that are the cells of an argument come last, if the fastest dim is the
    one around them there: the largest such argument says which."""
    last = next((g for g in reversed(order) if sizes[g] != 1), None)
    for a in sorted(arguments, key=lambda a: -a.nbytes):
        if last is None or a.displaced is not None:
            continue
        inside: list[Group] = []
        running = 1
        while running < a.stride(last):
            found = next((g for g in order if g not in inside and sizes[g] != 1 and a.stride(g) == running), None)
            if found is None:
                break
            inside.append(found)
            running *= sizes[found]
        if inside and a.stride(last) == running and running * a.itemsize <= CELL_BYTES:
            return [*(g for g in order if g not in inside), *reversed(inside)]
    return list(order)


def find_cells(
    graph: IterationGraph,
    segment: Fusion,
    inputs: SegmentInputs,
    arguments: Sequence[Argument],
    parts: Sequence[Sequence[Group]],
) -> Cells | None:
    """The cells of a segment whose loops are `parts`; None where there is nothing that a thread should take whole."""
    extents = _Extents(graph, segment, inputs.evaluate)
    for inner in (parts[-1], ()) if len(parts) > 1 else ((),):
        found = _cells(graph, segment, inputs, arguments, parts[-2] if inner else parts[-1], inner, extents)
        if found is not None:
            return found
    return None


def _cells(
    graph: IterationGraph,
    segment: Fusion,
    inputs: SegmentInputs,
    arguments: Sequence[Argument],
    around: Sequence[Group],
    inner: Sequence[Group],
    extents: _Extents,
) -> Cells | None:
    bounds: dict[Place, Bound] = {}
    for group in inner:
        asked = extents.asked_constant(extents.extents[group])
        if asked is None:
            return None
        bounds |= {b[:2]: b for b in asked}
    sizes = {g: inputs.evaluate(g.extent) for g in (*around, *inner)}
    last = next((g for g in reversed(around) if sizes[g] != 1), None)
    if last is None:
        return None
    held: dict[str, Argument] = {}
    found: list[Argument] = []
    runs: dict[str, int] = {}
    apart: dict[str, tuple[int, tuple[int, ...]]] = {}
    for t in segment.input_tensors:
        described = inputs.tensors.get(t.name)
        whole = None if described is None else _held(graph, segment, t, described, inner, extents)
        if whole is not None and whole[0].stride(last):
            held[t.name] = whole[0]
            bounds |= {b[:2]: b for b in whole[1]}
            found.append(whole[0])
    found += [a for a in arguments if a.tensor.name not in held]
    solid = [g for g in inner if sizes[g] != 1]
    if not solid and not held:
        return None
    for i, a in enumerate(found):
        own = [g for g in solid if a.stride(g)]
        running = a.cell
        is_run = bool(own) or a.name in held
        for g in reversed(own):
            is_run = is_run and a.stride(g) == running
            running *= sizes[g]
        if is_run:
            runs[a.name] = running
        elif own:
            apart[a.name] = 0, tuple(map(a.stride, own))
        found[i] = replace(
            a,
            strides={g: s for g, s in a.strides.items() if g not in inner},
            cell=running,
            seen=a.seen // (running // a.cell),
        )
        if found[i].itemsize > CELL_BYTES:
            return None
    # Something must gain by it: neighbours along the dims around, or cells that follow one another.
    if not any(
        a.stride(last) == (a.cell if a.name in runs else 1) and not _is_moved_inside(graph, a, inner) for a in found
    ):
        return None
    return Cells(tuple(found), tuple(inner), tuple(held), runs, apart, tuple(bounds.values()))


def reduced_cells(
    graph: IterationGraph,
    segment: Fusion,
    inputs: SegmentInputs,
    arguments: Sequence[Argument],
    reduced: Sequence[Group],
) -> Cells | None:
    """Cells of all that is reduced to one element; None where no input tells how much that is.

    reduced   slowest first, those of one element before others
    """
    extents = _Extents(graph, segment, inputs.evaluate)
    bounds: dict[Place, Bound] = {}
    for group in reduced:
        asked = extents.asked_constant(extents.extents[group])
        if asked is None:
            return None
        bounds |= {b[:2]: b for b in asked}
    sizes = {g: inputs.evaluate(g.extent) for g in reduced}
    found: list[Argument] = []
    runs: dict[str, int] = {}
    apart: dict[str, tuple[int, tuple[int, ...]]] = {}
    for a in arguments:
        own = [g for g in reduced if g in a.dims]
        running, count = 1, 0
        for g in reversed(own):
            if a.stride(g) != running:
                break
            running, count = running * sizes[g], count + 1
        if running > 1:
            runs[a.name] = running
        if count < len(own):
            apart[a.name] = count, tuple(a.stride(g) for g in own[: len(own) - count])
        cell = math.prod(sizes[g] for g in own if a.stride(g))
        strides = {g: s for g, s in a.strides.items() if g not in reduced}
        found.append(replace(a, strides=strides, cell=cell, seen=a.seen // max(1, cell)))
    return Cells(tuple(found), tuple(reduced), (), runs, apart, tuple(bounds.values()))


@memoized
def _sliced(segment: Fusion, t: Tensor) -> tuple[Sequence[Expr], Sequence[int]] | None:
    """The exprs that read an input, and its dims along which those slice or pad it; None where none does, or one gathers."""
    reads = [e for e in segment.tensor_exprs if t in tensor_inputs(e)]
    moved = {a for e in reads if isinstance(e, (Resize, Gather)) for a, _ in displaced_dims(e, t, e.output)}
    if not moved or any(isinstance(e, Gather) for e in reads):
        return None
    return reads, [i for i, d in enumerate(t.visible) if d in moved]


def _held(
    graph: IterationGraph,
    segment: Fusion,
    t: Tensor,
    described: TensorDescriptor,
    inner: Sequence[Group],
    extents: _Extents,
) -> tuple[Argument, tuple[Bound, ...]] | None:
    """An input as it is if it is read whole, and the extents that are asked to be constants for that; None where it is not, and
    where it has no elements.

    The dims along which it is sliced or padded are its fastest ones, and few elements, of which all are used in one thread.
    """
    found = _sliced(segment, t)
    if found is None:
        return None
    reads, dims = found
    # Loops of the copy over dims of the loops come before those that it has for itself.
    shared = [i for i in dims if graph.group(t.visible[i]) in inner]
    ordered = [
        *sorted(shared, key=lambda i: inner.index(graph.group(t.visible[i]))),
        *(i for i in dims if i not in shared),
    ]
    cell = 1
    for i in reversed(ordered):
        if described.sizes[i] != 1 and described.strides[i] != cell:
            return None
        cell *= described.sizes[i]
    if cell == 0:
        return None
    asked = tuple[Bound, ...]()
    for i in ordered:
        more = extents.asked_constant([t.visible[i].extent])
        if more is None:
            return None
        asked += more
    known = {s for i in ordered for s in t.visible[i].extent.symbols}
    known.update(s for g in inner for e in extents.extents[g] for s in e.symbols)
    for e in reads:
        for i in dims:
            at = e.output.produced[i] if isinstance(e, Resize) else t.visible[i]
            if not at.is_broadcast and graph.group(at) not in inner:
                return None
            window = e.windows[i] if isinstance(e, Resize) else None
            places = () if window is None else window.seams
            if any(not known.issuperset(p.symbols) for p in places):
                return None
    strides: dict[Group, int] = {}
    positions: dict[Group, int] = {}
    seen = 1
    for i, d in enumerate(t.visible):
        if i not in dims and described.sizes[i] != 1:
            strides[graph.group(d)], positions[graph.group(d)] = described.strides[i], i
            seen *= described.sizes[i] if described.strides[i] else 1
    whole = Argument(t.name, t, strides, described.alignment, seen, positions, described, None, cell)
    return whole, asked


def _is_moved_inside(graph: IterationGraph, a: Argument, inner: Collection[Group]) -> bool:
    """Whether a read is moved along dims inside of a cell, where its elements have no loops of their own."""
    if a.displaced is None or not a.displaced.windows:
        return False
    dims = zip(a.tensor.visible, a.displaced.dims, a.displaced.windows, strict=True)
    return any(b is not None and graph.group(b) in inner and (w.moves or d.extent is not b.extent) for d, b, w in dims)


def tile_accesses(
    graph: IterationGraph,
    segment: Fusion,
    inputs: SegmentInputs,
    cells: Cells,
    run: Sequence[Group],
    sizes: Mapping[Group, int],
    vectors: Iterable[int],
) -> TileAccesses | None:
    """Vectors along a run of dims around the cells, of one of some numbers of indices; None where all of them are cut.

    Of the numbers by which no vector is cut: first the one with the least traffic of accesses, where runs of an input are as
    good as one access each, since the first brings the others' sectors to the first-level cache; then one with which a thread
    moves as much as one of a copy does; then the one with the least traffic; then the first.
    """
    extents = _Extents(graph, segment, inputs.evaluate)
    solid = [g for g in run if sizes[g] != 1]
    best: tuple[tuple[float, bool, float], TileAccesses] | None = None
    for vector in vectors:
        asked = next((d for g in reversed(solid) if (d := extents.asked_divisible(g, vector)) is not None), None)
        if asked is not None:
            lies = _accesses(graph, segment, inputs, cells, solid, vector)
            moved = sum(vector * a.itemsize for a, _, _ in lies if a.stride(solid[-1]))
            rank = (
                _traffic(segment, cells, lies, vector, is_cached=True),
                moved < LEAST_MOVED,
                _traffic(segment, cells, lies, vector, is_cached=False),
            )
            if best is None or rank < best[0]:
                wide = [(a.name, lie, width) for a, lie, width in lies if width > 1]
                found = TileAccesses(
                    vector,
                    tuple((n, width) for n, _, width in wide),
                    tuple(n for n, lie, _ in wide if lie),
                    tuple(
                        (n, 0 if lie == "across" else cells.apart[n][0])
                        for n, lie, _ in wide
                        if lie == "across" or n in cells.apart
                    ),
                    asked,
                )
                best = rank, found
    return None if best is None else best[1]


def _accesses(
    graph: IterationGraph, segment: Fusion, inputs: SegmentInputs, cells: Cells, run: Sequence[Group], vector: int
) -> list[tuple[Argument, str, int]]:
    """How a tile of `vector` indices lies in each argument, and elements of an access."""
    sources = {o.tensor: o.alias_of for o in segment.outputs if o.alias_of is not None}
    widths: dict[str, int] = {}
    found: list[tuple[Argument, str, int]] = []
    for a in cells.arguments:
        lie, width = _access(graph, a, cells, run, vector, inputs)
        source = sources.get(a.tensor) if a.tensor not in segment.input_tensors else None
        if source is not None:
            # It is stored where an input lies, whose alignment is asked for only as wide as that one is read.
            width = min(width, widths.get(source.name, 1))
        widths[a.name] = width
        found.append((a, lie, width))
    return found


def _traffic(
    segment: Fusion, cells: Cells, accesses: Sequence[tuple[Argument, str, int]], vector: int, *, is_cached: bool
) -> float:
    """Bytes of the lines that the accesses of a warp touch, per index of the dims around the cells.

    The accesses of neighbouring threads lie as far apart as a thread's run is long: each touches all the lines of a run of the
    warp, of which there is at least one.

    is_cached   inputs that were touched once cost nothing more
    """
    traffic = 0.0
    for a, lie, width in accesses:
        itemsize = a.tensor.dtype.itemsize
        along = vector * itemsize
        run = {"run": along * cells.runs.get(a.name, 1), "across": along}.get(lie, width * itemsize)
        again = 1 if is_cached and a.tensor in segment.input_tensors else run / (width * itemsize)
        traffic += a.itemsize * again * max(1, LANE_BYTES / run)
    return traffic


def _access(
    graph: IterationGraph, a: Argument, cells: Cells, run: Sequence[Group], vector: int, inputs: SegmentInputs
) -> tuple[str, int]:
    """How the tile of a thread lies in an argument, and elements of an access."""
    along = a.stride(run[-1])
    if _is_moved_inside(graph, a, cells.inner):
        return "", 1
    run_of_cell, strides_apart = cells.runs.get(a.name), cells.apart.get(a.name, (0, ()))[1]
    if run_of_cell is not None:
        lie, count = ("run", vector * run_of_cell) if along == run_of_cell else ("", run_of_cell)
    elif along == 1:
        lie, count = ("across" if strides_apart else ""), vector
    else:
        return "", 1
    width = min(ACCESS_BYTES // a.tensor.dtype.itemsize, count & -count)
    if a.displaced is not None:
        if lie == "run" or a.name in cells.runs:
            return "", 1
        width = read_width(a.displaced, a.described, a.dims[run[-1]], width, inputs.evaluate)
    others = [s for g, s in a.strides.items() if g not in run or (lie != "run" and a.name in cells.runs)]
    others += strides_apart
    while width > 1 and (a.alignment % (width * a.tensor.dtype.itemsize) or any(s % width for s in others)):
        width //= 2
    return lie, width


def vectorize_tile(
    builder: ScheduleBuilder,
    copies: Mapping[str, str],
    widths: Iterable[tuple[str, int]],
    runs: Collection[str],
    tails: Mapping[str, int],
    first: int,
    inside: int,
) -> None:
    """Vectorize the copies of arguments.

    copies         of arguments: the first loop of a thread's elements is `first`, that of its cells `inside`; loops between are
                   a thread's indices, those behind are of a cell, or of an input that is read whole
    widths, ...    see `TileAccesses`
    """
    for argument, width in widths:
        name = copies.get(argument)
        if name is None:
            continue
        last = builder.innermost(name)
        if argument in runs:
            at = last - tails.get(argument, last - first)
            if at > first:
                builder.reorder(name, {first: at})
                made = builder.definition(name)
                if argument in builder.output_names and made is not None:
                    # What is stored by vectors lies in registers as they do.
                    builder.reorder(tensor_inputs(made)[0].name, {first: at})
        else:
            at = max(inside, last + 1 - tails.get(argument, last)) if last >= inside else last
        for _ in range(last - at):
            builder.merge(name, at, at + 1)
        innermost = builder.innermost(name)
        if builder.state(name).loop[innermost].extent is not const(width):
            builder.split(name, innermost, width)
            innermost += 1
        builder.parallelize(name, innermost, ParallelType.vectorize)
