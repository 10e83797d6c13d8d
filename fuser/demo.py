"""`fuser demo`: three real fusions, from their definition to checked numbers.

For each: where its generated source was written, what it needs on several GPUs (compiled for them here), the result on this
machine's GPU, or on the simulator if there is none, against NumPy in float64, and on a GPU how long it took.
`--input FILE.npy` takes a 2-D array of your own.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fuser.errors import FuserError, InputValueError
from fuser.records import record

if TYPE_CHECKING:
    import numpy as np

    from fuser.frontend.definition import FusionDefinition
    from fuser.host_ir.program import HostProgram
    from fuser.runtime.arrays.device_tensor import DeviceTensor
    from fuser.runtime.devices.cuda_device import CudaDevice
    from fuser.runtime.devices.device import Device
    from fuser.runtime.kernels.compiled_kernel import CompiledKernel

    Array = np.ndarray[Any, Any]

# One of each generation with a tensor-core instruction set of its own that NVRTC 12.9 knows.
TARGETS = ("sm_80", "sm_90a", "sm_120a")

# Rows and columns where no file is given: the simulator takes a second, a GPU moves more than its L2 holds.
SIMULATED_SHAPE = (256, 512)
GPU_SHAPE = (4096, 4096)

# What the simulator runs of a larger file, in elements: about four seconds per fusion.
SIMULATED_ELEMENTS = 1 << 21

# Squares of larger values leave the range of Float, in which the sums are held.
LARGEST = 1e15

# The least normal Float and BFloat16: below it, errors are absolute.
LEAST = 2.0**-126

REPEATS = 31

EPSILON = 1e-6


@record
class Case:
    """One fusion of the demo.

    define      adds inputs, ops and outputs to an open definition
    arguments   a finite 2-D float64 array -> the inputs of the fusion, in their dtypes
    reference   these inputs -> (result in float64, largest error allowed per element)
    """

    name: str
    title: str
    define: Callable[[FusionDefinition], None]
    arguments: Callable[[Array], list[Array]]
    reference: Callable[..., tuple[Array, Array]]


# --- bias + GELU ------------------------------------------------------------------------------------------------------


def define_bias_gelu(fd: FusionDefinition) -> None:
    """gelu(x + bias): x (rows, columns) and bias (columns) in BFloat16, computed in Float, BFloat16 out."""
    from fuser.ir.ops.dtypes import DataType

    x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
    # 16-bit operands are added in Float, and nothing is rounded before the last line.
    y = x + fd.ops.broadcast(bias, [True, False])
    gelu = y * 0.5 * (1.0 + fd.ops.erf(y * math.sqrt(0.5)))
    fd.add_output(fd.ops.cast(gelu, DataType.BFloat16))


def bias_gelu_arguments(x: Array) -> list[Array]:
    """Rows as they are, and a bias drawn at random."""
    import numpy as np

    from fuser.ir.ops.dtypes import DataType

    bias = np.random.default_rng(1).standard_normal(x.shape[1])
    return [x.astype(DataType.BFloat16.numpy), bias.astype(DataType.BFloat16.numpy)]


def bias_gelu_reference(x: Array, bias: Array) -> tuple[Array, Array]:
    """math.erf in float64. Allowed: one rounding to BFloat16, and Float's error where 1 + erf cancels."""
    import numpy as np

    y = x.astype(np.float64) + bias.astype(np.float64)
    erf = np.empty_like(y)
    # Row by row, because a ufunc made of a Python function gives an array of Python objects.
    of_objects = np.frompyfunc(math.erf, 1, 1)
    for row in range(len(y)):
        erf[row] = of_objects(y[row] * math.sqrt(0.5))
    result = y * 0.5 * (1.0 + erf)
    return result, 2.0**-8 * np.abs(result) + 2.0**-20 * np.abs(y) + LEAST


# --- RMSNorm ----------------------------------------------------------------------------------------------------------


def define_rms_norm(fd: FusionDefinition) -> None:
    """x / sqrt(mean(x^2) + eps) * weight along rows: BFloat16 in and out, sums in Float."""
    from fuser.ir.ops.dtypes import DataType

    x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    weight = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
    wide = fd.ops.cast(x, DataType.Float)
    mean_square = fd.ops.sum(wide * wide, 1, keepdim=True) / x.size(1)
    scaled = wide * fd.ops.rsqrt(mean_square + EPSILON) * fd.ops.broadcast(weight, [True, False])
    fd.add_output(fd.ops.cast(scaled, DataType.BFloat16))


