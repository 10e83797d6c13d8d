"""Inner tiles: the elements along innermost dims of small, constant extent, which one thread processes together. They make
vector accesses of interleaved, stacked, packed and repeated values.

A vector along a dim of two or four elements is short, and an argument that lacks that dim, or is sliced along it, would be
read element by element. Instead a thread takes several indices of the next dim and, for each of them, all elements of the
innermost dims: an inner tile. An argument that has the innermost dims is accessed as one contiguous range, an argument that
lacks them along the next dim. An input that is sliced or padded along such dims of its own is loaded once, as a whole; the
slices are elements of its copy in registers. All these extents are constants, so that it is known at compile time to which
operand of a concatenation an element belongs.

    t2[n, 2] = cat(t0[n, 1], t1[n, 1])      4 indices of n per thread: vectors of 4 of t0 and t1, one of 8 of t2
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fuser.ir.fusion.dim_pairs import displaced_dims
from fuser.ir.fusion.fusion import Expr, Fusion, Gather, Resize, Tensor, tensor_inputs
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.integers import Int, Symbol
from fuser.records import record
from fuser.schedule.analysis.input_reads import is_divisible
from fuser.schedule.analysis.layout import Argument, extents_by_group, input_dims_by_extent
from fuser.schedule.params import ExtentMultiple, ExtentRange
from fuser.schedule.scheduler import SegmentInputs

INNER_TILE_BYTES = 32
"""Most bytes of an inner tile: a sector, of which a slice leaves nothing unread, and two accesses of a thread."""

InputDim = tuple[str, int]
"""A dim of an input: its name and position."""


@record(eq=False)
class InnerTile:
    """The inner tile of a segment: its dims, and how arguments are laid out along them.

    arguments      with the reads of `whole_inputs` as one, and whose strides are those of the dims around the inner tiles
    inner          dims of the loops that a thread takes whole, slowest first: a part of their own
    whole_inputs   inputs of which a thread loads all elements of its tile, once
    runs           elements that are contiguous at the end of an inner tile, for arguments where that is a run of several, or of
                   one that has a loop
    strided        for arguments whose inner tiles are not contiguous: how many of their fastest dims are, and the strides of
                   the others
    extent_ranges  (input, dim, low, high): extents that are constants then
    """

    arguments: tuple[Argument, ...]
    inner: tuple[Group, ...]
    whole_inputs: tuple[str, ...]
    runs: Mapping[str, int]
    strided: Mapping[str, tuple[int, tuple[int, ...]]]
    extent_ranges: tuple[ExtentRange, ...]


class SizedSegment:
    """A segment at some sizes: how its tensors call the extents of its dims, and which inputs have these."""

    def __init__(self, segment: Fusion, inputs: SegmentInputs) -> None:
        self.graph, self.segment, self.inputs = segment.resolved_dims, segment, inputs
        self.evaluate = inputs.evaluate
        self.extents = extents_by_group(segment)
        self.owners = input_dims_by_extent(segment)

    def constant_dims(self, groups: Iterable[Group]) -> dict[InputDim, ExtentRange] | None:
        """The facts that are required so that the extents of some dims are constants; None where that is not enough."""
        bounds: dict[InputDim, ExtentRange] = {}
        for group in groups:
            requirements = self.constant_requirement(self.extents[group])
            if requirements is None:
                return None
            bounds |= {b[:2]: b for b in requirements}
        return bounds

    def constant_requirement(self, extents: Collection[Int]) -> tuple[ExtentRange, ...] | None:
        """The facts that are required so that equal extents are one constant; None where that is not enough."""
        # By place: numbers of a trace cannot be keys.
        requirements: dict[InputDim, ExtentRange] = {}
        is_known = any(e.is_const for e in extents)
        for e in sorted(extents, key=str):
            if isinstance(e, Symbol) and is_known:
                continue  # equal to the constant, which is checked before a launch
            for s in sorted(e.symbols, key=str):
                if s not in self.owners:
                    return None
                requirements[self.owners[s]] = (*self.owners[s], self.evaluate(s), self.evaluate(s))
        return tuple(requirements.values())

    def divisibility_requirement(self, group: Group, divisor: int) -> tuple[ExtentMultiple, ...] | None:
        """The facts that are required so that the extent of a dim is a multiple; None where that is not enough."""
        requirements: dict[ExtentMultiple, None] = {}
        for e in sorted(self.extents[group], key=str):
            symbols = [s for s in sorted(e.symbols, key=str) if s in self.owners and self.evaluate(s) % divisor == 0]
            if self.evaluate(e) % divisor or not is_divisible(e, divisor, symbols):
                return None
            requirements |= {(*self.owners[s], divisor): None for s in symbols if e.multiple % divisor}
        return tuple(requirements)


def inner_tile_last(order: Sequence[Group], sizes: Mapping[Group, int], arguments: Sequence[Argument]) -> list[Group]:
    """An order of dims (slowest first) in which those that are the inner tiles of an argument come last, if the
    fastest dim is the one around them there: the largest such argument says which."""
    last = next((g for g in reversed(order) if sizes[g] != 1), None)
    if last is None:
        return list(order)
    for a in sorted((a for a in arguments if a.displaced is None and a.stride(last) > 1), key=lambda a: -a.nbytes):
        inside: list[Group] = []
        running = 1
        while running < a.stride(last):
            found = next((g for g in order if g not in inside and sizes[g] != 1 and a.stride(g) == running), None)
            if found is None:
                break
            inside.append(found)
            running *= sizes[found]
        if inside and a.stride(last) == running and running * a.itemsize <= INNER_TILE_BYTES:
            return [*(g for g in order if g not in inside), *reversed(inside)]
    return list(order)


def find_inner_tile(
    sized: SizedSegment, arguments: Sequence[Argument], parts: Sequence[Sequence[Group]]
) -> InnerTile | None:
    """The inner tiles of a segment whose loops are `parts`; None where there is nothing that a thread should take whole."""
    for inner in (parts[-1], ()) if len(parts) > 1 else ((),):
        if not inner and not _sliced_inputs(sized.segment):
            continue
        # The reference has all of them.
        if math.prod(sized.evaluate(g.extent) for g in inner) > INNER_TILE_BYTES:
            continue
        found = _inner_tile(sized, arguments, parts[-2] if inner else parts[-1], inner)
        if found is not None:
            return found
    return None


def _inner_tile(
    sized: SizedSegment, arguments: Sequence[Argument], around: Sequence[Group], inner: Sequence[Group]
) -> InnerTile | None:
    bounds = sized.constant_dims(inner)
    if bounds is None:
        return None
    sizes = {g: sized.evaluate(g.extent) for g in (*around, *inner)}
    last = next((g for g in reversed(around) if sizes[g] != 1), None)
    if last is None:
        return None
    whole_inputs: dict[str, Argument] = {}
    found: list[Argument] = []
    runs: dict[str, int] = {}
    strided: dict[str, tuple[int, tuple[int, ...]]] = {}
    for t in _sliced_inputs(sized.segment):
        whole = _whole_input(sized, t, inner)
        if whole is not None and whole[0].stride(last):
            whole_inputs[t.name] = whole[0]
            bounds |= {b[:2]: b for b in whole[1]}
            found.append(whole[0])
    found += [a for a in arguments if a.tensor.name not in whole_inputs]
    solid = [g for g in inner if sizes[g] != 1]
    if not solid and not whole_inputs:
        return None
    for i, a in enumerate(found):
        own = [g for g in solid if a.distance(g)]
        running = a.tile_elements
        is_run = bool(own) or a.name in whole_inputs
        for g in reversed(own):
            is_run = is_run and a.stride(g) == running
            running *= sizes[g]
        if is_run:
            runs[a.name] = running
        elif own:
            strided[a.name] = 0, tuple(map(a.distance, own))
        found[i] = replace(
            a,
            strides={g: s for g, s in a.strides.items() if g not in inner},
            tile_elements=running,
            seen=a.seen // math.prod(sizes[g] for g in own if a.stride(g)),
        )
        if found[i].itemsize > INNER_TILE_BYTES:
            return None
    # Something must gain by it: neighbours along the dims around, or inner tiles that follow one another.
    if not any(
        a.stride(last) == (a.tile_elements if a.name in runs else 1) and not is_displaced_in_tile(sized.graph, a, inner)
        for a in found
    ):
        return None
    return InnerTile(tuple(found), tuple(inner), tuple(whole_inputs), runs, strided, tuple(bounds.values()))


def reduced_inner_tile(
    sized: SizedSegment, arguments: Sequence[Argument], reduced: Sequence[Group]
) -> InnerTile | None:
    """Inner tiles of all elements that are reduced to one; None if no input has the extents of the reduced dims.

    reduced   slowest first, those of one element before others
    """
    bounds = sized.constant_dims(reduced)
    if bounds is None:
        return None
    sizes = {g: sized.evaluate(g.extent) for g in reduced}
    found: list[Argument] = []
    runs: dict[str, int] = {}
    strided: dict[str, tuple[int, tuple[int, ...]]] = {}
    for a in arguments:
        own = [g for g in reduced if g in a.dims or g in a.lookups]
        running, count = 1, 0
        for g in reversed(own):
            if a.stride(g) != running:
                break
            running, count = running * sizes[g], count + 1
        if running > 1:
            runs[a.name] = running
        if count < len(own):
            strided[a.name] = count, tuple(a.distance(g) for g in own[: len(own) - count])
        cell = math.prod(sizes[g] for g in own if a.distance(g))
        counted = math.prod(sizes[g] for g in own if a.stride(g))
        strides = {g: s for g, s in a.strides.items() if g not in reduced}
        found.append(replace(a, strides=strides, tile_elements=cell, seen=a.seen // max(1, counted)))
    return InnerTile(tuple(found), tuple(reduced), (), runs, strided, tuple(bounds.values()))


@memoized
def _slicing_exprs(segment: Fusion, t: Tensor) -> tuple[Sequence[Expr], Sequence[int]] | None:
    """The exprs that read an input, and its dims along which those slice or pad it; None where none does, or one gathers."""
    reads = [e for e in segment.tensor_exprs if t in tensor_inputs(e)]
    moved = {a for e in reads if isinstance(e, (Resize, Gather)) for a, _ in displaced_dims(e, t, e.output)}
    if not moved or any(isinstance(e, Gather) for e in reads):
        return None
    return reads, [i for i, d in enumerate(t.visible) if d in moved]


@memoized
def _sliced_inputs(segment: Fusion) -> list[Tensor]:
    """The inputs that all exprs slice or pad, or read at their own indices."""
    return [t for t in segment.input_tensors if _slicing_exprs(segment, t) is not None]


def _whole_input(
    sized: SizedSegment, t: Tensor, inner: Sequence[Group]
) -> tuple[Argument, tuple[ExtentRange, ...]] | None:
    """An input as it is if it is read whole, and the extents that must be constants for that; None where it is not, and
    where it has no elements.

    The dims along which it is sliced or padded are its fastest ones, and few elements, of which all are used in one thread.
    """
    graph, described = sized.graph, sized.inputs.tensors.get(t.name)
    found = None if described is None else _slicing_exprs(sized.segment, t)
    if described is None or found is None:
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
    requirements = tuple[ExtentRange, ...]()
    for i in ordered:
        more = sized.constant_requirement([t.visible[i].extent])
        if more is None:
            return None
        requirements += more
    known = {s for i in ordered for s in t.visible[i].extent.symbols}
    known.update(s for g in inner for e in sized.extents[g] for s in e.symbols)
    for e in reads:
        for i in dims:
            at = e.output.produced[i] if isinstance(e, Resize) else t.visible[i]
            if not at.is_broadcast and graph.group(at) not in inner:
                return None
            window = e.windows[i] if isinstance(e, Resize) else None
            if window is not None and window.step != 1:
                return None
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
    return whole, requirements


def is_displaced_in_tile(graph: IterationGraph, a: Argument, inner: Collection[Group]) -> bool:
    """Whether a read is moved along dims inside of an inner tile, where its elements have no loops of their own."""
    if a.displaced is None or not a.displaced.windows:
        return False
    dims = zip(a.tensor.visible, a.displaced.dims, a.displaced.windows, strict=True)
    return any(b is not None and graph.group(b) in inner and (w.moves or d.extent is not b.extent) for d, b, w in dims)
