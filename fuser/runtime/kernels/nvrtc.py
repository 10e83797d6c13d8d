"""NVRTC: CUDA text in, machine code and a resource report out. The only module that touches the compiler library.

The library is driven through ctypes, not through `cuda.bindings.nvrtc`: the bindings take whichever libnvrtc is loaded
already, else the one of the highest CUDA major that is installed, and have no way to name another, so a CUDA 13 compiler
beside a CUDA 12 driver would make binaries that do not load. ctypes lets go of the interpreter lock during a call.

Which library
    1. FUSER_NVRTC, a path
    2. with a driver: the newest found whose CUDA major does not exceed the driver's
    3. without: the declared wheel (nvidia-cuda-nvrtc-cu12), else the newest found
Searched: wheels in sys.path, CONDA_PREFIX, CUDA_PATH and CUDA_HOME, /usr/local/cuda*, the loader's own path.

What was compiled is kept on disk (`disk_cache.py`) and found there by its text, entries, options, architecture and the version
of NVRTC, which is known from the names of the library's files: what is found needs no NVRTC to be loaded.

Everything here may be called from several threads at once; compilations run in parallel.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fuser import locks
from fuser.errors import CompilationError
from fuser.ir.record_files import RecordFile
from fuser.options import logger
from fuser.records import record
from fuser.runtime.cache.disk_cache import digest_of, disk_cache
from fuser.runtime.kernels.compiled_kernel import Resources
from fuser.runtime.kernels.ptxas_log import clean_log, parse_ptxas_log

# Majors for which the loader's own path is asked when no file was found; files of any major are found.
SEARCHED_MAJORS = (13, 12)


class NvrtcUnavailableError(CompilationError):
    """No NVRTC library can be found or loaded."""


@record
class CompileResult:
    """What one compilation gave.

    cubin          machine code, or PTX text (ending in a NUL) if `is_ptx`: the driver loads both
    resources      ptxas report by entry, under the name asked for; empty with `is_ptx`
    lowered        name in the binary by entry asked for
    log            everything NVRTC and ptxas said
    version        (major, minor) of the NVRTC that ran
    arch           what was compiled for: `sm_90a`, or `compute_121` with `is_ptx`
    """

    cubin: bytes = field(repr=False)
    resources: dict[str, Resources]
    lowered: dict[str, str]
    log: str
    version: tuple[int, int]
    arch: str
    is_ptx: bool = False


BINARY_FILE = RecordFile("binary", 1, (CompileResult, Resources))


@dataclass(slots=True)
class NvrtcCounters:
    """Texts that this process has compiled, and those whose binary was on disk."""

    compiled: int = 0
    from_disk: int = 0


_counters = NvrtcCounters()


def counters() -> NvrtcCounters:
    """A copy of the counters of the process."""
    with _lock:
        return NvrtcCounters(_counters.compiled, _counters.from_disk)


def compile_to_cubin(
    source: str,
    entries: Sequence[str],
    arch: str,
    options: Sequence[str] = (),
    *,
    name: str = "kernel.cu",
) -> CompileResult:
    """Compile CUDA text for a real architecture (`sm_90a`).

    `entries` are names of kernels, `extern "C"` or not, or name expressions of template instances (`scale<float, 4>`).
    `name` stands for the text in messages. An architecture newer than this NVRTC knows gives PTX for the newest one it
    does know.

    Raises CompilationError with NVRTC's words for a text or option it refuses, and NvrtcUnavailableError without NVRTC.
    """
    return _kept_on_disk("cubin", source, entries, arch, options, name)


def compile_to_ptx(
    source: str,
    entries: Sequence[str],
    arch: str,
    options: Sequence[str] = (),
    *,
    name: str = "kernel.cu",
) -> CompileResult:
    """As `compile_to_cubin`, but stops before ptxas: `cubin` holds PTX and there is no resource report."""
    return _kept_on_disk("ptx", source, entries, arch, options, name)


def version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use. Raises NvrtcUnavailableError if there is none."""
    return _library().version


def toolchain() -> str:
    """What stands for the very NVRTC in use, its version included; where the names of its files tell it, nothing is loaded.

    Raises NvrtcUnavailableError if there is none.
    """
    return _toolchain(_path())


def library_path() -> str:
    """Where the NVRTC in use was loaded from. Raises NvrtcUnavailableError if there is none."""
    return _library().path


def supported_archs() -> tuple[int, ...]:
    """Architectures the NVRTC in use can compile for, as numbers (90 for sm_90), rising."""
    return _library().archs


