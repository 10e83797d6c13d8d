"""What every op of the DSL shares: argument checks, the fusion it belongs to, and errors at the user's line.

`@operation(signature)` turns a function into an op: a call that does not bind, and any `ArgumentMismatch` raised while
it looks at its arguments, become `<name>(): incompatible function arguments`; an error without a place gets the user's.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ParamSpec, TypeGuard, TypeVar

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, FuserError, InternalError
from fuser.frontend.active_fusion import require_active_fusion
from fuser.frontend.handles import Owner, TensorView, Val
from fuser.frontend.signatures import merged_signature, name_of
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion import row_major_order
from fuser.ir.ops.dtypes import DataType, as_dtype, dtype_remedy
from fuser.source_location import caller_location
from fuser.tracebacks import shorten
from fuser.unbound_calls import mismatch_text

P = ParamSpec("P")
R = TypeVar("R")

Number = bool | int | float | complex
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class ArgumentMismatch(Exception):
    """An argument of a kind that no overload takes; `operation` turns it into the TypeError of the contract."""


def operation(*signatures: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function an op of the DSL. `signatures` are its overloads, as shown when no one matches."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = name_of(signatures[0])

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                try:
                    return function(*args, **kwargs)
                except ArgumentMismatch as mismatch:
                    raise mismatch_error(name, signatures, args, kwargs, str(mismatch)) from None
                except TypeError as error:
                    # Only a call that did not bind fails in this very frame.
                    trace = error.__traceback__
                    if trace is None or trace.tb_next is not None or isinstance(error, FuserError):
                        raise
                    reason = str(error).replace(f"{function.__qualname__}()", f"{name}()")
                    raise mismatch_error(name, signatures, args, kwargs, reason) from None
            except FuserError as error:
                _name_call(error, name)
                shorten(error)
                raise

        call.__name__ = call.__qualname__ = name
        call.__dict__.update(overloads=signatures, __signature__=merged_signature(signatures))
        return call

    return decorate


def checked_call(
    signatures: Sequence[str], args: tuple[object, ...], kwargs: dict[str, Any], function: Callable[[], R]
) -> R:
    """`function()` with the errors of an op whose caller passed `args` and `kwargs`."""
    name = name_of(signatures[0])
    try:
        try:
            return function()
        except ArgumentMismatch as mismatch:
            raise mismatch_error(name, signatures, args, kwargs, str(mismatch)) from None
    except FuserError as error:
        _name_call(error, name)
        shorten(error)
        raise


def _name_call(error: FuserError, name: str) -> None:
    """Begin the message with the call, unless it names it."""
    if not isinstance(error, InternalError) and re.search(rf"\w\(\)|\b{name}\b", error.message) is None:
        error.message = f"{name}(): {error.message}"
        error.args = (error.message,)


def mismatch_error(
    name: str, signatures: Sequence[str], args: Sequence[object], kwargs: dict[str, Any], reason: str
) -> DefinitionTypeError:
    """The error of a call that matches no overload: why, how it was called, and the overloads."""
    return DefinitionTypeError(mismatch_text(name, signatures, args, kwargs, reason), location=caller_location())


# --- arguments --------------------------------------------------------------------------------------------------------


def tensor_argument(name: str, value: object) -> TensorView:
    """A TensorView, or ArgumentMismatch."""
    if not isinstance(value, TensorView):
        full = (
            ": fd.ops.full(shape, value, dtype) makes a tensor of a number" if is_number(value) else meant_value(value)
        )
        raise ArgumentMismatch(f"{name} must be a TensorView, got {type(value).__name__}{full}.")
    return value


def meant_value(value: object) -> str:
    """What to write for what is no value of a fusion; begins with its punctuation, is empty where there is no telling."""
    if hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__"):
        return ": arrays are handed to execute, for an input that fd.define_tensor or fd.from_array defines"
    if isinstance(value, list | tuple) and value and all(map(is_number, value)):
        return (
            ": np.array makes an array of numbers, to be handed to execute for an input that fd.define_tensor defines"
        )
    return ": call it" if isinstance(value, FunctionType | MethodType | BuiltinFunctionType) else ""


def is_number(value: object) -> TypeGuard[Number]:
    """True for Python numbers and NumPy's number objects; ints must fit 64 bits."""
    if isinstance(value, float | complex | bool):
        return True
    if isinstance(value, int):
        return INT64_MIN <= value <= INT64_MAX
    kind = _numpy_kind(value)
    return bool(kind) and (kind != "u" or int(value) <= INT64_MAX)  # type: ignore[call-overload]


