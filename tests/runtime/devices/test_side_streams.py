"""Streams beside the caller's, on a driver made of host memory: what is asked of it, and whose they are when."""

from __future__ import annotations

from typing import Any

import pytest

from fuser.errors import LaunchError
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.side_streams import SideStreams
from tests.package.forked_child import in_child
from tests.runtime.fake_driver import FakeDriver, install


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return install(monkeypatch)


def orders(fake: FakeDriver) -> list[tuple[int, int]]:
    """(stream that waits, stream that it waits for) since the last time, in order."""
    recorded: dict[Any, int] = {}
    found: list[tuple[int, int]] = []
    for name, arguments in fake.calls:
        if name == "cuEventRecord":
            recorded[arguments[0]] = arguments[1]
        elif name == "cuStreamWaitEvent":
            found.append((arguments[0], recorded[arguments[1]]))
    fake.calls.clear()
    return found


@pytest.mark.parametrize("in_context", [False, True])
def test_a_run_has_streams_that_begin_behind_the_callers_and_end_before_it(
    fake: FakeDriver, *, in_context: bool
) -> None:
    side = SideStreams(CudaDevice(0), 7, 3, in_context=in_context)
    first, second = side.handles[1:]
    assert side.handles[0] == 7
    assert len({*side.handles}) == 3
    side.begin(1)
    side.begin(2)
    side.record(0, 1)
    side.wait(0, 2)
    assert orders(fake) == [(first, 7), (second, 7), (second, first)]
    side.close()
    # Both are joined, and come after the join.
    assert orders(fake) == [(7, first), (7, second), (first, 7), (second, 7)]


def test_streams_that_were_not_turned_to_cost_nothing(fake: FakeDriver) -> None:
    side = SideStreams(CudaDevice(0), 7, 3)
    side.close()
    assert orders(fake) == []


def test_the_next_run_has_the_same_streams_and_events(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    runs: list[tuple[int, ...]] = []
    for _ in range(3):
        side = SideStreams(device, 7, 3)
        side.begin(1)
        side.record(0, 1)
        side.close()
        runs.append(side.handles)
    assert runs[0] == runs[1] == runs[2]
    assert fake.names().count("cuStreamCreate") == 2
    assert fake.names().count("cuEventCreate") == 2


def test_runs_at_one_time_have_streams_of_their_own(fake: FakeDriver) -> None:
    device: Any = CudaDevice(0)
    one, other = SideStreams(device, 7, 2), SideStreams(device, 7, 2)
    assert one.handles[1] != other.handles[1]


def test_what_is_joined_within_a_capture_does_not_go_on_behind_it(fake: FakeDriver) -> None:
    """Work behind the join would have to be joined again before the capture ends."""
    fake.capture = 5
    side = SideStreams(CudaDevice(0), 7, 2)
    side.begin(1)
    orders(fake)
    side.close()
    assert orders(fake) == [(7, side.handles[1])]


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("call", ["cuEventRecord", "cuStreamWaitEvent"])
def test_streams_of_a_run_whose_end_failed_are_given_to_nobody(
    fake: FakeDriver, call: str, *, in_context: bool
) -> None:
    device: Any = CudaDevice(0)
    side = SideStreams(device, 7, 2, in_context=in_context)
    side.begin(1)
    fake.fail_names = {call: 1}
    with pytest.raises(LaunchError, match=call):
        side.close()
    fake.fail_names = {}
    assert SideStreams(device, 7, 2).handles[1] != side.handles[1]


def test_a_forked_child_has_none_of_them(fake: FakeDriver) -> None:
    from fuser.runtime.devices import side_streams

    device: Any = CudaDevice(0)
    SideStreams(device, 7, 3).close()
    pool = side_streams._pool_of(device)  # pyright: ignore[reportPrivateUsage]
    assert len(pool._streams) == 2  # pyright: ignore[reportPrivateUsage]
    answer = in_child(lambda: (pool._streams, pool._events))  # pyright: ignore[reportPrivateUsage]
    assert answer == "([], [])"
