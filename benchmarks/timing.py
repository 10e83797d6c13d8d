"""Times on the GPU, the same way for every system: ours, the copies, torch eager, torch.compile.

Before each timed run the L2 cache is overwritten; events stand right around the run. Runs are queued in batches behind a
sleeping kernel, so that the GPU never waits for the host and the time to launch is hidden alike in all systems. The
host's time per call is measured apart. Needs torch; times are microseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_FLUSH_BYTES = 256 * 2**20
_BATCH = 20
_SLEEP_CYCLES_PER_US = 2000
"""More than any clock of today: sleeping too long costs little, too short would show launches."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one run."""

    median: float
    p10: float
    p90: float
    runs: int

    @staticmethod
    def of(times: list[float]) -> Timing:
        """Of single runs."""
        ordered = sorted(times)
        last = len(ordered) - 1
        return Timing(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))


class Stopwatch:
    """Measures calls on the current device and stream."""

    def __init__(self, flush_bytes: int = _FLUSH_BYTES) -> None:
        import torch

        self._torch: Any = torch
        self._cache = torch.empty(flush_bytes // 4, dtype=torch.int32, device="cuda")

    def measure(self, call: Callable[[], object], *, milliseconds: float = 60.0, least: int = 20) -> Timing:
        """At least `least` runs, as many as take about `milliseconds` on the GPU, at most 500."""
        for _ in range(2):
            call()
        self._torch.cuda.synchronize()
        first, host = self._batch(call, 5, 5000.0)
        wanted = milliseconds * 1e3 / max(statistics.median(first), 1.0)
        runs = min(500, max(least, round(wanted)))
        times: list[float] = []
        while len(times) < runs:
            # As long as the host needed for the last batch and half as much again.
            found, host = self._batch(call, min(_BATCH, runs - len(times)), min(1.5 * host * _BATCH, 30000.0))
            times += found
        return Timing.of(times)

    def _batch(self, call: Callable[[], object], runs: int, sleep_us: float) -> tuple[list[float], float]:
        """(microseconds of each run on the GPU, microseconds the host took to queue one)."""
        cuda = self._torch.cuda
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(runs)]
        cuda._sleep(int(sleep_us * _SLEEP_CYCLES_PER_US))  # noqa: SLF001
        begin = time.perf_counter()
        for start, end in pairs:
            self._cache.zero_()
            start.record()
            call()
            end.record()
        host = (time.perf_counter() - begin) * 1e6 / runs
        cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in pairs], host

    def host_time(self, call: Callable[[], object], *, calls: int = 50, rounds: int = 5) -> float:
        """Microseconds the host is busy with one call: the best round's mean, nothing waited for."""
        for _ in range(3):
            call()
        best = float("inf")
        for _ in range(rounds):
            self._torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best = min(best, (time.perf_counter() - begin) * 1e6 / calls)
        self._torch.cuda.synchronize()
        return best
