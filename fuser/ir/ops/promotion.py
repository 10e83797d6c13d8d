"""Dtype rules of the pointwise ops: what an expression's operands are cast to and what dtype its result has.

Grammar
    rule    := DtypeRule, a column of the op table
    carrier := D (tensor of rank >= 1) | Z (rank-0 tensor) | S (scalar)
    operand := dtype, carrier

Three dtypes belong to one expression:
    operand dtype   what every operand is cast to in the IR (`where`: its two values; the condition stays Bool)
    compute dtype   what the arithmetic runs in: Half and BFloat16 in Float, Index in Int, every other dtype in itself
    result dtype    the dtype of the value; rounded once from the compute dtype
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, assert_never

from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.dtypes import DataType, combine, complex_of, kind_of, promote, real_of, widen
from fuser.ir.ops.pointwise_op import DtypeRule, PointwiseOp

Carrier = Literal["D", "Z", "S"]


class OperandClass(NamedTuple):
    """Dtype of an operand and what carries it: `D` tensor of rank >= 1, `Z` rank-0 tensor, `S` scalar."""

    dtype: DataType
    carrier: Carrier


_KIND_NAMES = {"f": "floating", "c": "complex", "b": "Bool", "u": "UInt64", "i": "integer", "n": "Null"}


def promoted_dtype(operands: Sequence[OperandClass]) -> DataType:
    """The common dtype of mixed operands before an op's own rule.

    One dtype throughout is the answer; otherwise `promote` is folded within each carrier class (a scalar narrower
    than Float counts as Float) and the classes are combined, tensors over rank-0 tensors over scalars.
    Raises DefinitionRuntimeError where no common dtype exists.
    """
    first = operands[0].dtype
    if all(o.dtype is first for o in operands):
        if first is DataType.Null:
            raise DefinitionRuntimeError("an operand has no dtype (Null)")
        return first
    folded: dict[str, DataType | None] = {"D": None, "Z": None, "S": None}
    for dtype, carrier in operands:
        counted = widen(dtype) if carrier == "S" else dtype
        known = folded[carrier]
        folded[carrier] = counted if known is None else promote(known, counted)
    result = combine(folded["D"], combine(folded["Z"], folded["S"]))
    assert result is not None  # there is at least one operand
    if result is DataType.Null:
        raise DefinitionRuntimeError("an operand has no dtype (Null)")
    return result


def operand_dtype(row: PointwiseOp, operands: Sequence[OperandClass]) -> DataType:
    """The dtype that the operands of `row` are cast to; for `where` that of its two values.

    Raises DefinitionRuntimeError if the op does not take these dtypes.
    """
    if len(operands) != row.arity:
        raise DefinitionRuntimeError(f"{row.name}() takes {row.arity} operands, got {len(operands)}")
    values = operands
    match row.rule:
        case DtypeRule.KEEP | DtypeRule.CAST:
            dtype = operands[0].dtype
        case DtypeRule.PROM | DtypeRule.BOOL | DtypeRule.MAGNITUDE | DtypeRule.REAL_PART:
            dtype = promoted_dtype(operands)
            if row.rule in (DtypeRule.PROM, DtypeRule.BOOL) and not row.in_own_type:
                dtype = widen(dtype)
        case DtypeRule.FLT:
            dtype = widen(promoted_dtype(operands))
            _require_kind(row, dtype, operands)
            if not (dtype.is_floating or dtype.is_complex):
                dtype = DataType.Float
        case DtypeRule.FULL:
            dtype = promoted_dtype(operands)
            if dtype not in (DataType.Float, DataType.Double):
                raise DefinitionRuntimeError(
                    f"{row.name}() needs operands that promote to Float or Double, got {_listed(operands)}"
                )
        case DtypeRule.LOGICAL:
            for o in operands:
                _require_kind(row, o.dtype, operands)
            return DataType.Bool
        case DtypeRule.COMPLEX_PAIR:
            dtype = operands[0].dtype
            if any(o.dtype is not dtype for o in operands) or dtype not in (DataType.Float, DataType.Double):
                raise DefinitionRuntimeError(
                    f"{row.name}() needs two operands of one dtype, Float or Double, got {_listed(operands)}"
                )
            if len({o.carrier == "S" for o in operands}) > 1:
                raise DefinitionRuntimeError(f"{row.name}() needs two tensors or two scalars, not one of each")
        case DtypeRule.SELECT:
            condition = operands[0].dtype
            if condition is not DataType.Bool:
                raise DefinitionRuntimeError(
                    f"Condition should be of DataType Bool, not {condition.name}; compare it, as in x > 0"
                )
            values = operands[1:]
            dtype = promoted_dtype(values)
        case unreachable:
            assert_never(unreachable)
    _require_kind(row, dtype, operands)
    if "c" not in row.kinds:
        for o in values:
            if o.dtype.is_complex:
                _require_kind(row, o.dtype, operands)
    return dtype


def result_dtype(row: PointwiseOp, dtype: DataType) -> DataType:
    """The dtype of the result, given the operand dtype that `operand_dtype` returned."""
    match row.rule:
        case DtypeRule.KEEP | DtypeRule.PROM | DtypeRule.FLT | DtypeRule.FULL | DtypeRule.SELECT:
            return dtype
        case DtypeRule.BOOL | DtypeRule.LOGICAL:
            return DataType.Bool
        case DtypeRule.MAGNITUDE | DtypeRule.REAL_PART:
            return real_of(dtype)
        case DtypeRule.COMPLEX_PAIR:
            return complex_of(dtype)
        case DtypeRule.CAST:
            raise TypeError("the result dtype of a cast is its argument, it does not follow from the operand")
        case unreachable:
            assert_never(unreachable)


def _require_kind(row: PointwiseOp, dtype: DataType, operands: Sequence[OperandClass]) -> None:
    if kind_of(dtype) in row.kinds:
        return
    reason = row.refusal or f"{_KIND_NAMES[kind_of(dtype)]} operands are not supported"
    raise DefinitionRuntimeError(f"{row.name}(): {reason}, got {_listed(operands)}")


def _listed(operands: Sequence[OperandClass]) -> str:
    return ", ".join(o.dtype.name for o in operands)
