"""Threads of a scan in the warps of their block: each has one place, neighbours share a warp, and the rest is refused."""

from __future__ import annotations

from itertools import product

import pytest

from fuser.ir.integers.integers import const
from fuser.ir.kernel.kernel import THREAD_SYMBOLS
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.collectives.lane_groups import LaneGroups, lane_groups
from fuser.lowering.parallel_axes import WARP, ParallelAxes

BX, BY = ParallelType.block_x, ParallelType.block_y


def groups_of(x: int, y: int, along: tuple[ParallelType, ...]) -> LaneGroups | None:
    block = ParallelAxes(THREAD_SYMBOLS, {BX: const(x), BY: const(y)})
    return lane_groups(block, [p for p in block.active if p in along], along)


@pytest.mark.parametrize(
    ("x", "y", "along"), [(32, 1, (BX,)), (8, 4, (BX,)), (256, 2, (BX,)), (4, 32, (BY,)), (64, 4, (BY, BX))]
)
def test_a_thread_has_one_place_and_neighbours_share_a_warp(x: int, y: int, along: tuple[ParallelType, ...]) -> None:
    groups = groups_of(x, y, along)
    assert groups is not None
    seen: set[tuple[int, int, int, int]] = set()
    for j, i in product(range(y), range(x)):
        values = {THREAD_SYMBOLS[BX]: i, THREAD_SYMBOLS[BY]: j}
        row, column, own, first, linear = (
            e.evaluate(values) for e in (groups.row, groups.column, groups.own, groups.first, groups.linear)
        )
        assert 0 <= row < groups.rows
        assert 0 <= column < groups.stride
        assert 0 <= own < groups.warps
        position = (i if BX in along else 0) + (j * (x if BX in along else 1) if BY in along else 0)
        assert position == own * groups.rows + row, "in the order of the scanned dim"
        if groups.warps > 1:
            assert first + own == linear // WARP
        seen.add((row, column, own, linear // groups.width))
    assert len(seen) == x * y


@pytest.mark.parametrize(
    ("x", "y", "along"), [(12, 1, (BX,)), (24, 4, (BX,)), (64, 2, (BY,)), (8, 8, (BX, BY))], ids=str
)
def test_threads_that_are_no_regular_part_of_warps(x: int, y: int, along: tuple[ParallelType, ...]) -> None:
    """Too few for a warp, no power of two, too far apart, and in another order than their scan has."""
    assert groups_of(x, y, along) is None
