"""Few results of rows in one cluster of blocks, which join what they have through their shared memory.

A last block waits until the results of the others have come through device memory, a microsecond of an H200. Where there is so
little to read that 16 processors do it in less, the blocks of one cluster are all there are:

    apart    rows are dealt out to the blocks, a warp at most for each: K/ty/C serial, C -> grid_x, ty -> block_y,
             the row -> block_x. For statistics, which are too much to be posted; sums of more blocks are there sooner (losses
             f64 214x257 7.4 us in a cluster, 6.7 posted by 214 blocks, bf16 299x257 6.9 and 6.3)
    across   all blocks have a part of each row: K -> block_y, C -> grid_y, the rest of a row -> block_x
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.schedule.params import ReductionParams
from fuser.schedule.reduction_space import ceil_div, power_of_two

WARP = 32
BLOCKS, BLOCKS_ACROSS = 16, 8
"""Of the cluster: as many as there may be; half as many for rows, which have more to exchange (H200: cross_entropy f32 2x7168
takes 7.4 us with a block a row, 6.4 with clusters and a last block, 5.8 over one cluster of 8, 6.0 over one of 16)."""
MOST_APART, MOST_ACROSS = 28 * 1024, 24 * 1024
"""Bytes of a block."""
LEAST_ROWS = 64
"""Rows of warps: of fewer, a processor has too few to be busy."""
MOST_STEPS = 8
"""Accesses of a thread."""
FEW_ROWS = 8
"""Rows that blocks have parts of side by side."""
LEAST_TURN = 64
"""Accesses of a block's part of a row."""


@record
class OneCluster:
    """Loops of the rows; `blocks` of the cluster that rows are dealt out to, 0 where each has a part of all; `most`: rows."""

    rows: ReductionParams
    blocks: int
    most: int = 0


def one_cluster(
    rows: ReductionParams,
    count: int,
    length: int,
    moved: int,
    device: DeviceInfo,
    *,
    is_wide: bool,
    has_statistics: bool,
) -> OneCluster | None:
    """How one cluster takes `count` rows of `length` elements and `moved` bytes in all; None where that would take longer."""
    if device.max_cluster < BLOCKS or not rows.inner or rows.block_outer or count < 2:
        return None
    steps = ceil_div(length, rows.vector)
    if is_wide:
        return None
    threads = device.max_threads_per_block
    if has_statistics and count >= LEAST_ROWS and moved <= MOST_APART * BLOCKS and steps <= WARP * MOST_STEPS:
        # They take more registers than a block of a thousand threads has for each.
        threads = threads // 2
        along = power_of_two(steps, 1, WARP)
        together = max(power_of_two(ceil_div(count, BLOCKS), 1, threads // along), WARP // along)
        unroll = ceil_div(steps, along)
        loops = replace(rows, block_reduce=along, block_iterate=together, unroll=unroll, grid_reduce=1, cluster=False)
        return OneCluster(loops, BLOCKS)
    if count <= FEW_ROWS and moved <= MOST_ACROSS * BLOCKS_ACROSS and steps >= LEAST_TURN * BLOCKS_ACROSS:
        together = power_of_two(count, 1, FEW_ROWS)
        along = power_of_two(ceil_div(steps, BLOCKS_ACROSS), WARP, threads // together)
        unroll = min(MOST_STEPS, ceil_div(steps, BLOCKS_ACROSS * along))
        loops = replace(
            rows, block_reduce=along, block_iterate=together, unroll=unroll, grid_reduce=BLOCKS_ACROSS, cluster=True
        )
        return OneCluster(loops, 0, together)
    return None
