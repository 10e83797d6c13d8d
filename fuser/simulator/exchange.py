"""Values on their way between the blocks of a cluster, and the counters that tell a block when its own have come.

A told store holds its value back: its destination has none, so that reading it is reported, until the block that it goes to
has waited for the counter. Then it is there for every thread of that block, each of which must wait: what a thread that did
not wait reads is not ordered behind the store. Telling counts as a write, too, so that earlier accesses must be ordered before.
A counter is good for one exchange, and must be set up before an arrival, relaxed or not, that all who use it have waited
for: the set-up has a fence of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.simulator.errors import Kind
from fuser.simulator.lanes import Array, Index, Lanes
from fuser.simulator.views import MemoryView, RunningWave


@dataclass(slots=True, eq=False)
class _Counter:
    """Of each block: bytes still to come (-1: not set up), and which set-up of the wave that was."""

    left: Array
    since: Array


@dataclass(slots=True, eq=False)
class _Store:
    """One statement's stores. `blocks` of the wave receive `values` at `places`."""

    counter: MemoryView
    view: MemoryView
    places: Array
    values: Array
    blocks: Array
    lanes: Lanes
    site: int


class Exchanges:
    """Told stores of a wave that no block has waited for."""

    def __init__(self, wave: RunningWave) -> None:
        self._wave = wave
        self._counters: dict[MemoryView, _Counter] = {}
        self._stores: list[_Store] = []
        self._setups = 0
        # Set-ups so far at the last arrival; and at the last one that each block has waited for.
        self._at_arrival = 0
        self._known = np.zeros(wave.blocks, np.int64)

    def arrive(self) -> None:
        """The threads arrive at a barrier of the cluster."""
        self._at_arrival = self._setups

    def enter(self, blocks: Array) -> None:
        """These blocks of the wave have waited for that arrival."""
        self._known[blocks] = self._at_arrival

    def expect(self, counter: MemoryView, nbytes: int, lanes: Lanes, site: int) -> None:
        """One active thread of each block sets up its counter."""
        wave = self._wave
        found = self._counters.setdefault(
            counter, _Counter(np.full(wave.blocks, -1, np.int64), np.zeros(wave.blocks, np.int64))
        )
        blocks = np.broadcast_to(lanes.block, lanes.shape).reshape(-1)
        if len(np.unique(blocks)) < len(blocks):
            wave.report(Kind.race, f"several threads of a block set up {counter.buffer.name}", 0, lanes, site)
        if (found.left[blocks] != -1).any():
            wave.report(Kind.race, f"{counter.buffer.name} is set up again", 0, lanes, site)
        self._setups += 1
        found.left[blocks] = nbytes
        found.since[blocks] = self._setups

    def tell(
        self, counter: MemoryView, view: MemoryView, index: Index, rank: Index, value: Any, lanes: Lanes, site: int
    ) -> None:
        """The active threads store into block `rank` of their clusters, and count the bytes there."""
        wave = self._wave
        places = view.forget_remote(index, rank, lanes, site)
        own = np.broadcast_to(lanes.block, lanes.shape)
        blocks = own - own % wave.cluster_size + np.broadcast_to(lanes.pick(rank), lanes.shape)
        found = self._ready(counter, blocks, lanes, site)
        np.subtract.at(found.left, blocks.reshape(-1), view.itemsize)
        if (found.left[blocks] < 0).any():
            message = f"more bytes come than {counter.buffer.name} waits for"
            wave.report(Kind.deadlock, message, lanes.position(found.left[blocks] < 0), lanes, site)
        values = np.broadcast_to(lanes.pick(value), lanes.shape).copy()
        self._stores.append(_Store(counter, view, places, values, blocks, lanes, site))

    def wait(self, counter: MemoryView, lanes: Lanes, site: int) -> None:
        """Every thread of the active blocks waits for the bytes of its counter."""
        wave = self._wave
        blocks = np.unique(lanes.block)
        arrived = wave.threads if lanes.mask is None else np.count_nonzero(lanes.mask, axis=1)[blocks]
        if np.any(arrived != wave.threads):
            message = f"some threads of a block do not wait for {counter.buffer.name}"
            wave.report(Kind.divergent_barrier, message, 0, lanes, site)
        found = self._ready(counter, blocks, lanes, site)
        if (found.left[blocks] != 0).any():
            left = int(found.left[blocks].max())
            wave.report(Kind.deadlock, f"{counter.buffer.name} waits for {left} more bytes", 0, lanes, site)
        kept: list[_Store] = []
        for store in self._stores:
            done = np.isin(store.blocks, blocks) if store.counter is counter else np.zeros(store.blocks.shape, np.bool_)
            if done.any():
                store.view.arrive(store.places[done], store.values[done])
            if not done.all():
                kept.append(store)
                store.places, store.values = store.places[~done], store.values[~done]
                store.blocks = store.blocks[~done]
        self._stores = kept

    def is_telling(self, view: MemoryView) -> bool:
        """Whether a store into some element of a buffer is on its way."""
        return any(s.view is view for s in self._stores)

    def finish(self) -> None:
        """Report a store that its receiver has not waited for when it ends."""
        for store in self._stores:
            message = f"a value told to {store.view.buffer.name} is on its way when its block ends"
            self._wave.report(Kind.lost_copy, message, 0, store.lanes, store.site)

    def _ready(self, counter: MemoryView, blocks: Array, lanes: Lanes, site: int) -> _Counter:
        """The counter, known by all threads that are here to be set up in `blocks`."""
        wave = self._wave
        found = self._counters.get(counter)
        if found is None or (found.left[blocks] < 0).any():
            wave.report(Kind.uninitialised_read, f"{counter.buffer.name} was never set up", 0, lanes, site)
        own = np.unique(lanes.block)
        if found.since[blocks].max() > self._known[own].min():
            message = f"{counter.buffer.name} is used with no barrier of the cluster since it was set up"
            wave.report(Kind.race, message, 0, lanes, site)
        return found
