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
    start = f"index out of range: the index {bad} is outside of dim 0"
    if shape == [3, 4]:
        assert error.message == f"{start}, which has extent 3: it must be in [0, 3){TAIL}"
    elif bad < 0:
        assert error.message == f"{start}{TAIL}"
    else:
        # The kernel is not told how many rows there are: it is what lies behind the last, of one access, that shows.
        first = "index out of range: an index along dim 0 leads outside of the operand, to element"
        assert error.message in {
            f"{first}{which} of t0, which has 12{TAIL}" for which in (" 12", "s 12 to 13", "s 12 to 15")
        }
