"""What statements read and write is found once for each, and walks visit all of them in program order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuser.ir.integers.integers import ONE, ZERO, const, less, symbol
from fuser.ir.kernel import kernel_accesses
from fuser.ir.kernel.kernel import Buffer, Call, Comment, For, If, Load, Stmt, Store, Value, child_bodies, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType

A, B, OUT = (Buffer(n, DataType.Float, MemoryType.local, const(4)) for n in ("a", "b", "out"))


def total() -> Store:
    """out[0] = a[1] + b[2]"""
    values: tuple[Value, ...] = (Load(A, const(1)), Load(B, const(2)))
    return Store(OUT, ZERO, Call("add", values, DataType.Float, DataType.Float))


def test_accesses_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stmt, asked = total(), 0
    plain = kernel_accesses.value_loads

    def counted(value: Value) -> Iterator[Load]:
        nonlocal asked
        asked += isinstance(value, Call)
        return plain(value)

    monkeypatch.setattr(kernel_accesses, "value_loads", counted)
    for _ in range(3):
        assert stmt_reads(stmt) == ((A, const(1)), (B, const(2)))
        assert stmt_writes(stmt) == ((OUT, ZERO),)
    assert asked == 1
    # Equal statements are two: buffers are what tells them apart, not what they do.
    assert stmt_reads(total()) == stmt_reads(stmt)
    assert asked == 2


def recursive(body: tuple[Stmt, ...]) -> list[Stmt]:
    """As `walk`, in so many words."""
    return [s for outer in body for s in (outer, *(i for inner in child_bodies(outer) for i in recursive(inner)))]


def test_walk_is_in_program_order() -> None:
    i = symbol("i", 0, 3)
    notes = iter([Comment(str(k)) for k in range(9)])
    inner = If(less(i, ONE), (next(notes), total()), (next(notes), next(notes)))
    loop = For(i, ZERO, const(4), ONE, (next(notes), inner, next(notes)))
    body: tuple[Stmt, ...] = (next(notes), loop, next(notes), For(i, ZERO, ONE, ONE, ()), next(notes))
    assert list(walk(body)) == recursive(body)
    assert len(recursive(body)) == 12
    assert list(walk(())) == []
