"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY = ".tmp"
"""How the names of files that are being written end."""


def write_atomically(path: Path, data: bytes) -> None:
    """Make or replace the file `path`: who reads it meanwhile gets what was there, or all of `data`.

    Raises OSError, with nothing left behind, where it cannot be written. A process that is killed leaves a file whose name
    ends in `TEMPORARY`.
    """
    # No two writers share one: a process has its number, its threads have random ones, and machines their luck.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(6).hex()}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
