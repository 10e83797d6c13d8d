"""Merge adjacent statements under the same predicate, and hoist loop-invariant predicates.

Before: if (p) { a } float b; if (p) { c } for (i) { if (p) { d(i) } }
After:  float b; if (p) { a; c; for (i) { d(i) } }

Adjacent unswitched tests, which have else branches, are merged branch by branch, also if a register is initialised between
them.

Placed after insert_syncs and the other passes that work on single predicated statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from fuser.ir.kernel.kernel import Allocate, For, If, Literal, Role, Stmt, Store, map_child_bodies
from fuser.ir.kernel.kernel_accesses import buffers_read, buffers_written

_MERGED = (Role.plain, Role.predicate, Role.owner, Role.last_block, Role.unswitch)


def merge_predicates(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Merge equal neighbouring tests, declarations moved in front of them."""
    merged = [map_child_bodies(s, merge_predicates) for s in body]
    return tuple(_merge_neighbours([_hoist_predicate(s) if isinstance(s, For) else s for s in merged]))


def _merge_neighbours(body: Sequence[Stmt]) -> list[Stmt]:
    """Statements whose own bodies are merged already, neighbours joined."""
    out: list[Stmt] = []
    pending: list[If] = []
    # What unswitched loops have between them and could have in front.
    between: list[Stmt] = []

    def flush() -> None:
        if len(pending) > 1:
            sides = [[s for test in pending for s in test.then], [s for test in pending for s in test.orelse]]
            then, orelse = (tuple(_merge_neighbours(side)) for side in sides)
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
            pending
            and pending[0].role is Role.unswitch
            and _is_initializer(stmt)
            and stmt.buffer not in buffers_read(pending) | buffers_written(pending)
        ):
            between.append(stmt)
        else:
            flush()
            out.append(stmt)
    flush()
    return out


def _is_initializer(stmt: Stmt) -> TypeGuard[Store]:
    """Whether a statement does nothing but say what a register holds at first."""
    if not isinstance(stmt, Store) or stmt.role is not Role.initialise or not stmt.buffer.is_register:
        return False
    return isinstance(stmt.value, Literal)


def _hoist_predicate(loop: For) -> Stmt:
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
    inside = replace(loop, body=(*declared, *test.then))
    return If(test.condition, (inside,), role=test.role)
