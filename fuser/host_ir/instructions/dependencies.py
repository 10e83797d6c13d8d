"""Which commands must wait for which, from the bytes that they read and write.

Commands come in program order. One waits for an earlier one if they touch a byte in common and at least one of them writes it:
read after write, write after read, write after write. What follows from other edges is left out.

    a writes x; b reads x; c reads x; d writes x        edges a-b, a-c, b-d, c-d; a-d follows from them
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Bytes [first, past the last)."""


@dataclass(frozen=True, slots=True)
class _State:
    """What touched the bytes from one boundary to the next: who wrote them last, and who has read them since."""

    writer: int | None
    readers: tuple[int, ...]


class Dependencies:
    """The edges of a sequence of commands, made as they come.

    Memory is what is still open: the last writer of each run of bytes and its readers since. A run is as long as its state is
    the same, so that there are at most two boundaries for each range that was ever given.
    """

    def __init__(self) -> None:
        # Of each run of bytes its first byte, and its state. The run of the last boundary has no end.
        self._firsts: list[int] = []
        self._states: list[_State] = []
        # Of each command a bit for every other that it comes after, by any path.
        self._before: list[int] = []

    def add(self, reads: Iterable[Range], writes: Iterable[Range]) -> tuple[int, ...]:
        """The numbers of the commands that the next command waits for, ascending. Empty ranges touch nothing.

        Raises ValueError for a range that ends before it begins.
        """
        number = len(self._before)
        found = 0
        reads, writes = list(reads), list(writes)
        for first, end in (*reads, *writes):
            if end < first:
                raise ValueError(f"the bytes [{first}, {end}) end before they begin")
        for first, end in reads:
            for k in self._runs(first, end):
                found |= _bit(self._states[k].writer)
        for first, end in writes:
            for k in self._runs(first, end):
                state = self._states[k]
                found |= _bit(state.writer)
                for reader in state.readers:
                    found |= 1 << reader
        behind = 0
        for k in _bits(found):
            behind |= self._before[k]
        direct = found & ~behind
        self._before.append(found | behind)
        for first, end in reads:
            for k in self._runs(first, end):
                state = self._states[k]
                if number not in state.readers:
                    # Readers that this one comes after need not be waited for by name.
                    open_readers = (r for r in state.readers if not self._before[number] >> r & 1)
                    self._states[k] = _State(state.writer, (*open_readers, number))
        for first, end in writes:
            runs = self._runs(first, end)
            if runs:
                # One state for all the bytes: the boundaries between them go.
                keep = runs[0]
                self._states[keep] = _State(number, ())
                del self._firsts[keep + 1 : runs[-1] + 1]
                del self._states[keep + 1 : runs[-1] + 1]
        return tuple(_bits(direct))

    def writers(self, first: int, end: int) -> tuple[int, ...]:
        """The numbers of the commands that wrote bytes last, ascending."""
        found = 0
        for k in self._runs(first, end):
            found |= _bit(self._states[k].writer)
        return tuple(_bits(found))

    def comes_after(self, later: int, earlier: int) -> bool:
        """Whether a command waits for another, itself or by way of others."""
        return bool(self._before[later] >> earlier & 1)

    def _runs(self, first: int, end: int) -> range:
        """The runs that make up some bytes, cut so that they are these bytes and no more."""
        if first == end:
            return range(0)
        low = self._cut(first)
        return range(low, self._cut(end))

    def _cut(self, at: int) -> int:
        """The run that begins at a byte, made if none does."""
        k = bisect_left(self._firsts, at)
        if k == len(self._firsts) or self._firsts[k] != at:
            self._firsts.insert(k, at)
            # Before the first boundary nothing was touched.
            state = self._states[k - 1] if k else _State(None, ())
            self._states.insert(k, state)
        return k


def _bit(number: int | None) -> int:
    return 0 if number is None else 1 << number


def _bits(mask: int) -> list[int]:
    """The numbers whose bits are set, ascending."""
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
