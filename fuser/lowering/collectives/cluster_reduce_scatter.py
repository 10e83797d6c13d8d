"""Reduce-scatter across the blocks of a cluster: a thread for each of several results. Part of the pass expand_collectives.

Before: E results for each of L lanes of each of C blocks lie in shared memory (see block_reduce_scatter)
After:  thread p of a lane stores result p % E into a slot of block p // E, p + threads of a lane into the next one's, ...;
        when all have arrived, one thread of each result and lane, or a few of a warp, join the C slots, and all threads read
        the results

Without this each thread would store all E results of its lane and join all of them, C - 1 divisions one after another for each.
Slots are used as `expand_cluster` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fuser.ir.enums import MemoryType
from fuser.ir.integers import ZERO, Int, const, equal
from fuser.ir.kernel import (
    Allocate,
    Buffer,
    ClusterArrive,
    ClusterWait,
    ExchangeInit,
    ExchangeWait,
    For,
    If,
    Load,
    Reduce,
    RemoteStore,
    Role,
    Stmt,
    Store,
    Value,
)
from fuser.lowering.collectives.block_reduce_scatter import Joined, Scatter
from fuser.lowering.collectives.expand_block import BlockReduces
from fuser.lowering.collectives.segmented_warp_reduce import segmented_warp_reduce, warp_width


def exchange_scattered(
    reduces: Mapping[Reduce, Joined],
    size: int,
    rank: Int,
    block: BlockReduces,
    counter_of: Callable[[Sequence[Buffer]], ExchangeInit | None],
    *,
    execution: Int | None,
) -> list[Stmt]:
    """Statements that join what `size` blocks have found; every thread has all results of its lane in the end.

    rank        of this block in its cluster
    block       what the blocks' own results were joined by
    counter_of  what counts the bytes that have come into slots, where the hardware can
    execution   how often the statements ran before; None if that is not known
    """
    joins = block.joins
    sets = 1 if execution is ZERO or execution is None else 2
    turn = ZERO if execution is None else execution % sets
    found = {
        r: tuple(
            Buffer(f"{p.name}_cluster", p.dtype, MemoryType.shared, p.size * size * joined.scatter.lanes * sets)
            for p in r.partials
        )
        for r, joined in reduces.items()
    }

    def slot(r: Reduce, i: int, element: Int, rank: Int) -> Int:
        s = reduces[r].scatter
        return ((turn * r.partials[i].size + element) * size + rank) * s.lanes + s.lane

    slots = [b for buffers in found.values() for b in buffers]
    signal = counter_of(slots) if execution is ZERO else None
    # Live while others still read what the block itself has found: they share no bytes, which would take a barrier.
    results = {r: block.scratch(r, joined.scatter.lanes) for r, joined in reduces.items()}
    stmts: list[Stmt] = [Allocate(b) for b in (*slots, *(b for made in results.values() for b in made))]
    stmts += [] if signal is None else [Allocate(signal.signal), signal]
    for r, joined in reduces.items():
        s = joined.scatter
        work = joins.axes.symbol("work", const(s.size * size))
        element, peer = work % s.size, work // s.size
        stores: list[Stmt] = []
        for i, b in enumerate(found[r]):
            e = ZERO if s.common(i) else element
            value = Load(joined.results[i], e * s.lanes + s.lane)
            store = RemoteStore(b, slot(r, i, e, rank), value, peer, None if signal is None else signal.signal)
            stores.append(_once(store, element) if s.common(i) else store)
        stmts.append(For(work, s.position, const(s.size * size), s.threads, tuple(stores)))
    if signal is not None:
        stmts.append(ExchangeWait(signal.signal, "every block's value has come"))
    else:
        stmts += [ClusterArrive("every block's value is on its way"), ClusterWait("every block's value has come")]
    reads: list[Stmt] = []
    for r, joined in reduces.items():
        s, number = replace(joined.scatter, width=1), joins.axes.number()
        s = replace(s, width=warp_width(r, s, size))
        own = tuple(Buffer(f"{p.name}_own{number}", p.dtype, MemoryType.local, const(1)) for p in r.partials)
        at = [ZERO if s.common(i) else s.element for i in range(len(own))]

        def part(i: int, _: Int, k: Int, r: Reduce = r, at: list[Int] = at) -> Value:
            return Load(found[r][i], slot(r, i, at[i], k))

        def read(i: int, e: Int, r: Reduce = r, s: Scatter = s) -> list[Stmt]:
            return [Store(r.partials[i], e, Load(results[r][i], e * s.lanes + s.lane))]

        one = replace(r, partials=own)
        stmts += [Allocate(b) for b in own]
        joining: list[Stmt] = []
        if s.width > 1:
            stmts += segmented_warp_reduce(joins, one, s, size, lambda i, k, part=part: part(i, ZERO, k))
        else:
            joining += joins.join_all(one, part, const(size), unroll=True)
        for i, (b, result) in enumerate(zip(own, results[r], strict=True)):
            store = Store(result, at[i] * s.lanes + s.lane, Load(b, ZERO))
            joining.append(_once(store, s.element) if s.common(i) else store)
        stmts.append(If(s.owner, tuple(joining), role=Role.owner))
        reads += joins.each(r, read)
    stmts += reads
    if execution is None:
        stmts += [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]
    return stmts


def _once(stmt: Stmt, element: Int) -> If:
    """A count that all results have in common is handled with the first of them."""
    return If(equal(element, 0), (stmt,), role=Role.owner)
