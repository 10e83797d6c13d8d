"""Join neighbouring statements under the same test, loops whose whole body is under one test among them.

Before: if (p) { a } float b; for (i) { if (p) { c } }
After:  float b; if (p) { a; for (i) { c } }

A test inside an unrolled loop would stand in the text once per iteration, and keep the compiler from computing once what the
iterations share.

Stands last: barriers are placed, and every pass before works on single predicated statements.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.kernel import Allocate, For, If, Role, Stmt

_MERGED = (Role.predicate, Role.owner, Role.last_block)


def merge_predicates(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Merge equal neighbouring tests, declarations moved in front of them."""
    return tuple(_merge(body))


def _merge(body: Sequence[Stmt]) -> list[Stmt]:
    out: list[Stmt] = []
    pending: If | None = None
    collected: list[Stmt] = []

    def flush() -> None:
        nonlocal pending
        if pending is not None:
            out.append(If(pending.condition, tuple(_merge(collected)), tuple(_merge(pending.orelse)), pending.role))
            pending = None
            collected.clear()

    for given in body:
        stmt = _lifted(given) if isinstance(given, For) else given
        if isinstance(stmt, Allocate) and stmt.buffer.is_register:
            # Shared arrays stay where they are: their bytes may still be another array's.
            out.append(stmt)
            continue
        if isinstance(stmt, If) and stmt.role in _MERGED and not stmt.orelse:
            if pending is not None and pending.condition is stmt.condition and pending.role is stmt.role:
                collected.extend(stmt.then)
                continue
            flush()
            pending = stmt
            collected.extend(stmt.then)
            continue
        flush()
        if isinstance(stmt, For):
            # Merged already, when it was looked at for a test to lift.
            out.append(stmt)
        elif isinstance(stmt, If):
            out.append(If(stmt.condition, tuple(_merge(stmt.then)), tuple(_merge(stmt.orelse)), stmt.role))
        else:
            out.append(stmt)
    flush()
    return out


def _lifted(loop: For) -> Stmt:
    """A loop with its body merged; under the test of its whole body, if that does not depend on the loop."""
    body = _merge(loop.body)
    *declared, last = body if body else (loop,)
    rest = tuple(body)
    test: If | None = None
    if isinstance(last, If) and last.role in _MERGED and not last.orelse and loop.symbol not in last.condition.symbols:
        if all(isinstance(s, Allocate) and s.buffer.is_register for s in declared):
            test, rest = last, (*declared, *last.then)
    made = For(loop.symbol, loop.start, loop.stop, loop.step, rest, loop.unroll, loop.unswitch)
    return made if test is None else If(test.condition, (made,), role=test.role)