def is_available() -> bool:
    """Whether an NVRTC library can be loaded."""
    try:
        _library()
    except NvrtcUnavailableError:
        return False
    return True


# --- the disk cache ---------------------------------------------------------------------------------------------------

# What makes a result depend on more than the text and the options: other files, or the time.
_READS_MORE = re.compile(
    r"(?:#|%:|\?\?=)\s*(?:/\*.*?\*/\s*)*(?:include|import|embed)|__has_include|__has_embed|__DATE__|__TIME", re.DOTALL
)
_OPTION_READS_MORE = re.compile(r"include|pch|^@|options-file")


def _kept_on_disk(
    what: Literal["cubin", "ptx"], source: str, entries: Sequence[str], arch: str, options: Sequence[str], name: str
) -> CompileResult:
    """What the disk cache has for these arguments, else what NVRTC makes of them, which is kept."""
    cache = disk_cache()
    if cache is not None and _may_read_more(source, options):
        logger().debug("%s: the disk cache keeps nothing of a text that may read other files or clocks", name)
        cache = None
    if cache is None:
        return _compiled(what, source, entries, arch, options, name)
    counts = (str(len(part)) for part in (entries, options))
    key = digest_of([what, source, arch, _toolchain(_path()), name, *counts, *entries, *options, *_FLAGS])
    with _one_at_a_time(key):
        found = cache.read(BINARY_FILE, key)
        if isinstance(found, CompileResult):
            with _lock:
                _counters.from_disk += 1
            logger().info("%s: the binary of %s for %s was on disk", name, ", ".join(entries), arch)
            return found
        begin = time.perf_counter()
        made = _compiled(what, source, entries, arch, options, name)
        took = 1e3 * (time.perf_counter() - begin)
        logger().info("%s: NVRTC compiled %s for %s in %.0f ms", name, ", ".join(entries), arch, took)
        cache.write(BINARY_FILE, key, made)
    return made


_under_way: dict[str, threading.Event] = {}


@contextmanager
def _one_at_a_time(key: str) -> Generator[None]:
    """Threads that want the same wait for the first of them, and find on disk what it made."""
    while True:
        with _lock:
            other = _under_way.get(key)
            if other is None:
                mine = _under_way[key] = threading.Event()
                break
        other.wait()
    try:
        yield
    finally:
        with _lock:
            _under_way.pop(key, None)
        mine.set()


@locks.in_child
def _forget_others() -> None:
    """In a forked child, which the threads that were at it are not in."""
    _under_way.clear()


def _may_read_more(source: str, options: Sequence[str]) -> bool:
    # The preprocessor joins lines first.
    joined = re.sub(r"(?:\\|\?\?/)[ \t]*\r?\n", "", source)
    return _READS_MORE.search(joined) is not None or any(_OPTION_READS_MORE.search(o) for o in options)


def _compiled(
    what: Literal["cubin", "ptx"], source: str, entries: Sequence[str], arch: str, options: Sequence[str], name: str
) -> CompileResult:
    library = _library()
    target, is_ptx = _target(library, arch)
    if what == "ptx":
        target, is_ptx = target.replace("sm_", "compute_"), True
    made = _compile(library, source, entries, target, options, name, is_ptx=is_ptx)
    with _lock:
        _counters.compiled += 1
    return made


def _toolchain(path: str) -> str:
    """Version and size of a library: from its files, or, where their names do not tell the version, by loading it."""
    known = _toolchains.get(path)
    if known is None:
        major = re.fullmatch(r"libnvrtc\.so\.(\d+)", Path(path).name)
        minors = _minors_of(Path(path), int(major[1])) if major is not None and Path(path).is_file() else []
        if major is not None and len(minors) == 1:
            # Of one version there may be several builds.
            known = f"{major[1]}.{minors[0]} of {Path(path).stat().st_size} bytes"
        else:
            known = "{}.{}".format(*_loaded_library(path).version)
        _toolchains[path] = known
    return known


_toolchains: dict[str, str] = {}


# --- compiling --------------------------------------------------------------------------------------------------------

