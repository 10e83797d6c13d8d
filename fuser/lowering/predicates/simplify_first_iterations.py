"""Simplify unrolled loops: only the first iterations ask whether a value is the first, or the second, that a thread counts.

Before: for (i = 0 .. 8, unrolled) { n = n + 1; shift = n == 1 ? x : shift; ... }
After:  for (i = 0 .. 8, unrolled) { n = n + 1; if (i == 0) { shift = n == 1 ? x : shift; } ... }

Each iteration counts one value, so that only the first can find n == 1, and only the first two n == 2. In a loop whose values
have a predicate each, any of them may be the first that counts: such a loop does not change. This pass therefore stands behind
unswitch_loops, which tests whole loops once.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuser.ir.integers import ONE, ZERO, Int, Symbol, equal, less
from fuser.ir.kernel import Buffer, Call, For, If, Literal, Load, Role, Stmt, Store
from fuser.lowering.kernel_rewrites import map_body


def simplify_first_iterations(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with such loops changed."""
    return map_body(body, _changed)


def _changed(stmt: Stmt) -> tuple[Stmt, ...] | None:
    if not (isinstance(stmt, For) and stmt.unroll and stmt.start is ZERO and stmt.step is ONE):
        return None
    if not stmt.stop.is_const or stmt.stop.value < 2:
        return None
    found = dict(_firsts(stmt.body, stmt.symbol))
    if not found:
        return None
    inner: list[Stmt] = []
    for k, s in enumerate(stmt.body):
        place = found.get(k)
        if place is None:
            inner.append(s)
            continue
        asked = equal(stmt.symbol, 0) if place == 1 else less(stmt.symbol, place)
        last = inner[-1] if found.get(k - 1) == place else None
        if isinstance(last, If):
            inner[-1] = If(asked, (*last.then, s), role=Role.plain)
        else:
            inner.append(If(asked, (s,), role=Role.plain))
    return (For(stmt.symbol, stmt.start, stmt.stop, stmt.step, tuple(inner), unroll=True, unswitch=stmt.unswitch),)


def _firsts(body: tuple[Stmt, ...], iteration: Symbol) -> Iterator[tuple[int, int]]:
    """(place, n) of stores that keep a value unless one is number n that is counted, behind what counts it."""
    counts: set[tuple[Buffer, Int]] = set()
    for k, stmt in enumerate(body):
        match stmt:
            case Store(
                buffer=count, index=at, value=Call(op="add", args=(Load(buffer=read, index=read_at), Literal(value=1)))
            ):
                if read is count and read_at is at and iteration not in at.symbols:
                    counts.add((count, at))
            case Store(
                buffer=kept,
                index=at,
                value=Call(op="where", args=(Call() as asked, _, Load(buffer=same, index=same_at))),
            ):
                number = _number(asked, counts)
                if number and same is kept and same_at is at:
                    yield k, number
            case _:
                pass


def _number(asked: Call, counts: set[tuple[Buffer, Int]]) -> int:
    """1 or 2 if the condition holds for the value of that number only; else 0."""
    match asked:
        case Call(op="eq", args=(Load(buffer=count, index=at), Literal(value=1))) if (count, at) in counts:
            return 1
        case Call(op="eq", args=(Load(buffer=count, index=at), Literal(value=2))) if (count, at) in counts:
            return 2
        case Call(op="logical_and", args=(Call() as first, _)):
            return _number(first, counts)
        case _:
            return 0
