"""Specialise a kernel for full tiles: one predicate for all rows of a block, where each warp has rows of its own.

Before: if (4 * blockIdx.x + threadIdx.y < n) { loads } shuffles; if (4 * blockIdx.x + threadIdx.y < n) { stores }
After:  if (4 * blockIdx.x + 3 < n) { loads; shuffles; stores } else { what was there before }

Only the last block, whose tile is partial, tests each row. Without this pass the statements between the predicates, shuffles
above all, keep the predicates from being merged, and the compiler from optimising across them. The body is duplicated, so the
schedule has to ask for it. Kernels with barriers, whose rows span several warps, and kernels without shuffles do not change.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.ir.enums import ParallelType
from fuser.ir.integers import Cond, Int, Symbol, all_of
from fuser.ir.kernel import Allocate, For, If, Role, Shuffle, Stmt, walk
from fuser.ir.proofs import ProofLog
from fuser.ir.statement_scopes import Scope, defined_symbol, scope_of
from fuser.lowering.predicates.hoisted_tests import claim_passed, drop_tests, is_prefix, predicate_parts

_ROWS = (ParallelType.block_y, ParallelType.block_z)


def specialise_full_tiles(
    body: tuple[Stmt, ...],
    threads: Mapping[ParallelType, Symbol],
    sizes: Mapping[ParallelType, Int],
    proofs: ProofLog | None = None,
) -> tuple[Stmt, ...]:
    """The body under one test of a block's last row, and as it was where that fails; so for each iteration of a loop over rows.

    threads   indices of blocks and threads
    sizes     how many there are along each axis
    """
    if not any(isinstance(s, Shuffle) for s in walk(body)) or any(_meets(s) for s in walk(body)):
        return body
    rows = {threads[p]: sizes[p] - 1 for p in _ROWS if p in sizes and sizes[p].is_const}
    loops = {s.symbol: s.stop - 1 for s in walk(body) if isinstance(s, For) and s.stop.is_const}
    lanes = threads.get(ParallelType.block_x)
    inside = {defined_symbol(s) for s in walk(body)}
    hardest: dict[Cond, Cond] = {}
    for part in predicate_parts(body):
        inner = part.symbols & (rows.keys() | loops.keys())
        if part.symbols & rows.keys() and lanes not in part.symbols and all(is_prefix(part, s) for s in inner):
            test = part.substitute({s: rows[s] if s in rows else loops[s] for s in inner})
            if test.symbols.isdisjoint(inside):
                hardest[part] = test
    if not hardest:
        made = tuple(_in_each_iteration(s, threads, sizes, proofs) for s in body)
        return body if all(a is b for a, b in zip(made, body, strict=True)) else made
    claim_passed(proofs, "specialise_full_tiles", "test of a whole block", hardest)
    return (If(all_of(*hardest.values()), drop_tests(body, hardest), body, Role.whole_block),)


def _in_each_iteration(
    stmt: Stmt, threads: Mapping[ParallelType, Symbol], sizes: Mapping[ParallelType, Int], proofs: ProofLog | None
) -> Stmt:
    """A loop over rows with one test in each iteration."""
    if not isinstance(stmt, For) or stmt.unroll:
        return stmt
    inner = specialise_full_tiles(stmt.body, threads, sizes, proofs)
    return stmt if inner is stmt.body else For(stmt.symbol, stmt.start, stmt.stop, stmt.step, inner)


def _meets(stmt: Stmt) -> bool:
    """Whether a statement is for threads of several warps."""
    if isinstance(stmt, Allocate):
        return stmt.buffer.is_shared
    return scope_of(stmt) > Scope.warp
