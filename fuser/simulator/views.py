"""Typed access to memory by the threads of a wave: bounds, alignment, initialisation, races, then the data.

    RegisterArray    elements of one thread each; a value per element for the whole wave
    MemoryView       device or shared memory: gathers and scatters
    VirtualView      device memory without storage

Every method takes the active lanes and the number of the access site, and returns values of the wave (see `lanes`).
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from fuser.errors import InternalError
from fuser.ir.kernel.kernel import Buffer
from fuser.simulator.communication import Communication
from fuser.simulator.errors import Kind
from fuser.simulator.lanes import SITE_MASK, Array, Index, Lanes, has_any, in_shape, positions
from fuser.simulator.memory import PAGE, VirtualRegion
from fuser.simulator.shadow import Clock, Shadow

# One element as wide as a vector access, and the written flags of an element.
_PACKED = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "V16", 32: "V32"}
_FLAGS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}
_ALL_WRITTEN = 0x0101010101010101


class PendingFills(Protocol):
    """Copies of a wave that are on their way."""

    def is_filling(self, view: MemoryView) -> bool:
        """Whether one to some element of a buffer is."""
        ...


class PendingStores(Protocol):
    """Stores of a wave into other blocks that are on their way."""

    def is_telling(self, view: MemoryView) -> bool:
        """Whether one into some element of a buffer is."""
        ...


class RunningWave(Protocol):
    """What accesses ask of the wave that makes them (`Wave`)."""

    blocks: int
    threads: int
    checks: bool
    lanes: Lanes
    clock: Clock
    communication: Communication | None
    rng: np.random.Generator
    site_buffers: Array

    @property
    def copies(self) -> PendingFills: ...

    @property
    def exchanges(self) -> PendingStores: ...

    @property
    def cluster_size(self) -> int: ...

    def check_cluster_runs(self, lanes: Lanes, site: int) -> None: ...

    def whole_warps(self, lanes: Lanes, kind: Kind, what: str, site: int) -> Array | None: ...

    def progress(self) -> None:
        """Something happened that a waiting block may have waited for."""
        ...

    def wait(self, view: MemoryView, place: Array, short: Array, lanes: Lanes, site: int) -> None:
        """Remember whom the wave waits for, should nothing happen any more."""
        ...

    def report(
        self, kind: Kind, message: str, position: int, lanes: Lanes, site: int, index: int | None = None
    ) -> NoReturn:
        """Raise for the lane at a position of `lanes.shape`."""
        ...

    def report_race(
        self, view: MemoryView, byte: int, position: int, lanes: Lanes, site: int, earlier: int, what: str | None
    ) -> NoReturn:
        """Raise for two unordered accesses to a byte of a view's storage; `what` says so in other words."""
        ...


