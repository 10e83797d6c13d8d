"""How the threads of a block that share a scan are arranged in warps: rows of lanes, with neighbours along the scanned dim
in one warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.integers.integers import Int
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.parallel_axes import WARP, ParallelAxes
from fuser.records import record


@record(eq=False)
class LaneGroups:
    """The threads of a scan as lanes of warps: rows of `stride` lanes, one column for each scan that a warp takes part in.

    stride       lanes of a row: threads of faster axes, each of a scan of its own
    width        lanes of a group, and `rows` rows of it
    warps        warps that one scan is spread over, of `block_warps` of the block
    linear       number of the thread; its `row` and `column` in the group of lanes
    own, first   number of its warp among those of the scan, and of the first of them in the block
    """

    stride: int
    width: int
    rows: int
    warps: int
    block_warps: int
    linear: Int
    row: Int
    column: Int
    own: Int
    first: Int

    @property
    def places(self) -> int:
        """Of all warps' totals."""
        return self.block_warps * self.stride

    def place(self, warp: Int) -> Int:
        """Of a warp's total, of this thread's column."""
        return warp * self.stride + self.column


def lane_groups(
    block: ParallelAxes, scanned: Sequence[ParallelType], named: Sequence[ParallelType]
) -> LaneGroups | None:
    """How the threads along the axes `scanned`, fastest first, are arranged in warps; None if they are no regular part of them,
    or if a scan names its axes, slowest first, in another order."""
    in_order = scanned == [p for p in reversed(named) if p in scanned]
    first = block.active.index(scanned[0])
    if not in_order or block.active[first : first + len(scanned)] != scanned:
        return None
    stride, count = block.count_of(block.active[:first]), block.count_of(scanned)
    total = block.block_threads
    if not (stride.is_const and count.is_const and total.is_const and total.value % WARP == 0):
        return None
    width = min(WARP, stride.value * count.value)
    # Neighbours along the scanned dim share a warp, the same number of them everywhere.
    if width & (width - 1) or width % stride.value or width == stride.value or count.value * stride.value % width:
        return None
    linear = block.thread
    rows = width // stride.value
    return LaneGroups(
        stride.value,
        width,
        rows,
        count.value // rows,
        total.value // WARP,
        linear,
        linear % width // stride.value,
        linear % stride.value,
        linear // stride.value % count.value // rows,
        linear // (stride.value * count.value) * (count.value // rows),
    )
