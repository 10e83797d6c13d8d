"""Copies from device to shared memory that go on while their threads do.

A copy that was started holds its bytes back: its destination has no value, so that reading it is reported, until the thread
that started it has waited for the group that the copy is in. Only then are they written, as by that thread: another one needs
a barrier behind the wait. Starting a copy counts as a write, too, so that earlier accesses by others must be ordered before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fuser.simulator.errors import Kind
from fuser.simulator.lanes import Array, Index, Lanes
from fuser.simulator.views import MemoryView

if TYPE_CHECKING:
    from fuser.simulator.wave import Wave


@dataclass(slots=True, eq=False)
class _Copy:
    """One statement's copies by some threads.

    rows    (blocks, threads, width) what is copied
    group   (blocks, threads) number of the group of its thread that each is in
    left    (blocks, threads) whose copies are on their way
    """

    view: MemoryView
    index: Index
    rows: Array
    group: Array
    left: Array
    site: int


class AsyncCopies:
    """The copies of a wave that are on their way."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave
        self._copies: list[_Copy] = []
        # How many groups each thread has committed.
        self._groups = np.zeros((wave.blocks, wave.threads), np.int64)

    def start(self, view: MemoryView, index: Index, rows: Array, lanes: Lanes, site: int) -> None:
        """The active threads start to copy `rows`, of shape (*lanes.shape, width), to `index` and following."""
        width = rows.shape[-1]
        view.forget_row(index, width, lanes, site)
        shape = self._groups.shape
        if lanes.flat is None:
            whole, left = rows, np.ones(shape, np.bool_)
        else:
            whole = np.zeros((shape[0] * shape[1], width), rows.dtype)
            whole[lanes.flat] = rows
            whole = whole.reshape(*shape, width)
            assert lanes.mask is not None
            left = lanes.mask.copy()
        self._copies.append(_Copy(view, index, whole, self._groups.copy(), left, site))

    def commit(self, lanes: Lanes) -> None:
        """What the active threads have started since their last commit becomes a group."""
        if lanes.mask is None:
            self._groups += 1
        else:
            self._groups += lanes.mask

    def wait(self, pending: int, lanes: Lanes) -> None:
        """All groups of the active threads but the latest `pending` are there."""
        kept: list[_Copy] = []
        for copy in self._copies:
            done = copy.left & (copy.group < self._groups - pending)
            if lanes.mask is not None:
                done &= lanes.mask
            who = self._wave.lanes.where(done, self._wave.lanes)
            if who is not None:
                rows = copy.rows
                if who.flat is not None:
                    rows = rows.reshape(-1, rows.shape[-1])[who.flat]
                copy.view.store_row(copy.index, rows, who, copy.site)
                copy.left &= ~done
            if copy.left.any():
                kept.append(copy)
        self._copies = kept

    def is_filling(self, view: MemoryView) -> bool:
        """Whether a copy to some element of a buffer is on its way."""
        return any(copy.view is view for copy in self._copies)

    def finish(self) -> None:
        """Report a copy that nobody has waited for when the blocks end."""
        for copy in self._copies:
            lanes = self._wave.lanes.where(copy.left, self._wave.lanes)
            assert lanes is not None
            message = f"a copy to {copy.view.buffer.name} is on its way when its block ends"
            self._wave.report(Kind.lost_copy, message, 0, lanes, copy.site)
