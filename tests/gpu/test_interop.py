"""Arrays of other libraries on a GPU: no copies, the caller's stream, results of the caller's kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fuser.errors import InputRuntimeError
from fuser.host_ir.instructions.expressions import extent, stride
from fuser.host_ir.instructions.instructions import Alias, Allocate, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)


@pytest.fixture(scope="module")
def device() -> Any:
    return get_device("cuda", 0)


@pytest.fixture(scope="module")
def double(device) -> HostProgram:
    kernel = scale_kernel(arch=device.info.arch)
    return HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y", 2.0))))


@pytest.fixture(scope="module")
def double_in_place(device) -> HostProgram:
    return HostProgram(("x",), ("x",), (LaunchKernel(scale_kernel(arch=device.info.arch), ("x", "x", 2.0)),))


TRANSPOSE = HostProgram(
    ("x",),
    ("t",),
    (Alias("t", "x", (extent("x", 1), extent("x", 0)), (stride("x", 1), stride("x", 0))),),
)


# ---------------------------------------------------------------- torch


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


def test_torch_views(torch) -> None:
    x = torch.arange(24, device="cuda", dtype=torch.bfloat16).reshape(4, 6)[:, 1:]
    assert describe_array(x)[:6] == ("torch", DataType.BFloat16, (4, 5), (6, 1), x.data_ptr(), ("cuda", 0))
    x = torch.ones(3, dtype=torch.complex64, device="cuda").conj()
    view = describe_array(x)
    assert view.array is x
    assert view.owner is not x


def test_torch_in_torch_out(torch, double) -> None:
    x = torch.arange(1000, device="cuda", dtype=torch.float32)[::3]
    (y,) = double.run([x])
    assert isinstance(y, torch.Tensor)
    assert y.equal(x * 2)
    assert y.is_contiguous()


def test_torch_side_stream(torch, double) -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 24, device="cuda")
    for value in range(20):
        with torch.cuda.stream(stream):
            x.fill_(value)
            (y,) = double.run([x])
            assert bool((y == 2 * value).all())
    (y,) = double.run([x], stream)
    stream.synchronize()
    assert bool((y == 38).all())


def test_torch_update_and_view(torch, double_in_place) -> None:
    x = torch.arange(8, device="cuda", dtype=torch.float32)
    (same,) = double_in_place.run([x])
    assert same is x
    assert x.tolist() == [2.0 * i for i in range(8)]
    m = torch.zeros(3, 4, device="cuda")[:, 1:]
    (t,) = TRANSPOSE.run([m])
    assert t.data_ptr() == m.data_ptr()
    assert t.stride() == (1, 4)
    t[0, 0] = 5
    assert m[0, 0] == 5
    expanded = torch.zeros(1, device="cuda").expand(4)
    with pytest.raises(InputRuntimeError, match="its elements overlap in memory"):
        double_in_place.run([expanded])


def test_torch_cpu_tensors_are_refused_on_a_gpu(torch, double) -> None:
    with pytest.raises(
        InputRuntimeError, match="Found unsupported device cpu, only scalar CPU or CUDA tensors are supported"
    ):
        double.run([torch.zeros(4)])


def test_torch_memory_is_torchs(torch, double) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    (y,) = double.run([x])
    assert torch.cuda.memory_allocated() == before + (1 << 22)
    del y
    assert torch.cuda.memory_allocated() == before


def test_torch_takes_our_tensors(torch, device) -> None:
    ours = DeviceTensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    theirs = torch.from_dlpack(ours)
    assert theirs.data_ptr() == ours.address
    del ours
    assert theirs.tolist() == [[0, 1, 2], [3, 4, 5]]


# ---------------------------------------------------------------- CuPy


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def test_cupy_in_cupy_out(cupy, double, double_in_place) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.arange(1000, dtype=cupy.float32)[::2]
        (y,) = double.run([x])
        assert isinstance(y, cupy.ndarray)
        np.testing.assert_array_equal(y.get(), x.get() * 2)
        # The kernel writes densely, so only a dense array can be updated by it.
        dense = cupy.arange(500, dtype=cupy.float32)
        (same,) = double_in_place.run([dense])
        assert same is dense
        np.testing.assert_array_equal(dense.get(), np.arange(500, dtype=np.float32) * 2)
        m = cupy.zeros((3, 4), cupy.float32)
        (t,) = TRANSPOSE.run([m])
        assert (t.data.ptr, t.shape, t.strides) == (m.data.ptr, (4, 3), (4, 16))


# ---------------------------------------------------------------- JAX


@pytest.fixture
def jax() -> Iterator[Any]:
    """JAX, whose first use sets variables of the environment for its own libraries."""
    with mock.patch.dict(os.environ):
        module = pytest.importorskip("jax")
        if module.default_backend() != "gpu":
            pytest.skip("this JAX has no CUDA")
        yield module


def test_jax_in_jax_out(jax, double, double_in_place) -> None:
    for size in (10, 1 << 22):
        for _ in range(20):
            x = jax.numpy.arange(size, dtype=jax.numpy.float32) + 1
            (y,) = double.run([x])
            del x
            z = y + 1
            assert isinstance(y, jax.Array)
            assert float(z[-1]) == 2 * size + 1
    with pytest.raises(InputRuntimeError, match="JAX arrays are immutable"):
        double_in_place.run([jax.numpy.zeros(4)])


# ---------------------------------------------------------------- anything with an interface


class _Interface:
    def __init__(self, tensor: DeviceTensor) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class _Capsule:
    def __init__(self, tensor: DeviceTensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, stream: int | None = None) -> object:
        return self._tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()


@pytest.mark.parametrize("wrap", [_Interface, _Capsule])
def test_foreign_arrays(device, double, wrap: Any) -> None:
    x = wrap(DeviceTensor.from_numpy(np.arange(100, dtype=np.float32), device))
    (y,) = double.run([x])
    assert isinstance(y, DeviceTensor)
    np.testing.assert_array_equal(y.numpy(), np.arange(100, dtype=np.float32) * 2)


def test_our_interface_is_read_by_others(device) -> None:
    ours = DeviceTensor.from_numpy(np.arange(6, dtype=np.float32), device)
    assert describe_array(_Interface(ours))[:6] == ("interface", DataType.Float, (6,), (1,), ours.address, ("cuda", 0))
