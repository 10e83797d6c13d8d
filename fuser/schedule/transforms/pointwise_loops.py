"""The loops of a pointwise kernel: blocks, threads, unrolled rows of a thread, elements."""

from __future__ import annotations

from fuser.ir.integers.integers import const
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.params import PointwiseParams
from fuser.schedule.transforms.loops import merge_axes
from fuser.schedule.transforms.vectorize import split_vector


def build_pointwise_loops(builder: ScheduleBuilder, name: str, params: PointwiseParams) -> list[ParallelType]:
    """Make the loops of the reference: [blocks..., threads..., unrolled rows, elements]; the types of the first ones."""
    runs = [run for loop in params.merged_dims for run in loop]
    # The inner tile stays inside of those loops.
    for at, count in enumerate([*runs, params.tile_dims]):
        merge_axes(builder, name, at, count)
    for at, loop in enumerate(params.merged_dims):
        merge_axes(builder, name, at, len(loop))
    loops = len(params.merged_dims)
    wide, high = params.block_shape
    last = loops - 1
    if params.vector > 1:
        split_vector(builder, name, last, params.vector, params.access)
    if wide:
        builder.split(name, last, wide)
    # [outer loops, rows, columns / wide if they are more than a block takes, columns, elements]
    if loops == 1:
        if params.unroll > 1:
            builder.split(name, 0, params.unroll)
            builder.reorder(name, {1: 2})
        return [ParallelType.grid_x, ParallelType.block_x]
    row = loops - 2
    if high > 1:
        builder.split(name, row, high)
        if wide:
            builder.reorder(name, {row + 1: row + 2})
    if params.unroll > 1:
        # [.., rows, unroll, .., (columns / wide), (high), columns, elements]
        at = last - params.unroll_loop
        builder.split(name, at, params.unroll)
        builder.reorder(name, {at + 1: loops + (wide > 0) + (high > 1)})
    grid = row + 1 + (wide > 0)
    merge_axes(builder, name, 0, grid - params.grid_axes + 1)
    grid = min(grid, params.grid_axes)
    blocks = [ParallelType.grid_z, ParallelType.grid_y, ParallelType.grid_x][3 - grid :]
    return [*blocks, *([ParallelType.block_y] if high > 1 else []), ParallelType.block_x]


def is_invariant_in_loop(builder: ScheduleBuilder, name: str, position: int) -> bool:
    """Whether a tensor does not depend on the consumers' loop at `position`: none of its axes is mapped to it."""
    axes = builder.state(name).loop
    return len(axes) > position and axes[position].is_broadcast and axes[position].extent is const(1)