class RegisterArray:
    """A register array of every thread. `values[i]` is what element i holds, where `written[i]` says it holds something.

    written[i] is True (all threads), a mask, or None (no thread).
    """

    __slots__ = ("buffer", "size", "values", "wave", "written")

    def __init__(self, wave: RunningWave, buffer: Buffer, size: int) -> None:
        self.wave = wave
        self.buffer = buffer
        self.size = size
        self.values: list[Any] = [None] * size
        self.written: list[Any] = [None] * size

    def reset(self, lanes: Lanes) -> None:
        """The array comes into scope: it holds nothing."""
        self.values = [None] * self.size
        self.written = [None] * self.size

    def load(self, index: Index, lanes: Lanes, site: int) -> Any:
        if not isinstance(index, int):
            return self._gather(index, lanes, site)
        if not 0 <= index < self.size:
            self._outside(index, lanes, site)
        written = self.written[index]
        if written is not True and written is not lanes.mask:
            if written is None:
                missing: Any = True
            elif lanes.mask is None:
                missing = ~written
            else:
                missing = (lanes.mask & ~written).reshape(-1)[lanes.flat]
            if missing is True or has_any(missing):
                self.wave.report(
                    Kind.uninitialised_read,
                    f"element {index} of the register array {self.buffer.name} holds no value",
                    lanes.position(missing),
                    lanes,
                    site,
                    index,
                )
        elif written is None:
            self.wave.report(
                Kind.uninitialised_read,
                f"element {index} of the register array {self.buffer.name} holds no value",
                0,
                lanes,
                site,
                index,
            )
        return self.values[index]

    def store(self, index: Index, value: Any, lanes: Lanes, site: int) -> None:
        if not isinstance(index, int):
            self._scatter(index, value, lanes, site)
            return
        if not 0 <= index < self.size:
            self._outside(index, lanes, site)
        mask = lanes.mask
        if mask is None:
            self.values[index] = value
            self.written[index] = True
            return
        written = self.written[index]
        if written is None or written is mask:
            self.values[index] = value
            self.written[index] = mask
        else:
            self.values[index] = np.where(mask, value, self.values[index])
            self.written[index] = True if written is True else written | mask

    def load_row(self, index: Index, width: int, lanes: Lanes, site: int) -> Array:
        """`width` elements, as picked lanes: shape (*lanes.shape, width)."""
        rows = np.empty((*lanes.shape, width), self.buffer.dtype.numpy)
        for k in range(width):
            rows[..., k] = lanes.pick(self.load(index + k, lanes, site))
        return rows

    def store_row(self, index: Index, rows: Array, lanes: Lanes, site: int) -> None:
        columns = np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).T)
        for k, column in enumerate(columns):
            self.store(index + k, lanes.spread(column.reshape(rows.shape[:-1])), lanes, site)

    def _parts(self, index: Array, lanes: Lanes) -> list[tuple[int, Lanes]]:
        """The lanes that use each element."""
        picked = np.unique(lanes.pick(index))
        parts = [(int(k), lanes.where(np.equal(index, k), self.wave.lanes)) for k in picked]
        return [(k, part) for k, part in parts if part is not None]

    def _gather(self, index: Array, lanes: Lanes, site: int) -> Any:
        result = np.zeros(lanes.wave_shape, self.buffer.dtype.numpy)
        for k, part in self._parts(index, lanes):
            result = np.where(part.mask if part.mask is not None else True, self.load(k, part, site), result)
        return result

    def _scatter(self, index: Array, value: Any, lanes: Lanes, site: int) -> None:
        for k, part in self._parts(index, lanes):
            self.store(k, value, part, site)

    def _outside(self, index: int, lanes: Lanes, site: int) -> None:
        message = f"element {index} of the register array {self.buffer.name}, which has {self.size}"
        self.wave.report(Kind.out_of_bounds, message, 0, lanes, site, index)


