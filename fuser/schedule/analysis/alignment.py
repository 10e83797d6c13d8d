"""Vector accesses along rows whose first addresses are not aligned, and the argument whose alignment decides where vectors
begin.

In a row of 50257 elements, or with a base address that is off by one element, no vector width makes every access aligned. A
load may begin at any address: it takes three accesses of half the width, and funnel shifts. A store must be aligned: vectors
begin where the output is aligned, and the elements before the first and after the last whole vector are stored one by one
(alignment peeling). If nothing is written along the row, vectors begin where the largest input is aligned, so that its loads
are aligned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fuser.ir.device_info import SECTOR_BYTES, WARP
from fuser.ir.fusion.fusion import Fusion, Tensor, memory_order
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.integers.integers import ONE
from fuser.records import record
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, tested_dims
from fuser.schedule.analysis.layout import AccessWidths, Argument, arguments_of
from fuser.schedule.params import Access, Aligned, Peeled, Unaligned
from fuser.schedule.scheduler import SegmentInputs

MIN_VECTORS = 16
"""Accesses of a row, at most two of them partial, below which accesses of single elements are as good."""

MIN_FOLLOWED = 512
"""Accesses of a row without stores from which on peeling costs less than misaligned loads (H200: sums
of 7168 Floats 78 -> 55 us, cross entropy of 1024 Floats 19 -> 28 us)."""


INSTRUCTIONS_OF_ACCESS = 6
"""Of an access: address, predicate, load or store."""
INSTRUCTIONS_OF_CUT = 14
"""Additional, of an element of a partial vector: a test, a branch and an access."""


def min_peeled_length(vector: int) -> int:
    """Row length in elements from which on alignment peeling costs less than accessing the row element by element.

    Both ends run the code for partial vectors, during which other lanes wait: 2 * vector elements of a warp. It saves
    vector - 1 accesses per vector. 1365 elements for vectors of 8, 796 of 4, 597 of 2.
    """
    return WARP * 2 * vector * vector * INSTRUCTIONS_OF_CUT // (INSTRUCTIONS_OF_ACCESS * (vector - 1))


@record
class RowAccesses:
    """How the arguments of a segment are accessed along its fastest dim.

    vector       consecutive elements of an access
    vectorized   names of the reads of inputs, and of the outputs, that are accessed by `vector` elements
    access       where vectors begin
    in_phase     inputs that are known to be aligned where vectors begin
    """

    vector: int
    vectorized: tuple[str, ...]
    access: Access = Aligned()
    in_phase: tuple[str, ...] = ()


def choose_accesses(
    segment: Fusion,
    row: Sequence[Group],
    inputs: SegmentInputs,
    limit: int,
    *,
    most: type[Access] = Peeled,
    may_span: bool = False,
    least_vectors: int = MIN_VECTORS,
) -> RowAccesses:
    """Accesses along a row, whose dims (slowest first) end in the fastest one; up to `limit` elements.

    They are aligned and whole, with fewer elements if need be, in each of these cases:

    - that leaves every input along the row at least half of the elements;
    - the row has fewer than `least_vectors` others;
    - others are not allowed: `most` is the last kind that is, of aligned, unaligned and peeled accesses;
    - an argument is not contiguous along the row, or stores would be misaligned all the same.

    may_span   vectors may lie across dims of the row, if all are aligned

    One element is accessed where every few elements of an input are read: neighbouring threads then read from one sector.
    """
    fastest = row[-1]
    if _reads_interleaved(segment, fastest, inputs):
        limit = 1
    vector, vectorized = choose_vector(segment, fastest, inputs, limit)
    if may_span and vector < limit:
        whole = _whole_vectors(segment, row, inputs, limit)
        if whole:
            return RowAccesses(limit, whole)
    length = math.prod(inputs.evaluate(g.extent) for g in row)
    if most is Aligned or limit == 1 or length < least_vectors * limit:
        return RowAccesses(vector, vectorized)
    read, written = _arguments_along(segment, fastest, inputs)
    along, outputs = _names_of(read, limit), _names_of(written, limit)
    if not along or (vector * 2 >= limit and all(name in vectorized for name in along)):
        return RowAccesses(vector, vectorized)
    arguments = arguments_of(segment, inputs)
    sizes = {g: inputs.evaluate(g.extent) for g in row}
    if not all(_is_contiguous(a, row, sizes) for a in arguments if a.name in along or a.name in outputs):
        return RowAccesses(vector, vectorized)
    own = [o.tensor for o in segment.outputs if o.alias_of is None and o.tensor.name in outputs]
    if any(_is_interrupted(segment.resolved_dims, t, row) for t in own):
        return RowAccesses(vector, vectorized)
    to = choose_peel_reference(arguments, row, sizes, limit, outputs)
    if isinstance(to, Unaligned) and not outputs and most is Peeled and length >= MIN_FOLLOWED * limit:
        to = _input_peel_reference([a for a in arguments if a.name in along], row, limit)
    if to is None or (isinstance(to, Peeled) and most is not Peeled):
        return RowAccesses(vector, vectorized)
    return RowAccesses(limit, (*along, *outputs), to, in_phase_inputs(arguments, along, to, row, limit))


def choose_vector(segment: Fusion, fastest: Group, inputs: SegmentInputs, limit: int) -> tuple[int, tuple[str, ...]]:
    """(elements per access along the dim `fastest`, reads of inputs and outputs that can be that wide).

    The width is the best that some input allows, or where none lies along that dim, what its constant extent allows.
    """
    arguments = arguments_of(segment, inputs)
    sizes = {g: inputs.evaluate(g.extent) for g in (fastest, *(g for a in arguments for g in a.strides))}
    widths = AccessWidths(segment, inputs, arguments, sizes).along([fastest], limit)
    read, written = _arguments_along(segment, fastest, inputs)
    # Facts are about inputs: of an extent that none of them has only a constant is known.
    known = math.gcd(limit, fastest.extent.value) if fastest.extent.is_const else 1
    vector = max((widths[a.name] for a in read), default=known)
    return vector, tuple(a.name for a in (*read, *written) if widths[a.name] >= vector > 1)


def _reads_interleaved(segment: Fusion, fastest: Group, inputs: SegmentInputs) -> bool:
    """Whether neighbours along the fastest dim are not neighbours in an input, but in one sector."""
    return any(
        a.stride(fastest) > 1 and a.stride(fastest) * a.tensor.dtype.itemsize < SECTOR_BYTES
        for a in arguments_of(segment, inputs)
        if a.tensor in segment.input_tensors
    )


def _whole_vectors(segment: Fusion, row: Sequence[Group], inputs: SegmentInputs, vector: int) -> tuple[str, ...]:
    """Arguments along a row of which every vector is aligned although the fastest dim is no multiple of it: the row has several
    dims, contiguous, of a constant product that is a multiple (ten channels of each of 32 groups). Empty if an input is not."""
    sizes = {g: inputs.evaluate(g.extent) for g in row}
    if not all(g.extent.is_const for g in row) or math.prod(sizes.values()) % vector:
        return ()
    read, written = (_names_of(found, vector) for found in _arguments_along(segment, row[-1], inputs))
    found = tuple(
        a.name
        for a in arguments_of(segment, inputs)
        if a.name in (*read, *written)
        and _is_contiguous(a, row, sizes)
        and _begins_aligned(a, vector)
        and _has_aligned_rows(a, row, vector)
    )
    return found if read and all(name in found for name in read) else ()


def _arguments_along(
    segment: Fusion, fastest: Group, inputs: SegmentInputs
) -> tuple[Sequence[Argument], Sequence[Argument]]:
    """Reads of inputs, and outputs, whose neighbours along a dim are neighbours in memory: as declared, where that is where an
    output is stored."""
    in_place = {o.tensor for o in segment.outputs if o.alias_of is not None}
    read: list[Argument] = []
    written: list[Argument] = []
    for a in arguments_of(segment, inputs):
        # Strides of a tensor without elements are any numbers.
        if a.stride(fastest) == 1 and a.described.numel > 0:
            if a.tensor in segment.input_tensors:
                read.append(a)
            elif a.tensor in in_place or a.dims[fastest] == memory_order(a.tensor.stride_order)[-1]:
                written.append(a)
    return read, written


def _names_of(arguments: Sequence[Argument], vector: int) -> tuple[str, ...]:
    """Those that are read or stored at the loops' own indices, of which an access holds a vector."""
    return tuple(a.name for a in arguments if a.displaced is None and vector * a.tensor.dtype.itemsize <= ACCESS_BYTES)


