"""Join neighbouring statements under the same test, and test before a loop what all of its iterations ask.

Before: if (p) { a } float b; if (p) { c } for (i) { if (p) { d(i) } }
After:  float b; if (p) { a; c; for (i) { d(i) } }

An unswitched test has two sides: those of neighbours are joined side by side, with what is read for all of them first, though
a register is given what it begins with between them. So are those of vectors that an end of a row may
cut, if an unswitched loop beside them asks the same: a row's whole parts are then read, computed and written under one test,
with all reads on their way before the first is shifted or used.

Stands last: barriers are placed, and every pass before works on single predicated statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from fuser.ir.kernel import Allocate, Buffer, For, If, Literal, Role, Stmt, Store, VectorMove, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.statement_scopes import Scope, defined_symbol, scope_of

_MERGED = (Role.plain, Role.predicate, Role.owner, Role.last_block, Role.unswitch)


def merge_predicates(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Merge equal neighbouring tests, declarations moved in front of them."""
    return tuple(_merge(body))


def _merge(body: Sequence[Stmt]) -> list[Stmt]:
    return _joined_sides(_joined([_with_merged_bodies(s) for s in body]))


def _with_merged_bodies(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For):
        inside = tuple(_merge(stmt.body))
        return _tested_once(For(stmt.symbol, stmt.start, stmt.stop, stmt.step, inside, stmt.unroll, stmt.unswitch))
    if isinstance(stmt, If):
        return If(stmt.condition, tuple(_merge(stmt.then)), tuple(_merge(stmt.orelse)), stmt.role)
    return stmt


def _joined(body: Sequence[Stmt]) -> list[Stmt]:
    """Statements whose own bodies are merged already, neighbours joined."""
    out: list[Stmt] = []
    pending: list[If] = []
    # What unswitched loops have between them and could have in front.
    between: list[Stmt] = []

    def flush() -> None:
        if len(pending) > 1:
            sides = [[s for test in pending for s in test.then], [s for test in pending for s in test.orelse]]
            if pending[0].role is Role.unswitch:
                sides = [_reads_first(side) for side in sides]
            then, orelse = (tuple(_joined(side)) for side in sides)
            out.append(If(pending[0].condition, then, orelse, pending[0].role))
        else:
            out.extend(pending)
        out.extend(between)
        pending.clear()
        between.clear()

    for stmt in body:
        if isinstance(stmt, Allocate) and stmt.buffer.is_register:
            # Shared arrays stay where they are: their bytes may still be another array's.
            out.append(stmt)
        elif isinstance(stmt, If) and stmt.role in _MERGED and (not stmt.orelse or stmt.role is Role.unswitch):
            if pending and not (pending[0].condition is stmt.condition and pending[0].role is stmt.role):
                flush()
            out.extend(between)
            between.clear()
            pending.append(stmt)
        elif (
            pending and pending[0].role is Role.unswitch and _begins(stmt) and not _touched(stmt.buffer, tuple(pending))
        ):
            between.append(stmt)
        else:
            flush()
            out.append(stmt)
    flush()
    return out


def _begins(stmt: Stmt) -> TypeGuard[Store]:
    """Whether a statement does nothing but say what a register holds at first."""
    if not isinstance(stmt, Store) or stmt.role is not Role.initialise or not stmt.buffer.is_register:
        return False
    return isinstance(stmt.value, Literal)


def _reads_first(body: Sequence[Stmt]) -> list[Stmt]:
    """Reads of device memory before what is computed of others: else each would wait for those before it to arrive."""
    reads: list[Stmt] = []
    rest: list[Stmt] = []
    for stmt in body:
        (reads if _is_read(stmt) and not _depends(stmt, tuple(rest)) else rest).append(stmt)
    return reads + rest


def _is_read(stmt: Stmt) -> bool:
    """Whether a statement does nothing but read device memory into registers."""
    return all(isinstance(s, (For, If)) or (isinstance(s, (Store, VectorMove)) and _fills(s)) for s in walk((stmt,)))


def _fills(stmt: Store | VectorMove) -> bool:
    into = stmt.buffer if isinstance(stmt, Store) else stmt.dst
    sources = [b for b, _ in stmt_reads(stmt)]
    return into.is_register and bool(sources) and all(b.is_global for b in sources)


def _depends(stmt: Stmt, before: tuple[Stmt, ...]) -> bool:
    """Whether a read cannot be made before some statements."""
    written = {b for s in walk(before) for b, _ in stmt_writes(s)}
    used = {b for s in walk((stmt,)) for b, _ in (*stmt_reads(s), *stmt_writes(s))}
    into = {b for s in walk((stmt,)) for b, _ in stmt_writes(s)}
    declared = {s.buffer for s in walk(before) if isinstance(s, Allocate)}
    return (
        not all(b.is_register for b in written)
        or any(scope_of(s) > Scope.operands for s in walk(before))
        or any(defined_symbol(s) is not None and not isinstance(s, For) for s in walk(before))
        or not used.isdisjoint(written | declared)
        or any(_touched(b, before) for b in into)
    )


def _touched(buffer: Buffer, stmts: tuple[Stmt, ...]) -> bool:
    return any(b is buffer for s in walk(stmts) for b, _ in (*stmt_reads(s), *stmt_writes(s)))


def _joined_sides(body: Sequence[Stmt]) -> list[Stmt]:
    """Statements, neighbouring tests with two sides and one condition joined where one of them is an unswitched loop's."""
    out: list[Stmt] = []
    pending: list[If] = []

    def flush() -> None:
        if len(pending) > 1 and any(test.role is Role.unswitch for test in pending):
            then = _joined([s for test in pending for s in test.then])
            orelse = _joined([s for test in pending for s in test.orelse])
            out.append(If(pending[0].condition, tuple(then), tuple(orelse), Role.unswitch))
        else:
            out.extend(pending)
        pending.clear()

    for stmt in body:
        if isinstance(stmt, Allocate) and stmt.buffer.is_register:
            out.append(stmt)
        elif isinstance(stmt, If) and stmt.orelse and stmt.role in (Role.predicate, Role.unswitch):
            if pending and pending[0].condition is not stmt.condition:
                flush()
            pending.append(stmt)
        else:
            flush()
            out.append(stmt)
    flush()
    return out


def _tested_once(loop: For) -> Stmt:
    """`for (i) { if (p) a }` as `if (p) { for (i) a }` where p is the same in every iteration."""
    declared = [s for s in loop.body if isinstance(s, Allocate) and s.buffer.is_register]
    rest = [s for s in loop.body if not (isinstance(s, Allocate) and s.buffer.is_register)]
    if loop.unswitch or len(rest) != 1:
        return loop
    test = rest[0]
    if not isinstance(test, If) or test.role not in _MERGED or test.role is Role.unswitch:
        return loop
    if test.orelse or loop.symbol in test.condition.symbols:
        return loop
    inside = For(loop.symbol, loop.start, loop.stop, loop.step, (*declared, *test.then), loop.unroll)
    return If(test.condition, (inside,), role=test.role)
