"""Copies from device to shared memory that go on while their threads do.

A copy that was started holds its bytes back: its destination has no value, so that reading it is reported, until the thread
that started it has waited for the group that the copy is in. Only then are they written, as by that thread: another one needs
a barrier behind the wait. Starting a copy counts as a write, too, so that earlier accesses by others must be ordered before it.

Its source is read from the start to the wait: whoever writes it in between races with the copy, barriers or not, the thread
that started it included, and what others write later must be ordered behind the wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuser.simulator.errors import Kind
from fuser.simulator.lanes import Array, Index, Lanes
from fuser.simulator.views import MemoryView, RunningWave


@dataclass(slots=True, eq=False)
class _Copy:
    """One statement's copies by some threads.

    rows        (blocks, threads, width) what is copied
    source      where from
    read        (blocks, threads, units) of the source's shadow; None where nothing writes it
    written     (blocks, threads, units) their last writes when the copies were started
    group       (blocks, threads) number of the group of its thread that each is in
    left        (blocks, threads) whose copies are on their way
    read_site   of the read, `site` of the write
    """

    view: MemoryView
    index: Index
    rows: Array
    source: MemoryView
    read: Array | None
    written: Array | None
    group: Array
    left: Array
    read_site: int
    site: int


class AsyncCopies:
    """The copies of a wave that are on their way."""

    def __init__(self, wave: RunningWave) -> None:
        self._wave = wave
        self._copies: list[_Copy] = []
        # How many groups each thread has committed.
        self._groups = np.zeros((wave.blocks, wave.threads), np.int64)

    def start(
        self,
        view: MemoryView,
        index: Index,
        source: MemoryView,
        origin: Index,
        width: int,
        cut: bool,
        lanes: Lanes,
        read_site: int,
        site: int,
    ) -> None:
        """The active threads start to copy `width` elements from `origin` of the source to `index` and following."""
        rows = (source.load_cut if cut else source.load_row)(origin, width, lanes, read_site)
        units = source.units_of_row(origin, width, lanes, read_site)
        written = None if units is None else self._whole(source.written_last(units), lanes)
        read = None if units is None else self._whole(units, lanes)
        view.forget_row(index, width, lanes, site)
        left = np.ones(self._groups.shape, np.bool_) if lanes.mask is None else lanes.mask.copy()
        whole, group = self._whole(rows, lanes), self._groups.copy()
        self._copies.append(_Copy(view, index, whole, source, read, written, group, left, read_site, site))

    def _whole(self, rows: Array, lanes: Lanes) -> Array:
        """What the active threads have, of shape (*lanes.shape, width), among all threads."""
        if lanes.flat is None:
            return rows
        blocks, threads = self._groups.shape
        whole = np.zeros((blocks * threads, rows.shape[-1]), rows.dtype)
        whole[lanes.flat] = rows
        return whole.reshape(blocks, threads, -1)

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
                if copy.read is not None and copy.written is not None:
                    copy.source.end_reads(_part(copy.read, who), _part(copy.written, who), who, copy.read_site)
                copy.view.store_row(copy.index, _part(copy.rows, who), who, copy.site)
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


def _part(rows: Array, lanes: Lanes) -> Array:
    """What the active threads have of `rows` of all."""
    return rows if lanes.flat is None else rows.reshape(-1, rows.shape[-1])[lanes.flat]
