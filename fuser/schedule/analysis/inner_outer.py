"""Inner and outer reductions of one iteration space: statistics of rows, and sums of columns.

`inner_outer_of` tells them apart. `InnerOuterPass` does what every schedule of both needs first: it caches the inputs, decides
what stages keep, and computes apart from the pass over the rows what follows the sums.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from fuser.ir.enums import LoadStoreOpType
from fuser.ir.fusion import (
    ExpSum,
    Fusion,
    IterDomain,
    Pointwise,
    Reducing,
    Tensor,
    TensorExpr,
    Welford,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.reduced_dims import reduced_groups, reductions_of
from fuser.schedule.analysis.reference import (
    choose_vector,
    dim_groups,
    dim_order,
    resolving_graph,
    squeezed_dim,
    tangled_dims,
    uncovered,
)
from fuser.schedule.analysis.rows import row_bounds
from fuser.schedule.analysis.stages import keep_stages
from fuser.schedule.params import Refused, SegmentInputs

OWN_REGISTERS = 30
"""Registers of a thread beside row data and column sums: addresses, statistics, temporaries."""
WIDE_REGISTERS = 16
"""As many more where rows have no 16-bit elements, or statistics are joined by counts; twice as many of Doubles."""


@record
class Load:
    """What a row costs. Bytes of an element: `loaded` from memory, `moved` in all. Registers of an access: for a row, those
    held for all rows, and those that values kept between stages take while a row is computed. `sums`: how many a column has.
    `own_registers`: of a thread beside those.

    For accesses of any width, bytes of an element of each tensor: `read_sizes` of rows, `weight_sizes` of what rows share,
    `kept_sizes` of what stages keep. `column_registers`: of the sums of one column; `sum_bytes` of each. `statistics`: how
    many a row has, which take `statistic_registers` while a row is worked on. `operations`: of an element, with its additions
    to sums.
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


@record
class InnerOuter:
    """The two kinds of reductions of a segment: `row` results are reduced over the dims `along` a row, `column` ones over all
    `others`, which tell the rows apart."""

    reference: Tensor
    along: frozenset[Group]
    others: frozenset[Group]
    row: tuple[Tensor, ...]
    column: tuple[Tensor, ...]

    def is_full(self, graph: IterationGraph, t: Tensor) -> bool:
        """Whether a tensor has elements of its own along and across rows."""
        own = concrete_groups(graph, t)
        return bool(own & self.along) and bool(own & self.others)


@memoized
def choices_of(segment: Fusion, graph: IterationGraph) -> tuple[InnerOuter, ...]:
    """What may be the rows of a segment: what its first reduction reduces, or what it does not."""
    found = (inner_outer_of(segment, graph, first=first) for first in (True, False))
    return tuple(s for s in found if isinstance(s, InnerOuter))


@memoized
def inner_outer_of(segment: Fusion, graph: IterationGraph, *, first: bool) -> InnerOuter | Refused:
    """The reductions of a segment by what they reduce; rows are what the first one reduces, or what it does not."""
    results = [tensor_outputs(e)[0] for e in reductions_of(segment)]
    if not results:
        return Refused("nothing is reduced")
    reduced = {t: _reduced(graph, t) for t in results}
    kinds = list(dict.fromkeys(reduced.values()))
    if len(kinds) != 2 or not all(kinds):
        return Refused("what is reduced is not two sets of dimensions")
    along, others = kinds if first else reversed(kinds)
    if along & others:
        return Refused("some dimension is reduced together with two sets of others")
    row = tuple(t for t in results if reduced[t] == along)
    column = tuple(t for t in results if reduced[t] == others)
    for t in results:
        if {g for g in dim_groups(graph, t) if not g.is_broadcast} != along | others:
            return Refused(f"{t.name} is reduced from less than the whole iteration space")
    missing = uncovered(graph, row[0], segment)
    if missing is not None:
        return Refused(f"{missing.name} has a dimension that {row[0].name} does not have")
    tangled = tangled_dims(segment, graph) or squeezed_dim(segment, graph, along | others)
    if tangled is not None:
        return Refused(tangled)
    inner_outer = InnerOuter(row[0], along, others, row, column)
    if len(input_dims(segment, graph, along | others)) < len(along | others):
        return Refused("no input has some dimension of the iteration space")
    after = _downstream(segment.tensor_exprs, column)
    late = next((t for t in after if any(graph.group(d) in others for d in t.visible)), None)
    if late is not None:
        return Refused(f"{late.name} has rows and needs sums over all rows")
    return _outputs_refused(segment, graph, inner_outer, after) or inner_outer


