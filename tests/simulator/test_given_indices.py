"""Indices that the user's data hold: one outside of its dim is told with the line of the op, the index and the range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.simulator.errors import Kind, SimulatorError

TAIL = ". On a GPU nothing checks indices: what such a one reads is unspecified"


@pytest.fixture(autouse=True)
def _simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


def gathered(
    op: str, shape: list[int], index: Any, dim: int, dtype: DataType = DataType.Int, scale: float = 2.0
) -> Any:
    """`op` of a 3 x 4 table, in a kernel of its own."""
    held = np.asarray(index, np.int32 if dtype is DataType.Int32 else np.int64)
    with FusionDefinition() as fd:
        table = fd.define_tensor(shape, True)
        indices = fd.define_tensor([-1] * held.ndim, True, dtype)
        fd.add_output(getattr(fd.ops, op)(table, indices, dim) * scale)
    (result,) = fd.execute([np.arange(12, dtype=np.float32).reshape(3, 4), held])
    return result


def refused(*arguments: Any, **named: Any) -> SimulatorError:
    with pytest.raises(SimulatorError) as caught:
        gathered(*arguments, **named)
    error = caught.value
    assert error.kind is Kind.index_range
    assert "fd.add_output(getattr(fd.ops, op)(table, indices, dim) * scale)" in str(error)
    return error


@pytest.mark.parametrize("dtype", [DataType.Int, DataType.Int32])
@pytest.mark.parametrize("bad", [4, 7, -1, -5])
@pytest.mark.parametrize("op", ["gather", "take_along_axis"])
def test_one_index_per_element(op: str, bad: int, dtype: DataType) -> None:
    index = np.tile(np.arange(4), (3, 1))
    np.testing.assert_array_equal(gathered(op, [3, 4], index, 1, dtype), np.arange(12).reshape(3, 4) * 2)
    index[1, 2] = bad
    error = refused(op, [3, 4], index, 1, dtype)
    assert error.message == (
        f"index out of range: the index {bad} is outside of dim 1, which has extent 4: it must be in [0, 4){TAIL}"
    )


@pytest.mark.parametrize("shape", [[3, 4], [-1, -1]])
@pytest.mark.parametrize("bad", [3, -1])
def test_rows(shape: list[int], bad: int) -> None:
    error = refused("index_select", shape, [0, bad, 2], 0)
    # Where the kernel is not told how many rows there are, the elements of the table tell.
    assert error.message == (
        f"index out of range: the index {bad} is outside of dim 0, which has extent 3: it must be in [0, 3){TAIL}"
    )


@pytest.mark.parametrize("dims", [[slice(None), slice(None, None, 2)], [slice(None), slice(1, 4)], [slice(1, 3)]])
def test_rows_with_gaps(dims: list[slice]) -> None:
    table = np.zeros((4, 6), np.float32)[tuple(dims)]
    with FusionDefinition() as fd:
        rows = fd.define_tensor([-1, -1])
        fd.add_output(fd.ops.index_select(rows, fd.define_tensor([-1], dtype=DataType.Int), 0))
    n = len(table)
    assert fd.execute([table, np.array([0, n - 1])])[0].shape == (2, table.shape[1])
    with pytest.raises(SimulatorError, match=rf"the index {n} is outside of dim 0, .* it must be in \[0, {n}\)"):
        fd.execute([table, np.array([0, n])])


def test_rows_behind_other_rows() -> None:
    with FusionDefinition() as fd:
        table = fd.define_tensor([-1, -1])
        first, second = (fd.define_tensor([-1], dtype=DataType.Int) for _ in range(2))
        fd.add_output(fd.ops.index_select(fd.ops.index_select(table, first, 0), second, 0))
    data = np.zeros((3, 4), np.float32)
    for indices, bad in ((([0, 1, 9], [0, 1]), 9), (([0, 2], [0, 2]), 2)):
        with pytest.raises(
            SimulatorError, match=rf"the index {bad} is outside of dim 0, which has extent {min(bad, 3)}:"
        ):
            fd.execute([data, *map(np.array, indices)])
