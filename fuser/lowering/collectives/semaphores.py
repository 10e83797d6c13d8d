"""The counters in global memory by which blocks synchronise. Part of the pass expand_collectives.

They are zero when a kernel starts; the protocol that allocates some resets them to zero before the kernel ends.
"""

from __future__ import annotations

from fuser.ir.integers.integers import ZERO, Int, prove_divisible
from fuser.ir.kernel.kernel import Buffer
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY


class Semaphores:
    """`buffer` of Int32, with as many elements as were allocated."""

    def __init__(self) -> None:
        self.buffer = Buffer("semaphores", DataType.Int32, GLOBAL_MEMORY, ZERO)
        self._count: Int = ZERO
        self._is_taken = False

    def allocate(self, count: Int | int) -> Int:
        """Allocates `count` elements; the index of the first."""
        base = self._count
        self._is_taken = True
        self._count = base + count
        return base

    def allocate_pairs(self, count: Int | int) -> Int:
        """The same for pairs of words: an even index, and an even number of words."""
        if not prove_divisible(self._count, 2):
            self._count = (self._count + 1) // 2 * 2
        return self.allocate(count)

    def allocated_buffer(self) -> Buffer | None:
        """The buffer, with its size, which is 0 if there is nothing to reduce; None if no collective needs one."""
        if not self._is_taken:
            return None
        object.__setattr__(self.buffer, "size", self._count)
        return self.buffer
