"""What reductions of rows and of columns together work on, at the sizes at hand."""

from __future__ import annotations

from functools import lru_cache

from fuser.ir.device_info import REGISTER_BYTES
from fuser.ir.fusion.fusion import (
    Fusion,
    Welford,
    tensor_outputs,
)
from fuser.ir.fusion.memoized import memoized
from fuser.records import record
from fuser.schedule.analysis.alignment import choose_vector
from fuser.schedule.analysis.data_passes import empty_schedule, sink_pass_count
from fuser.schedule.analysis.inner_outer import InnerOuter, row_orientations
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reduced_space import ReducedSpace
from fuser.schedule.analysis.reference import (
    dim_groups,
    dim_order,
)
from fuser.schedule.analysis.rows import row_extent_ranges
from fuser.schedule.cost.instruction_cache import element_instructions, row_instructions
from fuser.schedule.cost.rounding import round_up
from fuser.schedule.params import ExtentRange
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.transforms.inner_outer_builder import InnerOuterScheduleBuilder

OWN_REGISTERS = 30
"""Registers of a thread beside row data and column sums: addresses, statistics, temporaries."""
DOUBLE_STATISTIC = 8
"""Registers of a statistic of Doubles and of what becomes of it (ptxas, one to four elements of 2 to 10 rows in a thread: 14 to
16 registers a row of two statistics beside those that are read)."""
ASYNCHRONOUS = (4, 8, 16)
"""Bytes of a copy that passes no registers."""
OF_ROWS = 4
"""Binary digits of a number of rows that mappings depend on."""
WIDE_REGISTERS = 16
"""As many more where rows have no 16-bit elements, or statistics are joined by counts; twice as many of Doubles."""


@record
class InnerOuterSpace:
    """What the search depends on. Counts in elements, where nothing else is said.

    length, rows         of a row; how many there are, rounded up so that numbers that are not far apart share a kernel
    vector               of one access, at most
    copied               of one asynchronous copy, widest first; none: rows cannot be copied so
    loaded, moved        bytes of an element that are read, and that are read or written
    arguments            tensors of full size
    read_sizes, weight_sizes, kept_sizes   bytes of an element of each input that has rows, of each that all rows share, and
                         of each value that is kept between data passes
    sums, sum_bytes      sums of a column, and bytes of each
    statistics           of a row; `exchanges`: how often its threads wait for one another for them
    own_registers        of a thread beside rows, weights and sums; `column_registers`: of the sums of one column;
                         `statistic_registers`: of what each of several rows has one of
    operations, row_operations   instructions of an element and of a row, as `instruction_cache` counts them
    """

    length: int
    rows: int
    vector: int
    copied: tuple[int, ...]
    loaded: int
    moved: int
    arguments: int
    read_sizes: tuple[int, ...]
    weight_sizes: tuple[int, ...]
    kept_sizes: tuple[int, ...]
    sums: int
    sum_bytes: int
    statistics: int
    exchanges: int
    own_registers: int
    column_registers: int
    statistic_registers: int
    operations: int
    row_operations: int
    is_double: bool = False


