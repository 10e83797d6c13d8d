"""Neighbours under one test share it."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.integers import const, less, symbol
from fuser.ir.kernel import Allocate, Buffer, If, Literal, Role, Stmt, Store
from fuser.lowering.merge_predicates import merge_predicates

INDEX, N = symbol("i", 0), symbol("n", 0)
A = Buffer("a", DataType.Float, MemoryType.local, const(1))
S = Buffer("s", DataType.Float, MemoryType.shared, const(4))


def store(buffer: Buffer = A) -> Stmt:
    return Store(buffer, const(0), Literal(1.0, DataType.Float))


def test_equal_neighbours_merge_with_declarations_in_front() -> None:
    condition = less(INDEX, N)
    merged = merge_predicates((If(condition, (store(),)), Allocate(A), If(condition, (store(),))))
    assert isinstance(merged[0], Allocate)
    assert isinstance(merged[1], If)
    assert len(merged[1].then) == 2


def test_shared_declarations_stay_where_they_are() -> None:
    condition = less(INDEX, N)
    merged = merge_predicates((If(condition, (store(),)), Allocate(S), If(condition, (store(S),))))
    assert [type(s).__name__ for s in merged] == ["If", "Allocate", "If"]


def test_different_tests_and_roles_stay_apart() -> None:
    condition, other = less(INDEX, N), less(INDEX, N + 1)
    assert len(merge_predicates((If(condition, (store(),)), If(other, (store(),))))) == 2
    assert len(merge_predicates((If(condition, (store(),)), If(condition, (store(),), role=Role.owner)))) == 2


def test_statement_between_keeps_them_apart() -> None:
    condition = less(INDEX, N)
    assert len(merge_predicates((If(condition, (store(),)), store(), If(condition, (store(),))))) == 3
