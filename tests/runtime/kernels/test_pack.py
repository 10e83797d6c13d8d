"""Cells of kernel parameters: types, alignment, ranges, messages."""

import struct

import numpy as np
import pytest

from fuser.errors import LaunchTypeError, LaunchValueError
from fuser.ir.integers.integers import symbol
from fuser.ir.kernel.kernel import (
    Buffer,
    DivisorParameter,
    ExtentParameter,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY
from fuser.runtime.kernels.pack import ArgumentLayout
from fuser.runtime.kernels.plan_evaluation import scalar_as
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from tests.judging.single_rounding import NARROW, around_ties


def buffer(name: str) -> Buffer:
    return Buffer(name, DataType.Float, GLOBAL_MEMORY, symbol("size", 0, 8))


def packed(parameters: list[Parameter] | list[RawParameter], values: list[object], index_bits: int = 32) -> bytes:
    cells = ArgumentLayout(parameters, index_bits, "k").make_cells()
    cells.write(values)  # type: ignore[arg-type]
    return cells.contents()


def test_pointers_and_extents() -> None:
    parameters: list[Parameter] = [
        TensorParameter(buffer("T0"), "t0", 0, False),
        ExtentParameter(symbol("n", 0, 100)),
        WorkspaceParameter(buffer("work")),
        SemaphoreParameter(buffer("semaphores")),
    ]
    assert packed(parameters, [2**63 + 1, -5, 16, 32]) == struct.pack("<Qi4xQQ", 2**63 + 1, -5, 16, 32)
    assert packed(parameters, [1, 2**40, 16, 32], index_bits=64) == struct.pack("<QqQQ", 1, 2**40, 16, 32)


def test_a_divisor_is_packed_with_what_to_multiply_by() -> None:
    parameters: list[Parameter] = [ExtentParameter(symbol("n", 0)), DivisorParameter(symbol("d", 0))]
    assert packed(parameters, [9, 1]) == struct.pack("<iiIi", 9, 1, 2**31, 0)
    assert packed(parameters, [9, 7]) == struct.pack("<iiIi", 9, 7, -(-(2**34) // 7), 3)
    # An extent of an empty tensor, with which nothing runs.
    assert packed(parameters, [0, 0]) == struct.pack("<iiIi", 0, 0, 0, 0)
    with pytest.raises(
        LaunchValueError, match=r"argument 1 \(d\) of kernel k: 2147483648 is out of the range of divisor"
    ):
        packed(parameters, [9, 2**31])


SCALARS = [
    (DataType.Double, 0.1, struct.pack("<d", 0.1)),
    (DataType.Float, 0.1, struct.pack("<f", 0.1)),
    (DataType.Float, float("inf"), struct.pack("<f", float("inf"))),
    (DataType.Half, 0.1, np.float16(0.1).tobytes()),
    (DataType.BFloat16, 1.0, b"\x80\x3f"),
    (DataType.BFloat16, float("inf"), b"\x80\x7f"),
    (DataType.Int, -(2**63), struct.pack("<q", -(2**63))),
    (DataType.Index, 2**63 - 1, struct.pack("<q", 2**63 - 1)),
    (DataType.Int32, -1, b"\xff\xff\xff\xff"),
    (DataType.UInt64, 2**64 - 1, b"\xff" * 8),
    (DataType.Bool, True, b"\x01"),
    (DataType.ComplexFloat, 1 - 2j, struct.pack("<ff", 1, -2)),
    (DataType.ComplexDouble, 1, struct.pack("<dd", 1, 0)),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), SCALARS)
def test_scalars(dtype: DataType, value: complex, expected: bytes) -> None:
    assert packed([ScalarParameter("s", dtype)], [value]) == expected


def test_bfloat16_rounds_like_ml_dtypes() -> None:
    import ml_dtypes

    values = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    values = np.concatenate([values, np.float32([1.00390625, 1.01171875, -1.00390625, 0.0, -0.0, 3.38e38, 1e-40])])
    expected = values.astype(ml_dtypes.bfloat16).tobytes()
    layout = [ScalarParameter("s", DataType.BFloat16)]
    assert b"".join(packed(layout, [float(v)]) for v in values) == expected
    assert packed(layout, [float("nan")]) == b"\xc0\x7f"


def test_every_cell_is_aligned() -> None:
    parameters: list[Parameter] = [
        ScalarParameter("b", DataType.Bool),
        ScalarParameter("z", DataType.ComplexDouble),
        ScalarParameter("h", DataType.Half),
        ScalarParameter("d", DataType.Double),
    ]
    layout = ArgumentLayout(parameters, 32, "k")
    assert [cell.offset for cell in layout.cells] == [0, 16, 32, 40]
    cells = layout.make_cells()
    cells.write([True, 1j, 2.0, 3.0])
    assert cells.contents() == struct.pack("<?15xdde6xd", True, 0, 1, 2.0, 3.0)


def test_cells_point_at_themselves() -> None:
    import ctypes

    cells = ArgumentLayout(
        [ScalarParameter("a", DataType.Int32), ScalarParameter("b", DataType.Int)], 32, "k"
    ).make_cells()
    cells.write([7, 8])
    first, second = (ctypes.c_uint64 * 2).from_address(cells.address)
    assert ctypes.c_int32.from_address(first).value == 7
    assert ctypes.c_int64.from_address(second).value == 8
    cells.write([9, 10])
    assert ctypes.c_int64.from_address(second).value == 10


def test_no_parameters() -> None:
    assert packed([], []) == b""


def test_structs() -> None:
    parameters = [
        RawParameter("n", "int", RawKind.scalar, "int32", 4, 4),
        RawParameter("p", "struct of 16 bytes", RawKind.struct, "", 16, 8),
        RawParameter("c", "char", RawKind.scalar, "int8", 1, 1),
    ]
    assert packed(parameters, [1, b"0123456789abcdef", -1]) == struct.pack("<i4x16sb", 1, b"0123456789abcdef", -1)
    with pytest.raises(LaunchTypeError, match=r"argument 1 \(p\) of kernel k: expected 16 bytes"):
        packed(parameters, [1, 2.0, -1])
    with pytest.raises(
        LaunchValueError, match=r"argument 1 \(p\) of kernel k: b'short' is out of the range of 16 bytes"
    ):
        packed(parameters, [1, b"short", -1])


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_of_the_host_are_rounded_once(dtype: DataType) -> None:
    """As casts of Doubles are; beyond the largest finite number a compiled kernel is given infinity."""
    values, bits = around_ties(DataType.Double, dtype)
    cells = ArgumentLayout([ScalarParameter("alpha", dtype)], 64, "k").make_cells()
    for value, expected in zip(values[::5].tolist(), bits[::5].tolist(), strict=True):
        cells.write([scalar_as(value, dtype, "alpha")])
        assert int.from_bytes(cells.contents(), "little") == expected, value.hex()


@pytest.mark.parametrize("value", [3.4028235677973366e38, -1e300, 1e308, float("inf"), 3.4028235677973362e38, -3.4e38])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.ComplexFloat])
def test_numbers_beyond_floats_are_infinite(dtype: DataType, value: float) -> None:
    with np.errstate(over="ignore"):
        expected = dtype.numpy.type(value).tobytes()
    assert packed([ScalarParameter("alpha", dtype)], [scalar_as(value, dtype, "alpha")]) == expected


