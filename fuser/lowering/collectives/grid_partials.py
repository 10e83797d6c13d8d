"""Workspaces in device memory for the partial results of blocks, in reductions over the grid. Part of expand_collectives."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import Int
from fuser.ir.kernel.kernel import Buffer, Load, Reduce
from fuser.ir.ops.enums import GLOBAL_MEMORY, CacheOp, ParallelType
from fuser.lowering.collectives.slots import Slots
from fuser.lowering.parallel_axes import ParallelAxes
from fuser.records import record


@record(eq=False)
class GridPartialsLayout:
    """Slots of one grid reduction in its workspace, for each lane of each block.

    block, blocks    index of this block among those that exchange partials, and their number
    exchange_count   number of exchanges of the kernel
    lane, lanes      index of this thread among those of its block that have results of their own, and the axes of these
    scatter          axes whose threads share the work of a result
    """

    slots: Slots
    block: Int
    blocks: Int
    exchange_count: Int
    lane: Int
    lane_count: Int
    lanes: list[ParallelType]
    scatter: list[ParallelType]

    @property
    def own(self) -> Callable[[int, Int], tuple[Buffer, Int]]:
        """Where this block leaves element e of partial i."""
        return self.slots.at(self.block * self.lane_count + self.lane)

    def load(self, i: int, e: Int, block: Int) -> Load:
        """What a block has left, past the first-level cache: that may hold what was there before."""
        return self.slots.read(i, e, block * self.lane_count + self.lane, CacheOp["global"])


class Workspaces:
    """All workspaces of a kernel: `buffers`."""

    def __init__(self, axes: ParallelAxes) -> None:
        self._axes = axes
        self.buffers: list[Buffer] = []

    def allocate_partials(self, r: Reduce) -> GridPartialsLayout:
        """A workspace for the partials of all blocks of a reduction."""
        axes = self._axes
        reduced = [p for p in axes.grid if p in r.grid_axes]
        kept = [p for p in axes.grid if p not in r.grid_axes]
        shared = (*r.block_axes, *r.copy_axes)
        lanes = [p for p in axes.active if p not in shared]
        scatter = [p for p in axes.active if p in shared]
        blocks = axes.count_of(reduced)
        segment = axes.linear(kept) * r.slots + r.slot
        segments = axes.count_of(kept) * r.slots
        lane_count = axes.count_of(lanes)
        number = axes.number()
        buffers = tuple(
            Buffer(f"{p.name}_blocks{number}", p.dtype, GLOBAL_MEMORY, segments * p.size * blocks * lane_count)
            for p in r.partials
        )
        self.buffers += buffers
        slots = Slots(r, buffers, blocks * lane_count, segment)
        lane = axes.linear(lanes)
        return GridPartialsLayout(slots, axes.linear(reduced), blocks, segments, lane, lane_count, lanes, scatter)
