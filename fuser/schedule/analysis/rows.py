"""The rows of a segment whose fastest dim is reduced: extents, the arguments along a row, vector accesses, and length
limits.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fact_collection import INDEX_LIMIT
from fuser.ir.fusion.fusion import Fusion, IterDomain, Tensor
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.extent_bounds import has_bounded_product, has_followed_bounds
from fuser.records import record
from fuser.schedule.analysis.alignment import RowAccesses, choose_accesses, contiguous_suffix, min_peeled_length
from fuser.schedule.analysis.input_reads import InputRead, input_reads
from fuser.schedule.analysis.reduced_space import ReducedSpace, reduced_space
from fuser.schedule.analysis.reference import input_dims, vector_limit
from fuser.schedule.params import Aligned, ExtentRange, Peeled
from fuser.schedule.scheduler import Refused, SegmentInputs


@record(eq=False)
class Rows:
    """The rows of a segment.

    space           the dims of a row, those that are reduced, and those of the rows
    along, reads    inputs that are along a row, and those of them that have rows
    is_single       there is one row: inputs with rows cannot be distinguished from shared operands; `reads` has all
    element_stride  elements from one element of a row to the next: 1 if its innermost dim is the innermost one
    missing_elements  most elements that the first vector of a row may lack
    loaded, moved   bytes of the reads for an element of a row; of what is read and written for it
    repeated        of the bytes loaded, those that other rows or other reads bring as well: they come from a cache
    """

    space: ReducedSpace
    along: list[InputRead]
    reads: list[InputRead]
    is_single: bool
    accesses: RowAccesses
    element_stride: int
    missing_elements: int
    loaded: int
    moved: int
    repeated: int

    def shared_row_tensors(self, device: DeviceInfo) -> tuple[str, ...]:
        """Names of the row tensors if all can be kept in shared memory; else none.

        Without inputs that lack some dims of a row: several threads, or blocks, need the same element of these, which is read
        where it is used.
        """
        if not device.copies_to_shared or not all(map(self._is_copied_in_whole_accesses, self.reads)):
            return ()
        return tuple(r.name for r in self.reads if self.is_along_all(r))

    def _is_copied_in_whole_accesses(self, read: InputRead) -> bool:
        """Whether asynchronous copies can bring a row of an input."""
        is_vectorized = read.name == read.tensor.name and read.name in self.accesses.vectorized
        return is_vectorized and self.accesses.vector * read.tensor.dtype.itemsize in (4, 8, 16)

    def is_along_all(self, read: InputRead) -> bool:
        """Whether an input is along all dims of a row."""
        space = self.space
        return {g for g in space.reduced if not g.is_broadcast} <= space.graph.concrete_groups(read.loop_dims)


@memoized
def _reads_along(segment: Fusion, reduced: frozenset[Group]) -> tuple[list[InputRead], list[InputRead], int]:
    """Inputs that are along a row, those of them that have rows, and bytes of the outputs for an element of a row."""

    graph = segment.resolved_dims

    def lies_along(dims: Iterable[IterDomain]) -> bool:
        return not reduced.isdisjoint(graph.concrete_groups(dims))

    along = [read for read in input_reads(segment) if lies_along(read.loop_dims)]
    reads = [read for read in along if not graph.concrete_groups(read.loop_dims) <= reduced]
    return along, reads, sum(t.dtype.itemsize for t in segment.output_tensors if lies_along(t.visible))


def find_rows(segment: Fusion, inputs: SegmentInputs, max_element_stride: int = 1) -> Rows | Refused:
    """The rows of a segment, whose elements are at most `max_element_stride` elements apart."""
    space = reduced_space(segment, inputs)
    graph, order, groups, reduced, extent = space.graph, space.order, space.groups, space.reduced, space.sizes
    within = list(itertools.takewhile(lambda d: groups[d] not in reduced, reversed(order)))
    pitch = math.prod(extent[groups[d]] for d in within)
    if within and (max_element_stride == 1 or pitch > max_element_stride or len(within) == len(order)):
        return Refused("the fastest dim is not reduced")
    length, rows = space.length, space.kept
    if length < 1 or rows < 1:
        return Refused("there is no element")

    along, reads, written = _reads_along(segment, reduced)
    is_single = rows == 1 and not reads
    if is_single:
        reads = along
    if not reads:
        return Refused("no input has rows")
    fastest = groups[order[-1 - len(within)]]
    limit = vector_limit(segment, fastest)
    row = [groups[d] for d in order if groups[d] in reduced and not groups[d].is_broadcast] or [fastest]
    accesses = choose_accesses(segment, row, inputs, limit)
    if isinstance(accesses.access, Peeled) and length < min_peeled_length(limit):
        accesses = choose_accesses(segment, row, inputs, limit, most=Aligned)
    # The first part of a row that is cut where it is aligned may hold a single element of it.
    cut = accesses.vector - 1 if isinstance(accesses.access, Peeled) else 0
    loaded = sum(r.tensor.dtype.itemsize for r in reads)
    whole_row = {g for g in reduced if not g.is_broadcast}
    whole = [r.tensor for r in reads if whole_row <= {graph.group(d) for d in r.loop_dims}]
    repeated = _repeated_bytes(whole, length * rows, inputs)
    return Rows(
        space=space,
        along=along,
        reads=reads,
        is_single=is_single,
        accesses=accesses,
        element_stride=pitch,
        missing_elements=cut,
        loaded=loaded,
        moved=loaded - repeated + written,
        repeated=repeated,
    )


def _repeated_bytes(reads: Sequence[Tensor], elements: int, inputs: SegmentInputs) -> int:
    """Of the bytes that reads of these inputs take for an element, those beyond the inputs themselves."""
    found = 0
    for tensor, count in Counter(reads).items():
        there = math.prod(inputs.evaluate(d.extent) for d in tensor.visible if not d.is_broadcast)
        itemsize = tensor.dtype.itemsize
        found += max(0, itemsize * count - round(itemsize * there / elements))
    return found


def contiguous_runs(order: Sequence[int], trivial: Sequence[int], along: Sequence[int]) -> list[int]:
    """How many of the dims `along` a row follow one another in memory, each time, slowest first; `trivial`: of one element."""
    runs: list[int] = []
    previous = -1
    places = {d: k for k, d in enumerate(d for d in order if d not in trivial)}
    for d in along:
        if runs and places[d] == previous + 1:
            runs[-1] += 1
        else:
            runs.append(1)
        previous = places[d]
    return runs or [0]


def row_extent_ranges(
    space: ReducedSpace, capacity: int, least: int = 1, *, parts: bool = True
) -> tuple[ExtentRange, ...] | Refused:
    """(input, dim, low, high) for each reduced dim of unknown extent, so that the product of the highs is at most `capacity`.

    The outermost dim gets the capacity that is left, so that a kernel is reused for every row that its registers hold, of
    `least` elements or more if a row is one dim. Extents are required exactly

    - if a row fills the registers: then no access needs a predicate;
    - if they are the inner dims of rows that are not contiguous, such as a channel's images: each access divides by them, and
      dividing by an unknown number takes twenty instructions. Not if `parts` is False, because the offsets are then computed
      early and take registers;
    - if no bound of the product follows from bounds of the extents.
    """
    order, groups, sizes = space.order, space.groups, space.sizes
    mine = [groups[d] for d in order if groups[d] in space.reduced]
    exactly = not has_bounded_product(g.extent for g in mine)
    result: list[ExtentRange] = []
    exact = exactly or math.prod(sizes[g] for g in mine) == capacity
    along = [d for d in order if groups[d] in space.reduced and not groups[d].is_broadcast]
    runs = contiguous_runs(order, [d for d in order if groups[d].is_broadcast], along)
    known = {groups[d] for d in along[-runs[-1] :]} if parts and len(runs) > 1 else set[Group]()
    room = capacity
    for g in reversed(mine):
        if g.extent.is_const:
            room //= sizes[g]
            continue
        places = input_dims(space.segment).get(g, ())
        place = next(((name, i) for name, i, dim in places if has_followed_bounds(dim.extent)), None)
        if place is None or not has_followed_bounds(g.extent):
            return Refused(f"no input has the reduced dim {g.name}, or none with an extent whose bounds are followed")
        others = math.prod(sizes[m] for m in mine if m is not g)
        limit = room if not exactly and (others == 1 or g is mine[0]) else sizes[g]
        low = sizes[g] if exact or g in known else 1
        if g is mine[0] and all(m is g or m in known or m.is_broadcast for m in mine):
            low = max(low, -(-least // others))
        result.append((*place, low, limit))
        room //= limit
    return tuple(result)


def two_row_ranges(space: ReducedSpace, row: Sequence[Group], vector: int) -> tuple[ExtentRange, ...]:
    """(input, dim, low, high) for the fastest dim of a row, so that `vector` neighbours are in at most two runs of it.

    One division then serves them all, where places along that dim are found by dividing those in a row of several dims. Empty
    where the dim is shorter now, or nothing is divided.
    """
    fastest = row[-1]
    if vector == 1 or space.sizes[fastest] < vector or not _divides(space, row):
        return ()
    places = input_dims(space.segment).get(fastest, ())
    place = next(((name, i) for name, i, dim in places if dim.extent is fastest.extent), None)
    return () if place is None else ((*place, vector, INDEX_LIMIT),)


def _divides(space: ReducedSpace, row: Sequence[Group]) -> bool:
    """Whether some value has other dims than a row, or an argument is not one run of memory along it."""
    whole, segment = frozenset(row), space.segment
    along = (whole.intersection(space.graph.concrete_groups(t.visible)) for t in segment.tensors)
    if any(row[-1] in dims and dims != whole for dims in along):
        return True
    return len(contiguous_suffix(segment, row, space.sizes, space.inputs)) < len(row)