class MemoryView:
    """A buffer in device or shared memory.

    data      the storage as elements of the buffer's dtype; element i of block b is `data[base + b * stride + i]`
    flags     written flag per byte, viewed per element; None where everything is known to hold a value
    size      number of elements that may be used
    shadow    last accesses; None where nothing writes
    """

    def __init__(
        self,
        wave: RunningWave,
        buffer: Buffer,
        data: Array,
        flags: Array | None,
        *,
        base: int,
        stride: int,
        size: int,
        shadow: Shadow | None,
        shares_bytes: bool = False,
    ) -> None:
        self.wave = wave
        self.buffer = buffer
        self.itemsize = buffer.dtype.itemsize
        self.data = data.view(buffer.dtype.numpy)
        self.base = base
        self.stride = stride
        self.size = size
        self.shadow = shadow
        # Another shared buffer lies on the same bytes: what it wrote is no value of this one.
        self.shares_bytes = shares_bytes
        self.raw = data
        self.flags = flags
        self._rows: dict[int, tuple[Array, Array | None]] = {}

    # --- elements -----------------------------------------------------------------------------------------------------

    def load(self, index: Index, lanes: Lanes, site: int) -> Any:
        place = self._locate(index, 1, lanes, site)
        data, flags = self._storage(1)
        self._check_read(place, flags, 1, lanes, site)
        return lanes.spread(data[place] if isinstance(place, int) else data.take(place))

    def store(self, index: Index, value: Any, lanes: Lanes, site: int) -> None:
        place = self._locate(index, 1, lanes, site)
        place = in_shape(place, lanes.shape)
        self._note_write(place, 1, lanes, site)
        data, flags = self._storage(1)
        data[place] = lanes.pick(value)
        if flags is not None:
            flags[place] = _ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1)

    def store_remote(self, index: Index, rank: Index, value: Any, lanes: Lanes, site: int) -> None:
        """Store into the element that block `rank` of each thread's cluster has. Shared memory only."""
        place = self._reach(index, rank, lanes, site)
        data, flags = self._storage(1)
        data[place] = lanes.pick(value)
        if flags is not None:
            flags[place] = _ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1)

    def forget_remote(self, index: Index, rank: Index, lanes: Lanes, site: int) -> Array:
        """As `store_remote`, but the value is on its way: the elements hold none. Their places, of shape `lanes.shape`."""
        place = self._reach(index, rank, lanes, site)
        _, flags = self._storage(1)
        if flags is not None:
            flags[place] = 0
        return place

    def arrive(self, places: Array, values: Array) -> None:
        """Values that were on their way are there, before whatever the threads of the block do from now on."""
        data, flags = self._storage(1)
        data[places] = values
        if flags is not None:
            flags[places] = _ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1)
        if self.shadow is not None:
            parts = self.itemsize // self.shadow.unit
            units = places[..., None] * parts - self.shadow.origin // self.shadow.unit + np.arange(parts)
            self.shadow.write_record[units] = 0

    def _reach(self, index: Index, rank: Index, lanes: Lanes, site: int) -> Array:
        """Places of the element in other blocks, after the checks of a store there."""
        size = self.wave.cluster_size
        blocks = lanes.pick(rank)
        wrong = np.less(blocks, 0) | np.greater_equal(blocks, size)
        if np.any(wrong):
            message = f"a store reaches for a block that a cluster of {size} does not have"
            self.wave.report(Kind.out_of_bounds, message, lanes.position(in_shape(wrong, lanes.shape)), lanes, site)
        self.wave.check_cluster_runs(lanes, site)
        own = lanes.block % size
        place = in_shape(self._locate(index, 1, lanes, site) + (blocks - own) * self.stride, lanes.shape)
        self._note_write(place, 1, lanes, site)
        return place

    def load_row(self, index: Index, width: int, lanes: Lanes, site: int) -> Array:
        """`width` elements in one access, as picked lanes: shape (*lanes.shape, width)."""
        place = self._locate(index, width, lanes, site)
        data, flags = self._storage(width)
        row = place // width
        self._check_read(row, flags, width, lanes, site)
        rows = data.take(in_shape(row, lanes.shape))
        return rows.view(self.data.dtype).reshape(*lanes.shape, width)

    def load_elements(self, index: Index, width: int, lanes: Lanes, site: int) -> Array:
        """`width` elements from any address, as picked lanes: shape (*lanes.shape, width)."""
        return np.stack([lanes.pick(self.load(index + k, lanes, site)) for k in range(width)], axis=-1)

    def load_cut(self, index: Index, width: int, lanes: Lanes, site: int) -> Array:
        """`width` elements in one access that an end of a row lies in, as picked lanes: shape (*lanes.shape, width).

        One of them must be an element of the buffer; what is outside of it is not read, and comes as all ones, a nan.
        """
        first = in_shape(lanes.pick(index), lanes.shape)
        outside = (first + width <= 0) | (first >= self.size)
        if has_any(outside):
            self._outside(first, width, outside, lanes, site)
        self._check_alignment(first, width, lanes, site)
        each = first[..., None] + np.arange(width)
        slots = self._slots(np.clip(each, 0, self.size - 1) + self.base)  # before the data, which it may let grow
        if self.shadow is not None:
            self._note_read(*self._units_of_elements(slots, lanes, site), lanes, site)
        rows = self._storage(1)[0][slots]
        rows.view(f"u{self.itemsize}")[(each < 0) | (each >= self.size)] = (1 << 8 * self.itemsize) - 1
        return rows

    def units_of_row(self, index: Index, width: int, lanes: Lanes, site: int) -> Array | None:
        """Shadow units of `width` elements from `index` on, those inside of the buffer: (*lanes.shape, units of each).

        None where nothing writes the buffer. `load_row` or `load_cut` has checked them.
        """
        if self.shadow is None:
            return None
        each = in_shape(lanes.pick(index), lanes.shape)[..., None] + np.arange(width)
        slots = self._slots(np.clip(each, 0, self.size - 1) + self.base)
        return self._units_of_elements(slots, lanes, site)[0]

    def written_last(self, units: Array) -> Array:
        """Records of the last writes of units. Writes from now on have others."""
        assert self.shadow is not None
        self.wave.clock.advance()
        return self.shadow.write_record[units]

    def end_reads(self, units: Array, written: Array, lanes: Lanes, site: int) -> None:
        """The active threads have read units till now, since their last writes were `written`."""
        assert self.shadow is not None
        changed = positions(self.shadow.write_record[units] != written)
        if changed.size:
            position = int(changed[0])
            later = int(self.shadow.write_record[units].reshape(-1)[position])
            self._race((position, later), units, lanes, site, "is written while a copy of it is on its way")
        record = lanes.record | self.wave.clock.stamp(site)
        self._note_read(units, in_shape(record[..., None], units.shape), lanes, site)

    def store_row(self, index: Index, rows: Array, lanes: Lanes, site: int) -> None:
        width = rows.shape[-1]
        place = in_shape(self._locate(index, width, lanes, site), lanes.shape)
        row = place // width
        self._note_write(row, width, lanes, site)
        data, flags = self._storage(width)
        data[row] = np.ascontiguousarray(rows).view(data.dtype)[..., 0]
        if flags is not None:
            self._set_flags(flags, row)

    def forget_row(self, index: Index, width: int, lanes: Lanes, site: int) -> None:
        """Something else is on its way to `width` elements: a write, after which they hold no value."""
        row = in_shape(self._locate(index, width, lanes, site), lanes.shape) // width
        self._note_write(row, width, lanes, site)
        _, flags = self._storage(width)
        if flags is not None:
            flags[row] = 0

    def reset(self, lanes: Lanes) -> None:
        """The buffer comes into scope: its bytes hold no value."""
        if self.flags is None:
            return
        rows = self.flags.reshape(self.wave.blocks, -1)
        start = self.base * self.itemsize
        rows[np.unique(lanes.block), start : start + self.size * self.itemsize] = 0

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _locate(self, index: Index, width: int, lanes: Lanes, site: int) -> Any:
        """Positions in `data` of the picked index, after the checks of bounds and alignment."""
        i = lanes.pick(index)
        limit = self.size - width
        if isinstance(i, int):
            if not 0 <= i <= limit:
                self._outside(i, width, True, lanes, site)
        elif i.min() < 0 or i.max() > limit:
            self._outside(i, width, (i < 0) | (i > limit), lanes, site)
        place = i + self.base if self.base else i
        if width > 1:
            self._check_alignment(i, width, lanes, site)
        if self.stride:
            place = place + lanes.block * self.stride
        return place

    def _slots(self, place: Array) -> Array:
        """Where elements lie in `data`."""
        return place

    def _check_alignment(self, i: Any, width: int, lanes: Lanes, site: int) -> None:
        place = i + self.base if self.base else i
        wrong = place % width != 0 if isinstance(place, int) else (place & (width - 1)) != 0
        if wrong if isinstance(wrong, bool) else has_any(wrong):
            position = lanes.position(wrong)
            first = int(lanes.value_at(i, position))
            self.wave.report(
                Kind.misaligned,
                f"{width} elements of {self.buffer.name} from {first} on are not aligned to {width * self.itemsize} bytes",
                position,
                lanes,
                site,
                first,
            )

    def _outside(self, i: Index, width: int, wrong: Any, lanes: Lanes, site: int) -> None:
        position = lanes.position(wrong)
        first = int(lanes.value_at(i, position))
        what = f"element {first}" if width == 1 else f"elements {first} to {first + width - 1}"
        message = f"{what} of {self.buffer.name}, which has {self.size}"
        self.wave.report(Kind.out_of_bounds, message, position, lanes, site, first)

    # --- initialisation and races -------------------------------------------------------------------------------------

    def _storage(self, width: int) -> tuple[Array, Array | None]:
        """Data and flags as arrays of `width` elements packed into one."""
        found = self._rows.get(width)
        if found is None:
            nbytes = width * self.itemsize
            data = self.data if width == 1 else self.raw.view(_PACKED[nbytes])
            flags = self.flags
            if flags is not None:
                flags = flags.view(_FLAGS[nbytes]) if nbytes in _FLAGS else flags.view("u8").reshape(-1, nbytes // 8)
            found = self._rows[width] = (data, flags)
        return found

    def _set_flags(self, flags: Array, row: Array) -> None:
        flags[row] = _ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1)

    def _check_read(self, row: Any, flags: Array | None, width: int, lanes: Lanes, site: int) -> None:
        if self.shadow is not None:
            units, record = self._units(row, width, lanes, site)
            self._note_read(units, record, lanes, site)
            if self.shares_bytes:
                self._check_owner(units, lanes, site)
        if flags is not None:
            found = flags[row]
            bad = found != (_ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1))
            if has_any(bad):
                if flags.ndim == 2:
                    bad = bad.any(-1)
                is_filling = self.wave.copies.is_filling(self)
                why = "holds no value: a copy to the buffer is on its way" if is_filling else "was never written"
                if self.wave.exchanges.is_telling(self):
                    why = "holds no value: a store by another block is on its way"
                self._unwritten(bad, row, width, lanes, site, why)

    def _note_read(self, units: Array, record: Array, lanes: Lanes, site: int) -> None:
        assert self.shadow is not None
        conflict = self.shadow.read(units, record)
        if conflict is None and self.wave.communication is not None:
            conflict = self.wave.communication.check_plain(self.shadow, units, record)
        if conflict is not None:
            self._race(conflict, units, lanes, site)

    def _check_owner(self, units: Array, lanes: Lanes, site: int) -> None:
        assert self.shadow is not None
        writer = self.shadow.write_record[units] & SITE_MASK
        # Sites beyond those that a record can tell apart are not looked at.
        bad = (self.wave.site_buffers[writer] != self.wave.site_buffers[site]) & (writer < SITE_MASK)
        if has_any(bad):
            parts = units.size // lanes.count
            unit = int(positions(bad)[0])
            index = self.index_at(int(units.reshape(-1)[unit]) * self.shadow.unit + self.shadow.origin)
            message = f"{self.buffer.name}[{index}] was last written as another shared buffer"
            self.wave.report(Kind.uninitialised_read, message, unit // parts, lanes, site, index)

    def _unwritten(self, bad: Any, row: Any, width: int, lanes: Lanes, site: int, why: str) -> None:
        position = lanes.position(bad)
        index = self.index_at(int(lanes.value_at(row, position)) * width * self.itemsize)
        self.wave.report(Kind.uninitialised_read, f"{self.buffer.name}[{index}] {why}", position, lanes, site, index)

    def index_at(self, byte: int) -> int:
        """The element at a byte of the storage."""
        place = byte // self.itemsize
        return (place % self.stride if self.stride else place) - self.base

    def _note_write(self, row: Array, width: int, lanes: Lanes, site: int) -> None:
        if self.shadow is None:
            return
        units, record = self._units(row, width, lanes, site)
        conflict = self.shadow.write(units, record)
        if self.wave.communication is not None and self.shadow.atomic is not None:
            if conflict is None:
                conflict = self.wave.communication.check_plain(self.shadow, units, record)
            self.wave.communication.end_sequence(self.shadow, units)
        if conflict is not None:
            self._race(conflict, units, lanes, site)

    def _units(self, row: Any, width: int, lanes: Lanes, site: int) -> tuple[Array, Array]:
        """Shadow units of an access, and the record of every one of them."""
        shadow = self.shadow
        assert shadow is not None
        row = in_shape(row, lanes.shape)
        record = lanes.record | self.wave.clock.stamp(site)
        parts = width * self.itemsize // shadow.unit
        first = shadow.origin // shadow.unit
        if parts == 1:
            return (row - first if first else row), record
        units = (row * parts - first)[..., None] + np.arange(parts)
        return units, in_shape(record[..., None], units.shape)

    def _units_of_elements(self, slots: Array, lanes: Lanes, site: int) -> tuple[Array, Array]:
        """The same of single elements, several of each thread: `slots` has the shape (*lanes.shape, elements)."""
        shadow = self.shadow
        assert shadow is not None
        parts = max(1, self.itemsize // shadow.unit)
        first = slots * self.itemsize // shadow.unit - shadow.origin // shadow.unit
        units = (first[..., None] + np.arange(parts)).reshape(*lanes.shape, -1)
        record = lanes.record | self.wave.clock.stamp(site)
        return units, in_shape(record[..., None], units.shape)

    def _race(self, conflict: tuple[int, int], units: Array, lanes: Lanes, site: int, what: str | None = None) -> None:
        position, earlier = conflict
        unit = int(units.reshape(-1)[position])
        assert self.shadow is not None
        byte = unit * self.shadow.unit + self.shadow.origin
        parts = units.size // lanes.count
        self.wave.report_race(self, byte, position // parts, lanes, site, earlier, what)

    # --- counters -----------------------------------------------------------------------------------------------------

    def atomic_add(
        self,
        index: Index,
        amount: Index,
        lanes: Lanes,
        site: int,
        *,
        acquire: bool = False,
        wrap: Index | None = None,
        release: bool = False,
    ) -> Any:
        """Old values (int64) of Int32 elements to which each active thread adds its amount, in random order.

        wrap   what becomes 0
        """
        wave = self.wave
        place = in_shape(self._locate(index, 1, lanes, site), lanes.shape)
        data, flags = self._storage(1)
        self._check_flags_only(place, flags, lanes, site)
        places = place.reshape(-1)
        amounts = in_shape(lanes.pick(amount), lanes.shape).reshape(-1)
        bounds = None if wrap is None else in_shape(lanes.pick(wrap), lanes.shape).reshape(-1)
        units, record = self._check_atomic(place, lanes, site)
        old = np.zeros(places.shape, np.int64)
        for lane in wave.rng.permutation(len(places)).tolist():
            position = places[lane]
            value = int(data[position])
            old[lane] = value
            total = value + int(amounts[lane])
            if bounds is not None and total >= bounds[lane]:
                total = 0
            data[position] = (total + 2**31) % 2**32 - 2**31
            if units is not None and record is not None and wave.communication is not None and self.shadow is not None:
                wave.communication.atomic(
                    self.shadow, int(units[lane]), int(record[lane]), is_update=True, acquires=acquire, releases=release
                )
        wave.clock.advance()
        wave.progress()
        return lanes.spread(old.reshape(lanes.shape))

    def reached(self, index: Index, target: Index, lanes: Lanes, site: int, *, acquire: bool = False) -> bool:
        """Whether the Int32 element is at least `target` for every active thread; those threads have then seen it."""
        wave = self.wave
        place = in_shape(self._locate(index, 1, lanes, site), lanes.shape)
        data, flags = self._storage(1)
        self._check_flags_only(place, flags, lanes, site)
        short = data[place] < lanes.pick(target)
        if np.any(short):
            wave.wait(self, place, short, lanes, site)
            return False
        units, record = self._check_atomic(place, lanes, site)
        if units is not None and record is not None and wave.communication is not None and self.shadow is not None:
            for lane in range(len(units)):
                wave.communication.atomic(
                    self.shadow, int(units[lane]), int(record[lane]), is_update=False, acquires=acquire
                )
        wave.clock.advance()
        wave.progress()
        return True

    def locate_pair(self, index: Index, lanes: Lanes, site: int) -> Any:
        """Positions in `data` of the first of two words that are accessed at once."""
        return self._locate(index, 2, lanes, site)

    def clear(self, places: Array, lanes: Lanes, site: int) -> None:
        """Each active thread stores 0 at its place."""
        self._note_write(places.reshape(lanes.shape), 1, lanes, site)
        self.data[places] = 0

    def note_atomics(self, places: Array, lanes: Lanes, site: int, *, is_update: bool = True) -> None:
        """Each active thread updates, or sees, the Int32 element at its place at once, which acquires nothing by itself."""
        units, record = self._check_atomic(places.reshape(lanes.shape), lanes, site)
        communication = self.wave.communication
        if units is not None and record is not None and communication is not None and self.shadow is not None:
            for unit, one in zip(units.tolist(), record.tolist(), strict=True):
                communication.atomic(self.shadow, unit, one, is_update=is_update)

    def _check_flags_only(self, place: Array, flags: Array | None, lanes: Lanes, site: int) -> None:
        if flags is not None:
            bad = flags[place] != (_ALL_WRITTEN & ((1 << 8 * flags.itemsize) - 1))
            if has_any(bad):
                self._unwritten(bad, place, 1, lanes, site, "was never written")

    def _check_atomic(self, place: Array, lanes: Lanes, site: int) -> tuple[Array | None, Array | None]:
        if self.shadow is None:
            return None, None
        units, record = self._units(place, 1, lanes, site)
        if units.size != place.size:
            raise InternalError("a counter shares memory with narrower elements", pass_name="simulator")
        conflict = self.shadow.check_write(units, record)
        if conflict is not None:
            self._race(conflict, units, lanes, site)
        return units.reshape(-1), record.reshape(-1)


class VirtualView(MemoryView):
    """A buffer in a `VirtualRegion`: positions are slots of its pages."""

    def __init__(
        self, wave: RunningWave, buffer: Buffer, region: VirtualRegion, base: int, size: int, shadow: Shadow | None
    ) -> None:
        super().__init__(wave, buffer, region.data, None, base=base, stride=0, size=size, shadow=shadow)
        self.region = region

    def _locate(self, index: Index, width: int, lanes: Lanes, site: int) -> Any:
        return self._slots(np.asarray(super()._locate(index, width, lanes, site)))

    def _slots(self, place: Array) -> Array:
        slots = self.region.slots(place.astype(np.int64))
        if self.shadow is not None:
            self.shadow.grow(len(self.region.data) * self.itemsize // self.shadow.unit)
        return slots

    def _storage(self, width: int) -> tuple[Array, Array | None]:
        data = self.region.data
        written = self.region.written
        if width == 1:
            return data, written
        packed = data.view(_PACKED[width * self.itemsize])
        return packed, written.reshape(-1, width)

    def _set_flags(self, flags: Array, row: Array) -> None:
        flags[row] = True

    def index_at(self, byte: int) -> int:
        slot = byte // self.itemsize
        page = next(page for page, start in self.region.pages.items() if start <= slot < start + PAGE)
        return page * PAGE + slot - self.region.pages[page] - self.base
