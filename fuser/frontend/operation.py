"""What every op of the DSL shares: argument checks, the fusion it belongs to, and errors at the user's line.

`@operation(signature)` turns a function into an op: a call that does not bind, and any `ArgumentMismatch` raised while
it looks at its arguments, become `<name>(): incompatible function arguments`; an error without a place gets the user's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeGuard, TypeVar

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, FuserError
from fuser.frontend.fusion_handle import Fusion, require_active_fusion
from fuser.frontend.handles import TensorView, Val
from fuser.ir import fusion as ir
from fuser.ir.dtypes import DataType
from fuser.source_location import caller_location

P = ParamSpec("P")
R = TypeVar("R")

Number = bool | int | float | complex
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class ArgumentMismatch(Exception):
    """An argument of a kind that no overload takes; `operation` turns it into the TypeError of the contract."""


def operation(*signatures: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function an op of the DSL. `signatures` are its overloads, as shown when no one matches."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = signatures[0].partition("(")[0]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except ArgumentMismatch as mismatch:
                raise mismatch_error(name, signatures, args, kwargs, str(mismatch)) from None
            except FuserError as error:
                if error.location is None:
                    error.location = caller_location()
                raise
            except TypeError as error:
                # Only a call that did not bind fails in this very frame.
                trace = error.__traceback__
                if trace is None or trace.tb_next is not None:
                    raise
                reason = str(error).replace(f"{function.__qualname__}()", f"{name}()")
                raise mismatch_error(name, signatures, args, kwargs, reason) from None

        call.__name__ = call.__qualname__ = name
        return call

    return decorate


def checked_call(
    signatures: Sequence[str], args: tuple[object, ...], kwargs: dict[str, Any], function: Callable[[], R]
) -> R:
    """`function()` with the errors of an op whose caller passed `args` and `kwargs`."""
    name = signatures[0].partition("(")[0]
    try:
        return function()
    except ArgumentMismatch as mismatch:
        raise mismatch_error(name, signatures, args, kwargs, str(mismatch)) from None
    except FuserError as error:
        if error.location is None:
            error.location = caller_location()
        raise


def mismatch_error(
    name: str, signatures: Sequence[str], args: Sequence[object], kwargs: dict[str, Any], reason: str
) -> DefinitionTypeError:
    """The error of a call that matches no overload."""
    given = [kind_text(a) for a in args] + [f"{k}={kind_text(v)}" for k, v in kwargs.items()]
    supported = "".join(f"\n    {s}" for s in signatures)
    return DefinitionTypeError(
        f"{name}(): incompatible function arguments. {reason}\nSupported:{supported}\n"
        f"Called with: {name}({', '.join(given)})",
        location=caller_location(),
    )


def kind_text(value: object) -> str:
    """The type of an argument as an error shows it."""
    if isinstance(value, list | tuple) and value:
        inner = dict.fromkeys(kind_text(v) for v in value)
        return f"{type(value).__name__}[{' | '.join(inner)}]"
    return type(value).__name__


# --- arguments --------------------------------------------------------------------------------------------------------


def tensor_argument(name: str, value: object) -> TensorView:
    """A TensorView, or ArgumentMismatch."""
    if not isinstance(value, TensorView):
        raise ArgumentMismatch(f"{name} must be a TensorView, got {type(value).__name__}.")
    return value


def is_number(value: object) -> TypeGuard[Number]:
    """True for Python numbers and NumPy's number objects; ints must fit 64 bits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return INT64_MIN <= value <= INT64_MAX
    if isinstance(value, float | complex | bool):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.number | numpy.bool_)


def plain_number(value: Number) -> Number:
    """The Python number in an instance of a subclass or a NumPy number."""
    if type(value) in (bool, int, float, complex):
        return value
    if hasattr(value, "item"):
        return value.item()  # type: ignore[union-attr, no-any-return]
    for kind in (bool, int, float, complex):
        if isinstance(value, kind):
            return kind(value)  # type: ignore[arg-type]
    raise ArgumentMismatch(f"expected a number, got {type(value).__name__}.")


def operand_argument(name: str, value: object) -> Val | Number:
    """A TensorView, scalar Val or number, or ArgumentMismatch."""
    if isinstance(value, Val):
        return value
    if is_number(value):
        return plain_number(value)
    if isinstance(value, int):
        raise ArgumentMismatch(f"{name}={value} does not fit 64 bits.")
    raise ArgumentMismatch(f"{name} must be a TensorView, a Val or a number, got {type(value).__name__}.")


def scalar_argument(name: str, value: object) -> Val | Number:
    """A scalar Val or number, or ArgumentMismatch."""
    found = operand_argument(name, value)
    if isinstance(found, TensorView):
        raise ArgumentMismatch(f"{name} must be a scalar, got a TensorView.")
    return found


def dtype_argument(name: str, value: object) -> DataType:
    """A DataType, or ArgumentMismatch."""
    if not isinstance(value, DataType):
        raise ArgumentMismatch(f"{name} must be a DataType, got {type(value).__name__}.")
    return value


def bool_argument(name: str, value: object) -> bool:
    """A bool, or ArgumentMismatch."""
    if not isinstance(value, bool):
        raise ArgumentMismatch(f"{name} must be a bool, got {type(value).__name__}.")
    return value


def int_argument(name: str, value: object) -> int:
    """An integer of 64 bits, or ArgumentMismatch."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, Val):
        raise ArgumentMismatch(f"{name} must be an int, got {type(value).__name__}.")
    found = value.__index__()  # type: ignore[attr-defined]
    if not INT64_MIN <= found <= INT64_MAX:
        raise ArgumentMismatch(f"{name}={found} does not fit 64 bits.")
    return found


def sequence_argument(name: str, value: object) -> list[Any]:
    """The items of any sequence but text, or ArgumentMismatch."""
    if isinstance(value, str | bytes | Val) or not isinstance(value, Iterable):
        raise ArgumentMismatch(f"{name} must be a sequence, got {type(value).__name__}.")
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
                    f"{name}[{i}] must be an integer, got a scalar of dtype {entry.node.dtype.name}"
                )
            constant = entry.node.value if isinstance(entry.node, ir.Scalar) else None
            entry = entry if constant is None else int(constant.real)
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


# --- fusions ----------------------------------------------------------------------------------------------------------


def fusion_of(name: str, *values: object) -> Fusion:
    """The fusion of the operands, or the active one if none has one.

    Raises DefinitionRuntimeError if there is none, or if operands belong to two.
    """
    found: Fusion | None = None
    for value in values:
        if isinstance(value, Val):
            if found is not None and value.fusion is not found:
                raise DefinitionRuntimeError(f"{name}(): the operands belong to two different fusions")
            found = value.fusion
    return found if found is not None else require_active_fusion(f"{name}()")
