"""Memory that outlives enqueued work, on a driver made of host memory."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest

from fuser.errors import LaunchError
from fuser.runtime.devices import streams
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.streams import join_streams, keep_until_done, order_after
from fuser.runtime.kernels.variants import KernelVariants
from tests.runtime.fake_driver import FakeDriver, install, no_compiler


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(streams, "_in_flight", {})
    return install(monkeypatch)


class Kept:
    """Something that is to be kept."""


def test_a_call_within_a_call(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of garbage may close a graph within any line. Nobody waits for itself, and events are destroyed once."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    answers: list[int] = []
    nested: list[int] = []

    def query(event: int) -> Any:
        del event
        if len(nested) < 3:
            nested.append(len(nested))
            keep_until_done(device, 0, [Kept()])
        return (answers.pop() if answers else 0,)

    monkeypatch.setattr(fake, "_cuEventQuery", query, raising=False)

    def run() -> None:
        keep_until_done(device, 0, [Kept()])
        answers.extend([600, 600])
        nested.clear()
        keep_until_done(device, 0, [Kept()])
        keep_until_done(device, 0, [Kept()])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    made = [call for call in fake.names() if call == "cuEventCreate"]
    destroyed = [arguments[0] for name, arguments in fake.calls if name == "cuEventDestroy"]
    assert len(destroyed) == len(set(destroyed)) == len(made)


def test_work_that_is_under_way_is_asked_about_once(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the host is ahead of the device, a call asks each stream for its oldest work alone."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    done: set[int] = set()
    monkeypatch.setattr(fake, "_cuEventQuery", lambda event: (0 if event in done else 600,), raising=False)
    kept = [Kept() for _ in range(40)]
    alive = [weakref.ref(k) for k in kept]
    while kept:
        fake.calls.clear()
        keep_until_done(device, len(kept) % 2, [kept.pop(0)])
        assert fake.names().count("cuEventQuery") <= 2
    events = [
        event for streams_ in streams._in_flight.values() for entries in streams_.values() for event, _ in entries
    ]
    assert len(events) == 40
    assert all(ref() is not None for ref in alive)
    done.update(events)
    keep_until_done(device, 7, [Kept()])
    assert not any(ref() is not None for ref in alive)


def test_what_cannot_be_asked_stays(fake: FakeDriver) -> None:
    """Memory that may be in use is kept where the driver does not say."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    kept = Kept()
    fake.fail_names["cuEventQuery"] = 700
    with pytest.raises(Exception, match="cuEventQuery failed"):
        keep_until_done(device, 0, [kept])
    fake.fail_names.clear()
    assert "cuEventDestroy" not in fake.names()
    keep_until_done(device, 0, [Kept()])
    assert fake.names().count("cuEventDestroy") == 2


def test_what_others_capture_is_left_alone(fake: FakeDriver) -> None:
    """Asking whether work is over ends a capture in the usual mode, also one of another thread."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    fake.others_capture = True
    keep_until_done(device, 5, [Kept()])
    assert "cuEventDestroy" in fake.names()
    assert fake.ended_captures == 0
    assert fake.mode == 0, "the thread's own mode is what it was"


def test_what_a_captured_stream_uses_stays(fake: FakeDriver) -> None:
    """No event of a capture can be asked: what comes after it tells."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    kept = Kept()
    alive = weakref.ref(kept)
    fake.capture = 77
    keep_until_done(device, 5, [kept])
    del kept
    keep_until_done(device, 5, [Kept()])
    assert alive() is not None
    fake.capture = 0
    keep_until_done(device, 0, [Kept()])
    assert alive() is None
    assert fake.names().count("cuEventCreate") == fake.names().count("cuEventDestroy") == 3


def test_a_capture_is_cut_off_from_other_streams(fake: FakeDriver) -> None:
    device = CudaDevice(0, KernelVariants(no_compiler))
    fake.capture = 77
    fake.calls.clear()
    assert join_streams(device, 5, (0, 5)) == set()
    with pytest.raises(LaunchError, match="work on stream 0x5 cannot be waited for while it is captured"):
        order_after(device, 0, 5)
    assert "cuStreamWaitEvent" not in fake.names()
    assert join_streams(device, 5, (0, 5, 6, 6)) == {6}
    assert fake.names().count("cuStreamWaitEvent") == 1


def test_a_capture_that_an_error_has_ended_is_still_none_of_ours(fake: FakeDriver) -> None:
    device = CudaDevice(0, KernelVariants(no_compiler))
    fake.capture, fake.is_ended = 77, True
    assert device.is_capturing(5)
    assert not device.is_capturing(0)
    order_after(device, 5, 0)
    assert "cuStreamWaitEvent" not in fake.names()


def test_the_default_stream_while_one_that_waits_for_it_is_captured(fake: FakeDriver) -> None:
    """Nothing is put there, which would end the capture: a collection of garbage may come at any time."""
    device = CudaDevice(0, KernelVariants(no_compiler))
    memory, kept = device.allocate(64, 0), Kept()
    alive = weakref.ref(kept)
    fake.blocks_default = True
    device.release(memory, 0)
    keep_until_done(device, 0, [kept])
    del kept
    order_after(device, 0, 5)
    with pytest.raises(LaunchError, match="work on stream 0x0 cannot be waited for"):
        order_after(device, 5, 0)
    with pytest.raises(LaunchError, match="the default stream: while one that waits for it is"):
        device.copy_to_host(np.zeros(16, np.float32), memory.address, 0)
    assert (fake.ended_captures, fake.freed) == (0, [])
    fake.blocks_default = False
    keep_until_done(device, 0, [Kept()])
    assert alive() is None
    assert fake.freed == [memory.address]
