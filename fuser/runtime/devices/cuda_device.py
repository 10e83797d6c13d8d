"""A CUDA device: memory, copies, loading of binaries, launches. Implements the protocol of `runtime/devices/device.py`.

What happens to a launch, in order, all of it before anything is enqueued: sizes against the limits of the device, the
variant for the block (`variants.py`), loading into the context, dynamic shared memory, residency of a cooperative grid or
of clusters, packing. Each check names the kernel and the sizes.

State per device: a memory pool of our own, the loaded binaries (never unloaded: a graph or a launch in flight may still
run them), the semaphore pools.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuser import locks
from fuser.errors import LaunchError, LaunchMemoryError
from fuser.options import logger
from fuser.runtime import driver
from fuser.runtime.devices.cuda_binaries import LoadedKernel, check_arch, check_parameters, load_binary
from fuser.runtime.devices.cuda_device_info import read_info
from fuser.runtime.devices.cuda_launches import (
    BoundLaunch,
    LaunchSite,
    LaunchSites,
    check_launch,
    describe_launch,
    differ_in_grid_alone,
    launch_config,
    launch_error,
)
from fuser.runtime.devices.device import Allocation, OrderCalls, out_of_memory
from fuser.runtime.devices.streams import capture_of, keep_until_done
from fuser.runtime.kernels.library_calls import LibraryCall, operands_text
from fuser.runtime.kernels.pack import PackedValue
from fuser.runtime.kernels.variants import VARIANTS, Binary, KernelVariants
from fuser.runtime.launch import ArgumentValue, Launch
from fuser.runtime.reports import Reports

if TYPE_CHECKING:
    import numpy as np

    from fuser.runtime.kernels.commands import Command, DeviceGraph, Edges
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel

_PORTABLE_CLUSTER = 8
# Percent of what can be shared memory; what the driver finds best for a kernel by itself.
_MOST_SHARED, _AS_NEEDED = 100, -1
# Int32 counters: the smallest pool of a stream, and what is kept in reserve for streams that are being captured.
_SEMAPHORE_POOL = 4096
_CAPTURE_RESERVE = 1 << 20
_STREAM_NON_BLOCKING = 1
_EVENT_DISABLE_TIMING = 2
# The handle by which each thread has a default stream of its own.
_STREAM_OF_THREAD = 2
_PARAMETER_INFO_SINCE = (12, 4)
_KEEP_ALL = 2**64 - 1
_LARGEST_SIZE = 2**63 - 1


def _library(call: LibraryCall) -> Any:
    """The module that calls a library; it imports it."""
    return importlib.import_module(f"fuser.runtime.arrays.{call.library}_library")


# CuPy has an error of its own for memory, and torch without CUDA asserts.
_REFUSALS = (RuntimeError, ValueError, TypeError, AssertionError, MemoryError)


def _refused(call: LibraryCall, error: Exception) -> LaunchError:
    if isinstance(error, LaunchError):
        return error
    asked, words = f"{call.op}({operands_text(call.inputs)})", str(error).strip()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return LaunchMemoryError(f"{call.library} has no memory for {asked} on this device: {words}")
    return LaunchError(f"{call.library} does not compute {asked} on this device: {words}")


class CudaDevice:
    """CUDA device `index`. Raises NoDeviceError where there is none. All methods may be called from several threads."""

    kind = "cuda"

    def __init__(self, index: int = 0, variants: KernelVariants = VARIANTS) -> None:
        self.index = index
        self.context = driver.primary_context(index)
        self.info = read_info(index)
        self.variants = variants
        self.reports = Reports()
        self._lock = locks.reentrant_lock()
        self._pool: Any = None
        self._loaded: dict[Binary, LoadedKernel] = {}
        self._semaphores = _SemaphorePools()
        self._sites = LaunchSites()
        # (function, threads, dynamic shared bytes, cluster) -> resident blocks or clusters
        self._resident: dict[tuple[int, int, int, tuple[int, int, int] | None], int] = {}

    def __repr__(self) -> str:
        return f"CudaDevice({self.index}, {self.info.name!r}, {self.info.arch})"

    # --- memory ---

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        """Uninitialised memory, aligned to 256 bytes, ordered on `stream`. No bytes: the null address.

        On a stream that is captured it is memory of the graph: there from its place in a launch until it is released.

        Raises LaunchMemoryError if the device has not as much.
        """
        if nbytes == 0:
            return Allocation(0, 0)
        if nbytes > _LARGEST_SIZE:
            raise out_of_memory(nbytes, str(self))
        switched = driver.enter_context(self.context)
        try:
            address = driver.call("cuMemAllocFromPoolAsync", nbytes, self._memory_pool(), stream)
            capture = capture_of(stream)
        except driver.DriverError as error:
            if error.status != driver.CUDA_ERROR_OUT_OF_MEMORY:
                raise
            raise out_of_memory(nbytes, str(self)) from error
        finally:
            if switched:
                driver.leave_context()
        return Allocation(int(address), nbytes, capture=capture)

    def release(self, allocation: Allocation, stream: int) -> None:
        """Give memory back; work enqueued on `stream` before may still use it."""
        if not allocation.address:
            return
        switched = driver.enter_context(self.context)
        try:
            capture = capture_of(stream)
            if capture == allocation.capture:
                driver.call("cuMemFreeAsync", allocation.address, stream)
            elif capture:
                # What a collection of garbage lets go is no part of the graph that somebody is at.
                keep_until_done(self, stream, [_Release(self, allocation, stream)])
            else:
                # Memory of a graph is there between a launch and the next one alone.
                with suppress(driver.DriverError):
                    driver.call("cuMemFreeAsync", allocation.address, stream)
        finally:
            if switched:
                driver.leave_context()

    def trim(self, kept: int = 0) -> None:
        """Give memory that nothing uses any more back to the driver, but for `kept` bytes; other processes can then have it."""
        if self._pool is not None:
            self._run("cuMemPoolTrimTo", self._pool, kept)

    def copy_from_host(self, address: int, data: np.ndarray, stream: int) -> None:
        """Copy a C-contiguous host array to `address`; complete on return, so `data` may be changed."""
        # Pageable memory is staged before the call returns, pinned memory is not: wait, whatever it is.
        self._copy_and_wait("cuMemcpyHtoDAsync", address, data.ctypes.data, data, stream)

    def copy_to_host(self, data: np.ndarray, address: int, stream: int) -> None:
        """Copy `data.nbytes` from `address` into a C-contiguous host array; complete on return. Raises what was reported."""
        self._copy_and_wait("cuMemcpyDtoHAsync", data.ctypes.data, address, data, stream)
        self.reports.check()

    def _copy_and_wait(self, name: str, dst: int, src: int, data: np.ndarray, stream: int) -> None:
        _check_contiguous(data)
        switched = driver.enter_context(self.context)
        try:
            if capture_of(stream):
                raise LaunchError(
                    "copies between host and device memory wait for the stream, which cannot be done while it is captured "
                    "(the default stream: while one that waits for it is): place arrays on the device before the capture "
                    "begins, and read them after it"
                )
            if data.nbytes:
                driver.call(name, dst, src, data.nbytes, stream)
            self._wait(stream)
        finally:
            if switched:
                driver.leave_context()

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Copy within the device."""
        if nbytes:
            self._run("cuMemcpyDtoDAsync", dst, src, nbytes, stream)

    def fill(self, address: int, pattern: bytes, count: int, stream: int) -> None:
        """Write `pattern` (1, 2, 4, 8 or 16 bytes) `count` times."""
        if count == 0:
            return
        width = len(pattern)
        if width in (8, 16):
            # One pass if all words are equal (zero, mostly), else one strided pass for each word of the pattern.
            words = [int.from_bytes(pattern[i : i + 4], "little") for i in range(0, width, 4)]
            if len(set(words)) == 1:
                self._run("cuMemsetD32Async", address, words[0], count * len(words), stream)
                return
            for i, word in enumerate(words):
                self._run("cuMemsetD2D32Async", address + 4 * i, width, word, 1, count, stream)
            return
        if width not in (1, 2, 4):
            raise LaunchError(f"fill takes a pattern of 1, 2, 4, 8 or 16 bytes, got {width}")
        call = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}[width]
        self._run(call, address, int.from_bytes(pattern, "little"), count, stream)

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        """Address of at least `count` zeroed Int32 counters for one launch on `stream`; never shared between streams.

        `co_resident`: see `Device`. Another thread may have put a launch of any size between the two on the stream.

        A stream that is being captured gets counters of its own out of a reserve made before, one set per capture:
        the graph may be replayed on any stream, but not beside itself (docs/decisions/0013-blocks-that-wait.md).
        Raises LaunchError if the reserve is not there or is used up.
        """
        switched = driver.enter_context(self.context)
        try:
            with self._lock:
                return self._find_semaphores(count, stream, co_resident)
        finally:
            if switched:
                driver.leave_context()

    def semaphore_lookup(self, *, co_resident: bool) -> Callable[[int, int], int]:
        """`semaphores(count, stream)` for a caller that is in the context of this device and asks at every launch.

        What is there already is found without a lock: one entry of a dictionary, which is never changed.
        """
        is_capturing = driver.function("cuStreamIsCapturing")

        def find(count: int, stream: int) -> int:
            found = None
            if stream != _STREAM_OF_THREAD:
                status, capturing = is_capturing(stream)
                pools = self._semaphores
                if not status and not int(capturing) and pools.reserve_used <= _CAPTURE_RESERVE // 2:
                    found = pools.by_stream.get((stream, 0, 0, co_resident))
            if found is not None and found.nbytes >= 4 * count:
                return found.address
            return self.semaphores(count, stream, co_resident=co_resident)

        return find

    def _find_semaphores(self, count: int, stream: int, co_resident: bool) -> int:
        pools = self._semaphores
        capture = capture_of(stream)
        thread = threading.get_ident() if stream == _STREAM_OF_THREAD else 0
        key = stream, thread, capture, co_resident
        found = pools.by_stream.get(key)
        if not capture and (pools.reserve is None or pools.reserve_used > _CAPTURE_RESERVE // 2):
            # A capture can make no reserve, so that there must be much left for the next ones. Graphs keep the old one.
            reserve = self._zeroed(_CAPTURE_RESERVE, stream)
            with driver.beside_captures():
                # Nothing orders the streams that graphs will run on after this one.
                driver.call("cuStreamSynchronize", stream)
            pools.reserve, pools.reserve_used = reserve, 0
        if found is not None and found.nbytes >= 4 * count:
            return found.address
        if capture:
            if pools.reserve is not None and pools.reserve_used + count > _CAPTURE_RESERVE:
                raise LaunchError(
                    f"{count} semaphores are needed in a stream capture, and earlier captures have taken "
                    f"{pools.reserve_used} of the {_CAPTURE_RESERVE} that are kept for them; run a kernel that needs "
                    "semaphores outside of captures"
                )
            if pools.reserve is None:
                raise LaunchError(
                    f"a kernel that needs {count} semaphores is launched for the first time inside a stream capture; "
                    "run it once before the capture begins"
                )
            address = pools.reserve.address + 4 * pools.reserve_used
            pools.reserve_used += -(-count // 64) * 64
            pools.by_stream[key] = Allocation(address, 4 * count)
            return address
        # The old counters stay: another thread may have been given them for a launch that is still to come. New ones are twice
        # as many, so that all that stay are fewer than those in use.
        twice = 0 if found is None else found.nbytes // 2
        pools.by_stream[key] = self._zeroed(max(count, twice, _SEMAPHORE_POOL), stream)
        return pools.by_stream[key].address

    def _zeroed(self, count: int, stream: int) -> Allocation:
        address = int(driver.call("cuMemAllocFromPoolAsync", 4 * count, self._memory_pool(), stream))
        driver.call("cuMemsetD32Async", address, 0, count, stream)
        return Allocation(address, 4 * count)

    def drop_semaphores(self) -> None:
        """Forget all semaphore pools: after a failed launch nobody knows what the counters hold. The memory is not given
        back, because kernels in flight may still count in it."""
        with self._lock:
            self._semaphores = _SemaphorePools()

    def _memory_pool(self) -> Any:
        """A pool of our own that keeps freed memory: the driver's default gives it back at every synchronisation."""
        if self._pool is not None:
            return self._pool
        with self._lock:
            if self._pool is not None:
                return self._pool
            module = driver.bindings()
            properties = module.CUmemPoolProps()
            properties.allocType = module.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            properties.location.type = module.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            properties.location.id = self.index
            with driver.beside_captures():
                pool = driver.call("cuMemPoolCreate", properties)
            threshold = module.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            driver.call("cuMemPoolSetAttribute", pool, threshold, module.cuuint64_t(_KEEP_ALL))
            self._pool = pool
        return self._pool

    # --- streams and events ---

    def create_stream(self) -> int:
        """A raw stream that does not block on the default one. It lives as long as the process."""
        return int(self._run("cuStreamCreate", _STREAM_NON_BLOCKING))

    def synchronize(self, stream: int) -> None:
        """Wait for all work of `stream`. A kernel that failed is told here, and what was reported."""
        with self.current():
            self._wait(stream)
        self.reports.check()

    def _wait(self, stream: int) -> None:
        before = driver.leave_captures()
        try:
            driver.call("cuStreamSynchronize", stream)
        except LaunchError:
            self.drop_semaphores()
            raise
        finally:
            driver.heed_captures(before)

    def order_calls(self) -> OrderCalls:
        """`record_event`, `wait_event` and `capture_of` for a caller that is in the context of this device."""
        record, wait = driver.function("cuEventRecord"), driver.function("cuStreamWaitEvent")

        def record_event(event: Any, stream: int) -> None:
            status = record(event, stream)[0]
            if status:
                raise driver.error_of("cuEventRecord", int(status))

        def wait_event(event: Any, stream: int) -> None:
            status = wait(stream, event, 0)[0]
            if status:
                raise driver.error_of("cuStreamWaitEvent", int(status))

        return record_event, wait_event, capture_of

    def create_event(self) -> Any:
        """An event that records times."""
        return self._run("cuEventCreate", 0)

    def create_order_event(self) -> Any:
        """An event for the order between streams: it records no times."""
        return self._run("cuEventCreate", _EVENT_DISABLE_TIMING)

    def record_event(self, event: Any, stream: int) -> None:
        """Mark the work enqueued on `stream` so far."""
        self._run("cuEventRecord", event, stream)

    def wait_event(self, event: Any, stream: int) -> None:
        """Later work of `stream` waits for what `event` marks now."""
        self._run("cuStreamWaitEvent", stream, event, 0)

    def elapsed_ms(self, first: Any, second: Any) -> float:
        """Milliseconds between two recorded events; waits for the second."""
        with self.current(), driver.beside_captures():
            driver.call("cuEventSynchronize", second)
            return float(driver.call("cuEventElapsedTime", first, second))

    def destroy_event(self, event: Any) -> None:
        self._run("cuEventDestroy", event)

    # --- launches ---

    def launch(self, kernel: CompiledKernel, launch: Launch, arguments: Sequence[ArgumentValue], stream: int) -> None:
        """Run `kernel`. `arguments` has one value per kernel parameter: an address for pointers, else the number.

        Raises LaunchError for sizes the kernel or device cannot hold (before anything is enqueued), and after any failed
        launch drops the semaphore pools.
        """
        self.launch_packed(kernel, launch, arguments, stream)

    def launch_packed(self, kernel: CompiledKernel, launch: Launch, values: Sequence[PackedValue], stream: int) -> None:
        """`launch`, for raw kernels too, whose structs come as bytes."""
        site = self._sites.of(kernel)
        switched = driver.enter_context(self.context)
        try:
            if (site.launch is not launch and site.launch != launch) or site.stream != stream:
                self._prepare(site, kernel, launch, stream)
            site.cells.write(values)
            try:
                driver.call("cuLaunchKernelEx", site.config, site.function, site.cells.address, 0)
            except driver.DriverError as error:
                self.drop_semaphores()
                raise launch_error(kernel, launch, error) from None
        finally:
            if switched:
                driver.leave_context()

    def bind_launch(self, kernel: CompiledKernel, launch: Launch, template: Sequence[PackedValue]) -> BoundLaunch:
        """A launch to be repeated by the calling thread, ready but for what `template` has zeros for.

        Raises the errors of `launch`, but those of the driver, which come with `fire`.
        """
        loaded = self.prepare(kernel, launch)
        plan = kernel.plan
        takes_turns = plan is not None and (plan.starts_next or plan.co_resident)

        def divide() -> None:
            if launch.shares_sms is not loaded.shares_sms:
                self._divide(loaded, shares_sms=launch.shares_sms)

        allowed = loaded.as_allowed(launch)
        return BoundLaunch(kernel, allowed, template, loaded.function, divide if takes_turns else None)

    def context_entry(self) -> Callable[[], bool]:
        """What makes the context of this device current; True if `driver.leave_context` must bring another one back.

        For callers that ask at every launch: of this process alone.
        """
        current, context = driver.function("cuCtxGetCurrent"), self.context

        def enter() -> bool:
            status, found = current()
            return False if not status and int(found) == context else driver.enter_context(context)

        return enter

    def prepare(self, kernel: CompiledKernel, launch: Launch, stream: int = 0) -> LoadedKernel:
        """Do all that a launch of these sizes needs before it can be enqueued, and give the loaded kernel.

        Raises the errors of `launch`.
        """
        switched = driver.enter_context(self.context)
        try:
            return self._ready(kernel, launch, stream)
        finally:
            if switched:
                driver.leave_context()

    def _prepare(self, site: LaunchSite, kernel: CompiledKernel, launch: Launch, stream: int) -> None:
        last, site.launch = site.launch, None
        if last is not None and site.stream == stream and differ_in_grid_alone(last, launch):
            check_launch(kernel.entry, launch, self.info)
            config = site.config
            config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
            site.launch = launch
            return
        loaded = self._ready(kernel, launch, stream)
        site.config = launch_config(loaded.as_allowed(launch), stream)
        site.function = loaded.function
        site.launch, site.stream = launch, stream

    def _ready(self, kernel: CompiledKernel, launch: Launch, stream: int) -> LoadedKernel:
        check_launch(kernel.entry, launch, self.info)
        loaded = self._load(kernel, launch, stream)
        if launch.threads > loaded.max_threads:
            raise LaunchError(
                f"{kernel.entry}: a block of {launch.threads} threads, and the binary allows {loaded.max_threads} "
                f"({loaded.registers} registers a thread)"
            )
        self._allow_shared(kernel, loaded, launch.shared_bytes)
        if launch.shares_sms is not loaded.shares_sms:
            self._divide(loaded, shares_sms=launch.shares_sms)
        if launch.cluster is not None:
            self._check_clusters(kernel, loaded, launch)
        if launch.cooperative:
            self._check_residency(kernel, loaded, launch)
        elif kernel.plan is not None and kernel.plan.waiting_blocks:
            self._check_room(kernel, loaded, launch, kernel.plan.waiting_blocks)
        return loaded

    def _load(self, kernel: CompiledKernel, launch: Launch, stream: int) -> LoadedKernel:
        present = self.variants.binaries_of(kernel)
        binary = next((b for b in present if b.max_threads >= launch.threads), None)
        if (binary is None or binary not in self._loaded) and capture_of(stream):
            raise LaunchError(
                f"{kernel.entry} is launched for the first time with blocks of {launch.threads} threads inside a stream "
                "capture, and compiling or loading would break the capture; run it once before the capture begins"
            )
        binary = self.variants.binary_for(kernel, launch.threads)
        found = self._loaded.get(binary)
        if found is not None:
            return found
        check_arch(kernel, self.info)
        with self._lock:
            found = self._loaded.get(binary)
            if found is None:
                # Another thread may be capturing.
                with driver.beside_captures():
                    found = self._loaded[binary] = load_binary(binary)
                if driver.driver_version() >= _PARAMETER_INFO_SINCE:
                    check_parameters(kernel, found)
        return found

    def _allow_shared(self, kernel: CompiledKernel, loaded: LoadedKernel, dynamic: int) -> None:
        """Raise what the function is allowed to what the launch needs; the driver allows 48 KB in all unasked."""
        total = loaded.static_shared + dynamic
        if total > self.info.shared_per_block_optin:
            raise LaunchError(
                f"{kernel.entry}: {total} bytes of shared memory ({loaded.static_shared} static, {dynamic} dynamic), and a "
                f"block of this device has {self.info.shared_per_block_optin}"
            )
        if dynamic > loaded.dynamic_shared:
            module = driver.bindings()
            attribute = module.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            with self._lock:
                if dynamic > loaded.dynamic_shared:
                    driver.call("cuFuncSetAttribute", loaded.function, attribute, dynamic)
                    loaded.dynamic_shared = dynamic

    def _divide(self, loaded: LoadedKernel, *, shares_sms: bool) -> None:
        """Say how the memory of an SM is divided into shared memory and first-level cache for a kernel.

        An SM has blocks of two kernels at once only where it is divided alike for both: with what each needs by itself the
        second one waits for SMs without the first (H200: layer_norm backward bf16 30x7168, 112 blocks of the second kernel on
        the 12 SMs that 120 of the first leave).
        """
        module = driver.bindings()
        attribute = module.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        with self._lock:
            driver.call("cuFuncSetAttribute", loaded.function, attribute, _MOST_SHARED if shares_sms else _AS_NEEDED)
            loaded.shares_sms = shares_sms

    def _check_clusters(self, kernel: CompiledKernel, loaded: LoadedKernel, launch: Launch) -> None:
        assert launch.cluster is not None
        blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        if blocks > _PORTABLE_CLUSTER and not loaded.allows_large_clusters:
            module = driver.bindings()
            attribute = module.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            with self._lock:
                driver.call("cuFuncSetAttribute", loaded.function, attribute, 1)
                loaded.allows_large_clusters = True
        key = (id(loaded), launch.threads, launch.shared_bytes, launch.cluster)
        resident = self._resident.get(key)
        if resident is None:
            alone = launch_config(replace(launch, cooperative=False, co_resident=False, early=False), 0)
            resident = int(driver.call("cuOccupancyMaxActiveClusters", loaded.function, alone))
            self._resident[key] = resident
        if resident < 1:
            raise LaunchError(
                f"{kernel.entry}: no cluster of {blocks} blocks fits on the device with {describe_launch(launch)}"
            )

    def _check_residency(self, kernel: CompiledKernel, loaded: LoadedKernel, launch: Launch) -> None:
        """All blocks of a cooperative grid must be on the device at once, or it waits for ever."""
        per_sm = self._blocks_per_sm(loaded, launch)
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        held = per_sm * self.info.sm_count
        if blocks > held:
            raise LaunchError(
                f"{kernel.entry}: a cooperative grid of {blocks} blocks, and the device holds {held} at once "
                f"({per_sm} on each of {self.info.sm_count} SMs) with {describe_launch(launch)}"
            )

    def _check_room(self, kernel: CompiledKernel, loaded: LoadedKernel, launch: Launch, waiting: int) -> None:
        """Beside the blocks that wait there must be room for those they wait for, in whatever order they start
        (docs/decisions/0013-blocks-that-wait.md)."""
        held = self._blocks_per_sm(loaded, launch) * self.info.sm_count
        if held < 2 * waiting:
            raise LaunchError(
                f"{kernel.entry}: {waiting} of its blocks wait for the others, and the device holds {held} at once with "
                f"{describe_launch(launch)}: they might keep the others from starting"
            )

    def _blocks_per_sm(self, loaded: LoadedKernel, launch: Launch) -> int:
        key = (id(loaded), launch.threads, launch.shared_bytes, None)
        per_sm = self._resident.get(key)
        if per_sm is None:
            per_sm = int(
                driver.call(
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor", loaded.function, launch.threads, launch.shared_bytes
                )
            )
            self._resident[key] = per_sm
        return per_sm

    def call_library(self, call: LibraryCall, addresses: Sequence[int], stream: int) -> None:
        """Enqueue what a library computes. Raises LaunchError with what the library says."""
        try:
            # torch warns where it finds no context.
            with self.current():
                _library(call).run(self, call, addresses, stream)
        except _REFUSALS as error:
            raise _refused(call, error) from error

    def capture_library(self, call: LibraryCall, addresses: Sequence[int], shared: dict[str, Any]) -> Any:
        """What a library would enqueue, as a graph: an object whose `graph` is its handle, for as long as it lives.

        shared   what the calls of one graph share, by library; it lives as long as they do
        """
        try:
            library = _library(call)
            if call.library not in shared:
                shared[call.library] = library.CaptureMemory(self)
            return library.Captured(self, call, addresses, shared[call.library])
        except _REFUSALS as error:
            raise _refused(call, error) from error

    def why_not_recorded(self, call: LibraryCall) -> str:
        """Why a library's call is no part of a graph; empty for one that can be."""
        return _library(call).why_not_recorded(self, call)

    def make_graph(self, commands: Sequence[Command], edges: Edges) -> DeviceGraph:
        """A CUDA graph of commands. Raises the errors of their launches, before anything runs.

        A driver without nodes that choose among bodies has no graph of commands with choices: they are put on the stream at
        each launch, and the host reads the selectors. So are those with calls that cannot be recorded. The log says so.
        """
        from fuser.runtime.devices.cuda_graphs import CudaGraph
        from fuser.runtime.devices.cuda_switches import count_switches, has_switch_nodes
        from fuser.runtime.devices.run_commands import StreamCommands
        from fuser.runtime.kernels.commands import library_commands

        if count_switches(commands) and not has_switch_nodes():
            logger().warning("the driver has no conditional nodes (CUDA 12.8): a program with choices is no graph")
            return StreamCommands(self, commands)
        for command in library_commands(commands):
            if why := self.why_not_recorded(command.call):
                logger().warning("a program with %s is no graph: %s", command.call.op, why)
                return StreamCommands(self, commands)
        return CudaGraph(self, commands, edges)

    def is_capturing(self, stream: int) -> bool:
        """Whether what is put on `stream` becomes part of somebody's graph instead of running."""
        return bool(self.capture_of(stream))

    def capture_of(self, stream: int) -> int:
        """Number of the capture that `stream` is in; 0 outside any."""
        # As in `_run`: a context manager would cost more than the call.
        switched = driver.enter_context(self.context)
        try:
            return capture_of(stream)
        finally:
            if switched:
                driver.leave_context()

    @contextmanager
    def current(self) -> Generator[None]:
        """The context of this device is current inside."""
        switched = driver.enter_context(self.context)
        try:
            yield
        finally:
            if switched:
                driver.leave_context()

    def _run(self, name: str, *arguments: Any) -> Any:
        """A driver call in the context of this device."""
        switched = driver.enter_context(self.context)
        try:
            return driver.call(name, *arguments)
        finally:
            if switched:
                driver.leave_context()


# --- checks and sizes -------------------------------------------------------------------------------------------------


def _check_contiguous(data: np.ndarray) -> None:
    if not data.flags.c_contiguous:
        raise LaunchError(f"copies between host and device take C-contiguous arrays, got strides {data.strides}")


# --- state ------------------------------------------------------------------------------------------------------------


class _Release:
    """Memory that is given back when nothing has this any more."""

    def __init__(self, device: CudaDevice, allocation: Allocation, stream: int) -> None:
        self._parts = device, allocation, stream

    # Bound early: at interpreter exit the names of this module may be gone.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            device, allocation, stream = self._parts
            device.release(allocation, stream)


class _SemaphorePools:
    """Counters by (stream, thread, capture, co_resident), and the reserve that captures take theirs from."""

    def __init__(self) -> None:
        self.by_stream: dict[tuple[int, int, int, bool], Allocation] = {}
        self.reserve: Allocation | None = None
        self.reserve_used = 0
