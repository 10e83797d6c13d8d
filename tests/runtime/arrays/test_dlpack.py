"""Memory lent to other libraries."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.dlpack import CPU, export_tensor


class Lent:
    """A tensor as NumPy is given it."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: object) -> object:
        a = self._array
        return export_tensor(DataType.Float, a.shape, (1,), a.ctypes.data, (CPU, 0), a)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class Owned(np.ndarray[Any, Any]):
    """An array that a test can see go."""


def test_memory_that_was_borrowed_may_be_lent() -> None:
    """Who gives back the last loan gives back those that it was made of, within: nobody waits for itself."""
    gone: list[bool] = []

    def run() -> None:
        first = np.arange(8, dtype=np.float32).view(Owned)
        weakref.finalize(first, gone.append, True)
        array: Any = np.from_dlpack(Lent(first))
        del first
        for _ in range(3):
            array = np.from_dlpack(Lent(array))
        assert array[7] == 7
        del array

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert gone == [True]
