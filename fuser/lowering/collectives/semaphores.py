"""The counters in device memory that blocks meet by. Part of the pass expand_collectives.

They are zero when a kernel starts, and whoever takes some has them set back to zero before it ends.
"""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY
from fuser.ir.integers import ZERO, Int, prove_divisible
from fuser.ir.kernel import Buffer


class Semaphores:
    """`buffer` of Int32, with as many elements as were taken."""

    def __init__(self) -> None:
        self.buffer = Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, ZERO)
        self._count: Int = ZERO
        self._is_taken = False

    def take(self, count: Int | int) -> Int:
        """Index of the first of `count` more."""
        base = self._count
        self._is_taken = True
        self._count = base + count
        return base

    def take_pairs(self, count: Int | int) -> Int:
        """The same for pairs of words: an even index, and an even number of words."""
        if not prove_divisible(self._count, 2):
            self._count = (self._count + 1) // 2 * 2
        return self.take(count)

    def taken(self) -> Buffer | None:
        """The buffer, with its size; None where no collective needs one. Where there is nothing to reduce its size is 0."""
        if not self._is_taken:
            return None
        object.__setattr__(self.buffer, "size", self._count)
        return self.buffer
