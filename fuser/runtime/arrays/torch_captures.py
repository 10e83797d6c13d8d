"""Work of torch as graphs of CUDA, which nothing else of the process takes part in: streams to capture on, and their memory.

torch keeps workspaces of cuBLAS by stream, and hands them to whatever is captured there; and its own streams are 32 for
everybody. Two graphs that may run at once must not have one workspace, so each has a stream of its own while it lives. To
have torch forget workspaces is no way out: it forgets those of all streams, which graphs of the caller may still use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuser.runtime.devices.device import Device


def captured(stream: Any, pool: Any, work: Callable[[], None]) -> Any:
    """What `work` enqueues, as a CUDAGraph that is not instantiated; it takes memory of `pool`, for as long as it lives.

    Raises what `work` raises.
    """
    import torch

    graph: Any = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(stream):
        # Relaxed: kernels may be loaded and memory given back meanwhile; nothing but `work` is put on this stream.
        graph.capture_begin(pool=pool, capture_error_mode="relaxed")
        try:
            work()
        except BaseException:
            # It says no more than that there was an error.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    return graph


class CaptureStream:
    """A stream that nobody else has, and the workspaces of cuBLAS that torch keeps for it.

    They lie in a pool of their own, which lives as long as this. Whoever has torch forget its workspaces, as torch.compile
    does and newer torch with each graph, gives them back to that pool, where nobody takes them while a graph uses them.
    """

    def __init__(self, device: Device) -> None:
        import torch

        self.stream: Any = torch.cuda.ExternalStream(device.create_stream(), device=device.index)
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._matrix: Any = torch.zeros((16, 16), device=torch.device("cuda", device.index))
        # The first one holds the pool.
        self._held: list[Any] = []

    def prepare_products(self) -> None:
        """Have the workspaces of products in place, for this thread: one that is new lies where a capture first needs it."""
        # The latest goes first: a newer torch forgets the workspaces of a stream with a graph that was captured there.
        del self._held[1:]
        self._held.append(captured(self.stream, self._pool, self._multiply))

    def _multiply(self) -> None:
        """Products by cuBLAS and by cuBLASLt, which adds a bias."""
        import torch

        m = self._matrix
        torch.mm(m, m)
        torch.addmm(m[0], m, m)


# By device index: those that no graph has. Lists, whose `append` and `pop` need no lock, for garbage may come back at any line.
_free: dict[int, list[CaptureStream]] = {}


class CaptureMemory:
    """What the calls of one graph share: memory that they take meanwhile, and a stream to capture them on.

    They follow one another, so that one may use what another had. Nobody else has any of it until this goes.
    """

    # The thread that workspaces were made ready for since the last launch.
    _ready_in: int | None = None

    def __init__(self, device: Device) -> None:
        import torch

        self.pool: Any = torch.cuda.graph_pool_handle()
        self._others = _free.setdefault(device.index, [])
        try:
            self.lane = self._others.pop()
        except IndexError:
            self.lane = CaptureStream(device)

    def prepare_products(self) -> None:
        """What captures of products need beforehand; once for those between two launches."""
        thread = threading.get_ident()
        if self._ready_in != thread:
            self.lane.prepare_products()
            self._ready_in = thread

    def launched(self) -> None:
        """Until the next captures, others may have torch forget its workspaces."""
        self._ready_in = None

    def __del__(self) -> None:
        lane = getattr(self, "lane", None)
        if lane is not None:
            self._others.append(lane)
