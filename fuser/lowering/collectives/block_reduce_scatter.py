"""Reduce-scatter in a block: several results at once, each thread combining a share of the partial results of one of them.
Part of the pass expand_collectives.

A block of T threads has P partial results of each of E results for each of L lanes. Each thread combines P * E * L / T
partial results of one result of one lane. Groups of threads store what they have combined to shared memory, and for each
result and lane one thread, its owner, combines that: two short dependent chains instead of one of length P, during which T -
E * L threads would be idle.

    group g of G = T / (E * L):  found[e, g, lane] = parts g, g + G, ...   (or g * P / G, ... for parts in order)
    group 0:                     result[e, lane] = found[e, 0, lane] ... found[e, G - 1, lane]

The order of additions is fixed, so that results are reproducible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Cond, Int, const, equal, less, prove_less_equal
from fuser.ir.kernel.kernel import Allocate, Buffer, If, Load, Reduce, Role, Stmt, Store
from fuser.ir.ops.dtypes import DataType
from fuser.lowering.collectives.slots import shared_slots
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_shared_count
from fuser.records import record


@record(eq=False)
class ScatterLayout:
    """The position of a thread among those that combine.

    position      among the threads of its lane, of which groups * size have work
    threads       number of threads of a lane
    size          number of results of a lane
    lane, lanes   the lane, and the number of lanes
    """

    position: Int
    threads: Int
    size: int
    groups: int
    lane: Int
    lanes: Int

    @property
    def element(self) -> Int:
        """The result that the thread combines."""
        return self.position % self.size

    @property
    def owner(self) -> Cond:
        """Whether the thread is the one that stores a result."""
        return less(self.position, self.size)

    @property
    def group(self) -> Int:
        """The group whose parts it combines."""
        return ZERO if self.groups == 1 else self.position // self.size


_OWN_PARTS = 16
"""With fewer threads for a single result, every thread combines it by itself."""
_MIN_GROUPS = 2
_MAX_GROUPS = 8
"""With more, the second step would be as long as the first."""


@record(eq=False)
class BlockScatterResult:
    """Statements after which every thread has all results of its lane. A thread for which `owner` holds has one of them, and
    `stored(at)` the statements that store it (see `PartialCombiner.store`).

    phases    the statements, split where threads read what others have stored: equal phases of several reductions may be placed
              together, so that they share a barrier
    """

    phases: tuple[list[Stmt], ...]
    owner: Cond
    stored: Callable[[Callable[[int, Int], tuple[Buffer, Int]]], list[Stmt]]

    @property
    def stmts(self) -> list[Stmt]:
        """All of them."""
        return [s for phase in self.phases for s in phase]


def scatter_groups(r: Reduce, threads: Int, lanes: Int) -> int:
    """The number of groups of threads, each with one thread for every result of a lane; 0 if there are not several, or if
    sizes are not known.

    The number of groups divides that of the threads, so that each thread combines equally many partial results. 0 also for a
    single result without lanes or with few threads (a warp combines these by butterflies, or every thread reads all of them),
    and for a single result of statistics in Double, which every step rounds again.
    """
    size = r.partials[0].size
    if not (threads.is_const and size.is_const) or threads.value % size.value:
        return 0
    is_rounded = r.combine == "welford" and r.partials[0].dtype is DataType.Double
    if size.value == 1 and (lanes is ONE or threads.value < _OWN_PARTS or is_rounded):
        return 0
    most = min(threads.value // size.value, _MAX_GROUPS)
    return next((n for n in range(most, _MIN_GROUPS - 1, -1) if threads.value % n == 0), 0)


def block_reduce_scatter(
    combiner: PartialCombiner,
    r: Reduce,
    scatter: ScatterLayout,
    first: Callable[[Reduce, list[Int]], list[Stmt]],
    *,
    all_reduce: bool = True,
) -> BlockScatterResult:
    """Combine in two steps, or in one if there is one group. With `all_reduce` every thread gets all results of its lane, else
    only their owners do.

    first(r, at)   combines the partial results of the thread's group into partials of one element: element at[i] of partial i
    """
    own = combiner.own(r)
    one = replace(r, partials=own)
    lanes, groups, lane = scatter.lanes, scatter.groups, scatter.lane
    found = shared_slots(r, f"shared{combiner.axes.number()}", lanes * groups) if groups > 1 else None
    results = shared_slots(r, f"shared{combiner.axes.number()}", lanes) if all_reduce else None
    at = [ZERO if is_shared_count(r, i) else scatter.element for i in range(len(own))]

    def stored(into: Callable[[int, Int], tuple[Buffer, Int]]) -> list[Stmt]:
        stmts: list[Stmt] = []
        for i, b in enumerate(own):
            store = Store(*into(i, at[i]), Load(b, ZERO))
            alike = If(equal(scatter.element, 0), (store,), role=Role.owner)
            stmts.append(alike if is_shared_count(r, i) else store)
        return stmts

    in_groups: list[Stmt] = [Allocate(b) for b in own]
    if found is None:
        last = first(one, at)
    else:
        last = combiner.combine_all(
            one, lambda i, _, k: found.read(i, at[i], k * lanes + lane), const(groups), unroll=True
        )
        work = [*first(one, at), *stored(found.at(scatter.group * lanes + lane))]
        busy = less(scatter.position, groups * scatter.size)
        all_busy = prove_less_equal(scatter.threads, const(groups * scatter.size))
        in_groups += [*found.allocations, *(work if all_busy else [If(busy, tuple(work), role=Role.owner)])]
    by_owners: list[Stmt] = []
    read: list[Stmt] = []
    if results is not None:
        # At a place of their own while others still read the parts: else a barrier would have to come between.
        by_owners += results.allocations
        last += stored(results.at(lane))
        read = combiner.load(r, lambda i, e: results.read(i, e, lane))
    by_owners += [If(scatter.owner, tuple(last), role=Role.owner)] if last else []
    return BlockScatterResult((in_groups, by_owners, read), scatter.owner, stored)
