"""Whole programs on disk: a process that compiled a definition for such inputs before schedules and lowers nothing.

    key   := digest of (version of fuser, fusion, what the exact inputs look like, device, options, NVRTC)
    value := a saved program (`host_ir/saved_programs.py`), kernels and binaries included

All that a compilation looks at is in the key, by construction: the fusion with every field, but for the lines of the user's
program, of which a program knows only those of gathers. The version is that of the package's files, as they lie on disk: a
change of one of them is another version. Nothing is kept of a compilation that had something to tell, such as a bug that
was met: the next process shall tell it as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn, get_args

from fuser import options as environment
from fuser.compiler.kernel_compiler import CompileOptions
from fuser.errors import FuserError
from fuser.host_ir.program import HostProgram
from fuser.host_ir.saved_programs import PROGRAM_FILE, SavedProgram
from fuser.import_time import IMPORTED_NS
from fuser.ir.device_info import DeviceInfo, Latencies, Rates
from fuser.ir.fusion.fusion import (
    Distribution,
    Expr,
    ExtentConstraint,
    Fusion,
    Gather,
    GatherKind,
    IterDomain,
    IterKind,
    Output,
    Scalar,
    Split,
    Tensor,
    Window,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.record_files import ByHand, RecordFile
from fuser.release import __version__
from fuser.runtime.cache.disk_cache import DiskCache, digest_of, disk_cache
from fuser.runtime.devices.device import Device
from fuser.source_location import SourceLocation


def _never_read(*_: object) -> NoReturn:
    raise TypeError("keys are written, and not read")


def _without_location(cls: type) -> ByHand:
    fields = tuple(name for name in cls.__match_args__ if name != "location")
    return ByHand(fields, lambda it: [getattr(it, name) for name in fields], _never_read)


def _gather_parts(gather: Gather) -> Sequence[object]:
    """With its line, which the simulator tells of an index out of bounds."""
    return (*(getattr(gather, name) for name in Gather.__match_args__), gather.output.location)


def _domain_parts(domain: IterDomain) -> Sequence[object]:
    """With what it was made of, which does not lead back to it."""
    made: tuple[object, ...] = ()
    definition = domain.definition
    if isinstance(definition, Split):
        which = "outer" if definition.outer is domain else "inner"
        made = (definition.source, definition.factor, definition.inner_split, definition.aligned, which)
    elif definition is not None:
        made = (definition.outer, definition.inner)
    return domain.name, domain.extent, domain.kind, domain.expanded, made


_CLASSES = (
    *(Fusion, Output, Window, IterKind, GatherKind, Distribution, DataType, SourceLocation),
    *(DeviceInfo, Rates, Latencies, CompileOptions),
    *(c for c in get_args(Expr) if c is not Gather),
)
_BY_HAND = {
    IterDomain: ByHand(("name", "extent", "kind", "expanded", "made"), _domain_parts, _never_read),
    **{c: _without_location(c) for c in (Tensor, Scalar, ExtentConstraint)},
}
_KEY_FILE = RecordFile(
    "key", 1, _CLASSES, {Gather: ByHand((*Gather.__match_args__, "location"), _gather_parts, _never_read), **_BY_HAND}
)
_STRUCTURE_FILE = RecordFile("key", 1, (*_CLASSES, Gather), _BY_HAND)


def structure_digest(fusion: Fusion) -> str:
    """What a fusion computes, wherever it was written: the same in every process and on every machine.

    Raises TypeError for a fusion of which not all can be told.
    """
    return digest_of([_STRUCTURE_FILE.to_bytes(fusion)])


class StoredPrograms:
    """Those of one fusion. `exact` is all that tells apart what is compiled for it, of tuples and numbers."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._digest: str | None = None

    def read(self, exact: tuple[object, ...], device: Device) -> HostProgram | None:
        """The program that is on disk, if there is one."""
        store = _store()
        key = None if store is None else self._key(exact, device)
        found = None if store is None or key is None else store.read(PROGRAM_FILE, key)
        return found.program if isinstance(found, SavedProgram) else None

    def write(self, exact: tuple[object, ...], device: Device, program: HostProgram) -> None:
        """Keep a program."""
        store = _store()
        key = None if store is None else self._key(exact, device)
        if store is not None and key is not None:
            store.write(PROGRAM_FILE, key, SavedProgram(program, ()))

    def _key(self, exact: tuple[object, ...], device: Device) -> str | None:
        """None where nothing can be told of what the program would depend on, with a warning."""
        try:
            if self._digest is None:
                self._digest = digest_of([_KEY_FILE.to_bytes(self._fusion)])
            version, toolchain = package_version(), _toolchain(device)
            rest = _KEY_FILE.to_bytes(exact)
        except (FuserError, OSError, TypeError) as error:
            environment.logger().warning("programs of this fusion are not kept on disk: %s", error)
            return None
        return digest_of([version, toolchain, self._digest, rest])


def _store() -> DiskCache | None:
    """The cache, unless it is off or stages of compilations are to be looked at."""
    if environment.DUMP.get() or environment.VERIFY.get() or environment.FAULT.get() is not None:
        return None
    return disk_cache()


def _toolchain(device: Device) -> str:
    if device.kind != "cuda":
        return ""
    from fuser.runtime.kernels import nvrtc

    return nvrtc.toolchain()


@cache
def package_version() -> str:
    """What stands for this very text of the package: names, sizes and times of its files.

    To read all of them would take longer than a small compilation. Raises OSError where they are no files, or are others than
    this process runs: a file that was put there since is another one, whatever time of its text came with it.
    """
    files = list(_files(str(Path(__file__).resolve().parent.parent)))
    if any(max(status.st_mtime_ns, status.st_ctime_ns) > IMPORTED_NS for _, status in files):
        raise OSError("files of the package have changed since it was imported")
    return digest_of([__version__, *sorted(f"{path} {it.st_size} {it.st_mtime_ns}" for path, it in files)])


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat()
