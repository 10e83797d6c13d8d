"""The disk cache: what it keeps, what it takes away, and that nothing that can go wrong with files reaches a caller."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuser import cache as command
from fuser.errors import InputValueError
from fuser.ir.record_files import RecordFile
from fuser.runtime.cache import atomic_files, disk_cache
from fuser.runtime.cache.disk_cache import DiskCache, DiskCounters, digest_of

KIND = RecordFile("thing", 1, ())
KEY, OTHER = digest_of(["a"]), digest_of(["b"])


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 10_000)


def entry(cache: DiskCache, key: str = KEY) -> Path:
    return cache.folder / "thing-1" / key[:2] / key[2:]


def test_what_was_written_is_read(cache: DiskCache) -> None:
    assert cache.read(KIND, KEY) is None
    cache.write(KIND, KEY, ("value", b"binary"))
    assert cache.read(KIND, KEY) == ("value", b"binary")
    assert DiskCache(cache.folder, 1).read(KIND, KEY) == ("value", b"binary"), "another process finds it"
    assert cache.read(RecordFile("thing", 2, ()), KEY) is None, "another version has a folder of its own"
    assert cache.read(KIND, OTHER) is None
    assert cache.counters() == DiskCounters(hits=1, misses={"there is none": 3}, writes=1)
    assert [e.path for e in cache.entries()] == [entry(cache)]
    assert cache.folder.stat().st_mode & 0o077 == 0, "nobody else may plant anything"


def test_digests_tell_parts_apart() -> None:
    keys = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [b"\xff"], ["\ud800"], []]
    assert len({digest_of(k) for k in keys}) == len(keys)
    assert digest_of(["x"]) == digest_of([b"x"])


# --- files that do not hold -----------------------------------------------------------------------------------------------


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_other(path: Path) -> None:
    path.write_bytes(KIND.to_bytes((OTHER, "value")))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_bytes(b""), "it is no file of fuser"),
    "cut": (lambda p: p.write_bytes(p.read_bytes()[:-1]), r"it has \d+ bytes of \d+"),
    "bit": (lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?"), "its checksum is wrong"),
    "version": (
        lambda p: p.write_bytes(p.read_bytes().replace(b" 1 ", b" 9 ", 1)),
        "it has format 9, and this version of fuser reads format 1",
    ),
    "kind": (lambda p: p.write_bytes(RecordFile("other", 1, ()).to_bytes((KEY, 1))), "it holds a other, not a thing"),
    "key": (as_other, "it is that of another key"),
    "not a pair": (lambda p: p.write_bytes(KIND.to_bytes(7)), "cannot unpack non-iterable int object"),
    "folder": (as_folder, r"it cannot be read: \[Errno 21\] Is a directory: .*"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_a_miss_with_a_reason(name: str, cache: DiskCache, unlowered: list[str]) -> None:
    damage, reason = DAMAGE[name]
    cache.write(KIND, KEY, "value")
    damage(entry(cache))
    assert cache.read(KIND, KEY) is None
    (told,) = unlowered
    assert re.fullmatch(rf"the disk cache has no {re.escape(str(entry(cache)))} that can be used: {reason}", told)
    unlowered.clear()
    verified = list(cache.verify([KIND]))
    assert len(verified) == 1
    assert re.search(reason.removeprefix("it cannot be read: "), str(verified[0][1]))
    cache.write(KIND, KEY, "value")
    if name != "folder":
        assert cache.read(KIND, KEY) == "value", "it is replaced"
    unlowered.clear()


# --- writes that fail -----------------------------------------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, module: object, name: str, number: int) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, name, refused)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ESTALE, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "replace", "mkdir"])
def test_a_failed_write_says_so_once(
    cache: DiskCache, number: int, call: str, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    with monkeypatch.context() as failing:
        if call == "open":
            # A file in the builtins' place, for this module alone.
            failing.setattr(atomic_files, "open", None, raising=False)
            refuse(failing, atomic_files, "open", number)
        elif call == "replace":
            refuse(failing, atomic_files.os, "replace", number)
        else:
            refuse(failing, Path, "mkdir", number)
        for _ in range(2):
            cache.write(KIND, KEY, "value")
            assert cache.read(KIND, KEY) is None
    (told,) = unlowered
    unlowered.clear()
    assert told == (
        f"the disk cache keeps nothing of this: [Errno {number}] {os.strerror(number)}. "
        "Set FUSER_CACHE_DIR to a folder that can be written, or FUSER_CACHE=off"
    )
    assert cache.counters().failed_writes == 2
    assert not [p for p in cache.folder.rglob("*") if p.is_file()], "nothing half-written is left"
    cache.write(KIND, KEY, "value")
    assert cache.read(KIND, KEY) == "value", "it works again as soon as it can"


def test_a_file_in_the_folders_place(tmp_path: Path, unlowered: list[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(tmp_path / "file" / "cache", 10_000)
    cache.write(KIND, KEY, "value")
    assert cache.read(KIND, KEY) is None
    assert cache.entries() == []
    assert cache.clear() == 0
    cache.make_room()
    assert len(unlowered) == 2
    unlowered.clear()


def test_what_cannot_be_written_at_all(cache: DiskCache, unlowered: list[str]) -> None:
    cache.write(KIND, KEY, object)
    assert cache.read(KIND, KEY) is None
    assert "a type cannot be written to a file of kind thing" in unlowered.pop()


def test_what_is_larger_than_the_whole_cache(cache: DiskCache, unlowered: list[str]) -> None:
    cache.write(KIND, KEY, b"x" * 20_000)
    assert cache.entries() == []
    assert "are more than the cache may hold, 10000" in unlowered.pop()


# --- room -----------------------------------------------------------------------------------------------------------------


def filled(cache: DiskCache, count: int) -> list[str]:
    keys = [digest_of([str(n)]) for n in range(count)]
    for key in keys:
        cache.write(KIND, key, b"x" * 800)
    return keys


def test_writes_keep_it_small(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 50_000)
    filled(cache, 1000)
    # One write in sixteen looks, so that some are too many.
    assert sum(e.nbytes for e in cache.entries()) < 50_000 * 2
    assert cache.counters().evictions > 800
    cache.make_room()
    assert sum(e.nbytes for e in cache.entries()) <= 50_000


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**9)
    keys = filled(cache, 40)
    for age, key in enumerate(reversed(keys)):
        os.utime(entry(cache, key), (1e9 - age, 1e9 - age))
    for key in keys[:5]:
        assert cache.read(KIND, key) is not None, "which makes it the youngest"
    size = cache.entries()[0].nbytes
    small = DiskCache(tmp_path, 11 * size)
    small.make_room()
    left = {e.path for e in small.entries()}
    assert left == {entry(cache, key) for key in (*keys[:5], *keys[-4:])}


def test_clocks_that_jump(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**9)
    keys = filled(cache, 10)
    for key, then in zip(keys, (0, 2**33, 1e9, 1, 2**32), strict=False):
        os.utime(entry(cache, key), (then, then))
    DiskCache(tmp_path, 6000).make_room()
    assert 0 < len(cache.entries()) < 10
    assert entry(cache, keys[0]) not in {e.path for e in cache.entries()}


def test_what_killed_writers_left_goes(cache: DiskCache) -> None:
    cache.write(KIND, KEY, "value")
    old, future, new = (entry(cache).with_name(f".{n}.tmp") for n in ("old", "future", "new"))
    foreign = cache.folder / "notes.txt"
    for path, shift in ((old, -9999.0), (future, 9999.0), (new, 0.0), (foreign, -9999.0)):
        path.write_bytes(b"half")
        then = path.stat().st_mtime + shift
        os.utime(path, (then, then))
    assert [e.path for e in cache.entries()] == [entry(cache)]
    cache.make_room()
    assert [p.exists() for p in (old, future, new, foreign)] == [False, False, True, True]
    assert cache.clear() == 1
    assert not new.exists()
    assert foreign.exists(), "it is not ours"


# --- which one ------------------------------------------------------------------------------------------------------------


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert disk_cache.disk_cache() is None, "tests have it turned off"
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def folder() -> str:
        found = disk_cache.disk_cache()
        assert found is not None
        assert found is disk_cache.disk_cache()
        return str(found.folder)

    assert folder() == "/home/someone/.cache/fuser"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert folder() == "/somewhere/fuser"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folder() == "/home/someone/.cache/fuser"
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    assert folder() == str(tmp_path)
    monkeypatch.setenv("FUSER_CACHE_SIZE", "3K")
    found = disk_cache.disk_cache()
    assert found is not None
    assert found.limit == 3072
    monkeypatch.setenv("FUSER_CACHE_SIZE", "0")
    with pytest.raises(InputValueError):
        disk_cache.disk_cache()
    monkeypatch.delenv("FUSER_CACHE_DIR")
    monkeypatch.delenv("FUSER_CACHE_SIZE")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert disk_cache.disk_cache() is None, "there is no home"


# --- the command ----------------------------------------------------------------------------------------------------------


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["info"]) == 2
    assert capsys.readouterr().err == "fuser cache: there is none, as FUSER_CACHE turns it off\n"
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(command, "KINDS", (KIND,))
    cache = DiskCache(tmp_path, 10**6)
    for key in (KEY, OTHER):
        cache.write(KIND, key, b"x" * 300_000)
    assert command.main(["info"]) == 0
    assert capsys.readouterr().out == (
        f"folder    {tmp_path}\n"
        "holds     2 entries, 0.6 MiB of 1024.0 MiB\n"
        "          thing-1: 2\n"
        "options   FUSER_CACHE=off turns it off, FUSER_CACHE_DIR moves it, FUSER_CACHE_SIZE limits it\n"
    )
    assert command.main(["verify"]) == 0
    assert capsys.readouterr().out == "2 entries whole, 0 damaged\n"
    entry(cache).write_bytes(b"")
    assert command.main(["verify"]) == 1
    assert capsys.readouterr().out == (
        f"{entry(cache)}: it is no file of fuser\n1 entry whole, 1 damaged and taken away\n"
    )
    assert command.main(["clear"]) == 0
    assert capsys.readouterr().out == f"1 entry taken away from {tmp_path}\n"
    for arguments, wrong in (
        ([], "say what to do"),
        (["prune"], "there is no command 'prune'"),
        (["--clar"], "there is no command '--clar'; did you mean 'clear'?"),
        (["info", "clear"], "info takes no more arguments, got 'clear'"),
    ):
        assert command.main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"fuser cache: {wrong}\nusage: fuser cache info|verify|clear\n")
    assert command.main(["--help"]) == 0


def test_from_a_shell(tmp_path: Path) -> None:
    environment = {**os.environ, "FUSER_CACHE": "on", "FUSER_CACHE_DIR": str(tmp_path / "none")}
    run = [sys.executable, "-m", "fuser", "cache", "info"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert "holds     0 entries, 0.0 MiB of 1024.0 MiB" in done.stdout
    assert not (tmp_path / "none").exists(), "to ask makes nothing"
