"""Whether the slots of a library call fit one another, by the rule that shapes results when a fusion is defined."""

from __future__ import annotations

from fuser.errors import DefinitionError, InputRuntimeError
from fuser.ir.fusion.fusion import Val
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.library_calls import LibraryRow
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.integers.integers import Int, const
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.library_calls import LibraryCall, Operand
from fuser.runtime.layouts import overlaps_itself


def check_call(call: LibraryCall) -> None:
    """Raise InputRuntimeError for operands, numbers or results that do not fit the op."""
    row = LIBRARY_OPS[call.op]
    builder = FusionBuilder(is_concrete=True)
    values: dict[str, Val] = {o.name: builder.input_tensor(_known(o.dtype), o.sizes) for o in call.inputs}
    numbers = dict(call.numbers)
    for name in row.numbers:
        number = numbers.get(name)
        if number is not None:
            values[name] = builder.constant(number, _dtype_of(number))
    options = {**row.defaults, **{name: numbers[name] for name in row.options if name in numbers}}
    for name, number in options.items():
        if isinstance(number, complex):
            raise InputRuntimeError(f"{call.op}(): {name} is a complex number, {number}")
    plain = {name: number for name, number in options.items() if not isinstance(number, complex)}
    try:
        results = builder.library(call.op, values, plain, _extents(row, numbers))
    except DefinitionError as error:
        raise InputRuntimeError(error.message) from None
    if row.check is not None:
        row.check({o.name: o.sizes for o in call.inputs}, numbers)
    for operand, result in zip(call.outputs, results, strict=True):
        sizes = tuple(d.extent.value for d in result.visible)
        if operand.sizes != sizes or operand.dtype is not _known(result.dtype):
            raise InputRuntimeError(
                f"{call.op}() gives {operand.name} of {result.dtype.name}{list(sizes)}, and its slot has "
                f"{operand.dtype.name}{list(operand.sizes)}"
            )
        _check_apart(call, operand)


def _check_apart(call: LibraryCall, operand: Operand) -> None:
    if overlaps_itself(operand.sizes, operand.strides):
        raise InputRuntimeError(
            f"{call.op}() writes {operand.name}, whose strides {list(operand.strides)} put several elements of shape "
            f"{list(operand.sizes)} into one place"
        )


def _known(dtype: DataType) -> DataType:
    """Index tensors are Int tensors."""
    return DataType.Int if dtype is DataType.Index else dtype


def _dtype_of(number: bool | int | float | complex) -> DataType:
    if isinstance(number, bool):
        return DataType.Bool
    if isinstance(number, int):
        return DataType.Int
    return DataType.ComplexDouble if isinstance(number, complex) else DataType.Double


def _extents(row: LibraryRow, numbers: dict[str, bool | int | float | complex | None]) -> list[Int]:
    """Extents that numbers say. Raises InputRuntimeError for one that is none."""
    found: list[Int] = []
    for name in row.extents:
        number = numbers.get(name)
        if not isinstance(number, int):
            raise InputRuntimeError(f"{row.name}(): {name} must be an integer, got {number!r}")
        found.append(const(number))
    return found
