"""One test for all rows of a block whose warps have rows of their own."""

from __future__ import annotations

import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType, ParallelType
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.integers import Cond, const, less, symbol
from fuser.ir.kernel import (
    Allocate,
    BlockBarrier,
    Buffer,
    For,
    If,
    Kernel,
    Literal,
    Load,
    Role,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    walk,
)
from fuser.ir.proofs import ProofLog, check_proofs
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.predicates.specialise_full_tiles import specialise_full_tiles
from tests.harness import NARROW, check, integers
from tests.kernel_corpus import BX, BY, GX, spread

B, X, Y, N, M = symbol("b", 0), symbol("x", 0, 31), symbol("y", 0, 3), symbol("n", 0), symbol("m", 0)
J, T = symbol("j", 0, 1), symbol("t", 0)
THREADS = {ParallelType.grid_x: B, ParallelType.block_x: X, ParallelType.block_y: Y}
SIZES = {ParallelType.block_x: const(32), ParallelType.block_y: const(4)}
A = Buffer("a", DataType.Float, MemoryType.local, const(2))
SHUFFLE = Shuffle(A, const(0), Load(A, const(1)), ShuffleKind.xor, const(16), 32)


def store(condition: Cond, role: Role = Role.predicate) -> If:
    return If(condition, (Store(A, const(0), Literal(1.0, DataType.Float)),), role=role)


def conditions(*body: Stmt) -> list[Cond]:
    return [s.condition for s in walk(body) if isinstance(s, If)]


def whole(*body: Stmt) -> If | None:
    made = specialise_full_tiles(body, THREADS, SIZES)
    if made == body:
        return None
    (test,) = made
    assert isinstance(test, If)
    assert test.role is Role.whole_block
    assert test.orelse == body
    return test


def test_rows_are_tested_once() -> None:
    row, column = less(4 * B + Y, N), less(X, M)
    made = whole(store(row), SHUFFLE, If(row, (store(column),)), store(row))
    assert made is not None
    assert made.condition is less(4 * B + 3, N)
    assert set(conditions(*made.then)) <= {column}
    assert len(conditions(*made.then)) == 1


def test_rows_of_a_loop_are_tested_with_the_last() -> None:
    row = less(8 * B + 4 * J + Y, N)
    loop = For(J, const(0), const(2), const(1), (store(row),), unroll=True)
    made = whole(loop, SHUFFLE)
    assert made is not None
    assert made.condition is less(8 * B + 7, N)
    assert conditions(*made.then) == []


def test_each_trip_over_rows_has_a_test() -> None:
    row = less(4 * B + 64 * T + Y, N)
    (made,) = specialise_full_tiles((For(T, const(0), M, const(1), (store(row), SHUFFLE)),), THREADS, SIZES)
    assert isinstance(made, For)
    (test,) = made.body
    assert isinstance(test, If)
    assert test.condition is less(4 * B + 64 * T + 3, N)


@pytest.mark.parametrize(
    "body",
    [
        (store(less(4 * B + Y, N)),),  # nothing stands between tests
        (store(less(4 * B + Y, N)), SHUFFLE, BlockBarrier()),
        (store(less(4 * B + Y, N)), SHUFFLE, Allocate(Buffer("s", DataType.Float, MemoryType.shared, const(4)))),
        (store(less(X, M)), SHUFFLE),
        (store(less(32 * Y + X, N)), SHUFFLE),  # elements, not rows
        (store(less(N, 4 * B + Y)), SHUFFLE),  # the last row is not the hardest
        (store(less(4 * B + Y, N), Role.owner), SHUFFLE),
        (For(T, const(0), M, const(1), (store(less(4 * T + Y, N)),)), SHUFFLE),  # another test in each trip
    ],
)
def test_bodies_that_stay(body: tuple[Stmt, ...]) -> None:
    assert whole(*body) is None


def test_the_hardest_test_implies_the_others() -> None:
    log = ProofLog()
    specialise_full_tiles((store(less(4 * B + Y, N)), SHUFFLE), THREADS, SIZES, log)
    assert len(log.claims) == 1
    check_proofs(log)


def summed(rows: int) -> tuple[ScheduleBuilder, str]:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, 32])
    r = b.reduction("sum", x, [1], DataType.Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 0, rows)
    spread(s, r.name, (GX, BY, BX))
    return s, r.name


def has_two_sides(kernel: Kernel) -> bool:
    return any(isinstance(s, If) and s.role is Role.whole_block for s in walk(kernel.body))


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
def test_blocks_that_are_whole_and_the_last_one(rows: int) -> None:
    s, _ = summed(4)
    assert not has_two_sides(check(s, [integers((rows, 32))], facts=frozenset([NARROW])))
    s, _ = summed(4)
    s.ask_full_tiles()
    assert has_two_sides(check(s, [integers((rows, 32))], facts=frozenset([NARROW])))