def _numpy_kind(value: Any) -> str:
    """b, i, u, f or c for a number object of NumPy (or ml_dtypes), else nothing."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic):
        return ""
    number: Any = value
    if number.dtype.kind in "biufc":
        return str(number.dtype.kind)
    return "f" if as_dtype(number.dtype) is not None else ""


_PYTHON_TYPES: dict[str, Callable[[Any], Number]] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def plain_number(value: Number) -> Number:
    """The Python number in an instance of a subclass or a NumPy number."""
    if type(value) in (bool, int, float, complex):
        return value
    kind = _numpy_kind(value) or next(k for k, t in (("i", int), ("f", float), ("c", complex)) if isinstance(value, t))
    return _PYTHON_TYPES[kind](value)


def operand_argument(name: str, value: object) -> Val | Number:
    """A TensorView, scalar Val or number, or ArgumentMismatch."""
    if isinstance(value, Val):
        return value
    if is_number(value):
        return plain_number(value)
    if isinstance(value, int):
        raise ArgumentMismatch(f"{name}={value} does not fit 64 bits.")
    raise ArgumentMismatch(
        f"{name} must be a TensorView, a Val or a number, got {type(value).__name__}{meant_value(value)}."
    )


def scalar_argument(name: str, value: object) -> Val | Number:
    """A scalar Val or number, or ArgumentMismatch."""
    found = operand_argument(name, value)
    if isinstance(found, TensorView):
        raise ArgumentMismatch(f"{name} must be a scalar, got a TensorView.")
    return found


def dtype_argument(name: str, value: object) -> DataType:
    """The DataType that an argument names (`as_dtype`), or ArgumentMismatch."""
    found = as_dtype(value)
    if found is not None:
        return found
    given = type(value).__name__
    if isinstance(value, str | type) or hasattr(value, "itemsize"):
        given += f" {value!r}"
    raise ArgumentMismatch(f"{name} must be a DataType, got {given}: {dtype_remedy(value)}.")


def is_bool(value: object) -> bool:
    """True for Python's bools and NumPy's."""
    return isinstance(value, bool) or _numpy_kind(value) == "b"


def bool_argument(name: str, value: object) -> bool:
    """A bool, NumPy's included, or 0 or 1 for one; ArgumentMismatch for anything else."""
    if is_bool(value):
        return bool(value)
    if not is_index(value):
        raise ArgumentMismatch(f"{name} must be a bool, got {type(value).__name__}.")
    if value not in (0, 1):
        raise ArgumentMismatch(f"{name} must be a bool, or 0 or 1 for one, got {value}.")
    return bool(value)


def is_index(value: object) -> bool:
    """True for integers of any library; bools, Vals and arrays of some rank are none."""
    return hasattr(value, "__index__") and not (is_bool(value) or isinstance(value, Val) or getattr(value, "shape", ()))


def int_argument(name: str, value: object) -> int:
    """An integer of 64 bits, or ArgumentMismatch."""
    if not is_index(value):
        raise ArgumentMismatch(f"{name} must be an int, got {type(value).__name__}.")
    found = value.__index__()  # type: ignore[attr-defined]
    if not INT64_MIN <= found <= INT64_MAX:
        raise ArgumentMismatch(f"{name}={found} does not fit 64 bits.")
    return found


def sequence_argument(name: str, value: object) -> list[Any]:
    """The items of any sequence but text, or ArgumentMismatch."""
    if isinstance(value, str | bytes | Val) or not isinstance(value, Iterable):
        listed = f": write [{value}]" if is_index(value) else ""
        if isinstance(value, Val):
            listed = ": write x.shape" if value.is_tensor() and name.endswith("shape") else ": write [x, y]"
        raise ArgumentMismatch(f"{name} must be a sequence, got {type(value).__name__}{listed}.")
    return list(value)


def int_list_argument(name: str, value: object) -> list[int]:
    """A list of ints, or ArgumentMismatch."""
    return [int_argument(f"{name}[{i}]", v) for i, v in enumerate(sequence_argument(name, value))]


def extent_list_argument(name: str, value: object) -> list[Val | int]:
    """Extents: ints >= -1 and integer Vals, mixed. ArgumentMismatch for other kinds."""
    entries: list[Val | int] = []
    for i, entry in enumerate(sequence_argument(name, value)):
        if isinstance(entry, Val):
            scalar_argument(f"{name}[{i}]", entry)
            if not entry.node.dtype.is_integral:
                raise DefinitionRuntimeError(
                    f"{name}[{i}] must be an integer, got a scalar of dtype {entry.node.dtype.name}; sizes are divided by //"
                )
            constant = entry.node.value if isinstance(entry.node, ir.Scalar) else None
            entry = entry if constant is None else int(constant.real)
        elif entry is None:
            raise ArgumentMismatch(
                f"{name}[{i}] must be an int, got None: -1 keeps a size, or takes what the others leave."
            )
        else:
            entry = int_argument(f"{name}[{i}]", entry)
        if isinstance(entry, int):
            check_extent(entry, i)
        entries.append(entry)
    return entries


def check_extent(value: int, index: int) -> None:
    """Raise DefinitionRuntimeError for a shape entry below -1."""
    if value < -1:
        raise DefinitionRuntimeError(
            f"The value {value} at index {index} was neither symbolic(-1), zero_element(0), broadcast(1), or static(>1)."
        )


def checked_stride_order(given: Sequence[int], rank: int) -> tuple[int, ...]:
    """A stride order of `rank` entries, 0 = fastest: row major for an empty one, negative entries wrapped.

    Raises DefinitionRuntimeError for another length, and for entries out of range or given twice.
    """
    if not given:
        return row_major_order(rank)
    if len(given) != rank:
        raise DefinitionRuntimeError(
            f"Length of stride_order argument ({len(given)}) must match that of shape argument ({rank})"
        )
    for position in given:
        if not -rank <= position < rank:
            raise DefinitionRuntimeError(
                f"stride_order argument is out of range, expects values between {-rank} and {rank - 1}, got {position}"
            )
    order = tuple(p % rank for p in given)
    if len(set(order)) != rank:
        raise DefinitionRuntimeError(f"duplicated stride_order entries: {list(given)}")
    return order


# --- fusions ----------------------------------------------------------------------------------------------------------


def fusion_of(name: str, *values: object) -> Owner:
    """The fusion of the operands, or the active one if none has one.

    Raises DefinitionRuntimeError if there is none, or if operands belong to two.
    """
    found: Owner | None = None
    for value in values:
        if isinstance(value, Val):
            if found is not None and value.fusion is not found:
                raise DefinitionRuntimeError(
                    f"{name}(): the operands belong to two different fusions; values are used in the `with` block "
                    f"that made them"
                )
            found = value.fusion
    return found if found is not None else require_active_fusion(f"{name}()")
