"""A device whose streams are queues: what is enqueued runs when the host waits, in some order that streams and events allow.

Memory is given out as an allocator of a library does: what was given back on a stream is there at once for whoever asks on
that stream, and is spoilt in the order of that stream. So an order that is missing, between two streams or between a use and
the end of memory, is a wrong number in the runs of some seeds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import LaunchError
from fuser.runtime.devices.device import Allocation
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.launch import Launch
from fuser.simulator.device import SimulatorDevice

SPOILT = np.float32(-7777.0)


class Event:
    """`point` is what was marked last: done when the device comes to it; `capture` is that of the stream."""

    def __init__(self) -> None:
        self.point: list[bool] = [True]
        self.capture = 0


class QueueDevice(SimulatorDevice):
    """`order_seed` decides the order. `captures` has the numbers of the captures that streams are in.

    returns_home   memory goes back to the stream that it was taken on, whatever stream is named, as libraries have it
    """

    def __init__(self, order_seed: int = 0, *, returns_home: bool = False) -> None:
        super().__init__()
        self.checks = False
        self.order = random.Random(order_seed)
        self.queues: dict[int, deque[tuple[list[bool] | None, Callable[[], None]]]] = {}
        self.free: dict[int, list[Allocation]] = {}
        self.returns_home = returns_home
        # Memory in use, and the stream that it was taken on.
        self.taken: dict[int, int] = {}
        self.captures: dict[int, int] = {}
        self.asked: list[tuple[Any, ...]] = []

    # --- queues -------------------------------------------------------------------------------------------------------

    def put(self, stream: int, work: Callable[[], None], after: list[bool] | None = None) -> None:
        self.queues.setdefault(stream, deque()).append((after, work))

    def drain(self, done: Callable[[], bool]) -> None:
        """Run what may be run, some streams far ahead of others, until `done`."""
        while not done():
            ready = [s for s, queue in self.queues.items() if queue and (queue[0][0] is None or queue[0][0][0])]
            if not ready:
                raise LaunchError("streams wait for one another")
            queue = self.queues[self.order.choice(ready)]
            for _ in range(self.order.choice([1, 1, 100])):
                if not queue or (queue[0][0] is not None and not queue[0][0][0]):
                    break
                queue.popleft()[1]()

    def synchronize(self, stream: int) -> None:
        self.asked.append(("synchronize", stream))
        self.drain(lambda: not self.queues.get(stream))

    # --- streams and events -------------------------------------------------------------------------------------------

    def create_order_event(self) -> Event:
        return Event()

    def record_event(self, event: object, stream: int) -> None:
        assert isinstance(event, Event)
        point = event.point = [False]
        self.put(stream, lambda: point.__setitem__(0, True))
        event.capture = self.capture_of(stream)
        self.asked.append(("record", stream))

    def wait_event(self, event: object, stream: int) -> None:
        assert isinstance(event, Event)
        self.put(stream, lambda: None, after=event.point)
        if event.capture:
            # A stream that waits for what is captured is captured too.
            assert self.capture_of(stream) in (0, event.capture), "a stream of one capture waits for another"
            self.captures[stream] = event.capture
        else:
            assert not self.capture_of(stream), "a captured stream waits for what is not captured"
        self.asked.append(("wait", stream))

    def capture_of(self, stream: int) -> int:
        return self.captures.get(stream, 0)

    # --- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        free = self.free.setdefault(stream, [])
        found = next((a for a in free if a.nbytes == nbytes), None)
        if found is None:
            found = super().allocate(nbytes, stream)
        else:
            free.remove(found)
        self.taken[found.address] = stream
        count = nbytes // 4
        if count:
            address, content = found.address, np.full(count, SPOILT)
            self.put(stream, lambda: self.memory.write(address, content))
        return found

    def release(self, allocation: Allocation, stream: int) -> None:
        home = self.taken.pop(allocation.address)
        self.free.setdefault(home if self.returns_home else stream, []).append(allocation)

    def copy_from_host(self, address: int, data: np.ndarray, stream: int) -> None:
        data = data.copy()
        self.put(stream, lambda: SimulatorDevice.copy_from_host(self, address, data, stream))
        self.drain(lambda: not self.queues.get(stream))

    def copy_to_host(self, data: np.ndarray, address: int, stream: int) -> None:
        self.drain(lambda: not self.queues.get(stream))
        super().copy_to_host(data, address, stream)

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self.put(stream, lambda: SimulatorDevice.copy(self, dst, src, nbytes, stream))

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        self.put(stream, lambda: SimulatorDevice.fill(self, address, pattern, count, stream))

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
        values = tuple(arguments)
        self.asked.append(("launch", stream))
        self.put(stream, lambda: SimulatorDevice.launch(self, kernel, launch, values, stream))
