"""Files that users name: records written and read, with errors that say which file and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fuser.errors import InputTypeError, InputValueError
from fuser.ir.record_files import RecordFile, UnreadableError
from fuser.runtime.cache.atomic_files import write_atomically


def save_to(path: str | os.PathLike[str], file: RecordFile, value: object) -> None:
    """Write a user's file. Raises OSError where that is not possible; what was there before is there still."""
    place = _path(path)
    try:
        write_atomically(place, file.to_bytes(value))
    except OSError as error:
        # The file that was asked for, and not the one that is written before it is put in its place.
        raise OSError(error.errno, error.strerror, str(place)) from None


def load_from(path: str | os.PathLike[str], file: RecordFile) -> Any:
    """Read a user's file. Raises InputValueError for what is no such file, OSError for one that cannot be read."""
    place = _path(path)
    try:
        return file.from_bytes(place.read_bytes())
    except UnreadableError as error:
        raise InputValueError(f"{place} cannot be loaded as a {file.kind}: {error}") from error


def _path(path: object) -> Path:
    try:
        return Path(os.fspath(path))  # type: ignore[call-overload]
    except TypeError:
        raise InputTypeError(f"path is the name of a file, a text or a Path, got {type(path).__name__}") from None
