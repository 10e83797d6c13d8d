"""How threads of different blocks come to be ordered: fences, atomics and waits (the rules stand in `shadow`).

Every element that atomics touch has a log. An AtomicAdd appends what its thread publishes: for each thread of its block
the time before which that thread's accesses are published. To acquire means to remember how far the log went. A *version*
is a set of such log positions that became visible to a thread at a fence; threads that saw the same share it.
"""

from __future__ import annotations

import numpy as np

from fuser.records import record
from fuser.simulator.lanes import CLOCK_MASK, CLOCK_SHIFT, THREAD_SHIFT, Array, Lanes, has_any
from fuser.simulator.shadow import Clock, Shadow

# (shadow of the memory, unit, how many plain stores the element has had)
Place = tuple[Shadow, int, int]
Positions = dict[Place, int]

# Versions that are kept as arrays over all threads.
_KEPT_VIEWS = 8


@record(eq=False)
class _Entry:
    """One atomic: its record, and unless it only reads, what it publishes.

    `known` has what was visible to the threads of this entry and of those before it in the log.
    """

    record: int
    is_update: bool
    block: int
    published: Array | None
    known: Positions


class Communication:
    """Fences and atomics of one launch."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        shape = (clock.blocks, clock.threads)
        self._fence_time = np.zeros(shape, np.int64)
        # The fence times as they were at the last barrier.
        self._block_published = np.zeros(shape, np.int64)
        self._warp_published = np.zeros(shape, np.int64) if clock.warp_time is not None else None
        self._logs: dict[Place, list[_Entry]] = {}
        self._stores: dict[tuple[Shadow, int], int] = {}
        # What threads acquired, by block and thread; what barriers passed on to their blocks.
        self._own: dict[int, dict[int, Positions]] = {}
        self._of_block: dict[int, Positions] = {}
        # What they saw as soon as they acquired it; by block and thread.
        self._seen: dict[int, dict[int, Positions]] = {}
        self._versions: list[Positions] = [{}]
        self._version_numbers: dict[frozenset[tuple[Place, int]], int] = {frozenset(): 0}
        self._version_of = np.zeros(clock.blocks * clock.threads, np.int64)
        self._views: dict[int, Array] = {}
        self._log_views: dict[Place, tuple[int, Array]] = {}
        clock.is_visible = self._is_visible

    # --- barriers and fences ------------------------------------------------------------------------------------------

    def fence(self, lanes: Lanes) -> None:
        """The active threads execute a Fence."""
        now = self.clock.advance()
        threads = (lanes.record.reshape(-1) >> THREAD_SHIFT) - 1
        self._fence_time.reshape(-1)[threads] = now
        if not self._own and not self._of_block:
            return
        blocks = threads // self.clock.threads
        for block in np.unique(blocks):
            acquired = self._of_block.get(int(block))
            own = self._own.get(int(block))
            if acquired is None and own is None:
                continue
            members = threads[blocks == block]
            if acquired is not None:
                current = self._version_of[members]
                for version in np.unique(current):
                    self._version_of[members[current == version]] = self._version(int(version), acquired)
            if own is not None:
                active = set(members.tolist())
                for thread, positions in own.items():
                    if thread in active:
                        self._version_of[thread] = self._version(int(self._version_of[thread]), positions)

    def block_barrier(self, blocks: Array) -> None:
        """The blocks with these numbers pass a BlockBarrier."""
        self._block_published[blocks] = self._fence_time[blocks]
        if self._warp_published is not None:
            self._warp_published[blocks] = self._fence_time[blocks]
        if self._own:
            for block in set(blocks.tolist()) & self._own.keys():
                acquired = self._of_block.setdefault(block, {})
                for positions in self._own[block].values():
                    _merge(acquired, positions)
        for block in set(blocks.tolist()) & self._seen.keys():
            first = block * self.clock.threads
            self._show(block, np.arange(first, first + self.clock.threads))

    def warp_barrier(self, threads: Array) -> None:
        """These threads, whole warps, pass a WarpBarrier."""
        if self._warp_published is not None:
            self._warp_published.reshape(-1)[threads] = self._fence_time.reshape(-1)[threads]
        if self._seen:
            warps = threads // self.clock.threads * self.clock.warps + threads % self.clock.threads // 32
            for warp in np.unique(warps):
                members = threads[warps == warp]
                block = int(members[0]) // self.clock.threads
                if block in self._seen:
                    self._show(block, members)

    def _show(self, block: int, members: Array) -> None:
        """What threads among `members`, of one block, saw at once is visible to all of them."""
        present = set(members.tolist())
        seen: Positions = {}
        for thread, positions in self._seen[block].items():
            if thread in present:
                _merge(seen, positions)
        if seen:
            current = self._version_of[members]
            for version in np.unique(current):
                self._version_of[members[current == version]] = self._version(int(version), seen)

    # --- atomics ------------------------------------------------------------------------------------------------------

    def atomic(
        self,
        shadow: Shadow,
        unit: int,
        record: int,
        *,
        is_update: bool,
        acquires: bool = False,
        releases: bool = False,
    ) -> None:
        """The thread of `record` updates (AtomicAdd) or sees (SpinWait) an element: it acquires, then publishes.

        acquires   what it acquires is visible to it at once, and behind a barrier to the threads that it passes with
        releases   it publishes what came before the last barrier of its block, and of its own thread all, fence or not
        """
        place = (shadow, unit, self._stores.get((shadow, unit), 0))
        log = self._logs.setdefault(place, [])
        if shadow.atomic is None:
            shadow.atomic = np.zeros(len(shadow.write_record), np.bool_)
        shadow.atomic[unit] = True
        thread = (record >> THREAD_SHIFT) - 1
        block, column = divmod(thread, self.clock.threads)
        known = log[-1].known if log else {}
        if log:
            own = self._own.setdefault(block, {}).setdefault(thread, {})
            own[place] = len(log)
            _merge(own, known)
            if acquires:
                seen = {**known, place: len(log)}
                self._version_of[thread] = self._version(int(self._version_of[thread]), seen)
                _merge(self._seen.setdefault(block, {}).setdefault(thread, {}), seen)
        published = None
        if is_update:
            published = self._published(block, column)
            if releases:
                published = np.maximum(published, self.clock.block_time[block])
                published[column] = self.clock.advance()
            visible = self._versions[int(self._version_of[thread])]
            if any(position > known.get(other, 0) for other, position in visible.items()):
                known = dict(known)
                _merge(known, visible)
        log.append(_Entry(record, is_update, block, published, known))

    def _published(self, block: int, column: int) -> Array:
        result = self._block_published[block].copy()
        if self._warp_published is not None:
            warp = slice(column // 32 * 32, column // 32 * 32 + 32)
            result[warp] = self._warp_published[block, warp]
        result[column] = self._fence_time[block, column]
        return result

    def check_plain(self, shadow: Shadow, units: Array, record: Array) -> tuple[int, int] | None:
        """An atomic that plain accesses race with: (flat lane position, record of the atomic)."""
        if shadow.atomic is None:
            return None
        for lane in np.flatnonzero(shadow.atomic[units]):
            unit = int(units.reshape(-1)[lane])
            found = self._racing_atomic(shadow, unit, int(record.reshape(-1)[lane]))
            if found is not None:
                return int(lane), found
        return None

    def _racing_atomic(self, shadow: Shadow, unit: int, record: int) -> int | None:
        place = (shadow, unit, self._stores.get((shadow, unit), 0))
        thread = (record >> THREAD_SHIFT) - 1
        block = thread // self.clock.threads
        reached = max(
            self._own.get(block, {}).get(thread, {}).get(place, 0),
            self._of_block.get(block, {}).get(place, 0),
            self._versions[int(self._version_of[thread])].get(place, 0),
        )
        log = self._logs.get(place, [])
        # Threads that updated the element where it was acquired: whatever they did to it before came before that.
        updated: set[int] = set()
        for position in range(len(log) - 1, -1, -1):
            entry = log[position]
            other = (entry.record >> THREAD_SHIFT) - 1
            if entry.is_update and position < reached:
                updated.add(other)
            if other == thread or other in updated:
                continue
            time = np.array([(entry.record >> CLOCK_SHIFT) & CLOCK_MASK])
            if self.clock.concurrent(np.array([other]), np.array([thread]), time)[0]:
                return entry.record
        return None

    def end_sequence(self, shadow: Shadow, units: Array) -> None:
        """Plain stores to `units`: their sequences of atomics are over."""
        if shadow.atomic is None:
            return
        touched = np.unique(units[shadow.atomic[units]])
        for unit in touched.tolist():
            self._stores[shadow, unit] = self._stores.get((shadow, unit), 0) + 1
        shadow.atomic[touched] = False

    # --- versions -----------------------------------------------------------------------------------------------------

    def _version(self, base: int, acquired: Positions) -> int:
        """Number of the version that has what `base` has and `acquired`."""
        merged = dict(self._versions[base])
        _merge(merged, acquired)
        key = frozenset(merged.items())
        number = self._version_numbers.get(key)
        if number is None:
            number = len(self._versions)
            self._versions.append(merged)
            self._version_numbers[key] = number
        return number

    def _is_visible(self, other: Array, thread: Array, time: Array) -> Array:
        """Whether accesses by `other` at `time` are visible to `thread`. There is one at least."""
        versions = self._version_of[thread]
        first = int(versions[0])
        if not has_any(versions != first):  # as of the threads of one block
            return time < self._view(first)[other] if first else np.zeros(other.shape, np.bool_)
        result = np.zeros(other.shape, np.bool_)
        for version in np.unique(versions):
            if version:
                members = versions == version
                result[members] = time[members] < self._view(int(version))[other[members]]
        return result

    def _view(self, version: int) -> Array:
        """For every thread of the launch the time before which its accesses are visible in that version."""
        found = self._views.pop(version, None)
        if found is None:
            found = np.zeros(self.clock.blocks * self.clock.threads, np.int64)
            for place, position in self._versions[version].items():
                np.maximum(found, self._log_view(place, position), out=found)
        self._views[version] = found
        while len(self._views) > _KEPT_VIEWS:
            del self._views[next(iter(self._views))]
        return found

    def _log_view(self, place: Place, position: int) -> Array:
        start, view = self._log_views.get(place, (0, None))
        if view is None or start > position:
            start, view = 0, np.zeros(self.clock.blocks * self.clock.threads, np.int64)
        elif start < position:
            view = view.copy()
        threads = self.clock.threads
        for entry in self._logs[place][start:position]:
            if entry.published is not None:
                part = view[entry.block * threads : (entry.block + 1) * threads]
                np.maximum(part, entry.published, out=part)
        self._log_views[place] = (position, view)
        return view


def _merge(target: Positions, extra: Positions) -> None:
    for place, position in extra.items():
        if position > target.get(place, 0):
            target[place] = position
