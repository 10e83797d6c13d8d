"""The first steps of every schedule of inner and outer reductions: cache inputs, choose the values that are kept between
data passes, and separate values computed from the column sums from the loop over the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fuser.ir.fusion.fusion import (
    Fusion,
    Reducing,
    Tensor,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.ops.enums import LoadStoreOpType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.data_passes import may_take_two_passes, recompute_cheap_values
from fuser.schedule.analysis.inner_outer import (
    concrete_reduced_groups,
    downstream,
    row_orientations,
)
from fuser.schedule.analysis.reference import dim_groups, input_dims
from fuser.schedule.params import InnerOuterParams
from fuser.schedule.transforms.loops import merge_axes
from fuser.schedule.transforms.shared_rows import vectorize_rows
from fuser.schedule.transforms.vectorize import cache_arguments, vectorize


class InnerOuterScheduleBuilder:
    """Builds what the schedules of both mappings of backward normalisations have in common; for one use.

    order, reference   see InnerOuterParams
    """

    def __init__(self, segment: Fusion, order: tuple[int, ...], reference: str) -> None:
        self.builder = ScheduleBuilder(segment)
        graph = segment.resolved_dims
        inner_outer = next(s for s in row_orientations(segment) if s.reference.name == reference)
        self.sums = {t.name for t in inner_outer.column}
        self.placed: dict[str, str] = {}
        places = input_dims(segment)
        self.along = [places[g][0][2] for g in inner_outer.along]
        # Input dims, one for each dim of the reference that has several elements, slowest first.
        groups = dim_groups(graph, inner_outer.reference)
        self.order = [places[groups[d]][0][2] for d in order if not groups[d].is_broadcast]

    def kept(self) -> list[Tensor]:
        """Full-size values that are kept between data passes, without the copies of inputs."""
        b = self.builder
        _, copies, kept = self.place_values()
        along = self.along_groups()
        return [b.state(n).tensor for n in kept if n not in copies.values() and self.own_groups(n) & along]

    def place_values(self, in_shared: Collection[str] = ()) -> tuple[set[str], dict[str, str], list[str]]:
        """Cache inputs, and decide for each value whether it is kept or recomputed.

        Returns the names of values computed for the column sums' consumers, the copy of each argument, and the names of the
        values that data passes keep. Inputs `in_shared` get a copy in shared memory before the one in registers: `self.placed`.
        """
        b = self.builder
        late = self._recompute_after_sums()
        copies = cache_arguments(b, apart=late)
        for name in in_shared:
            self.placed[name] = b.cache_after(name, LoadStoreOpType.cp_async, cached_uses=[copies[name]])
        row, _ = self.reductions()
        for name in row:
            if may_take_two_passes(b.definition(name)):
                b.two_pass(name)
        kept = recompute_cheap_values(b, few_registers=True, anew=self._has_part_of_row)
        return late, copies, [k.name for k in kept]

    def reductions(self) -> tuple[list[str], list[str]]:
        """Names of the results of row and of column reductions (one of each triple)."""
        b = self.builder
        graph, along = b.graph(), self.along_groups()
        results = [tensor_outputs(e)[0] for e in b.exprs if isinstance(e, Reducing)]
        row = [t.name for t in results if concrete_reduced_groups(graph, t) == along]
        return row, [t.name for t in results if t.name not in row]

    def ordered_reductions(self) -> tuple[str, list[str]]:
        """A row reduction, and the column reductions, with their dims in the order of memory."""
        row, column = self.reductions()
        for name in (row[0], *column):
            self.order_dims(name)
        return row[0], column

    def values_computed_from(self, column: Iterable[str]) -> set[str]:
        """Names of the values that are computed from the column sums `column`."""
        tensors = [self.builder.state(n).tensor for n in column]
        return {t.name for t in downstream(self.builder.exprs, tensors)}

    def _recompute_after_sums(self) -> set[str]:
        """Recompute what the consumers of the column sums need in addition to these sums; the names of the new values."""
        b = self.builder
        made: set[str] = set()
        pending = sorted(self.values_computed_from(self.sums))
        siblings = {s for n in self.sums for s in b.siblings(n)}
        while pending:
            consumer = pending.pop()
            expr = b.definition(consumer)
            assert expr is not None
            for t in dict.fromkeys(tensor_inputs(expr)):
                if t.name in made | siblings or t.name in self.values_computed_from(self.sums) or t.is_cpu:
                    continue
                if t.name in b.input_names:
                    made.add(b.cache_after(t.name, cached_uses=[consumer]))
                    continue
                clone = b.recompute(t.name, [consumer])
                made.add(clone)
                pending.append(clone)
        return made

    def persistent_copies(self, copies: Mapping[str, str]) -> set[str]:
        """The copies of inputs that are read once for all their uses, in shared memory where they have one there."""
        names = (n for n in self.builder.input_names if n in copies and not self._has_part_of_row(n))
        return {self.placed.get(n, copies[n]) for n in names}

    def _has_part_of_row(self, name: str) -> bool:
        """Whether a tensor has some dims of a row, but not all of them.

        The row is one axis, split over threads, so that several threads need the same element of such a tensor: it is read, or
        computed, where it is used.
        """
        along = self.along_groups()
        own = self.own_groups(name) & along
        return bool(own) and own != along

    def vectorize_accesses(self, copies: Mapping[str, str], params: InnerOuterParams) -> None:
        """Give the wide accesses of the arguments their type: those in shared memory have one of their own."""
        vectorize(self.builder, copies, [a for a in params.vectorized if a in copies and a not in self.placed])
        if params.vector > 1:
            vectorize_rows(self.builder, self.placed.values())

    def load_rows(self, reference: str, at: int, loaded: Iterable[str], iterations: int) -> None:
        """Copies of inputs that differ from row to row are outside of the loops from position `at` on, and load so many
        iterations before they are used: those in shared memory. Registers, which such rows pass through last, hold those of one
        iteration less."""
        along = self.along_groups()
        rows = sorted(n for n in loaded if not self.own_groups(n) <= along)
        if rows:
            self.builder.inline_at(reference, at, selected=rows)
        placed = set(self.placed.values())
        for name in rows:
            of_this = iterations - (bool(placed) and name not in placed)
            if of_this > 0:
                self.builder.load_ahead(name, best_effort=True, iterations=of_this)

    def along_groups(self) -> frozenset[Group]:
        """Groups of the dims of a row."""
        return frozenset(map(self.builder.graph().group, self.along))

    def own_groups(self, name: str) -> frozenset[Group]:
        """Groups of the dims along which a tensor has several elements."""
        return self.builder.graph().concrete_groups(self.builder.state(name).tensor.visible)

    def merge_rows(self, name: str) -> None:
        """The dims of the rows, which come first, become one."""
        merge_axes(self.builder, name, 0, len(self.order) - len(self.along))

    def split_columns(self, name: str, at: int, vector: int, *counts: int) -> None:
        """I, from position `at` on -> I/(v*...), ..., [v]: the dims of a row become one, which is split by the elements of an
        access, and then by each of `counts`."""
        b = self.builder
        merge_axes(b, name, at, len(self.along))
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
