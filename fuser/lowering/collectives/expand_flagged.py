"""Reductions over the grid by flagged stores: single results that all blocks send to the last one. Part of
expand_collectives.

Before: a Reduce over the grid, of one or a few values per block, whose result one block needs
After:  one thread of every block stores the partial results with a flag: pairs of words, the bits and the flag, as in the LL
        protocol of NCCL (`Post`). The last block by number stores nothing: its threads wait for the flags of the others, all at
        once, combine the values in block order, so that results are reproducible, and clear the flags.

That takes the time of one store and one read, 1000 cycles. If the block that arrives last continues (`expand_grid`), a
fence, the addition to a counter, a barrier and reads of the partial results depend on each other: 2300 cycles (H200). A
block that waits needs the others to become resident: therefore only one block waits, or those of one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, all_of, const, equal, less, select
from fuser.ir.kernel.kernel import (
    MOST_POST_WORDS,
    Allocate,
    BlockBarrier,
    Buffer,
    For,
    If,
    Let,
    Load,
    Post,
    Receive,
    Reduce,
    Role,
    Stmt,
    Store,
    post_words,
)
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.collectives.expand_block import BlockReduceExpander
from fuser.lowering.collectives.semaphores import Semaphores
from fuser.lowering.collectives.slots import shared_slots
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce
from fuser.lowering.parallel_axes import WARP, power_of_two

MAX_POSTS = 1024
"""Most blocks with flagged stores: their slots are semaphores, of which captured streams have few."""
# Flagged stores per lane up to which the first warp receives all; above that all warps share them, at the cost of a barrier.
_OWN_POSTS = 4
# Flagged stores that a thread polls at once.
_MAX_AT_ONCE = 16


class FlaggedReduceExpander:
    """Statements of reductions over the grid by posts.

    cluster     blocks of a cluster along a grid axis
    flags       statements at the start of the kernel: whether a block is the last one by number
    """

    def __init__(
        self,
        block: BlockReduceExpander,
        semaphores: Semaphores,
        cluster: Mapping[ParallelType, int],
    ) -> None:
        self._axes = block.axes
        self._combiner = block.combiner
        self._block = block
        self._semaphores = semaphores
        self._cluster = cluster
        self.flags: list[Stmt] = []

    def applies_to(self, reduces: Sequence[Reduce]) -> bool:
        """Whether blocks have few enough values, and so few wait that the others run at the same time."""
        r, axes = reduces[0], self._axes
        kept = [p for p in axes.grid if p not in r.grid_axes and axes.sizes[p] is not ONE]
        threads, blocks = axes.block_threads, axes.count_of([p for p in axes.grid if p in r.grid_axes])
        partials = [p for r in reduces for p in r.partials]
        return (
            not r.grid_broadcast
            and r.slots is ONE
            and all(self._is_cluster(p) for p in kept)
            and not any(p in r.grid_axes for p in self._cluster)
            and threads.is_const
            and threads.value % WARP == 0
            and blocks.hi is not None
            and blocks.hi <= MAX_POSTS
            and blocks.hi <= threads.value * _MAX_AT_ONCE
            and all(p in (*one.block_axes, *one.copy_axes) for one in reduces for p in axes.active)
            and all(self._block.owners.get(one) is None for one in reduces)
            and all(p.size is ONE and p.dtype.itemsize in (4, 8) for p in partials)
            and post_words(p.dtype for p in partials) <= MOST_POST_WORDS
        )

    def _is_cluster(self, p: ParallelType) -> bool:
        size = self._axes.sizes[p]
        return size.is_const and self._cluster.get(p) == size.value

    def expand(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, in one post of each."""
        axes, first = self._axes, reduces[0]
        reduced = [p for p in axes.grid if p in first.grid_axes]
        kept = [p for p in axes.grid if p not in first.grid_axes]
        blocks, block = axes.count_of(reduced), axes.linear(reduced)
        partials = [p for r in reduces for p in r.partials]
        words = post_words(p.dtype for p in partials)
        base = (
            self._semaphores.allocate_pairs(axes.count_of(kept) * blocks * words) + axes.linear(kept) * blocks * words
        )
        posted = Post(self._semaphores.buffer, base + block * words, tuple(Load(p, ZERO) for p in partials))
        is_other = less(block, blocks - 1)
        stmts: list[Stmt] = [If(all_of(is_other, axes.is_first_thread), (posted,), role=Role.owner)]
        for r in reduces:
            assert r.last_block is not None
            self.flags.append(Let(r.last_block, select(equal(block, blocks - 1), ONE, ZERO)))
        assert first.last_block is not None
        last = self._finish(reduces, base, blocks, words)
        return [*stmts, If(equal(first.last_block, 1), tuple(last), role=Role.last_block)]

    def _finish(self, reduces: Sequence[Reduce], base: Int, blocks: Int, words: int) -> list[Stmt]:
        axes, thread = self._axes, self._axes.thread
        assert blocks.hi is not None
        own_warp = blocks.hi <= _OWN_POSTS * WARP
        count = WARP if own_warp else axes.block_threads.value
        each = -(-blocks.hi // count)
        number = axes.number()
        got = {
            r: tuple(Buffer(f"{p.name}_got{number}", p.dtype, MemoryType.local, const(each)) for p in r.partials)
            for r in reduces
        }
        stmts: list[Stmt] = [Allocate(b) for r in reduces for b in got[r]]
        # Places without a post have the identity, the last one what this block has.
        for r in reduces:
            for k in range(each):
                stmts += [Store(b, const(k), r.identity[i], Role.initialise) for i, b in enumerate(got[r])]
        for k in range(each):
            here = [Store(b, const(k), Load(p, ZERO)) for r in reduces for b, p in zip(got[r], r.partials, strict=True)]
            stmts.append(If(equal(thread + k * count, blocks - 1), tuple(here), role=Role.predicate))
        arrays = tuple(b for r in reduces for b in got[r])
        step = const(count * words)
        stop = base + (blocks - 1) * words
        stmts.append(Receive(arrays, self._semaphores.buffer, base + thread * words, step, stop))
        for r in reduces:
            stmts += [Store(p, ZERO, Load(b, ZERO)) for b, p in zip(got[r], r.partials, strict=True)]
            if each > 1:
                k = axes.symbol("k", const(each))
                mine = got[r]
                adds = self._combiner.combine_each(r, lambda i, _, mine=mine, k=k: Load(mine[i], k))
                stmts.append(For(k, ONE, const(each), ONE, tuple(adds), unroll=True))
        if not own_warp:
            whole = tuple(replace(r, block_axes=tuple(axes.active), copy_axes=()) for r in reduces)
            return [*stmts, *self._block.expand(whole)]
        for r in reduces:
            stmts += warp_all_reduce(self._combiner, r, min(WARP, power_of_two(blocks.hi)))
        return stmts if axes.block_threads.value == WARP else self._broadcast(reduces, stmts)

    def _broadcast(self, reduces: Sequence[Reduce], stmts: list[Stmt]) -> list[Stmt]:
        """What the first warp has found, for all threads of the block."""
        number, thread = self._axes.number(), self._axes.thread
        found = [shared_slots(r, f"found{number}", ONE) for r in reduces]
        tell = [s for f in found for s in self._combiner.store(f.reduce, f.at(ZERO))]
        return [
            *(a for f in found for a in f.allocations),
            If(less(thread, WARP), (*stmts, If(equal(thread, 0), tuple(tell), role=Role.owner)), role=Role.owner),
            BlockBarrier("the first warp has joined what all blocks have"),
            *(s for f in found for s in self._combiner.load(f.reduce, f.single)),
        ]
