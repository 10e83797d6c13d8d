"""Host programs on the simulated device, with kernels in hand-written IR."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.errors import InputRuntimeError, NoDeviceError
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Alias, Allocate, Copy, Deallocate, Fill, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.strided_copy import strided_copy_kernel
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)


@pytest.fixture
def simulator() -> SimulatorDevice:
    return SimulatorDevice()


def scale_twice(dtype: DataType = DataType.Float) -> HostProgram:
    kernel = scale_kernel(dtype)
    return HostProgram(
        ("x", "alpha"),
        ("z",),
        (
            Allocate("y", (N,), dtype),
            LaunchKernel(kernel, ("x", "y", "alpha")),
            Allocate("z", (N,), dtype),
            LaunchKernel(kernel, ("y", "z", 2.0)),
            Deallocate("y"),
        ),
    )


@pytest.mark.parametrize("step", [1, 3, -1])
def test_two_kernels_on_numpy_arrays(simulator, step) -> None:
    x = np.arange(1000, dtype=np.float32)[::step]
    (z,) = scale_twice().run([x, 3], device=simulator)
    np.testing.assert_array_equal(z, x * 6)


def test_bfloat16(simulator) -> None:
    x = np.arange(200).astype(ml_dtypes.bfloat16)
    (z,) = scale_twice(DataType.BFloat16).run([x, 0.5], device=simulator)
    assert z.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(z, x)


def test_device_name_and_default_device(monkeypatch) -> None:
    x = np.arange(4, dtype=np.float32)
    (z,) = scale_twice().run([x, 1.0], device="simulator")
    np.testing.assert_array_equal(z, x * 2)
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    (z,) = scale_twice().run([x, 1.0])
    np.testing.assert_array_equal(z, x * 2)


def test_device_tensors_stay_on_the_device(simulator) -> None:
    x = DeviceTensor.from_numpy(np.arange(64, dtype=np.float32), simulator)
    program = scale_twice()
    (z,) = program.run([x, 2.0], device=simulator)
    assert isinstance(z, DeviceTensor)
    (w,) = program.run([z, 2.0], device=simulator)
    np.testing.assert_array_equal(w.numpy(), np.arange(64, dtype=np.float32) * 16)
    assert program.counters()["host_to_device"] == 0


def test_update_of_a_device_tensor(simulator) -> None:
    program = HostProgram(("x",), ("x",), (LaunchKernel(scale_kernel(), ("x", "x", 2.0)),))
    x = DeviceTensor.from_numpy(np.arange(4, dtype=np.float32), simulator)
    (same,) = program.run([x], device=simulator)
    assert same is x
    np.testing.assert_array_equal(x.numpy(), [0, 2, 4, 6])


def test_views_of_device_tensors_keep_the_memory(simulator) -> None:
    program = HostProgram(("x",), ("tail",), (Alias("tail", "x", (2,), offset=2),))
    x = DeviceTensor.from_numpy(np.arange(4, dtype=np.float32), simulator)
    (tail,) = program.run([x], device=simulator)
    del x
    np.testing.assert_array_equal(tail.numpy(), [2, 3])


def test_padded_results_come_out_though_their_gaps_were_never_written(simulator) -> None:
    program = HostProgram(
        ("x",),
        ("y", "t"),
        (
            Allocate("y", (extent("x", 0), extent("x", 1)), DataType.Float, (8, 1)),
            Copy("y", "x"),
            Allocate("t", (extent("x", 0), extent("x", 1)), DataType.Float, (1, 5)),
            Copy("t", "y"),
        ),
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y, t = program.run([x], device=simulator)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(t, x)
    assert (y.strides, t.strides) == ((32, 4), (4, 20))
    device_x = DeviceTensor.from_numpy(x, simulator)
    y, t = program.run([device_x], device=simulator)
    np.testing.assert_array_equal(t.numpy(), x)


def test_tensors_of_another_simulator_are_refused(simulator) -> None:
    x = DeviceTensor.from_numpy(np.zeros(4, np.float32), SimulatorDevice())
    with pytest.raises(
        InputRuntimeError, match="Expected inputs on device simulator:0, got one on simulator:0 of another"
    ):
        scale_twice().run([x, 1.0], device=simulator)
    with pytest.raises(InputRuntimeError, match="Expected inputs on device simulator:1, got one on simulator:0"):
        scale_twice().run([x, 1.0], device=SimulatorDevice(1))


def test_fill(simulator) -> None:
    program = HostProgram(("x",), ("y",), (Allocate("y", (N, 3), DataType.ComplexDouble), Fill("y", 1 + 2j)))
    (y,) = program.run([np.zeros(2)], device=simulator)
    np.testing.assert_array_equal(y, np.full((2, 3), 1 + 2j))


def test_raw_kernels_are_refused(simulator) -> None:
    kernel = strided_copy_kernel(4, 0, "sm_90a")
    program = HostProgram(("x", "y"), ("y",), (LaunchKernel(kernel, ("y", "x", 1), LaunchParams(1, 1, 1, 32, 1, 1)),))
    with pytest.raises(NoDeviceError, match="raw CUDA source"):
        program.run([np.zeros(1, np.float32), np.zeros(1, np.float32)], device=simulator)


def test_nothing_is_left_on_the_device(simulator) -> None:
    released: list[int] = []
    allocated: list[int] = []
    allocate, release = simulator.allocate, simulator.release

    def counting_allocate(nbytes: int, stream: int) -> Any:
        allocation = allocate(nbytes, stream)
        allocated.append(allocation.address)
        return allocation

    def counting_release(allocation: Any, stream: int) -> None:
        released.append(allocation.address)
        release(allocation, stream)

    simulator.allocate = counting_allocate
    simulator.release = counting_release
    x = DeviceTensor.from_numpy(np.arange(4, dtype=np.float32), simulator)
    (z,) = scale_twice().run([x, 1.0], device=simulator)
    del x, z
    assert sorted(allocated) == sorted(released)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_arrays_on_the_host(simulator) -> None:
    import jax

    x = jax.numpy.arange(10, dtype=jax.numpy.float32)
    (z,) = scale_twice().run([x, 2.0], device=simulator)
    assert isinstance(z, jax.Array)
    np.testing.assert_array_equal(np.asarray(z), np.arange(10) * 4)
    program = HostProgram(("x",), (), (LaunchKernel(scale_kernel(), ("x", "x", 2.0)),))
    with pytest.raises(RuntimeError, match="JAX arrays are immutable: return the new value as an output"):
        program.run([x], device=simulator)


@pytest.mark.torch
def test_torch_tensors_on_the_host(simulator) -> None:
    import torch

    x = torch.arange(10, dtype=torch.float32)
    (z,) = scale_twice().run([x, 2.0], device=simulator)
    assert z.equal(x * 4)
    program = HostProgram(("x",), (), (LaunchKernel(scale_kernel(), ("x", "x", 2.0)),))
    program.run([x], device=simulator)
    assert x.equal(torch.arange(10, dtype=torch.float32) * 2)


def test_running_a_program_imports_no_compiler() -> None:
    """Executing needs the driver or the simulator only: no stage of the compiler, no NVRTC, no heavy package."""
    import subprocess
    import sys

    script = """
import sys
import numpy as np
from fuser.host_ir.program import HostProgram
from fuser.host_ir.instructions.instructions import Allocate, Copy, Fill, LaunchKernel
from fuser.host_ir.instructions.expressions import extent
from fuser.ir.ops.dtypes import DataType

program = HostProgram(("x",), ("y",), (Allocate("y", (extent("x", 0),), DataType.Float), Copy("y", "x")))
(y,) = program.run([np.ones(3, np.float32)], device="simulator")
assert (y == 1).all()
forbidden = ["frontend", "compiler", "optimize", "schedule", "lowering", "codegen", "runtime.nvrtc"]
loaded = [m for m in sys.modules if any(m == f"fuser.{f}" or m.startswith(f"fuser.{f}.") for f in forbidden)]
loaded += [m for m in ("sympy", "torch", "jax", "cupy", "cuda") if m in sys.modules]
print(",".join(loaded))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
