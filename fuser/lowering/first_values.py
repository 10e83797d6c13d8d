"""Ask whether a value is the first that a thread counts in the first iteration of an unrolled loop only.

Before: for (i = 0 .. 8, unrolled) { n = n + 1; shift = n == 1 ? x : shift; ... }
After:  for (i = 0 .. 8, unrolled) { n = n + 1; if (i == 0) { shift = n == 1 ? x : shift; } ... }

Each iteration counts, so that none but the first finds n == 1. Loops whose values are tested one by one, of which any may be
the first that counts, stay as they are: this pass stands behind the one that tests loops once.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.integers import ONE, ZERO, equal
from fuser.ir.kernel import Buffer, Call, For, If, Literal, Load, Role, Stmt, Store
from fuser.ir.kernel_rewrites import map_body


def first_values(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with such loops changed."""
    return map_body(body, _changed)


def _changed(stmt: Stmt) -> tuple[Stmt, ...] | None:
    if not (isinstance(stmt, For) and stmt.unroll and stmt.start is ZERO and stmt.step is ONE):
        return None
    if not stmt.stop.is_const or stmt.stop.value < 2:
        return None
    firsts = set(_firsts(stmt.body))
    if not firsts:
        return None
    first = equal(stmt.symbol, 0)
    inner = tuple(If(first, (s,), role=Role.plain) if k in firsts else s for k, s in enumerate(stmt.body))
    return (For(stmt.symbol, stmt.start, stmt.stop, stmt.step, inner, unroll=True, unswitch=stmt.unswitch),)


def _firsts(body: tuple[Stmt, ...]) -> Iterator[int]:
    """Places of stores that keep a value if it is the first that is counted, behind what counts it."""
    counts: set[Buffer] = set()
    for k, stmt in enumerate(body):
        match stmt:
            case Store(
                buffer=count, index=at, value=Call(op="add", args=(Load(buffer=read, index=read_at), Literal(value=1)))
            ):
                if read is count and read_at is at and at is ZERO:
                    counts.add(count)
            case Store(
                buffer=kept,
                index=at,
                value=Call(
                    op="where",
                    args=(
                        Call(op="eq", args=(Load(buffer=count), Literal(value=1))),
                        _,
                        Load(buffer=same, index=same_at),
                    ),
                ),
            ):
                if count in counts and same is kept and same_at is at:
                    yield k
            case _:
                pass
