"""The launch plan: types of scalars, by which the host computes with them as the kernel would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition


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
