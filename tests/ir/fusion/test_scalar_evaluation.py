import math

import numpy as np
import pytest

from fuser.ir.fusion.scalar_evaluation import evaluate_op, rounded_number
from fuser.ir.ops.dtypes import DataType

D = DataType


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (2.7, D.Int, 2),
        (-2.7, D.Int32, -2),
        (2**31, D.Int32, -(2**31)),
        (2**63, D.Int, -(2**63)),
        (-1, D.UInt64, 2**64 - 1),
        (0.5, D.Bool, True),
        (math.nan, D.Bool, True),
        (1 + 2j, D.Float, 1.0),
        (1 + 2j, D.Bool, True),
        (2j, D.Bool, True),
        (True, D.Double, 1.0),
        (0.1, D.Float, float(np.float32(0.1))),
        (1e300, D.Float, math.inf),
        (2049, D.Half, 2048.0),
        (2**53 + 1, D.Float, float(2**53)),
        (3, D.ComplexFloat, 3 + 0j),
        (0.1j, D.ComplexFloat, complex(np.complex64(0.1j))),
        (math.inf, D.Int, 0),
    ],
)
def test_rounded_number(value, dtype, expected):
    found = rounded_number(value, dtype)
    assert found == expected
    assert type(found) is type(expected)


def test_rounding_an_integer_once():
    # Nearest float is above, the double in between would round to even below.
    value = 2**54 + 2**30 + 1
    assert rounded_number(value, D.Float) == float(2**54 + 2**31)


@pytest.mark.parametrize(
    ("op", "values", "dtypes", "result", "expected"),
    [
        ("add", (2**31 - 1, 1), (D.Int32, D.Int32), D.Int32, -(2**31)),
        ("add", (2**31 - 1, 1), (D.Int32, D.Int), D.Int, 2**31),
        ("div", (1.0, 3.0), (D.Float, D.Float), D.Float, float(np.float32(1 / 3))),
        ("div", (7, 0), (D.Int, D.Int), D.Int, 2**32 - 1),  # as a GPU divides numbers of 32 bits
        ("eq", (0.1, 0.1), (D.Double, D.Double), D.Bool, True),
        ("where", (False, 1, 2.5), (D.Bool, D.Int, D.Double), D.Double, 2.5),
        ("cast", (2.5,), (D.Double,), D.Int, 2),
        ("sqrt", (-1.0,), (D.Double,), D.Double, None),
    ],
)
def test_evaluate_op(op, values, dtypes, result, expected):
    found = evaluate_op(op, values, dtypes, result)
    assert math.isnan(found) if expected is None else found == expected
