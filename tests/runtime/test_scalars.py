"""Numbers of Python and of NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuser.errors import InputTypeError
from fuser.runtime.scalars import is_scalar, python_number


def test_numbers() -> None:
    assert [is_scalar(x) for x in (1, True, 1.5, 1j, np.float32(1), np.int8(3))] == [True] * 6
    assert not is_scalar("1")
    assert not is_scalar(np.zeros(()))
    assert python_number(np.int32(3)) == 3
    assert type(python_number(np.float64(3))) is float
    assert type(python_number(np.bool_(True))) is bool
    assert python_number(ml_dtypes.bfloat16(1.5)) == 1.5
    with pytest.raises(InputTypeError, match="expected a number, got str"):
        python_number("1")
