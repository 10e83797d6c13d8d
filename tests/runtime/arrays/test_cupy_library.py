"""What CuPy's side does by itself: BFloat16 by way of Float. NumPy has the functions that it asks CuPy for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays import cupy_library
from fuser.runtime.kernels.library_calls import Operand

BFLOAT16 = Operand("out", DataType.BFloat16, (1,), (1,))


@pytest.fixture(autouse=True)
def numpy_as_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", np)


def private(name: str) -> Any:
    return getattr(cupy_library, name)


def test_all_of_bfloat16_comes_back() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = private("_widened")(BFLOAT16, bits)
    exact = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(wide, exact, equal_nan=True)
    back = private("_narrowed")(BFLOAT16, wide)
    is_nan = np.isnan(exact)
    assert np.array_equal(back[~is_nan], bits[~is_nan])
    assert np.isnan(back[is_nan].view(ml_dtypes.bfloat16)).all()


def test_floats_are_rounded_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    floats = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    values = np.concatenate([floats, ties])
    values = values[~np.isnan(values)]
    found = private("_narrowed")(BFLOAT16, values)
    assert np.array_equal(found, values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_half_is_what_cupy_has() -> None:
    half = Operand("out", DataType.Half, (1,), (1,))
    assert private("_widened")(half, np.ones(2, np.float16)).dtype == np.float32
    assert private("_narrowed")(half, np.ones(2, np.float32)).dtype == np.float16


def test_numbers_stay_numbers() -> None:
    """`ascontiguousarray` gives a vector for a number, in NumPy as in CuPy."""
    for dtype in (DataType.BFloat16, DataType.Half, DataType.Float):
        operand = Operand("out", dtype, (), ())
        found = private("_narrowed")(operand, np.asarray(1.5, np.float32))
        assert found.shape == ()


def test_arrays_without_elements_lie_at_the_null_pointer(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy asks the driver where memory lies, unless it is told; of the null pointer the driver knows nothing."""

    def unowned(address: int, nbytes: int, owner: Any, device_id: int = -1) -> Any:
        if device_id < 0 and not address:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        return device_id

    cuda = SimpleNamespace(UnownedMemory=unowned, MemoryPointer=lambda memory, offset: memory)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=lambda *parts: parts))
    empty = Operand("arg1", DataType.Float, (4, 0), (0, 1))
    assert private("_array")(1, empty, 0) == ((4, 0), np.float32, 1, (0, 4))
