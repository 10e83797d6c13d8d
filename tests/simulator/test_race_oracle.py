"""The race check against a plain one: vector clocks for every thread, every access kept, over random programs.

The oracle follows the events of the simulation (accesses, barriers, fences, atomics) and applies the rules that
`fuser.simulator.shadow` states, without any of its summaries. Both must find the first race at the same access.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fuser.ir.integers.integers import Int, as_int, equal, less, symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    AtomicAdd,
    BlockBarrier,
    ExtentParameter,
    Fence,
    If,
    Kernel,
    Stmt,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.simulator.communication import Communication
from fuser.simulator.errors import Kind
from fuser.simulator.lanes import THREAD_SHIFT, Lanes
from fuser.simulator.run_kernel import Report
from fuser.simulator.shadow import Shadow
from fuser.simulator.wave import Wave
from tests.simulator.kernels import BX, INT32, TX, N, Run, kernel, load, loop, registers, shared, store, tensor

BLOCKS, THREADS = 3, 40
ALL = BLOCKS * THREADS


@dataclass
class Oracle:
    """Counts of accesses: `done[t]` by thread t; `before[t, u]` of u's that barriers order before t's next one."""

    accesses: dict[tuple[int, int], list[tuple[int, int, bool]]] = field(default_factory=dict)
    done: np.ndarray = field(default_factory=lambda: np.zeros(ALL, int))
    before: np.ndarray = field(default_factory=lambda: np.zeros((ALL, ALL), int))
    visible: np.ndarray = field(default_factory=lambda: np.zeros((ALL, ALL), int))
    fenced: np.ndarray = field(default_factory=lambda: np.zeros(ALL, int))
    block_published: np.ndarray = field(default_factory=lambda: np.zeros(ALL, int))
    warp_published: np.ndarray = field(default_factory=lambda: np.zeros(ALL, int))
    passed: np.ndarray = field(default_factory=lambda: np.zeros(ALL, int))
    acquired: np.ndarray = field(default_factory=lambda: np.zeros((ALL, ALL), int))
    seen: np.ndarray = field(default_factory=lambda: np.zeros((ALL, ALL), int))
    block_acquired: np.ndarray = field(default_factory=lambda: np.zeros((BLOCKS, ALL), int))
    logs: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    races: list[int] = field(default_factory=list)
    events: int = 0

    def access(self, shadow: Shadow, units: np.ndarray, record: np.ndarray, *, writes: bool) -> None:
        self.events += 1
        threads = threads_of(record)
        raced = False
        earlier = {}
        for unit in units.reshape(-1).tolist():
            earlier[unit] = list(self.accesses.setdefault((id(shadow), unit), []))
        self.done[np.unique(threads)] += 1
        for thread, unit in zip(threads.tolist(), units.reshape(-1).tolist(), strict=True):
            log = self.accesses[id(shadow), unit]
            # What other threads do in the same statement counts if both write.
            for other, number, wrote in log if writes else earlier[unit]:
                if other != thread and (writes or wrote):
                    raced |= number > max(self.before[thread, other], self.visible[thread, other])
            log.append((thread, int(self.done[thread]), writes))
        if raced:
            self.races.append(self.events)

    def block_barrier(self, blocks: np.ndarray) -> None:
        for block in blocks.tolist():
            members = slice(block * THREADS, (block + 1) * THREADS)
            self.before[members, members] = self.done[members]
            self.block_published[members] = self.warp_published[members] = self.fenced[members]
            self.passed[members] = self.done[members]
            self.block_acquired[block] = np.maximum(self.block_acquired[block], self.acquired[members].max(0))
            self._share(np.arange(ALL)[members])

    def warp_barrier(self, threads: np.ndarray) -> None:
        warps = threads // THREADS * 100 + threads % THREADS // 32
        for warp in np.unique(warps):
            members = threads[warps == warp]
            self.before[np.ix_(members, members)] = np.maximum(
                self.before[np.ix_(members, members)], self.done[members]
            )
            self.warp_published[members] = self.fenced[members]
            self._share(members)

    def _share(self, members: np.ndarray) -> None:
        """What some threads acquired without a fence is visible to those that pass a barrier with them."""
        self.visible[members] = np.maximum(self.visible[members], self.seen[members].max(0))
        self.seen[members] = np.maximum(self.seen[members], self.seen[members].max(0))

    def fence(self, threads: np.ndarray) -> None:
        self.fenced[threads] = self.done[threads]
        for thread in threads.tolist():
            known = np.maximum(self.acquired[thread], self.block_acquired[thread // THREADS])
            self.visible[thread] = np.maximum(self.visible[thread], known)

    def atomic(self, shadow: Shadow, unit: int, thread: int, *, acquires: bool, releases: bool) -> None:
        log = self.logs.setdefault((id(shadow), unit), np.zeros(ALL, int))
        self.acquired[thread] = np.maximum(self.acquired[thread], log)
        if acquires:
            self.seen[thread] = np.maximum(self.seen[thread], log)
            self.visible[thread] = np.maximum(self.visible[thread], log)
        block = thread // THREADS
        published = np.zeros(ALL, int)
        members = np.arange(block * THREADS, (block + 1) * THREADS)
        published[members] = self.block_published[members]
        same_warp = members[members % THREADS // 32 == thread % THREADS // 32]
        published[same_warp] = self.warp_published[same_warp]
        published[thread] = self.fenced[thread]
        if releases:
            published[members] = np.maximum(published[members], self.passed[members])
            published[thread] = self.done[thread]
        self.logs[id(shadow), unit] = np.maximum(np.maximum(log, published), self.visible[thread])


def threads_of(record: Any) -> np.ndarray:
    return (np.asarray(record).reshape(-1) >> THREAD_SHIFT) - 1


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """An oracle that sees what the simulation does."""
    found = Oracle()
    kept: list[Any] = []  # Identities of shadows must not be reused.
    read, write, atomic = Shadow.read, Shadow.write, Communication.atomic
    block_barrier, warp_barrier, fence = Wave.block_barrier, Wave.warp_barrier, Wave.fence

    def on_read(self: Shadow, units: np.ndarray, record: np.ndarray) -> Any:
        kept.append(self)
        found.access(self, units, record, writes=False)
        return read(self, units, record)

    def on_write(self: Shadow, units: np.ndarray, record: np.ndarray) -> Any:
        kept.append(self)
        found.access(self, units, record, writes=True)
        return write(self, units, record)

    def on_atomic(
        self: Communication,
        shadow: Shadow,
        unit: int,
        record: int,
        *,
        is_update: bool,
        acquires: bool = False,
        releases: bool = False,
    ) -> None:
        found.atomic(shadow, unit, int(threads_of(record)[0]), acquires=acquires, releases=releases)
        atomic(self, shadow, unit, record, is_update=is_update, acquires=acquires, releases=releases)

    def on_block_barrier(self: Wave, lanes: Lanes, site: int) -> None:
        found.block_barrier(np.unique(threads_of(lanes.record) // THREADS))
        block_barrier(self, lanes, site)

    def on_warp_barrier(self: Wave, lanes: Lanes, site: int) -> None:
        found.warp_barrier(threads_of(lanes.record))
        warp_barrier(self, lanes, site)

    def on_fence(self: Wave, lanes: Lanes) -> None:
        found.fence(threads_of(lanes.record))
        fence(self, lanes)

    monkeypatch.setattr(Shadow, "read", on_read)
    monkeypatch.setattr(Shadow, "write", on_write)
    monkeypatch.setattr(Communication, "atomic", on_atomic)
    monkeypatch.setattr(Wave, "block_barrier", on_block_barrier)
    monkeypatch.setattr(Wave, "warp_barrier", on_warp_barrier)
    monkeypatch.setattr(Wave, "fence", on_fence)
    return found


def random_kernel(seed: int, *, communicates: bool, has_warp_barriers: bool) -> Kernel:
    """Reads and writes of a shared array and a workspace, with barriers, fences and atomics strewn in."""
    chosen = random.Random(seed)
    tile, rows, counters = shared("tile", THREADS), tensor("rows", ALL), tensor("counters", 2, INT32)
    r = registers("r")
    place = BX * THREADS + TX

    def masked(stmt: Stmt) -> Stmt:
        lane = chosen.randrange(THREADS)
        conditions = [None, None, equal(TX, lane), less(TX, lane), less(lane, TX), equal(BX, chosen.randrange(BLOCKS))]
        condition = chosen.choice(conditions)
        return stmt if condition is None else If(condition, (stmt,))

    def one_thread(stmt: Stmt, *, one_block: bool) -> Stmt:
        inner = If(equal(TX, chosen.choice([0, 0, 5, 33])), (stmt,))
        return If(equal(BX, chosen.randrange(BLOCKS)), (inner,)) if one_block else inner

    def read_index(own: Int, size: int) -> Int:
        return chosen.choice(
            [own, (own + 1) % size, (own + 32) % size, own // 2, as_int(chosen.randrange(size)), size - 1 - own]
        )

    def access() -> Stmt:
        buffer, own, size = chosen.choice([(tile, TX, THREADS), (rows, place, ALL)])
        kind = chosen.random()
        if kind < 0.55:
            return masked(store(r, 0, load(buffer, read_index(own, size))))
        if kind < 0.85:
            return masked(store(buffer, own, 1.0))
        return one_thread(store(buffer, chosen.randrange(size), 1.0), one_block=buffer is rows)

    def synchronise() -> tuple[Stmt, ...]:
        kind = chosen.random()
        if has_warp_barriers and kind < 0.4:
            return (WarpBarrier(),)
        if not communicates or kind < 0.6:
            return (BlockBarrier(),)
        counter, how = as_int(chosen.randrange(2)), chosen.choice(("acquire", "acquire", "release", ""))
        atomic = AtomicAdd(None, counters, counter, as_int(1), how == "acquire", release=how == "release")
        steps = [Fence(), BlockBarrier(), one_thread(atomic, one_block=False), BlockBarrier(), Fence()]
        if chosen.random() < 0.4:
            del steps[chosen.randrange(5)]
        return tuple(steps)

    body: list[Stmt] = [Allocate(tile), Allocate(r), store(tile, TX, 0.0), BlockBarrier()]
    for _ in range(chosen.randrange(2, 16)):
        body.extend((access(),) if chosen.random() < 0.55 else synchronise())
    i = symbol("i", 0, 1)
    parameters = [WorkspaceParameter(rows), WorkspaceParameter(counters), ExtentParameter(N)]
    if chosen.random() < 0.5:
        body[4:] = [loop(i, 2, *body[4:])]
    return kernel(parameters, *body, offsets={"tile": 0})


def phased_kernel(seed: int) -> Kernel:
    """Phases in which every block reads rows of several blocks and writes one, with a wait of all between them.

    In lock step two atomics by every block let all blocks acquire from all. One step in some of the waits is left out.
    """
    chosen = random.Random(seed)
    rows, counters = tensor("rows", ALL), tensor("counters", 1, INT32)
    r = registers("r")
    lane = chosen.choice([0, 33])
    body: list[Stmt] = [Allocate(r)]
    for _ in range(chosen.randrange(2, 5)):
        for _ in range(chosen.randrange(1, 4)):
            place = (BX * THREADS + TX + chosen.randrange(BLOCKS) * THREADS) % ALL
            one = as_int(chosen.randrange(ALL))
            kind = chosen.random()
            if kind < 0.3:
                body.append(store(rows, place, 1.0))
            elif kind < 0.6:
                body.append(store(r, 0, load(rows, chosen.choice([place, one, place // 2]))))
            elif kind < 0.8:
                condition = less(chosen.randrange(-1, BLOCKS), BX)
                body.append(If(condition, (store(r, 0, load(rows, chosen.choice([place, one]))),)))
            else:
                inner = If(equal(TX, chosen.randrange(THREADS)), (store(rows, one, 1.0),))
                body.append(If(equal(BX, chosen.randrange(BLOCKS)), (inner,)))
            if chosen.random() < 0.5:
                break
        atomic = AtomicAdd(None, counters, as_int(0), as_int(1), release=chosen.random() < 0.3)
        steps = [Fence(), BlockBarrier(), If(equal(TX, lane), (atomic, atomic)), BlockBarrier(), Fence()]
        if chosen.random() < 0.15:
            del steps[chosen.randrange(5)]
        body.extend(steps)
    return kernel([WorkspaceParameter(rows), WorkspaceParameter(counters), ExtentParameter(N)], *body)


def check_against(oracle: Oracle, report: Report) -> None:
    if report.error is None:
        assert not oracle.races
    else:
        assert report.error.kind is Kind.race, report.error
        assert oracle.races[:1] == [oracle.events], report.error


@pytest.mark.parametrize("seed", range(200))
def test_first_race_between_phases(seed: int, oracle: Oracle) -> None:
    run = Run(phased_kernel(seed), np.zeros(ALL, np.float32), np.zeros(1, np.int32), 1)
    check_against(oracle, run(BLOCKS, THREADS, seed=seed, interleave=seed % 4 == 0))


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("has_warp_barriers", [False, True], ids=["", "warp barriers"])
@pytest.mark.parametrize("communicates", [False, True], ids=["alone", "communicating"])
def test_first_race(communicates: bool, has_warp_barriers: bool, seed: int, oracle: Oracle) -> None:
    tested = random_kernel(seed, communicates=communicates, has_warp_barriers=has_warp_barriers)
    run = Run(tested, np.zeros(ALL, np.float32), np.zeros(2, np.int32), 1)
    check_against(oracle, run(BLOCKS, THREADS, shared_bytes=4 * THREADS, seed=seed, interleave=seed % 2 == 0))