@lru_cache(maxsize=1024)
def size_registers(sizes: tuple[int, ...], vector: int, least: int = 1) -> int:
    """Registers of an access to tensors whose elements have these `sizes` in bytes, or take `least` bytes of a register."""
    return sum(-(-vector * max(least, size) // REGISTER_BYTES) for size in sizes)


@memoized
def sum_registers(segment: Fusion, inner_outer: InnerOuter) -> int:
    """Registers of a column's sums: Welford has a mean, a sum of squares, what they are differences from and, at the end, a
    long count."""
    results = [(e, tensor_outputs(e)[0]) for e in reductions_of(segment) if tensor_outputs(e)[0] in inner_outer.column]
    numbers = ((5 if isinstance(e, Welford) else 1, t.dtype.itemsize) for e, t in results)
    return sum(count * max(1, size // 4) for count, size in numbers)


@memoized
def kept_sizes(segment: Fusion, inner_outer: InnerOuter) -> tuple[int, ...]:
    """Bytes of an element of values of full size that are kept from one data pass to the next beside the copies of inputs."""
    return _kept_sizes(segment, row_orientations(segment).index(inner_outer))


@lru_cache(maxsize=256)
def _kept_sizes(segment: Fusion, choice: int) -> tuple[int, ...]:
    """The same for the sides of that number: found once for all fusions that are equal."""
    inner_outer = row_orientations(segment)[choice]
    kept = InnerOuterScheduleBuilder(segment, (), inner_outer.reference.name).kept()
    return tuple(t.dtype.itemsize for t in kept)


@record(eq=False)
class SizedInnerOuter:
    """A segment of inner and outer reductions at its sizes: its space, and what no mapping changes (see InnerOuterParams).

    rows        dims of the reference, those of the rows first, of which those along a row are reduced
    vectorized  arguments of which an access of `space.vector` elements is one
    read        inputs of full size, that have whole rows
    """

    inner_outer: InnerOuter
    rows: ReducedSpace
    vectorized: tuple[str, ...]
    read: tuple[str, ...]
    space: InnerOuterSpace

    def bounds(self, capacity: int, rows: int = 0, *, least: int = 1) -> tuple[ExtentRange, ...] | Refused:
        """The extents of rows of `least` elements or more that `capacity` elements hold, and where it is given of so many
        `rows`: see `row_extent_ranges`."""
        found = row_extent_ranges(self.rows, capacity, least)
        if not rows or isinstance(found, Refused):
            return found
        dims = self.rows
        of_rows = ReducedSpace(dims.segment, dims.inputs, dims.reference, self.inner_outer.others, dims.order)
        others = row_extent_ranges(of_rows, rows)
        return others if isinstance(others, Refused) else found + others


def find_inner_outer(segment: Fusion, inputs: SegmentInputs, most: int = 16) -> SizedInnerOuter | Refused:
    """What the segment has at these sizes; `most`: elements of an access that are asked for."""
    graph = segment.resolved_dims
    choices = row_orientations(segment)
    reference = choices[0].reference
    groups = dim_groups(graph, reference)
    order = dim_order(segment, reference, inputs)
    inner_outer = next((s for s in choices if groups[order[-1]] in s.along), None)
    if inner_outer is None:
        return Refused("the fastest dim is not one along the rows")
    groups = dim_groups(graph, inner_outer.reference)
    order = dim_order(segment, inner_outer.reference, inputs)
    order = tuple(sorted(order, key=lambda d: (not groups[d].is_broadcast, groups[d] in inner_outer.along)))
    dims = ReducedSpace(segment, inputs, inner_outer.reference, inner_outer.along, order)
    if dims.length < 1 or dims.kept < 1:
        return Refused("there is no element")
    # What has part of a row is read where it is used.
    whole = [t for t in segment.input_tensors if not t.is_cpu and inner_outer.along <= graph.concrete_groups(t.visible)]
    read = [t for t in whole if dims.has_reduced_and_kept_dims(t.visible)]
    written = [t for t in segment.output_tensors if dims.has_reduced_and_kept_dims(t.visible)]
    if not read:
        return Refused("no input has whole rows")
    read_sizes = tuple(t.dtype.itemsize for t in read)
    weight_sizes = tuple(t.dtype.itemsize for t in whole if t not in read)
    widest = max(t.dtype.itemsize for t in (*read, *written))
    vector, vectorized = choose_vector(segment, groups[order[-1]], inputs, min(most, max(1, 16 // widest)))
    sums = {t.name for t in segment.output_tensors if t not in written}
    is_double = any(t.dtype.itemsize > 4 for t in (*read, *written))
    is_wide = widest > 2 or any(isinstance(e, Welford) for e in reductions_of(segment))
    vectorized = tuple(n for n in vectorized if n not in sums)
    widths = tuple(v for v in (16, 8, 4, 2, 1) if v <= vector and (v == 1 or all(t.name in vectorized for t in read)))
    space = InnerOuterSpace(
        dims.length,
        round_up(dims.kept, OF_ROWS),
        vector,
        tuple(v for v in widths if all(size * v in ASYNCHRONOUS for size in read_sizes)),
        loaded=sum(read_sizes),
        moved=sum(t.dtype.itemsize for t in (*read, *written)),
        arguments=len(read) + len(written),
        read_sizes=read_sizes,
        weight_sizes=weight_sizes,
        kept_sizes=kept_sizes(segment, inner_outer),
        sums=len(inner_outer.column),
        sum_bytes=8 if is_double else 4,
        statistics=len(inner_outer.row),
        exchanges=sink_pass_count(empty_schedule(segment)) - 1,
        own_registers=OWN_REGISTERS + (WIDE_REGISTERS * max(4, widest) // 4 if is_wide else 0),
        column_registers=sum_registers(segment, inner_outer),
        statistic_registers=len(inner_outer.row) * (DOUBLE_STATISTIC if is_double else 1),
        operations=element_instructions(segment),
        row_operations=row_instructions(segment),
        is_double=is_double,
    )
    return SizedInnerOuter(inner_outer, dims, vectorized, tuple(t.name for t in read), space)
