"""Owners of results compute what follows from these alone, and tell that."""

from __future__ import annotations

import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, MemoryType
from fuser.ir.integers import Cond, Int, const, equal, less, symbol
from fuser.ir.kernel import Allocate, Buffer, Call, For, If, Literal, Load, Role, Stmt, Store, Value, walk
from fuser.lowering.collectives.sink_to_owners import sink_to_owners

LANE, POSITION, INDEX, COLUMN = symbol("tid_x", 0, 3), symbol("tid_y", 0, 63), symbol("i", 0, 7), symbol("e", 0, 7)
N = symbol("n", 0)
ELEMENT = POSITION % 8
OWNER = less(POSITION, 8)
Float = DataType.Float


def buffer(name: str, size: int = 8, memory: MemoryType = MemoryType.local) -> Buffer:
    return Buffer(name, Float, memory, const(size))


SUM, ROOT, HALF, WEIGHT = (buffer(name) for name in ("sum", "root", "half", "weight"))
OWN, BESIDE = buffer("own", 1), buffer("beside", 1)
FOUND = buffer("found", 32, MemoryType.shared)
OUT = Buffer("out", Float, GLOBAL_MEMORY, N)

TELL = If(OWNER, (Store(FOUND, ELEMENT * 4 + LANE, Load(OWN, const(0))),), role=Role.owner)
READ = For(COLUMN, const(0), const(8), const(1), (Store(SUM, COLUMN, Load(FOUND, COLUMN * 4 + LANE)),), unroll=True)


def over(*body: Stmt, count: int = 8) -> For:
    return For(INDEX, const(0), const(count), const(1), body, unroll=True)


def root(of: Value, into: Buffer = ROOT, index: Int = INDEX) -> Store:
    return Store(into, index, Call("rsqrt", (of,), Float, Float))


def out(of: Buffer, index: Int = INDEX) -> Stmt:
    return over(Store(OUT, POSITION * 8 + INDEX, Load(of, index)))


def stores_of(body: tuple[Stmt, ...], name: str) -> list[Store]:
    return [s for s in walk(body) if isinstance(s, Store) and s.buffer.name == name]


def test_a_root_is_taken_by_the_owner_and_told_in_the_place_of_the_sum() -> None:
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), over(root(Load(SUM, INDEX))), out(ROOT))
    shared, owner, register, read, rest = sink_to_owners(body)
    assert isinstance(shared, Allocate)
    assert (shared.buffer.name, shared.buffer.size) == ("root_told", FOUND.size)
    assert register is body[3]
    assert rest is body[5]
    assert isinstance(owner, If)
    (made,), (told,) = stores_of(owner.then, "root_own"), stores_of(owner.then, "root_told")
    assert made.value == Call("rsqrt", (Load(OWN, const(0)),), Float, Float)
    assert told.index is ELEMENT * 4 + LANE
    (store,) = stores_of((read,), "root")
    assert store.value == Load(shared.buffer, COLUMN * 4 + LANE)


def test_tests_of_a_lane_come_along_and_those_of_a_position_stay() -> None:
    def tested(condition: Cond) -> tuple[Stmt, ...]:
        inside = over(If(condition, (root(Load(SUM, INDEX)),)))
        return (Allocate(FOUND), TELL, READ, Allocate(ROOT), inside, out(ROOT))

    inside = less(LANE, N)
    found = sink_to_owners(tested(inside))
    tests = [s for s in walk(found) if isinstance(s, If) and s.condition is inside]
    assert [len(stores_of(s.then, name)) for s, name in zip(tests, ("root_own", "root_told", "root"), strict=True)] == [
        1
    ] * 3
    for other in (less(POSITION, N), equal(INDEX, 0)):
        body = tested(other)
        assert sink_to_owners(body) is body


