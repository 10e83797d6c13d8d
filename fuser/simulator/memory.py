"""Device memory of the simulator: an address space of its own, with gaps, and a flag for every byte that was written.

Grammar
    memory := DeviceMemory(region*)
    region := Region(address, data, written)                 ordinary memory
            | VirtualRegion(address, dtype, size, function)  memory of any size without storage; see below

Addresses are never handed out twice, so that a stale pointer is found. A `VirtualRegion` answers reads of elements that
no thread has written with a function of the index; what is written is kept page by page. It serves to run the boundary
blocks of a launch whose tensors would not fit into memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from fuser import locks
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.devices.device import out_of_memory
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.lanes import Array

ALIGNMENT = 256
# Bytes between two allocations that belong to nobody.
GUARD = 4096
# Above 2**32, so that an address never passes for an index.
_FIRST_ADDRESS = 0x7_0000_0000
# Released regions that are remembered, to name them in a report.
_REMEMBERED = 1024
PAGE = 4096


class Region:
    """`nbytes` bytes from `address` on. Storage is padded to a multiple of the alignment; bounds go by `nbytes`."""

    __slots__ = ("address", "data", "name", "nbytes", "released", "written")

    def __init__(self, address: int, nbytes: int, name: str) -> None:
        padded = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.address = address
        self.nbytes = nbytes
        self.name = name
        self.released = False
        self.data: Array = np.zeros(padded, np.uint8)
        # 1 for every byte that holds a value.
        self.written: Array = np.zeros(padded, np.uint8)


class VirtualRegion:
    """`size` elements of `dtype`; `function(indices) -> values` gives what was there before the launch.

    Without a function the memory is uninitialised. Elements live at slots of `data`, a page at a time.
    """

    __slots__ = ("address", "data", "dtype", "function", "name", "nbytes", "pages", "released", "size", "written")

    def __init__(
        self, address: int, dtype: DataType, size: int, function: Callable[[Array], Array] | None, name: str
    ) -> None:
        self.address = address
        self.dtype = dtype
        self.size = size
        self.function = function
        self.name = name
        self.nbytes = size * dtype.itemsize
        self.released = False
        self.pages: dict[int, int] = {}
        self.data: Array = np.zeros(0, dtype.numpy)
        self.written: Array = np.zeros(0, np.bool_)

    def slots(self, elements: Array) -> Array:
        """Positions in `data` of the elements (int64, in bounds); pages touched for the first time are made."""
        pages, inverse = np.unique(elements // PAGE, return_inverse=True)
        fresh = [int(page) for page in pages if int(page) not in self.pages]
        if fresh:
            self._add(fresh)
        starts = np.array([self.pages[int(page)] for page in pages], np.int64)
        return starts[inverse].reshape(elements.shape) + elements % PAGE

    def _add(self, fresh: list[int]) -> None:
        old = len(self.data)
        data = np.zeros(old + PAGE * len(fresh), self.dtype.numpy)
        written = np.zeros(len(data), np.bool_)
        data[:old] = self.data
        written[:old] = self.written
        for number, page in enumerate(fresh):
            start = old + PAGE * number
            self.pages[page] = start
            count = min(PAGE, self.size - page * PAGE)
            if self.function is not None and count > 0:
                indices = np.arange(page * PAGE, page * PAGE + count, dtype=np.int64)
                data[start : start + count] = self.function(indices)
                written[start : start + count] = True
        self.data, self.written = data, written

    def read(self, indices: Array) -> Array:
        """Values of elements, for tests. SimulatorError if one was never written."""
        slots = self.slots(np.asarray(indices, np.int64))
        if not self.written[slots].all():
            missing = int(np.asarray(indices).reshape(-1)[np.argmin(self.written[slots].reshape(-1))])
            raise SimulatorError(Kind.uninitialised_read, f"{self.name}[{missing}] was never written", buffer=self.name)
        return self.data[slots]


class DeviceMemory:
    """The address space. Safe to use from several threads; the contents of a region are the caller's business."""

    def __init__(self) -> None:
        self._lock = locks.reentrant_lock()
        # By address.
        self._regions: list[Region | VirtualRegion] = []
        self._next = _FIRST_ADDRESS
        self._released = 0

    def allocate(self, nbytes: int, name: str = "memory") -> int:
        """Address of `nbytes` uninitialised bytes, aligned to 256. LaunchMemoryError if the host has no room for them."""
        with self._lock:
            try:
                region = Region(self._next, nbytes, name)
            except (MemoryError, ValueError) as error:  # a size that NumPy has no array for is a ValueError
                raise out_of_memory(nbytes, "the simulator") from error
            self._place(nbytes)
            self._register(region)
            return region.address

    def map_virtual(
        self, dtype: DataType, size: int, function: Callable[[Array], Array] | None = None, name: str = "virtual"
    ) -> VirtualRegion:
        """A region of `size` elements without storage."""
        with self._lock:
            region = VirtualRegion(self._place(size * dtype.itemsize), dtype, size, function, name)
            self._register(region)
            return region

    def _place(self, nbytes: int) -> int:
        address = self._next
        self._next = -(-(address + nbytes + GUARD) // ALIGNMENT) * ALIGNMENT
        return address

    def _register(self, region: Region | VirtualRegion) -> None:
        self._regions.append(region)

    def release(self, address: int) -> None:
        """End the life of the region that starts at `address`. SimulatorError if there is none."""
        with self._lock:
            region = self.find(address)
            if region is None or region.address != address or region.released:
                raise SimulatorError(Kind.out_of_bounds, f"{address:#x} is not the start of an allocation")
            region.released = True
            region.data = region.data[:0]
            region.written = region.written[:0]
            self._released += 1
            if self._released > _REMEMBERED:
                self._forget()

    def _forget(self) -> None:
        self._regions = [region for region in self._regions if not region.released]
        self._released = 0

    def find(self, address: int) -> Region | VirtualRegion | None:
        """The region, released or not, that holds `address` (its end included), or None."""
        with self._lock:
            position = bisect_right(self._regions, address, key=lambda r: r.address) - 1
            if position < 0:
                return None
            region = self._regions[position]
            return region if address <= region.address + region.nbytes else None

    def bytes_at(self, address: int, nbytes: int) -> tuple[Array, Array]:
        """The bytes and their written flags, as views. SimulatorError if they are not all in one live region."""
        region = self.find(address)
        if not isinstance(region, Region) or region.released or address + nbytes > region.address + region.nbytes:
            raise SimulatorError(Kind.out_of_bounds, f"{nbytes} bytes at {address:#x} are not device memory")
        start = address - region.address
        return region.data[start : start + nbytes], region.written[start : start + nbytes]

    def write(self, address: int, data: Array) -> None:
        """Copy a C-contiguous array to `address`."""
        if data.nbytes == 0:
            return
        target, written = self.bytes_at(address, data.nbytes)
        target[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        written[:] = 1

    def read(self, data: Array, address: int) -> None:
        """Fill a C-contiguous array from `address`. SimulatorError if a byte was never written."""
        if data.nbytes == 0:
            return
        source, written = self.bytes_at(address, data.nbytes)
        if not written.all():
            missing = int(np.argmin(written))
            region = self.find(address)
            name = "memory" if region is None else region.name
            message = f"{np.count_nonzero(written == 0)} of {data.nbytes} bytes at {address:#x} were never written"
            raise SimulatorError(
                Kind.uninitialised_read, f"{message}, the first is number {missing} ({name})", buffer=name
            )
        data.reshape(-1).view(np.uint8)[:] = source

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy within the device; uninitialised bytes stay uninitialised."""
        if nbytes == 0:
            return
        source, source_written = self.bytes_at(src, nbytes)
        target, target_written = self.bytes_at(dst, nbytes)
        target[:] = source.copy()
        target_written[:] = source_written.copy()

    def upload(self, data: Array, name: str = "memory") -> int:
        """Address of a new region that holds the array."""
        address = self.allocate(data.nbytes, name)
        self.write(address, data)
        return address

    def download(self, address: int, dtype: DataType, count: int) -> Array:
        """`count` elements from `address`; SimulatorError if one was never written."""
        result = np.empty(count, dtype.numpy)
        self.read(result, address)
        return result
