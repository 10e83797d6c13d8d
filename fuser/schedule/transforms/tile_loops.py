"""The loops of a pointwise kernel: blocks, threads, further rows of a thread, elements."""

from __future__ import annotations

from fuser.ir.enums import ParallelType
from fuser.ir.integers import const
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.params import PointwiseParams
from fuser.schedule.transforms.vectorize import split_vector


def build_pointwise_loops(builder: ScheduleBuilder, name: str, params: PointwiseParams) -> list[ParallelType]:
    """Make the loops of the reference: [blocks..., threads..., further rows, elements]; the types of the first ones."""
    for at, count in enumerate(params.parts):
        for _ in range(count - 1):
            builder.merge(name, at, at + 1)
    # All elements of the last part are behind those loops.
    parts = len(params.parts) - params.whole
    while params.linear and parts > 1:
        builder.merge(name, 0, 1)
        parts -= 1
    wide, high = params.threads
    last = parts - 1
    if params.vector > 1:
        split_vector(builder, name, last, params.vector, params.access)
    if wide:
        builder.split(name, last, wide)
    # [outer parts, rows, columns / wide if they are more than a block takes, columns, elements]
    if parts == 1:
        if params.unroll > 1:
            builder.split(name, 0, params.unroll)
            builder.reorder(name, {1: 2})
        return [ParallelType.grid_x, ParallelType.block_x]
    row = parts - 2
    if high > 1:
        builder.split(name, row, high)
        if wide:
            builder.reorder(name, {row + 1: row + 2})
    if params.unroll > 1:
        # [.., rows, unroll, .., (columns / wide), (high), columns, elements]
        at = last - params.rows_of
        builder.split(name, at, params.unroll)
        builder.reorder(name, {at + 1: parts + (wide > 0) + (high > 1)})
    grid = row + 1 + (wide > 0)
    while grid > (1 if params.merged else 3):
        builder.merge(name, 0, 1)
        grid -= 1
    blocks = [ParallelType.grid_z, ParallelType.grid_y, ParallelType.grid_x][3 - grid :]
    return [*blocks, *([ParallelType.block_y] if high > 1 else []), ParallelType.block_x]


def is_invariant_in_loop(builder: ScheduleBuilder, name: str, position: int) -> bool:
    """Whether a tensor has nothing that a loop of its consumers is over."""
    axes = builder.state(name).loop
    return len(axes) > position and axes[position].is_broadcast and axes[position].extent is const(1)