_SUCCESS = 0
_FLAGS = ("--std=c++17", "-default-device", "--diag-suppress=177")
_FILE_LINE = re.compile(r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error", re.MULTILINE)


def _compile(
    library: _Library,
    source: str,
    entries: Sequence[str],
    target: str,
    options: Sequence[str],
    name: str,
    *,
    is_ptx: bool,
) -> CompileResult:
    flags = [f"-arch={target}", *_FLAGS]
    if library.version >= (12, 9):
        # A hit in NVRTC's own cache drops the log, and with it the resource report.
        flags.append("--no-cache")
    if not is_ptx:
        flags.append("--ptxas-options=-v")
    flags.extend(options)

    program = ctypes.c_void_p()
    text, title = source.encode(), name.encode()
    if b"\0" in text:
        raise CompilationError(f"{name}: the source has a NUL character at offset {text.index(0)}")
    library.check(
        "nvrtcCreateProgram",
        library.dll.nvrtcCreateProgram(ctypes.byref(program), text, title, 0, None, None),
    )
    try:
        for entry in entries:
            library.check("nvrtcAddNameExpression", library.dll.nvrtcAddNameExpression(program, entry.encode()))
        encoded = (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
        status = library.dll.nvrtcCompileProgram(program, len(flags), encoded)
        log = clean_log(_read(library, program, "ProgramLog"))
        if status != _SUCCESS:
            raise CompilationError(_describe_failure(library, status, log, source, entries, target, name), log=log)
        lowered = {entry: _lowered_name(library, program, entry) for entry in entries}
        binary = _read(library, program, "PTX" if is_ptx else "CUBIN")
    finally:
        library.dll.nvrtcDestroyProgram(ctypes.byref(program))

    report = {} if is_ptx else parse_ptxas_log(log)
    resources: dict[str, Resources] = {}
    for entry in entries:
        if not is_ptx:
            if lowered[entry] not in report:
                raise CompilationError(f"{name}: ptxas did not report on the entry {entry}; is it a kernel?", log=log)
            resources[entry] = report[lowered[entry]]
    return CompileResult(binary, resources, lowered, log, library.version, target, is_ptx)


def _read(library: _Library, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    call = f"nvrtcGet{what}"
    library.check(f"{call}Size", library.function(f"{call}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    library.check(call, library.function(call)(program, buffer))
    return buffer.raw[: size.value]


def _lowered_name(library: _Library, program: ctypes.c_void_p, entry: str) -> str:
    found = ctypes.c_char_p()
    library.check("nvrtcGetLoweredName", library.dll.nvrtcGetLoweredName(program, entry.encode(), ctypes.byref(found)))
    assert found.value is not None
    return found.value.decode()


def _describe_failure(
    library: _Library, status: int, log: str, source: str, entries: Sequence[str], target: str, name: str
) -> str:
    """The message of a refused text: NVRTC's own words, which quote the line with a caret."""
    head = f"NVRTC {library.version[0]}.{library.version[1]} refused {name} for {target}"
    if entries:
        head += f" (entry {', '.join(entries)})"
    if not log:
        return f"{head}: {library.error_string(status)}"
    where = _FILE_LINE.search(log)
    if where is not None and where.group("file") == name and "^" not in log:
        lines = source.splitlines()
        number = int(where.group("line"))
        if number <= len(lines):
            log = f"{log}\n{name}:{number}:\n    {lines[number - 1]}\n    ^"
    return f"{head}:\n{log}{_remedy(log)}"


def _remedy(log: str) -> str:
    """What to do about a header that is not found, which NVRTC does not say."""
    missing = re.search(r'(?:could not|cannot) open source file "([^"]+)"', log)
    if missing is None:
        return ""
    return f"\nNVRTC looks for headers in no folder by itself: the option '--include-path=<folder of {missing[1]}>' names one."


def _target(library: _Library, arch: str) -> tuple[str, bool]:
    """(architecture to compile for, whether PTX is asked for) for a device's `sm_<n>[a|f]`."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if match is None:
        raise CompilationError(f"{arch!r} is not an architecture; expected sm_<number>, as in sm_90a")
    number = int(match.group(1))
    if number in library.archs:
        return arch, False
    older = [known for known in library.archs if known < number]
    if not older:
        raise CompilationError(
            f"NVRTC {library.version[0]}.{library.version[1]} compiles for sm_{library.archs[0]} and newer, not for {arch}"
        )
    return f"compute_{older[-1]}", True


# --- the library ------------------------------------------------------------------------------------------------------


class _Library:
    """A loaded libnvrtc."""

    def __init__(self, path: str) -> None:
        self.path = path
        _load_builtins(path)
        try:
            self.dll = ctypes.CDLL(path)
        except OSError as error:
            raise NvrtcUnavailableError(f"the NVRTC library {path} cannot be loaded: {error}") from None
        self.dll.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check("nvrtcVersion", self.dll.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self.check("nvrtcGetNumSupportedArchs", self.dll.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self.check("nvrtcGetSupportedArchs", self.dll.nvrtcGetSupportedArchs(numbers))
        self.archs = tuple(sorted(numbers))

    def function(self, name: str) -> ctypes._NamedFuncPointer:  # pyright: ignore[reportPrivateUsage] - typeshed's name
        return getattr(self.dll, name)

    def error_string(self, status: int) -> str:
        text = self.dll.nvrtcGetErrorString(status)
        return text.decode() if text else f"error {status}"

    def check(self, call: str, status: int) -> None:
        if status != _SUCCESS:
            raise CompilationError(f"{call} failed: {self.error_string(status)}")


_loaded: dict[str, _Library] = {}
_chosen: str | None = None
_lock = locks.lock()


def _library() -> _Library:
    """The library of the rule at the top."""
    return _loaded_library(_path())


def _path() -> str:
    """Where it is. FUSER_NVRTC is looked at on every call; a search is done once."""
    from fuser import options

    global _chosen
    explicit = options.NVRTC.get()
    if explicit is not None:
        return explicit
    if _chosen is None:
        with _lock:
            if _chosen is None:
                _chosen = _choose()
    return _chosen


def _loaded_library(path: str) -> _Library:
    found = _loaded.get(path)
    if found is not None:
        return found
    with _lock:
        if path not in _loaded:
            _loaded[path] = _Library(path)
        return _loaded[path]


def _choose() -> str:
    from fuser.runtime import driver

    driver_major = driver.driver_version()[0]
    candidates = list(_candidates())
    if driver_major:
        usable = [c for c in candidates if c[0] <= driver_major]
        if candidates and not usable:
            raise NvrtcUnavailableError(
                f"the driver runs CUDA {driver_major}, and every NVRTC found is newer: "
                f"{', '.join(c[2] for c in candidates)}. Install nvidia-cuda-nvrtc-cu{driver_major}"
            )
        candidates = usable
    else:
        candidates.sort(key=lambda c: "nvidia/cuda_nvrtc/" not in c[2])  # stable: the declared wheel first
        return candidates[0][2] if candidates else _refuse()
    return max(candidates, key=lambda c: c[:2])[2] if candidates else _refuse()


def _refuse() -> str:
    raise NvrtcUnavailableError(
        "no NVRTC library was found: pip install nvidia-cuda-nvrtc-cu12, or set FUSER_NVRTC to the path of libnvrtc.so"
    )


def _candidates() -> Iterator[tuple[int, int, str]]:
    """(major, minor, path) of every libnvrtc found; minor -1 where the files do not tell. Newest major first."""
    folders: list[Path] = []
    for entry in sys.path:
        vendor = Path(entry, "nvidia")
        if vendor.is_dir():
            folders.extend([vendor / "cuda_nvrtc/lib", *sorted(vendor.glob("cu[0-9]*/lib"))])
    for variable, below in (("CONDA_PREFIX", "lib"), ("CUDA_PATH", "lib64"), ("CUDA_HOME", "lib64")):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable], below))
    folders.extend(sorted(Path("/usr/local").glob("cuda*/lib64"), reverse=True))
    files: dict[int, list[Path]] = {major: [] for major in SEARCHED_MAJORS}
    for folder in dict.fromkeys(folders):
        for path in sorted(folder.glob("libnvrtc.so.*")):
            if (match := re.fullmatch(r"libnvrtc\.so\.(\d+)", path.name)) is not None:
                files.setdefault(int(match.group(1)), []).append(path)
    for major in sorted(files, reverse=True):
        for path in files[major]:
            yield major, _minor_of(path, major), str(path)
        if not files[major]:
            # The loader's own path (LD_LIBRARY_PATH, ld.so.conf) can only be asked by loading.
            soname = f"libnvrtc.so.{major}"
            try:
                ctypes.CDLL(soname)
            except OSError:
                continue
            yield major, -1, soname


def _minor_of(path: Path, major: int) -> int:
    return max(_minors_of(path, major), default=-1)


def _minors_of(path: Path, major: int) -> list[int]:
    return [
        int(match.group(1))
        for sibling in path.parent.glob(f"libnvrtc-builtins.so.{major}.*")
        if (match := re.fullmatch(rf"libnvrtc-builtins\.so\.{major}\.(\d+)", sibling.name))
    ]


def _load_builtins(path: str) -> None:
    """Load libnvrtc-builtins from beside the library: the CUDA 13 wheels do not find it by themselves."""
    folder = Path(path).parent
    if folder == Path():
        return
    for sibling in sorted(folder.glob("libnvrtc-builtins.so.*")):
        try:
            ctypes.CDLL(str(sibling))
        except OSError as error:
            raise NvrtcUnavailableError(f"{sibling}, a part of NVRTC, cannot be loaded: {error}") from None
