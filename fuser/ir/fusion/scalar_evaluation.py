"""Host arithmetic on scalars: what `ScalarOp` computes, for folding constants and for binding scalars at execution.

A scalar of dtype Float holds a value that float32 can hold (likewise the other types), so folding a constant while
defining and computing it when inputs are bound give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fuser.ir.fusion.fusion import ScalarOp
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, OperandClass, compute_dtype, evaluate_scalar, numpy_cast, operand_dtype

Number: TypeAlias = bool | int | float | complex


def rounded_number(value: Number, dtype: DataType) -> Number:
    """`value` as a Python number of the kind of `dtype` that a value of `dtype` can hold.

    Floats round to nearest even, float -> integer truncates, integers wrap at the width of the type, anything -> Bool
    is `!= 0`, complex -> real drops the imaginary part.
    """
    if dtype is DataType.Bool:
        return bool(value != 0)
    if isinstance(value, complex) and not dtype.is_complex:
        value = value.real
    if dtype.is_integral:
        if isinstance(value, float) and not (-(2.0**63) <= value < 2.0**64):
            # Out of range is unspecified; the result must only be the same everywhere.
            return 0
        bits = 8 * dtype.itemsize
        wrapped = int(value.real) & ((1 << bits) - 1)
        signed = dtype is not DataType.UInt64 and wrapped >> (bits - 1)
        return wrapped - (1 << bits) if signed else wrapped
    if dtype is DataType.Double:
        return float(value.real)
    if dtype is DataType.ComplexDouble:
        return complex(value)
    source = np.asarray(value, np.longdouble) if isinstance(value, int) and abs(value) > 2**53 else np.asarray(value)
    rounded = numpy_cast(source, dtype)
    return complex(rounded) if dtype.is_complex else float(rounded)


def evaluate_op(op: str, values: Sequence[Number], dtypes: Sequence[DataType], result: DataType) -> Number:
    """The scalar op `op` on `values` of `dtypes`, rounded to `result`."""
    if op == "cast":
        return rounded_number(values[0], result)
    row = POINTWISE[op]
    dtype = operand_dtype(row, [OperandClass(d, "S") for d in dtypes])
    compute = compute_dtype(dtype)
    converted = [v if row.name == "where" and i == 0 else rounded_number(v, compute) for i, v in enumerate(values)]
    return rounded_number(evaluate_scalar(row, dtype, converted), result)


def evaluate_scalar_op(expr: ScalarOp, values: Sequence[Number]) -> Number:
    """The value of a `ScalarOp` for the values of its operands."""
    return evaluate_op(expr.op, values, [s.dtype for s in expr.inputs], expr.output.dtype)
