"""Reductions over blocks of the grid, through device memory. Part of the pass expand_collectives.

Every block stores its partial results in a workspace (`grid_partials`) and increments a semaphore. The block that arrives
last finishes all reductions of that semaphore. If all blocks need the results, every block waits for all others and finishes
the reductions itself. Partial results are combined in block order, so that results are reproducible.

Publication: every writer stores and fences, and (after a barrier, if several threads wrote) one thread adds to the
semaphore. That addition, or the wait for all of them, acquires what is read after the block barrier that follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, const, equal, less, maximum, prove_less, select
from fuser.ir.kernel.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Fence,
    For,
    If,
    IndexValue,
    Let,
    Literal,
    Load,
    LoadIndex,
    Reduce,
    Role,
    SpinWait,
    Stmt,
    Store,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.collectives.block_reduce_scatter import (
    ScatterLayout,
    block_reduce_scatter,
    scatter_groups,
)
from fuser.lowering.collectives.expand_block import BlockReduceExpander
from fuser.lowering.collectives.expand_flagged import FlaggedReduceExpander
from fuser.lowering.collectives.grid_partials import GridPartialsLayout, Workspaces
from fuser.lowering.collectives.semaphores import Semaphores
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce
from fuser.lowering.parallel_axes import WARP, guarded

_BY_NUMBER = -1
# Partials of other blocks that a lane combines rather than wait for the other warps of its block.
_OWN_TURNS = 4
# Partials that a thread of the last block asks for at once, and bytes of those of all reductions it combines (the compiler may
# move them together): registers that the kernel's loops need not have.
_FINISH_BATCH = 16
_FINISH_BYTES = 128


class GridReduceExpander:
    """Statements of reductions over blocks whose threads have what their block has (`block` expanded that).

    last_blocks   by the index that says whether a block is the last one: which semaphore's
    """

    def __init__(
        self, block: BlockReduceExpander, workspaces: Workspaces, semaphores: Semaphores, posts: FlaggedReduceExpander
    ) -> None:
        self.axes = block.axes
        self.combiner = block.combiner
        self.block = block
        self.workspaces = workspaces
        self.semaphores = semaphores
        self.posts = posts
        self.last_blocks: dict[Symbol, int] = {}

    def expand(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, which share a semaphore."""
        if reduces[0].grid_broadcast:
            return self._grid_broadcast(reduces)
        if not self.posts.applies_to(reduces):
            return self._grid_last_block(reduces)
        # Which block is the last one by number is known: what needs two of these results is left to one that is both.
        group = _BY_NUMBER
        self.last_blocks.update((r.last_block, group) for r in reduces if r.last_block is not None)
        return self.posts.expand(reduces)

    def _store_partials_and_signal(
        self, reduces: Sequence[Reduce], parts: Sequence[GridPartialsLayout], after: Sequence[Stmt]
    ) -> list[Stmt]:
        """Store this block's partials, then let one thread add to the semaphore and go on with `after`.

        Where threads have one result each, all of them store at once.
        """
        found = [self.block.owners.get(r) for r in reduces]
        owners = [o for o in found if o is not None and found[0] is not None and o.owner is found[0].owner]
        if len(owners) == len(reduces):
            writes = owners[0].owner
            stores = [s for o, part in zip(owners, parts, strict=True) for s in o.stored(part.own)]
        else:
            writes = self.axes.is_first(parts[0].scatter)
            stores = [s for r, part in zip(reduces, parts, strict=True) for s in self.combiner.store(r, part.own)]
        stores.append(Fence())
        one_thread = self.axes.is_first_thread
        if writes is one_thread:
            # The writer is the thread that signals: its own fence is enough.
            return guarded(one_thread, [*stores, *after])
        return [
            *guarded(writes, stores),
            BlockBarrier("every thread's partial is published before one thread signals"),
            *guarded(one_thread, list(after)),
        ]

    def _is_finished_by_warps(self, g: GridPartialsLayout, most: int) -> bool:
        """Whether each warp of the last block combines all partials by itself: few of them, and one result a block."""
        threads = self.axes.block_threads
        whole = threads.is_const and threads.value % WARP == 0 and not g.lanes
        return whole and g.blocks.hi is not None and g.blocks.hi <= min(most, _OWN_TURNS) * WARP

    def _finish(self, r: Reduce, g: GridPartialsLayout, nbytes: int) -> list[Stmt]:
        """Join the partials of all blocks; threads along the block's reduced axes, and those with copies, share the work.

        A thread asks for several partials before it uses the first: they come from device memory, one wait serves all.
        `nbytes`: of a partial of every reduction that is combined here.
        """
        # A block has a thread, though an extent that nothing bounds from below may be 0: then nothing is launched.
        count = maximum(self.axes.count_of(g.scatter), ONE)
        size = r.partials[0].size
        # All threads share a single result: each combines few partial results, and then the block reduces theirs.
        groups = scatter_groups(r, count, g.lane_count) if size.value > 1 else 0
        if groups and g.blocks.is_const and -(-g.blocks.value // groups) <= _FINISH_BATCH:
            return self._finish_scattered(r, g, groups)
        most = max(1, min(_FINISH_BATCH // size.value, _FINISH_BYTES // nbytes))
        by_warps = self._is_finished_by_warps(g, most)
        mine = self.axes.linear(g.scatter)
        if by_warps:
            count, mine = const(WARP), mine % WARP
        if count.is_const and g.blocks.hi is not None:
            # Rather half as many again at once than an iteration more.
            needed = -(-g.blocks.hi // count.value)
            most = needed if needed <= most + most // 2 else min(most, needed)
        batch = const(most)
        stmts = self.combiner.clear(r)
        number = self.axes.number()
        got = tuple(Buffer(f"{p.name}_got{number}", p.dtype, MemoryType.local, batch * p.size) for p in r.partials)
        # All threads go round together, with a test for each partial: lanes that left a loop early would have to be waited for
        # at every shuffle that follows, 340 cycles each (H200: two partials took 5100).
        is_one_iteration = count.is_const and g.blocks.hi is not None and g.blocks.hi <= count.value * most
        b = ZERO if is_one_iteration else self.axes.symbol("b", g.blocks)

        def each(make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
            if batch is ONE:
                return make(ZERO)
            j = self.axes.symbol("j", batch)
            return [For(j, ZERO, batch, ONE, tuple(make(j)), unroll=True)]

        def load(j: Int) -> list[Stmt]:
            block = b + mine + j * count

            def blank(i: int, e: Int) -> list[Stmt]:
                return [Store(got[i], j * r.partials[i].size + e, r.identity[i], Role.initialise)]

            def ask(i: int, e: Int) -> list[Stmt]:
                return [Store(got[i], j * r.partials[i].size + e, g.load(i, e, block))]

            loads = self.combiner.each(r, ask)
            if prove_less(block, g.blocks):
                return loads
            return [*self.combiner.each(r, blank), If(less(block, g.blocks), tuple(loads), role=Role.predicate)]

        def add(j: Int) -> list[Stmt]:
            return self.combiner.combine_each(r, lambda i, e: Load(got[i], j * r.partials[i].size + e))

        adds = each(add)
        if is_one_iteration and most > 1 and r.combine != "exp_sum":
            # One division for all of them, and short chains.
            adds = self.combiner.combine_all(
                r, lambda i, e, k: Load(got[i], k * r.partials[i].size + e), batch, unroll=True
            )
        turn = (*(Allocate(t) for t in got), *each(load), *adds)
        stmts += [For(b, ZERO, g.blocks, count * batch, turn)] if isinstance(b, Symbol) else list(turn)
        if by_warps:
            stmts += warp_all_reduce(self.combiner, r, WARP)
        elif g.scatter:
            stmts += self.block.expand((replace(r, block_axes=tuple(g.scatter)),))
        return stmts

    def _finish_scattered(self, r: Reduce, g: GridPartialsLayout, groups: int) -> list[Stmt]:
        """Join the partials of not too many blocks: a thread asks for all of its own, those of one result, at once."""
        size = r.partials[0].size.value
        groups = 1 if g.blocks.value <= groups else groups
        per = -(-g.blocks.value // groups)
        scatter = ScatterLayout(
            self.axes.linear(g.scatter),
            self.axes.count_of(g.scatter),
            size,
            groups,
            g.lane,
            g.lane_count,
        )

        def own_parts(one: Reduce, at: list[Int]) -> list[Stmt]:
            number = self.axes.number()
            got = tuple(Buffer(f"{p.name}_got{number}", p.dtype, MemoryType.local, const(per)) for p in one.partials)
            stmts: list[Stmt] = [Allocate(b) for b in got]
            # Tests first: the compiler moves loads as registers allow, but not across a branch.
            last = const(per - 1) * groups + scatter.group
            for j in range(per) if prove_less(last, g.blocks) else reversed(range(per)):
                block = scatter.group + j * groups
                blank = [Store(b, const(j), one.identity[i], Role.initialise) for i, b in enumerate(got)]
                loads = [Store(b, const(j), g.load(i, at[i], block)) for i, b in enumerate(got)]
                inside = less(block, g.blocks)
                stmts += (
                    loads if prove_less(block, g.blocks) else [*blank, If(inside, tuple(loads), role=Role.predicate)]
                )
            return stmts + self.combiner.combine_all(one, lambda i, _, k: Load(got[i], k), const(per), unroll=True)

        return block_reduce_scatter(self.combiner, r, scatter, own_parts).stmts

    def _grid_last_block(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, with one semaphore: the block that arrives last finishes all of them."""
        parts = [self.workspaces.allocate_partials(r) for r in reduces]
        g = parts[0]
        at = self.semaphores.allocate(g.exchange_count) + g.slots.exchange
        old = self.axes.symbol("arrived", g.blocks)
        one_thread = self.axes.is_first_thread
        signal: list[Stmt] = [AtomicAdd(old, self.semaphores.buffer, at, ONE, acquire=True)]
        stmts: list[Stmt] = []
        seen = old
        if not self.axes.active:
            stmts += self._store_partials_and_signal(reduces, parts, signal)
        else:
            number = self.axes.number()
            flag = Buffer(f"{reduces[0].name}_arrived{number}", DataType.Int32, MemoryType.shared, ONE)
            seen = self.axes.symbol("seen", g.blocks)
            after = [*signal, Store(flag, ZERO, IndexValue(old, DataType.Int32))]
            stmts += [
                Allocate(flag),
                *self._store_partials_and_signal(reduces, parts, after),
                LoadIndex(seen, flag, ZERO),
            ]
        group = len(self.last_blocks)
        last: list[Stmt] = []
        for r, part in zip(reduces, parts, strict=True):
            assert r.last_block is not None
            self.last_blocks[r.last_block] = group
            stmts.append(Let(r.last_block, select(equal(seen, g.blocks - 1), ONE, ZERO)))
            last += self._finish(r, part, _bytes_of(reduces))
        last += guarded(
            one_thread, [Store(self.semaphores.buffer, at, Literal(0, DataType.Int32), Role.semaphore_reset)]
        )
        assert reduces[0].last_block is not None
        return [*stmts, If(equal(reduces[0].last_block, 1), tuple(last), role=Role.last_block)]

    def _grid_broadcast(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, with one semaphore: all blocks wait for all, and each finishes all of them."""
        parts = [self.workspaces.allocate_partials(r) for r in reduces]
        g = parts[0]
        counter = self.semaphores.allocate(g.exchange_count) + g.slots.exchange
        # Every block counts itself once more when it has waited: the last one sets the counter back, and none waits for that
        # (H200: an addition whose old value is used, after a fence, delayed a warp for 1900 cycles).
        wait: list[Stmt] = [
            AtomicAdd(None, self.semaphores.buffer, counter, ONE),
            SpinWait(self.semaphores.buffer, counter, g.blocks, acquire=True),
            AtomicAdd(None, self.semaphores.buffer, counter, ONE, wrap=g.blocks * 2),
        ]
        barrier: list[Stmt] = [BlockBarrier("all blocks have arrived")] if self.axes.active else []
        finish = [s for r, part in zip(reduces, parts, strict=True) for s in self._finish(r, part, _bytes_of(reduces))]
        return [*self._store_partials_and_signal(reduces, parts, wait), *barrier, *finish]


def _bytes_of(reduces: Sequence[Reduce]) -> int:
    """Bytes of a block's partials of all these."""
    return sum(p.dtype.itemsize * p.size.value for r in reduces for p in r.partials)
