"""A number of blocks that run in lock step, and what the compiled statements of a kernel ask of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from fuser.ir.kernel.kernel import GivenIndex, Shuffle, ShuffleKind
from fuser.simulator.async_copies import AsyncCopies
from fuser.simulator.errors import Access, Kind, SimulatorError
from fuser.simulator.exchange import Exchanges
from fuser.simulator.indices import IndexGuard, SymbolGuard
from fuser.simulator.lanes import CLOCK_SHIFT, SITE_MASK, THREAD_SHIFT, Array, Index, Lanes
from fuser.simulator.machine import Machine
from fuser.simulator.views import MemoryView, RegisterArray

_INT32 = 2**31


class Wave:
    """`blocks` blocks, number `first` and following in the order of execution.

    symbols   thread position, sizes and extents, in the order the compiled kernel names them
    buffers   views in the order the compiled kernel names them
    """

    def __init__(self, machine: Machine, first: int, blocks: int) -> None:
        self.machine = machine
        self.clock = machine.clock
        self.communication = machine.communication
        self.checks = machine.checks
        self.rng = machine.rng
        self.site_buffers = machine.site_buffers
        self.first = first
        self.blocks = blocks
        self.threads = machine.clock.threads
        self.lanes = Lanes.whole(first, blocks, self.threads)
        self.numbers = np.arange(first, first + blocks)
        self.symbols: list[Index] = machine.wave_symbols(first, blocks)
        self.buffers: list[MemoryView | RegisterArray] = machine.wave_buffers(self)
        self.scalars = machine.scalars
        self.copies = AsyncCopies(self)
        self.exchanges = Exchanges(self)
        # Time of a ClusterArrive whose ClusterWait is still to come.
        self._arrival: int | None = None
        # Where a thread waits: (address of the element in words, its view) and the access, for a report.
        self.waiting: SimulatorError | None = None
        self.guards: dict[int, IndexGuard] = machine.guards
        self.symbol_guards: dict[int, SymbolGuard] = machine.symbol_guards

    # --- control flow -------------------------------------------------------------------------------------------------

    def loop(self, lanes: Lanes, start: Index, stop: Index, step: Index, site: int) -> Iterator[tuple[Index, Lanes]]:
        """The trips of a loop and the threads that make them."""
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            if start < stop:
                if step < 1:
                    self.report(Kind.endless_loop, f"the step is {step}", 0, lanes, site)
                last = start + (stop - start + step - 1) // step * step
                if self.machine.index_bits == 32 and last >= _INT32:
                    self.report(Kind.index_overflow, f"the loop variable ends at {last}", 0, lanes, site)
                for value in range(start, stop, step):
                    self._count_trip(lanes, site)
                    yield value, lanes
            return
        value: Any = start
        active = lanes.where(np.less(value, stop), self.lanes)
        if active is not None:
            steps = active.pick(np.asarray(step))
            if (steps < 1).any():
                self.report(Kind.endless_loop, "the step is not positive", active.position(steps < 1), active, site)
        while active is not None:
            self._count_trip(active, site)
            yield value, active
            value = np.asarray(value + step)
            if self.machine.index_bits == 32:
                picked = active.pick(value)
                if picked.max() >= _INT32:
                    wrong = picked >= _INT32
                    message = f"the loop variable reaches {int(picked.max())}"
                    self.report(Kind.index_overflow, message, active.position(wrong), active, site)
            active = active.where(value < stop, self.lanes)

    def _count_trip(self, lanes: Lanes, site: int) -> None:
        self.machine.trips += 1
        if self.machine.trips > self.machine.trip_limit:
            self.report(Kind.step_limit, f"all loops together made {self.machine.trip_limit} trips", 0, lanes, site)

    def check_indices(self, number: int, lanes: Lanes, site: int, *values: Index) -> None:
        """Report an index that does not fit the index type and a divisor that is 0, among evaluation `number`."""
        try:
            found = self.guards[number].find(values, lanes)
        except ZeroDivisionError:
            self.report(Kind.division_by_zero, "an index divides by 0", 0, lanes, site)
        if found is not None:
            suspect, position, value = found
            self.report(suspect.kind, f"{suspect.node} is {value}", position, lanes, site)

    def check_symbol(self, number: int, lanes: Lanes, site: int, value: Index, *bounds: Index) -> None:
        """Report a value that the symbol of definition `number` does not admit."""
        guard = self.symbol_guards[number]
        found = guard.find(value, bounds, lanes)
        if found is None:
            return
        message, position = found
        if guard.given is None:
            self.report(Kind.symbol_range, message, position, lanes, site)
        self._report_given(guard.given, message)

    def to_index(self, value: Any) -> Index:
        """A loaded Int32 as an index."""
        return value.astype(np.int64) if isinstance(value, np.ndarray) and value.ndim else int(value)

    # --- synchronisation ----------------------------------------------------------------------------------------------

    def block_barrier(self, lanes: Lanes, site: int) -> None:
        blocks = self.numbers
        if lanes.mask is not None:
            arrived = np.count_nonzero(lanes.mask, axis=1)
            if ((arrived != 0) & (arrived != self.threads)).any():
                block = int(np.argmax((arrived != 0) & (arrived != self.threads)))
                message = f"{int(arrived[block])} of {self.threads} threads of the block reach a block barrier"
                self.report(Kind.divergent_barrier, message, lanes.position(lanes.block == block), lanes, site)
            blocks = blocks[arrived != 0]
        self.clock.block_time[blocks] = self.clock.advance()
        if self.communication is not None:
            self.communication.block_barrier(blocks)

    @property
    def cluster_size(self) -> int:
        """Blocks of a cluster, 1 without clusters."""
        return self.clock.cluster_size

    def cluster_arrive(self, lanes: Lanes, site: int, *, relaxed: bool) -> None:
        """The first half of a barrier of the cluster: what comes before it is ordered once all have waited.

        Not before a relaxed one: its time is that of the first accesses there are.
        """
        self._whole_clusters(lanes, site)
        self._arrival = 1 if relaxed else self.clock.advance()
        self.exchanges.arrive()

    def cluster_wait(self, lanes: Lanes, site: int) -> None:
        blocks = self._whole_clusters(lanes, site)
        if self._arrival is None:
            self.report(Kind.deadlock, "a wait of the cluster without an arrival before it", 0, lanes, site)
        self.clock.cluster_time[blocks] = self._arrival
        self.clock.block_time[blocks] = np.maximum(self.clock.block_time[blocks], self._arrival)
        self._arrival = None
        self.exchanges.enter(blocks - self.first)
        self.clock.advance()

    def check_cluster_runs(self, lanes: Lanes, site: int) -> None:
        """Report a store into a block that no barrier of the cluster has shown to run."""
        waited = self.clock.cluster_time[self.first + np.unique(lanes.block)]
        if not waited.all():
            message = "a store into another block before a barrier of the cluster has shown that it runs"
            self.report(Kind.race, message, 0, lanes, site)

    def _whole_clusters(self, lanes: Lanes, site: int) -> Array:
        """Numbers of the blocks that are here; a cluster of which only some threads are is reported."""
        if lanes.mask is None:
            return self.numbers
        arrived = np.count_nonzero(lanes.mask, axis=1).reshape(-1, self.cluster_size).sum(axis=1)
        wrong = (arrived != 0) & (arrived != self.threads * self.cluster_size)
        if wrong.any():
            cluster = int(np.argmax(wrong))
            message = (
                f"{int(arrived[cluster])} of {self.threads * self.cluster_size} threads reach a barrier of the cluster"
            )
            position = lanes.position(lanes.block // self.cluster_size == cluster)
            self.report(Kind.divergent_barrier, message, position, lanes, site)
        return self.numbers.reshape(-1, self.cluster_size)[arrived != 0].reshape(-1)

    def warp_barrier(self, lanes: Lanes, site: int) -> None:
        now = self.clock.advance()
        times = self.clock.warp_time
        assert times is not None
        whole = self.whole_warps(lanes, Kind.divergent_barrier, "a warp barrier", site)
        if whole is None:
            times[self.first : self.first + self.blocks] = now
        else:
            times[self.first : self.first + self.blocks][whole] = now
        if self.communication is not None:
            self.communication.warp_barrier((lanes.record.reshape(-1) >> THREAD_SHIFT) - 1)

    def whole_warps(self, lanes: Lanes, kind: Kind, what: str, site: int) -> Array | None:
        """Which warps (blocks, warps) are active as a whole, None for all; a warp in part is reported."""
        if lanes.mask is None:
            return None
        starts = np.arange(0, self.threads, 32)
        arrived = np.add.reduceat(lanes.mask, starts, axis=1, dtype=np.int64)
        sizes = np.minimum(self.threads - starts, 32)
        wrong = (arrived != 0) & (arrived != sizes)
        if wrong.any():
            block, warp = (int(n) for n in np.argwhere(wrong)[0])
            position = lanes.position(
                (lanes.block == block) & ((lanes.record >> THREAD_SHIFT) - 1) % self.threads // 32 == warp
            )
            message = f"{int(arrived[block, warp])} of {int(sizes[warp])} lanes of a warp reach {what}"
            self.report(kind, message, position, lanes, site)
        return arrived != 0

    def fence(self, lanes: Lanes) -> None:
        if self.communication is not None:
            self.communication.fence(lanes)

    def shuffle(self, value: Any, stmt: Shuffle, amount: Index, lanes: Lanes, site: int) -> Any:
        """`value` of the lane that each active thread names."""
        self.whole_warps(lanes, Kind.divergent_shuffle, "a shuffle", site)
        thread = np.arange(self.threads)[None, :]
        lane = thread % stmt.width
        match stmt.kind:
            case ShuffleKind.xor:
                source = np.bitwise_xor(lane, amount)
            case ShuffleKind.down:
                source = lane + amount
                source = np.where(source < stmt.width, source, lane)
            case ShuffleKind.up:
                source = lane - amount
                source = np.where(source >= 0, source, lane)
            case ShuffleKind.index:
                source = np.zeros_like(lane) + amount
        picked = lanes.pick(source)
        if picked.min() < 0 or picked.max() >= stmt.width:
            wrong = (picked < 0) | (picked >= stmt.width)
            message = f"a shuffle reads a lane outside its group of {stmt.width}"
            self.report(Kind.inactive_lane, message, lanes.position(wrong), lanes, site)
        source = source + thread - lane
        # Whole warps take part, so only the end of the block can cut a group short.
        if self.threads % 32:
            picked = lanes.pick(source)
            if picked.max() >= self.threads:
                message = "a shuffle reads a lane that the block does not have"
                self.report(Kind.inactive_lane, message, lanes.position(picked >= self.threads), lanes, site)
        if not isinstance(value, np.ndarray) or value.ndim == 0 or value.shape[1] == 1:
            return value
        # Lanes that are not active may name any source.
        source = np.clip(source, 0, self.threads - 1)
        if source.shape[0] == 1:
            return value[:, source[0]]
        return np.take_along_axis(np.broadcast_to(value, self.lanes.shape), source, axis=1)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def progress(self) -> None:
        """Something happened that a waiting block may have waited for."""
        self.machine.steps += 1
        self.waiting = None

    def wait(self, view: MemoryView, place: Array, short: Array, lanes: Lanes, site: int) -> None:
        """Remember whom the wave waits for, should nothing happen any more."""
        position = lanes.position(short)
        index = view.index_at(int(place.reshape(-1)[position]) * view.itemsize)
        found = int(view.data[int(place.reshape(-1)[position])])
        access = self.access(lanes.thread_record(position), site, index)
        message = f"no block can go on; one waits for {view.buffer.name}[{index}], which is {found}"
        self.waiting = SimulatorError(Kind.deadlock, message, buffer=view.buffer.name, second=access)

    # --- reports ------------------------------------------------------------------------------------------------------

    def access(self, record: int, site: int, index: int | None) -> Access:
        """The access of the thread of a record at a site."""
        program = self.machine.program
        number = (record >> THREAD_SHIFT) - 1
        place = program.sites[site]
        return Access(
            place.action,
            place.statement,
            place.path,
            "" if place.buffer is None else place.buffer.name,
            index,
            self.machine.thread_position(number % self.threads),
            self.machine.block_position(number // self.threads),
        )

    def report(
        self, kind: Kind, message: str, position: int, lanes: Lanes, site: int, index: int | None = None
    ) -> NoReturn:
        """Raise for the lane at a position of `lanes.shape`."""
        access = self.access(lanes.thread_record(position), site, index)
        if kind is Kind.out_of_bounds:
            names = re.findall(r"\w+", access.statement)
            for definition in self.machine.program.definitions:
                # What a dim may hold is not always known to the kernel: then only what lies behind the last element shows.
                if definition.given is not None and definition.symbol.name in names:
                    what = f"an index along dim {definition.given.dim} leads outside of the operand, to {message}"
                    self._report_given(definition.given, what)
        raise SimulatorError(kind, message, buffer=access.buffer, second=access)

    def _report_given(self, given: GivenIndex, message: str) -> NoReturn:
        """Raise for an index of the user's: the line of the op says more than the statement that read the index."""
        raise SimulatorError(
            Kind.index_range,
            f"{message}. On a GPU nothing checks indices: what such a one reads is unspecified",
            location=given.location,
        )

    def report_race(
        self, view: MemoryView, byte: int, position: int, lanes: Lanes, site: int, earlier: int, what: str | None
    ) -> NoReturn:
        """Raise for two unordered accesses to a byte of a view's storage; `what` says so in other words."""
        index = view.index_at(byte)
        second = self.access(lanes.thread_record(position), site, index)
        other_site = earlier & SITE_MASK
        other_view = self.buffers[int(self.site_buffers[other_site])] if other_site < SITE_MASK else view
        other_index = other_view.index_at(byte) if isinstance(other_view, MemoryView) else None
        # Kernels with more access sites than a record can tell apart lose the place of the earlier access.
        first = self.access(earlier, other_site, other_index) if other_site < SITE_MASK else None
        message = f"{view.buffer.name}[{index}] {what or 'is used by two threads with nothing that orders them'}"
        is_one_statement = (earlier >> CLOCK_SHIFT) & ((1 << 24) - 1) == self.clock.now and other_site == site
        if what is None and is_one_statement:
            message = f"{view.buffer.name}[{index}] is written by two threads in one statement"
        raise SimulatorError(Kind.race, message, buffer=view.buffer.name, first=first, second=second)
