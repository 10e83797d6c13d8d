"""Streams: what a stream argument may be, the order between two streams, and memory that must outlive enqueued work."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from fuser import locks
from fuser.errors import InputTypeError, LaunchError
from fuser.runtime import driver
from fuser.runtime.devices.device import Device

_EVENT_DISABLE_TIMING = 2
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_CAPTURE_ACTIVE = 1
_CAPTURE_IMPLICIT = 906
UNUSABLE = -1
"""For a capture's number: of a stream whose capture an error has ended already, and of the legacy default stream while one that
waits for it is captured. To put work there would be an error, and end that capture."""
LEGACY = (0, 1)
"""The handles of the legacy default stream."""

_lock = locks.lock()
_own_streams: dict[int, int] = {}
# (event or None while the stream is captured, what must stay alive until the event has passed)
_InFlight = tuple[Any, Sequence[object]]
# By device index and stream, oldest first.
_in_flight: dict[int, dict[int, deque[_InFlight]]] = {}


def stream_handle(stream: Any) -> int:
    """Raw handle of a stream argument: an int, a torch or CuPy stream, or any object with `__cuda_stream__()`.

    Raises InputTypeError for anything else.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair: Any = protocol() if callable(protocol) else protocol
        return int(pair[1])
    for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream, cupy.cuda.Stream
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    raise InputTypeError(
        "expected a stream as a raw handle, a torch or CuPy stream, or an object with __cuda_stream__; "
        f"got {type(stream).__name__}"
    )


@contextmanager
def _context_of(device: Device) -> Generator[None]:
    must_leave = driver.enter_context(driver.primary_context(device.index))
    try:
        yield
    finally:
        if must_leave:
            driver.leave_context()


def _record(stream: int) -> Any:
    """An event after everything in `stream` now. The caller destroys it."""
    event = driver.call("cuEventCreate", _EVENT_DISABLE_TIMING)
    try:
        driver.call("cuEventRecord", event, stream)
    except BaseException:
        driver.call("cuEventDestroy", event)
        raise
    return event


def capture_of(stream: int) -> int:
    """Number of the capture that `stream` is in, 0 outside any, UNUSABLE where it takes no work at all for now.

    The current context must be the stream's.
    """
    found = driver.function("cuStreamIsCapturing")(stream)
    if found[0]:
        if int(found[0]) == _CAPTURE_IMPLICIT:
            return UNUSABLE
        raise driver.error_of("cuStreamIsCapturing", int(found[0]))
    if not found[1]:
        return 0
    status, number = driver.call("cuStreamGetCaptureInfo", stream)[:2]
    return int(number) if int(status) == _CAPTURE_ACTIVE else UNUSABLE


def order_after(device: Device, stream: int, earlier: int) -> bool:
    """Make later work of `stream` wait, on the device, for what is in `earlier` now; False if there is nothing to wait for.

    A capture is cut off from all other streams: whoever launches the graph orders it after what it reads. Raises LaunchError
    where it is `earlier` that is captured, whose work before that cannot be waited for any more.
    """
    if stream == earlier or device.kind != "cuda":
        return False
    with _context_of(device):
        here, there = capture_of(stream), capture_of(earlier)
        if here != there:
            if here:
                return False
            raise LaunchError(
                f"work on stream {earlier:#x} cannot be waited for while it is captured (the default stream: while one that "
                "waits for it is): use its arrays before or after the capture, or on the same stream"
            )
        event = _record(earlier)
        try:
            driver.call("cuStreamWaitEvent", stream, event, 0)
        finally:
            # The driver keeps what it needs until the wait is over.
            driver.call("cuEventDestroy", event)
    return True


def own_stream(device: Device) -> int:
    """This project's stream of a device, for callers without one: it does not block on the default stream."""
    if device.kind != "cuda":  # the work of all others is done when a call returns
        return 0
    found = _own_streams.get(device.index)
    if found is None:
        with _lock:
            found = _own_streams.get(device.index)
            if found is None:
                found = _own_streams[device.index] = device.create_stream()
    return found


def join_streams(device: Device, stream: int, others: Iterable[int]) -> set[int]:
    """Order `stream` after `others`, and give those that are to be ordered after it later."""
    return {other for other in set(others) if order_after(device, stream, other)}


def rejoin_streams(device: Device, stream: int, joined: Iterable[int]) -> None:
    """Order what `join_streams` gave after `stream`: whoever uses the inputs next does so there."""
    for other in joined:
        order_after(device, other, stream)


def keep_until_done(device: Device, stream: int, objects: Sequence[object]) -> None:
    """Keep `objects` alive until the work now in `stream` is over; what is over already is let go.

    While the stream is captured, or unusable, no event can tell: they stay until it is not.
    """
    if device.kind != "cuda" or not objects:
        return
    with _context_of(device), driver.beside_captures():
        by_stream = _in_flight.setdefault(device.index, {})
        entries = by_stream.setdefault(stream, deque())
        entries.append((None if capture_of(stream) else _record(stream), objects))
        for other, theirs in list(by_stream.items()):
            _let_go(other, theirs)


def _let_go(stream: int, entries: deque[_InFlight]) -> None:
    """Let go what work of the stream is done with. Work is done in order: the first that is not ends the search.

    No lock: a collection of garbage may call this within any line. Whoever takes an entry out has it alone, and two that put
    theirs back in the wrong order delay one by the other.
    """
    while entries:
        try:
            event, objects = entries.popleft()
        except IndexError:  # another took it
            return
        try:
            if event is None and not capture_of(stream):
                event = _record(stream)
            passed = event is not None and _has_passed(event)
        except BaseException:
            entries.appendleft((event, objects))
            raise
        if not passed:
            entries.appendleft((event, objects))
            return
        driver.call("cuEventDestroy", event)


def _has_passed(event: Any) -> bool:
    try:
        driver.call("cuEventQuery", event)
    except driver.DriverError as error:
        if error.status == _NOT_READY:
            return False
        raise
    return True
