"""Elements that indices choose: what is read before a collective, what stays behind it, and that results stay."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.ir.integers import ONE, ZERO, const, equal, less, symbol
from fuser.ir.kernel import Allocate, Buffer, Call, For, If, Literal, Load, LoadIndex, Reduce, Role, Stmt, Store, walk
from fuser.lowering.memory.hoist_loads import hoist_loads

Float, Int = DataType.Float, DataType.Int
ROW, N = symbol("row", 0, 7), symbol("n", 0, 8)
INPUT = Buffer("input", Float, GLOBAL_MEMORY, const(64))
LABELS = Buffer("labels", Int, GLOBAL_MEMORY, const(8))
OUT = Buffer("out", Float, GLOBAL_MEMORY, const(8))
LABEL = Buffer("label", Int, MemoryType.local, ONE)
CHOSEN, TOTAL, LOSS = (Buffer(name, Float, MemoryType.local, ONE) for name in ("chosen", "total", "loss"))
AT = symbol("at", 0, 7)
SUM = Reduce(
    (TOTAL,),
    "add",
    (Literal(0.0, Float),),
    (ParallelType.block_x,),
    (),
    grid_broadcast=False,
    slot=ZERO,
    slots=ONE,
    name="t",
)
READ: tuple[Stmt, ...] = (
    Allocate(LABEL),
    Store(LABEL, ZERO, Load(LABELS, ROW)),
    LoadIndex(AT, LABEL, ZERO),
    Allocate(CHOSEN),
    Store(CHOSEN, ZERO, Load(INPUT, ROW * 8 + AT)),
)
USE: tuple[Stmt, ...] = (
    Allocate(LOSS),
    Store(LOSS, ZERO, Call("sub", (Load(TOTAL, ZERO), Load(CHOSEN, ZERO)), Float, Float)),
    Store(OUT, ROW, Load(LOSS, ZERO)),
)


def order(body: tuple[Stmt, ...]) -> list[object]:
    """Buffers that are written, and collectives, in order."""
    return [s.buffer.name if isinstance(s, Store) else "reduce" for s in walk(body) if isinstance(s, (Store, Reduce))]


def test_the_chosen_element_and_its_index_go_before_the_collective() -> None:
    made = hoist_loads((Allocate(TOTAL), SUM, *READ, *USE))
    assert order(made) == ["label", "chosen", "reduce", "loss", "out"]
    assert sum(isinstance(s, Allocate) for s in made) == 4


def test_of_statements_that_each_stand_under_the_same_test() -> None:
    test, other = less(ROW, N), less(ROW, 3)
    label, index, chosen = READ[1], READ[2], READ[4]
    allocated = tuple(s for s in (*READ, *USE) if isinstance(s, Allocate))
    apart = [If(test, (label,), role=Role.predicate), If(test, (index, chosen), role=Role.predicate)]
    made = hoist_loads((Allocate(TOTAL), SUM, *allocated, *apart, If(test, USE[1:], role=Role.predicate)))
    assert order(made) == ["label", "chosen", "reduce", "loss", "out"]
    early, late = (s for s in made if isinstance(s, If))
    assert early.condition is late.condition is test
    assert len(late.then) == 2
    # What another test may leave out is not there.
    apart[0] = If(other, (label,), role=Role.predicate)
    body = (Allocate(TOTAL), SUM, *allocated, *apart, If(test, USE[1:], role=Role.predicate))
    assert hoist_loads(body) == body


def test_under_the_test_that_it_stands_under() -> None:
    test = less(ROW, N)
    made = hoist_loads((Allocate(TOTAL), SUM, If(test, (*READ, *USE), role=Role.predicate)))
    assert order(made) == ["label", "chosen", "reduce", "loss", "out"]
    first, second = (s for s in made if isinstance(s, If))
    assert first.condition is second.condition is test
    # Each side has an index symbol of its own.
    symbols = [s.symbol for s in walk(made) if isinstance(s, LoadIndex)]
    assert len(set(symbols)) == len(symbols) == 2


def test_in_every_trip_of_a_loop() -> None:
    made = hoist_loads((For(ROW, ZERO, N, ONE, (Allocate(TOTAL), SUM, *READ, *USE)),))
    assert isinstance(made[0], For)
    assert order(made[0].body) == ["label", "chosen", "reduce", "loss", "out"]


def test_what_needs_the_sums_stays() -> None:
    """An index computed from a result, an input that the kernel writes, a test that comes of the collective."""
    of_result = (Allocate(LABEL), Store(LABEL, ZERO, Load(TOTAL, ZERO)), *READ[2:])
    written = Store(INPUT, ROW, Literal(0.0, Float))
    last = symbol("is_last", 0, 1)
    whole = Reduce(
        (TOTAL,),
        "add",
        SUM.identity,
        SUM.block_axes,
        (),
        grid_broadcast=False,
        slot=ZERO,
        slots=ONE,
        name="t",
        last_block=last,
    )
    for body in (
        (SUM, *of_result, *USE),
        (SUM, *READ, *USE, written),
        (whole, If(equal(last, 1), (*READ, *USE), role=Role.last_block)),
        (*READ, *USE),
    ):
        assert order(hoist_loads(body)) == order(body)


def test_rows_of_registers_stay() -> None:
    row = Buffer("chosen", Float, MemoryType.local, const(8))
    several = Store(row, ZERO, Load(INPUT, ROW * 8 + AT))
    body = (SUM, *READ[:3], Allocate(row), several)
    assert hoist_loads(body) == body
