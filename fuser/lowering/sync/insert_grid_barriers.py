"""Insert the grid barriers that accesses to device memory need, and no others.

Before: statements that pass values from block to block through device memory (`shared_across_blocks`), without barriers.
After:  between two accesses of the same tensor by different blocks, one of them a write, there is a GridBarrier on every path.

Pairs are found and barriers are placed as in insert_syncs: right before the second access, so that one barrier serves all
pairs around it. A barrier may only be where every block passes, and equally often: outside every predicate, and in loops
whose iteration counts are the same for all blocks. If that is impossible the schedule is refused.

Placed before expand_collectives, which turns grid barriers into fences, an atomic and a wait. Barriers are numbered in the
order in which a block passes them, because their common counter only grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fuser.errors import SchedulingError
from fuser.ir.integers.integers import ONE, ZERO, Int
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, Buffer, For, GridBarrier, If, Stmt
from fuser.ir.ops.enums import THREAD_TYPES
from fuser.lowering.sync.insert_syncs import SyncScope, insert_barriers

_POSITIONS = frozenset(THREAD_SYMBOLS[p].name for p in THREAD_TYPES)


def insert_grid_barriers(body: tuple[Stmt, ...], shared_across_blocks: AbstractSet[str]) -> tuple[Stmt, ...]:
    """Add barriers. `shared_across_blocks`: names of device-memory buffers that some blocks write and others read."""
    if not shared_across_blocks:
        return body

    def memory(buffer: Buffer) -> object | None:
        return buffer if buffer.is_global and buffer.name in shared_across_blocks else None

    def refused(what: str) -> Exception:
        return SchedulingError(
            f"{what} is written by some blocks and read by others under a test that not all blocks pass: "
            "they cannot wait for one another there; cut the fusion there"
        )

    def make(reason: str) -> Stmt:
        return GridBarrier(ZERO, ZERO, reason)

    made = insert_barriers(body, SyncScope(memory, frozenset(), (GridBarrier,), make, _diverges, refused))
    return _assign_slots(made, ZERO, count_grid_barriers(made))


def _diverges(stmt: Stmt) -> bool:
    if isinstance(stmt, For):
        return any(s.name in _POSITIONS for e in (stmt.start, stmt.stop, stmt.step) for s in e.symbols)
    return isinstance(stmt, If)


def count_grid_barriers(body: Sequence[Stmt]) -> Int:
    """How many grid barriers a block passes in a body."""
    count: Int = ZERO
    for stmt in body:
        if isinstance(stmt, GridBarrier):
            count = count + 1
        elif isinstance(stmt, For):
            # Loops around barriers are those of loop nests: from 0 in steps of 1.
            count = count + count_grid_barriers(stmt.body) * stmt.stop
    return count


def _assign_slots(body: tuple[Stmt, ...], before: Int, total: Int) -> tuple[Stmt, ...]:
    """The body with each barrier's slot. `before`: barriers passed before it."""
    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, GridBarrier):
            result.append(GridBarrier(before, total, stmt.reason))
            before = before + 1
            continue
        inside = count_grid_barriers(stmt.body) if isinstance(stmt, For) else ZERO
        if isinstance(stmt, For) and inside is not ZERO:
            assert stmt.start is ZERO
            assert stmt.step is ONE
            numbered = _assign_slots(stmt.body, before + inside * stmt.symbol, total)
            result.append(replace(stmt, body=numbered))
            before = before + inside * stmt.stop
        else:
            result.append(stmt)
    return tuple(result)
