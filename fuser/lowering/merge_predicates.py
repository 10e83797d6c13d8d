"""Join neighbouring statements under the same test.

Before: if (p) { a } float b; if (p) { c }
After:  float b; if (p) { a; c }

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

    for stmt in body:
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
            out.append(
                For(stmt.symbol, stmt.start, stmt.stop, stmt.step, tuple(_merge(stmt.body)), stmt.unroll, stmt.unswitch)
            )
        elif isinstance(stmt, If):
            out.append(If(stmt.condition, tuple(_merge(stmt.then)), tuple(_merge(stmt.orelse)), stmt.role))
        else:
            out.append(stmt)
    flush()
    return out
