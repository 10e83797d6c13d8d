"""Binaries in the context of a CUDA device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fuser import options
from fuser.errors import LaunchError
from fuser.ir.device_info import DeviceInfo
from fuser.runtime import driver
from fuser.runtime.kernels.machine_code import why_not_first
from fuser.runtime.kernels.raw_signature import RawParameter
from fuser.runtime.kernels.variants import Binary
from fuser.runtime.launch import Launch

if TYPE_CHECKING:
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel

_STATIC_SHARED_LIMIT = 49152


@dataclass(slots=True, eq=False)
class LoadedKernel:
    """A binary in one context. Attributes of the function are raised when a launch needs more, never lowered."""

    binary: Binary
    function: Any
    registers: int
    static_shared: int
    max_threads: int
    dynamic_shared: int = 0  # what the function is allowed by now
    allows_large_clusters: bool = False
    shares_sms: bool = False
    waits_first: bool | None = None  # nobody has asked yet

    def may_start_early(self) -> bool:
        """Whether the very binary waits for the launches before it first; a warning says why not, once."""
        if self.waits_first is None:
            why = why_not_first(self.binary.cubin, self.binary.entry)
            if why is not None:
                options.logger().warning("%s does not start early: %s", self.binary.entry, why)
            self.waits_first = why is None
        return self.waits_first

    def as_allowed(self, launch: Launch) -> Launch:
        """The launch, not early where the binary may not start early."""
        return replace(launch, early=False) if launch.early and not self.may_start_early() else launch


def load_binary(binary: Binary) -> LoadedKernel:
    """Load into the current context. The module stays loaded as long as the process."""
    module = driver.bindings()
    handle = driver.call("cuModuleLoadData", binary.cubin)
    function = driver.call("cuModuleGetFunction", handle, binary.entry.encode())
    attributes = module.CUfunction_attribute
    registers, static_shared, max_threads = (
        int(driver.call("cuFuncGetAttribute", attribute, function))
        for attribute in (
            attributes.CU_FUNC_ATTRIBUTE_NUM_REGS,
            attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            attributes.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        )
    )
    # Up to 48 KB in all need no attribute.
    allowed = max(_STATIC_SHARED_LIMIT - static_shared, 0)
    return LoadedKernel(binary, function, registers, static_shared, max_threads, allowed)


def check_arch(kernel: CompiledKernel, info: DeviceInfo) -> None:
    """Machine code with an `a` runs on its own architecture only, other code on later minor versions too."""
    if kernel.arch == info.arch:
        return
    number = kernel.arch.removeprefix("sm_").rstrip("af")
    major, minor = int(number[:-1]), int(number[-1])
    here = info.compute_capability
    if kernel.arch.endswith("a"):
        runs = (major, minor) == here
    else:
        runs = major == here[0] and minor <= here[1]
    if not runs:
        raise LaunchError(f"{kernel.entry} was compiled for {kernel.arch}, and the device is {info.arch}")


def check_parameters(kernel: CompiledKernel, loaded: LoadedKernel) -> None:
    """The driver's sizes of a raw kernel's parameters against the declared ones."""
    for position, parameter in enumerate(kernel.parameters):
        if not isinstance(parameter, RawParameter):
            return
        _, size = driver.call("cuFuncGetParamInfo", loaded.function, position)
        if int(size) != parameter.nbytes:
            raise LaunchError(
                f"{kernel.entry}: parameter {position} ({parameter.name or parameter.type_name}) is declared with "
                f"{parameter.nbytes} bytes and has {int(size)} in the binary"
            )
