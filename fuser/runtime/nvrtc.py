"""NVRTC: CUDA text in, machine code and a resource report out. The only module that touches the compiler library.

The library is driven through ctypes, not through `cuda.bindings.nvrtc`: the bindings take whichever libnvrtc is loaded
already, else the one of the highest CUDA major that is installed, and have no way to name another, so a CUDA 13 compiler
beside a CUDA 12 driver would make binaries that do not load. ctypes lets go of the interpreter lock during a call.

Which library
    1. FUSER_NVRTC, a path
    2. with a driver: the newest found whose CUDA major does not exceed the driver's
    3. without: the declared wheel (nvidia-cuda-nvrtc-cu12), else the newest found
Searched: wheels in sys.path, CONDA_PREFIX, CUDA_PATH and CUDA_HOME, /usr/local/cuda*, the loader's own path.

Everything here may be called from several threads at once; compilations run in parallel.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from fuser.errors import CompilationError
from fuser.records import record
from fuser.runtime.compiled_kernel import Resources
from fuser.runtime.ptxas_log import clean_log, parse_ptxas_log

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
    library = _library()
    target, is_ptx = _target(library, arch)
    return _compile(library, source, entries, target, options, name, is_ptx=is_ptx)


def compile_to_ptx(
    source: str,
    entries: Sequence[str],
    arch: str,
    options: Sequence[str] = (),
    *,
    name: str = "kernel.cu",
) -> CompileResult:
    """As `compile_to_cubin`, but stops before ptxas: `cubin` holds PTX and there is no resource report."""
    library = _library()
    target, _ = _target(library, arch)
    return _compile(library, source, entries, target.replace("sm_", "compute_"), options, name, is_ptx=True)


def version() -> tuple[int, int]:
    """(major, minor) of the NVRTC in use. Raises NvrtcUnavailableError if there is none."""
    return _library().version


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


# --- compiling --------------------------------------------------------------------------------------------------------

_SUCCESS = 0
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
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
    flags = [f"-arch={target}", "--std=c++17", "-default-device", "--diag-suppress=177"]
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
    return f"{head}:\n{log}"


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
_lock = threading.Lock()


def _library() -> _Library:
    """The library of the rule at the top. FUSER_NVRTC is looked at on every call; a search is done once."""
    from fuser import options

    global _chosen
    explicit = options.NVRTC.get()
    path = explicit or _chosen
    found = None if path is None else _loaded.get(path)
    if found is not None:
        return found
    with _lock:
        if path is None:
            path = _chosen = _choose()
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
    minors = [
        int(match.group(1))
        for sibling in path.parent.glob(f"libnvrtc-builtins.so.{major}.*")
        if (match := re.fullmatch(rf"libnvrtc-builtins\.so\.{major}\.(\d+)", sibling.name))
    ]
    return max(minors, default=-1)


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
