"""What a device must do, and the registry of devices by name.

The two implementations live above this layer (`simulator`) or beside it (`cuda`); the registry resolves them by
`importlib` on first use, so that nothing is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fuser import locks
from fuser.errors import LaunchMemoryError
from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.runtime.kernels.commands import Command, DeviceGraph, Edges
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.runtime.reports import Reports

if TYPE_CHECKING:
    import numpy as np

# name -> "module:factory"; the factory takes the device index.
REGISTRY: dict[str, str] = {
    "cuda": "fuser.runtime.devices.cuda_device:CudaDevice",
    "simulator": "fuser.simulator.device:SimulatorDevice",
}


@record
class Allocation:
    """Device memory. `address` is an address of the device's own address space (the simulator has one too)."""

    address: int
    nbytes: int
    # Keeps foreign memory alive (a torch tensor, a pool block); None when the device owns it.
    owner: object = None
    # Number of the stream capture whose graph the memory belongs to; 0 for memory that is there.
    capture: int = 0


def out_of_memory(nbytes: int, device: str) -> LaunchMemoryError:
    """The error for an allocation that a device has no room for."""
    return LaunchMemoryError(
        f"{device} has no room for {nbytes} bytes ({nbytes / 2**30:.1f} GiB): give it smaller inputs, or the work in parts"
    )


OrderCalls: TypeAlias = tuple[Callable[[Any, int], None], Callable[[Any, int], None], Callable[[int], int]]


class Device(Protocol):
    """One device. A stream is a raw handle (int); 0 is the default stream of the device.

    Every failing driver call raises LaunchError. All methods are safe to call from several threads.
    """

    kind: str
    index: int
    info: DeviceInfo
    # What work that nobody waited for has to say; `synchronize` and `copy_to_host` raise it.
    reports: Reports

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        """Uninitialised memory, aligned to 256 bytes, ordered on `stream`."""
        ...

    def release(self, allocation: Allocation, stream: int) -> None:
        """Give memory back; work enqueued on `stream` before may still use it."""
        ...

    def copy_from_host(self, address: int, data: np.ndarray, stream: int) -> None:
        """Copy a C-contiguous host array to `address`; `data` may be changed by the caller afterwards."""
        ...

    def copy_to_host(self, data: np.ndarray, address: int, stream: int) -> None:
        """Copy `data.nbytes` from `address` into a C-contiguous host array; complete on return. Raises what was reported."""
        ...

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Copy within the device."""
        ...

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        """Write `pattern` (1, 2, 4, 8 or 16 bytes) `count` times."""
        ...

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        """Address of at least `count` zeroed Int32 counters for one launch on `stream`; never shared between streams.

        co_resident   for a launch that may run while the one before it does, whosever that is: no other launches have these
        """
        ...

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[ArgumentValue], stream: int) -> None:
        """Run `kernel`. `arguments` has one value per kernel parameter: an address for pointers, else the number.

        Raises LaunchError for sizes the kernel or device cannot hold (before anything is enqueued), and after any failed
        launch drops the semaphore pool of the device.
        """
        ...

    def call_library(self, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
        """Have a library compute. `addresses`: of the call's inputs, then of its outputs."""
        ...

    def make_graph(self, commands: Sequence[Command], edges: Edges) -> DeviceGraph:
        """Commands made ready to run as often as one likes; `edges` are, of each, those before that it waits for."""
        ...

    def create_stream(self) -> int:
        """A stream that waits for no other unless it is told to. It lives as long as the process."""
        ...

    def create_order_event(self) -> Any:
        """An event for `record_event` and `wait_event`, without times. It lives as long as the process."""
        ...

    def record_event(self, event: Any, stream: int) -> None:
        """`event` is from now on the work enqueued on `stream` so far."""
        ...

    def wait_event(self, event: Any, stream: int) -> None:
        """Work enqueued on `stream` from now on waits for what `event` is now, whatever it is made later."""
        ...

    def capture_of(self, stream: int) -> int:
        """Number of the capture that `stream` is in; 0 outside any."""
        ...

    def order_calls(self) -> OrderCalls:
        """`record_event`, `wait_event` and `capture_of` for a caller that is in the context of the device and asks often."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether what is put on `stream` becomes part of somebody's graph instead of running."""
        ...

    def synchronize(self, stream: int) -> None:
        """Wait for all work of `stream`. Raises what was reported."""
        ...


_devices: dict[tuple[str, int], Device] = {}
_lock = locks.lock()


def get_device(kind: str, index: int = 0) -> Device:
    """The device of that kind and index, made on first use."""
    found = _devices.get((kind, index))
    if found is None:
        with _lock:
            found = _devices.get((kind, index))
            if found is None:
                module, _, factory = REGISTRY[kind].partition(":")
                found = getattr(importlib.import_module(module), factory)(index)
                _devices[kind, index] = found
    return found
