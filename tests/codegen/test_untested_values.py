"""Hoisted tests around values of registers alone are not written; all others are."""

from __future__ import annotations

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.ir.integers.integers import Int, less, symbol
from fuser.ir.kernel.kernel import Allocate, If, Literal, Role, Stmt
from tests.codegen.golden_corpus import FLOAT, TID, N, at, call, kernel, loop, registers, store, tensor

WAVE, J, K = symbol("i", below=2), symbol("j", below=4), symbol("k", below=4)
A, B = tensor("a", FLOAT), tensor("b", FLOAT)
X, Y, T = registers("x", FLOAT, 8), registers("y", FLOAT, 8), registers("t", FLOAT)


def hoisted(*stmts: Stmt, index: int = 0) -> If:
    """What is done for each of four elements, in both ways of a hoisted test."""
    whole = loop(J, 4, *stmts, unroll=True)
    tested = loop(J, 4, If(less(4 * TID + J + index, N), stmts, role=Role.predicate), unroll=True)
    return If(less(4 * TID + 3 + index, N), (whole,), (tested,), role=Role.unswitch)


COMPUTED = (Allocate(T), store(T, call("mul", at(X, J), at(X, J))), store(Y, call("exp", at(T)), J))


def text_of(*stmts: Stmt) -> str:
    return generate_cuda(kernel("made", (A,), (B,), Allocate(X), Allocate(Y), *stmts)).text


def test_values_of_registers_are_computed_by_all_threads() -> None:
    text = text_of(hoisted(*COMPUTED))
    assert "unswitch" not in text
    assert "if (" not in text
    assert text.count("y[j] = ") == 1


@pytest.mark.parametrize(
    "stmts",
    [
        (store(B, at(X, J), 4 * TID + J),),
        (store(Y, at(A, 4 * TID + J), J),),
        (store(X, at(X, J), J), store(B, at(X, J), 4 * TID + J)),
    ],
    ids=["stored", "loaded", "both"],
)
def test_memory_is_accessed_under_tests(stmts: tuple[Stmt, ...]) -> None:
    text = text_of(hoisted(*stmts))
    assert "unswitch" in text
    assert "else" in text


def test_a_register_that_holds_something_else_keeps_it_where_tests_fail() -> None:
    fill = loop(K, 8, store(Y, Literal(0.0, FLOAT), K, Role.initialise), unroll=True)
    assert "unswitch" in text_of(fill, hoisted(*COMPUTED))
    rest = loop(K, 4, store(Y, Literal(0.0, FLOAT), K + 4, Role.initialise), unroll=True)
    assert "unswitch" not in text_of(rest, hoisted(*COMPUTED))


@pytest.mark.parametrize(("index", "stays"), [(J, True), (4 * WAVE + J, False)])
def test_a_register_may_keep_what_the_iteration_before_left(index: Int, stays: bool) -> None:
    stmts = (store(Y, at(X, J), index),)
    assert ("unswitch" in text_of(loop(WAVE, 2, hoisted(*stmts), unroll=True))) is stays
    assert "unswitch" in text_of(loop(WAVE, N, hoisted(*stmts)))


def test_sums_are_taken_under_tests() -> None:
    total = registers("total", FLOAT)
    start = store(total, Literal(0.0, FLOAT), role=Role.initialise)
    text = text_of(Allocate(total), start, hoisted(store(total, call("add", at(total), at(X, J)))))
    assert "unswitch" in text


def test_a_hoisted_choice_stays_a_choice() -> None:
    """Of the pieces of a concatenation the hoisted test takes one, and the other way any."""
    first, second = store(Y, at(X, J), J), store(Y, at(X, J + 4), J)
    whole = loop(J, 4, first, unroll=True)
    for other in (
        If(less(TID, 8), (first,), (second,), role=Role.predicate),
        If(less(TID, 8), (second,), role=Role.predicate),
    ):
        tested = loop(J, 4, If(less(4 * TID + J, N), (other,), role=Role.predicate), unroll=True)
        text = text_of(If(less(4 * TID + 3, N), (whole,), (tested,), role=Role.unswitch))
        assert "unswitch" in text
        assert "else" in text
