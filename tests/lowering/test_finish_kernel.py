"""The launch plan: types of scalars, by which the host computes with them as the kernel would."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.generate import generate_cuda
from fuser.ir.kernel.kernel import DivisorParameter, Kernel


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (DataType.Float, 0.1, float(np.float32(0.1))),
        (DataType.Half, 0.1, float(np.float16(0.1))),
        (DataType.Float, 2**24 + 1, 2.0**24),
        (DataType.ComplexFloat, 0.1j, complex(np.complex64(0.1j))),
        (DataType.Double, 0.1, 0.1),
        (DataType.Int, True, 1.0),
    ],
)
def test_scalars_that_only_the_host_reads(
    dtype: DataType, given: Any, expected: complex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has the product's other operand; what the host makes of the scalar has the digits of its type."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.ComplexDouble)
        fd.add_output(fd.ops.mul(x, fd.define_scalar(dtype=dtype)))
    inputs = [np.ones(3, np.complex128), given]
    for (out,) in (fd.execute(inputs), fd.execute(inputs), fd.program(inputs).run(inputs)):
        np.testing.assert_array_equal(out, np.full(3, expected))


def test_host_arithmetic_on_numbers_of_a_smaller_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program takes 3 for a Double: it is divided as one, and True is an integer."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Double)
        a, b = fd.define_scalar(dtype=DataType.Double), fd.define_scalar(dtype=DataType.Double)
        k = fd.define_scalar(dtype=DataType.Int)
        fd.add_output(fd.ops.mul(x, fd.ops.div(a, b)))
        fd.add_output(fd.ops.mul(x, fd.ops.neg(k)))
    inputs = [np.ones(2), 3, 2, True]
    for half, negative in (fd.execute(inputs), fd.program(inputs).run(inputs)):
        np.testing.assert_array_equal(half, [1.5, 1.5])
        np.testing.assert_array_equal(negative, [-1.0, -1.0])


def kernel_of(fd: FusionDefinition, inputs: list[Any]) -> Kernel:
    (launch,) = fd.program(inputs).launches()
    kernel = launch.kernel.kernel_ir
    assert kernel is not None
    return kernel


def diagonals(fd: FusionDefinition) -> None:
    """Each element's position along both dims decides, so that threads along a merged dim divide by the extent."""
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    rows, columns = x.size(0), x.size(1)
    i = fd.ops.broadcast_in_dim(fd.ops.iota(rows, 0, 1, DataType.Int), [rows, columns], [0])
    j = fd.ops.broadcast_in_dim(fd.ops.iota(columns, 0, 1, DataType.Int), [rows, columns], [1])
    fd.add_output(fd.ops.where(fd.ops.le(j, i), x, 0.0))


def test_threads_divide_by_what_the_host_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kernel for all sizes: the text has no division by an extent, and each launch has the divisors of its sizes."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        diagonals(fd)
    kernels: set[int] = set()
    for shape in ((301, 77), (133, 205), (1, 9), (64, 1), (0, 7), (7, 0)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
        for _ in range(2):
            np.testing.assert_array_equal(fd.execute([x])[0], np.tril(x))
        if shape[0] > 1 < shape[1]:
            kernel = kernel_of(fd, [x])
            divisors = [p.divisor for p in kernel.parameters if isinstance(p, DivisorParameter)]
            assert divisors
            assert not any(d.is_const for d in divisors)
            assert not re.search(r"[/%] \(?t\d+_(size|stride)", generate_cuda(kernel).text)
            kernels.add(id(kernel))
    assert len(kernels) == 1