def _is_interrupted(graph: IterationGraph, tensor: Tensor, row: Sequence[Group]) -> bool:
    """Whether another dim is between those of the row in memory order. Its extent may be 1 now, but the kernel does not know
    that, and the strides of the dims around it are multiples of it."""
    dims = [tensor.visible[d] for d in memory_order(tensor.stride_order)]
    groups = [graph.group(d) for d in dims if not d.is_broadcast and d.extent is not ONE]
    first = next((i for i, g in enumerate(groups) if g in row), len(groups))
    return any(g not in row for g in groups[first:])


def choose_peel_reference(
    arguments: Sequence[Argument], row: Sequence[Group], sizes: Mapping[Group, int], vector: int, outputs: Sequence[str]
) -> Unaligned | Peeled | None:
    """Where the vectors of a row begin so that all stores of whole vectors are aligned; None if that is impossible.

    None too where a dim has no elements: the strides around it are 0, and tell no dims apart.
    """
    if 0 in sizes.values():
        return None
    written = [a for a in arguments if a.name in outputs]
    if any(not _begins_aligned(a, vector) and a.alignment % ACCESS_BYTES for a in written):
        return None
    starts = [{g: s % vector for g, s in a.strides.items() if g not in row and s % vector} for a in written]
    if not any(starts):
        return Unaligned()
    is_one_run = _is_contiguous(written[0], row, sizes)
    return Peeled(written[0].name) if is_one_run and all(s == starts[0] for s in starts) else None


