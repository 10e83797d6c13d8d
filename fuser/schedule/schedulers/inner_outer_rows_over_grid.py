"""Backward normalisations whose blocks have rows of their own: one pass over the rows, then the sums over all blocks.

Loops, with O the dims of the rows, I those along a row, and constants G (blocks), Z (rows side by side), U (rows in one
iteration), v, tx, ty, B:

    pass    G -> grid_x, Z -> block_z, O/(G*Z*U) -> serial, U unrolled, I/(v*tx*ty*B) = 1, B unrolled, ty -> block_y,
            tx -> block_x, v -> vector
    sums    I/(tx*G) -> serial, G -> grid_x, tx -> block_x, G/(Z*ty*P) -> serial, P unrolled, Z -> block_z, ty -> block_y

Copies of rows are outside the loop over U: all U rows are loaded before the first is used. Values along a row, such as
weights, are loaded once for all rows. Values that several data passes need are recomputed from the copies in each, because
the number of registers limits the number of rows in flight.
"""

from __future__ import annotations

from fuser.ir.ops.enums import GLOBAL_MEMORY, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.analysis.input_reads import ACCESS_BYTES
from fuser.schedule.params import InnerOuterParams, RowsOverGrid
from fuser.schedule.transforms.inner_outer_builder import InnerOuterScheduleBuilder
from fuser.schedule.transforms.loops import merge_axes, require_extents, set_loop_types

MAX_PARTIAL_SUM_UNROLL = 32
"""Parts of a column's sum that a thread asks for at once, a register each: nothing else takes registers then."""


class RowsOverGridSchedule(InnerOuterScheduleBuilder):
    """Makes the schedule; one use."""

    params: InnerOuterParams
    blocks: int

    def schedule(self, params: InnerOuterParams) -> ScheduleBuilder:
        """The whole schedule."""
        self.params = p = params
        assert isinstance(p.distribution, RowsOverGrid)
        self.blocks = p.distribution.blocks
        b = self.builder
        # Where the loops over rows begin and end in the reference.
        self.trips = 1 + (p.rows_per_block > 1)
        self.within = self.trips + 1 + (p.rows > 1)
        require_extents(b, p.extent_ranges)
        b.require_blocks_per_sm(p.distribution.per_sm)
        late, copies, _ = self.place_values(p.in_shared)
        reference, column = self.ordered_reductions()
        self._split_rows(reference)
        b.transform_like(reference, column)
        parts = [part for name in column for part in self._partial_sums(name)]
        got = {b.cache_after(part) for part in parts}
        self.split_columns(reference, self.within, p.vector, p.across, p.along, p.batch)
        siblings = {s for name in column for s in b.siblings(name)}
        after = self.values_computed_from(column) | late
        main = [t.name for t in b.tensors if t.name not in after | siblings | got | b.input_names]
        others = [n for n in main if n not in b.siblings(reference)]
        b.transform_like(reference, others)
        types = {0: ParallelType.grid_x, self.within + 2: ParallelType.block_y, self.within + 3: ParallelType.block_x}
        if p.rows_per_block > 1:
            types[1] = ParallelType.block_z
        set_loop_types(b, reference, types.items(), others)
        left = {self._store_partial_sums(part) for part in parts}
        partial_loop = self._combine_partial_sums(column, sorted(((after | siblings) - b.input_names) | got))
        self.vectorize_accesses(copies, p)
        loaded = self.persistent_copies(copies) & set(main)
        b.inline_most([t.name for t in b.tensors if t.name not in loaded | left | got | b.input_names])
        for name in column:
            b.inline_at(name, partial_loop, True, sorted(got))
        self.load_rows(reference, self.within - (p.rows > 1), loaded, p.prefetch)
        return b

    def _split_rows(self, name: str) -> None:
        """O -> G, [Z,] O/(G*Z*U), [U]."""
        b, p = self.builder, self.params
        self.merge_rows(name)
        together = p.rows_per_block * p.rows
        b.split(name, 0, self.blocks * together)
        if together > 1:
            b.split(name, 1, together)
        if p.rows_per_block > 1 and p.rows > 1:
            b.split(name, 2, p.rows)
        b.reorder(name, {0: self.trips})

    def _partial_sums(self, name: str) -> tuple[str, ...]:
        """The sums that a block has of its own rows."""
        made = self.builder.rfactor(name, range(1, self.within))
        return (made,) if isinstance(made, str) else made

    def _store_partial_sums(self, part: str) -> str:
        """The copy of such sums in device memory, in accesses as wide as can be."""
        b = self.builder
        name = b.cache_after(part)
        b.set_memory_type(name, GLOBAL_MEMORY)
        if self.params.vector > 1:
            innermost = b.innermost(name)
            wide = max(1, ACCESS_BYTES // b.state(name).tensor.dtype.itemsize)
            if self.params.vector > wide:
                b.split(name, innermost, wide)
                innermost += 1
            b.parallelize(name, innermost, ParallelType.vectorize)
        return name

    def _combine_partial_sums(self, column: list[str], after: list[str]) -> int:
        """Spread the columns over all blocks, and what was left for one of them over threads.

        A thread asks for several parts before it adds the first: else it would wait for each of them. Returns the position of
        the loop over those.
        """
        b, p = self.builder, self.params
        name = column[0]
        # G, I, dims of one element
        count = len(self.along)
        b.reorder(name, {0: count})
        merge_axes(b, name, 0, count)
        b.split(name, 0, p.across)
        b.split(name, 0, self.blocks)  # I/(tx*G), G, tx, the parts of G blocks
        b.split(name, 3, p.along)
        if p.rows_per_block > 1:
            b.split(name, 3, p.rows_per_block)
        b.split(name, 3, partial_sum_unroll(self.blocks, p.along * p.rows_per_block))
        rest = [n for n in after if n not in b.siblings(name)]
        b.transform_like(name, rest)
        types = {1: ParallelType.grid_x, 2: ParallelType.block_x, 4: ParallelType.unswitch}
        if p.rows_per_block > 1:
            types[5] = ParallelType.block_z
        types[5 + (p.rows_per_block > 1)] = ParallelType.block_y
        set_loop_types(b, name, types.items(), rest)
        return 4


def partial_sum_unroll(blocks: int, threads: int) -> int:
    """Parts that one of the `threads` asks for at once, of those that `blocks` have left: few iterations, all nearly full."""
    each = -(-blocks // threads)
    return -(-each // -(-each // MAX_PARTIAL_SUM_UNROLL))
