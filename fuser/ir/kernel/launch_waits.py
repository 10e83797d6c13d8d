"""Waits for the launches before: what lets a kernel start while they end (programmatic dependent launch, PTX griddepcontrol).

The blocks of a kernel that starts early are in place, their code fetched, when the results that it needs are there. It must not
touch them before its `LaunchWait`: neither read what the launches before write, nor write what they still read. As nobody
knows at compile time which memory that is, what stands before the wait touches none. Kernels have no reads that ptxas may
move ahead of it: those through the read-only cache (`ld.global.nc`).
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.kernel.kernel import (
    Kernel,
    LaunchWait,
    Stmt,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel.statement_scopes import Scope, scope_of


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
    return _why_not_first(kernel.body)


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
