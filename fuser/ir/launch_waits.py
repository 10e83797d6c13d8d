"""Waits for the launches before: what lets a kernel start while they end (programmatic dependent launch, PTX griddepcontrol).

The blocks of a kernel that starts early are in place, their code fetched, when the results that it needs are there. It must not
touch them before its `LaunchWait`: neither read what the launches before write, nor write what they still read. As nobody
knows at compile time which memory that is, what stands before the wait touches none. Behind it stand no reads that ptxas may
move ahead of it: those through the read-only cache (`ld.global.nc`) are taken to concern nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuser.ir.enums import CacheOp
from fuser.ir.kernel import (
    AsyncCopy,
    Kernel,
    LaunchWait,
    Post,
    RemoteStore,
    Shuffle,
    Stmt,
    Store,
    Value,
    VectorMove,
    walk,
)
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes, value_loads
from fuser.ir.statement_scopes import Scope, scope_of


def starting_early(kernel: Kernel) -> Kernel:
    """A kernel that may start early, as its first statement is the wait; the one given where something speaks against it."""
    waiting = replace(kernel, body=(LaunchWait(), *kernel.body), plan=replace(kernel.plan, waits_first=True))
    return kernel if why_not_early(waiting) else waiting


def why_not_made_early(kernel: Kernel) -> str | None:
    """What kept a kernel from being made to start early, in a clause; None if nothing does."""
    return why_not_early(replace(kernel, body=(LaunchWait(), *kernel.body)))


def why_not_early(kernel: Kernel) -> str | None:
    """What keeps a kernel from starting while the launches before it end, in a clause; None if nothing does."""
    if kernel.plan.cooperative:
        return "its blocks wait until all of them are on the device"
    if kernel.plan.starts_next:
        return "it lets the next kernel start, which does not wait for those before"
    why = _why_not_first(kernel.body)
    if why is not None:
        return why
    read_only = next((s for s in walk(kernel.body) if CacheOp.read_only in _caches(s)), None)
    return None if read_only is None else "it reads through the read-only cache, which may go ahead of the wait"


def _why_not_first(body: tuple[Stmt, ...]) -> str | None:
    if not any(isinstance(stmt, LaunchWait) for stmt in walk(body)):
        return "it does not wait for the launches before"
    for stmt in body:
        if isinstance(stmt, LaunchWait):
            return None
        for inner in walk((stmt,)):
            if isinstance(inner, LaunchWait):
                return "not all of its threads wait for the launches before"
            buffers = {buffer for buffer, _ in (*stmt_reads(inner), *stmt_writes(inner))}
            if scope_of(inner) is not Scope.operands or not all(b.is_register for b in buffers):
                return f"{type(inner).__name__} stands before the wait for the launches before"
    return None


def _caches(stmt: Stmt) -> Iterator[CacheOp]:
    """The cache hints of what a statement reads."""
    values: tuple[Value, ...] = ()
    match stmt:
        case VectorMove() | AsyncCopy():
            yield stmt.cache
        case Store() | RemoteStore():
            values = (stmt.value,)
        case Shuffle():
            values = (stmt.src,)
        case Post():
            values = stmt.values
        case _:
            pass
    for value in values:
        yield from (load.cache for load in value_loads(value))
