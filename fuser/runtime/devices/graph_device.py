"""What CUDA graphs ask of the device that they are made for, beyond what every device does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fuser.runtime.devices.cuda_binaries import LoadedKernel
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.launch import Launch


class GraphDevice(Device, Protocol):
    """A device of the driver (`CudaDevice`)."""

    context: Any

    def current(self) -> AbstractContextManager[None]:
        """The context of this device is current inside."""
        ...

    def prepare(self, kernel: CompiledKernel, launch: Launch, stream: int = 0) -> LoadedKernel:
        """Do all that a launch of these sizes needs before it can be enqueued. Raises the errors of `launch`."""
        ...

    def capture_library(self, call: LibraryCall, addresses: Sequence[int], shared: dict[str, Any]) -> Any:
        """What a library would enqueue, as a graph: an object whose `graph` is its handle, for as long as it lives.

        shared   what the calls of one graph share, by library; it lives as long as they do
        """
        ...

    def why_not_recorded(self, call: LibraryCall) -> str:
        """Why a library's call is no part of a graph; empty for one that can be."""
        ...

    def drop_semaphores(self) -> None:
        """Forget all semaphore pools: after a failed launch nobody knows what the counters hold."""
        ...
