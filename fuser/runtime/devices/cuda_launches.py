"""What a launch on a CUDA device is made of: its sizes against the device's limits, the driver's configuration, and what a
thread keeps of a kernel between launches."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fuser.errors import LaunchError
from fuser.ir.device_info import DeviceInfo
from fuser.runtime import driver
from fuser.runtime.kernels.pack import ArgumentCells, ArgumentLayout, PackedValue
from fuser.runtime.launch import Launch

if TYPE_CHECKING:
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)


def check_launch(entry: str, launch: Launch, info: DeviceInfo) -> None:
    """Raise LaunchError, with all sizes, for a launch that no kernel could have on the device."""
    gx, gy, gz = launch.grid
    bx, by, bz = launch.block
    fits_grid = 0 < gx <= _GRID_LIMITS[0] and 0 < gy <= _GRID_LIMITS[1] and 0 < gz <= _GRID_LIMITS[2]
    fits_block = bx > 0 and by > 0 and 0 < bz <= _BLOCK_LIMITS[2] and bx * by * bz <= info.max_threads_per_block
    if fits_grid and fits_block and 0 <= launch.shared_bytes <= info.shared_per_block_optin and launch.cluster is None:
        return
    problems: list[str] = []
    for axis, n, limit in zip("xyz", launch.grid, _GRID_LIMITS, strict=True):
        if not 1 <= n <= limit:
            problems.append(f"the grid has 1 to {limit} blocks along {axis}, not {n}")
    for axis, n, limit in zip("xyz", launch.block, _BLOCK_LIMITS, strict=True):
        if not 1 <= n <= limit:
            problems.append(f"a block has 1 to {limit} threads along {axis}, not {n}")
    if launch.threads > info.max_threads_per_block:
        problems.append(f"a block has at most {info.max_threads_per_block} threads, not {launch.threads}")
    if not 0 <= launch.shared_bytes <= info.shared_per_block_optin:
        problems.append(
            f"a block has up to {info.shared_per_block_optin} bytes of shared memory, not {launch.shared_bytes}"
        )
    if launch.cluster is not None:
        if info.compute_capability < (9, 0):
            problems.append(f"{info.arch} has no clusters")
        for axis, n, blocks in zip("xyz", launch.cluster, launch.grid, strict=True):
            if n < 1 or blocks % n:
                problems.append(f"the grid of {blocks} blocks along {axis} is no multiple of the cluster's {n}")
    if problems:
        raise LaunchError(f"{entry} cannot be launched with {describe_launch(launch)}: {'; '.join(problems)}")


def describe_launch(launch: Launch) -> str:
    """`grid (8, 1, 1), block (256, 1, 1), 0 bytes of dynamic shared memory`."""
    text = f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of dynamic shared memory"
    if launch.cluster is not None:
        text += f", cluster {launch.cluster}"
    text += ", cooperative" if launch.cooperative else ""
    text += ", beside the kernel before" if launch.co_resident else ""
    return f"{text}, early" if launch.early else text


def differ_in_grid_alone(a: Launch, b: Launch) -> bool:
    """Whether nothing but the grid of two ordinary launches differs: the frequent case of a shape that changes."""
    return (
        a.block == b.block
        and a.shared_bytes == b.shared_bytes
        and a.cluster is None
        and b.cluster is None
        and not a.cooperative
        and not b.cooperative
        and a.co_resident is b.co_resident
        and a.early is b.early
        and a.shares_sms is b.shares_sms
    )


def launch_config(launch: Launch, stream: int) -> Any:
    """The driver's configuration of a launch."""
    module = driver.bindings()
    config = module.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = stream
    attributes = launch_attributes(launch)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def launch_attributes(launch: Launch) -> list[Any]:
    """What a launch asks of the driver besides its sizes."""
    module = driver.bindings()
    attributes: list[Any] = []
    for name, value in _attribute_values(launch, module.CUlaunchAttributeValue):
        attribute = module.CUlaunchAttribute()
        attribute.id = getattr(module.CUlaunchAttributeID, name)
        attribute.value = value
        attributes.append(attribute)
    return attributes


