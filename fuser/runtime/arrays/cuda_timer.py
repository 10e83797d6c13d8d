"""Times of work on a GPU by its own events, one run after the other, each with a cold second-level cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fuser.runtime.arrays.storage import Framework

_AHEAD_NS = 1.0e5
"""The GPU overwrites memory for so long before each run: until then the host has enqueued the run and both events."""
_OF_CACHE = 2
"""How many times the second-level cache is overwritten at least."""


class _Runs(Protocol):
    @property
    def run(self) -> Callable[[], None]: ...


class CudaTimer:
    """Measures on one stream of a device. The memory that it overwrites goes back with `close`."""

    def __init__(self, device: Any, framework: Framework, stream: int) -> None:
        self._device = device
        self._framework = framework
        self._stream = stream
        self._nbytes = _OF_CACHE * device.info.l2_bytes // 16 * 16
        self._passes = max(1, round(_AHEAD_NS * device.info.memory_bytes_per_ns / self._nbytes))
        self._memory = framework.scratch(device, self._nbytes, stream)
        self._events: list[tuple[Any, Any]] = []

    def times(self, trials: Sequence[_Runs]) -> list[float]:
        """Microseconds of one run of each."""
        device, stream = self._device, self._stream
        while len(self._events) < len(trials):
            self._events.append((device.create_event(), device.create_event()))
        for trial, (start, end) in zip(trials, self._events, strict=False):
            for _ in range(self._passes):
                device.fill(self._memory.address, b"\0\0\0\0", self._nbytes // 4, stream)
            device.record_event(start, stream)
            trial.run()
            device.record_event(end, stream)
        return [1e3 * device.elapsed_ms(start, end) for _, (start, end) in zip(trials, self._events, strict=False)]

    def close(self) -> None:
        """Give memory and events back."""
        for start, end in self._events:
            self._device.destroy_event(start)
            self._device.destroy_event(end)
        self._events.clear()
        self._framework.release(self._device, self._memory, self._stream)
