"""Host scalars: constants, arithmetic on scalars, conversion of scalar operands to the dtype of an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import Scalar
from fuser.ir.fusion.scalar_evaluation import Number, evaluate_op, rounded_number
from fuser.ir.integers import integers
from fuser.ir.ops.dtypes import DataType, scalar_type
from fuser.ir.ops.op_table import OperandClass, PointwiseOp, kind_of, operand_dtype, result_dtype
from fuser.ir.ops.pointwise_op import DtypeRule

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int


def constant(builder: FusionBuilder, value: Number, dtype: DataType | None = None) -> Scalar:
    """A constant; of the number's own dtype unless one is given, then rounded to it."""
    if dtype is None:
        return builder.constant(value, scalar_type(value))
    return builder.constant(rounded_number(value, dtype), dtype)


_WIDEST = {"f": DataType.Double, "i": DataType.Int, "c": DataType.ComplexDouble}


def as_operand(builder: FusionBuilder, scalar: Scalar, dtype: DataType, *, beside_tensor: bool) -> Scalar:
    """`scalar` as an operand of an op that works in `dtype`.

    One of the same kind stays as it is: it is converted where it is used. Others are cast, constants at once. Beside a
    tensor, which alone decides the dtype then, a converted constant is carried by the widest dtype of its kind and so
    prints as a plain literal.
    """
    kind = kind_of(dtype)
    if kind_of(scalar.dtype) == kind and (kind != "u" or scalar.dtype is dtype):
        return scalar
    if scalar.value is not None:
        rounded = rounded_number(scalar.value, dtype)
        return builder.constant(rounded, _WIDEST.get(kind, dtype) if beside_tensor else dtype)
    return builder.scalar_op("cast", [scalar], dtype)


def scalar_cast(builder: FusionBuilder, scalar: Scalar, dtype: DataType) -> Scalar:
    """`scalar` converted to `dtype`."""
    if scalar.value is not None:
        return builder.constant(rounded_number(scalar.value, dtype), dtype)
    if scalar.dtype is dtype:
        return builder.scalar_op("set", [scalar], dtype, scalar.expression)
    keeps_value = scalar.dtype.is_integral and dtype.is_integral
    return builder.scalar_op("cast", [scalar], dtype, scalar.expression if keeps_value else None)


def scalar_operation(builder: FusionBuilder, row: PointwiseOp, operands: Sequence[Scalar]) -> Scalar:
    """A pointwise op on scalars alone: a host scalar, a constant if every operand is one."""
    classes = [OperandClass(s.dtype, "S") for s in operands]
    dtype = operand_dtype(row, classes)
    result = result_dtype(row, dtype)
    values = [s.value for s in operands]
    known = [v for v in values if v is not None]
    if len(known) == len(values):
        return builder.constant(evaluate_op(row.name, known, [s.dtype for s in operands], result), result)
    converted = [
        s if row.rule is DtypeRule.SELECT and i == 0 else as_operand(builder, s, dtype, beside_tensor=False)
        for i, s in enumerate(operands)
    ]
    return builder.scalar_op(row.name, converted, result, _extent_expression(row.name, result, operands))


def _extent_expression(op: str, dtype: DataType, operands: Sequence[Scalar]) -> Int | None:
    """The result as an expression of extents, where it is one.

    Extents are far below 2**63, so that integer arithmetic on them does not wrap. Division and remainder truncate,
    which is what expressions do only where both sides are known not to be negative.
    """
    if dtype not in (DataType.Int, DataType.Index):
        return None
    known = [s.expression for s in operands]
    sides = [e for e in known if e is not None]
    if len(sides) != len(known):
        return None
    match op:
        case "set":
            return sides[0]
        case "neg":
            return -sides[0]
        case "add":
            return sides[0] + sides[1]
        case "sub":
            return sides[0] - sides[1]
        case "mul":
            return sides[0] * sides[1]
        case "minimum":
            return integers.minimum(*sides)
        case "maximum":
            return integers.maximum(*sides)
        case "div" | "mod" | "fmod" | "remainder" if _divides_positively(*sides):
            return sides[0] // sides[1] if op == "div" else sides[0] % sides[1]
        case _:
            return None


def _divides_positively(numerator: Int, divisor: Int) -> bool:
    return numerator.lo is not None and numerator.lo >= 0 and divisor.lo is not None and divisor.lo >= 1


def extent_of(builder: FusionBuilder, scalar: Scalar) -> Int:
    """The integer expression of a scalar used as an extent."""
    if not scalar.dtype.is_integral:
        raise DefinitionRuntimeError(f"an extent must be an integer, got a scalar of dtype {scalar.dtype.name}")
    return builder.extent_of_scalar(scalar)
