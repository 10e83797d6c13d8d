"""Wrong arguments, each with the whole message, and checks that nothing is compiled or launched for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, ParallelType
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.errors import FuserError, InputRuntimeError
from fuser.ir.facts import Aligned
from fuser.ir.kernel.kernel import VectorMove, walk
from fuser.runtime.devices.device import Device
from tests.devices.device_layouts import place

A, R, T = AssertionError, RuntimeError, TypeError

Array = np.ndarray[Any, Any]


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


class Raising:
    """Its attributes cannot be looked at."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError("1 / 0")


def define() -> FusionDefinition:
    """x[-1, -1] + bias[-1] * scale, with a static third tensor."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        b = fd.define_tensor([-1], True, DataType.Float)
        s = fd.define_scalar(DataType.Double)
        w = fd.define_tensor([4, -1], True, DataType.Half)
        n = fd.define_scalar(DataType.Int32)
        fd.add_output(x + fd.ops.broadcast(b, [True, False]) * s)
        fd.add_output(fd.ops.cast(w, DataType.Float) * n)
    return fd


GOOD: tuple[Any, ...] = (ones(3, 8), ones(8), 2.0, ones(4, 5, dtype=np.float16), 3)

# (what, position, bad value, class, whole message without the line)
CASES: list[tuple[str, int, Any, type[Exception], str]] = [
    (
        "rank",
        0,
        ones(3),
        R,
        "Expected input 0, x, to be bound to a tensor of rank 2, but got a tensor of rank 1: pass one like [-1, -1], "
        "or define the "
        "input as [-1] for shape [3]",
    ),
    (
        "rank of a vector",
        1,
        ones(1, 8),
        R,
        "Expected input 1, b, to be bound to a tensor of rank 1, but got a tensor of rank 2: pass one like [-1], or define the "
        "input as [-1, -1] for shape [1, 8]",
    ),
    (
        "dtype",
        0,
        ones(3, 8, dtype=np.float64),
        R,
        "Expected input 0, x, to be bound to a tensor of dtype float, but got a tensor of dtype double: pass "
        ".astype(np.float32), "
        "or define the input as DataType.Double",
    ),
    (
        "half for float",
        1,
        ones(8, dtype=np.float16),
        R,
        "Expected input 1, b, to be bound to a tensor of dtype float, but got a tensor of dtype __half: pass "
        ".astype(np.float32), "
        "or define the input as DataType.Half",
    ),
    (
        "static extent",
        3,
        ones(5, 5, dtype=np.float16),
        R,
        "Expected input 3, w, to have extent 4 in dim 0, but got 5 (shape [5, 5]); a dim that is defined as -1 takes "
        "any extent",
    ),
    (
        "scalar for tensor",
        0,
        1.5,
        R,
        "Expected input 0, x, to be an at::Tensor but got scalar 1.5: pass an array of rank 2, or define it by "
        "fd.define_scalar",
    ),
    (
        "tensor for scalar",
        2,
        ones(2),
        R,
        "Expected input 2, s, to be a scalar but got float tensor of rank 1: pass a Python number, or define it by "
        "fd.define_tensor",
    ),
    (
        "narrowed scalar",
        4,
        2.5,
        R,
        "Scalar value 2.5 is not compatible with the expected data type: int. Pass int(...) for input 4, n, or define it as "
        "DataType.Double",
    ),
    (
        "complex scalar",
        2,
        1j,
        R,
        "Scalar value (0,1) is not compatible with the expected data type: double. Pass float(...) for input 2, s, or "
        "define it as "
        "DataType.ComplexDouble",
    ),
    (
        "scalar out of range",
        4,
        2**31,
        R,
        "Scalar value 2147483648 is not compatible with the expected data type: int. Pass a number from -2147483648 to "
        "2147483647 for input 4, n, or define it as DataType.Int",
    ),
    (
        "scalar beyond every float",
        2,
        10**400,
        R,
        "Scalar value of 1329 bits is not compatible with the expected data type: double. Pass a number below 2**1024 for "
        "input 2, s",
    ),
    (
        "raises when it is asked",
        0,
        Raising(),
        T,
        "expected an array or a number, got Raising: torch, CuPy, JAX and NumPy arrays and any object with "
        "__cuda_array_interface__ or __dlpack__ are accepted; asked for __cuda_array_interface__ it raised "
        "ZeroDivisionError: 1 / 0",
    ),
    (
        "no array",
        0,
        "x",
        T,
        "expected an array or a number, got str: torch, CuPy, JAX and NumPy arrays and any object with "
        "__cuda_array_interface__ or __dlpack__ are accepted (input 0, x)",
    ),
    ("None", 1, None, T, "expected an array or a number, got NoneType"),
    (
        "element type",
        0,
        ones(3, 8, dtype=np.int8),
        T,
        "tensors of dtype int8 are not supported (input 0, x): pass .astype(np.float32), as DataType.Float is what it "
        "is defined as",
    ),
    ("masked", 0, np.ma.masked_array(ones(3, 8)), T, "expected an array or a number, got MaskedArray"),
]


def refused(fd: FusionDefinition, inputs: list[Any], kind: type[Exception], text: str, **options: Any) -> FuserError:
    """The error of an execution that is refused, automatic; nothing was compiled."""
    with pytest.raises(kind) as caught:
        fd.execute(inputs, **options)
    error = caught.value
    assert isinstance(error, FuserError)
    assert text in str(error)
    assert not any(fd.fec.counters().values()), "something was compiled"
    return error


def updating() -> FusionDefinition:
    """x += y and, written over y, y * 2."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        y = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(x + y, x)
        fd.add_output(y * 2.0, y)
    return fd


