"""Fuse collectives: which reductions of a body are expanded together, and where. Part of the pass expand_collectives.

Reductions over the same threads share a barrier, those over the same blocks a semaphore.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from fuser.errors import SchedulingError
from fuser.ir.enums import MemoryType
from fuser.ir.integers import Symbol
from fuser.ir.kernel import Allocate, Buffer, For, GridBarrier, If, Reduce, Stmt, child_bodies, walk
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.statement_scopes import Scope, defined_symbol, scope_of


def fuse_collectives(body: tuple[Stmt, ...]) -> list[Stmt | tuple[Reduce, ...]]:
    """The statements, with reductions that meet brought together in a tuple. Bodies of loops and tests stay as they are."""
    return _joined(_gathered(body))


def _joined(items: list[Stmt | tuple[Reduce, ...]]) -> list[Stmt | tuple[Reduce, ...]]:
    """Reductions over the same threads, brought together.

    A later one moves up past what does not compute its partials, or an earlier one down past what does not use its result.
    """
    result: list[Stmt | tuple[Reduce, ...]] = []
    waiting = list(items)
    while waiting:
        item = waiting.pop(0)
        if not isinstance(item, Reduce) or item.grid_axes:
            result.append(item)
            continue
        together = [item]
        touched: set[Buffer] = set()
        rest: list[Stmt] = []
        behind: list[Stmt | tuple[Reduce, ...]] = []
        for i, other in enumerate(waiting):
            if isinstance(other, tuple):
                behind = waiting[i:]
                break
            if isinstance(other, Reduce) and not other.grid_axes and _same_threads(other, item):
                if not touched.isdisjoint(other.partials):
                    # What is reduced so far can wait for what does not need it.
                    before, after = _apart(rest, {p for r in together for p in r.partials})
                    written = _written(tuple(after))
                    if written.isdisjoint(other.partials):
                        result += before
                        rest, touched = after, written
                if touched.isdisjoint(other.partials):
                    together.append(other)
                    continue
            touched |= _written((other,))
            rest.append(other)
        waiting = [*rest, *behind]
        result.append(item if len(together) == 1 else tuple(together))
    return result


def _gathered(body: tuple[Stmt, ...]) -> list[Stmt | tuple[Reduce, ...]]:
    """The statements, with the reductions over the same blocks brought together.

    They meet where the last of them stands. Of what stands between, the tests for the last block of an earlier one follow, and
    what reads its result with all that depends on that; a reduction among these is left for a later meeting. Nothing passes a
    wait of the whole grid: what stands before it is there for what other blocks read behind it.
    """
    barriers = [i for i, stmt in enumerate(body) if isinstance(stmt, GridBarrier)]
    if barriers:
        found: list[Stmt | tuple[Reduce, ...]] = []
        for begin, end in pairwise((-1, *barriers, len(body))):
            found += [*_gathered(body[begin + 1 : end]), *body[end : end + 1]]
        return found
    items: list[Stmt | tuple[Reduce, ...]] = list(body)
    for key in dict.fromkeys(k for k in map(_grid_key, body) if k is not None):
        together = [s for s in body if isinstance(s, Reduce) and _grid_key(s) == key]
        while len(together) > 1:
            first, last = items.index(together[0]), items.index(together[-1])
            flags = {r.last_block for r in together}
            before: list[Stmt | tuple[Reduce, ...]] = []
            after: list[Stmt | tuple[Reduce, ...]] = []
            meeting: list[Reduce] = []
            # Results of those that meet, and what is written after them.
            late: set[Buffer] = set()
            for item in items[first : last + 1]:
                if not isinstance(item, tuple) and _needs(item, flags, late):
                    after.append(item)
                    late.update(b for s in walk((item,)) for b, _ in stmt_writes(s))
                elif isinstance(item, Reduce) and item in together:
                    meeting.append(item)
                    late.update(item.partials)
                else:
                    before.append(item)
            items[first : last + 1] = [*before, tuple(meeting) if len(meeting) > 1 else meeting[0], *after]
            together = [r for r in together if r not in meeting]
    return items


def _grid_key(stmt: Stmt) -> object:
    """What two reductions over blocks must have in common to share a semaphore; None for other statements."""
    if not isinstance(stmt, Reduce) or not stmt.grid_axes:
        return None
    return stmt.grid_axes, stmt.block_axes, stmt.copy_axes, stmt.slot, stmt.slots, stmt.grid_broadcast


def _same_threads(a: Reduce, b: Reduce) -> bool:
    return (a.block_axes, a.cluster_axes) == (b.block_axes, b.cluster_axes)


def _apart(items: list[Stmt], results: set[Buffer]) -> tuple[list[Stmt], list[Stmt]]:
    """Statements behind a reduction: those that may come before it, in order, and those that stay.

    What reads or writes its `results` stays, with all that depends on that, tests for last blocks included. So does what writes
    other memory than registers, once something stays: another name of that memory may be read there. Waits stay, and so does
    what reads such memory behind them.
    """
    before: list[Stmt] = []
    after: list[Stmt] = []
    written, read = set(results), set[Buffer]()
    flags: set[Symbol | None] = set()
    waits = False
    for item in items:
        reads, writes = _read((item,)), _written((item,))
        is_free = writes.isdisjoint(read) and writes.isdisjoint(written) and not _needs(item, flags, written)
        is_movable = all(scope_of(s) is Scope.operands for s in walk((item,)))
        if (after and (not is_movable or any(map(_is_seen, writes)))) or (waits and any(map(_is_seen, reads))):
            is_free = False
        if is_free:
            before.append(item)
            continue
        waits |= not is_movable
        flags.update(s.last_block for s in walk((item,)) if isinstance(s, Reduce) and s.grid_axes)
        after.append(item)
        written |= writes
        read |= reads
    if any(_names_what_follows(s) for s in after):
        return [], items
    return before, after


def _names_what_follows(stmt: Stmt) -> bool:
    """Whether a statement gives a symbol a value for those behind it; for the last block of a reduction see `_needs`."""
    return not isinstance(stmt, (For, Reduce)) and defined_symbol(stmt) is not None


def _is_seen(buffer: Buffer) -> bool:
    return buffer.memory is not MemoryType.local


def _read(items: tuple[Stmt, ...]) -> set[Buffer]:
    return {b for s in walk(items) for b, _ in stmt_reads(s)}


def _written(items: tuple[Stmt, ...]) -> set[Buffer]:
    """Buffers that statements write, begin, or reduce."""
    found: set[Buffer] = set()
    for s in walk(items):
        found.update(buffer for buffer, _ in stmt_writes(s))
        if isinstance(s, Reduce):
            found.update(s.partials)
        if isinstance(s, Allocate):
            found.add(s.buffer)
    return found


def _needs(stmt: Stmt, flags: set[Symbol | None], late: set[Buffer]) -> bool:
    """Whether a statement tests for one of the last blocks, or reads or writes what is there only after a meeting."""
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
