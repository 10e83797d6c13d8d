"""Reductions across the blocks of a block group of the grid, all of which continue with the result.

Before: every thread of a block of whole warps holds its own partials of Reduces over all threads and over a grid axis
After:  the warps of a block store their partials to shared memory, and its first warp combines them, one lane per warp. It
        publishes the result: one lane stores it into the block's slot of a workspace, fences, and increments the group's
        counter. When all blocks of the group have incremented it, the warp reads the slots, one lane per slot, combines them
        by `warp_all_reduce`, so that results are reproducible, and stores the result to shared memory for the other warps.

Every execution has its own slots, and the counter only grows: no slot is overwritten while a block may still read it. At the
end of the kernel each block increments one of its group's counters once more, and the last one resets all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Cond, Int, Symbol, all_of, const, equal, less
from fuser.ir.kernel.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
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
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.collectives.grid_partials import GridPartialsLayout, Workspaces
from fuser.lowering.collectives.semaphores import Semaphores
from fuser.lowering.collectives.slots import Slots, shared_slots
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce, warp_combine
from fuser.lowering.collectives.warp_reduce_scatter import may_reduce_scatter, warp_reduce_scatter
from fuser.lowering.combiners.combine_partials import PartialCombiner
from fuser.lowering.parallel_axes import WARP, guarded


class BlockGroupReduceExpander:
    """Statements of reductions over the blocks of a group and all threads of each."""

    def __init__(self, combiner: PartialCombiner, workspaces: Workspaces, semaphores: Semaphores) -> None:
        self._axes = combiner.axes
        self._combiner = combiner
        self._workspaces = workspaces
        self._semaphores = semaphores
        # By the axes along which groups are: indices of this block's counters, and the executions that the last one counts.
        self._groups: dict[tuple[ParallelType, ...], tuple[list[Int], Int]] = {}

    def applies_to(self, r: Reduce) -> bool:
        """Whether all blocks of a group continue with the result, and each has whole warps that reduce together."""
        blocks, threads = self._axes.count_of(r.grid_axes), self._axes.block_threads
        return (
            r.grid_broadcast
            and set(r.block_axes) == set(self._axes.active)
            and blocks.is_const
            and threads.is_const
            and threads.value % WARP == 0
        )

    def expand(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same blocks, with one counter."""
        parts = [self._workspaces.allocate_partials(r) for r in reduces]
        kept = [p for p in self._axes.grid if p not in reduces[0].grid_axes]
        counter = self._semaphores.allocate(self._axes.count_of(kept)) + self._axes.linear(kept)
        before, _ = self._groups.get(reduces[0].grid_axes, ([], ONE))
        self._groups[reduces[0].grid_axes] = [*before, counter], reduces[0].slots
        if self._warps > 1 and all(may_reduce_scatter(r) for r in reduces):
            return self._exchange_many(reduces, parts, counter)
        return self._exchange(reduces, parts, counter)

    def reset_counters(self) -> list[Stmt]:
        """Statements at the end of the kernel: the last block of a group resets its counters."""
        stmts: list[Stmt] = []
        for axes, (counters, slots) in self._groups.items():
            blocks = self._axes.count_of(axes).value
            left = self._axes.symbol("left", blocks * (slots + 1))
            stmts += _reset_counters(self._semaphores.buffer, counters, blocks, slots, left)
        return guarded(self._axes.is_first_thread, stmts) if stmts else []

    @property
    def _warps(self) -> int:
        return self._axes.block_threads.value // WARP

    def _exchange(self, reduces: Sequence[Reduce], parts: Sequence[GridPartialsLayout], counter: Int) -> list[Stmt]:
        """Statements that combine the partials of the threads of a group; every thread ends up with the result.

        parts      workspaces of the blocks' partials, of each reduction
        counter    index of the group's counter
        """
        combiner, warps = self._combiner, self._warps
        thread, number = self._axes.thread, self._axes.number()
        lane = thread % WARP
        stmts: list[Stmt] = [s for r in reduces for s in warp_all_reduce(combiner, r, WARP)]
        alone: list[Stmt] = []
        if warps > 1:
            slots = [shared_slots(r, f"warps{number}", const(warps)) for r in reduces]
            stmts += [a for s in slots for a in s.allocations]
            stored = [t for s in slots for t in combiner.store(s.reduce, s.at(thread // WARP))]
            stmts.append(If(equal(lane, 0), tuple(stored), role=Role.owner))
            for s in slots:
                alone += warp_combine(combiner, s.reduce, s.read, warps)
        published: list[Stmt] = [s for r, p in zip(reduces, parts, strict=True) for s in combiner.store(r, p.own)]
        published += [Fence(), *self._signal_and_wait(reduces, parts[0].blocks.value, counter)]
        alone += [
            If(equal(lane, 0), tuple(published), role=Role.owner),
            WarpBarrier("the blocks of the group have arrived"),
        ]
        for r, p in zip(reduces, parts, strict=True):
            alone += warp_combine(combiner, r, p.load, p.blocks.value)
        if warps == 1:
            return [*stmts, *alone]
        found = [shared_slots(r, f"group{number}", ONE) for r in reduces]
        kept = [s for f in found for s in combiner.store(f.reduce, f.at(ZERO))]
        taken = [s for f in found for s in combiner.load(f.reduce, f.single)]
        alone.append(If(equal(lane, 0), tuple(kept), role=Role.owner))
        stmts += [a for f in found for a in f.allocations]
        return [*stmts, If(less(thread, WARP), tuple(alone), role=Role.owner), *taken]

    def _signal_and_wait(self, reduces: Sequence[Reduce], blocks: int, counter: Int) -> tuple[Stmt, ...]:
        """Say that this block's partials are published, and wait for those of all `blocks`."""
        counters, target = self._semaphores.buffer, (reduces[0].slot + 1) * blocks
        return AtomicAdd(None, counters, counter, ONE), SpinWait(counters, counter, target, acquire=True)

    def _exchange_many(
        self, reduces: Sequence[Reduce], parts: Sequence[GridPartialsLayout], counter: Int
    ) -> list[Stmt]:
        """The same where each thread has many elements: lanes and warps have elements of their own in every step.

        Statements that wait come last: all values of a step are loaded before the first is combined.
        """
        combiner, warps = self._combiner, self._warps
        thread, number = self._axes.thread, self._axes.number()
        lane, warp = thread % WARP, thread // WARP
        slots = [shared_slots(r, f"warps{number}", const(warps)) for r in reduces]
        stmts: list[Stmt] = [a for s in slots for a in s.allocations]
        stored: dict[Cond, list[Stmt]] = {}
        joined: dict[Cond, list[Stmt]] = {}
        left: dict[Cond, list[Stmt]] = {}
        for r, p, of in zip(reduces, parts, slots, strict=True):
            size = r.partials[0].size
            scattered, mine = warp_reduce_scatter(combiner, r, lane)
            one, element = mine.one, mine.element
            stmts += scattered
            is_mine = all_of(equal(lane % mine.copies, 0), less(element, size))
            tell = [Store(*of.at(warp)(i, element), Load(b, ZERO)) for i, b in enumerate(one.partials)]
            stored.setdefault(is_mine, []).extend(tell)
            # The first lanes of the first warp have an element each.

            def of_warp(i: int, _: Int, k: Int, of: Slots = of) -> Value:
                return of.read(i, lane, k)

            has_element = less(lane, size)
            joined.setdefault(has_element, []).extend(combiner.combine_all(one, of_warp, const(warps), unroll=True))
            leave = [Store(*p.own(i, lane), Load(b, ZERO)) for i, b in enumerate(one.partials)]
            left.setdefault(has_element, []).extend(leave)
        for condition, tells in stored.items():
            stmts += guarded(condition, tells)
        alone: list[Stmt] = [s for c, work in joined.items() for s in guarded(c, [*work, *left[c]])]
        alone += [Fence(), WarpBarrier("every lane's values are published before one signals")]
        blocks = parts[0].blocks.value
        alone.append(If(equal(lane, 0), self._signal_and_wait(reduces, blocks, counter), role=Role.owner))
        stmts.append(If(less(thread, WARP), tuple(alone), role=Role.owner))
        stmts.append(BlockBarrier("the blocks of the group have published"))
        found = [shared_slots(r, f"group{number}", ONE) for r in reduces]
        stmts += [a for f in found for a in f.allocations]
        load_stmts: list[Stmt] = []
        work_of: dict[Cond | None, tuple[list[Stmt], list[Stmt]]] = {}
        taken: list[Stmt] = []
        # Elements are distributed round-robin over warps, in every second reduction from the last warp on.
        for number_of, (r, p, result) in enumerate(zip(reduces, parts, found, strict=True)):
            size, is_backward = r.partials[0].size.value, number_of % 2 == 1
            place = warps - 1 - warp if is_backward else warp
            for begin in range(0, size, warps):
                own = combiner.own(r)
                one, element, busy = replace(r, partials=own), place + begin, size - begin

                def of_block(i: int, block: Int, p: GridPartialsLayout = p, element: Int = element) -> Value:
                    return p.load(i, element, block)

                ask, join = _loads_and_combines(one, of_block, blocks, lane, combiner)
                keep = [Store(*result.at(ZERO)(i, element), Load(b, ZERO)) for i, b in enumerate(own)]
                is_busy: Cond | None = None
                if busy < warps:
                    idle = WARP * (warps - busy)
                    is_busy = less(idle - 1, thread) if is_backward else less(thread, WARP * busy)
                stmts += [Allocate(b) for b in own]
                if is_busy is None:
                    load_stmts += ask
                else:
                    load_stmts += [s for s in ask if isinstance(s, Allocate)]
                    loads = tuple(s for s in ask if not isinstance(s, Allocate))
                    load_stmts.append(If(is_busy, loads, role=Role.owner))
                joining, keeping = work_of.setdefault(is_busy, ([], []))
                joining += join
                keeping += keep
            taken += combiner.load(r, result.single)
        stmts += load_stmts
        for is_busy, (joining, keeping) in work_of.items():
            work = [*joining, If(equal(lane, 0), tuple(keeping), role=Role.owner)]
            stmts += work if is_busy is None else [If(is_busy, tuple(work), role=Role.owner)]
        return [*stmts, *taken]


def _loads_and_combines(
    r: Reduce, part: Callable[[int, Int], Value], parts: int, lane: Int, combiner: PartialCombiner
) -> tuple[list[Stmt], list[Stmt]]:
    """`warp_combine` for one element: what loads the values that a lane has, and what combines them."""
    load_stmts: list[Stmt] = []
    joined: list[Stmt] = []
    for start in range(0, parts, WARP):
        held = r.partials if start == 0 else combiner.own(r)
        loads: list[Stmt] = [Store(b, ZERO, part(i, lane + start)) for i, b in enumerate(held)]
        if start + WARP > parts:
            nothing = tuple(Store(b, ZERO, r.identity[i], Role.initialise) for i, b in enumerate(held))
            loads = [If(less(lane + start, parts), tuple(loads), nothing, role=Role.predicate)]
        if start:
            load_stmts += [Allocate(b) for b in held]
            joined += combiner.combine(r, ZERO, tuple(Load(b, ZERO) for b in held))
        load_stmts += loads
    return load_stmts, [*joined, *warp_all_reduce(combiner, r, WARP)]


def _reset_counters(counters: Buffer, mine: Sequence[Int], blocks: int, slots: Int, left: Symbol) -> list[Stmt]:
    """Statements for one thread of a block that is done with its group, whose counters are at `mine`.

    slots   number of executions that the last counter counts
    left    value of that counter before this block left
    """
    resets = [Store(counters, at, Literal(0, DataType.Int32), Role.semaphore_reset) for at in mine]
    is_last = equal(left, blocks * (slots + 1) - 1)
    # Each thread's wait at the counter at hand came before its addition here. Those at others came before its arrival at this
    # one, which published them, and which the last block has acquired with its own wait.
    leave = AtomicAdd(left, counters, mine[-1], ONE)
    return [leave, If(is_last, tuple(resets), role=Role.last_block)]
