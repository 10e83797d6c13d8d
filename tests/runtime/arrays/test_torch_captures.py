"""Streams and memory that captures of torch have to themselves, on a torch that says what it was asked for."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.runtime.arrays import torch_captures
from fuser.runtime.arrays.torch_captures import CaptureMemory, captured


class FakeTorch:
    """`log` has what happened, in order; `alive` the graphs that there are, by pool."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.alive: list[Any] = []
        self.current: Any = 0
        self.pools = 0
        self.fails_to_end = False
        self.cuda = SimpleNamespace(
            CUDAGraph=lambda keep_graph: FakeGraph(self),
            ExternalStream=lambda handle, device: (handle, device),
            stream=self._stream,
            graph_pool_handle=self._pool,
        )

    def _pool(self) -> str:
        self.pools += 1
        return f"pool {self.pools}"

    @contextmanager
    def _stream(self, stream: Any) -> Generator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def device(self, kind: str, index: int) -> str:
        return f"{kind}:{index}"

    def zeros(self, shape: Any, device: str) -> list[Any]:
        return [device]

    def mm(self, a: Any, b: Any) -> None:
        self.log.append(("mm", self.current))

    def addmm(self, bias: Any, a: Any, b: Any) -> None:
        self.log.append(("addmm", self.current))


class FakeGraph:
    def __init__(self, torch: FakeTorch) -> None:
        self._torch, self._pool = torch, ""

    def capture_begin(self, pool: str, capture_error_mode: str) -> None:
        self._pool = pool
        self._torch.alive.append(pool)
        self._torch.log.append(("begin", pool, self._torch.current))

    def capture_end(self) -> None:
        self._torch.log.append("end")
        if self._torch.fails_to_end:
            raise RuntimeError("the capture failed earlier")

    def __del__(self) -> None:
        self._torch.alive.remove(self._pool)
        self._torch.log.append(("gone", self._pool))


class FakeDevice:
    def __init__(self, index: int) -> None:
        self.index = index
        self.streams = 0

    def create_stream(self) -> int:
        self.streams += 1
        return 0x100 * (self.index + 1) + self.streams


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr(torch_captures, "_free", {})
    return fake


def memory(device: Any) -> Any:
    return CaptureMemory(device)


def test_graphs_that_live_at_once_share_neither_stream_nor_memory(fake: FakeTorch) -> None:
    device = FakeDevice(0)
    one, two = memory(device), memory(device)
    assert one.lane.stream != two.lane.stream
    assert one.pool != two.pool
    stream = one.lane.stream
    del one
    gc.collect()
    # What nobody has any more is taken again: there are never more streams than graphs at once.
    assert memory(device).lane.stream == stream
    assert device.streams == 2


def test_streams_are_of_the_device(fake: FakeTorch) -> None:
    first = memory(FakeDevice(0))
    assert first.lane.stream == (0x101, 0)
    del first
    assert memory(FakeDevice(1)).lane.stream == (0x201, 1)


def test_workspaces_lie_in_a_pool_that_outlives_the_graphs(fake: FakeTorch) -> None:
    lane = memory(FakeDevice(0)).lane
    for _ in range(3):
        fake.log.clear()
        lane.prepare_products()
        assert fake.log[-4:] == [
            ("begin", lane._pool, lane.stream),  # noqa: SLF001
            ("mm", lane.stream),
            ("addmm", lane.stream),
            "end",
        ]
        # Whoever of them goes, goes before the workspaces are asked for; one always stays.
        assert all(entry[0] != "gone" for entry in fake.log[-4:])
        assert 1 <= len(fake.alive) <= 2


def test_captures_between_two_launches_prepare_once_in_each_thread(fake: FakeTorch) -> None:
    own = memory(FakeDevice(0))

    def products() -> int:
        before = sum(entry == "end" for entry in fake.log)
        own.prepare_products()
        return sum(entry == "end" for entry in fake.log) - before

    assert (products(), products()) == (1, 0)
    own.launched()
    assert (products(), products()) == (1, 0)
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(products()))
    other.start()
    other.join()
    assert found == [1]


def test_what_fails_ends_the_capture_and_is_what_is_told(fake: FakeTorch) -> None:
    def work() -> None:
        raise RuntimeError("no such kernel")

    fake.fails_to_end = True
    with pytest.raises(RuntimeError, match="no such kernel"):
        captured((7, 0), "a pool", work)
    assert fake.log[:2] == [("begin", "a pool", (7, 0)), "end"]
