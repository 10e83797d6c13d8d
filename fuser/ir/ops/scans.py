"""Rows of the scans: running folds along one dim.

Grammar
    ScanOp := name, combine (a pointwise op), identity, kinds, numpy

Element i of the result is the fold of elements 0 to i, in the dtype of the operand (Float for the 16-bit floats, rounded
once per element). The kernel may group the folds in any way that keeps their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.dtypes import DataType, kind_of
from fuser.ir.ops.numpy_functions import Array
from fuser.ir.ops.reductions import REDUCTIONS, Number
from fuser.records import record


@record
class ScanOp:
    """A running fold.

    combine     name of the pointwise op that folds two values; associative up to rounding
    identity    dtype -> the value that changes nothing that it is folded with, the sign of a zero included
    numpy       (array, axis) -> array of the same dtype
    kinds       letters of the operand kinds it accepts (`promotion.kind_of`)
    """

    name: str
    combine: str
    doc: str
    identity: Callable[[DataType], Number]
    numpy: Callable[[Array, int], Array]
    kinds: str

    def check_operand(self, dtype: DataType) -> None:
        """Raise DefinitionRuntimeError for operands that the scan does not take."""
        if kind_of(dtype) not in self.kinds:
            raise DefinitionRuntimeError(f"{self.name}() does not support {dtype.name} operands")


def _accumulated(ufunc: Any) -> Callable[[Array, int], Array]:
    def scan(array: Array, axis: int) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc.accumulate(array, axis=axis, dtype=array.dtype))

    return scan


def _running_extreme(*, largest: bool) -> Callable[[Array, int], Array]:
    def scan(array: Array, axis: int) -> Array:
        ufunc: Any = np.maximum if largest else np.minimum
        result = np.asarray(ufunc.accumulate(array, axis=axis))
        if array.dtype.kind != "f":
            return result
        # The sign of a zero: +0 wins for a maximum, -0 for a minimum.
        negative = np.signbit(array)
        winner = (array == 0) & (~negative if largest else negative)
        seen = np.logical_or.accumulate(winner, axis=axis)
        zero = np.where(seen == largest, array.dtype.type(0.0), array.dtype.type(-0.0))
        return np.where(result == 0, zero, result)

    return scan


def _no_addend(dtype: DataType) -> Number:
    """-0.0 for floats: 0.0 + -0.0 would lose the sign of an element."""
    if dtype.is_complex:
        return complex(-0.0, -0.0)
    return -0.0 if dtype.is_floating else REDUCTIONS["sum"].identity(dtype)


SCANS: dict[str, ScanOp] = {
    row.name: row
    for row in (
        ScanOp("cumsum", "add", "Running sum along a dim.", _no_addend, _accumulated(np.add), "fibc"),
        ScanOp(
            "cumprod",
            "mul",
            "Running product along a dim.",
            REDUCTIONS["prod"].identity,
            _accumulated(np.multiply),
            "fibc",
        ),
        ScanOp(
            "cummin",
            "minimum",
            "Running minimum along a dim; nan from the first nan on.",
            REDUCTIONS["min"].identity,
            _running_extreme(largest=False),
            "fib",
        ),
        ScanOp(
            "cummax",
            "maximum",
            "Running maximum along a dim; nan from the first nan on.",
            REDUCTIONS["max"].identity,
            _running_extreme(largest=True),
            "fib",
        ),
    )
}
"""Every scan by name."""
