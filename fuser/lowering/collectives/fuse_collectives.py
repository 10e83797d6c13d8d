"""Finds the reductions of a body that are expanded together, and where. Part of the pass expand_collectives.

Reductions over the same blocks share a semaphore; adjacent reductions over the same threads share the barriers of their
exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import Symbol
from fuser.ir.kernel.kernel import Buffer, GridBarrier, If, Reduce, Stmt, child_bodies, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes


def fuse_collectives(body: tuple[Stmt, ...]) -> list[Stmt | tuple[Reduce, ...]]:
    """The statements, with the reductions over the same blocks gathered in a tuple. Bodies of loops and tests are unchanged.

    The fused reductions are placed at the last of them. Statements between them that depend on an earlier one (the tests for
    its last block, reads of its result, and what follows from those) move after the tuple; a reduction among these is left
    for a later tuple. Nothing moves across a grid barrier: other blocks may read after it what was written before it.
    """
    barriers = [i for i, stmt in enumerate(body) if isinstance(stmt, GridBarrier)]
    if barriers:
        found: list[Stmt | tuple[Reduce, ...]] = []
        for begin, end in pairwise((-1, *barriers, len(body))):
            found += [*fuse_collectives(body[begin + 1 : end]), *body[end : end + 1]]
        return found
    items: list[Stmt | tuple[Reduce, ...]] = list(body)
    for key in dict.fromkeys(k for k in map(_grid_key, body) if k is not None):
        together = [s for s in body if isinstance(s, Reduce) and _grid_key(s) == key]
        while len(together) > 1:
            first, last = items.index(together[0]), items.index(together[-1])
            flags = {r.last_block for r in together}
            before: list[Stmt | tuple[Reduce, ...]] = []
            after: list[Stmt | tuple[Reduce, ...]] = []
            fused: list[Reduce] = []
            # Results of the fused reductions, and what is written after them.
            late: set[Buffer] = set()
            for item in items[first : last + 1]:
                if not isinstance(item, tuple) and _depends_on_results(item, flags, late):
                    after.append(item)
                    late.update(b for s in walk((item,)) for b, _ in stmt_writes(s))
                elif isinstance(item, Reduce) and item in together:
                    fused.append(item)
                    late.update(item.partials)
                else:
                    before.append(item)
            items[first : last + 1] = [*before, tuple(fused) if len(fused) > 1 else fused[0], *after]
            together = [r for r in together if r not in fused]
    return _fuse_adjacent(items)


def _fuse_adjacent(items: list[Stmt | tuple[Reduce, ...]]) -> list[Stmt | tuple[Reduce, ...]]:
    """The items, with reductions within blocks and clusters in a tuple where nothing is between them."""
    found: list[Stmt | tuple[Reduce, ...]] = []
    for item in items:
        before = found[-1] if found else None
        first = before[0] if isinstance(before, tuple) else before
        if isinstance(item, Reduce) and isinstance(first, Reduce) and _block_key(item) == _block_key(first) is not None:
            found[-1] = (*(before if isinstance(before, tuple) else (first,)), item)
        else:
            found.append(item)
    return found


def _block_key(reduce: Reduce) -> object:
    """What reductions within blocks and clusters must have in common to share an exchange; None for those over the grid."""
    return None if reduce.grid_axes else (reduce.block_axes, reduce.cluster_axes, reduce.copy_axes)


def _grid_key(stmt: Stmt) -> object:
    """What two reductions over blocks must have in common to share a semaphore; None for other statements."""
    if not isinstance(stmt, Reduce) or not stmt.grid_axes:
        return None
    return stmt.grid_axes, stmt.block_axes, stmt.copy_axes, stmt.slot, stmt.slots, stmt.grid_broadcast


def _depends_on_results(stmt: Stmt, flags: set[Symbol | None], late: set[Buffer]) -> bool:
    """Whether a statement runs in a last block only, or accesses what is complete only after an exchange of blocks."""
    for inner in walk((stmt,)):
        if isinstance(inner, If) and not flags.isdisjoint(inner.condition.symbols):
            return True
        if any(buffer in late for buffer, _ in (*stmt_reads(inner), *stmt_writes(inner))):
            return True
    return False


def check_last_blocks(body: tuple[Stmt, ...], groups: Mapping[Symbol, int], inside: frozenset[int]) -> None:
    """Raise SchedulingError for work that needs the last blocks of two semaphores: they may be two blocks."""
    for stmt in body:
        entered = inside
        if isinstance(stmt, If):
            entered = inside | {groups[s] for s in stmt.condition.symbols if s in groups}
            if len(entered) > 1:
                names = ", ".join(sorted(s.name for s, g in groups.items() if g in entered))
                raise SchedulingError(
                    "a value needs the results of grid reductions that end in different blocks "
                    f"({names}); reduce them over the same parallel axes"
                )
        for inner in child_bodies(stmt):
            check_last_blocks(inner, groups, entered)
