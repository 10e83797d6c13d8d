"""Test an unswitched loop's bounds once.

Before: for (i) { if (f(i) < n) a }                          with For.unswitch
After:  if (f(last i) < n) { for (i) a } else { for (i) { if (f(i) < n) a } }

A test is hoisted if its index never decreases over the iterations of the loops inside, so that the last iteration decides for
all; if it never increases, so that the first one does; or if its values differ by known numbers, so that the largest decides.
Else branches of hoisted tests are dropped in the version without tests. Loops that contain a barrier keep their tests, as the
hoisted test differs between threads; so do loops of which some iteration is known to fail. In the version with tests, an
inner loop that is unswitched too is tested once per iteration of the outer one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fuser.ir.integers.integers import FALSE, Compare, Cond, Int, Symbol, all_of, conjuncts, const
from fuser.ir.integers.proofs import ProofLog
from fuser.ir.kernel.kernel import For, If, Role, Stmt, walk
from fuser.ir.kernel.statement_scopes import is_collective
from fuser.lowering.kernel_rewrites import map_body, map_loops
from fuser.lowering.predicates.hoisted_tests import drop_tests, holds_for_larger, holds_for_smaller, log_implied_tests

_MAX_ITERATIONS = 64


def unswitch_loops(body: tuple[Stmt, ...], proofs: ProofLog | None = None) -> tuple[Stmt, ...]:
    """Hoist the tests of every outermost loop that asks for it. `proofs` logs that each hoisted test implies those
    that it replaces."""

    def rewrite(loop: For) -> list[Stmt]:
        each = replace(loop, body=unswitch_loops(loop.body, proofs), unswitch=False)
        return [_unswitch(_without_unswitch(loop), each, proofs) if loop.unswitch else each]

    return map_loops(body, rewrite)


def _without_unswitch(loop: For) -> For:
    def clear(s: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(s, unswitch=False),) if isinstance(s, For) and s.unswitch else None

    made = map_body((loop,), clear)[0]
    assert isinstance(made, For)
    return made


def _unswitch(loop: For, each: For, proofs: ProofLog | None) -> Stmt:
    """`loop` under the test of all its iterations; `each`, which tests them one by one, where that fails or there is none."""
    inner = [s for s in walk((loop,)) if isinstance(s, For)]
    if any(map(is_collective, walk((loop,)))):
        return each
    symbols = {s.symbol: s for s in inner}
    hoisted: dict[Cond, Cond] = {}
    for part in _tests((loop,)):
        last = _at_min_operand(part, symbols)
        if last is not None:
            hoisted[part] = last
    if not hoisted or all_of(*hoisted.values()) is FALSE:
        return each
    log_implied_tests(proofs, "unswitch_loops", "hoisted test", hoisted)
    return If(all_of(*hoisted.values()), drop_tests((loop,), hoisted), (each,), role=Role.unswitch)


def _tests(body: Sequence[Stmt]) -> Iterator[Cond]:
    """The parts of all predicates; what is done where one fails has none that matter where it holds."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from _tests(stmt.body)
        elif isinstance(stmt, If):
            if stmt.role is Role.predicate:
                yield from conjuncts(stmt.condition)
            yield from _tests(stmt.then)
            if stmt.role is not Role.predicate:
                yield from _tests(stmt.orelse)


def _at_min_operand(condition: Cond, loops: dict[Symbol, For]) -> Cond | None:
    """The condition (`operand >= 0`) with every inner loop at the iteration with the smallest operand: the last or the first;
    None if that is not known."""
    if not isinstance(condition, Compare) or condition.kind != ">=":
        return None
    values: dict[Symbol, Int | int] = {}
    for s in sorted(condition.operand.symbols & loops.keys(), key=lambda s: s.name):
        loop = loops[s]
        if (loop.start.symbols | loop.stop.symbols) & loops.keys():
            return None
        if holds_for_smaller(condition, s):
            values[s] = loop.stop - 1
        elif holds_for_larger(condition, s):
            values[s] = loop.start
        else:
            worst = _iteration_of_min_operand(condition, loop)
            if worst is None:
                return None
            values[s] = worst
    return condition.substitute(values)


def _iteration_of_min_operand(condition: Compare, loop: For) -> Int | None:
    """The iteration at which the operand is least, where those of all differ by constants: accesses of a thread that go along
    two dims, one by i // n, the other by i % n."""
    iterations = loop.values
    if iterations is None or len(iterations) > _MAX_ITERATIONS:
        return None
    first = condition.operand.substitute({loop.symbol: loop.start})
    least, worst = 0, loop.start
    for k in iterations:
        apart = condition.operand.substitute({loop.symbol: const(k)}) - first
        if not apart.is_const:
            return None
        if apart.value < least:
            least, worst = apart.value, const(k)
    return worst
