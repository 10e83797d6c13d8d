"""Peel the last iteration of an unrolled loop, so that only that one is predicated.

Before: for (i < 9, unrolled) { if (32 i + t < n) a(i) }          with n known to be 257 or more, and t below 32
After:  for (i < 8, unrolled) { a(i) } if (256 + t < n) { a(8) }

A predicate of a load is a branch around it, and loads after different branches wait for each other. If only the last
iteration can fail its predicates, the others need none. The lower bound of an extent is a fact that the schedule requires.
Loops of two iterations are left alone, and so are loops with collective operations of lanes.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.integers.integers import TRUE, Truth, const, less
from fuser.ir.integers.proofs import ProofLog
from fuser.ir.kernel.kernel import For, If, Stmt, walk
from fuser.ir.kernel.statement_scopes import is_collective
from fuser.lowering.kernel_rewrites import map_body, map_loops, substitute_symbols
from fuser.lowering.predicates.hoisted_tests import drop_tests, holds_for_smaller, log_implied_tests, predicate_parts

MIN_ITERATIONS = 3
"""Iterations of a loop of which most lose their tests when the last is taken out."""


def peel_loops(body: tuple[Stmt, ...], proofs: ProofLog | None = None) -> tuple[Stmt, ...]:
    """Take the last iteration out of every unrolled loop whose other iterations pass tests that it may fail.

    Loops whose tests are hoisted are left as they are. `proofs` logs that the dropped tests hold.
    """

    def rewrite(loop: For) -> list[Stmt]:
        return [loop] if loop.unswitch else _peel_last(replace(loop, body=peel_loops(loop.body, proofs)), proofs)

    return map_loops(body, rewrite)


def _peel_last(loop: For, proofs: ProofLog | None) -> list[Stmt]:
    iterations = loop.values if loop.unroll else None
    if iterations is None or len(iterations) < MIN_ITERATIONS or any(map(is_collective, walk(loop.body))):
        return [loop]
    before = const(iterations[-2])
    passed = {
        part
        for part in predicate_parts(loop.body)
        if loop.symbol in part.symbols
        and holds_for_smaller(part, loop.symbol)
        and part.substitute({loop.symbol: before}) is TRUE
    }
    if not passed:
        return [loop]
    last = const(iterations[-1])
    given = less(loop.symbol, last)
    log_implied_tests(proofs, "peel_loops", "test of all iterations but the last", dict.fromkeys(passed, given))
    ending = map_body(substitute_symbols(loop.body, {loop.symbol: last}), _fold_test)
    return [
        replace(loop, stop=last, body=drop_tests(loop.body, passed)),
        # A loop still, for what it declares.
        replace(loop, start=last, body=ending),
    ]


def _fold_test(stmt: Stmt) -> tuple[Stmt, ...] | None:
    """What is left of a test whose outcome is known."""
    if isinstance(stmt, If) and isinstance(stmt.condition, Truth):
        return stmt.then if stmt.condition is TRUE else stmt.orelse
    return None
