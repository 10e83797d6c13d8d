"""Neighbours under one test share it."""

from __future__ import annotations

from fuser.ir.integers.integers import Cond, const, less, symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, For, If, Literal, Load, Role, Stmt, Store
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType
from fuser.lowering.predicates.merge_predicates import merge_predicates

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


def loop(*body: Stmt) -> For:
    return For(J, const(0), const(8), const(1), body, unroll=True)


def under_test(condition: Cond) -> If:
    return If(condition, (store(),))


J = symbol("j", 0, 7)


def test_the_test_of_a_whole_loop_stands_outside() -> None:
    condition = less(INDEX, N)
    merged = merge_predicates((under_test(condition), Allocate(A), loop(Allocate(A), under_test(condition))))
    assert [type(s).__name__ for s in merged] == ["Allocate", "If"]
    assert isinstance(merged[1], If)
    first, second = merged[1].then
    assert isinstance(first, Store)
    assert isinstance(second, For)
    assert second.unroll
    assert [type(s).__name__ for s in second.body] == ["Allocate", "Store"]


def test_nested_loops_give_up_their_test() -> None:
    condition = less(INDEX, N)
    inner = symbol("k", 0, 3)
    nest = loop(For(inner, const(0), const(4), const(1), (under_test(condition),)))
    (merged,) = merge_predicates((nest,))
    assert isinstance(merged, If)
    assert isinstance(merged.then[0], For)
    assert isinstance(merged.then[0].body[0], For)


def test_tests_that_stay_inside() -> None:
    condition = less(INDEX, N)
    for body in (
        (under_test(less(INDEX + J, N)),),
        (under_test(condition), store()),
        (store(), under_test(condition)),
        (Allocate(S), under_test(condition)),
        (If(condition, (store(),), (store(),)),),
        (If(condition, (store(),), role=Role.unswitch),),
    ):
        assert [type(s).__name__ for s in merge_predicates((loop(*body),))] == ["For"], body


def test_empty_loops() -> None:
    assert [type(s).__name__ for s in merge_predicates((loop(),))] == ["For"]


def sum_of_parts(name: str, condition: Cond) -> tuple[Stmt, Stmt, If]:
    """A sum as it begins, and what is read and added to it on both sides of an unswitched test."""
    part, own, total = (
        Buffer(f"{name}_{what}", DataType.Float, memory, const(8))
        for what, memory in (("part", GLOBAL_MEMORY), ("own", MemoryType.local), ("total", MemoryType.local))
    )
    read = loop(Store(own, J, Load(part, J)))
    added = loop(Store(total, const(0), Load(own, J)))
    begun = Store(total, const(0), Literal(0.0, DataType.Float), Role.initialise)
    return Allocate(total), begun, If(condition, (read, added), (store(),), Role.unswitch)


def test_sums_of_unswitched_parts_share_their_test() -> None:
    """What one begins with stands in front of both."""
    condition = less(INDEX, N)
    merged = merge_predicates((*sum_of_parts("a", condition), *sum_of_parts("b", condition)))
    assert [type(s).__name__ for s in merged] == ["Allocate", "Store", "Allocate", "Store", "If"]
    whole = merged[-1]
    assert isinstance(whole, If)
    written = [s.body[0].buffer.name for s in whole.then if isinstance(s, For) and isinstance(s.body[0], Store)]
    assert written == ["a_own", "a_total", "b_own", "b_total"]


def test_what_a_test_uses_does_not_begin_before_it() -> None:
    condition = less(INDEX, N)
    allocate, begun, whole = sum_of_parts("a", condition)
    assert sum(isinstance(s, If) for s in merge_predicates((allocate, whole, begun, whole))) == 2
