"""Streams beside the caller's: what a run that names several streams has of the device, and the order between them.

    begin      a side stream comes after what the caller's stream has now
    record, wait   an order between two of them, as a program asks for it
    join       the caller's stream comes after all of them: from outside, the run was on one stream
    close      join, and the streams go back to the device's pool for the next run

A run has its streams alone. Two runs on one stream would only be slower, but not where one of them is captured: what the
other one puts there would become part of that graph. So a pool gives no stream that a capture still holds.

Whoever gets a stream next may take memory there that this run has given back, while another stream of it still worked on that
memory. So a stream is given back behind the join, where it comes after all of the run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuser import locks

if TYPE_CHECKING:
    from fuser.runtime.devices.device import Device


class StreamPool:
    """Streams and events of one device that no run has at the moment. They live as long as the process."""

    def __init__(self, device: Device) -> None:
        self._device = weakref.ref(device)
        self._lock = locks.lock()
        self._streams: list[int] = []
        self._events: list[Any] = []
        # Both are of the parent's context.
        locks.in_child_of(self, StreamPool._forget)

    def take(self, count: int, capture: int, capture_of: Callable[[int], int]) -> list[int]:
        """Streams that are in no capture, or in the one of that number."""
        device = self._device()
        assert device is not None
        found: list[int] = []
        with self._lock:
            for stream in reversed(self._streams):
                if len(found) == count:
                    break
                if capture_of(stream) in (0, capture):
                    found.append(stream)
            for stream in found:
                self._streams.remove(stream)
        while len(found) < count:
            found.append(device.create_stream())
        return found

    def event(self) -> Any:
        """An event that nobody else has."""
        device = self._device()
        assert device is not None
        with self._lock:
            if self._events:
                return self._events.pop()
        return device.create_order_event()

    def give_back(self, streams: list[int], events: list[Any]) -> None:
        # The last one taken is the first one given out again, so that runs one after another have the same ones.
        with self._lock:
            self._streams += reversed(streams)
            self._events += events

    def _forget(self) -> None:
        self._streams, self._events = [], []


_pools: weakref.WeakKeyDictionary[Device, StreamPool] = weakref.WeakKeyDictionary()
_lock = locks.lock()


def _pool_of(device: Device) -> StreamPool:
    found = _pools.get(device)
    if found is None:
        with _lock:
            found = _pools.get(device)
            if found is None:
                found = _pools[device] = StreamPool(device)
    return found


class SideStreams:
    """The streams of one run by number; number 0 is the caller's.

    An event may be recorded again while a stream waits for what it was: a wait is for the work that was there when it was asked
    for. So one event is enough for all orders that the run makes by itself.
    """

    __slots__ = ("_begun", "_capture", "_device", "_events", "_own", "_pool", "_record", "_side", "_wait", "handles")

    def __init__(self, device: Device, stream: int, count: int, *, in_context: bool = False) -> None:
        """`count` includes the caller's `stream`.

        in_context   what is asked of the device is asked in its context, as `Device.order_calls` has it
        """
        self._device = device
        self._pool = _pool_of(device)
        if in_context:
            self._record, self._wait, capture_of = device.order_calls()
        else:
            self._record, self._wait, capture_of = device.record_event, device.wait_event, device.capture_of
        self._capture = capture_of(stream)
        self._events: dict[int, Any] = {}
        self._own: Any = None
        self._begun: list[int] = []
        self._side: list[int] = self._pool.take(count - 1, self._capture, capture_of)
        self.handles: tuple[int, ...] = (stream, *self._side)

    def begin(self, number: int) -> None:
        """The first use of a side stream."""
        self._begun.append(number)
        self.order(number, 0)

    def order(self, later: int, earlier: int) -> None:
        """What comes to one stream from now on waits for what is on another now."""
        if self._own is None:
            self._own = self._pool.event()
        self._record(self._own, self.handles[earlier])
        self._wait(self._own, self.handles[later])

    def record(self, event: int, number: int) -> None:
        """`event` is from now on what stands on that stream."""
        found = self._events.get(event)
        if found is None:
            found = self._events[event] = self._pool.event()
        self._record(found, self.handles[number])

    def wait(self, event: int, number: int) -> None:
        """What comes to a stream from now on waits for an event that was recorded."""
        self._wait(self._events[event], self.handles[number])

    def synchronize(self) -> None:
        """The host waits for all of them."""
        for number in (0, *self._begun):
            self._device.synchronize(self.handles[number])

    def join(self) -> None:
        """The caller's stream comes after all others, and they after it."""
        begun, self._begun = self._begun, []
        for number in begun:
            self.order(0, number)
        # In a capture memory is the graph's, and what stands behind a join would have to be joined again.
        if begun and not self._capture:
            self._record(self._own, self.handles[0])
            for number in begun:
                self._wait(self._own, self.handles[number])

    def close(self) -> None:
        """Join, and give the streams back. If that fails they are dropped: nobody knows what is on them."""
        side, self._side = self._side, []
        events, self._events = list(self._events.values()), {}
        self.join()
        if self._own is not None:
            events.append(self._own)
            self._own = None
        self._pool.give_back(side, events)
