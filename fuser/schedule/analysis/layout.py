"""Memory layout of the arguments of a segment: strides along the loops' dims, dims that are contiguous together, vector
widths.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial

from fuser.ir.fact_collection import divisible_dims_of_input, divisible_extent_of_output
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion, IterDomain, Tensor, memory_order
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.integers import Int, Symbol
from fuser.records import record
from fuser.schedule.analysis.input_reads import (
    ACCESS_BYTES,
    InputRead,
    input_reads,
    is_divisible,
    read_step,
    read_width,
)
from fuser.schedule.params import ExtentMultiple
from fuser.schedule.scheduler import SegmentInputs


@record(eq=False)
class Argument:
    """A way of reading an input, or an output.

    name        of the read, or of the output
    strides     per dim of the loops of more than one element, elements from one index to the next; 0: all see one element
    alignment   a power of two in bytes that divides its address
    seen        elements that the loops touch
    dims        the dim of the tensor that corresponds to each dim of the loops
    displaced   for a slice, pad or gather: what is read
    tile_elements        elements that a thread takes at each index of the loops' dims, which are those around them
    lookups     for a gather: dims of its index, along which it has no stride but other elements, and the strides of the dims of
                the tensor that these are looked up along
    """

    name: str
    tensor: Tensor
    strides: Mapping[Group, int]
    alignment: int
    seen: int
    dims: Mapping[Group, int]
    described: TensorDescriptor
    displaced: InputRead | None = None
    tile_elements: int = 1
    lookups: Mapping[Group, int] = field(default_factory=dict[Group, int])

    @property
    def itemsize(self) -> int:
        """Bytes at each index."""
        return self.tensor.dtype.itemsize * self.tile_elements

    @property
    def nbytes(self) -> int:
        """Bytes that a kernel moves for it at least."""
        return self.seen * self.itemsize

    def stride(self, group: Group) -> int:
        """Elements from one index of a dim to the next; 0 if the argument does not have it."""
        return self.strides.get(group, 0)

    def distance(self, group: Group) -> int:
        """The same, or for what is looked up along a dim the elements between neighbouring places."""
        return self.strides.get(group, 0) or self.lookups.get(group, 0)


def arguments_of(segment: Fusion, inputs: SegmentInputs) -> tuple[Argument, ...]:
    """Reads of inputs, then outputs. An output written in place has the layout of its input. Found once for some inputs."""
    key = Argument, segment
    found: tuple[Argument, ...] | None = inputs.answers.get(key)
    if found is None:
        evaluate = inputs.evaluate
        found = inputs.answers[key] = tuple(
            a.argument(_output_argument(a.tensor, evaluate) if a.source is None else inputs.tensors[a.source], evaluate)
            for a in _accessed(segment)
        )
    return found


def _output_argument(t: Tensor, evaluate: Callable[[Int], int]) -> TensorDescriptor:
    """An output as the launch allocates it: dense in its memory order."""
    sizes = tuple(1 if d.is_broadcast else evaluate(d.extent) for d in t.visible)
    strides = [0] * len(sizes)
    running = 1
    for dim in reversed(memory_order(t.stride_order)):
        strides[dim] = running
        running *= max(sizes[dim], 1)
    return TensorDescriptor(t.dtype, sizes, tuple(strides))


@record(eq=False)
class _Accessed:
    """What of an argument follows from the structure. `source`: whose memory it is; None: that of an output.

    dims      (dim of the tensor, of the loops, its extent, elements from one index to the next); `outer`: with another factor
              of these, as of `InputRead`
    """

    name: str
    tensor: Tensor
    source: str | None
    dims: tuple[tuple[int, Group, Int, int], ...]
    outer: tuple[tuple[int, Group, Int, int, Int], ...] = ()
    lookups: tuple[tuple[int, Group], ...] = ()
    displaced: InputRead | None = None

    def argument(self, described: TensorDescriptor, evaluate: Callable[[Int], int]) -> Argument:
        """With these sizes and strides."""
        strides: dict[Group, int] = {}
        dims: dict[Group, int] = {}
        seen = 1
        own_sizes, own_strides = described.sizes, described.strides
        for i, group, extent, step in self.dims:
            n, s = own_sizes[i], own_strides[i]
            if n == 1:
                continue
            strides[group], dims[group] = s * step, i
            if s != 0:
                seen *= n if self.displaced is None else evaluate(extent)
        for i, group, extent, step, elements in self.outer:
            strides[group], dims[group] = own_strides[i] * evaluate(elements) * step, i
            seen *= evaluate(extent) if strides[group] else 1
        lookups = {group: own_strides[i] for i, group in self.lookups if own_sizes[i] != 1}
        tensor, alignment = self.tensor, described.alignment
        return Argument(self.name, tensor, strides, alignment, seen, dims, described, self.displaced, lookups=lookups)


@memoized
def _accessed(segment: Fusion) -> list[_Accessed]:
    """Of each argument what all sizes have in common."""
    graph = segment.resolved_dims
    found: list[_Accessed] = []
    for read in input_reads(segment):
        dims = tuple(
            (i, graph.group(d), d.extent, read_step(read, i)) for i, d in enumerate(read.dims) if d is not None
        )
        outer = tuple((i, graph.group(d), d.extent, read_step(read, i), elements) for d, i, elements in read.outer)
        lookups = tuple((i, graph.group(d)) for d, i in read.lookups)
        displaced = read if read.name != read.tensor.name else None
        found.append(_Accessed(read.name, read.tensor, read.tensor.name, dims, outer, lookups, displaced))
    aliases = {o.tensor: o.alias_of.name for o in segment.outputs if o.alias_of is not None}
    for t in segment.output_tensors:
        if t not in segment.input_tensors and t.visible:
            dims = tuple((i, graph.group(d), d.extent, 1) for i, d in enumerate(t.visible))
            found.append(_Accessed(t.name, t, aliases.get(t), dims))
    return found


def merge_contiguous_dims(
    order: Sequence[Group],
    sizes: Mapping[Group, int],
    arguments: Sequence[Argument],
    apart: Collection[Group] = (),
) -> list[list[Group]]:
    """Merge adjacent dims of `order` (slowest first) that are contiguous in every argument that has them.

    Dims in `apart` are not merged: their index is needed.
    """
    parts: list[list[Group]] = []
    for group in order:
        is_free = group not in apart and not (parts and any(g in apart for g in parts[-1]))
        if parts and is_free and _is_contiguous(parts[-1], group, sizes, arguments):
            parts[-1].append(group)
        else:
            parts.append([group])
    return parts


def _is_contiguous(
    part: Sequence[Group], inner: Group, sizes: Mapping[Group, int], arguments: Sequence[Argument]
) -> bool:
    if sizes[inner] == 1:
        return True
    outer = next((g for g in reversed(part) if sizes[g] != 1), None)
    if outer is None:
        return True
    return all(a.stride(outer) == sizes[inner] * a.stride(inner) for a in arguments)


Known = Callable[[], Collection[Symbol]]
"""Extents that facts say are multiples of a width."""


def _accesses(widths: Mapping[str, int], names: Iterable[str]) -> float:
    """Accesses to some arguments for each element of the loops."""
    return sum(1 / widths[n] for n in names)


def _same(known: Collection[Symbol]) -> Collection[Symbol]:
    return known


@memoized
def _in_place_outputs(segment: Fusion) -> Mapping[Tensor, Tensor | None]:
    """Each output that is written in place, and the input it is written to, None if that is not read."""
    return {
        o.tensor: o.alias_of if segment.uses(o.alias_of) else None for o in segment.outputs if o.alias_of is not None
    }


@memoized
def input_dims_by_extent(segment: Fusion) -> Mapping[Int, tuple[str, int]]:
    """For each extent of an input the first (input, dim) that has it."""
    owners: dict[Int, tuple[str, int]] = {}
    for t in segment.input_tensors:
        for i, d in enumerate(() if t.is_cpu else t.visible):
            owners.setdefault(d.extent, (t.name, i))
    return owners


@memoized
def extents_by_group(segment: Fusion) -> Mapping[Group, Collection[Int]]:
    """The extents that the tensors of a segment have along each dim."""
    graph = segment.resolved_dims
    found: dict[Group, dict[Int, None]] = {}
    for t in segment.tensors:
        for d in t.logical:
            extents = found.setdefault(graph.group(d), {})
            if not d.is_broadcast:
                extents[d.extent] = None
    return {group: tuple(extents) for group, extents in found.items()}


class AccessWidths:
    """How many consecutive elements along a run of dims one access to each argument can take.

    Every access has to start at a multiple of its own size and must not leave the run. Lowering proves it from facts about the
    extents of inputs: an extent that comes from scalars cannot be required, one that is computed from extents has to follow
    from those that are.
    """

    def __init__(
        self,
        segment: Fusion,
        inputs: SegmentInputs,
        arguments: Sequence[Argument],
        sizes: Mapping[Group, int],
    ) -> None:
        self.graph = segment.resolved_dims
        self.arguments = arguments
        self.sizes = sizes
        self.evaluate = inputs.evaluate
        self.sources = _in_place_outputs(segment)
        self.read = segment.input_tensors
        self.owners = input_dims_by_extent(segment)
        self.owned = self.owners.keys()
        self._found: dict[tuple[Group | int, ...], Mapping[str, int]] = {}
        self._wider: dict[Group, tuple[list[Group], int, Mapping[str, int]]] = {}
        self.extents = extents_by_group(segment)

    def along(self, run: Sequence[Group], limit: int) -> Mapping[str, int]:
        """Widths by name of argument: powers of two up to `limit`."""
        key = (*run, limit)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._along(run, limit)
        return found

    def along_with_requirements(
        self, run: Sequence[Group], limit: int
    ) -> tuple[Mapping[str, int], tuple[ExtentMultiple, ...]]:
        """The same if the kernel may require divisible extents that no access of its own needs; the widths, and these extents.

        The start of a concatenation operand depends on the sizes of the operands before it, for which no divisibility is
        assumed otherwise.
        """
        best = self.along(run, limit), tuple[ExtentMultiple, ...]()
        displaced = [a.name for a in self.arguments if a.displaced is not None]
        width = limit if displaced else 1
        while width > 1:
            symbols = self._window_symbols(run, width)
            if symbols:
                found = self._along(run, width, symbols)
                # Fewer accesses for the same elements of what is moved are worth a kernel for such extents only.
                fewer = [_accesses(found, names) - _accesses(best[0], names) for names in (displaced, found)]
                if fewer[0] < 0 and fewer[1] < 0:
                    required = sorted(self.owners[s] for s in symbols)
                    best = found, tuple((*place, width) for place in required)
            width //= 2
        return best

    def _window_symbols(self, run: Sequence[Group], width: int) -> frozenset[Symbol]:
        """Extents of inputs that are multiples of a width, of which places of windows along a run are made."""
        places: set[Int] = set()
        solid = [g for g in run if self.sizes[g] != 1]
        for a in self.arguments if solid else ():
            if a.displaced is not None and a.stride(solid[-1]) == 1:
                dim = a.dims[solid[-1]]
                for w in a.displaced.windows[dim : dim + 1]:
                    places.update(s for e in w.seams for s in e.symbols)
        return frozenset(
            s for s in places if isinstance(s, Symbol) and s in self.owned and self.evaluate(s) % width == 0
        )

    def _along(self, run: Sequence[Group], limit: int, apart: frozenset[Symbol] = frozenset()) -> dict[str, int]:
        """Widths by name of argument, where the extents `apart` are required to be multiples of `limit`."""
        solid = [g for g in run if self.sizes[g] != 1]
        wider = self._wider.get(solid[-1]) if solid and not apart else None
        if wider is not None and wider[0] == solid and wider[1] >= limit:
            return {name: min(width, limit) for name, width in wider[2].items()}
        while solid and limit > 1:
            found: list[frozenset[Symbol]] = []
            widths = self._widths(solid, limit, partial(self._multiples, limit, found), apart)
            if not found:
                # No extent needs to be divisible because others are, for narrower accesses neither.
                if not apart and all(a.displaced is None for a in self.arguments):
                    self._wider[solid[-1]] = solid, limit, widths
                return widths
            required = found[0].intersection(
                e for a in self.arguments if widths[a.name] >= limit for e in self._required_extents(a, limit)
            )
            required |= apart
            if found[0] <= required or self._widths(solid, limit, partial(_same, required), apart) == widths:
                return widths
            if apart:
                break
            limit //= 2
        return {a.name: 1 for a in self.arguments}

    def _multiples(self, width: int, found: list[frozenset[Symbol]]) -> frozenset[Symbol]:
        """Extents of inputs that are multiples of a width, found on first need."""
        if not found:
            symbols = (e for e in self.owned if isinstance(e, Symbol))
            found.append(frozenset(e for e in symbols if self.evaluate(e) % width == 0))
        return found[0]

    def _required_extents(self, a: Argument, width: int) -> list[Int]:
        """The extents that must be divisible if an argument is accessed by vectors of a width."""
        if a.tensor in self.read:
            zero = [d for d, s in enumerate(a.described.strides) if s == 0]
            return [a.tensor.visible[d].extent for d in divisible_dims_of_input(a.tensor, width, a.described, zero)]
        symbols = {e for e in self.owned if isinstance(e, Symbol)}
        extent = divisible_extent_of_output(a.tensor, width, symbols, self.evaluate, lambda d: [d.extent])
        if extent is None:
            extent = divisible_extent_of_output(a.tensor, width, symbols, self.evaluate, self._extents_of)
        return [] if extent is None else [extent]

    def _extents_of(self, dim: IterDomain) -> Collection[Int]:
        group = self.graph.group(dim)
        return sorted(self.extents[group], key=str) if group in self.sizes else ()

    def _widths(self, solid: Sequence[Group], limit: int, known: Known, apart: Collection[Symbol]) -> dict[str, int]:
        widths: dict[str, int] = {}
        for a in self.arguments:
            width = self._width(a, solid, limit, known, apart)
            if a.tensor in self.sources:
                # It is stored in the memory of an input, whose alignment is required only for the width of its reads.
                source = self.sources[a.tensor]
                width = min(width, widths.get(source.name, 1) if source is not None else 1)
            widths[a.name] = width
        return widths

    def _width(self, a: Argument, solid: Sequence[Group], limit: int, known: Known, apart: Collection[Symbol]) -> int:
        if a.stride(solid[-1]) != 1 or not all(map(self._is_one_extent, solid[1:])):
            return 1
        itemsize = a.tensor.dtype.itemsize
        width = min(limit, ACCESS_BYTES // itemsize)
        if a.displaced is not None:
            width = read_width(a.displaced, a.described, a.dims[solid[-1]], width, self.evaluate, apart)
        while width > 1:
            if (
                a.alignment % (width * itemsize) == 0
                and any(self._is_divisible(g, width, known) for g in reversed(solid))
                and all(g in solid or s % width == 0 for g, s in a.strides.items())
            ):
                return width
            width //= 2
        return 1

    def _is_one_extent(self, group: Group) -> bool:
        """Whether lowering takes all extents of a dim for one: the strides around it follow from that of each argument. Symbols
        that are equal are one to it; an expression, such as the extent of a pad, and a symbol are not."""
        extents = self.extents[group]
        return len(extents) == 1 or all(isinstance(e, Symbol) or e.is_const for e in extents)

    def _is_divisible(self, group: Group, width: int, known: Known) -> bool:
        extents = self.extents[group]
        return (
            self.sizes[group] % width == 0
            and any(not isinstance(e, Symbol) or e in self.owned for e in extents)
            and all(isinstance(e, Symbol) or is_divisible(e, width, known()) for e in extents)
        )
