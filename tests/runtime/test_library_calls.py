"""Which library gets a call, and what is said of how it takes it."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.errors import LaunchError
from fuser.ir.dtypes import DataType
from fuser.runtime import library_calls
from fuser.runtime.library_calls import LibraryCall, Operand, library_for, notes_of

CUDA: Any = SimpleNamespace(kind="cuda", index=0)
SIMULATOR: Any = SimpleNamespace(kind="simulator", index=0)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    monkeypatch.setattr(library_calls, "_is_installed", found.__contains__)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return found


def test_the_simulator_has_numpy_whatever_else_there_is(installed: set[str]) -> None:
    installed.add("cupy")
    assert library_for("matmul", "torch", SIMULATOR) == "numpy"


def test_tensors_of_torch_stay_with_torch(installed: set[str]) -> None:
    installed.add("cupy")
    assert library_for("matmul", "torch", CUDA) == "torch"


@pytest.mark.parametrize("kind", ["cupy", "jax", "numpy", "fuser", "interface"])
def test_other_arrays_go_to_cupy(installed: set[str], kind: str) -> None:
    installed.add("cupy")
    assert library_for("matmul", kind, CUDA) == "cupy"


def test_torch_takes_them_where_the_program_has_it_already(
    installed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert library_for("matmul", "numpy", CUDA) == "torch"


def test_without_a_library_the_error_names_what_to_install(installed: set[str]) -> None:
    message = (
        "matmul() is computed by a library, and none is installed that takes arrays of jax on a GPU: install CuPy, "
        "pip install 'fuser[cupy]', or hand in tensors of torch, pip install 'fuser[torch]'"
    )
    with pytest.raises(LaunchError, match=re.escape(message)):
        library_for("matmul", "jax", CUDA)


def call(library: str, dtype: DataType, sizes: tuple[int, ...], strides: tuple[int, ...]) -> LibraryCall:
    out = Operand("out", dtype, (2, 2), (2, 1))
    return LibraryCall("matmul", library, (Operand("arg1", dtype, sizes, strides),), (out,))


@pytest.mark.parametrize(
    ("sizes", "strides", "is_copied"),
    [
        ((4, 3), (3, 1), False),
        ((4, 3), (1, 4), False),
        ((4, 3), (8, 1), False),
        ((4, 3), (1, 9), False),
        ((4, 3), (6, 2), True),
        ((4, 3), (0, 1), True),
        ((1, 3), (9, 2), False),
        ((4, 1), (3, 5), False),
        ((2, 4, 3), (0, 3, 1), False),
        ((2, 0, 3), (9, 9, 9), False),
        ((3,), (2,), False),
    ],
)
def test_operands_that_a_product_copies_are_named(
    sizes: tuple[int, ...], strides: tuple[int, ...], is_copied: bool
) -> None:
    notes = notes_of(call("torch", DataType.Float, sizes, strides))
    assert bool(notes) is is_copied
    assert all("arg1 is copied to a dense tensor" in n for n in notes)


def test_conversions_are_told() -> None:
    assert "converted to Float" in notes_of(call("numpy", DataType.Half, (2, 2), (2, 1)))[0]
    assert "CuPy computes with no BFloat16" in notes_of(call("cupy", DataType.BFloat16, (2, 2), (2, 1)))[0]
    assert notes_of(call("torch", DataType.BFloat16, (2, 2), (2, 1))) == ()
    assert "it is no part of a graph" in notes_of(call("cupy", DataType.Half, (2, 2), (2, 1)))[0]
    drawn = LibraryCall("sdpfa_fwd", "torch", (), (), (("dropout_p", 0.5),))
    assert "each launch draws random numbers of its own" in notes_of(drawn)[0]
