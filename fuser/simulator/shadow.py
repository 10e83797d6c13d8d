"""Who accessed a place last, and whether that access happened before the one at hand.

Happens-before. Two accesses to one place, one of them a write, by two threads, are a race unless the earlier one
*happened before* the later one. Only these edges count, whatever order the simulation ran in:

    program order     the same thread
    cluster barrier   every access of the blocks of a cluster before their ClusterArrive happens before every one after the
                      ClusterWait that follows, in all of them
    block barrier     every access of a block before its BlockBarrier happens before every one after it in that block
    warp barrier      the same within a warp
    publication       access by thread X; Fence by X; then either an AtomicAdd by X itself, or a BlockBarrier (for threads
                      of one warp: a WarpBarrier) and then an AtomicAdd by a thread of X's block: the AtomicAdd *publishes*
                      the access. A fence by another thread, or after the barrier, publishes nothing of X. An AtomicAdd that
                      releases (`release`) needs no fence: it publishes accesses of its own thread, and those of others of its
                      block before the last BlockBarrier.
    acquisition       an AtomicAdd or SpinWait on the same element that comes later *acquires* what was published there.
                      It becomes visible to a thread Y at a Fence by Y, if Y acquired it itself before that fence, or a
                      thread of its block did and a BlockBarrier stands between. It happens before Y's later accesses.
                      What an acquiring one (`acquire`) acquires is visible to its thread at once, and to the others of its
                      block (warp) behind the next BlockBarrier (WarpBarrier).
    transitivity      an AtomicAdd also publishes what had become visible to its own thread.
    coherence         an AtomicAdd, and every SpinWait of its thread on that element before it, happens before plain accesses
                      to the very same element by threads that acquired from it, fence or not.

Atomics on one element are no race among themselves; an atomic and a plain access are. A plain store to an element ends
its sequence of atomics: later ones acquire only from atomics after it.

A place is a unit of `unit` bytes, the least width with which the kernel accesses that memory. For every unit the shadow
keeps the last write and the latest readers. Two readers are enough where only block barriers order (the latest one, and the
latest by another thread); with warp barriers the second one is of another warp and a third one of the same warp.
Readers of several blocks that are not ordered among themselves are kept in a list. What is *not* exact: of the readers
of one block in one barrier interval, the latest two or three stand for all in the question what they fenced.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser.errors import InternalError
from fuser.simulator.lanes import CLOCK_MASK, CLOCK_SHIFT, SITE_MASK, THREAD_SHIFT, Array, has_any, positions

# (flat lane position, record of the earlier access)
Conflict = tuple[int, int]


class Clock:
    """Logical time of one launch and the barriers passed. Threads and blocks are numbered in the order of execution.

    An access carries the time at which it ran; a synchronisation starts a new time, so an access lies before it if and
    only if its time is less.
    """

    def __init__(self, blocks: int, threads: int, *, has_warp_barriers: bool) -> None:
        self.blocks = blocks
        self.threads = threads
        self.warps = -(-threads // 32)
        self.now = 1
        # Time of the last block barrier of every block; of the last warp barrier of every warp.
        self.block_time = np.zeros(blocks, np.int64)
        self.warp_time = np.zeros((blocks, self.warps), np.int64) if has_warp_barriers else None
        # Blocks of a cluster are numbered one after the other; time of the last cluster arrival that each waited for.
        self.cluster_size = 1
        self.cluster_time = np.zeros(blocks, np.int64)
        # Set where blocks communicate: (thread, thread) pairs with the time of the earlier access -> visible or not.
        self.is_visible: Callable[[Array, Array, Array], Array] | None = None

    def advance(self) -> int:
        """Start a new time and return it."""
        self.now += 1
        if self.now > CLOCK_MASK:
            raise InternalError("the simulated kernel synchronises too often for one launch", pass_name="simulator")
        return self.now

    def stamp(self, site: int) -> int:
        """The part of a record that is the same for all threads of an access."""
        return self.now << CLOCK_SHIFT | min(site, SITE_MASK)

    def unordered(self, earlier: Array, record: Array) -> Array | None:
        """Flat positions at which the access `earlier` did not happen before one by the thread of `record`.

        Two arrays of records of one shape, 0 where there is no earlier access. None if all are ordered.
        """
        if not has_any(earlier):
            return None
        candidates = positions(((earlier ^ record) >> THREAD_SHIFT != 0) & (earlier != 0))
        if candidates.size == 0:
            return None
        before = earlier.reshape(-1)[candidates]
        thread = (record.reshape(-1)[candidates] >> THREAD_SHIFT) - 1
        other = (before >> THREAD_SHIFT) - 1
        time = (before >> CLOCK_SHIFT) & CLOCK_MASK
        bad = self.concurrent(other, thread, time)
        return candidates[bad] if has_any(bad) else None

    def concurrent(self, other: Array, thread: Array, time: Array) -> Array:
        """Whether accesses by `other` at `time` are unordered with what `thread`, a different one, does now."""
        block = thread // self.threads
        same_block = other // self.threads == block
        bad = (time >= self.block_time[block]) | ~same_block
        if self.warp_time is not None and has_any(bad):
            warp = thread % self.threads // 32
            same_warp = same_block & (other % self.threads // 32 == warp)
            bad &= ~(same_warp & (time < self.warp_time[block, warp]))
        if self.cluster_size > 1 and has_any(bad):
            same_cluster = other // self.threads // self.cluster_size == block // self.cluster_size
            bad &= ~(same_cluster & (time < self.cluster_time[block]))
        if self.is_visible is not None and has_any(bad):
            some = positions(bad)
            bad[some] = ~self.is_visible(other[some], thread[some], time[some])
        return bad


class Shadow:
    """Last accesses of the units of one stretch of memory.

    `origin` is the byte, relative to the storage of the memory, at which unit 0 starts.
    """

    def __init__(self, clock: Clock, units: int, unit: int, origin: int = 0) -> None:
        self.clock = clock
        self.unit = unit
        self.origin = origin
        self.write_record = np.zeros(units, np.int64)
        # Made when the first thread reads.
        self.reader: Array | None = None
        self.second: Array | None = None
        self.third: Array | None = None
        # Readers of several blocks: units, records; and which units have some.
        self.spilled: list[tuple[Array, Array]] = []
        self.has_spilled: Array | None = None
        # Units that atomics touched since the last plain store.
        self.atomic: Array | None = None

    def grow(self, units: int) -> None:
        """Room for at least `units` units."""
        extra = units - len(self.write_record)
        if extra <= 0:
            return
        self.write_record = np.concatenate((self.write_record, np.zeros(extra, np.int64)))
        for name in ("reader", "second", "third"):
            found = getattr(self, name)
            if found is not None:
                setattr(self, name, np.concatenate((found, np.zeros(extra, np.int64))))
        for name in ("has_spilled", "atomic"):
            found = getattr(self, name)
            if found is not None:
                setattr(self, name, np.concatenate((found, np.zeros(extra, np.bool_))))

    def reset(self) -> None:
        """Forget everything: the memory starts a new life."""
        self.write_record[:] = 0
        self.reader = self.second = self.third = None
        self.spilled.clear()
        self.has_spilled = self.atomic = None

    def read(self, units: Array, record: Array) -> Conflict | None:
        """Note reads and return a write that they race with. `record` has the shape of `units`, stamped."""
        written = self.write_record[units]
        bad = self.clock.unordered(written, record)
        if bad is not None:
            return int(bad[0]), int(written.reshape(-1)[bad[0]])
        if self.reader is None or self.second is None:
            self.reader = np.zeros(len(self.write_record), np.int64)
            self.second = np.zeros(len(self.write_record), np.int64)
            if self.clock.warp_time is not None:
                self.third = np.zeros(len(self.write_record), np.int64)
        before = self.reader[units]
        self.reader[units] = record
        latest = self.reader[units]
        # Readers of the past, displaced by another thread.
        displaced = positions(((before ^ record) >> THREAD_SHIFT != 0) & (before != 0))
        if displaced.size:
            self._displace(units.reshape(-1)[displaced], before.reshape(-1)[displaced], record.reshape(-1)[displaced])
        # Readers of this very access that share a unit with the one that was kept.
        shared = positions((latest ^ record) >> THREAD_SHIFT)
        if shared.size:
            self._share(units.reshape(-1)[shared], record.reshape(-1)[shared], latest.reshape(-1)[shared])
        return None

    def _displace(self, units: Array, before: Array, record: Array) -> None:
        assert self.second is not None
        threads = self.clock.threads
        old = (before >> THREAD_SHIFT) - 1
        new = (record >> THREAD_SHIFT) - 1
        foreign = positions(old // threads != new // threads)
        if foreign.size:
            self._spill(units[foreign], before[foreign], record[foreign])
            for array in (self.second, self.third):
                if array is not None:
                    self._spill(units[foreign], array[units[foreign]], record[foreign])
        if self.third is None:
            self.second[units] = before
            return
        same_warp = (old // threads == new // threads) & (old % threads // 32 == new % threads // 32)
        previous = self.second[units]
        third = np.where(same_warp, before, 0)
        returning = ~same_warp & (previous != 0)
        if has_any(returning):
            # The second reader was of another warp than the first: it may be of the warp that reads now.
            past = (previous >> THREAD_SHIFT) - 1
            returning &= (
                (past // threads == new // threads) & (past % threads // 32 == new % threads // 32) & (past != new)
            )
            third = np.where(returning, previous, third)
        self.third[units] = third
        self.second[units] = np.where(same_warp, previous, before)

    def _share(self, units: Array, record: Array, latest: Array) -> None:
        assert self.second is not None
        threads = self.clock.threads
        lost = (record >> THREAD_SHIFT) - 1
        kept = (latest >> THREAD_SHIFT) - 1
        foreign = positions(lost // threads != kept // threads)
        if foreign.size:
            self._spill(units[foreign], record[foreign], latest[foreign])
        if self.third is None:
            self.second[units] = record
            return
        same_warp = (lost // threads == kept // threads) & (lost % threads // 32 == kept % threads // 32)
        self.third[units[same_warp]] = record[same_warp]
        self.second[units[~same_warp]] = record[~same_warp]

    def _spill(self, units: Array, records: Array, by: Array) -> None:
        """Keep readers that the new ones do not stand for because they are not ordered before them."""
        unordered = self.clock.unordered(records, by)
        if unordered is None:
            return
        if self.has_spilled is None:
            self.has_spilled = np.zeros(len(self.write_record), np.bool_)
        self.has_spilled[units[unordered]] = True
        self.spilled.append((units[unordered], records[unordered]))

    def write(self, units: Array, record: Array) -> Conflict | None:
        """Note writes and return an access that they race with, one by another thread in the same statement included."""
        conflict = self.check_write(units, record)
        if conflict is not None:
            return conflict
        self.write_record[units] = record
        kept = self.write_record[units]
        if not np.array_equal(kept, record):
            position = int(positions(kept != record)[0])
            return position, int(kept.reshape(-1)[position])
        if self.reader is not None and self.second is not None:
            self.reader[units] = 0
            self.second[units] = 0
            if self.third is not None:
                self.third[units] = 0
        return None

    def check_write(self, units: Array, record: Array) -> Conflict | None:
        """A plain access that writes or atomics by these threads race with."""
        for array in (self.write_record, self.reader, self.second, self.third):
            if array is None:
                continue
            before = array[units]
            bad = self.clock.unordered(before, record)
            if bad is not None:
                return int(bad[0]), int(before.reshape(-1)[bad[0]])
        if self.has_spilled is not None and has_any(self.has_spilled[units]):
            return self._check_spilled(units, record)
        return None

    def _check_spilled(self, units: Array, record: Array) -> Conflict | None:
        spilled_units = np.concatenate([pair[0] for pair in self.spilled])
        spilled_records = np.concatenate([pair[1] for pair in self.spilled])
        flat_units = units.reshape(-1)
        flat_record = record.reshape(-1)
        order = np.argsort(flat_units, kind="stable")
        place = np.searchsorted(flat_units[order], spilled_units)
        place = np.minimum(place, len(order) - 1)
        lane = order[place]
        hit = positions(flat_units[lane] == spilled_units)
        bad = self.clock.unordered(spilled_records[hit], flat_record[lane[hit]])
        if bad is not None:
            return int(lane[hit[bad[0]]]), int(spilled_records[hit[bad[0]]])
        return None