def rms_norm_arguments(x: Array) -> list[Array]:
    """Rows as they are, and weights around 1."""
    import numpy as np

    from fuser.ir.ops.dtypes import DataType

    weight = 1 + 0.1 * np.random.default_rng(2).standard_normal(x.shape[1])
    return [x.astype(DataType.BFloat16.numpy), weight.astype(DataType.BFloat16.numpy)]


def rms_norm_reference(x: Array, weight: Array) -> tuple[Array, Array]:
    """Allowed: one rounding to BFloat16, and a little for the sum in Float."""
    import numpy as np

    wide = x.astype(np.float64)
    result = wide / np.sqrt(np.mean(wide * wide, axis=1, keepdims=True) + EPSILON) * weight.astype(np.float64)
    return result, (2.0**-8 + 2.0**-16) * np.abs(result) + LEAST


# --- softmax cross-entropy --------------------------------------------------------------------------------------------


def define_cross_entropy(fd: FusionDefinition) -> None:
    """log(sum(exp(row))) - row[target] per row, in Float. The target is picked by comparing it with 0, 1, 2, ..."""
    from fuser.ir.ops.dtypes import DataType

    logits = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
    target = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.Int)
    largest = fd.ops.max(logits, 1, keepdim=True)
    total = fd.ops.sum(fd.ops.exp(logits - largest), 1)
    classes = fd.ops.broadcast(fd.ops.iota(logits.size(1), dtype=DataType.Int), [True, False])
    is_target = fd.ops.eq(classes, fd.ops.broadcast(target, [False, True]))
    picked = fd.ops.sum(fd.ops.where(is_target, logits, 0.0), 1)
    fd.add_output(fd.ops.log(total) + fd.ops.squeeze(largest, [1]) - picked)


def cross_entropy_arguments(x: Array) -> list[Array]:
    """Rows as logits, and a target drawn at random for each."""
    import numpy as np

    target = np.random.default_rng(3).integers(0, x.shape[1], x.shape[0])
    return [x.astype(np.float32), target]


def cross_entropy_reference(logits: Array, target: Array) -> tuple[Array, Array]:
    """Allowed: a few roundings of Float of the largest logit and of the one picked, and of the sum."""
    import numpy as np

    wide = logits.astype(np.float64)
    largest = wide.max(axis=1)
    picked = wide[np.arange(len(target)), target]
    total = np.log(np.exp(wide - largest[:, None]).sum(axis=1))
    return total + largest - picked, 2.0**-22 * (np.abs(largest) + np.abs(picked)) + 2.0**-17 * (1 + total)


CASES = (
    Case("bias_gelu", "bias + GELU, BFloat16", define_bias_gelu, bias_gelu_arguments, bias_gelu_reference),
    Case("rms_norm", "RMSNorm, BFloat16", define_rms_norm, rms_norm_arguments, rms_norm_reference),
    Case(
        "cross_entropy",
        "softmax cross-entropy, Float",
        define_cross_entropy,
        cross_entropy_arguments,
        cross_entropy_reference,
    ),
)


# --- the user's array -------------------------------------------------------------------------------------------------


