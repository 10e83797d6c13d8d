"""How a user is told to convert an array: in the words of its library."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType
from fuser.runtime.array_view import ArrayKind
from fuser.runtime.arrays.arrays import cast_text, library_of


@pytest.mark.parametrize(
    ("kind", "dtype", "text"),
    [
        ("numpy", DataType.Float, ".astype(np.float32)"),
        ("numpy", DataType.Bool, ".astype(np.bool_)"),
        ("numpy", DataType.BFloat16, ".astype(ml_dtypes.bfloat16)"),
        ("numpy", DataType.ComplexDouble, ".astype(np.complex128)"),
        ("torch", DataType.Float, ".to(torch.float32)"),
        ("torch", DataType.BFloat16, ".to(torch.bfloat16)"),
        ("torch", DataType.Bool, ".to(torch.bool)"),
        ("cupy", DataType.Index, ".astype(cupy.int64)"),
        ("jax", DataType.Half, ".astype(jnp.float16)"),
        ("fuser", DataType.Int32, ".astype(np.int32)"),
    ],
)
def test_cast_text(kind: ArrayKind, dtype: DataType, text: str) -> None:
    assert cast_text(kind, dtype) == text


def test_library_of() -> None:
    made = type("Tensor", (), {"__module__": "torch._tensor"})
    assert library_of(made()) == "torch"
    assert library_of(type("Array", (), {"__module__": "jaxlib._jax"})()) == "jax"
    assert library_of(np.ones(1)) == "numpy"
    assert library_of("text") == "interface"
