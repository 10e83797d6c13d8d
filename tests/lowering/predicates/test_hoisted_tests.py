"""Tests that are answered ahead: they leave, the others stay, and what is done where one fails leaves with them."""

from __future__ import annotations

import pytest

from fuser.errors import InternalError
from fuser.ir.integers.integers import ONE, ZERO, Cond, all_of, const, equal, less, symbol
from fuser.ir.integers.proofs import ProofLog, check_proofs
from fuser.ir.kernel.kernel import Buffer, For, If, Literal, Role, Stmt, Store
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.predicates.hoisted_tests import drop_tests, holds_for_smaller, log_implied_tests, predicate_parts

P, J, N = symbol("i", 0, 7), symbol("j", 0, 7), symbol("n", 0)
A = Buffer("a", DataType.Float, MemoryType.local, ONE)
DONE, ELSE = (Store(A, ZERO, Literal(value, DataType.Float)) for value in (1.0, 0.0))
FIRST, SECOND = less(P, N), less(J, N)


def guarded(condition: Cond, role: Role = Role.predicate) -> If:
    return If(condition, (DONE,), (ELSE,), role)


def looped(*body: Stmt) -> For:
    return For(J, ZERO, const(8), ONE, body)


def dropped(stmt: Stmt, *passed: Cond) -> str:
    (made,) = drop_tests((stmt,), passed)
    return repr(made)


def test_passed_tests_leave_and_so_does_their_other_side() -> None:
    assert dropped(looped(guarded(FIRST)), FIRST) == repr(looped(DONE))
    both = guarded(all_of(FIRST, SECOND))
    assert dropped(both, FIRST) == repr(guarded(SECOND))
    assert dropped(both, FIRST, SECOND) == repr(DONE)


def test_other_tests_stay() -> None:
    for stmt in (guarded(SECOND), guarded(FIRST, Role.owner)):
        assert dropped(stmt, FIRST) == repr(stmt)


def test_parts_are_those_of_predicates() -> None:
    body = (looped(guarded(all_of(FIRST, SECOND)), guarded(equal(P, 0), Role.owner)),)
    assert set(predicate_parts(body)) == {FIRST, SECOND}


def test_prefix_is_a_test_that_stays_true_downwards() -> None:
    assert holds_for_smaller(less(P, N), P)
    assert holds_for_smaller(less(2 * P + J, N), J)
    assert holds_for_smaller(less(J, N), P), "it does not depend on the index"
    assert not holds_for_smaller(less(N, P), P)
    assert not holds_for_smaller(equal(P, N), P)


def test_claims_are_proved_again() -> None:
    proofs = ProofLog()
    log_implied_tests(proofs, "here", "harder", {less(P, N): less(const(7), N)})
    check_proofs(proofs)
    assert len(proofs.claims) == 1
    wrong = ProofLog()
    log_implied_tests(wrong, "here", "weaker", {less(P, N): less(const(3), N)})
    with pytest.raises(InternalError, match="here claims what is not so"):
        check_proofs(wrong)
    log_implied_tests(None, "here", "harder", {less(P, N): less(const(7), N)})