def read_input(path: str) -> Array:
    """The 2-D array of a .npy file in float64.

    Raises InputValueError, saying what is wrong with the file or its array.
    """
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputValueError(f"--input {path}: there is no such file") from None
    except OSError as error:
        raise InputValueError(f"--input {path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        # What NumPy says of other files advises to unpickle them.
        reason = "it cannot be read without unpickling" if "pickle" in str(error) else str(error)
        raise InputValueError(f"--input {path}: is not a .npy file of numbers ({reason})") from None
    if not isinstance(array, np.ndarray):
        raise InputValueError(f"--input {path}: is an archive of several arrays; save one with numpy.save")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputValueError(f"--input {path}: expected float16, float32 or float64, got {array.dtype}")
    if array.ndim != 2:
        raise InputValueError(f"--input {path}: expected 2 dimensions (rows, columns), got shape {array.shape}")
    if array.size == 0:
        raise InputValueError(f"--input {path}: the array is empty, its shape is {array.shape}")
    wide = array.astype(np.float64)
    bad = np.argwhere(~(np.abs(wide) <= LARGEST))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise InputValueError(
            f"--input {path}: {len(bad)} of {array.size} values are nan, infinite or above {LARGEST:.0e} in magnitude; "
            f"the first is {wide[row, column]} at [{row}, {column}]"
        )
    return wide


# --- what is printed for one case -------------------------------------------------------------------------------------


def write_sources(case: Case, kernels: Sequence[CompiledKernel]) -> list[str]:
    """Paths of the generated CUDA texts, one per kernel. Raises InputValueError for a folder that cannot be written."""
    from fuser import options

    folder = os.path.join(str(options.DUMP_DIR.get()), "demo")
    paths: list[str] = []
    try:
        os.makedirs(folder, exist_ok=True)
        for number, kernel in enumerate(kernels):
            suffix = f".{number}" if len(kernels) > 1 else ""
            path = os.path.join(folder, f"{case.name}{suffix}.cu")
            with open(path, "w", encoding="utf-8") as file:
                file.write(kernel.source)
            paths.append(path)
    except OSError as error:
        raise InputValueError(
            f"cannot write generated sources to {folder}: {error.strerror or error}; "
            f"set {options.DUMP_DIR.env} to another folder"
        ) from None
    return paths


def describe_resources(kernel: CompiledKernel) -> str:
    """What ptxas reported, and the shared memory of a launch."""
    resources, plan = kernel.resources, kernel.plan
    if resources is None or plan is None:
        return "no resource report"
    dynamic = plan.shared_bytes
    shared = str(resources.static_shared_bytes + dynamic.value) if dynamic.is_const else str(dynamic)
    return f"{resources.registers} registers, {resources.spill_bytes} bytes spilled, {shared} bytes of shared memory"


def describe_error(result: Array, expected: Array, allowed: Array) -> tuple[bool, str]:
    """(whether every element is within what is allowed, the worst element in words)."""
    import numpy as np

    if result.shape != expected.shape:
        return False, f"the result has shape {result.shape}, expected {expected.shape}"
    error = np.abs(result.astype(np.float64) - expected)
    ratio = np.where(np.isfinite(error), error / allowed, np.inf)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    where = ", ".join(str(int(i)) for i in worst)
    text = (
        f"largest {np.max(error):.2e}; worst element [{where}]: off by {error[worst]:.2e}, allowed {allowed[worst]:.2e}"
    )
    return bool(np.all(ratio <= 1)), text


def run_case(case: Case, data: Array, device: Device) -> bool:
    """Compile, run, check and print one case. True if the result is right."""
    from fuser.compiler.kernel_compiler import KernelCompiler
    from fuser.frontend.definition import FusionDefinition
    from fuser.ir.device_info import DeviceInfo

    inputs = case.arguments(data)
    with FusionDefinition() as fd:
        case.define(fd)
    assert fd.fusion is not None
    print(f"\n{case.title}, {data.shape[0]} x {data.shape[1]}")
    program = fd.program(inputs)
    for path in write_sources(case, list(program.kernels.values())):
        print(f"  {'source':12}{path}")
    for target in TARGETS:
        kernel = KernelCompiler(DeviceInfo.preset(target)).compile(fd.fusion, inputs)
        print(f"  {target:12}{describe_resources(kernel)}")
    (result,) = fd.execute(inputs)
    expected, allowed = case.reference(*inputs)
    right, text = describe_error(result, expected, allowed)
    print(f"  {'error':12}{text}: {'ok' if right else 'WRONG'}")
    if device.kind == "cuda":
        from fuser.runtime.devices.cuda_device import CudaDevice

        assert isinstance(device, CudaDevice)
        repeated = time_on_gpu(program, inputs, device)
        right_again, text = describe_error(repeated, expected, allowed)
        if not right_again:
            print(f"  {'error':12}in the last timed run: {text}: WRONG")
        right = right and right_again
    return right


# --- time -------------------------------------------------------------------------------------------------------------


def time_on_gpu(program: HostProgram, inputs: Sequence[Array], device: CudaDevice) -> Array:
    """Print the median time of a run, and of a plain copy of as many bytes; returns the last run's result.

    Inputs are on the GPU. Before each run the L2 is filled with other data, for long enough that the launch is enqueued
    before the GPU gets to it: the time between the two events is the GPU's alone.
    """
    import numpy as np

    from fuser.runtime.arrays.device_tensor import DeviceTensor
    from fuser.runtime.devices.streams import own_stream

    # The stream on which programs run if they are given none.
    stream = own_stream(device)
    tensors = [DeviceTensor.from_numpy(x, device, stream) for x in inputs]
    results: list[DeviceTensor] = program.run(tensors)
    moved = sum(_nbytes(t) for t in (*tensors, *results))

    def run() -> None:
        results[:] = program.run(tensors)

    micros, spread = _median_micros(run, device, stream)
    print(
        f"  {'time':12}{micros:.1f} us, median of {REPEATS} with a cold L2 (quartiles {spread:.1f} apart); "
        f"{_rate(moved, micros)}"
    )
    half = np.random.default_rng(4).integers(0, 256, max(moved // 2, 1), np.uint8)
    source, target = device.allocate(half.nbytes, stream), device.allocate(half.nbytes, stream)
    device.copy_from_host(source.address, half, stream)
    copy_micros, _ = _median_micros(
        lambda: device.copy(target.address, source.address, half.nbytes, stream), device, stream
    )
    print(f"  {'plain copy':12}{copy_micros:.1f} us for as many bytes; {_rate(moved, copy_micros)}")
    device.release(source, stream)
    device.release(target, stream)
    return results[0].numpy()


def _median_micros(run: Callable[[], None], device: CudaDevice, stream: int) -> tuple[float, float]:
    """(median, difference of the quartiles) of the GPU's time, in microseconds."""
    flush = device.allocate(4 * device.info.l2_bytes, stream)
    first, second = device.create_event(), device.create_event()
    times: list[float] = []
    try:
        for _ in range(REPEATS + 3):
            for _ in range(4):
                device.fill(flush.address, b"\x00\x00\x00\x00", flush.nbytes // 4, stream)
            device.record_event(first, stream)
            run()
            device.record_event(second, stream)
            times.append(device.elapsed_ms(first, second) * 1e3)
    finally:
        device.destroy_event(first)
        device.destroy_event(second)
        device.release(flush, stream)
    quartiles = statistics.quantiles(times[3:], n=4)
    return statistics.median(times[3:]), quartiles[2] - quartiles[0]


def _nbytes(tensor: DeviceTensor) -> int:
    return math.prod(tensor.shape) * tensor.dtype.itemsize


def _rate(nbytes: int, micros: float) -> str:
    return f"{nbytes / micros / 1e3:.0f} GB/s for {nbytes / 1e6:.1f} MB read and written"


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run the demo. Returns 0 if every result is right, 1 if one is not, 2 for an input that cannot be used."""
    parser = argparse.ArgumentParser(prog="fuser demo", description="Compile, run and check three fusions.")
    parser.add_argument("--input", metavar="FILE.npy", help="a 2-D array of floats to use as the rows of all three")
    try:
        asked = parser.parse_args(arguments)
    except SystemExit as stop:  # help, or a wrong argument: argparse has said it
        return int(stop.code or 0)
    try:
        data = None if asked.input is None else read_input(asked.input)
        return _run(data)
    except FuserError as error:
        print(f"fuser demo: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputValueError) else 1


def _run(data: Array | None) -> int:
    import numpy as np

    from fuser.runtime.arrays.device_choice import resolve_device
    from fuser.runtime.kernels import nvrtc

    device = resolve_device(())
    simulated = device.kind != "cuda"
    print("runs on      " + ("the simulator (NumPy)" if simulated else f"{device.info.name}, {device.info.arch}"))
    print("compiles by  NVRTC {}.{}".format(*nvrtc.version()))
    if data is None:
        shape = SIMULATED_SHAPE if simulated else GPU_SHAPE
        data = np.random.default_rng(0).standard_normal(shape)
    elif simulated and data.size > SIMULATED_ELEMENTS:
        rows = max(1, SIMULATED_ELEMENTS // data.shape[1])
        print(f"takes        the first {rows} of {data.shape[0]} rows: the simulator is slow, a GPU takes all")
        data = data[:rows]
    right = [run_case(case, data, device) for case in CASES]
    print(f"\n{sum(right)} of {len(right)} results are right")
    return 0 if all(right) else 1
