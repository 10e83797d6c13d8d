"""Numbers that callers hand in beside arrays: those of Python, and NumPy's, which are converted."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

from fuser.errors import InputTypeError

Scalar = bool | int | float | complex


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """True for Python numbers and for NumPy's number objects (`np.float32(1)`), which `python_number` converts."""
    return isinstance(value, (bool, int, float, complex)) or _is_numpy_number(value)


def _is_numpy_number(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def python_number(value: Any) -> Scalar:
    """A Python number from a Python or NumPy number. Raises InputTypeError for what is none."""
    if isinstance(value, (bool, int, float, complex)):
        return value if type(value) in (bool, int, float, complex) else _plain(value)
    if _is_numpy_number(value):
        item = value.item()
        if isinstance(item, (bool, int, float, complex)):
            return item
        if hasattr(item, "__float__"):  # ml_dtypes numbers stay what they are in item()
            return float(item)
    raise InputTypeError(f"expected a number, got {type(value).__name__}")


def _plain(value: Scalar) -> Scalar:
    """The Python number in an instance of a subclass (np.float64, IntEnum)."""
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else complex(value)