def _outputs_refused(
    segment: Fusion, graph: IterationGraph, inner_outer: InnerOuter, after: Collection[Tensor]
) -> Refused | None:
    """Why an output is neither of full size, nor one value for each row or each column, or None."""
    statistics = _downstream(segment.tensor_exprs, inner_outer.row)
    for t in segment.output_tensors:
        own = concrete_groups(graph, t)
        if t in segment.input_tensors:
            return Refused(f"the output {t.name} is an input")
        is_sum = t in after or t in inner_outer.column
        is_statistic = t in statistics or t in inner_outer.row
        if own != (inner_outer.along if is_sum else inner_outer.along | inner_outer.others) and not (
            is_statistic and own == inner_outer.others
        ):
            return Refused(f"the output {t.name} is neither of full size nor a statistic of rows nor a sum of columns")
    return None


def concrete_groups(graph: IterationGraph, t: Tensor) -> frozenset[Group]:
    """Groups of the dims along which a tensor has elements of its own."""
    return frozenset(graph.group(d) for d in t.visible if not d.is_broadcast)


def _reduced(graph: IterationGraph, t: Tensor) -> frozenset[Group]:
    return frozenset(g for g in reduced_groups(graph, t) if not g.is_broadcast)


def _downstream(exprs: Iterable[TensorExpr], sources: Iterable[Tensor]) -> list[Tensor]:
    """Tensors computed from some others, in order. `exprs` are in order; siblings of a source do not count."""
    reached = set(sources)
    found: list[Tensor] = []
    siblings = {
        t for e in exprs if isinstance(e, Reducing) and reached & set(tensor_outputs(e)) for t in tensor_outputs(e)
    }
    reached |= siblings
    for e in exprs:
        if any(t in reached for t in tensor_inputs(e)):
            for t in tensor_outputs(e):
                if t not in reached:
                    reached.add(t)
                    found.append(t)
    return found


def access_registers(tensors: Iterable[Tensor], vector: int) -> int:
    """Registers of an access to each of some tensors."""
    return size_registers((t.dtype.itemsize for t in tensors), vector)


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


def input_dims(segment: Fusion, graph: IterationGraph, groups: Iterable[Group]) -> list[IterDomain]:
    """An input dim for each of some groups that inputs have."""
    found = _dims_of_inputs(segment, graph)
    return [found[g] for g in groups if g in found]


@memoized
def _dims_of_inputs(segment: Fusion, graph: IterationGraph) -> dict[Group, IterDomain]:
    found: dict[Group, IterDomain] = {}
    for t in segment.input_tensors:
        for d in t.visible:
            if not d.is_broadcast:
                found.setdefault(graph.group(d), d)
    return found


@memoized
def kept_sizes(segment: Fusion, graph: IterationGraph, inner_outer: InnerOuter) -> tuple[int, ...]:
    """Bytes of an element of values of full size that are kept from one stage to the next beside the copies of inputs."""
    return _kept_sizes(segment, choices_of(segment, graph).index(inner_outer))


@lru_cache(maxsize=256)
def _kept_sizes(segment: Fusion, choice: int) -> tuple[int, ...]:
    """The same for the sides of that number: found once for all fusions that are equal."""
    inner_outer = choices_of(segment, resolving_graph(segment))[choice]
    kept = InnerOuterPass(segment, (), inner_outer.reference.name).kept()
    return tuple(t.dtype.itemsize for t in kept)


