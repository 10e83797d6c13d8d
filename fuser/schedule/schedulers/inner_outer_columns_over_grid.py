"""Backward normalisations over few or long rows: each block has some columns of all rows.

Sums of columns therefore never leave a block. Blocks exchange the statistics of rows: through distributed shared memory if
they are a cluster, through device memory if they are the whole grid. One exchange serves all rows that a block has in
registers.

Loops, with O the dims of the rows, I those along a row, and constants C (blocks), Z (rows side by side), U (rows of a thread
at once), v, tx, B:

    O/(Z*U) -> serial, Z -> block_y, I/(v*tx*B*C) = 1, C -> grid, B unrolled, U unrolled, tx -> block_x, v -> vector

Copies of rows are outside the loops over B and U; copies of inputs that are the same for all rows, and the sums, are outside
all loops.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Pointwise, tensor_outputs
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import ColumnsOverGrid, InnerOuterParams, OverCluster, RowsOverGrid
from fuser.schedule.transforms.evict_last import evict_last
from fuser.schedule.transforms.inner_outer_builder import InnerOuterScheduleBuilder
from fuser.schedule.transforms.loops import require_extents, set_loop_types

MAX_ROWS_IN_REGISTERS = 4
"""Most rows of a thread at once whose per-row values stay in registers if the rows are in shared memory."""


class ColumnsOverGridSchedule(InnerOuterScheduleBuilder):
    """Makes the schedule; one use."""

    params: InnerOuterParams
    blocks: int
    sharing: int

    def schedule(self, params: InnerOuterParams) -> ScheduleBuilder:
        """The whole schedule."""
        self.params = p = params
        over = p.distribution
        assert not isinstance(over, RowsOverGrid)
        self.blocks, self.sharing = (over.rows, over.columns) if isinstance(over, OverCluster) else (1, over.blocks)
        self.again: set[str] = set()
        b = self.builder
        require_extents(b, p.extent_ranges)
        b.require_blocks_per_sm(1)
        late, copies, _ = self.place_values(p.in_shared)
        if p.in_shared and p.rows > MAX_ROWS_IN_REGISTERS:
            self._reload_per_use(copies, late)
        if isinstance(p.distribution, ColumnsOverGrid):
            evict_last(b, copies, self.along_groups())
        reference, _ = self.ordered_reductions()
        types = self._split_loops(reference)
        b.transform_like(reference)
        set_loop_types(b, reference, types.items())
        if isinstance(p.distribution, OverCluster):
            b.set_cluster(ParallelType.grid_x, self.sharing * self.blocks)
        self.vectorize_accesses(copies, p)
        loaded = self.persistent_copies({n: c for n, c in copies.items() if n not in self.again}) - late
        within = 1 + (self.blocks > 1) + (p.rows_per_block > 1)
        b.inline_most(
            [t.name for t in b.tensors if t.name not in loaded | b.input_names], limits=self._row_scalars(within)
        )
        self.load_rows(reference, within, loaded, p.prefetch)
        return b

    def _reload_per_use(self, copies: dict[str, str], late: set[str]) -> None:
        """What each row has one of is read again by each use: it would take registers for all rows."""
        b, along = self.builder, self.along_groups()
        for name in sorted(b.input_names & copies.keys()):
            copy = copies[name]
            own = self.own_groups(copy)
            if copy in late or not own or own & along:
                continue
            self.again.add(name)
            uses = [tensor_outputs(e)[0].name for e in b.uses(copy)]
            for use in uses[1:]:
                b.recompute(copy, [use])

    def _split_loops(self, name: str) -> dict[int, ParallelType]:
        """The loops of the reference, and what becomes of some: position -> type."""
        b, p = self.builder, self.params
        self.merge_rows(name)
        # O -> O/(G*Z*U), [G,] [Z,] [U]
        types: dict[int, ParallelType] = {}
        at = 1
        of_rows = ((self.blocks, ParallelType.grid_x), (p.rows_per_block, ParallelType.block_y), (p.rows, None))
        left = self.blocks * p.rows_per_block * p.rows
        for count, parallel_type in of_rows:
            if count > 1:
                b.split(name, at - 1, left)
                if parallel_type is not None:
                    types[at] = parallel_type
                left //= count
                at += 1
        # I -> I/(v*tx*B*C), C, B, tx, [v]
        self.split_columns(name, at, p.vector, p.across, p.batch, self.sharing)
        if p.rows > 1:
            # The rows of a thread go between its accesses and the threads: what they share is read outside of that loop.
            at -= 1
            b.reorder(name, {at: at + 3})
        if self.sharing > 1:
            types[at + 1] = ParallelType.grid_x
        types[at + 3 + (p.rows > 1)] = ParallelType.block_x
        return types

    def _row_scalars(self, within: int) -> list[tuple[str, int]]:
        """What each row has one of is computed outside of the loops along it."""
        b, along = self.builder, self.along_groups()
        places: list[tuple[str, int]] = []
        for expr in b.exprs:
            target = tensor_outputs(expr)[0]
            own = self.own_groups(target.name)
            if isinstance(expr, Pointwise) and own and not own & along:
                places.append((target.name, min(within, len(b.state(target.name).loop))))
        return places