def _input_peel_reference(read: Sequence[Argument], row: Sequence[Group], vector: int) -> Unaligned | Peeled:
    """Where vectors begin in a row without stores: at aligned addresses of the input with most bytes."""
    largest = max(read, key=lambda a: a.nbytes)
    is_aligned = _begins_aligned(largest, vector) and _has_aligned_rows(largest, row, vector)
    return Unaligned() if is_aligned else Peeled(largest.name)


def in_phase_inputs(
    arguments: Sequence[Argument], along: Sequence[str], to: Unaligned | Peeled, row: Sequence[Group], vector: int
) -> tuple[str, ...]:
    """The inputs whose rows have the same misalignment as those of the argument `to` peels at, itself included.

    Both are dense, so that their row strides are the same expression. Without such an argument: the inputs all of whose rows
    are aligned.
    """
    followed = next((a for a in arguments if isinstance(to, Peeled) and a.name == to.at), None)
    if followed is None:
        aligned = (a for a in arguments if _begins_aligned(a, vector) and _has_aligned_rows(a, row, vector))
        return tuple(a.name for a in aligned if a.name in along)

    def strides_between_rows(a: Argument) -> dict[Group, int]:
        return {g: s for g, s in a.strides.items() if g not in row}

    return tuple(
        a.name
        for a in arguments
        if a.name in along
        and (
            a is followed
            or (
                _is_dense(a)
                and _is_dense(followed)
                and strides_between_rows(a) == strides_between_rows(followed)
                and _begins_aligned(a, vector)
                and _begins_aligned(followed, vector)
            )
        )
    )


def _begins_aligned(a: Argument, vector: int) -> bool:
    """Whether its address is a multiple of a vector."""
    return a.alignment % (vector * a.tensor.dtype.itemsize) == 0


def _has_aligned_rows(a: Argument, row: Sequence[Group], vector: int) -> bool:
    """Whether all rows lie a multiple of a vector behind the first one."""
    return not any(s % vector for g, s in a.strides.items() if g not in row)


def _is_dense(argument: Argument) -> bool:
    """Whether a tensor is contiguous in the order of its dims, the last one fastest: facts cover only such tensors."""
    running = 1
    for size, stride in zip(reversed(argument.described.sizes), reversed(argument.described.strides), strict=True):
        if size != 1 and stride != running:
            return False
        running *= size
    return True


def contiguous_suffix(
    segment: Fusion, row: Sequence[Group], sizes: Mapping[Group, int], inputs: SegmentInputs
) -> Sequence[Group]:
    """The innermost dims of a row (slowest first) that are contiguous in every input that has all of its dims. A dim whose
    positions are tested is one by itself: they would be divisions of those along several."""
    graph = segment.resolved_dims
    found = arguments_of(segment, inputs)
    read = [a for a in found if a.tensor in segment.input_tensors and all(a.stride(g) for g in row if sizes[g] != 1)]
    tested = {graph.group(d) for d in tested_dims(segment)}
    first = 0
    while first < len(row) - 1 and not (
        tested.isdisjoint(row[first:]) and all(_is_contiguous(a, row[first:], sizes) for a in read)
    ):
        first += 1
    return row[first:]


def _is_contiguous(argument: Argument, row: Sequence[Group], sizes: Mapping[Group, int]) -> bool:
    """Whether a row is contiguous in memory."""
    running = 1
    for group in reversed([g for g in row if sizes[g] != 1]):
        if argument.stride(group) != running:
            return False
        running *= sizes[group]
    return True
