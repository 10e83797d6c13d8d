"""What the runs of a program have left behind: counters, and what `explain` tells of them. Safe to use from several threads."""

from __future__ import annotations

from fuser import locks
from fuser.runtime.kernels.library_calls import LibraryCall

# `HostProgram.counters` says what they are.
COUNTERS = (
    "runs",
    "replays",
    "launches",
    "launches_beside",
    "launches_kept_apart",
    "launches_early",
    "skipped_launches",
    "library_calls",
    "allocations",
    "deallocations",
    "copies",
    "fills",
    "host_to_device",
    "device_to_host",
    "host_reads",
    "compiles",
    "recompiles",
    "variant_hits",
)

# Different calls of libraries that `explain` tells of.
_MAX_CALLS = 64


class Tally:
    """How often bound programs that count the same were run again. `counts` is what one run adds to the program's counters."""

    __slots__ = ("counts", "lock", "replays")

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.lock = locks.reentrant_lock()
        self.replays = 0


class RunHistory:
    """That of one program. Executors write it; `HostProgram` says what its numbers are."""

    def __init__(self) -> None:
        self._lock = locks.reentrant_lock()
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._tallies: list[Tally] = []
        self._memory: tuple[int, int] | None = None
        self._calls: dict[LibraryCall, None] = {}
        self._interpreted: dict[str, int] = {}

    def counters(self) -> dict[str, int]:
        """Sums over all threads since the program was built."""
        with self._lock:
            total = dict(self._counters)
            tallies = list(self._tallies)
        for tally in tallies:
            total["replays"] += tally.replays
            for name, n in tally.counts.items():
                total[name] += n * tally.replays
        return total

    def count(self, deltas: dict[str, int]) -> None:
        """Add to the counters."""
        with self._lock:
            for name, n in deltas.items():
                self._counters[name] += n

    def new_tally(self, counts: dict[str, int]) -> Tally:
        """One that belongs to the counters from now on."""
        tally = Tally(counts)
        with self._lock:
            self._tallies.append(tally)
        return tally

    def note_interpreted(self, why: str) -> None:
        """Count a run by the interpreter whose like will go there again."""
        with self._lock:
            self._interpreted[why] = self._interpreted.get(why, 0) + 1

    def interpreted(self) -> dict[str, int]:
        """Those runs by reason."""
        with self._lock:
            return dict(self._interpreted)

    def note_call(self, call: LibraryCall) -> None:
        """Keep what the interpreter handed to a library; of many sizes the first ones."""
        with self._lock:
            if len(self._calls) < _MAX_CALLS:
                self._calls.setdefault(call)

    def library_calls(self) -> list[LibraryCall]:
        """Each different call once."""
        with self._lock:
            return list(self._calls)

    def note_memory(self, memory: tuple[int, int]) -> None:
        """Note what a run with new sizes takes: (most bytes at a time, all)."""
        self._memory = memory

    def memory(self) -> tuple[int, int] | None:
        """That of the latest new sizes; None before."""
        return self._memory
