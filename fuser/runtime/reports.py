"""Deferred errors: what went wrong in work on a device, kept until the host synchronises.

The work that finds a selector out of range does not stop the host, which does not wait for it. So the error is kept, and raised
once, when the host next synchronises with the device through this project: `Device.synchronize`, a copy to the host, the next
run, replay or `synchronize` of a captured program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from fuser import locks
from fuser.errors import LaunchError


class Source(Protocol):
    """Memory that work on a device writes to."""

    def take(self) -> list[str]:
        """What was told since the last time. Waits for nothing."""
        ...


class Reports:
    """Those of one device. Safe to use from several threads."""

    def __init__(self) -> None:
        self._told: deque[str] = deque()
        self._sources: tuple[Source, ...] = ()
        self._lock = locks.lock()
        # What the device of the parent has to say is the parent's.
        locks.in_child_of(self, Reports._forget)

    def tell(self, complaint: str) -> None:
        """Something to be raised at the next synchronisation."""
        self._told.append(complaint)

    def watch(self, source: Source) -> None:
        """Look there, too, until `leave`."""
        with self._lock:
            self._sources = (*self._sources, source)

    def leave(self, source: Source) -> None:
        """Nothing writes there any more. What was told is kept."""
        with self._lock:
            self._sources = tuple(other for other in self._sources if other is not source)
        self._told.extend(source.take())

    def check(self) -> None:
        """Raise LaunchError for what was told since the last time, if anything was."""
        for source in self._sources:
            self._told.extend(source.take())
        if not self._told:
            return
        complaints = [self._told.popleft() for _ in range(len(self._told))]
        raise_complaints(list(dict.fromkeys(complaints)))

    def _forget(self) -> None:
        self._told.clear()
        self._sources = ()


def raise_complaints(complaints: Sequence[str]) -> None:
    """Raise LaunchError for what was told, the first one in its message and the others in notes."""
    error = LaunchError(complaints[0])
    for other in complaints[1:]:
        error.add_note(other)
    raise error
