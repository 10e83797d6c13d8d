"""Which library gets a call."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fuser.errors import LaunchError
from fuser.runtime.arrays import library_choice
from fuser.runtime.arrays.library_choice import library_for

CUDA: Any = SimpleNamespace(kind="cuda", index=0)
SIMULATOR: Any = SimpleNamespace(kind="simulator", index=0)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found: set[str] = set()
    monkeypatch.setattr(library_choice, "_is_installed", found.__contains__)
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
