"""`Slots`: where partial results are left for the threads that combine them. Part of the pass expand_collectives.

Every level of a reduction does the same: it leaves the values of its peers (warps of a block, blocks of a cluster or of the
grid) side by side in shared memory or a workspace, and combines what is there.
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import ZERO, Int
from fuser.ir.kernel.kernel import Allocate, Buffer, Load, Reduce, Stmt
from fuser.ir.ops.enums import CacheOp, MemoryType
from fuser.records import record


@record(eq=False)
class Slots:
    """`count` slots for each element of every partial of a reduction.

    exchange   which of the exchanges that the buffers have room for this is
    """

    reduce: Reduce
    buffers: tuple[Buffer, ...]
    count: Int
    exchange: Int = ZERO

    def place(self, i: int, e: Int, slot: Int) -> Int:
        """Index of a slot of element e of partial i."""
        return (self.exchange * self.reduce.partials[i].size + e) * self.count + slot

    def at(self, slot: Int) -> Callable[[int, Int], tuple[Buffer, Int]]:
        """Where element e of partial i is stored, as `PartialCombiner.store` asks."""
        return lambda i, e: (self.buffers[i], self.place(i, e, slot))

    def read(self, i: int, e: Int, slot: Int, cache: CacheOp = CacheOp.unspecified) -> Load:
        """What is in a slot of element e of partial i."""
        return Load(self.buffers[i], self.place(i, e, slot), cache)

    def single(self, i: int, e: Int) -> Load:
        """What is in the only slot of element e of partial i."""
        return self.read(i, e, ZERO)

    @property
    def allocations(self) -> list[Stmt]:
        return [Allocate(b) for b in self.buffers]


def shared_slots(r: Reduce, what: str, count: Int, exchanges: int = 1, exchange: Int = ZERO) -> Slots:
    """Slots in shared memory, in buffers named by `what` they are for."""
    buffers = (Buffer(f"{p.name}_{what}", p.dtype, MemoryType.shared, p.size * count * exchanges) for p in r.partials)
    return Slots(r, tuple(buffers), count, exchange)