class InnerOuterPass:
    """What there is to compute, in a schedule of its own; one use. `order`, `reference`: see InnerOuterParams."""

    def __init__(self, segment: Fusion, order: tuple[int, ...], reference: str) -> None:
        self.builder = ScheduleBuilder(segment)
        graph = resolving_graph(segment)
        inner_outer = next(s for s in choices_of(segment, graph) if s.reference.name == reference)
        self.sums = {t.name for t in inner_outer.column}
        self.placed: dict[str, str] = {}
        self.along = input_dims(segment, graph, inner_outer.along)
        # Input dims, one for each dim of the reference that has several elements, slowest first.
        groups = dim_groups(graph, inner_outer.reference)
        self.order = [input_dims(segment, graph, [groups[d]])[0] for d in order if not groups[d].is_broadcast]

    def kept(self) -> list[Tensor]:
        """Values of full size that are kept from one stage to the next beside the copies of inputs."""
        b = self.builder
        _, copies, kept = self.compute()
        graph = b.graph()
        along = frozenset(map(graph.group, self.along))
        tensors = [b.state(n).tensor for n in kept if n not in copies.values()]
        return [t for t in tensors if concrete_groups(graph, t) & along]

    def compute(self, in_shared: Collection[str] = ()) -> tuple[set[str], dict[str, str], list[str]]:
        """Decide what is computed where; names for what follows the sums, copies of arguments, and what stages keep.

        Inputs `in_shared` have a copy in shared memory before the one in registers, `self.placed` by input.
        """
        b = self.builder
        late = self._compute_apart()
        copies = self._cache(late)
        for name in in_shared:
            self.placed[name] = b.cache_after(name, LoadStoreOpType.cp_async, cached_uses=[copies[name]])
        row, _ = self.reductions()
        for name in row:
            expr = b.definition(name)
            if isinstance(expr, ExpSum) or (isinstance(expr, Welford) and not expr.input.dtype.is_complex):
                b.two_pass(name)
        kept = keep_stages(b, few_registers=True, anew=self._has_part_of_row)
        return late, copies, [k.name for k in kept]

    def reductions(self) -> tuple[list[str], list[str]]:
        """Names of the results of row and of column reductions (one of each triple)."""
        b = self.builder
        graph = b.graph()
        along = frozenset(map(graph.group, self.along))
        results = [tensor_outputs(e)[0] for e in b.exprs if isinstance(e, Reducing)]
        row = [t.name for t in results if _reduced(graph, t) == along]
        return row, [t.name for t in results if t.name not in row]

    def after(self, column: Iterable[str]) -> set[str]:
        tensors = [self.builder.state(n).tensor for n in column]
        return {t.name for t in _downstream(self.builder.exprs, tensors)}

    def _compute_apart(self) -> set[str]:
        """Compute anew, for what follows the sums, all that it needs beside them; the names made."""
        b = self.builder
        made: set[str] = set()
        pending = sorted(self.after(self.sums))
        siblings = {s for n in self.sums for s in b.siblings(n)}
        while pending:
            consumer = pending.pop()
            expr = b.definition(consumer)
            assert expr is not None
            for t in dict.fromkeys(tensor_inputs(expr)):
                if t.name in made | siblings or t.name in self.after(self.sums) or t.is_cpu:
                    continue
                if t.name in b.input_names:
                    made.add(b.cache_after(t.name, cached_uses=[consumer]))
                    continue
                clone = b.recompute(t.name, [consumer])
                made.add(clone)
                pending.append(clone)
        return made

    def _cache(self, late: set[str]) -> dict[str, str]:
        """Copies of the inputs for the pass, and outputs as copies of what computes them: argument -> its copy."""
        b = self.builder
        copies: dict[str, str] = {}
        for t in b.fusion.input_tensors:
            uses = [tensor_outputs(e)[0].name for e in b.uses(t.name)]
            early = [n for n in uses if n not in late]
            if not t.is_cpu and early:
                copies[t.name] = b.cache_after(t.name, cached_uses=early)
        for t in b.fusion.output_tensors:
            # What others read of an output stays in registers: who stores an element need not be who reads it.
            b.cache_before(t.name, move_uses=bool(b.uses(t.name)))
            copies[t.name] = t.name
        return copies

    def held_copies(self, copies: Mapping[str, str]) -> set[str]:
        """The copies of inputs that are read once for all their uses, in shared memory where they have one there."""
        names = (n for n in self.builder.input_names if n in copies and not self._has_part_of_row(n))
        return {self.placed.get(n, copies[n]) for n in names}

    def _has_part_of_row(self, name: str) -> bool:
        """Whether a tensor has some dims of a row and lacks others.

        Those dims are one axis, of which each thread has elements. Of such a tensor several are the same element: what a thread
        would hold is what others need. It is read, or computed, where it is used.
        """
        graph = self.builder.graph()
        along = frozenset(map(graph.group, self.along))
        own = concrete_groups(graph, self.builder.state(name).tensor) & along
        return bool(own) and own != along

    def rowwise(self, loaded: Iterable[str]) -> list[str]:
        """The copies of inputs that differ from row to row."""
        b = self.builder
        graph = b.graph()
        along = frozenset(leaf for d in self.along for leaf in [graph.group(d)])
        return sorted(
            n
            for n in loaded
            if any(not d.is_broadcast and graph.group(d) not in along for d in b.state(n).tensor.visible)
        )

    def merge_rows(self, name: str) -> None:
        """The dims of the rows, which come first, become one."""
        for _ in range(len(self.order) - len(self.along) - 1):
            self.builder.merge(name, 0, 1)

    def cut_columns(self, name: str, at: int, vector: int, *counts: int) -> None:
        """I, from position `at` on -> I/(v*...), ..., [v]: the dims of a row become one, which is split by the elements of an
        access, and then by each of `counts`."""
        b = self.builder
        for _ in range(len(self.along) - 1):
            b.merge(name, at, at + 1)
        for count in (*((vector,) if vector > 1 else ()), *counts):
            b.split(name, at, count)

    def order_dims(self, name: str) -> None:
        """The dims of a reduction result in the order of memory, rows first; those of one element last."""
        b = self.builder
        graph = b.graph()
        rank = {graph.group(d): i for i, d in enumerate(self.order)}
        loop = b.state(name).loop
        order = sorted(range(len(loop)), key=lambda i: rank.get(graph.group(loop[i]), len(rank)))
        b.reorder(name, {old: new for new, old in enumerate(order)})


