"""Ops that make tensors from scalars: full, iota (section 3.8 of the contract)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError, NotSupportedError
from fuser.frontend import scalars
from fuser.frontend.handles import Owner, TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    Number,
    dtype_argument,
    extent_list_argument,
    fusion_of,
    operation,
    scalar_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType, scalar_type
from fuser.ir.ops.op_table import check_cast, kind_of

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int


def _dtype_of(value: Val | Number) -> DataType:
    return value.node.dtype if isinstance(value, Val) else scalar_type(value)


def _scalar_of(fusion: Owner, value: Val | Number) -> ir.Scalar:
    if isinstance(value, Val):
        assert isinstance(value.node, ir.Scalar)
        return value.node
    return scalars.constant(fusion.builder(), value)


def _require_supported(name: str, dtype: DataType) -> None:
    if dtype is DataType.Null:
        raise DefinitionRuntimeError(f"{name}() needs a dtype, got Null")
    if not dtype.is_supported:
        raise NotSupportedError(f"{name}(): tensors of dtype {dtype.name} are not supported yet")


def factory_extents(
    name: str, builder: FusionBuilder, entries: Sequence[Val | int]
) -> tuple[list[Int], list[ir.Scalar | None]]:
    """(extent, the scalar it was given as or None for a constant) of each entry of a shape.

    Raises DefinitionRuntimeError for -1.
    """
    extents: list[Int] = []
    given: list[ir.Scalar | None] = []
    for i, entry in enumerate(entries):
        if isinstance(entry, Val):
            assert isinstance(entry.node, ir.Scalar)
            extents.append(scalars.extent_of(builder, entry.node))
            given.append(None if extents[-1].is_const else entry.node)
            continue
        if entry == -1:
            raise DefinitionRuntimeError(
                f"{name}() needs to know its shape, the entry at index {i} is -1; x.size(d) is the extent of a dim of x"
            )
        extents.append(const(entry))
        given.append(None)
    return extents, given


@operation("full(shape: Sequence[Val | int], fill_value: Val | number, dtype: DataType) -> TensorView")
def full(shape: object, fill_value: object, dtype: object) -> TensorView:
    """A tensor of one value, cast to `dtype`.

    Raises DefinitionRuntimeError for extents below 0.
    """
    entries = extent_list_argument("shape", shape)
    fill = scalar_argument("fill_value", fill_value)
    result = dtype_argument("dtype", dtype)
    _require_supported("full", result)
    fusion = fusion_of("full", fill, *entries)
    builder = fusion.builder()
    extents, given = factory_extents("full", builder, entries)
    value = _scalar_of(fusion, fill)
    check_cast(value.dtype, result)
    converted = scalars.as_operand(builder, value, result, beside_tensor=True)
    return fusion.tensor_handle(builder.full(extents, converted, result, given))


@operation(
    "iota(length: Val | int, start: Val | number | None = None, step: Val | number | None = None, "
    "dtype: DataType = DataType.Int) -> TensorView"
)
def iota(length: object, start: object = None, step: object = None, dtype: object = DataType.Int) -> TensorView:
    """The 1-D tensor start + i * step; start is 0 and step 1 unless given.

    Raises DefinitionRuntimeError for a length that is no integer, a start or step that is floating for an integer dtype
    or the reverse, not finite, or a step of 0.
    """
    count = scalar_argument("length", length)
    result = dtype_argument("dtype", dtype)
    _require_supported("iota", result)
    first = (0.0 if result.is_floating else 0) if start is None else scalar_argument("start", start)
    stride = (1.0 if result.is_floating else 1) if step is None else scalar_argument("step", step)
    if not _dtype_of(count).is_integral:
        raise DefinitionRuntimeError(f"iota: length must be integer, got {_dtype_of(count).name}")
    if not (result.is_floating or result.is_integral):
        raise DefinitionRuntimeError(f"iota: dtype must be floating or integer, got {result.name}")
    for name, value in (("start", first), ("step", stride)):
        if kind_of(_dtype_of(value)).replace("u", "i") != kind_of(result).replace("u", "i"):
            raise DefinitionRuntimeError(
                f"iota: {name} dtype does not match specified dtype argument: {_dtype_of(value).name} for {result.name}"
            )
        constant = (
            value if not isinstance(value, Val) else value.node.value if isinstance(value.node, ir.Scalar) else None
        )
        if constant is not None and not math.isfinite(constant.real):
            raise DefinitionRuntimeError("iota: length, start, step must be finite numbers.")
        if name == "step" and constant is not None and constant == 0:
            raise DefinitionRuntimeError("iota: step value must not equal zero.")
    fusion = fusion_of("iota", count, first, stride)
    builder = fusion.builder()
    length_scalar: ir.Scalar | None = None
    if isinstance(count, Val):
        assert isinstance(count.node, ir.Scalar)
        extent = scalars.extent_of(builder, count.node)
        length_scalar = None if extent.is_const else count.node
    elif isinstance(count, int):
        extent = const(count)
    else:
        raise ArgumentMismatch("length must be an integer.")
    if extent.is_const and extent.value < 0:
        raise DefinitionRuntimeError(f"iota: length must not be negative, got {extent.value}")
    tensor = builder.iota(extent, _scalar_of(fusion, first), _scalar_of(fusion, stride), result, length_scalar)
    return fusion.tensor_handle(tensor)


FACTORIES: dict[str, Callable[..., object]] = {"full": full, "iota": iota}
"""Every op of this module by name."""