@pytest.mark.parametrize(
    "work",
    [
        over(root(Load(WEIGHT, INDEX))),
        over(root(Load(SUM, const(0)))),
        over(root(Load(SUM, INDEX)), count=7),
        over(Store(ROOT, INDEX, Load(SUM, INDEX))),
        over(Store(OUT, INDEX, Load(SUM, INDEX))),
    ],
    ids=["of others", "of one column", "of some columns", "nothing computed", "stored"],
)
def test_what_is_not_of_the_own_column_alone_stays(work: Stmt) -> None:
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), work, out(ROOT))
    assert sink_to_owners(body) is body


def test_more_to_tell_than_before_stays() -> None:
    work = over(root(Load(SUM, INDEX)), root(Load(SUM, INDEX), HALF))
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), Allocate(HALF), work, out(ROOT), out(HALF))
    assert sink_to_owners(body) is body
    also = (Allocate(FOUND), TELL, READ, Allocate(ROOT), over(root(Load(SUM, INDEX))), out(ROOT), out(SUM))
    assert sink_to_owners(also) is also


def test_a_temporary_that_is_read_later_stays() -> None:
    work = over(root(Load(SUM, INDEX), BESIDE, const(0)), Store(ROOT, INDEX, Load(BESIDE, const(0))))
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), work, out(ROOT))
    assert sink_to_owners(body) != body
    later = (*body, out(BESIDE, const(0)))
    assert sink_to_owners(later) is later


def test_what_is_of_several_columns_stays() -> None:
    """A sum over the columns of a thread, or a value of its last one: an owner has one column."""
    total = Load(BESIDE, const(0))
    added = over(Store(BESIDE, const(0), Call("add", (total, Load(SUM, INDEX)), Float, Float)))
    last = over(root(Load(SUM, INDEX), BESIDE, const(0)))
    first = Store(BESIDE, const(0), Literal(0.0, Float))
    scaled = over(root(Call("mul", (Load(SUM, INDEX), total), Float, Float)))
    for work in ((first, added), (last,)):
        body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), Allocate(BESIDE), *work, scaled, out(ROOT))
        assert all(not stores_of((s,), "root_told") for s in sink_to_owners(body))


def test_registers_that_are_set_later_are_there() -> None:
    late = over(Store(HALF, INDEX, Load(WEIGHT, INDEX)))
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), Allocate(HALF), over(root(Load(SUM, INDEX))), out(ROOT), late)
    found = sink_to_owners(body)
    assert found != body
    assert body[4] in found


def test_a_result_that_others_read_stays_told() -> None:
    other = over(Store(OUT, INDEX, Load(FOUND, LANE)))
    body = (Allocate(FOUND), TELL, READ, Allocate(ROOT), over(root(Load(SUM, INDEX))), out(ROOT), other)
    assert sink_to_owners(body) is body


def test_owners_of_several_results_tell_them_as_they_are() -> None:
    """The second half of the results is joined by the same threads, under a test of their own."""
    first = If(OWNER, (Store(FOUND, ELEMENT * 4 + LANE + 16, Load(OWN, const(0))),), role=Role.owner)
    body = (Allocate(FOUND), first, TELL, READ, Allocate(ROOT), over(root(Load(SUM, INDEX))), out(ROOT))
    assert sink_to_owners(body) is body


def test_owners_of_two_reductions_in_other_places_tell_them_as_they_are() -> None:
    """The warps of a block in a group have the rows of one in turn, those of the other backward."""
    work = over(root(Load(SUM, INDEX)))
    other = Buffer("other", Float, MemoryType.shared, const(32))
    total = buffer("total")
    half = over(root(Load(total, INDEX), HALF))
    of_other = Store(other, (7 - ELEMENT) * 4 + LANE, Load(BESIDE, const(0)))
    both = If(OWNER, (*TELL.then, of_other), role=Role.owner)
    read = For(
        COLUMN, const(0), const(8), const(1), (Store(total, COLUMN, Load(other, COLUMN * 4 + LANE)),), unroll=True
    )
    head = (Allocate(FOUND), Allocate(other), both, READ, read)
    body = (*head, Allocate(ROOT), Allocate(HALF), work, half, out(ROOT), out(HALF))
    assert sink_to_owners(body) is body
