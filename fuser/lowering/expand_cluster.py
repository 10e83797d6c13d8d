"""Reductions across the blocks of a cluster, through distributed shared memory.

Before: every thread of a block holds its block's value of a Reduce with cluster axes
After:  a few threads of each block store that value into one slot per rank in every block of the cluster; behind one barrier of
        the cluster every thread reads its own block's slots and joins them in order of rank, so results repeat.

A block may reach into another only once that one runs: all blocks arrive at the start of the kernel, and wait right before
the first store into another, behind the loads of the row. Nothing reaches into a block behind the barrier that follows the
stores, so a block may end whenever it is done. Slots never share their bytes with other buffers (`allocate_shared`): a peer
may be ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.ir.enums import MemoryType
from fuser.ir.integers import ZERO, Int, Symbol, const
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    ClusterArrive,
    ClusterWait,
    For,
    Load,
    Reduce,
    RemoteStore,
    Stmt,
    Store,
    Value,
    walk,
)


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


def enter_cluster(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Arrive at the start, and wait before the first statement that reaches into another block. Unchanged if none does."""
    for position, stmt in enumerate(body):
        if any(isinstance(s, RemoteStore) for s in walk((stmt,))):
            wait = ClusterWait("every block of the cluster runs")
            return (ClusterArrive("this block runs"), *body[:position], wait, *body[position:])
    return body
