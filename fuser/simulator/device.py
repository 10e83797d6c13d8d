"""The simulator as a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fuser import locks
from fuser.errors import LaunchError, NoDeviceError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.runtime.devices.device import Allocation, OrderCalls
from fuser.runtime.devices.run_commands import SequenceGraph
from fuser.runtime.kernels.commands import Command, Edges
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.runtime.reports import Reports
from fuser.simulator.library_calls import call_numpy
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import check_launch, run_kernel

if TYPE_CHECKING:
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel
    from fuser.runtime.kernels.library_calls import LibraryCall


class SimulatorDevice:
    """A device that runs kernel IR in NumPy and raises at the first defect it finds.

    info        limits; replace it with smaller ones to reach other regimes
    seed        of the block order of the next launch; every launch adds 1
    checks      False leaves out the search for races
    interleave  as for `run_kernel`

    All work is complete when a call returns; streams only keep their semaphores apart.
    """

    def __init__(self, index: int = 0, info: DeviceInfo = H200) -> None:
        self.kind = "simulator"
        self.index = index
        self.info = info
        self.memory = DeviceMemory()
        self.seed = 0
        self.checks = True
        self.interleave: bool | None = None
        self.reports = Reports()
        self._lock = locks.reentrant_lock()
        self._streams = 0
        # Stream -> address and number of its counters.
        self._semaphores: dict[tuple[int, bool], tuple[int, int]] = {}
        # Of a launch that another thread was at they are not zero.
        locks.in_child_of(self, lambda device: device._semaphores.clear())

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        return Allocation(self.memory.allocate(nbytes), nbytes)

    def release(self, allocation: Allocation, stream: int) -> None:
        with self._lock:
            self.memory.release(allocation.address)

    def copy_from_host(self, address: int, data: np.ndarray, stream: int) -> None:
        with self._lock:
            self.memory.write(address, data)

    def copy_to_host(self, data: np.ndarray, address: int, stream: int) -> None:
        """Raises SimulatorError if a byte was never written, LaunchError for what was reported."""
        with self._lock:
            self.memory.read(data, address)
        self.reports.check()

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        with self._lock:
            self.memory.copy(dst, src, nbytes)

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        if len(pattern) not in (1, 2, 4, 8, 16):
            raise LaunchError(f"a fill pattern has 1, 2, 4, 8 or 16 bytes, not {len(pattern)}")
        with self._lock:
            self.memory.write(address, np.tile(np.frombuffer(pattern, np.uint8), count))

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        with self._lock:
            address, size = self._semaphores.get((stream, co_resident), (0, 0))
            if size < count:
                # Another thread may have been given the old ones for a launch that is still to come: they stay.
                count = max(count, 2 * size)
                address = self.memory.upload(np.zeros(count, np.int32), "semaphores")
                self._semaphores[stream, co_resident] = (address, count)
            return address

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[ArgumentValue], stream: int) -> None:
        """Raises SimulatorError for a defect of the kernel, NoDeviceError for raw source."""
        if kernel.kernel_ir is None:
            raise NoDeviceError(f"{kernel.entry} is raw CUDA source: it needs a GPU, the simulator runs kernel IR only")
        check_launch(launch, self.info)
        with self._lock:
            self.seed += 1
            try:
                report = run_kernel(
                    kernel.kernel_ir,
                    launch,
                    arguments,
                    self.memory,
                    seed=self.seed,
                    checks=self.checks,
                    info=self.info,
                    interleave=self.interleave,
                )
            except BaseException:
                # Interrupted: as after a defect, nobody knows what counters hold.
                self._semaphores.clear()
                raise
            if report.error is not None:
                self._semaphores.clear()
        report.check()

    def call_library(self, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
        """Compute with NumPy. Raises SimulatorError for operands that are not all in memory that was written."""
        with self._lock:
            call_numpy(call, addresses, self.memory)

    def make_graph(self, commands: Sequence[Command], edges: Edges) -> SequenceGraph:
        """Runs them in an order that the edges allow, another one each time."""
        return SequenceGraph(self, commands, edges)

    def create_stream(self) -> int:
        with self._lock:
            self._streams += 1
            return self._streams

    def create_order_event(self) -> object:
        return object()

    def record_event(self, event: object, stream: int) -> None:
        pass

    def wait_event(self, event: object, stream: int) -> None:
        pass

    def capture_of(self, stream: int) -> int:
        return 0

    def order_calls(self) -> OrderCalls:
        return self.record_event, self.wait_event, self.capture_of

    def is_capturing(self, stream: int) -> bool:
        return self.capture_of(stream) != 0

    def synchronize(self, stream: int) -> None:
        self.reports.check()
