"""Reductions across the blocks of a group of the grid, all of which go on with the result.

Before: every thread of a block of whole warps holds its own partials of Reduces over all threads and over a grid axis
After:  the warps of a block leave theirs in shared memory, and its first warp joins them, a lane for each. It publishes what
        the block has: one lane stores it into the block's place in a workspace, fences, and counts up the group's counter.
        Once that has come to what all blocks of the group make it, the warp reads the places, a lane for each, joins them
        by butterflies, so results repeat, and leaves the result in shared memory for the other warps.

Every execution has places of its own, and the counter only grows: nothing is used again while a block may still read it. At
the end of the kernel each block counts up one of its group's counters once more, and the last one sets all of them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.ir.dtypes import DataType
from fuser.ir.enums import CacheOp, MemoryType
from fuser.ir.integers import ONE, Int, Symbol, equal, less
from fuser.ir.kernel import (
    Allocate,
    AtomicAdd,
    Buffer,
    Fence,
    If,
    Literal,
    Load,
    Reduce,
    Role,
    SpinWait,
    Stmt,
    Store,
    Value,
    WarpBarrier,
)
from fuser.records import record

WARP = 32
_LEVEL_2 = CacheOp["global"]


@record(eq=False)
class Places:
    """Where the blocks of a group leave their partials of one reduction: `place(partial, element, block)` in `buffers`."""

    buffers: tuple[Buffer, ...]
    place: Callable[[int, Int, Int], Int]


def exchange_in_group(
    reduces: Sequence[Reduce],
    places: Sequence[Places],
    block: Int,
    blocks: int,
    thread: Int,
    warps: int,
    counters: Buffer,
    counter: Int,
    number: int,
    each: Callable[[Reduce, Callable[[int, Int], list[Stmt]]], list[Stmt]],
    combine_each: Callable[[Reduce, Callable[[int, Int], Value]], list[Stmt]],
    butterflies: Callable[[Reduce, int], list[Stmt]],
) -> list[Stmt]:
    """Statements that join the partials of the threads of `blocks` blocks; every thread ends up with the result.

    block      this block's position in its group
    thread     linear index of the thread in its block of `warps` warps
    counter    index of the group's counter in `counters`
    number     a number for names
    each, combine_each, butterflies    see `_Expander`
    """
    lane = thread % WARP
    stmts: list[Stmt] = [s for r in reduces for s in butterflies(r, WARP)]
    alone: list[Stmt] = []
    if warps > 1:
        slots = {r: _shared(r, f"warps{number}", warps) for r in reduces}
        stmts += [Allocate(b) for r in reduces for b in slots[r]]
        told: list[Stmt] = []
        for r in reduces:

            def tell(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
                return [Store(slots[r][i], e * warps + thread // WARP, Load(r.partials[i], e))]

            told += each(r, tell)
        stmts.append(If(equal(lane, 0), tuple(told), role=Role.owner))
        for r in reduces:

            def of_warp(i: int, e: Int, part: Int, r: Reduce = r) -> Value:
                return Load(slots[r][i], e * warps + part)

            alone += _joined(r, of_warp, warps, lane, each, combine_each, butterflies)
    alone += _met(reduces, places, block, blocks, lane, counters, counter, each)
    for r, p in zip(reduces, places, strict=True):

        def of_block(i: int, e: Int, part: Int, p: Places = p) -> Value:
            return Load(p.buffers[i], p.place(i, e, part), _LEVEL_2)

        alone += _joined(r, of_block, blocks, lane, each, combine_each, butterflies)
    if warps == 1:
        return [*stmts, *alone, WarpBarrier("every lane has waited before the counter is set back")]
    found = {r: _shared(r, f"group{number}", 1) for r in reduces}
    kept: list[Stmt] = []
    taken: list[Stmt] = []
    for r in reduces:

        def keep(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [Store(found[r][i], e, Load(r.partials[i], e))]

        def take(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [Store(r.partials[i], e, Load(found[r][i], e))]

        kept += each(r, keep)
        taken += each(r, take)
    alone.append(If(equal(lane, 0), tuple(kept), role=Role.owner))
    stmts += [Allocate(b) for r in reduces for b in found[r]]
    return [*stmts, If(less(thread, WARP), tuple(alone), role=Role.owner), *taken]


def leave_group(counters: Buffer, mine: Sequence[Int], blocks: int, slots: Int, left: Symbol) -> list[Stmt]:
    """Statements for one thread of a block that is done with its group, whose counters are at `mine`.

    slots   how often the group meets by the last of them
    left    what that was before this block left
    """
    resets = [Store(counters, at, Literal(0, DataType.Int32), Role.semaphore_reset) for at in mine]
    is_last = equal(left, blocks * (slots + 1) - 1)
    # The fence: other threads of the blocks have waited for the counters.
    return [AtomicAdd(left, counters, mine[-1], ONE), If(is_last, (Fence(), *resets), role=Role.last_block)]


def _met(
    reduces: Sequence[Reduce],
    places: Sequence[Places],
    block: Int,
    blocks: int,
    lane: Int,
    counters: Buffer,
    counter: Int,
    each: Callable[[Reduce, Callable[[int, Int], list[Stmt]]], list[Stmt]],
) -> list[Stmt]:
    """Publish the partials of this block, and wait for those of all."""
    stores: list[Stmt] = []
    for r, p in zip(reduces, places, strict=True):

        def publish(i: int, e: Int, r: Reduce = r, p: Places = p) -> list[Stmt]:
            return [Store(p.buffers[i], p.place(i, e, block), Load(r.partials[i], e))]

        stores += each(r, publish)
    stores += [Fence(), AtomicAdd(None, counters, counter, ONE)]
    slot = reduces[0].slot
    # Each lane waits by itself, and may then read what was published: all ask for one word.
    return [
        If(equal(lane, 0), tuple(stores), role=Role.owner),
        SpinWait(counters, counter, (slot + 1) * blocks),
        Fence(),
    ]


def _joined(
    r: Reduce,
    part: Callable[[int, Int, Int], Value],
    parts: int,
    lane: Int,
    each: Callable[[Reduce, Callable[[int, Int], list[Stmt]]], list[Stmt]],
    combine_each: Callable[[Reduce, Callable[[int, Int], Value]], list[Stmt]],
    butterflies: Callable[[Reduce, int], list[Stmt]],
) -> list[Stmt]:
    """Set the partials of the lanes of a warp to what `parts` values have together: `part(i, e, k)` is that of number k."""

    def found(i: int, e: Int) -> list[Stmt]:
        return [Store(r.partials[i], e, part(i, e, lane))]

    def nothing(i: int, e: Int) -> list[Stmt]:
        return [Store(r.partials[i], e, r.identity[i], Role.initialise)]

    if parts < WARP:
        stmts = [*each(r, nothing), If(less(lane, parts), tuple(each(r, found)), role=Role.predicate)]
    else:
        stmts = each(r, found)
    for start in range(WARP, parts, WARP):

        def other(i: int, e: Int, start: int = start) -> Value:
            return part(i, e, lane + start)

        more = combine_each(r, other)
        if start + WARP > parts:
            more = list[Stmt]([If(less(lane + start, parts), tuple(more), role=Role.predicate)])
        stmts += more
    return [*stmts, *butterflies(r, WARP)]


def _shared(r: Reduce, name: str, parts: int) -> tuple[Buffer, ...]:
    return tuple(Buffer(f"{p.name}_{name}", p.dtype, MemoryType.shared, p.size * parts) for p in r.partials)
