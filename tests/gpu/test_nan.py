"""Nan in values whose bounds the assembler knows: ops that compare them give what the simulator gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.ops.op_table import POINTWISE

DTYPES = (DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16)
CONSTANTS = (-2.0, -0.5, 0.0, 0.5, 2.0)

# Values with a bound: nan where x is, and roots where x is below 0.
BOUNDED: dict[str, Callable[[Any, Any], Any]] = {
    "abs": lambda ops, x: ops.abs(x),
    "neg_abs": lambda ops, x: ops.neg(ops.abs(x)),
    "abs_sqrt": lambda ops, x: ops.abs(ops.sqrt(x)),
    "sqrt": lambda ops, x: ops.sqrt(x),
    "exp": lambda ops, x: ops.exp(x),
    "square": lambda ops, x: ops.mul(x, x),
    "abs_plus": lambda ops, x: ops.add(ops.abs(x), 1.0),
    "minus_abs": lambda ops, x: ops.sub(-1.0, ops.abs(x)),
    "chosen": lambda ops, x: ops.where(ops.isnan(x), ops.abs(x), ops.mul(x, x)),
}


def compared(ops: Any, v: Any) -> list[Any]:
    """What compares `v`, with constants of either sign on either side."""
    found = [ops.relu(v), ops.sign(v), ops.isnan(v), ops.isfinite(v), ops.clamp(v, -2.0, -0.5)]
    for c in CONSTANTS:
        for op in (ops.lt, ops.le, ops.gt, ops.ge):
            found += [op(v, c), ops.where(op(c, v), 3.0, 4.0)]
        found += [ops.maximum(v, c), ops.minimum(c, v), ops.threshold(v, c, 7.0), ops.clamp(v, c, c + 1)]
        found += [ops.where(ops.gt(v, c), v, ops.mul(v, 0.01))]  # leaky relu
    return found


def in_double(ops: Any, v: Any) -> list[Any]:
    """The same of what is compared as a Double."""
    wide = ops.cast(v, DataType.Double)
    found = [ops.relu(wide)]
    for c in CONSTANTS:
        found += [
            ops.gt(wide, c),
            ops.le(wide, c),
            ops.maximum(c, wide),
            ops.minimum(wide, c),
            ops.clamp(wide, c, c + 1),
        ]
    return found


def reduced(ops: Any, v: Any) -> list[Any]:
    """Extremes of rows, of values and of what has been limited."""
    return [ops.max(v, 1), ops.min(v, 1), ops.max(ops.relu(v), 1), ops.min(ops.clamp(v, -2.0, -0.5), 1)]


def check(outputs: Callable[[Any, Any], list[Any]], dtype: DataType, bounded: str) -> None:
    """On a GPU as on the simulator: of nan, which no rounding before it blurs."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        for output in outputs(fd.ops, BOUNDED[bounded](fd.ops, x)):
            fd.add_output(output)
    values = np.full((3, 64), np.nan)
    values[1, ::2] = 1.5
    values[2] = -np.nan
    given = [values.astype(dtype.numpy)]
    expected = fd.execute(given, device="simulator")
    for i, (got, wanted) in enumerate(zip(fd.execute(given, device="cuda"), expected, strict=True)):
        got, wanted = np.asarray(got), np.asarray(wanted)
        if got.shape == values.shape:
            got, wanted = got[np.isnan(values)], wanted[np.isnan(values)]
        kind = np.float64 if got.dtype.kind not in "biu" else got.dtype
        np.testing.assert_array_equal(got.astype(kind), wanted.astype(kind), err_msg=f"output {i}")


@pytest.mark.parametrize("bounded", BOUNDED)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_comparisons(dtype: DataType, bounded: str) -> None:
    """|nan| > -1 is False, and a limit of it is nan."""
    check(compared, dtype, bounded)


@pytest.mark.parametrize("bounded", BOUNDED)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not DataType.Double], ids=lambda d: d.name)
def test_comparisons_in_double(dtype: DataType, bounded: str) -> None:
    check(in_double, dtype, bounded)


@pytest.mark.parametrize("bounded", BOUNDED)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_extremes(dtype: DataType, bounded: str) -> None:
    check(reduced, dtype, bounded)


@pytest.mark.parametrize("bounded", ["abs", "neg_abs", "abs_plus", "minus_abs"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_op_of_one_operand(dtype: DataType, bounded: str) -> None:
    """Whatever compares inside: all but a few give nan, whose sign is the instruction's own."""
    left_out = ("cast", "imag", "signbit")
    rows = [row for row in POINTWISE.values() if row.arity == 1 and "f" in row.kinds and row.name not in left_out]
    check(lambda ops, v: [getattr(ops, row.name)(v) for row in rows], dtype, bounded)
