"""The parallel axes of a kernel: the position of a thread and a block, and unique names of symbols. Part of the pass
expand_collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fuser.ir.integers.integers import ONE, TRUE, ZERO, Cond, Int, Symbol, all_of, equal, symbol
from fuser.ir.kernel.kernel import If, Role, Stmt
from fuser.ir.ops.enums import BLOCK_TYPES, GRID_TYPES, ParallelType
from fuser.lowering.name_counter import NameCounter

WARP = 32


class ParallelAxes:
    """Index and extent of each parallel axis of a kernel.

    threads, sizes   index along an axis, and its extent
    active           axes of a block with more than one thread, the fastest first
    """

    def __init__(
        self,
        threads: Mapping[ParallelType, Symbol],
        sizes: Mapping[ParallelType, Int],
        number: Callable[[], int] | None = None,
    ) -> None:
        self.threads = threads
        self.sizes = sizes
        self.active = [p for p in BLOCK_TYPES if p in sizes and sizes[p] is not ONE]
        self._fresh = number or NameCounter()

    @property
    def grid(self) -> list[ParallelType]:
        """Axes of the grid that the kernel has, the fastest first."""
        return [p for p in GRID_TYPES if p in self.sizes]

    @property
    def thread(self) -> Int:
        """Linear index of the thread in its block."""
        return self.linear(self.active)

    @property
    def block_threads(self) -> Int:
        """Threads of a block."""
        return self.count_of(self.active)

    @property
    def is_first_thread(self) -> Cond:
        """Whether the thread is the first of its block."""
        return self.is_first(self.active)

    def is_first(self, axes: Sequence[ParallelType]) -> Cond:
        """Whether the thread is the first along some axes."""
        return all_of(*(equal(self.threads[p], 0) for p in axes))

    def linear(self, axes: Sequence[ParallelType], index: Mapping[ParallelType, Int] | None = None) -> Int:
        """Position among `axes`, the first one fastest; at `index`, if given."""
        position: Int = ZERO
        for p in reversed(axes):
            position = position * self.sizes[p] + (index[p] if index else self.threads[p])
        return position

    def thread_at(self, axes: Sequence[ParallelType], position: Int) -> Int:
        """Linear index of the thread that is at a position along some axes, the first one fastest, and where this one is along
        the others."""
        index: dict[ParallelType, Int] = {p: self.threads[p] for p in self.active}
        for p in axes:
            index[p] = position % self.sizes[p] if p is not axes[-1] else position
            position = position // self.sizes[p]
        return self.linear(self.active, index)

    def count_of(self, axes: Sequence[ParallelType]) -> Int:
        """Threads or blocks along some axes."""
        count: Int = ONE
        for p in axes:
            count = count * self.sizes[p]
        return count

    def number(self) -> int:
        """A number that no name has yet."""
        return self._fresh()

    def symbol(self, prefix: str, extent: Int) -> Symbol:
        """A new index below an extent."""
        hi = extent.hi - 1 if extent.hi is not None and extent.hi >= 1 else None
        return symbol(f"{prefix}{self.number()}", 0, hi, below=extent)


def guarded(condition: Cond, stmts: list[Stmt], role: Role = Role.owner) -> list[Stmt]:
    """Statements that run only where a condition holds."""
    return stmts if condition is TRUE else [If(condition, tuple(stmts), role=role)]


def power_of_two(count: int) -> int:
    """The least one that is not below `count`."""
    return 1 << (count - 1).bit_length()
