"""The barrier of the whole grid. Part of the pass expand_collectives.

Before: GridBarrier(slot, slots)
After:  one counter that every block increments and waits for. The counter only grows: barrier number `slot` waits until every
        block has incremented it that many times. At the end of the kernel each block increments it once more, and the last one
        resets it to zero.
"""

from __future__ import annotations

from fuser.ir.integers.integers import ONE, Int
from fuser.ir.kernel.kernel import AtomicAdd, BlockBarrier, GridBarrier, SpinWait, Stmt
from fuser.lowering.collectives.semaphores import Semaphores
from fuser.lowering.parallel_axes import ParallelAxes, guarded


class GridBarrierExpander:
    """All barriers of a kernel, which share one counter."""

    def __init__(self, axes: ParallelAxes, semaphores: Semaphores) -> None:
        self._axes = axes
        self._semaphores = semaphores
        # The counter, and the number of barriers that it counts.
        self._arrivals: tuple[Int, Int] | None = None

    def expand(self, barrier: GridBarrier) -> list[Stmt]:
        """Every block adds one to a counter that only grows, and waits until it is that of the barrier."""
        if self._arrivals is None:
            self._arrivals = self._semaphores.allocate(1), barrier.slots
        at, _ = self._arrivals
        blocks = self._axes.count_of(self._axes.grid)
        one_thread = self._axes.is_first_thread
        wait: list[Stmt] = [
            AtomicAdd(None, self._semaphores.buffer, at, ONE, release=True),
            SpinWait(self._semaphores.buffer, at, blocks * (barrier.slot + 1), acquire=True),
        ]
        if not self._axes.active:
            return wait
        return [
            BlockBarrier(barrier.reason),
            *guarded(one_thread, wait),
            BlockBarrier("all blocks have arrived"),
        ]

    def reset_counter(self) -> list[Stmt]:
        """Statements at the end of the kernel: every block adds one more, and the last one resets the counter."""
        if self._arrivals is None:
            return []
        at, slots = self._arrivals
        blocks = self._axes.count_of(self._axes.grid)
        again = AtomicAdd(None, self._semaphores.buffer, at, ONE, wrap=blocks * (slots + 1))
        return guarded(self._axes.is_first_thread, [again])
