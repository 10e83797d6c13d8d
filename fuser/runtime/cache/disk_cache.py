"""What is kept on disk for later processes: any number of them read and write at once, and none relies on what it finds.

    folder := <FUSER_CACHE_DIR, else $XDG_CACHE_HOME/fuser, else ~/.cache/fuser>/<kind>-<version>/<2 digits>/<62 digits>

An entry is a file of a pair, key and value (`ir/record_files.py`), that is named after the key, a digest. It is written under
another name and then renamed, so that it is whole or not there; what is read is checked, and what does not hold is a miss.
Whatever goes wrong, at any call of the system, is a miss as well, with its reason in the log: it costs a compilation and
nothing else.

How old an entry is says the time of its file, which every hit sets; clocks that jump change the order in which entries go and
nothing else. Every sixteenth write, by its key, looks whether there is too much and takes the oldest away: no count is
kept that could be wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fuser import locks, options
from fuser.ir.integers.hashing import sha256
from fuser.ir.record_files import RecordFile, UnreadableError
from fuser.runtime.cache.atomic_files import TEMPORARY, write_atomically

_LOOKS_FOR_ROOM = "0"
"""First digit of the keys whose writes look whether there is too much."""
_KEPT_OF_LIMIT = 0.9
_ABANDONED_S = 3600.0
"""A file that is still being written after that time never will be: its writer was killed."""


@dataclass(slots=True)
class DiskCounters:
    """How often an entry was found, not found (by reason), written, not written, and taken away to make room."""

    hits: int = 0
    misses: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    failed_writes: int = 0
    evictions: int = 0


class Entry(NamedTuple):
    """A file of the cache. `used` is the time of its last use, in seconds since the epoch."""

    path: Path
    nbytes: int
    used: float


def digest_of(parts: Sequence[str | bytes]) -> str:
    """Hex digest of a key. Every part is length-prefixed, so that no two keys run together."""
    made = sha256()()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.hexdigest()


class DiskCache:
    """The entries under one folder. Safe to use from several threads and processes."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._lock = locks.lock()
        self._counters = DiskCounters()
        self._warned = False

    def read(self, kind: RecordFile, key: str) -> Any | None:
        """The value of a key (`digest_of`), or None, with the reason in the log."""
        path = self._path(kind, key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return self._missed("there is none", path)
        except OSError as error:
            return self._missed(f"it cannot be read: {_text(error)}", path, is_odd=True)
        try:
            there, value = kind.from_bytes(data)
        except (UnreadableError, ValueError, TypeError) as error:
            return self._missed(str(error), path, is_odd=True)
        if there != key:
            return self._missed("it is that of another key", path, is_odd=True)
        # Not in a cache that may only be read: nobody will take anything away there.
        with suppress(OSError):
            os.utime(path)
        with self._lock:
            self._counters.hits += 1
        return value

    def write(self, kind: RecordFile, key: str, value: object) -> None:
        """Keep a value. Where that is not possible, the first time says so in a warning."""
        path = self._path(kind, key)
        try:
            data = kind.to_bytes((key, value))
            if len(data) > self.limit:
                raise OSError(f"its {len(data)} bytes are more than the cache may hold, {self.limit}")
            try:
                write_atomically(path, data)
            except FileNotFoundError:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, data)
        except Exception as error:
            # Whatever it is, the caller has what they asked for: it is only not kept.
            with self._lock:
                self._counters.failed_writes += 1
                warned, self._warned = self._warned, True
            log = options.logger()
            (log.info if warned else log.warning)(
                "the disk cache keeps nothing of this: %s. Set %s to a folder that can be written, or %s=off",
                _text(error),
                options.CACHE_DIR.env,
                options.CACHE.env,
            )
            return
        with self._lock:
            self._counters.writes += 1
        if key.startswith(_LOOKS_FOR_ROOM):
            self.make_room()

    def counters(self) -> DiskCounters:
        """A copy of the counters of this process."""
        with self._lock:
            c = self._counters
            return DiskCounters(c.hits, dict(c.misses), c.writes, c.failed_writes, c.evictions)

    # --- the whole of it ---

    def entries(self) -> list[Entry]:
        """All entries, the one that was used longest ago first."""
        return sorted((e for e in self._files() if not _is_temporary(e.path)), key=lambda e: (e.used, e.path))

    def make_room(self) -> None:
        """Take away what was used longest ago, where there is more than the limit, and what killed processes left."""
        now = time.time()
        for found in self._files():
            # A file from the future is of another clock.
            if _is_temporary(found.path) and abs(now - found.used) > _ABANDONED_S:
                _remove(found.path)
        entries = self.entries()
        total = sum(e.nbytes for e in entries)
        if total <= self.limit:
            return
        evicted = 0
        for entry in entries:
            if total <= self.limit * _KEPT_OF_LIMIT:
                break
            if _remove(entry.path):
                evicted += 1
            total -= entry.nbytes
        with self._lock:
            self._counters.evictions += evicted
        options.logger().info("the disk cache was above %d bytes: %d entries are gone", self.limit, evicted)

    def verify(self, kinds: Sequence[RecordFile]) -> Iterator[tuple[Entry, str | None]]:
        """Every entry, with what is wrong with it, if something is. Entries of other versions of fuser are left out."""
        by_folder = {_folder_of(kind): kind for kind in kinds}
        for entry in self.entries():
            kind = by_folder.get(entry.path.parent.parent.name)
            if kind is None:
                continue
            try:
                key, _ = kind.from_bytes(entry.path.read_bytes())
            except FileNotFoundError:
                continue  # another process was faster
            except (OSError, UnreadableError, ValueError, TypeError) as error:
                yield entry, _text(error) if isinstance(error, OSError) else str(error)
            else:
                is_right = self._path(kind, key) == entry.path if isinstance(key, str) else False
                yield entry, None if is_right else "it is that of another key"

    def clear(self) -> int:
        """Take everything away. Returns the number of entries that are gone."""
        count = 0
        for found in list(self._files()):
            if _remove(found.path) and not _is_temporary(found.path):
                count += 1
        return count

    def remove(self, entry: Entry) -> bool:
        """Take one away; whether it is gone by this."""
        return _remove(entry.path)

    def _path(self, kind: RecordFile, key: str) -> Path:
        return self.folder / _folder_of(kind) / key[:2] / key[2:]

    def _files(self) -> Iterator[Entry]:
        """Files of the cache: nothing else that may lie in its folder is touched."""
        for kind in _folders(self.folder):
            if "-" not in kind.name:
                continue
            for shard in _folders(Path(kind.path)):
                if len(shard.name) != 2:
                    continue
                for found in _scan(Path(shard.path)):
                    try:
                        status = found.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    yield Entry(Path(found.path), status.st_size, status.st_mtime)

    def _missed(self, reason: str, path: Path, *, is_odd: bool = False) -> None:
        with self._lock:
            self._counters.misses[reason] = self._counters.misses.get(reason, 0) + 1
        log = options.logger()
        (log.warning if is_odd else log.debug)("the disk cache has no %s that can be used: %s", path, reason)


def _folder_of(kind: RecordFile) -> str:
    """Its own for each version: those that share a cache do not overwrite one another's entries."""
    return f"{kind.kind}-{kind.version}"


def _is_temporary(path: Path) -> bool:
    return path.name.endswith(TEMPORARY)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    return [found for found in _scan(folder) if found.is_dir(follow_symlinks=False)]


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- the cache of the process -------------------------------------------------------------------------------------------

_caches: dict[tuple[Path, int], DiskCache] = {}
_lock = locks.lock()


def default_folder() -> Path | None:
    """Where the cache lies if no option says: what the XDG specification asks for; None without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    return Path(base, "fuser") if os.path.isabs(base) else None


def disk_cache() -> DiskCache | None:
    """The cache that the options name, or None where they turn it off or there is no home."""
    if not options.CACHE.get():
        return None
    explicit = options.CACHE_DIR.get()
    folder = default_folder() if explicit is None else Path(os.path.abspath(explicit))
    if folder is None:
        return None
    where = folder, options.CACHE_SIZE.get()
    found = _caches.get(where)
    if found is None:
        with _lock:
            found = _caches.setdefault(where, DiskCache(*where))
    return found
