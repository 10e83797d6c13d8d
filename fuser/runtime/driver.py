"""The CUDA driver: the only module that touches `cuda.bindings.driver`, and where names differ between its versions.

`call(name, ...)` runs a driver function by name, checks its status, and returns what it gives (nothing, one value, or a
tuple). Every failure is a LaunchError with the name of the call and the driver's words. The bindings are imported at
the first call, never at import; `driver_version` and `device_count` need neither bindings nor driver.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from fuser import locks
from fuser.errors import LaunchError, NoDeviceError

# Functions whose form with edge data, ids or the newer signature is suffixed in the CUDA 12 bindings. There the bare
# name exists too, with the old signature, so the choice is made by major version and not by looking.
_NAMES_OF_12 = {
    "cuGraphAddNode": "cuGraphAddNode_v2",
    "cuGraphAddDependencies": "cuGraphAddDependencies_v2",
    "cuGraphRemoveDependencies": "cuGraphRemoveDependencies_v2",
    "cuGraphGetEdges": "cuGraphGetEdges_v2",
    "cuGraphNodeGetDependencies": "cuGraphNodeGetDependencies_v2",
    "cuGraphNodeGetDependentNodes": "cuGraphNodeGetDependentNodes_v2",
    "cuStreamGetCaptureInfo": "cuStreamGetCaptureInfo_v3",
    "cuStreamUpdateCaptureDependencies": "cuStreamUpdateCaptureDependencies_v2",
}

CUDA_SUCCESS = 0
CUDA_ERROR_OUT_OF_MEMORY = 2


class DriverError(LaunchError):
    """A driver call that failed. `call` is its name, `status` the driver's number."""

    def __init__(self, message: str, *, call: str, status: int) -> None:
        super().__init__(message)
        self.call = call
        self.status = status


# --- what can be asked of any machine ---------------------------------------------------------------------------------


def driver_version() -> tuple[int, int]:
    """CUDA version (major, minor) the installed driver runs; (0, 0) where there is none. Never raises."""
    global _version
    if _version is None:
        _version = _ask_version()
    return _version


def _ask_version() -> tuple[int, int]:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        number = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(number)) != CUDA_SUCCESS:
            return 0, 0
    except (OSError, AttributeError):
        return 0, 0
    return number.value // 1000, number.value % 1000 // 10


def device_count() -> int:
    """Number of CUDA devices; 0 without a driver, or with one that does not start. Never raises.

    A forked child is told what its parent had, so that it meets the error about forking and not another device.
    """
    global _count
    if driver_version() == (0, 0):
        return 0
    if _bindings is not None and os.getpid() != _process:
        return _count
    try:
        _count = int(call("cuDeviceGetCount"))
    except (LaunchError, ImportError):
        return 0
    return _count


_version: tuple[int, int] | None = None
_count = 0


# --- calls ------------------------------------------------------------------------------------------------------------

# The bindings module once cuInit succeeded, the process that did it, and the functions and constants looked up so far.
_bindings: ModuleType | None = None
_process = 0
_functions: dict[str, Any] = {}
_lock = locks.lock()


def bindings() -> Any:
    """The bindings module, initialised. For its types and enumerations; functions go through `call`.

    Raises NoDeviceError without a driver, and LaunchError in a child forked from a process that used CUDA.
    """
    if _bindings is None:
        _start()
    if os.getpid() != _process:
        raise LaunchError(
            f"CUDA was used in process {_process} and cannot be used in the child {os.getpid()} forked from it; "
            "start workers with the 'spawn' or 'forkserver' method"
        )
    return _bindings


def _start() -> None:
    global _bindings, _process
    with _lock:
        if _bindings is not None:
            return
        from cuda.bindings import driver as module

        try:
            status = module.cuInit(0)[0]
        except RuntimeError as error:  # what the bindings raise where no libcuda can be loaded
            raise NoDeviceError(
                f"there is no CUDA driver: {error} (device='simulator' and FUSER_DEVICE=simulator need none)"
            ) from None
        if int(status) != CUDA_SUCCESS:
            raise NoDeviceError(f"cuInit failed: {describe_status(module, int(status))}")
        _process = os.getpid()
        _bindings = module