def check_overlapping_read(device: Device) -> None:
    """An input that is read and overlaps one that is updated: every read comes before the write."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        y = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x * 10.0 + y, x)
        fd.add_output(y + 1.0)
    n = 4096
    values = np.arange(n + 256, dtype=np.float32)
    memory = place(device, values)
    x, y = memory.view((n,), (1,)), memory.view((n,), (1,), 256)
    (out,) = fd.execute([x, y])
    np.testing.assert_array_equal(np.asarray(out), values[256:] + 1)
    np.testing.assert_array_equal(x.numpy(), values[:n] * 10 + values[256:])


def check_overlapping_rank_zero(device: Device) -> None:
    """A rank-0 tensor that is one of the elements updated."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        fd.add_output(x * fd.define_tensor([], True, DataType.Float), x)
    values = np.arange(1, 4097, dtype=np.float32)
    memory = place(device, values)
    fd.execute([memory, memory.view((), (), 6)])
    np.testing.assert_array_equal(memory.numpy(), values * 7)


def scaled() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1], True, DataType.Float) * 2.0)
    return fd


def check_another_kernel(device: Device) -> None:
    """Pointers and strides that do not suit the first kernel's accesses get a kernel of their own, and right results."""
    fusion = scaled().fusion
    assert fusion is not None
    cache = FusionExecutorCache(fusion)
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    reads: dict[tuple[int, int], tuple[int, bool]] = {}
    for shift, padding in ((0, 0), (4, 0), (8, 0), (12, 0), (16, 0), (0, 1), (0, 2), (0, 4), (4, 4)):
        x = place(device, values, (64 + padding, 1), shift)
        (out,) = cache.execute([x])
        np.testing.assert_array_equal(np.asarray(out), values * 2)
        (kernel,) = cache.kernels([x])
        assert kernel.kernel_ir is not None
        (read,) = {
            (s.width * s.src.dtype.itemsize, s.aligned)
            for s in walk(kernel.kernel_ir.body)
            if isinstance(s, VectorMove) and s.src.name == "t0"
        }
        reads[shift, padding] = read
        # What an access of any address needs of its base is nothing.
        assert any(isinstance(f, Aligned) and f.bytes >= read[0] for f in kernel.facts) or not read[1]
    # (bytes of an access, the address is a multiple of them)
    assert reads[0, 0] == reads[16, 0] == reads[0, 4] == (16, True)
    assert reads[8, 0] == reads[0, 2] == (8, True)
    assert reads[4, 0] == reads[12, 0] == reads[0, 1] == reads[4, 4] == (16, False)


def vectorized() -> FusionDefinition:
    """`scaled` under a schedule of the user's own: 16 bytes at a time."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        y = fd.ops.mul(x, 2.0)
        fd.add_output(y)
        copy = x.cache_after()
        y.split(1, 4)
        fd.sched.transform_like(y)
        y.axis(0).parallelize(ParallelType.grid_x)
        y.axis(1).parallelize(ParallelType.block_x)
        fd.sched.parallelize_like(y)
        copy.axis(2).parallelize(ParallelType.vectorize)
        fd.sched.inline_most()
    return fd


def check_manual(device: Device) -> None:
    """A schedule that vectorizes refuses what does not suit it; nothing is launched."""
    values = np.arange(12 * 16, dtype=np.float32).reshape(12, 16)
    fd = vectorized()
    (out,) = fd.manual_execute([place(device, values)])
    np.testing.assert_array_equal(np.asarray(out), values * 2)
    (out,) = fd.manual_execute([place(device, values, (20, 1))])
    np.testing.assert_array_equal(np.asarray(out), values * 2)
    what = "input t0 is accessed 16 bytes at a time by its schedule (vectorize by 4), but "
    for shift, aligned in ((4, 4), (8, 8), (12, 4)):
        with pytest.raises(InputRuntimeError) as caught:
            fd.manual_execute([place(device, values, None, shift)])
        assert what in str(caught.value)
        assert f"is aligned to {aligned} bytes; an alignment of 16 bytes is needed" in str(caught.value)
        assert "x = fd.define_tensor([-1, -1], True, DataType.Float)" in str(caught.value)
    for padding in (1, 2, 3):
        with pytest.raises(InputRuntimeError) as caught:
            fd.manual_execute([place(device, values, (16 + padding, 1))])
        stride = 16 + padding
        assert (
            what + f"the stride of its dimension 0 is {stride} elements, {4 * stride} bytes; a multiple of 16 bytes is "
            in str(caught.value)
        )
    (out,) = fd.manual_execute([place(device, values)])
    np.testing.assert_array_equal(np.asarray(out), values * 2)
