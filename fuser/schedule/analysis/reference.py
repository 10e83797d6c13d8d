"""The reference tensor of a segment, whose dims cover those of all others, and what an access along a dim holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion, IterDomain, Squeeze, Tensor, memory_order
from fuser.ir.fusion.iteration_graph import Group, IterationGraph
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.integers import Int
from fuser.records import record
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, dims_without_loop, input_reads
from fuser.schedule.scheduler import Refused, SegmentInputs


def dim_groups(graph: IterationGraph, tensor: Tensor) -> list[Group]:
    """Groups of a tensor's logical dims, reduced ones included."""
    return [graph.group(d) for d in tensor.logical]


def solid_groups(graph: IterationGraph, tensor: Tensor) -> frozenset[Group]:
    """Those of them with several elements; a broadcast dim has those of the dim that resolves it."""
    return frozenset(g for g in dim_groups(graph, tensor) if not g.is_broadcast)


def refusal_of_space(
    segment: Fusion,
    reference: Tensor,
    spread: Collection[Group] = (),
    threads: Collection[Group] = (),
    *,
    resolved: bool = False,
) -> Refused | None:
    """Why loops over the dims of a reference cannot compute a segment, or None if they can.

    spread              dims that blocks and threads are spread over, which no output may lack
    threads, resolved   see `_cross_thread_dim`
    """
    missing = _uncovered_tensor(reference, segment)
    if missing is not None:
        return Refused(f"{missing.name} has a dimension that {reference.name} does not have")
    lacking = output_missing_dim(segment, spread)
    if lacking is not None:
        return Refused(f"the output {lacking.name} lacks a dimension of {reference.name}")
    why = _dim_conflict(segment) or _cross_thread_dim(segment, threads, resolved=resolved)
    return None if why is None else Refused(why)


def _uncovered_tensor(reference: Tensor, segment: Fusion) -> Tensor | None:
    """A tensor with a dim of more than one element that the reference lacks, or None.

    Dims of an input that an earlier segment reduced do not count, nor do dims of inputs of which only slices are read: no loop
    of this segment runs over them.
    """
    graph = segment.resolved_dims
    covered = set(dim_groups(graph, reference))
    only_read = dims_without_loop(segment)
    for t in segment.tensors:
        for d in t.visible if t in segment.input_tensors else t.logical:
            if not d.is_broadcast and graph.group(d) not in covered and d not in only_read:
                return t
    return None


def output_missing_dim(segment: Fusion, required: Collection[Group]) -> Tensor | None:
    """A computed output without one of the dims that a kernel's blocks and threads are spread over, or None.

    Several threads would compute and store each of its elements. A broadcast dim that another tensor resolves is lacking.
    """
    graph = segment.resolved_dims
    for t in segment.output_tensors:
        own = graph.concrete_groups(t.visible)
        if t not in segment.input_tensors and any(g not in own for g in required):
            return t
    return None


def _ambiguous_dim(segment: Fusion) -> Tensor | None:
    """A tensor with a broadcast dim that is combined with two different dims, or None.

    A loop over it would have to be a loop over both.
    """
    exact, resolving = segment.dims, segment.resolved_dims
    concrete: dict[Group, Group] = {}
    clashes: set[Group] = set()
    for t in segment.tensors:
        for d in t.logical:
            if not d.is_broadcast and concrete.setdefault(resolving.group(d), exact.group(d)) is not exact.group(d):
                clashes.add(resolving.group(d))
    if not clashes:
        return None
    return next(
        (t for t in segment.tensors if any(d.is_broadcast and resolving.group(d) in clashes for d in t.logical)), None
    )


def _dim_conflict(segment: Fusion) -> str | None:
    """Why the dims of a segment cannot each be one loop, or None if they can."""
    graph = segment.resolved_dims
    if any(len(set(dim_groups(graph, t))) != len(t.logical) for t in segment.tensors):
        return "a tensor has one dimension twice"
    ambiguous = _ambiguous_dim(segment)
    return None if ambiguous is None else f"{ambiguous.name} is broadcast to two different dimensions"


def _cross_thread_dim(segment: Fusion, groups: Collection[Group], *, resolved: bool = False) -> str | None:
    """Why threads along some dims would need elements of other threads: a dim of extent 1 is squeezed away, and the result is
    read for all elements of that dim of another tensor. None if no tensor does that.

    resolved   also if the extent is 1 by definition (a broadcast dim), resolved to a larger one
    """
    graph = segment.resolved_dims
    for e in segment.tensor_exprs:
        if isinstance(e, Squeeze) and any(
            is_dropped
            and (resolved or not d.is_broadcast)
            and not graph.group(d).is_broadcast
            and graph.group(d) in groups
            for d, is_dropped in zip(e.input.visible, e.flags, strict=True)
        ):
            return f"{e.output.name} is read from one place of a dimension of {e.input.name}"
    return None


@memoized
def input_dims(segment: Fusion) -> Mapping[Group, Sequence[tuple[str, int, IterDomain]]]:
    """(input, position, dim) of the dims of inputs that have several elements, by their group."""
    graph = segment.resolved_dims
    found: dict[Group, list[tuple[str, int, IterDomain]]] = {}
    for t in segment.input_tensors:
        for i, d in enumerate(() if t.is_cpu else t.visible):
            if not d.is_broadcast:
                found.setdefault(graph.group(d), []).append((t.name, i, d))
    return found


def concrete_dims(graph: IterationGraph, tensor: Tensor) -> int:
    """Dims of more than one element, or that are resolved to such."""
    return sum(not graph.group(d).is_broadcast for d in tensor.logical)


