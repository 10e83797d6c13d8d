"""Inputs and constants of a fusion: the argument rules of define_tensor, define_scalar and define_vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fuser.errors import DefinitionRuntimeError, NotSupportedError
from fuser.frontend.active_fusion import require_active_fusion
from fuser.frontend.handles import Owner, TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    bool_argument,
    check_extent,
    checked_call,
    checked_stride_order,
    dtype_argument,
    int_argument,
    int_list_argument,
    is_bool,
    is_index,
    is_number,
    plain_number,
    sequence_argument,
)
from fuser.frontend.scalars import constant
from fuser.frontend.tensor_descriptor import compute_tensor_descriptor
from fuser.ir.ops.dtypes import AS_WORDS, DataType, as_dtype, scalar_type
from fuser.tracebacks import short_traceback

Contiguity = tuple[bool | None, ...]

_TENSOR_OVERLOADS = (
    "define_tensor(shape: Sequence[int], contiguity: Sequence[bool | None], dtype: DataType = DataType.Float, "
    "is_cpu: bool = False, stride_order: Sequence[int] = []) -> TensorView",
    "define_tensor(shape: Sequence[int], contiguity: bool = False, dtype: DataType = DataType.Float, "
    "is_cpu: bool = False, stride_order: Sequence[int] = []) -> TensorView",
    "define_tensor(sizes: Sequence[int], strides: Sequence[int], dtype: DataType = DataType.Float, "
    "static_sizes: bool = False, is_cpu: bool = False) -> TensorView",
)
_BY_SHAPE = ("shape", "contiguity", "dtype", "is_cpu", "stride_order")
_BY_STRIDES = ("sizes", "strides", "dtype", "static_sizes", "is_cpu")


def define_tensor_in(fusion: Owner, args: tuple[Any, ...], kwargs: dict[str, Any], *, register: bool) -> TensorView:
    """A tensor of `fusion`, by one of the three overloads; `register` makes it the next input."""

    def define() -> TensorView:
        if _gives_strides(args, kwargs):
            return _define_by_strides(fusion, _bind(_BY_STRIDES, args, kwargs, required=2), register)
        return _define_by_shape(fusion, _bind(_BY_SHAPE, args, kwargs, required=1), register)

    return checked_call(_TENSOR_OVERLOADS, args, kwargs, define)


def _gives_strides(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if not kwargs.keys().isdisjoint(("sizes", "strides", "static_sizes")):
        return True
    if len(args) < 2 or isinstance(args[1], str) or not hasattr(args[1], "__iter__"):
        return False
    # A list of ints is strides, a list of bools and None is contiguity; an empty one is contiguity.
    return any(not is_bool(entry) and entry is not None for entry in args[1])


def _bind(names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any], required: int) -> dict[str, Any]:
    """Arguments by name. ArgumentMismatch for unknown, repeated and missing ones."""
    if len(args) > len(names):
        raise ArgumentMismatch(f"It takes at most {len(names)} arguments, got {len(args)}.")
    bound: dict[str, Any] = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise ArgumentMismatch(f"There is no argument {name!r} in this overload.")
        if name in bound:
            raise ArgumentMismatch(f"{name} is given twice.")
        bound[name] = value
    for name in names[:required]:
        if name not in bound:
            raise ArgumentMismatch(f"{name} is missing.")
    return bound


def _define_by_shape(fusion: Owner, given: dict[str, Any], register: bool) -> TensorView:
    shape = _shape(given["shape"])
    rank = len(shape)
    contiguity = given.get("contiguity", False)
    listed = None if is_bool(contiguity) else _contiguity_list(contiguity)
    dtype = dtype_argument("dtype", given.get("dtype", DataType.Float))
    is_cpu = bool_argument("is_cpu", given.get("is_cpu", False))
    order = given.get("stride_order")
    order_given = [] if order is None else int_list_argument("stride_order", order)
    for i, n in enumerate(shape):
        check_extent(n, i)
    order = checked_stride_order(order_given, rank)
    memory = [0] * rank
    for d, position in enumerate(order):
        memory[rank - 1 - position] = d
    if listed is None:
        flags: Contiguity = tuple(None if shape[d] == 1 else bool(contiguity) for d in memory)
    else:
        if len(listed) != rank:
            raise DefinitionRuntimeError(
                f"Length of contiguity argument ({len(listed)}) must match that of shape argument ({rank})"
            )
        # The entry of a size-1 dim says nothing, whatever it is.
        flags = tuple(None if shape[d] == 1 else flag for d, flag in zip(memory, listed, strict=True))
    expanded = [False] * rank
    for d, flag in zip(memory, flags, strict=True):
        expanded[d] = flag is None and shape[d] != 1
    return _make_tensor(fusion, shape, dtype, flags, order, expanded, is_cpu, register)


def _shape(value: Any) -> list[int]:
    try:
        return int_list_argument("shape", value)
    except ArgumentMismatch as mismatch:
        if hasattr(value, "dtype"):
            advice = ": fd.from_array(x) defines an input like an array"
        elif not isinstance(value, str) and isinstance(value, Iterable) and not all(map(is_index, value)):
            advice = ": -1 takes any size"
        else:
            raise
        raise ArgumentMismatch(f"{str(mismatch).rstrip('.')}{advice}.") from None


def _contiguity_list(value: object) -> list[bool | None]:
    dtype = as_dtype(value)
    if isinstance(value, str | type) or dtype is not None or value is None:
        given = repr(value) if isinstance(value, str) else type(value).__name__
        meant = "" if dtype is None else f": write dtype={dtype!r}"
        raise ArgumentMismatch(f"contiguity must be a bool or a sequence of bools, got {given}{meant}.")
    entries = sequence_argument("contiguity", value)
    return [None if e is None else bool_argument(f"contiguity[{i}]", e) for i, e in enumerate(entries)]


def _define_by_strides(fusion: Owner, given: dict[str, Any], register: bool) -> TensorView:
    sizes = int_list_argument("sizes", given["sizes"])
    strides = int_list_argument("strides", given["strides"])
    dtype = dtype_argument("dtype", given.get("dtype", DataType.Float))
    static_sizes = bool_argument("static_sizes", given.get("static_sizes", False))
    is_cpu = bool_argument("is_cpu", given.get("is_cpu", False))
    if len(sizes) != len(strides):
        raise DefinitionRuntimeError(
            f"sizes and strides must have the same number of entries, got {len(sizes)} and {len(strides)}"
        )
    for i, n in enumerate(sizes):
        if n < 0:
            raise DefinitionRuntimeError(f"sizes must not be negative, the entry at index {i} is {n}")
    flags, order = compute_tensor_descriptor(sizes, strides)
    shape = sizes if static_sizes else [1 if n == 1 else -1 for n in sizes]
    expanded = [n != 1 and stride == 0 for n, stride in zip(sizes, strides, strict=True)]
    return _make_tensor(fusion, shape, dtype, flags, order, expanded, is_cpu, register)


def _make_tensor(
    fusion: Owner,
    shape: Sequence[int],
    dtype: DataType,
    contiguity: Contiguity,
    stride_order: tuple[int, ...],
    expanded: Sequence[bool],
    is_cpu: bool,
    register: bool,
) -> TensorView:
    if is_cpu and shape:
        raise DefinitionRuntimeError("CPU non-scalar tensor is not supported!")
    require_supported_dtype("define_tensor", dtype)
    tensor = fusion.builder().input_tensor(
        dtype,
        shape,
        expanded=expanded,
        stride_order=stride_order,
        contiguity=contiguity,
        is_cpu=is_cpu,
        register=register,
    )
    return fusion.tensor_handle(tensor)


def require_supported_dtype(what: str, dtype: DataType) -> None:
    """Raise for Null (DefinitionRuntimeError) and for types that come later (NotSupportedError)."""
    if dtype is DataType.Null:
        raise DefinitionRuntimeError(f"{what}() needs a dtype, got Null")
    if not dtype.is_supported:
        advice = f"; {AS_WORDS}" if dtype.itemsize == 1 and what == "define_tensor" else ""
        raise NotSupportedError(f"{what}(): dtype {dtype.name} is not supported yet{advice}")


# --- scalars ----------------------------------------------------------------------------------------------------------

_SCALAR_OVERLOADS = (
    "define_scalar(dtype: DataType = DataType.Double) -> Val",
    "define_scalar(value: None, dtype: DataType = DataType.Double) -> Val",
    "define_scalar(value: bool | int | float | complex, dtype: DataType | None = None) -> Val",
)


def define_scalar_in(fusion: Owner, args: tuple[Any, ...], kwargs: dict[str, Any], *, register: bool) -> Val:
    """A symbolic scalar (`register` makes it the next input) or a constant of `fusion`."""

    def define() -> Val:
        # A first argument that names a dtype is no value.
        names_dtype = bool(args) and (isinstance(args[0], str | type) or as_dtype(args[0]) is not None)
        names = ("dtype",) if names_dtype else ("value", "dtype")
        if names_dtype and len(args) == 2 and is_number(args[1]):
            raise ArgumentMismatch("The value comes first, and its dtype after it.")
        given = _bind(names, args, kwargs, required=0)
        value = given.get("value")
        dtype = None if given.get("dtype") is None else dtype_argument("dtype", given["dtype"])
        if dtype is not None:
            require_supported_dtype("define_scalar", dtype)
        builder = fusion.builder()
        if value is None:
            return fusion.handle(builder.input_scalar(dtype or DataType.Double, register=register))
        fits_unsigned = dtype is DataType.UInt64 and hasattr(value, "__index__") and 0 <= int(value) < 2**64
        if not fits_unsigned and not is_number(value):
            raise ArgumentMismatch(
                f"value must be a bool, int, float or complex of at most 64 bits a part, got {value!r}."
            )
        number = plain_number(value)
        target = dtype or scalar_type(number)
        if isinstance(number, complex) and not target.is_complex:
            raise DefinitionRuntimeError(f"the constant {number} has no value of dtype {target.name}")
        if isinstance(number, float) and target.is_integral and number != number // 1:
            raise DefinitionRuntimeError(f"the constant {number} has no value of dtype {target.name}")
        return fusion.handle(constant(builder, number, target))

    return checked_call(_SCALAR_OVERLOADS, args, kwargs, define)


def define_vector_in(fusion: Owner, size: object) -> list[Val]:
    """`size` symbolic Int scalars, registered in order."""

    def define() -> list[Val]:
        count = int_argument("size", size)
        if count < 0:
            raise DefinitionRuntimeError(f"define_vector(): the size must not be negative, got {count}")
        builder = fusion.builder()
        return [fusion.handle(builder.input_scalar(DataType.Int)) for _ in range(count)]

    return checked_call(("define_vector(size: int) -> list[Val]",), (size,), {}, define)


# --- module level -----------------------------------------------------------------------------------------------------


@short_traceback
def define_tensor(*args: Any, **kwargs: Any) -> TensorView:
    """A tensor of the active fusion that is not registered as an input; overloads as FusionDefinition.define_tensor."""
    return define_tensor_in(require_active_fusion("define_tensor"), args, kwargs, register=False)


@short_traceback
def define_scalar(*args: Any, **kwargs: Any) -> Val:
    """A scalar of the active fusion that is not registered as an input; forms as FusionDefinition.define_scalar."""
    return define_scalar_in(require_active_fusion("define_scalar"), args, kwargs, register=False)
