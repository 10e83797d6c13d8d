"""Who stores nothing behind the last meeting of threads does nothing there."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, MemoryType
from fuser.ir.integers import Cond, const, equal, less, symbol
from fuser.ir.kernel import (
    Allocate,
    BlockBarrier,
    Buffer,
    Call,
    For,
    If,
    Let,
    Literal,
    Load,
    Role,
    Stmt,
    Store,
    walk,
)
from fuser.lowering.collectives.sink_epilogue import sink_epilogue

THREAD, BLOCK, N, INDEX = symbol("tid_y", 0, 63), symbol("bid", 0), symbol("n", 0), symbol("i", 0, 7)
FIRST = equal(THREAD, 0)
SUM = Buffer("sum", DataType.Double, MemoryType.local, const(8))
FOUND = Buffer("found", DataType.Double, MemoryType.shared, const(8))
OUT = Buffer("out", DataType.Double, GLOBAL_MEMORY, N)
COUNTER = Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, const(1))
BARRIER = BlockBarrier("")


def over(*body: Stmt, count: int = 8) -> For:
    return For(INDEX, const(0), const(count), const(1), body, unroll=True)


def settle(dtype: DataType = DataType.Double, count: int = 8) -> Stmt:
    value = Load(SUM, INDEX)
    work = [Store(SUM, INDEX, Call("mul", (value, Literal(2.0, dtype)), dtype, dtype)) for _ in range(4)]
    return over(*work, count=count)


def stored(owner: Cond = FIRST) -> Stmt:
    return If(less(BLOCK, N), (If(owner, (Store(OUT, BLOCK, Load(SUM, const(0))),), role=Role.owner),))


def owners(body: tuple[Stmt, ...]) -> int:
    return sum(isinstance(s, If) and s.role is Role.owner for s in walk(body))


def test_settling_and_stores_come_under_one_test() -> None:
    body = (BARRIER, settle(), stored())
    found = sink_epilogue(body)
    assert found[0] is BARRIER
    assert len(found) == 2
    (last,) = found[1:]
    assert isinstance(last, If)
    assert last.condition is FIRST
    assert last.role is Role.owner
    assert owners(found) == 1
    assert sum(isinstance(s, Store) for s in walk(found)) == sum(isinstance(s, Store) for s in walk(body))


def test_few_operations_and_those_of_floats_stay() -> None:
    for work in (settle(DataType.Float), settle(count=7)):
        body = (BARRIER, work, stored())
        assert sink_epilogue(body) is body


def test_work_before_a_barrier_stays() -> None:
    body = (settle(), BARRIER, stored())
    assert sink_epilogue(body) is body
    inside = (over(settle(), BARRIER), stored())
    assert sink_epilogue(inside) is inside


def test_shared_memory_that_comes_into_scope_stays() -> None:
    body = (settle(), Allocate(FOUND), stored())
    assert sink_epilogue(body) is body


def test_stores_by_others_keep_the_work() -> None:
    for other in (Store(OUT, THREAD, Load(SUM, const(1))), stored(equal(THREAD, 1))):
        body = (BARRIER, settle(), stored(), other)
        assert sink_epilogue(body) is body


def test_an_owner_known_only_behind_the_meeting_keeps_the_work() -> None:
    late = symbol("late", 0)
    body = (BARRIER, Let(late, THREAD + 1), settle(), stored(equal(late, 0)))
    assert sink_epilogue(body) is body


def test_reads_of_the_last_block_come_under_the_test_too() -> None:
    read = over(Store(SUM, INDEX, Load(FOUND, INDEX)))
    reset = If(FIRST, (Store(COUNTER, const(0), Literal(0, DataType.Int32), Role.semaphore_reset),), role=Role.owner)
    is_last = equal(BLOCK, 3)
    found = sink_epilogue((If(is_last, (BARRIER, read, reset), role=Role.last_block), settle(), stored()))
    assert isinstance(found[0], If)
    assert [type(s) for s in found[0].then] == [BlockBarrier, If, If]
    assert found[0].then[2] is reset
    kept = Store(OUT, THREAD, Load(SUM, const(0)))
    other = sink_epilogue((If(is_last, (BARRIER, read, kept), role=Role.last_block), settle(), stored()))
    assert isinstance(other[0], If)
    assert other[0].then[1] is read
