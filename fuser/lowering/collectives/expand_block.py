"""Reductions over the threads of a block. Part of the pass expand_collectives.

Threads that are an aligned part of a warp use butterfly shuffles alone. Whole warps store one partial result each in shared
memory, and every thread combines them. Other threads store theirs one by one: each element is combined by one thread, or by
groups of threads if there are enough (`block_reduce_scatter`), and read by all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from fuser.ir.integers.integers import ZERO, Int, const, equal, less, prove_less
from fuser.ir.kernel.kernel import Allocate, If, Load, Reduce, Role, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.collectives.block_reduce_scatter import (
    BlockScatterResult,
    ScatterLayout,
    block_reduce_scatter,
    scatter_groups,
)
from fuser.lowering.collectives.slots import Slots, shared_slots
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_shared_count
from fuser.lowering.parallel_axes import WARP, ParallelAxes, guarded, power_of_two
from fuser.records import record

MAX_STATISTICS = 8
"""Statistics or sums of Doubles of warps that each thread combines by itself: more of them take longer, and
statistics hold more registers than there may be (H200: batch norm f32 16x100x17x19 with sums in Double, of 1024 threads 11.2,
by lanes 7.7 us)."""

# Partials that a thread reads from shared memory rather than wait for another thread to combine them.
_OWN_WORK = 16


@record(eq=False)
class _ReductionSteps:
    """The statements of a thread for one reduction: `publish`, after a barrier `combine`, and then `phases`, with barriers
    between them."""

    publish: Sequence[Stmt]
    combine: Sequence[Stmt] = ()
    phases: Sequence[Sequence[Stmt]] = ()


class BlockReduceExpander:
    """Statements of reductions over threads of a block.

    owners   of reductions whose results the threads of a block have one by one: which thread has which
    """

    def __init__(self, axes: ParallelAxes, combiner: PartialCombiner) -> None:
        self.axes = axes
        self.combiner = combiner
        self.owners: dict[Reduce, BlockScatterResult] = {}

    def expand(self, reduces: Sequence[Reduce], *, all_reduce: bool = True) -> list[Stmt]:
        """Reductions over the same threads: all of them publish before any reads, so that one barrier serves all.

        `all_reduce` False: where threads have one result each, no others need to have them.
        """
        publish, collect = self.parts(reduces, all_reduce=all_reduce)
        return publish + collect

    def parts(self, reduces: Sequence[Reduce], *, all_reduce: bool = True) -> tuple[list[Stmt], list[Stmt]]:
        """The same in two steps: what a thread stores for the others, and how it combines what all have stored."""
        parts = [self._block_parts(r, all_reduce=all_reduce) for r in reduces]
        publish = [s for part in parts for s in part.publish]
        collect = [s for part in parts for s in part.combine]
        for beside in zip_longest(*(part.phases for part in parts), fillvalue=()):
            stmts = [s for phase in beside for s in phase]
            # All of them store to buffers of their own: else a barrier would be needed between them.
            collect += sorted(stmts, key=lambda s: not (isinstance(s, Allocate) and s.buffer.is_shared))
        return publish, collect

    def _block_parts(self, r: Reduce, *, all_reduce: bool) -> _ReductionSteps:
        reduced = [p for p in self.axes.active if p in r.block_axes]
        total = self.axes.block_threads
        count = self.axes.count_of(reduced)
        contiguous = reduced == self.axes.active[: len(reduced)]
        if contiguous and count.is_const and total.is_const and total.value % WARP == 0:
            if count.value <= WARP and count.value & (count.value - 1) == 0:
                return _ReductionSteps(warp_all_reduce(self.combiner, r, count.value))
            if count.value % WARP == 0:
                return self._reduce_whole_warps(r, count.value, total.value)
        others = [p for p in self.axes.active if p not in reduced]
        if reduced and others and set(others) <= set(r.copy_axes) and count.is_const and total.is_const:
            of_copies = self._reduce_replicated(r, reduced, count.value, total.value)
            if of_copies is not None:
                return of_copies
        return self._exchange(r, reduced, total, count, all_reduce=all_reduce)

    def _shared_slots(self, r: Reduce, count: Int) -> Slots:
        return shared_slots(r, f"shared{self.axes.number()}", count)

    def _reduce_whole_warps(self, r: Reduce, count: int, total: int) -> _ReductionSteps:
        stmts = warp_all_reduce(self.combiner, r, WARP)
        if count == WARP:
            return _ReductionSteps(stmts)
        per_group = count // WARP
        slots, stored = self._store_by_groups(r, WARP, total)
        first = self.axes.thread // count * per_group
        # Each part of a sum of exponentials has an exponential of its own, and statistics go over all parts twice: lanes read a
        # slot each and combine them in few steps. All warps of a block do so: the work grows with the square of their number.
        is_long = r.combine == "welford" or (r.partials[0].dtype is DataType.Double and r.combine == "add")
        by_lanes = r.combine == "exp_sum" or (is_long and per_group > MAX_STATISTICS)
        if power_of_two(per_group) <= WARP and by_lanes:
            return _ReductionSteps([*stmts, *stored], self._combine_by_lanes(r, slots, per_group, first))
        join = self.combiner.combine_all(r, lambda i, e, k: slots.read(i, e, first + k), const(per_group), unroll=True)
        return _ReductionSteps([*stmts, *stored], join)

    def _store_by_groups(self, r: Reduce, alike: int, total: int) -> tuple[Slots, list[Stmt]]:
        """A slot for each group of so many neighbouring threads, and the stores of these: all of a group have one value."""
        slots = self._shared_slots(r, const(total // alike))
        thread = self.axes.thread
        stored = self.combiner.store(r, slots.at(thread // alike))
        return slots, [*slots.allocations, If(equal(thread % alike, 0), tuple(stored), role=Role.owner)]

    def _combine_by_lanes(self, r: Reduce, slots: Slots, count: int, first: Int = ZERO) -> list[Stmt]:
        """Join `count` slots from the first on, at most a warp's lanes. Every thread has the result."""
        width = power_of_two(count)
        own = self.axes.thread % width
        reads = self.combiner.load(r, lambda i, e: slots.read(i, e, first + own))
        if width > count:
            reads = [If(less(own, count), tuple(reads), tuple(self.combiner.clear(r)))]
        return [*reads, *warp_all_reduce(self.combiner, r, width)]

    def _reduce_replicated(
        self, r: Reduce, reduced: Sequence[ParallelType], count: int, total: int
    ) -> _ReductionSteps | None:
        """The same where neighbouring threads hold copies, of which one counts; None if those make up no part of a warp and no
        whole warps."""
        copies = total // count
        if reduced != self.axes.active[-len(reduced) :] or total % WARP or (copies % WARP and WARP % copies):
            return None
        stmts = warp_all_reduce(self.combiner, r, WARP, copies) if copies < WARP else []
        alike = max(copies, WARP)
        if total == alike:
            return _ReductionSteps(stmts)
        slots, stored = self._store_by_groups(r, alike, total)
        return _ReductionSteps([*stmts, *stored], self._combine_by_lanes(r, slots, total // alike))

    def _exchange(
        self, r: Reduce, reduced: Sequence[ParallelType], total: Int, count: Int, *, all_reduce: bool
    ) -> _ReductionSteps:
        """Every thread writes its partials; each element of a group is combined by one of its threads, in order of the reduced
        axes, and read by all. Where that is little work, or how much is not known, every thread does all of it for itself and
        saves a barrier."""
        kept = [p for p in self.axes.active if p not in reduced]
        lanes = self.axes.count_of(kept)
        groups = scatter_groups(r, count, lanes)
        if groups and total.is_const:
            return self._exchange_scattered(r, reduced, total.value, count.value, groups, all_reduce=all_reduce)
        slots = self._shared_slots(r, total)

        def peer(i: int, e: Int, k: Int) -> Value:
            return slots.read(i, e, self.axes.thread_at(reduced, k))

        stmts = [*slots.allocations, *self.combiner.store(r, slots.at(self.axes.thread))]
        size = r.partials[0].size
        if not count.is_const or count.value * size.value <= _OWN_WORK:
            return _ReductionSteps(stmts, self.combiner.combine_all(r, peer, count))
        lane = self.axes.linear(kept)
        results = self._shared_slots(r, lanes)
        collect = results.allocations
        for start in range(0, size.value, count.value):
            element = self.axes.linear(reduced) + start
            at = [ZERO if is_shared_count(r, i) else element for i in range(len(r.partials))]
            own = self.combiner.own(r)
            work: list[Stmt] = [Allocate(b) for b in own]
            one = replace(r, partials=own)
            work += self.combiner.combine_all(one, lambda i, _, k, at=at: peer(i, at[i], k), count)
            for i, b in enumerate(own):
                found = Store(*results.at(lane)(i, at[i]), Load(b, ZERO))
                if not is_shared_count(r, i):
                    work.append(found)
                elif start == 0:
                    work.append(If(equal(element, 0), (found,), role=Role.owner))
            collect += work if prove_less(element, size) else [If(less(element, size), tuple(work), role=Role.owner)]

        read = self.combiner.load(r, lambda i, e: results.read(i, e, lane))
        return _ReductionSteps(stmts, phases=(collect, read))

    def _exchange_scattered(
        self, r: Reduce, reduced: Sequence[ParallelType], total: int, count: int, groups: int, *, all_reduce: bool
    ) -> _ReductionSteps:
        """Many threads for each element: they combine in two steps, and those of a warp before that by butterflies."""
        kept = [p for p in self.axes.active if p not in reduced]
        lanes, lane, position = self.axes.count_of(kept).value, self.axes.linear(kept), self.axes.linear(reduced)
        in_warps = kept == self.axes.active[: len(kept)] and WARP % lanes == 0 and total % WARP == 0
        joined = WARP // lanes if in_warps and count // (WARP // lanes) % groups == 0 else 1
        parts = count // joined
        # Where each group would have one part, one thread combines all.
        groups = 1 if parts <= groups else groups
        scatter = ScatterLayout(position, const(count), r.partials[0].size.value, groups, lane, const(lanes))
        stmts = warp_all_reduce(self.combiner, r, WARP, lanes) if joined > 1 else []
        slots = self._shared_slots(r, const(parts * lanes))
        per = parts // groups

        def own_parts(one: Reduce, at: list[Int]) -> list[Stmt]:
            def part(i: int, _: Int, k: Int) -> Value:
                return slots.read(i, at[i], (scatter.group * per + k) * lanes + lane)

            return self.combiner.combine_all(one, part, const(per), unroll=groups == 1)

        stored = self.combiner.store(r, slots.at(position // joined * lanes + lane))
        publish = guarded(equal(position % joined, 0), stored)
        joined_by = block_reduce_scatter(self.combiner, r, scatter, own_parts, all_reduce=all_reduce)
        self.owners[r] = joined_by
        return _ReductionSteps([*stmts, *slots.allocations, *publish], phases=joined_by.phases)
