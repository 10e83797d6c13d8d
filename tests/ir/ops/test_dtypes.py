"""What names a dtype."""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.ir.ops.dtypes import DataType, as_dtype
from fuser.ir.ops.enums import ParallelType

D = DataType


class _TorchDtype:
    """Looks like torch's dtype objects, which are told by their type."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_TorchDtype.__name__, _TorchDtype.__module__ = "dtype", "torch"


class _ScalarMeta(type):
    """Makes classes like JAX's scalar types, which carry their dtype."""

    dtype = np.dtype(np.float16)


@pytest.mark.parametrize("dtype", [d for d in D if d not in (D.Null, D.Index, D.Float4_e2m1fn_x2)])
def test_numpy_names_each_dtype(dtype: DataType) -> None:
    assert as_dtype(dtype) is dtype
    assert as_dtype(dtype.numpy) is dtype
    assert as_dtype(dtype.numpy.type) is dtype
    assert as_dtype(dtype.numpy.name) is dtype


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (bool, D.Bool),
        (int, D.Int),
        (float, D.Double),
        (complex, D.ComplexDouble),
        ("half", D.Half),
        ("double", D.Double),
        ("bfloat16", D.BFloat16),
        (ml_dtypes.bfloat16, D.BFloat16),
        (np.dtype("<f4"), D.Float),
        (np.bool_, D.Bool),
        (_TorchDtype("bfloat16"), D.BFloat16),
        (_TorchDtype("int64"), D.Int),
        (_ScalarMeta("float16", (), {}), D.Half),
        (D.Null, D.Null),
        (D.Index, D.Index),
    ],
    ids=str,
)
def test_other_names(value: Any, dtype: DataType) -> None:
    assert as_dtype(value) is dtype


@pytest.mark.parametrize(
    "value",
    [
        *(None, "float", "int", "complex", "int8", "Float", "f", "", 1, 1.0, True, object, str, [np.float32]),
        *(np.int8, np.uint8, np.generic, np.floating, np.str_, np.dtype(">f4"), np.float32(1), np.ones(2, np.float32)),
        _TorchDtype("int8"),
        SimpleNamespace(dtype=np.dtype("f4")),
    ],
    ids=repr,
)
def test_what_names_none(value: Any) -> None:
    """Names that libraries read differently, dtypes without a DataType, foreign byte order, arrays and numbers."""
    assert as_dtype(value) is None


def test_members_of_other_enumerations() -> None:
    for enum, name, meant in (
        (ParallelType, "blockx", "; did you mean ParallelType.block_x?"),
        (ParallelType, "threadIdx_x", "; did you mean ParallelType.block_x?"),
        (ParallelType, "warp", "; they are mesh_x, mesh_y, "),
        (DataType, "Flaot", "; did you mean DataType.Float?"),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(enum, name)
        assert str(caught.value).startswith(f"{enum.__name__} has no member {name!r}{meant}")
        assert caught.value.obj is None, "or the interpreter adds a suggestion of its own"
