"""Reductions across the blocks of a cluster, through distributed shared memory.

Before: every thread of a block (or lane of a warp) holds its block's (warp's) value of a Reduce with cluster axes
After:  a lane for each block of the cluster stores that value into a slot of its own there; behind one barrier of the cluster
        each warp reads its own block's slots, a lane for each, and joins them by butterflies, so results repeat. Where there
        are not too many, the values are those of warps: no barrier of the block comes first. Where a block reduces several
        values, or its threads make up no whole warps, every thread joins the slots in order of rank.

A block may reach into another only once that one runs: all blocks arrive at the start of the kernel, and wait right before
the first store into another, behind the loads of the row. Nothing reaches into a block behind the barrier that follows the
stores, so a block may end whenever it is done. Slots never share their bytes with other buffers (`allocate_shared`): a peer
may be ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.ir.enums import MemoryType
from fuser.ir.integers import ZERO, Int, Symbol, const, less
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    ClusterArrive,
    ClusterWait,
    For,
    If,
    Load,
    Reduce,
    RemoteStore,
    Role,
    Stmt,
    Store,
    Value,
    walk,
)

WARP = 32


def exchange_in_cluster(
    reduces: Sequence[Reduce],
    size: int,
    rank: Int,
    thread: Int,
    threads: Int,
    lane: Int,
    lanes: Int,
    make_symbol: Callable[[str, Int], Symbol],
    elements: Callable[[Reduce, Callable[[Int], list[Stmt]]], list[Stmt]],
    combine: Callable[[Reduce, Int, tuple[Value, ...]], list[Stmt]],
    *,
    execution: Int | None,
) -> list[Stmt]:
    """Statements that join the values of `size` blocks, for reductions whose blocks have theirs already.

    rank      of this block in its cluster
    thread    linear index of the thread among the `threads` that hold one value
    lane      which of the block's `lanes` values that is
    execution how often the statements ran before; None if that is not known
    """
    # Executions take turns with two sets of slots: when a set is used again, the barrier of the execution in between has shown
    # that every block has read its own.
    sets = 1 if execution is ZERO or execution is None else 2
    turn = ZERO if execution is None else execution % sets
    slots = {
        r: tuple(
            Buffer(f"{p.name}_cluster", p.dtype, MemoryType.shared, p.size * size * lanes * sets) for p in r.partials
        )
        for r in reduces
    }

    def place(e: Int, block: Int, p: Buffer) -> Int:
        return ((turn * p.size + e) * size + block) * lanes + lane

    stmts: list[Stmt] = [Allocate(b) for r in reduces for b in slots[r]]
    peer = make_symbol("peer", const(size))
    stores: list[Stmt] = []
    for r in reduces:

        def publish(e: Int, r: Reduce = r) -> list[Stmt]:
            return [
                RemoteStore(s, place(e, rank, p), Load(p, e), peer) for s, p in zip(slots[r], r.partials, strict=True)
            ]

        stores += elements(r, publish)
    stmts.append(For(peer, thread, const(size), threads, tuple(stores)))
    stmts += [ClusterArrive("every block's value is on its way"), ClusterWait("every block's value has come")]
    for r in reduces:

        def collect(e: Int, r: Reduce = r) -> list[Stmt]:
            first: list[Stmt] = [
                Store(p, e, Load(s, place(e, ZERO, p))) for s, p in zip(slots[r], r.partials, strict=True)
            ]
            other = make_symbol("rank", const(size - 1))
            rest = combine(
                r, e, tuple(Load(s, place(e, other + 1, p)) for s, p in zip(slots[r], r.partials, strict=True))
            )
            return [*first, For(other, ZERO, const(size - 1), const(1), tuple(rest), unroll=True)]

        stmts += elements(r, collect)
    if execution is None:
        stmts += [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]
    return stmts


def exchange_by_lanes(
    reduces: Sequence[Reduce],
    size: int,
    rank: Int,
    thread: Int,
    values: int,
    make_symbol: Callable[[str, Int], Symbol],
    each: Callable[[Reduce, Callable[[int, Int], list[Stmt]]], list[Stmt]],
    combine_each: Callable[[Reduce, Callable[[int, Int], Value]], list[Stmt]],
    butterflies: Callable[[Reduce, int], list[Stmt]],
    *,
    execution: Int | None,
) -> list[Stmt]:
    """Statements that join the values of `size` blocks of whole warps, for reductions whose warps or blocks have theirs.

    A lane for each block tells it a value at once. Then each warp reads what all of them left, a lane for each again, and joins
    it by butterflies: the same in every warp of every block.

    thread    linear index of the thread in its block
    values    of a block: one, or those of all its warps, so that no barrier of the block comes before the exchange
    each, combine_each, butterflies    see `_Expander`
    execution    see `exchange_in_cluster`
    """
    sets = 1 if execution is ZERO or execution is None else 2
    turn = ZERO if execution is None else execution % sets
    parts = size * values
    lane, warp = thread % WARP, thread // WARP
    slots = {
        r: tuple(Buffer(f"{p.name}_cluster", p.dtype, MemoryType.shared, p.size * parts * sets) for p in r.partials)
        for r in reduces
    }

    def place(r: Reduce, i: int, e: Int, part: Int) -> Int:
        return (turn * r.partials[i].size + e) * parts + part

    stmts: list[Stmt] = [Allocate(b) for r in reduces for b in slots[r]]
    peer = make_symbol("peer", const(size))
    stores: list[Stmt] = []
    for r in reduces:

        def publish(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [
                RemoteStore(
                    slots[r][i],
                    place(r, i, e, rank * values + (warp if values > 1 else ZERO)),
                    Load(r.partials[i], e),
                    peer,
                )
            ]

        stores += each(r, publish)
    publish_all: Stmt = For(peer, lane, const(size), const(WARP), tuple(stores))
    stmts.append(publish_all if values > 1 else If(less(thread, WARP), (publish_all,), role=Role.owner))
    stmts += [ClusterArrive("every value is on its way"), ClusterWait("every value has come")]
    width = parts if parts < WARP and parts & (parts - 1) == 0 else WARP
    first = lane % width
    for r in reduces:

        def read(i: int, e: Int, part: Int, r: Reduce = r) -> Value:
            return Load(slots[r][i], place(r, i, e, part))

        def found(i: int, e: Int, r: Reduce = r, read: Callable[[int, Int, Int], Value] = read) -> list[Stmt]:
            return [Store(r.partials[i], e, read(i, e, first))]

        def nothing(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [Store(r.partials[i], e, r.identity[i], Role.initialise)]

        if width > parts:
            stmts += [*each(r, nothing), If(less(first, parts), tuple(each(r, found)), role=Role.predicate)]
        else:
            stmts += each(r, found)
        for start in range(WARP, parts, WARP):

            def other(i: int, e: Int, start: int = start, read: Callable[[int, Int, Int], Value] = read) -> Value:
                return read(i, e, lane + start)

            more = combine_each(r, other)
            if start + WARP > parts:
                more = list[Stmt]([If(less(lane + start, parts), tuple(more), role=Role.predicate)])
            stmts += more
        stmts += butterflies(r, width)
    if execution is None:
        stmts += [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]
    return stmts


def enter_cluster(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Arrive at the start, and wait before the first statement that reaches into another block. Unchanged if none does."""
    for position, stmt in enumerate(body):
        if any(isinstance(s, RemoteStore) for s in walk((stmt,))):
            wait = ClusterWait("every block of the cluster runs")
            return (ClusterArrive("this block runs", relaxed=True), *body[:position], wait, *body[position:])
    return body
