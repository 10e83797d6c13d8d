"""Where blocks leave their partials of a reduction over the grid: workspaces in device memory. Part of the pass
expand_collectives."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.enums import GLOBAL_MEMORY, ParallelType
from fuser.ir.integers import Int
from fuser.ir.kernel import Buffer, Reduce
from fuser.lowering.parallel_axes import ParallelAxes
from fuser.records import record


@record(eq=False)
class GridParts:
    """Addresses of one grid reduction: `place(partial, element, block)` in its workspace.

    block, blocks       this block's position among those that meet, and how many there are
    segment, segments   which meeting of the kernel it is, and how many there are
    lanes, scatter       axes whose threads have results of their own, and those that work on one result together
    """

    buffers: tuple[Buffer, ...]
    place: Callable[[int, Int, Int], Int]
    block: Int
    blocks: Int
    segment: Int
    segments: Int
    lanes: list[ParallelType]
    scatter: list[ParallelType]


class Workspaces:
    """All workspaces of a kernel: `buffers`."""

    def __init__(self, axes: ParallelAxes) -> None:
        self._axes = axes
        self.buffers: list[Buffer] = []

    def parts_of(self, r: Reduce) -> GridParts:
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

        def place(i: int, e: Int, block: Int) -> Int:
            return ((segment * r.partials[i].size + e) * blocks + block) * lane_count + axes.linear(lanes)

        return GridParts(buffers, place, axes.linear(reduced), blocks, segment, segments, lanes, scatter)
