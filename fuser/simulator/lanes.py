"""Which threads of a wave of blocks execute a statement, and how their values are laid out.

A *wave* is a number of blocks that run in lock step. A per-thread quantity is an int, or an array that broadcasts to
(blocks, threads): (1, threads) where it is the same for every block, (blocks, 1) where it is the same for a block.
Arrays are never changed in place once they are a value.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
# An index or a condition: a Python number where it is the same for all threads.
Index: TypeAlias = "int | Array"

# A record of an access, in one int64: thread number + 1, clock, access site. 0 stands for no access.
CLOCK_SHIFT = 12
THREAD_SHIFT = 36
SITE_MASK = (1 << CLOCK_SHIFT) - 1
CLOCK_MASK = (1 << (THREAD_SHIFT - CLOCK_SHIFT)) - 1
MAX_THREADS = 1 << (63 - THREAD_SHIFT)


def has_any(flags: Array) -> bool:
    """`flags.any()`, `flags` of whatever type. As are those below, it is called for each access of a small wave, which then
    takes as long as the calls of NumPy: this one takes a third of the time of its namesake."""
    return np.count_nonzero(flags) != 0


def positions(flags: Array) -> Array:
    """`np.flatnonzero(flags)`."""
    return flags.reshape(-1).nonzero()[0]


def in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """`np.broadcast_to(value, shape)`; most values have the shape."""
    return value if isinstance(value, np.ndarray) and value.shape == shape else np.broadcast_to(value, shape)


class Lanes:
    """The active threads of a wave; at least one is active.

    mask    (blocks, threads) bool, None if all are active
    flat    positions of the active threads in row-major order, None if all are active
    shape   shape of what `pick` gives: (blocks, threads), or (count,)
    """

    __slots__ = ("block", "column", "count", "flat", "mask", "record", "shape", "wave_shape")

    def __init__(
        self,
        wave_shape: tuple[int, int],
        mask: Array | None,
        count: int,
        record: Array,
        block: Array,
        whole: Lanes | None,
    ) -> None:
        self.wave_shape = wave_shape
        self.mask = mask
        self.count = count
        if mask is None or whole is None:
            self.flat: Array | None = None
            self.shape: tuple[int, ...] = wave_shape
            # Thread part of the record of each lane, and the position of its block in the wave.
            self.record = record
            self.block = block
            self.column: Array | None = None
        else:
            self.flat = positions(mask)
            self.shape = (count,)
            self.record = record.reshape(-1)[self.flat]
            self.block = self.flat // wave_shape[1]
            self.column = self.flat - self.block * wave_shape[1]

    @staticmethod
    def whole(first: int, blocks: int, threads: int) -> Lanes:
        """All threads of the blocks number `first`, `first + 1`, ... of the launch."""
        shape = (blocks, threads)
        numbers = np.arange(first * threads + 1, (first + blocks) * threads + 1, dtype=np.int64).reshape(shape)
        return Lanes(shape, None, blocks * threads, numbers << THREAD_SHIFT, np.arange(blocks)[:, None], None)

    def pick(self, value: Any) -> Any:
        """The values of the active threads, shaped so that they broadcast to `shape`."""
        if self.flat is None or not isinstance(value, np.ndarray) or value.ndim == 0:
            return value
        if value.shape == self.wave_shape:
            return value.reshape(-1)[self.flat]
        if value.shape == (1, self.wave_shape[1]):
            return value[0][self.column]
        if value.shape == (self.wave_shape[0], 1):
            return value[:, 0][self.block]
        return in_shape(value, self.wave_shape).reshape(-1)[self.flat]

    def spread(self, value: Any) -> Any:
        """Inverse of `pick`: a value of the wave, zeros where a thread is not active."""
        if self.flat is None or not isinstance(value, np.ndarray) or value.ndim == 0:
            return value
        result = np.zeros(self.wave_shape[0] * self.wave_shape[1], value.dtype)
        result[self.flat] = value
        return result.reshape(self.wave_shape)

    def where(self, condition: Any, whole: Lanes) -> Lanes | None:
        """The active threads for which the condition holds, None if there are none."""
        if not isinstance(condition, np.ndarray) or condition.ndim == 0:
            return self if condition else None
        if self.mask is None:
            chosen = condition
            if chosen.shape != self.wave_shape:
                chosen = in_shape(chosen, self.wave_shape)
        else:
            chosen = self.mask & condition
        count = int(np.count_nonzero(chosen))
        if count == self.count:
            return self
        if count == 0:
            return None
        return Lanes(self.wave_shape, chosen, count, whole.record, whole.block, whole)

    def unless(self, condition: Any, whole: Lanes) -> Lanes | None:
        """The active threads for which the condition does not hold, None if there are none."""
        if not isinstance(condition, np.ndarray) or condition.ndim == 0:
            return None if condition else self
        return self.where(~condition, whole)

    def position(self, wrong: Any) -> int:
        """Position in `shape`, row-major, of the first lane for which `wrong` holds."""
        return int(np.argmax(in_shape(wrong, self.shape)))

    def thread_record(self, position: int) -> int:
        """Thread part of the record of the lane at a position of `shape`."""
        return int(self.record.reshape(-1)[position])

    def value_at(self, value: Any, position: int) -> Any:
        """The element of a picked value that belongs to a position of `shape`."""
        return in_shape(value, self.shape).reshape(-1)[position]
