"""Which reductions meet: the statements in between decide, and the last blocks of two semaphores may not be needed at once."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.ir.integers import ONE, ZERO, Symbol, equal, symbol
from fuser.ir.kernel import AsyncWait, Buffer, If, Literal, Load, Reduce, Stmt, Store
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


def test_reductions_over_the_same_threads_meet_at_the_first() -> None:
    between = copied(C, C)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, between, b)) == [(a, b), between]


def test_what_computes_a_partial_and_needs_no_result_goes_before_both() -> None:
    between = copied(B, C)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, between, b)) == [between, (a, b)]


def test_a_partial_computed_from_a_result_keeps_them_apart() -> None:
    between = copied(B, A)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, between, b)) == [a, between, b]


def test_what_needs_a_result_stays_behind_both() -> None:
    computed, finished, used = copied(B, C), copied(A, A), copied(D, A)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, finished, computed, used, b)) == [computed, (a, b), finished, used]


def test_what_asks_for_a_last_block_stays_behind_the_reduction_that_finds_it() -> None:
    """Though it neither reads nor writes what that one reduces."""
    last = symbol("last", 0, 1)
    partial, over_grid = copied(B, A), reduce_of(B, (GX,), last)
    signal = If(equal(last, 1), (Store(D, ZERO, ZERO_VALUE),))
    a, c, computed = reduce_of(A), reduce_of(C), copied(C, local("e"))
    assert fuse_collectives((a, partial, over_grid, signal, computed, c)) == [
        computed,
        (a, c),
        partial,
        over_grid,
        signal,
    ]


@pytest.mark.parametrize(
    "between",
    [
        # The partial is computed from what a result was made into.
        [copied(C, A), copied(B, C)],
        # What needs the result reads a register that is written again afterwards.
        [copied(D, A), copied(A, B), copied(B, C)],
    ],
)
def test_what_depends_on_a_result_is_not_passed(between: list[Stmt]) -> None:
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, *between, b)) == [a, *between, b]


def test_stores_do_not_pass_what_needs_a_result() -> None:
    """Another name of that memory may be read there."""
    out = Buffer("out", DataType.Int32, GLOBAL_MEMORY, ONE)
    used, stored, computed = copied(D, A), copied(out, C), copied(B, C)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, used, stored, computed, b)) == [computed, (a, b), used, stored]


def test_reads_of_what_is_copied_do_not_pass_the_wait_for_it() -> None:
    copy = Buffer("copy", DataType.Int32, MemoryType.shared, ONE)
    used, wait, of_copy, of_register = copied(D, A), AsyncWait(0), copied(B, copy), copied(B, C)
    a, b = reduce_of(A), reduce_of(B)
    assert fuse_collectives((a, used, wait, of_copy, b)) == [a, used, wait, of_copy, b]
    assert fuse_collectives((a, used, wait, of_register, b)) == [of_register, (a, b), used, wait]


def test_other_threads_do_not_meet() -> None:
    a, b = reduce_of(A), reduce_of(B, block=ParallelType.block_y)
    assert fuse_collectives((a, b)) == [a, b]


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
