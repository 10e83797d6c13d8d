"""The file form of compiled kernels: which classes are in one, and how users' files are read and written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from fuser.errors import InputTypeError, InputValueError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import CacheOp, MemoryType, ParallelType
from fuser.ir.facts import Fact
from fuser.ir.fusion import Distribution
from fuser.ir.kernel import Buffer, Kernel, Parameter, Role, ShuffleKind, Stmt, Value
from fuser.ir.kernel_statements import GivenIndex
from fuser.ir.launch_plan import Binding, ExtentOf, LaunchPlan, Meeting, ScalarOf, ScalarStep, StrideOf, Workspace
from fuser.ir.record_files import RecordFile, UnreadableError
from fuser.runtime.atomic_files import write_atomically
from fuser.runtime.compiled_kernel import BlocksBy, CompiledKernel, Resources
from fuser.runtime.raw_signature import RawKind, RawParameter
from fuser.source_location import SourceLocation

KERNEL_CLASSES: tuple[type, ...] = (
    *(CompiledKernel, Resources, BlocksBy, RawParameter, RawKind),
    *(Kernel, Buffer, Role, ShuffleKind, GivenIndex, SourceLocation),
    *(LaunchPlan, Binding, ExtentOf, StrideOf, ScalarOf, ScalarStep, Workspace, Meeting),
    *(DataType, MemoryType, ParallelType, CacheOp, Distribution),
    *(c for union in (Stmt, Value, Parameter, Fact) for c in get_args(union)),
)
"""Those of which a CompiledKernel may consist."""

KERNEL_FILE = RecordFile("kernel", 1, KERNEL_CLASSES)


def kernel_of_bytes(data: bytes) -> CompiledKernel:
    """What a pickle holds. Raises UnreadableError for one of another version."""
    return KERNEL_FILE.from_bytes(data)


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
