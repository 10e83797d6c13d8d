"""`Storage`, memory of a slot during a run, and `Framework`: what gives it, and makes results of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.devices.device import Allocation, Device

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True, eq=False)
class Storage:
    """Device memory of one slot during a run.

    array       the caller's array that holds it (an input) or the framework's (an output); None for device allocations
    allocation  what the device's allocator gave; None for memory of others
    host        bytes of the caller's host array behind it, or (`is_copy`) of what went out; None if there are none
    shared      what keeps the allocation alive once a result over it went out
    pending     bytes of a host array that has no device memory yet
    """

    address: int
    nbytes: int
    array: Any = None
    allocation: Allocation | None = None
    host: np.ndarray[Any, Any] | None = None
    shared: Any = None
    pending: np.ndarray[Any, Any] | None = None
    is_copy: bool = False


class Framework(Protocol):
    """What an execution needs from a kind of caller."""

    kind: str

    def current_stream(self, device: Device) -> int | None:
        """Raw handle of the stream the caller's work goes to; None if the framework does not tell."""
        ...

    def new_array(
        self, device: Device, dtype: DataType, sizes: Sequence[int], strides: Sequence[int], stream: int
    ) -> Storage:
        """Uninitialised memory that may go out as a result."""
        ...

    def scratch(self, device: Device, nbytes: int, stream: int) -> Storage:
        """Uninitialised memory that never goes out; aligned to 256 bytes."""
        ...

    def release(self, device: Device, storage: Storage, stream: int) -> None:
        """Give memory back that did not go out; work enqueued on `stream` before may still use it."""
        ...

    def deliver(
        self,
        device: Device,
        storage: Storage,
        dtype: DataType,
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        stream: int,
    ) -> Any:
        """An array of the caller's type over (or copied from) `storage`, `offset` elements from its address."""
        ...