@record(eq=False)
class Found:
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
    load: Load
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


def find_inner_outer(segment: Fusion, inputs: SegmentInputs, most: int = 16) -> Found | Refused:
    """What the segment has at these sizes; `most`: elements of an access that are asked for."""
    graph = resolving_graph(segment)
    choices = choices_of(segment, graph)
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
    widest = max(t.dtype.itemsize for t in (*read, *written))
    vector, vectorized = choose_vector(graph, segment, groups[order[-1]], inputs, min(most, max(1, 16 // widest)))
    sums = {t.name for t in segment.output_tensors if not inner_outer.is_full(graph, t)}
    weights = [t for t in whole if t not in read]
    kept = kept_sizes(segment, graph, inner_outer)
    of_column = sum_registers(segment, inner_outer)
    is_double = any(t.dtype.itemsize > 4 for t in (*read, *written))
    is_wide = widest > 2 or any(isinstance(e, Welford) for e in reductions_of(segment))
    load = Load(
        loaded=sum(t.dtype.itemsize for t in read),
        moved=sum(t.dtype.itemsize for t in (*read, *written)),
        row_registers=access_registers(read, vector),
        held_registers=access_registers(weights, vector) + vector * of_column,
        kept_registers=size_registers(kept, vector),
        sums=len(inner_outer.column),
        own_registers=OWN_REGISTERS + (WIDE_REGISTERS * max(4, widest) // 4 if is_wide else 0),
        read_sizes=tuple(t.dtype.itemsize for t in read),
        weight_sizes=tuple(t.dtype.itemsize for t in weights),
        kept_sizes=kept,
        column_registers=of_column,
        sum_bytes=8 if is_double else 4,
        statistics=len(inner_outer.row),
        statistic_registers=len(inner_outer.row) * (2 if is_double else 1),
        is_double=is_double,
        operations=operations_of(segment, graph, inner_outer),
    )
    vectorized = tuple(n for n in vectorized if n not in sums)
    return Found(
        segment, graph, inner_outer, order, groups, length, rows, vector, vectorized, load, tuple(t.name for t in read)
    )
