"""Which reductions meet: the statements in between decide, and the last blocks of two semaphores may not be needed at once."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import ONE, ZERO, Symbol, equal, symbol
from fuser.ir.kernel.kernel import Buffer, If, Literal, Load, Reduce, Stmt, Store
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.collectives.fuse_collectives import check_last_blocks, fuse_collectives

BX, GX, GY = ParallelType.block_x, ParallelType.grid_x, ParallelType.grid_y
ZERO_VALUE = Literal(0, DataType.Int32)


def local(name: str) -> Buffer:
    return Buffer(name, DataType.Int32, MemoryType.local, ONE)


def reduce_of(
    partial: Buffer, grid: tuple[ParallelType, ...] = (), last_block: Symbol | None = None, block: ParallelType = BX
) -> Reduce:
    return Reduce((partial,), "add", (ZERO_VALUE,), (block,), grid, False, ZERO, ONE, partial.name, last_block)


def copied(target: Buffer, source: Buffer) -> Store:
    return Store(target, ZERO, Load(source, ZERO))


A, B, C, D = local("a"), local("b"), local("c"), local("d")


def test_reductions_of_threads_stay_where_they_are() -> None:
    a, b, between = reduce_of(A), reduce_of(B), copied(C, C)
    assert fuse_collectives((a, between, b)) == [a, between, b]


def test_neighbours_over_the_same_threads_share_an_exchange() -> None:
    a, b, c = reduce_of(A), reduce_of(B), reduce_of(C)
    other = reduce_of(D, block=ParallelType.block_y)
    assert fuse_collectives((a, b, c, other)) == [(a, b, c), other]
    over_grid = reduce_of(C, (GX,))
    assert fuse_collectives((a, over_grid, b)) == [a, over_grid, b]


def test_reductions_over_the_same_blocks_meet_at_the_last() -> None:
    """Tests for the last block of the first one wait for both."""
    first, second = symbol("first", 0, 1), symbol("second", 0, 1)
    a, b = reduce_of(A, (GX,), first), reduce_of(B, (GX,), second)
    computed = copied(B, C)
    written: Stmt = If(equal(first, 1), (copied(local("out"), A),))
    assert fuse_collectives((a, computed, written, b)) == [computed, (a, b), written]
    assert fuse_collectives((a, b)) == [(a, b)]
    other = reduce_of(B, (GY,), second)
    assert fuse_collectives((a, other)) == [a, other]


def test_last_blocks_of_two_semaphores_may_be_two_blocks() -> None:
    first, second = symbol("first", 0, 1), symbol("second", 0, 1)
    nested = If(equal(first, 1), (If(equal(second, 1), (copied(C, A),)),))
    check_last_blocks((nested,), {first: 0, second: 0}, frozenset())
    with pytest.raises(SchedulingError) as error:
        check_last_blocks((nested,), {first: 0, second: 1}, frozenset())
    assert str(error.value) == (
        "a value needs the results of grid reductions that end in different blocks (first, second); "
        "reduce them over the same parallel axes"
    )
