"""Host programs on a GPU: the same programs as on the simulator, raw kernels, block growth, strided copies, streams."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from fuser.errors import InputRuntimeError, LaunchError
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Alias, Allocate, Copy, Deallocate, Fill, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.rtc_kernel import RtcKernel
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)


@pytest.fixture
def device() -> Any:
    return get_device("cuda", 0)


def scale_twice(device: Any) -> HostProgram:
    kernel = scale_kernel(arch=device.info.arch)
    return HostProgram(
        ("x", "alpha"),
        ("z",),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y", "alpha")),
            Allocate("z", (N,), DataType.Float),
            LaunchKernel(kernel, ("y", "z", 2.0)),
            Deallocate("y"),
        ),
    )


@pytest.mark.parametrize("size", [0, 1, 127, 100_003])
@pytest.mark.parametrize("step", [1, 2, -1])
def test_numpy_arrays_go_to_the_gpu_and_back(device, size: int, step: int) -> None:
    x = np.arange(size, dtype=np.float32)[::step]
    (z,) = scale_twice(device).run([x, 3], device=device)
    assert type(z) is np.ndarray
    np.testing.assert_array_equal(z, x * 6)


def test_numpy_runs_on_the_gpu_by_default(device) -> None:
    program = scale_twice(device)
    x = np.arange(10, dtype=np.float32)
    (z,) = program.run([x, 1.0])
    np.testing.assert_array_equal(z, x * 2)


def test_equal_to_the_simulator(device) -> None:
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    program = scale_twice(device)
    (on_gpu,) = program.run([x, 1.7], device=device)
    (simulated,) = program.run([x, 1.7], device="simulator")
    np.testing.assert_array_equal(on_gpu, simulated)


def test_device_tensors(device) -> None:
    x = DeviceTensor.from_numpy(np.arange(64, dtype=np.float32), device)
    (z,) = scale_twice(device).run([x, 2.0])
    assert isinstance(z, DeviceTensor)
    np.testing.assert_array_equal(z.numpy(), np.arange(64, dtype=np.float32) * 4)
    assert z.__dlpack_device__() == (2, 0)
    assert z.__cuda_array_interface__["data"] == (z.address, False)


@pytest.mark.parametrize(
    ("x", "strides"),
    [
        (np.arange(12, dtype=np.float32).reshape(3, 4), (4, 1)),
        (np.arange(12, dtype=np.float32).reshape(3, 4), (1, 3)),
        (np.arange(24, dtype=np.float64).reshape(3, 8)[:, ::2], (5, 1)),
        (np.broadcast_to(np.arange(4, dtype=np.float16), (3, 4)), (1, 4)),
        (np.arange(12).astype(np.complex128).reshape(4, 3).T, (1, 3)),
        (np.arange(12).reshape(4, 3).T % 2 == 0, (7, 1)),
        (np.arange(1, dtype=np.float32).reshape(1, 1), (7, 9)),
    ],
    ids=["same", "transposed", "padded", "expanded", "complex", "bool", "one element"],
)
def test_copy_between_any_layouts(device, x: np.ndarray[Any, Any], strides: tuple[int, int]) -> None:
    from fuser.runtime.arrays.arrays import describe_array

    program = HostProgram(
        ("x",),
        ("y",),
        (Allocate("y", (extent("x", 0), extent("x", 1)), describe_array(x).dtype, strides), Copy("y", "x")),
    )
    (y,) = program.run([x], device=device)
    np.testing.assert_array_equal(y, x)


def test_copy_of_many_dimensions(device) -> None:
    x = np.arange(2 * 3 * 4 * 5 * 6, dtype=np.int32).reshape(2, 3, 4, 5, 6)
    order = (3, 0, 4, 2, 1)
    shape = tuple(x.shape[d] for d in order)
    y = np.empty(shape, np.int32)
    HostProgram(("x", "y"), (), (Copy("y", "x"),)).run([x.transpose(order), y], device=device)
    np.testing.assert_array_equal(y, x.transpose(order))


@pytest.mark.parametrize("dtype", [DataType.Bool, DataType.Half, DataType.Int32, DataType.Int, DataType.ComplexDouble])
def test_fill(device, dtype: DataType) -> None:
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (N, 5), dtype), Fill("y", 0), Alias("c", "y", (N,), (5,), 2), Fill("c", 1))
    )
    (y,) = program.run([np.zeros(1000)], device=device)
    expected = np.zeros((1000, 5), dtype.numpy)
    expected[:, 2] = 1
    np.testing.assert_array_equal(y, expected)


def saxpy(bounds: str = "") -> str:
    return (
        f'extern "C" __global__ void {bounds} saxpy(float a, const float* x, float* y, int n) {{\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] += a * x[i];\n"
        "}\n"
    )


def test_raw_kernel_in_a_program(device) -> None:
    kernel = RtcKernel(saxpy(), "saxpy", device=0).compile()
    program = HostProgram(
        ("a", "x", "y", "n"),
        ("y",),
        (LaunchKernel(kernel, ("a", "x", "y", "n"), LaunchParams(8, 1, 1, 128, 1, 1)),),  # type: ignore[arg-type]
    )
    assert program.updates == ("y",)
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    (out,) = program.run([2.0, x, y, 1000], device=device)
    assert out is y
    np.testing.assert_array_equal(y, 1 + 2 * np.arange(1000, dtype=np.float32))


def test_block_growth_compiles_once_per_rung(device) -> None:
    compiled = RtcKernel(saxpy("__launch_bounds__(FUSER_MAX_THREADS)"), "saxpy", device=0).compile()

    def program(threads: int) -> HostProgram:
        launch = LaunchParams(1, 1, 1, threads, 1, 1)
        return HostProgram(("x", "y"), (), (LaunchKernel(compiled, (1.0, "x", "y", 4), launch),))  # type: ignore[arg-type]

    small, same_rung, large = program(128), program(256), program(1024)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    for _ in range(3):
        for p in (small, same_rung, large):
            p.run([x, y], device=device)
    np.testing.assert_array_equal(y, np.full(4, 9, np.float32))
    assert small.counters()["recompiles"] == 0
    assert same_rung.counters()["recompiles"] == 0
    assert large.counters()["recompiles"] == 1


def test_launch_beyond_the_device_is_refused(device) -> None:
    kernel = scale_kernel(arch=device.info.arch, block=2048)
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y", 1.0))))
    with pytest.raises(LaunchError, match="2048 threads"):
        program.run([np.zeros(4, np.float32)], device=device)


def test_two_threads_on_two_streams(device) -> None:
    program = scale_twice(device)
    streams = [device.create_stream() for _ in range(2)]
    failures: list[Any] = []

    def work(stream: int, seed: float) -> None:
        x = DeviceTensor.from_numpy(np.full(10_000, seed, np.float32), device, stream)
        for _ in range(50):
            (z,) = program.run([x, 1.0], stream)
            if not (z.numpy() == 2 * seed).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(s, i + 1.0)) for i, s in enumerate(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_update_of_overlapping_memory_is_refused(device) -> None:
    base = DeviceTensor.from_numpy(np.zeros(4, np.float32), device)
    program = HostProgram(("x",), (), (Fill("x", 1.0),))
    with pytest.raises(InputRuntimeError, match="its elements overlap in memory"):
        program.run([base.view((4, 4), (0, 1))])
