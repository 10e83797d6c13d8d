"""Private buffers that take the place of what they are computed from, and those that may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import ONE, ZERO, Int, const, less, symbol
from fuser.ir.kernel import Allocate, Buffer, Call, For, If, Load, Role, Stmt, Store, VectorMove, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.lowering.take_places import take_places

ROW = Buffer("row", DataType.Float, MemoryType.shared, const(1024))
OUT = Buffer("out", DataType.Float, MemoryType["global"], const(1024))
HELD = Buffer("held", DataType.Float, MemoryType.local, const(4))
THREAD = symbol("tid_x", 0, 31)
PRIVATE = frozenset({"row", "made"})

Access = Callable[[Int], Stmt]


def made(dtype: DataType = DataType.Float, size: int = 1024) -> Buffer:
    return Buffer("made", dtype, MemoryType.shared, const(size))


def loop(name: str, *body_of: Access) -> For:
    """Eight trips over accesses of four elements, 32 threads side by side."""
    i = symbol(name, 0, 7)
    return For(i, ZERO, const(8), ONE, tuple(f(128 * i + 4 * THREAD) for f in body_of))


def read(buffer: Buffer) -> Access:
    return lambda at: VectorMove(HELD, ZERO, buffer, at, 4)


def write(buffer: Buffer, by: int = 0) -> Access:
    return lambda at: VectorMove(buffer, at + by, HELD, ZERO, 4)


def either(whole: Access, single: Callable[[Int, int], Stmt]) -> Access:
    """An access of a vector, or of its elements one by one."""
    return lambda at: If(less(THREAD, const(31)), (whole(at),), tuple(single(at, k) for k in range(4)), role=Role.plain)


def kernel(new: Buffer, *middle: Stmt) -> tuple[Stmt, ...]:
    return (
        Allocate(ROW),
        loop("i0", write(ROW)),
        Allocate(new),
        *(middle or (loop("i1", read(ROW), write(new)),)),
        loop("i2", read(new), write(OUT)),
    )


def buffers_of(body: tuple[Stmt, ...]) -> set[str]:
    accesses = [a for s in walk(body) for a in (*stmt_reads(s), *stmt_writes(s))]
    return {b.name for b, _ in accesses} | {s.buffer.name for s in walk(body) if isinstance(s, Allocate)}


def test_the_last_reader_writes_in_place() -> None:
    body = take_places(kernel(made()), PRIVATE)
    assert buffers_of(body) == {"row", "held", "out"}
    assert any(b is ROW for s in walk((body[-1],)) for b, _ in stmt_reads(s))


def test_what_is_computed_with_keeps_its_place() -> None:
    """It would be read where nothing is written any more."""
    new, i = made(), symbol("i3", 0, 7)
    changed = Store(HELD, ZERO, Call("neg", (Load(new, 4 * THREAD),), DataType.Float, DataType.Float))
    body = (*kernel(new), For(i, ZERO, const(8), ONE, (changed,)))
    assert take_places(body, PRIVATE) == body


def test_inside_of_a_loop_over_rows_and_by_element_at_their_ends() -> None:
    new = made()
    reads = either(read(ROW), lambda at, k: Store(HELD, const(k), Load(ROW, at + k)))
    writes = either(write(new), lambda at, k: Store(new, at + k, Load(HELD, const(k))))
    rows = For(symbol("r", 0, 3), ZERO, const(4), ONE, kernel(new, loop("i1", reads, writes)))
    assert "made" not in buffers_of(take_places((rows,), PRIVATE))


NEW = made()


@pytest.mark.parametrize(
    "body",
    [
        kernel(made(DataType.Int32)),
        kernel(made(size=512)),
        kernel(NEW, loop("i1", read(ROW), write(NEW, by=4))),
        kernel(NEW, loop("i1", write(NEW), read(ROW))),
        (*kernel(NEW), loop("i3", read(ROW), write(OUT))),
    ],
    ids=["another type", "another size", "another element", "written first", "the row is read again"],
)
def test_what_stays_apart(body: tuple[Stmt, ...]) -> None:
    assert take_places(body, PRIVATE) == body


def test_what_threads_exchange_stays_apart() -> None:
    body = kernel(made())
    assert take_places(body, frozenset({"row"})) == body
    assert take_places(body, frozenset({"made"})) == body
