"""Turn every collective into shuffles, shared exchanges, atomics and fences.

Before: Reduce(t3_partial, add, block=(block_x), grid=())
After:  butterflies inside a warp; one shared slot per warp, read by every thread; across blocks one partial per block in a
        workspace, one semaphore, and the last block (or, after a wait, every block) sums the partials in block order.
        Reductions over the same blocks share the semaphore, so that one last block has all their results.
        A GridBarrier is one counter that every block increments and waits for; the last block to leave resets it.

This file walks over the body; each level of a reduction, and each other collective, has a file (collectives/__init__.py).

Placed before allocate_shared and insert_syncs, which treat scratch memory like any other shared buffer. Only the barriers of
protocols between blocks, which order fences and not shared accesses, are inserted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel.kernel import Buffer, For, GridBarrier, If, Reduce, Scan, Stmt, map_child_bodies
from fuser.ir.ops.enums import ParallelType
from fuser.lowering.collectives.expand_block import BlockReduceExpander
from fuser.lowering.collectives.expand_block_group import BlockGroupReduceExpander
from fuser.lowering.collectives.expand_cluster import (
    ClusterExchange,
    enter_cluster,
    reduce_in_cluster,
    signalled_buffers,
)
from fuser.lowering.collectives.expand_flagged import FlaggedReduceExpander
from fuser.lowering.collectives.expand_grid import GridReduceExpander
from fuser.lowering.collectives.expand_grid_barrier import GridBarrierExpander
from fuser.lowering.collectives.expand_scan import expand_scan
from fuser.lowering.collectives.expand_scan_cluster import expand_scan_of_cluster
from fuser.lowering.collectives.fuse_collectives import check_last_blocks, fuse_collectives
from fuser.lowering.collectives.grid_partials import Workspaces
from fuser.lowering.collectives.semaphores import Semaphores
from fuser.lowering.combiners.combine_partials import PartialCombiner
from fuser.lowering.name_counter import NameCounter
from fuser.lowering.parallel_axes import ParallelAxes

_NO_CLUSTER: Mapping[ParallelType, int] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Expanded:
    """The body without collectives, and what the launch must supply.

    signalled    shared buffers that each thread reads after a wait of its own instead of a barrier
    """

    body: tuple[Stmt, ...]
    workspaces: list[Buffer] = field(default_factory=list)
    semaphores: Buffer | None = None
    signalled: frozenset[str] = frozenset()


def expand_collectives(
    body: tuple[Stmt, ...],
    threads: Mapping[ParallelType, Symbol],
    sizes: Mapping[ParallelType, Int],
    cluster: Mapping[ParallelType, int] = _NO_CLUSTER,
) -> Expanded:
    """Expand every collective of a body.

    threads, sizes   index and extent of each parallel axis of the kernel
    cluster          blocks of a cluster along a grid axis
    """
    axes = ParallelAxes(threads, sizes, NameCounter(body))
    expander = _Expander(axes, cluster)
    result = expander.expand_kernel(body)
    if cluster:
        result = enter_cluster(result, axes.thread)
    check_last_blocks(result, expander.grid.last_blocks, frozenset())
    signalled = signalled_buffers(result) if cluster else frozenset[str]()
    return Expanded(result, expander.workspaces.buffers, expander.semaphores.allocated_buffer(), signalled)


def _executions(outer: Int | None, loop: For) -> Int | None:
    """How often the body of a loop ran before, of which `outer` counts the executions."""
    if outer is None or loop.start is not ZERO or loop.step is not ONE:
        return None
    return outer * loop.stop + loop.symbol


class _Expander:
    def __init__(self, axes: ParallelAxes, cluster: Mapping[ParallelType, int]) -> None:
        self.axes = axes
        self.cluster = cluster
        # How often the statements at hand ran before; None where that is not known.
        self.execution: Int | None = ZERO
        self.workspaces = Workspaces(axes)
        self.semaphores = Semaphores()
        self.combiner = combiner = PartialCombiner(axes)
        self.block = BlockReduceExpander(axes, combiner)
        self.posts = FlaggedReduceExpander(self.block, self.semaphores, cluster)
        self.grid = GridReduceExpander(self.block, self.workspaces, self.semaphores, self.posts)
        self.groups = BlockGroupReduceExpander(combiner, self.workspaces, self.semaphores)
        self.barriers = GridBarrierExpander(axes, self.semaphores)

    def expand_kernel(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The body of a kernel without collectives."""
        body = self.expand_body(stmts)
        return (*self.posts.flags, *body, *self.groups.reset_counters(), *self.barriers.reset_counter())

    def expand_body(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements without collectives."""
        result: list[Stmt] = []
        for item in fuse_collectives(stmts):
            match item:
                case tuple():
                    result += self._reduced(item)
                case Reduce():
                    result += self._reduced((item,))
                case GridBarrier():
                    result += self.barriers.expand(item)
                case Scan():
                    result += self._scanned(item)
                case For() | If():
                    outer = self.execution
                    self.execution = _executions(outer, item) if isinstance(item, For) else None
                    result.append(map_child_bodies(item, self.expand_body))
                    self.execution = outer
                case _:
                    result.append(item)
        return tuple(result)

    def _reduced(self, reduces: Sequence[Reduce]) -> list[Stmt]:
        """Reductions over the same threads and blocks."""
        r = reduces[0]
        if self.groups.applies_to(r):
            return self.groups.expand(reduces)
        stmts: list[Stmt] = []
        if r.cluster_axes:
            stmts += reduce_in_cluster(reduces, self.block, self.cluster, execution=self.execution)
        elif r.block_axes:
            # Threads that own a result publish it themselves, and the results of all blocks are broadcast anew.
            stmts += self.block.expand(reduces, all_reduce=not r.grid_axes or len(reduces) > 1)
        if r.grid_axes:
            stmts += self.grid.expand(reduces)
        return stmts

    def _scanned(self, scan: Scan) -> list[Stmt]:
        if not scan.cluster_axes:
            return expand_scan(scan, self.axes)
        (axis,) = scan.cluster_axes
        size = self.cluster[axis]
        exchange = ClusterExchange(self.axes, size, self.axes.threads[axis] % size, self.execution)
        return expand_scan_of_cluster(scan, self.axes, exchange)
