"""Sink the epilogue of a kernel, what follows its last collective, to the threads that store its results.

Before: <last barrier> float m[8]; for (i) { m[i] = sum[i] * share; ... } if (p) { if (thread == 0) { store m } }
After:  <last barrier> if (thread == 0) { float m[8]; for (i) { m[i] = sum[i] * share; ... } if (p) { store m } }

In the last block of a grid, they alone read what its threads found, too.

Threads that hold the same results all compute the epilogue, though only one of them stores it. That costs nothing where the
others would only wait. But statistics are finished in Double: sixteen warps that finish eight columns each keep an SM busy for
900 cycles, one warp for 250, while nothing else is left to do. A kernel without operations in Double does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fuser.ir.dtypes import DataType
from fuser.ir.integers import Cond
from fuser.ir.kernel import Allocate, Call, For, If, Role, Stmt, Store, Value, VectorMove, value_operands, walk
from fuser.ir.statement_scopes import Scope, defined_symbol, scope_of

# Operations of Double that a thread makes before it is asked whether anyone wants them.
_MANY = 32


def sink_epilogue(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body whose epilogue is skipped by threads that store nothing in it, if it has many operations in Double."""
    start = next((k + 1 for k in range(len(body) - 1, -1, -1) if _meets(body[k])), 0)
    last = body[start:]
    if not last or sum(_doubles(s) for s in last) < _MANY:
        return body
    tests = list(_stores(last, ()))
    made = {defined_symbol(s) for s in walk(last)}
    everywhere = [c for c in (tests[0] if tests else ()) if all(any(c is other for other in t) for t in tests)]
    owners = [c for c in everywhere if made.isdisjoint(c.symbols)]
    if not owners:
        return body
    before = [*body[:start]]
    if before and isinstance(before[-1], If) and before[-1].role is Role.last_block and not before[-1].orelse:
        before[-1] = replace(before[-1], then=tuple(_read_by(owners[0], before[-1].then)))
    return (*before, If(owners[0], tuple(_untested(last, owners[0])), role=Role.owner))


def _read_by(owner: Cond, body: Sequence[Stmt]) -> Iterator[Stmt]:
    """The work of the last block, in which none but owners read what its threads found in the end."""
    start = next((k + 1 for k in range(len(body) - 1, -1, -1) if _meets(body[k])), 0)
    yield from body[:start]
    last = body[start:]
    reads = [isinstance(s, (Store, For)) and not any(_stores((s,), (owner,))) for s in last]
    # Nothing else there looks at what they read.
    is_alone = all(read or _is_reset(s) for s, read in zip(last, reads, strict=True))
    for stmt, read in zip(last, reads, strict=True):
        yield If(owner, (stmt,), role=Role.owner) if read and is_alone else stmt


def _is_reset(stmt: Stmt) -> bool:
    return all(isinstance(s, If) or (isinstance(s, Store) and s.role is Role.semaphore_reset) for s in walk((stmt,)))


def _meets(stmt: Stmt) -> bool:
    """Whether threads meet, or wait, in a statement; or shared memory comes into scope that others may use."""
    return any(
        scope_of(s) > Scope.operands or (isinstance(s, Allocate) and not s.buffer.is_register) for s in walk((stmt,))
    )


def _stores(body: Sequence[Stmt], tests: tuple[Cond, ...]) -> Iterator[tuple[Cond, ...]]:
    """Of every store to memory: the tests of owners that it stands under."""
    for stmt in body:
        match stmt:
            case Store(buffer=buffer) | VectorMove(dst=buffer) if not buffer.is_register:
                yield tests
            case If(condition, then, orelse, role):
                yield from _stores(then, (*tests, condition) if role is Role.owner and not orelse else tests)
                yield from _stores(orelse, tests)
            case For(body=inside):
                yield from _stores(inside, tests)
            case _:
                pass


def _untested(body: Sequence[Stmt], owner: Cond) -> Iterator[Stmt]:
    """The statements without that test: they stand under it."""
    for stmt in body:
        match stmt:
            case If(condition, then, (), Role.owner) if condition is owner:
                yield from _untested(then, owner)
            case If(_, then, orelse):
                yield replace(stmt, then=tuple(_untested(then, owner)), orelse=tuple(_untested(orelse, owner)))
            case For(body=inside):
                yield replace(stmt, body=tuple(_untested(inside, owner)))
            case _:
                yield stmt


def _doubles(stmt: Stmt) -> int:
    """Operations of Double of a thread, an unrolled loop's as often as they are made; loops that are not unrolled once."""
    match stmt:
        case Store(value=value):
            return _of_value(value)
        case If(_, then, orelse):
            return max(sum(map(_doubles, then)), sum(map(_doubles, orelse)))
        case For(start=start, stop=stop, body=inside, unroll=unroll):
            count = stop - start
            times = count.value if unroll and count.is_const else 1
            return times * sum(map(_doubles, inside))
        case _:
            return 0


def _of_value(value: Value) -> int:
    own = isinstance(value, Call) and value.compute is DataType.Double
    return own + sum(map(_of_value, value_operands(value)))
