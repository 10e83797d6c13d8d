"""`fuser cache`: what the disk cache holds, whether it is whole, how to empty it, and tuning records in files."""

from __future__ import annotations

import sys
from collections import Counter
from difflib import get_close_matches

from fuser import options
from fuser.compiler.tuning_record import TABLE, TUNING_FILE, export_tuning, import_tuning
from fuser.errors import FuserError
from fuser.host_ir.saved_programs import PROGRAM_FILE
from fuser.ir.record_files import RecordFile
from fuser.runtime.cache.disk_cache import DiskCache, disk_cache
from fuser.runtime.kernels.nvrtc import BINARY_FILE

USAGE = """usage: fuser cache info|verify|clear
       fuser cache export|import FILE
  info      where it is, how many entries it has, how much it may hold, which GPUs were tuned for
  verify    reads every entry and takes away those that are damaged
  clear     takes all entries away
  export    writes all tuning records to FILE
  import    takes over the tuning records of FILE"""

COMMANDS = ("info", "verify", "clear", "export", "import")
_WITH_FILE = ("export", "import")

KINDS: tuple[RecordFile, ...] = (BINARY_FILE, PROGRAM_FILE, TUNING_FILE)


def main(arguments: list[str]) -> int:
    """Run the command. Returns 0, 1 if entries were damaged, 2 for misuse or where there is no cache."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if not arguments or arguments[0] not in COMMANDS or len(arguments) != 1 + (arguments[0] in _WITH_FILE):
        print(f"fuser cache: {_misuse(arguments)}\n{USAGE}", file=sys.stderr)
        return 2
    cache = disk_cache()
    if cache is None:
        why = "there is no home to keep it in" if options.CACHE.get() else f"{options.CACHE.env} turns it off"
        print(f"fuser cache: there is none, as {why}", file=sys.stderr)
        return 2
    if arguments[0] in _WITH_FILE:
        return _move(*arguments)
    if arguments == ["verify"]:
        return _verify(cache)
    if arguments == ["clear"]:
        print(f"{_entries(cache.clear())} taken away from {cache.folder}")
    else:
        print(_info(cache))
    return 0


def _misuse(arguments: list[str]) -> str:
    if not arguments:
        return "say what to do"
    if arguments[0] not in COMMANDS:
        like = get_close_matches(arguments[0].lstrip("-"), COMMANDS, 1)
        return f"there is no command {arguments[0]!r}" + (f"; did you mean {like[0]!r}?" if like else "")
    wanted = "one FILE" if arguments[0] in _WITH_FILE else "no more arguments"
    return f"{arguments[0]} takes {wanted}, got {' '.join(arguments[1:])!r}"


def _move(what: str, path: str) -> int:
    """Write tuning records to a file, or take them from one."""
    try:
        count = export_tuning(path) if what == "export" else import_tuning(path)
    except (FuserError, OSError) as error:
        print(f"fuser cache: {error}", file=sys.stderr)
        return 1
    print(f"{count} tuning {'record' if count == 1 else 'records'} {'written to' if what == 'export' else 'of'} {path}")
    return 0


def _info(cache: DiskCache) -> str:
    entries = cache.entries()
    by_kind: dict[str, int] = {}
    for entry in entries:
        name = entry.path.parent.parent.name
        by_kind[name] = by_kind.get(name, 0) + 1
    by_gpu = Counter(it.key.device.name for it in TABLE.on_disk())
    lines = [
        f"folder    {cache.folder}",
        f"holds     {_entries(len(entries))}, {_size(sum(e.nbytes for e in entries))} of {_size(cache.limit)}",
        *(f"          {name}: {count}" for name, count in sorted(by_kind.items())),
        *(f"tuned     {count} for {gpu}" for gpu, count in sorted(by_gpu.items())),
        f"options   {options.CACHE.env}=off turns it off, {options.CACHE_DIR.env} moves it, {options.CACHE_SIZE.env} limits it",
    ]
    return "\n".join(lines)


def _verify(cache: DiskCache) -> int:
    whole = 0
    damaged = 0
    for entry, wrong in cache.verify(KINDS):
        if wrong is None:
            whole += 1
            continue
        damaged += 1
        print(f"{entry.path}: {wrong}")
        cache.remove(entry)
    print(f"{_entries(whole)} whole, {damaged} damaged" + (" and taken away" if damaged else ""))
    return 1 if damaged else 0


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
