"""`RtcKernel`: raw CUDA C++ from the caller, compiled and run with the checks and variants that generated kernels have."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fuser.errors import CompilationError, InputTypeError, LaunchError, LaunchTypeError, NoDeviceError
from fuser.ir.device_info import H200, DeviceInfo
from fuser.missing_names import says_instead
from fuser.runtime import driver
from fuser.runtime.devices.device import Allocation, get_device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.kernels.raw_signature import (
    PROBE_THREADS,
    SIGNATURE_EXAMPLE,
    RawParameter,
    RawSignature,
    kernel_names,
    probe_expression,
    probe_source,
    read_signature,
)
from fuser.runtime.kernels.variants import MAX_BLOCK, RUNGS, bound_options, largest_block, rung_of
from fuser.runtime.launch import Launch
from fuser.runtime.raw_arguments import CheckedArgument, RawArray, check_arguments
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from fuser.runtime.devices.cuda_device import CudaDevice
    from fuser.runtime.kernels.nvrtc import CompileResult
    from fuser.runtime.kernels.pack import PackedValue


# An error that is not about the entry: NVRTC looks for that in a file of its own.
_OTHER_ERROR = re.compile(r"^(?!__nv_name_map)\S+\(\d+\): (?:catastrophic )?error", re.MULTILINE)


_LAUNCHED = (
    "after raw.compile(), raw.run(args, LaunchParams(...)) launches it on a GPU, and LaunchKernel(raw, slots, "
    "LaunchParams(...)) in a HostProgram"
)


@says_instead(_LAUNCHED, dict.fromkeys(("launch", "execute"), _LAUNCHED))
@short_tracebacks
class RtcKernel:
    """A kernel in CUDA C++.

    source      the text; no header is there by itself, `-I` options may bring some
    entry       the kernel's name, or a template instance (`scale<float, 4>`)
    device      a CUDA index, a `CudaDevice`, or a `DeviceInfo` to compile for; None is the current GPU, and an H200 for
                compilation alone where there is none
    signature   parameter list for an entry whose own cannot be told apart (`"float* y, const float* x, int n"`)

    `RtcKernel(...).compile()` needs no GPU; `run` does.
    """

    def __init__(
        self,
        source: str,
        entry: str,
        device: int | DeviceInfo | CudaDevice | None = None,
        signature: str | None = None,
    ) -> None:
        for what, text in (("source", source), ("entry", entry)):
            if not isinstance(text, str) or not text.strip():
                read = ": write path.read_text()" if isinstance(text, os.PathLike) else ""
                raise InputTypeError(f"RtcKernel: {what} is a text, got {type(text).__name__} {text!r}{read}")
        if not (device is None or isinstance(device, int | DeviceInfo) or hasattr(device, "index")) or isinstance(
            device, str
        ):
            raise InputTypeError(
                "RtcKernel: device must be a CUDA index, a device, a DeviceInfo or None, got "
                f"{type(device).__name__} {device!r}; DeviceInfo.preset(name) makes one"
            )
        self.source = source
        self.entry = entry.strip()
        self._given = signature
        self._asked = device
        self._info: DeviceInfo = H200
        self._kernel: CompiledKernel | None = None

    def __repr__(self) -> str:
        return f"RtcKernel(entry={self.entry!r}, {'compiled' if self._kernel is not None else 'not compiled'})"

    @property
    def kernel(self) -> CompiledKernel:
        """What `compile` made. Raises LaunchError before it."""
        if self._kernel is None:
            raise LaunchError(f"RtcKernel {self.entry} is not compiled: call compile() first")
        return self._kernel

    @property
    def parameters(self) -> tuple[RawParameter, ...]:
        """The parameters as the compiler sees them. Raises LaunchError before `compile`."""
        parameters = self.kernel.parameters
        return tuple(p for p in parameters if isinstance(p, RawParameter))

    def compile(self, options: Sequence[str] = ()) -> RtcKernel:
        """Compile with NVRTC. `options` are NVRTC's own, but for the architecture, which the device decides.

        `--maxrregcount=n` is a cap on registers for every block size. Raises CompilationError, quoting the line with a
        caret, for a text that NVRTC refuses, or asking for `signature=` where the parameters cannot be told.
        """
        from fuser.runtime.kernels import nvrtc

        if isinstance(options, str):
            raise InputTypeError(f"options is a sequence of texts, not one text: write [{options!r}]")
        rest, cap = _split_options(options)
        self._info = _device_info(self._asked)
        name = f"{self.entry}.cu"
        # The bounds of the text are not known yet; the same option fits both kinds.
        bounds = bound_options(RUNGS[0], register_cap=cap, bounded=False, uncapped=True)
        expression = self.entry
        try:
            result = nvrtc.compile_to_cubin(self.source, (expression,), self._info.arch, (*rest, *bounds), name=name)
        except CompilationError as error:
            if "overloaded function" not in error.log:
                raise self._without_entry(error) from None
            if self._given is None:
                raise CompilationError(
                    f"several functions are called {self.entry}; pass signature=, as in {SIGNATURE_EXAMPLE}\n{error.message}",
                    log=error.log,
                ) from None
            expression = f"static_cast<void (*)({self._given})>({self.entry})"
            result = nvrtc.compile_to_cubin(self.source, (expression,), self._info.arch, (*rest, *bounds), name=name)
        signature = self._read_signature(result, expression, rest, name)
        if cap is not None and (signature.max_threads is not None or signature.has_register_bound):
            raise CompilationError(
                f"option --maxrregcount={cap}: {self.entry} has bounds in its source, and NVRTC obeys those alone"
            )
        self._kernel = _compiled(self.source, expression, self._info.arch, rest, cap, result, signature)
        return self

    def _without_entry(self, error: CompilationError) -> CompilationError:
        """The error of a text that NVRTC refused, told as a wrong entry where its source has no kernel of that name."""
        name = re.sub(r"<.*", "", self.entry, flags=re.DOTALL).split("::")[-1].strip()
        kernels = kernel_names(self.source)
        if kernels and (name in kernels or _OTHER_ERROR.search(error.log) is not None):
            return error
        if not kernels:
            if "__global__" in self.source:
                return error
            has = "it has none: source is the CUDA text itself, not a path of it"
        else:
            like = difflib.get_close_matches(name, kernels, 1)
            has = f"it has {', '.join(kernels)}" + (f"; did you mean {like[0]!r}?" if like else "")
        return CompilationError(f"the source has no __global__ function {self.entry!r}, {has}", log=error.log)

    def _read_signature(
        self, result: CompileResult, expression: str, options: Sequence[str], name: str
    ) -> RawSignature:
        from fuser.runtime.kernels import nvrtc

        question = probe_expression(self.entry, self._given)
        try:
            answer = nvrtc.compile_to_ptx(
                probe_source(self.source),
                (expression, question),
                self._info.arch,
                (*options, f"-DFUSER_MAX_THREADS={PROBE_THREADS}"),
                name=name,
            )
        except CompilationError as error:
            raise CompilationError(
                f"the parameters of {self.entry} cannot be told from the source; pass signature=, as in "
                f"{SIGNATURE_EXAMPLE}\n{error.message}",
                log=error.log,
            ) from None
        return read_signature(
            self.source,
            self.entry,
            answer.lowered[question],
            result.lowered[expression],
            answer.cubin.decode("utf-8", "replace"),
            given=self._given,
        )

    def run(self, args: Sequence[object], launch_params: LaunchParams, *, stream: object = None) -> float:
        """Launch once and return the milliseconds between an event before and one after it.

        `args` are torch, CuPy or NumPy arrays for pointers (NumPy is copied in, and back where the pointer is not to
        const), numbers for scalars, bytes for structs. `stream` is a raw handle or a stream object; None is the current
        stream of torch or CuPy if their arrays are given, else the default stream.

        All arguments and sizes are checked before the device is asked for. Raises LaunchTypeError, LaunchValueError or
        LaunchError naming the parameter, NoDeviceError without a GPU.
        """
        kernel = self.kernel
        if not isinstance(launch_params, LaunchParams):
            raise LaunchTypeError(
                f"launch_params is a LaunchParams, got {type(launch_params).__name__}; as in LaunchParams(8, 1, 1, 256, 1, 1)"
            )
        if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
            raise LaunchTypeError(f"args is a list or tuple of arguments, got {type(args).__name__}")
        fixed = _fixed_index(self._asked)
        checked = check_arguments(self.entry, self.parameters, args, fixed)
        launch = launch_params.launch()
        _check_sizes(kernel, launch, self._info)
        if driver.device_count() == 0:
            raise NoDeviceError(f"running {self.entry} needs a GPU, and there is none")
        index = fixed
        for argument in checked:
            if argument.array is not None and argument.array.device is not None:
                index = argument.array.device
        device = self._asked
        if device is None or isinstance(device, (int, DeviceInfo)):
            device = _cuda(_current_index() if index is None else index)
        return _run(device, kernel, launch, checked, _pick_stream(stream, checked, device))


# --- compiling --------------------------------------------------------------------------------------------------------


def _split_options(options: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
    """(the options that are not about bounds, the register cap among them)."""
    rest: list[str] = []
    cap: int | None = None
    pending = False
    for option in options:
        name, _, value = option.partition("=")
        bare = name.lstrip("-")
        if pending:
            value, bare, pending = option, "maxrregcount", False
        if bare in ("arch", "gpu-architecture"):
            raise CompilationError(f"option {option}: the architecture is the device's; pass device= to RtcKernel")
        if bare.startswith(("DFUSER_MAX_THREADS", "DFUSER_MAX_REGISTERS")):
            raise CompilationError(f"option {option}: this macro is set by the block size of the launch")
        if bare == "maxrregcount":
            if not value:
                pending = True
            elif not value.isdecimal() or not 16 <= int(value) <= 255:
                raise CompilationError(f"maxrregcount is a number of registers from 16 to 255, got {value!r}")
            else:
                cap = int(value)
        else:
            rest.append(option)
    if pending:
        raise CompilationError("option --maxrregcount needs a number")
    return tuple(rest), cap


def _compiled(
    source: str,
    entry: str,
    arch: str,
    options: tuple[str, ...],
    cap: int | None,
    result: CompileResult,
    signature: RawSignature,
) -> CompiledKernel:
    resources = result.resources.get(entry)
    by_registers = MAX_BLOCK if resources is None else largest_block(resources.registers)
    fixed: int | None = None
    if signature.is_bounded:
        serves = RUNGS[0]
    else:
        if signature.max_threads is not None:
            fixed = signature.max_threads
        elif signature.has_register_bound:
            fixed = by_registers
        serves = by_registers if fixed is None else min(by_registers, fixed)
    return CompiledKernel(
        source=source,
        entry=result.lowered[entry],
        arch=arch,
        cubin=result.cubin,
        kernel_ir=None,
        parameters=signature.parameters,
        plan=None,
        facts=frozenset(),
        resources=resources,
        max_block_size=serves,
        register_limit=cap or rung_of(max(serves, 1))[1],
        options=options,
        nvrtc_version=result.version,
        content_hash=content_hash(source, options, arch, result.version, entry),
        register_cap=cap,
        log=result.log,
        bounded=signature.is_bounded,
        fixed_bounds=fixed,
        name_expression=entry,
    )


def _device_info(asked: int | DeviceInfo | CudaDevice | None) -> DeviceInfo:
    if isinstance(asked, DeviceInfo):
        return asked
    index = _fixed_index(asked)
    if index is None and driver.device_count() == 0:
        return H200
    return _cuda(_current_index() if index is None else index).info


def _fixed_index(asked: int | DeviceInfo | CudaDevice | None) -> int | None:
    """The CUDA index that the caller named, None if any will do."""
    if asked is None or isinstance(asked, DeviceInfo):
        return None
    if isinstance(asked, int):
        return asked
    return asked.index


def _current_index() -> int:
    from fuser.runtime.arrays.device_choice import current_cuda_device

    return current_cuda_device()


def _cuda(index: int) -> CudaDevice:
    from fuser.runtime.devices.cuda_device import CudaDevice

    device = get_device("cuda", index)
    assert isinstance(device, CudaDevice)
    return device


# --- running ----------------------------------------------------------------------------------------------------------


def _check_sizes(kernel: CompiledKernel, launch: Launch, info: DeviceInfo) -> None:
    """What can be said about the sizes without a device."""
    from fuser.runtime.devices.cuda_launches import check_launch

    check_launch(kernel.name_expression, launch, info)
    fixed = kernel.fixed_bounds
    if fixed is not None and launch.threads > fixed:
        raise LaunchError(
            f"{kernel.name_expression}: a block of {launch.threads} threads is above the launch bounds of its source, {fixed}. "
            "Use a smaller block, or __launch_bounds__(FUSER_MAX_THREADS) in the source"
        )


def _pick_stream(stream: object, checked: Sequence[CheckedArgument], device: CudaDevice) -> int:
    from fuser.runtime.devices.streams import order_after, stream_handle

    arrays = [argument.array for argument in checked if argument.array is not None]
    if stream is not None:
        handle = stream_handle(stream)
    else:
        handle = next((s for a in arrays if (s := _library_stream(a, device)) is not None), 0)
    for array in arrays:
        # 1 is another name of the default stream.
        if array.stream is not None and array.stream != handle and {array.stream, handle} != {0, 1}:
            order_after(device, handle, array.stream)
    return handle


def _library_stream(array: RawArray, device: CudaDevice) -> int | None:
    match array.library:
        case "torch":
            from fuser.runtime.arrays.torch_arrays import torch_framework

            return torch_framework(device).current_stream(device)
        case "cupy":
            from fuser.runtime.arrays.cupy_arrays import CUPY

            return CUPY.current_stream(device)
        case _:
            return None


def _run(
    device: CudaDevice, kernel: CompiledKernel, launch: Launch, checked: Sequence[CheckedArgument], stream: int
) -> float:
    if device.is_capturing(stream):
        raise LaunchError(
            f"{kernel.name_expression}: run() waits for the kernel and measures it, which a stream that is captured cannot do; "
            "a HostProgram launches a raw kernel without waiting"
        )
    copies = _HostCopies(device, stream)
    events: list[Any] = []
    try:
        values: list[PackedValue] = [
            copies.address_of(argument)
            if argument.array is not None and argument.array.device is None
            else argument.value
            for argument in checked
        ]
        # Compiling, loading and raising limits must not fall between the two events.
        device.prepare(kernel, launch, stream)
        events = [device.create_event(), device.create_event()]
        device.record_event(events[0], stream)
        device.launch_packed(kernel, launch, values, stream)
        device.record_event(events[1], stream)
        elapsed = device.elapsed_ms(*events)
        copies.bring_back()
        return elapsed
    finally:
        for event in events:
            device.destroy_event(event)
        copies.release()


class _HostCopies:
    """Host arrays of one launch on the device. The same array given twice has one copy, so that writes meet."""

    def __init__(self, device: CudaDevice, stream: int) -> None:
        self._device = device
        self._stream = stream
        # (address, bytes) of the host array -> its copy, the array, whether the kernel may write it
        self._copies: dict[tuple[int, int], tuple[Allocation, RawArray, bool]] = {}

    def address_of(self, argument: CheckedArgument) -> int:
        """Address of the copy. Raises LaunchError for an array that partly overlaps another one."""
        array = argument.array
        assert array is not None
        if array.nbytes == 0:
            return 0
        key = (array.address, array.nbytes)
        found = self._copies.get(key)
        if found is not None:
            self._copies[key] = (found[0], array if argument.is_output else found[1], found[2] or argument.is_output)
            return found[0].address
        for start, size in self._copies:
            if start < array.address + array.nbytes and array.address < start + size:
                raise LaunchError(
                    "two NumPy arguments overlap in part: the kernel would see two copies of the same bytes"
                )
        allocation = self._device.allocate(array.nbytes, self._stream)
        self._copies[key] = (allocation, array, argument.is_output)
        self._device.copy_from_host(allocation.address, array.owner, self._stream)
        return allocation.address

    def bring_back(self) -> None:
        """Copy what the kernel may have written into the caller's arrays."""
        for allocation, array, is_output in self._copies.values():
            if is_output:
                self._device.copy_to_host(array.owner, allocation.address, self._stream)

    def release(self) -> None:
        for allocation, _, _ in self._copies.values():
            self._device.release(allocation, self._stream)
        self._copies.clear()