WRONG = [
    (DataType.Int32, 2**31, LaunchValueError, "2147483648 is out of the range of int32"),
    (DataType.Int32, -(2**31) - 1, LaunchValueError, "out of the range of int32"),
    (DataType.UInt64, -1, LaunchValueError, "-1 is out of the range of uint64"),
    (DataType.Int, 2**63, LaunchValueError, "out of the range of int64"),
    (DataType.Half, 1e6, LaunchValueError, "1000000.0 is out of the range of float16"),
    (DataType.Float, 1e39, LaunchValueError, "1e+39 is out of the range of float32"),
    (DataType.BFloat16, 3.4e38, LaunchValueError, "out of the range of bfloat16"),
    (DataType.BFloat16, 1e39, LaunchValueError, "out of the range of bfloat16"),
    (DataType.ComplexFloat, 1e39j, LaunchValueError, "out of the range of complex64"),
    (DataType.Int32, 1.5, LaunchTypeError, "expected int32, got float 1.5"),
    (DataType.Float, "x", LaunchTypeError, "expected float32, got str 'x'"),
    (DataType.Float, 1j, LaunchTypeError, "expected float32, got complex 1j"),
    (DataType.BFloat16, 1j, LaunchTypeError, "expected bfloat16, got complex 1j"),
    (DataType.ComplexFloat, b"", LaunchTypeError, "expected complex64, got bytes b''"),
]


@pytest.mark.parametrize(("dtype", "value", "error", "text"), WRONG)
def test_values_that_do_not_fit(dtype: DataType, value: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        packed([ScalarParameter("before", DataType.Int32), ScalarParameter("alpha", dtype)], [0, value])
    assert str(caught.value).startswith("argument 1 (alpha) of kernel k: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("values", [[], [1], [1, 2, 3]])
def test_wrong_count(values: list[object]) -> None:
    for dtype in (DataType.Int32, DataType.BFloat16):
        with pytest.raises(LaunchTypeError, match=f"kernel k takes 2 arguments, got {len(values)}"):
            packed([ScalarParameter("a", dtype), ScalarParameter("b", dtype)], values)