def call(name: str, *arguments: Any) -> Any:
    """Run the driver function `name` and return what it gives besides its status: None, a value, or a tuple.

    Raises DriverError naming the call if the status is not success, LaunchError if the driver is too old to have it.
    """
    called = function(name)
    try:
        result = called(*arguments)
    except RuntimeError as error:  # the bindings' word for a function that this driver does not have
        raise LaunchError(f"{name} cannot be called: {error}") from None
    status = result[0]
    if status != CUDA_SUCCESS:
        raise error_of(name, int(status))
    if len(result) == 2:
        return result[1]
    return result[1:] or None


def function(name: str) -> Any:
    """A driver function for callers that check its status themselves. It is of this process: a forked child asks anew."""
    module = bindings()
    found = _functions.get(name)
    if found is None:
        found = _functions[name] = _find(module, name)
    return found


_ILLEGAL_ADDRESS = 700
_ILLEGAL_ADDRESS_HINT = (
    ". A kernel before it read or wrote where no memory is: an index of gather, index_select or take_along_axis outside of its "
    "dim does that, which FUSER_DEVICE=simulator finds, as does a raw kernel"
)


def error_of(name: str, status: int) -> DriverError:
    """The error for a failed call."""
    hint = _ILLEGAL_ADDRESS_HINT if status == _ILLEGAL_ADDRESS else ""
    return DriverError(f"{name} failed: {describe_status(bindings(), status)}{hint}", call=name, status=status)


def describe_status(module: Any, status: int) -> str:
    """`CUDA_ERROR_INVALID_VALUE (1): invalid argument`."""
    try:
        code = module.CUresult(status)
        label = code.name
        failed, text = module.cuGetErrorString(code)
        words = text.decode() if int(failed) == CUDA_SUCCESS and text else ""
    except (ValueError, RuntimeError):  # a status that these bindings do not know
        return f"error {status}"
    return f"{label} ({status}): {words}" if words else f"{label} ({status})"


def bindings_major() -> int:
    """CUDA major version of the installed bindings."""
    from cuda.bindings import __version__

    return int(__version__.split(".")[0])


def _find(module: Any, name: str) -> Any:
    if bindings_major() < 13:
        name = _NAMES_OF_12.get(name, name)
    return getattr(module, name)


# --- contexts ---------------------------------------------------------------------------------------------------------

_contexts: dict[int, int] = {}


def primary_context(index: int) -> int:
    """Handle of the primary context of a device, retained once per process.

    Raises NoDeviceError if there is no device of that index.
    """
    found = _contexts.get(index)
    if found is None:
        count = int(call("cuDeviceGetCount"))
        if not 0 <= index < count:
            raise NoDeviceError(f"there is no CUDA device {index}; {count} found")
        with _lock:
            if index not in _contexts:
                _contexts[index] = int(call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", index)))
        found = _contexts[index]
    return found


def enter_context(context: int) -> bool:
    """Make `context` current in this thread; True if another one was current and `leave_context` must bring it back.

    A thread without a context keeps the new one.
    """
    current = int(call("cuCtxGetCurrent"))
    if current == context:
        return False
    if current == 0:
        call("cuCtxSetCurrent", context)
        return False
    call("cuCtxPushCurrent", context)
    return True


@contextmanager
def beside_captures() -> Generator[None]:
    """What this thread does inside is no part of anybody's graph, and may be done while streams are captured.

    In the mode that torch and others capture in, loading, event queries and the like end a capture with an error, whatever
    thread they come from and whatever stream they are about. Needs a current context.
    """
    before = leave_captures()
    try:
        yield
    finally:
        heed_captures(before)


def leave_captures() -> Any:
    """Begin what `beside_captures` says, for callers that do so often; `heed_captures` with the result ends it."""
    mode = _functions.get("relaxed")
    if mode is None:
        mode = _functions["relaxed"] = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    return call("cuThreadExchangeStreamCaptureMode", mode)


def heed_captures(before: Any) -> None:
    """Undo a `leave_captures`."""
    call("cuThreadExchangeStreamCaptureMode", before)


def leave_context() -> None:
    """Undo an `enter_context` that returned True."""
    call("cuCtxPopCurrent")
