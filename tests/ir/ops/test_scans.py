"""Rows of the scans: their NumPy meaning, identities and operand kinds."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.dtypes import DataType, kind_of
from fuser.ir.ops.op_table import POINTWISE, SCANS, compute_dtype, numpy_cast

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("cumsum", [1, 2, 3], [1, 3, 6]),
        ("cumprod", [2, -3, 4], [2, -6, -24]),
        ("cummax", [1, 3, 2, 5, 4], [1, 3, 3, 5, 5]),
        ("cummin", [4, 5, 2, 3, 1], [4, 4, 2, 2, 1]),
        ("cumsum", [-0.0, -0.0, 1.0], [-0.0, -0.0, 1.0]),
        ("cumsum", [1.0, INF, -INF, 2.0], [1.0, INF, NAN, NAN]),
        ("cummax", [1.0, NAN, 5.0], [1.0, NAN, NAN]),
        ("cummin", [NAN, -5.0], [NAN, NAN]),
        ("cummax", [-1.0, -0.0, 0.0, -0.0], [-1.0, -0.0, 0.0, 0.0]),
        ("cummin", [1.0, 0.0, -0.0, 0.0], [1.0, 0.0, -0.0, -0.0]),
        ("cummax", [-INF, -INF], [-INF, -INF]),
        ("cumsum", [], []),
        ("cummax", [], []),
    ],
)
def test_values(name: str, values: list[float], expected: list[float]) -> None:
    array = np.asarray(values, np.int64 if values and isinstance(values[0], int) else np.float32)
    result = SCANS[name].numpy(array, 0)
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, np.asarray(expected, array.dtype))
    known = ~np.isnan(result)
    np.testing.assert_array_equal(np.signbit(result)[known], np.signbit(np.asarray(expected, array.dtype))[known])


@pytest.mark.parametrize("name", sorted(SCANS))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_is_a_fold_of_the_pointwise_op(name: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    got = np.moveaxis(SCANS[name].numpy(x, axis), axis, 0)
    elements = np.moveaxis(x, axis, 0)
    folded = elements[0]
    for i in range(len(elements)):
        folded = folded if i == 0 else np.asarray(POINTWISE[SCANS[name].combine].numpy(folded, elements[i]))
        np.testing.assert_array_equal(got[i], folded)


@pytest.mark.parametrize("name", sorted(SCANS))
@pytest.mark.parametrize(
    "dtype",
    [DataType.Float, DataType.Double, DataType.Int, DataType.Int32, DataType.Bool, DataType.ComplexFloat],
)
def test_identity_changes_nothing(name: str, dtype: DataType) -> None:
    row = SCANS[name]
    if kind_of(dtype) not in row.kinds:
        with pytest.raises(DefinitionRuntimeError, match=rf"{name}\(\) does not support {dtype.name} operands"):
            row.check_operand(dtype)
        return
    row.check_operand(dtype)
    values = np.asarray([0, 1, 5, -3], dtype.numpy) if dtype is not DataType.Bool else np.asarray([False, True])
    if dtype.is_floating:
        values = np.asarray([-0.0, 0.0, INF, -INF, NAN, 1.5], dtype.numpy)
    identity = numpy_cast(np.full(values.shape, row.identity(dtype)), compute_dtype(dtype))
    result = np.asarray(POINTWISE[row.combine].numpy(identity, values))
    np.testing.assert_array_equal(result, values)
    if dtype.is_floating:
        known = ~np.isnan(values)
        np.testing.assert_array_equal(np.signbit(result[known]), np.signbit(values[known]))