def node_attributes(launch: Launch) -> list[tuple[Any, Any]]:
    """`launch_attributes` as (id, value) of a graph's kernel node, for which the bindings have types of their own."""
    module = driver.bindings()
    ids = module.CUkernelNodeAttrID
    return [(getattr(ids, name), value) for name, value in _attribute_values(launch, module.CUkernelNodeAttrValue)]


def _attribute_values(launch: Launch, make_value: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """(name of the attribute's id, value) of what a launch asks for."""
    if launch.cooperative:
        value = make_value()
        value.cooperative = 1
        yield "CU_LAUNCH_ATTRIBUTE_COOPERATIVE", value
    if launch.cluster is not None:
        value = make_value()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = launch.cluster
        yield "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", value
    if launch.co_resident or launch.early:
        value = make_value()
        value.programmaticStreamSerializationAllowed = 1
        yield "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", value


class BoundLaunch:
    """A launch with everything in place but the addresses, for one thread: argument cells of its own, the configuration.

    words       the argument cells as 8-byte words; `word_of` says which one is a pointer's
    fire        enqueues it; a tuple whose first item is the driver's status
    """

    __slots__ = ("_cells", "_config", "_kernel", "_launch", "fire", "words")

    def __init__(
        self,
        kernel: CompiledKernel,
        launch: Launch,
        template: Sequence[PackedValue],
        function: Any,
        prepare: Callable[[], None] | None,
    ) -> None:
        self._kernel = kernel
        self._launch = launch
        self._cells = cells = ArgumentLayout.of(kernel).make_cells()
        cells.write(template)
        self.words = cells.words
        self._config = config = launch_config(launch, 0)
        enqueue = functools.partial(driver.function("cuLaunchKernelEx"), config, function, cells.address, 0)
        self.fire: Callable[[], tuple[Any, ...]] = enqueue if prepare is None else _after(prepare, enqueue)

    def word_of(self, position: int) -> int:
        """Index in `words` of the pointer that is parameter `position`."""
        return self._cells.word_of(position)

    def writer_of(self, position: int) -> Callable[[PackedValue], None]:
        """What writes the number that is parameter `position`."""
        return self._cells.writer_of(position)

    def set_stream(self, stream: int) -> None:
        """Where the next launches go."""
        self._config.hStream = stream

    def error(self, status: int) -> LaunchError:
        """The error for a launch that the driver refused."""
        return launch_error(self._kernel, self._launch, driver.error_of("cuLaunchKernelEx", status))


def _after(prepare: Callable[[], None], enqueue: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    def fire() -> tuple[Any, ...]:
        prepare()
        return enqueue()

    return fire


def launch_error(kernel: CompiledKernel, launch: Launch, error: driver.DriverError) -> LaunchError:
    """The driver's error with the sizes of the launch."""
    return LaunchError(f"launch of {kernel.entry} with {describe_launch(launch)}: {error.message}")


class LaunchSite:
    """What one thread keeps of a kernel between launches: argument cells, and the configuration of the last launch."""

    __slots__ = ("cells", "config", "function", "launch", "stream")

    def __init__(self, layout: ArgumentLayout) -> None:
        self.cells: ArgumentCells = layout.make_cells()
        self.launch: Launch | None = None
        self.stream = 0
        self.config: Any = None
        self.function: Any = None


class LaunchSites(threading.local):
    """The launch sites of the current thread, by kernel."""

    def __init__(self) -> None:
        self._by_kernel: weakref.WeakKeyDictionary[CompiledKernel, LaunchSite] = weakref.WeakKeyDictionary()

    def of(self, kernel: CompiledKernel) -> LaunchSite:
        """That of a kernel, made on first need."""
        site = self._by_kernel.get(kernel)
        if site is None:
            site = self._by_kernel[kernel] = LaunchSite(ArgumentLayout.of(kernel))
        return site
