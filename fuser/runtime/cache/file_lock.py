"""A lock that processes of one machine share, by a file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def locked(path: str | os.PathLike[str] | None) -> Generator[None]:
    """While no other process is within for the same path, which is created if need be; None: at once.

    Raises OSError where the file cannot be opened.
    """
    if path is None:
        yield
        return
    with open(path, "w", encoding="ascii") as file:
        # The lock goes with the file, also where a process is killed.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
