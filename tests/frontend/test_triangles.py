"""Triangles of matrices against NumPy, in every dtype; where they stop being matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError


@pytest.mark.parametrize(
    "dtype",
    [
        DataType.Float,
        DataType.Double,
        DataType.Half,
        DataType.BFloat16,
        DataType.Int,
        DataType.Int32,
        DataType.Bool,
        DataType.ComplexFloat,
    ],
)
@pytest.mark.parametrize("diagonal", [0, 2, -1, 9])
def test_every_dtype_is_kept(dtype: DataType, diagonal: int) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.triu(x, diagonal))
    values = np.arange(1, 36).reshape(5, 7).astype(dtype.numpy)
    (found,) = fd.execute([values], device="simulator")
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, np.triu(values, diagonal))


@pytest.mark.parametrize("shape", [(3, 1, 4), (2, 6, 6), (2, 5, 1), (2, 0, 3), (1, 1, 1)])
def test_last_two_dims_of_several_and_a_diagonal_of_run_time(shape: tuple[int, ...]) -> None:
    """Not-a-numbers outside the triangle do not show."""
    with FusionDefinition() as fd:
        x, k = fd.define_tensor([-1, -1, -1], True), fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.sum(fd.ops.triu(x, k), [1]))
    values = np.ones(shape, np.float32)
    values[~np.triu(np.ones(shape, bool), 1)] = np.nan
    (found,) = fd.execute([values, 1], device="simulator")
    np.testing.assert_array_equal(found, np.nan_to_num(values).sum(1))


def test_it_prints_as_its_parts() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.triu(fd.define_tensor([4, 4], True)))
    assert [op in repr(fd) for op in ("fd.ops.iota", "fd.ops.ge", "fd.ops.where", "triu(")] == [True, True, True, False]


def test_refusals() -> None:
    with FusionDefinition() as fd:
        x, m = fd.define_tensor([-1], True), fd.define_tensor([-1, -1], True)
        with pytest.raises(
            DefinitionRuntimeError, match="input tensor for triu must have 2 or more dims, but got 1 dims"
        ):
            fd.ops.triu(x)
        for wrong in (1.5, True, fd.define_scalar(DataType.Double)):
            with pytest.raises(DefinitionRuntimeError, match=r"triu\(\): diagonal must be an integer"):
                fd.ops.triu(m, wrong)
        fd.add_output(x)
