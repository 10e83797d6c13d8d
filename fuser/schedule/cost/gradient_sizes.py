"""What a row of a segment of inner and outer reductions costs a thread: bytes, registers, operations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from fuser.ir.fusion import (
    Fusion,
    Pointwise,
    Welford,
    tensor_outputs,
)
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.records import record
from fuser.schedule.analysis.inner_outer import InnerOuter, concrete_groups, row_orientations
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reference import (
    choose_vector,
    dim_groups,
    dim_order,
    resolving_graph,
)
from fuser.schedule.analysis.rows import row_bounds
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.transforms.inner_outer_builder import InnerOuterScheduleBuilder

OWN_REGISTERS = 30
"""Registers of a thread beside row data and column sums: addresses, statistics, temporaries."""
WIDE_REGISTERS = 16
"""As many more where rows have no 16-bit elements, or statistics are joined by counts; twice as many of Doubles."""


@record
class GradientRowCost:
    """What a row costs.

    loaded               bytes of an element that are read from memory
    moved                bytes of an element that are read or written
    row_registers        registers of an access: of the row's inputs
    held_registers       of what all rows share: weights and column sums
    kept_registers       of values kept between stages while a row is computed
    sums                 sums of a column
    own_registers        registers of a thread in addition to those
    read_sizes           bytes of an element of each input that has rows
    weight_sizes         of each input that all rows share
    kept_sizes           of each value that is kept between stages
    column_registers     registers of the sums of one column
    sum_bytes            bytes of one such sum
    statistics           statistics of a row
    statistic_registers  their registers, while a row is computed
    is_double            rows have elements of 8 bytes
    operations           operations of an element, additions to sums included
    """

    loaded: int
    moved: int
    row_registers: int
    held_registers: int
    kept_registers: int
    sums: int
    own_registers: int = OWN_REGISTERS
    read_sizes: tuple[int, ...] = ()
    weight_sizes: tuple[int, ...] = ()
    kept_sizes: tuple[int, ...] = ()
    column_registers: int = 0
    sum_bytes: int = 4
    statistics: int = 0
    statistic_registers: int = 0
    is_double: bool = False
    operations: int = 16


def size_registers(sizes: Iterable[int], vector: int) -> int:
    """Registers of an access to tensors whose elements have these `sizes` in bytes."""
    return sum(-(-vector * size // 4) for size in sizes)


@memoized
def sum_registers(segment: Fusion, inner_outer: InnerOuter) -> int:
    """Registers of a column's sums: Welford has a mean, a sum of squares, what they are differences from and, at the end, a
    long count."""
    results = [(e, tensor_outputs(e)[0]) for e in reductions_of(segment) if tensor_outputs(e)[0] in inner_outer.column]
    numbers = ((5 if isinstance(e, Welford) else 1, t.dtype.itemsize) for e, t in results)
    return sum(count * max(1, size // 4) for count, size in numbers)


@memoized
def operations_of(segment: Fusion, graph: IterationGraph, inner_outer: InnerOuter) -> int:
    """Operations of an element, with its additions to sums."""
    full = sum(
        isinstance(e, Pointwise) and inner_outer.is_full(graph, tensor_outputs(e)[0]) for e in segment.tensor_exprs
    )
    return full + len(inner_outer.row) + len(inner_outer.column)


@memoized
def kept_sizes(segment: Fusion, graph: IterationGraph, inner_outer: InnerOuter) -> tuple[int, ...]:
    """Bytes of an element of values of full size that are kept from one stage to the next beside the copies of inputs."""
    return _kept_sizes(segment, row_orientations(segment, graph).index(inner_outer))


@lru_cache(maxsize=256)
def _kept_sizes(segment: Fusion, choice: int) -> tuple[int, ...]:
    """The same for the sides of that number: found once for all fusions that are equal."""
    inner_outer = row_orientations(segment, resolving_graph(segment))[choice]
    kept = InnerOuterScheduleBuilder(segment, (), inner_outer.reference.name).kept()
    return tuple(t.dtype.itemsize for t in kept)


@record(eq=False)
class GradientSizes:
    """What a segment has at some sizes.

    order, groups   dims of the reference, those of the rows first, each slowest first; the groups of all of them
    length, rows    elements of a row, and how many there are
    vector          elements of an access, at most; `vectorized`: arguments of which that is one access
    read            inputs of full size, that have whole rows
    """

    segment: Fusion
    graph: IterationGraph
    inner_outer: InnerOuter
    order: tuple[int, ...]
    groups: list[Group]
    length: int
    rows: int
    vector: int
    vectorized: tuple[str, ...]
    cost: GradientRowCost
    read: tuple[str, ...]

    def bounds(
        self, inputs: SegmentInputs, capacity: int, rows: int = 0, *, least: int = 1
    ) -> tuple[tuple[str, int, int, int], ...] | Refused:
        """The extents of rows of `least` elements or more that `capacity` elements hold, and where it is given of so many
        `rows`: see `row_bounds`."""
        inner_outer = self.inner_outer
        found = row_bounds(
            self.segment, self.graph, inner_outer.along, inputs, capacity, self.order, self.groups, least
        )
        if not rows or isinstance(found, Refused):
            return found
        others = row_bounds(self.segment, self.graph, inner_outer.others, inputs, rows, self.order, self.groups)
        return others if isinstance(others, Refused) else found + others


def find_gradient_sizes(segment: Fusion, inputs: SegmentInputs, most: int = 16) -> GradientSizes | Refused:
    """What the segment has at these sizes; `most`: elements of an access that are asked for."""
    graph = resolving_graph(segment)
    choices = row_orientations(segment, graph)
    reference = choices[0].reference
    groups = dim_groups(graph, reference)
    order = dim_order(graph, segment, reference, inputs)
    inner_outer = next((s for s in choices if groups[order[-1]] in s.along), None)
    if inner_outer is None:
        return Refused("the fastest dim is not one along the rows")
    groups = dim_groups(graph, inner_outer.reference)
    order = dim_order(graph, segment, inner_outer.reference, inputs)
    order = tuple(sorted(order, key=lambda d: (not groups[d].is_broadcast, groups[d] in inner_outer.along)))
    extent = {g: inputs.evaluate(g.extent) for g in groups}
    length = math.prod(extent[g] for g in groups if g in inner_outer.along)
    rows = math.prod(extent[g] for g in groups if g in inner_outer.others)
    if length < 1 or rows < 1:
        return Refused("there is no element")
    # What has part of a row is read where it is used.
    whole = [t for t in segment.input_tensors if not t.is_cpu and inner_outer.along <= concrete_groups(graph, t)]
    read = [t for t in whole if inner_outer.is_full(graph, t)]
    written = [t for t in segment.output_tensors if inner_outer.is_full(graph, t)]
    if not read:
        return Refused("no input has whole rows")
    read_sizes = tuple(t.dtype.itemsize for t in read)
    weight_sizes = tuple(t.dtype.itemsize for t in whole if t not in read)
    widest = max(t.dtype.itemsize for t in (*read, *written))
    vector, vectorized = choose_vector(graph, segment, groups[order[-1]], inputs, min(most, max(1, 16 // widest)))
    sums = {t.name for t in segment.output_tensors if not inner_outer.is_full(graph, t)}
    kept = kept_sizes(segment, graph, inner_outer)
    of_column = sum_registers(segment, inner_outer)
    is_double = any(t.dtype.itemsize > 4 for t in (*read, *written))
    is_wide = widest > 2 or any(isinstance(e, Welford) for e in reductions_of(segment))
    cost = GradientRowCost(
        loaded=sum(read_sizes),
        moved=sum(t.dtype.itemsize for t in (*read, *written)),
        row_registers=size_registers(read_sizes, vector),
        held_registers=size_registers(weight_sizes, vector) + vector * of_column,
        kept_registers=size_registers(kept, vector),
        sums=len(inner_outer.column),
        own_registers=OWN_REGISTERS + (WIDE_REGISTERS * max(4, widest) // 4 if is_wide else 0),
        read_sizes=read_sizes,
        weight_sizes=weight_sizes,
        kept_sizes=kept,
        column_registers=of_column,
        sum_bytes=8 if is_double else 4,
        statistics=len(inner_outer.row),
        statistic_registers=len(inner_outer.row) * (2 if is_double else 1),
        is_double=is_double,
        operations=operations_of(segment, graph, inner_outer),
    )
    vectorized = tuple(n for n in vectorized if n not in sums)
    return GradientSizes(
        segment, graph, inner_outer, order, groups, length, rows, vector, vectorized, cost, tuple(t.name for t in read)
    )
