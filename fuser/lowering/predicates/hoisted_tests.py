"""What `peel_loops` and `unswitch_loops` have in common: predicates that are decided before a body runs, and removed from
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fuser.ir.integers.integers import TRUE, Compare, Cond, Int, Symbol, all_of, conjuncts, const
from fuser.ir.integers.proofs import Claim, ProofLog
from fuser.ir.kernel.kernel import If, Role, Stmt, walk
from fuser.lowering.kernel_rewrites import map_body


def holds_for_smaller(condition: Cond, index: Symbol) -> bool:
    """Whether a test that holds at some value of `index` is known to hold at all smaller ones."""
    step = step_of_test(condition, index)
    return step is not None and step.hi is not None and step.hi <= 0


def holds_for_larger(condition: Cond, index: Symbol) -> bool:
    """Whether a test that holds at some value of `index` is known to hold at all larger ones."""
    step = step_of_test(condition, index)
    return step is not None and step.lo is not None and step.lo >= 0


def step_of_test(condition: Cond, index: Symbol) -> Int | None:
    """By how much the operand of a test `operand >= 0` grows from one value of `index` to the next; None for other tests."""
    if not isinstance(condition, Compare) or condition.kind != ">=":
        return None
    return condition.operand.substitute({index: index + 1}) - condition.operand


def predicate_parts(body: tuple[Stmt, ...]) -> Iterator[Cond]:
    """Each test of every predicate of a body."""
    for stmt in walk(body):
        if isinstance(stmt, If) and stmt.role is Role.predicate:
            yield from conjuncts(stmt.condition)


def drop_tests(body: tuple[Stmt, ...], passed: Collection[Cond]) -> tuple[Stmt, ...]:
    """The body where the tests `passed` hold: without them, and without what is done where one fails."""

    def drop(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, If) or stmt.role is not Role.predicate:
            return None
        rest = all_of(*(p for p in conjuncts(stmt.condition) if p not in passed))
        return stmt.then if rest is TRUE else (If(rest, stmt.then, stmt.orelse, stmt.role),)

    return map_body(body, drop)


def log_implied_tests(proofs: ProofLog | None, origin: str, what: str, given: Mapping[Cond, Cond]) -> None:
    """Tell `proofs` that each test holds where the condition holds that is given for it."""
    if proofs is None:
        return
    for test, condition in given.items():
        assert isinstance(test, Compare)
        proofs.add(Claim(origin, what, const(-1), "<", test.operand, (condition,)))