def dim_order(segment: Fusion, reference: Tensor, inputs: SegmentInputs) -> tuple[int, ...]:
    """Dims of the reference from slowest to fastest, as the input that has most of them, or of several the one of which most
    bytes are read, has them in memory.

    A gathered operand also has the dims of its index, in the order of the index, in place of the gathered dim. Where no
    input has all dims what is stored with all of them decides, the reference itself or an output: it is larger than each. Dims
    of one element come first: they decide nothing.
    """
    solid, reads, default = _dims_of_reads(segment, reference)
    is_stored = default is not None
    best: list[int] = []
    best_size = (0, -1)
    for name, itemsize, places in reads:
        described = inputs.tensors[name]
        strides = _strides_in_memory(described)
        lying: list[tuple[int, int, int, _ReadDim]] = []
        for at, place in enumerate(places):
            stride = strides[place.dim] * (1 if place.elements is None else inputs.evaluate(place.elements))
            within = 0
            if place.index is not None and (index := inputs.tensors.get(place.index[0])) is not None:
                within = _strides_in_memory(index)[place.index[1]]
            if stride != 0:
                lying.append((-stride, -within, at, place))
        if is_stored and len(lying) < len(solid):
            continue
        seen = math.prod(inputs.evaluate(p.extent) for *_, p in lying)
        if lying and (len(lying), seen * itemsize) > best_size:
            best_size = len(lying), seen * itemsize
            best = [place.of_reference for *_, place in sorted(lying, key=lambda found: found[:3])]
    best = list(dict.fromkeys(best))
    order: Sequence[int] = [*(d for d in range(len(reference.logical)) if d not in best), *best]
    if not best and default is not None:
        order = default
    return (*(d for d in order if d not in solid), *(d for d in order if d in solid))


@record(eq=False)
class _ReadDim:
    """A dim of an input along a dim of the reference.

    elements   of it from one index to the next, where they are not neighbours
    index      for what is looked up: the tensor of the places, and its dim
    """

    dim: int
    of_reference: int
    extent: Int
    elements: Int | None = None
    index: tuple[str, int] | None = None


@memoized
def _dims_of_reads(
    segment: Fusion, reference: Tensor
) -> tuple[frozenset[int], tuple[tuple[str, int, tuple[_ReadDim, ...]], ...], tuple[int, ...] | None]:
    """Dims of the reference of more than one element; each input's name, bytes of an element, and its dims with those of the
    reference that they are; and the order of what is stored with all dims, None if nothing is."""
    graph = segment.resolved_dims
    groups = dim_groups(graph, reference)
    at = {g: groups.index(g) for g in groups}
    is_stored = len(reference.visible) == len(reference.logical)
    reads: list[tuple[str, int, tuple[_ReadDim, ...]]] = []
    for read in input_reads(segment):
        found = [
            _ReadDim(d, at[g], dim.extent, elements)
            for dim, d, elements in (
                *((dim, d, None) for d, dim in enumerate(read.dims) if dim is not None),
                *read.outer,
            )
            if (g := graph.group(dim)) in at
        ]
        index = read.index if not is_stored else None
        if index is not None:
            dims = {graph.group(d): i for i, d in enumerate(index.visible)}
            found += [
                _ReadDim(d, at[g], dim.extent, index=(index.name, dims[g]))
                for dim, d in read.lookups
                if (g := graph.group(dim)) in at and g in dims
            ]
        reads.append((read.tensor.name, read.tensor.dtype.itemsize, tuple(found)))
    solid = frozenset(d for d, g in enumerate(groups) if not g.is_broadcast)
    return solid, tuple(reads), _stored_order(segment, reference, solid)


def _stored_order(segment: Fusion, reference: Tensor, solid: Collection[int]) -> tuple[int, ...] | None:
    """Dims of the reference as it is stored itself, or as an output has all of them; None if nothing that is stored does."""
    graph = segment.resolved_dims
    if len(reference.visible) == len(reference.logical):
        return tuple(memory_order(reference.stride_order))
    at = {graph.group(reference.logical[d]): d for d in solid}
    for t in segment.output_tensors:
        own = [at.get(graph.group(t.visible[d])) for d in memory_order(t.stride_order) if not t.visible[d].is_broadcast]
        found = [d for d in own if d is not None]
        if t not in segment.input_tensors and len(found) == len(solid):
            return (*(d for d in range(len(reference.logical)) if d not in found), *found)
    return None


def _strides_in_memory(described: TensorDescriptor) -> Sequence[int]:
    """Strides of a tensor, where those of dims of one element, which are any numbers, are as if it were dense from there on."""
    strides = described.strides
    if 1 not in described.sizes:
        return strides
    dense = list(strides)
    for d, n in reversed(list(enumerate(described.sizes))):
        if n == 1:
            dense[d] = dense[d + 1] * described.sizes[d + 1] if d + 1 < len(dense) else 1
    return dense


@memoized
def vector_limit(segment: Fusion, fastest: Group) -> int:
    """Elements along `fastest` that fit into an access to every argument that has that dim."""
    graph = segment.resolved_dims
    reads = [(r.tensor, r.dims) for r in input_reads(segment)]
    computed = [(t, t.visible) for t in segment.output_tensors if t not in segment.input_tensors]
    sizes = [
        t.dtype.itemsize
        for t, dims in (*reads, *computed)
        if any(d is not None and not d.is_broadcast and graph.group(d) is fastest for d in dims)
    ]
    return max(1, ACCESS_BYTES // max(sizes, default=4))
