"""What sizes and conditions of them cannot be asked while a program is written: errors that say what to write.

range(extent("x", 0)), int(..), float(..)    a size has no value until a program runs
extent("x", 0) and 3, extent("x", 0) < 3     conditions are less(a, b), ..., joined by all_of(p, q) and any_of(p, q)
extent("x", 0) / 2, ** 2, * 2.5              integers, computed by + - * // and %
less(a, b) & less(b, c), not less(a, b)      all_of(..), any_of(..), and the condition that is the other way round
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from fuser.errors import DefinitionTypeError
from fuser.tracebacks import short_traceback

C = TypeVar("C")

_NO_VALUE = (
    "has no value until a program runs: compute with + - * // and %; ForLoop, If and Switch do what depends on values, and "
    "array.shape has the sizes of an array"
)
_NO_ORDER = (
    "sizes have no order until a program runs; a condition of one is less(a, b), less_equal(a, b), equal(a, b) or "
    "not_equal(a, b) of fuser"
)
_NO_TRUTH = (
    "has no truth value until a program runs: If takes conditions, less(a, b), less_equal(a, b), equal(a, b) and "
    "not_equal(a, b) of fuser, and all_of(p, q) and any_of(p, q) join them"
)
_INTEGERS = "sizes are integers, computed by + - * // and %"
_JOINED = "all_of(p, q) and any_of(p, q) join conditions"

_VALUES = ("__index__", "__round__")
_ORDERS = ("__lt__", "__le__", "__gt__", "__ge__")
_BITS = ("__and__", "__or__", "__xor__")
_OPERATORS = {
    "__truediv__": "they are divided by //",
    "__pow__": "n * n is the square of one",
    **dict.fromkeys(_BITS, _JOINED),
    **dict.fromkeys(("__lshift__", "__rshift__"), "n * 2 and n // 2 shift one"),
}


def _refused(say: Callable[[Any], str]) -> Callable[..., NoReturn]:
    """A method that says what to write, whatever it is called with."""

    @short_traceback
    def refuse(self: object, *_: object) -> NoReturn:
        raise DefinitionTypeError(say(self))

    return refuse


def _add(cls: type, methods: Mapping[str, Callable[..., NoReturn]]) -> None:
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)


def symbolic_size(cls: type[C]) -> type[C]:
    """A class of sizes, of which Python asks what they cannot tell yet. Type checkers see none of it."""
    _add(cls, {name: _refused(lambda size: f"the size {size} {_NO_VALUE}") for name in _VALUES})
    _add(cls, {name: _refused(lambda _: _NO_ORDER) for name in _ORDERS})
    _add(cls, {"__bool__": _refused(lambda size: f"the size {size} {_NO_TRUTH}")})
    for name, instead in _OPERATORS.items():
        for spelled in (name, f"__r{name[2:]}"):
            _add(cls, {spelled: _refused(lambda _, instead=instead: f"{_INTEGERS}; {instead}")})
    return cls


def symbolic_condition(cls: type[C]) -> type[C]:
    """A class of conditions; see `symbolic_size`."""
    _add(
        cls,
        {
            "__bool__": _refused(
                lambda condition: (
                    f"the condition `{condition}` has no truth value: {_JOINED}, `condition is TRUE` asks "
                    "whether it is always so"
                )
            ),
            "__invert__": _refused(
                lambda condition: (
                    f"the condition `{condition}` is not inverted by ~: If(condition, (), body) runs a body "
                    "where it does not hold"
                )
            ),
        },
    )
    for name in _BITS:
        for spelled in (name, f"__r{name[2:]}"):
            _add(cls, {spelled: _refused(lambda condition: f"the condition `{condition}` has no operators: {_JOINED}")})
    return cls


@short_traceback
def not_computed_with(other: object) -> Any:
    """What an operator returns for an operand that is no integer. Raises DefinitionTypeError for other numbers and texts."""
    if isinstance(other, (complex, str)) or hasattr(other, "as_integer_ratio"):
        raise DefinitionTypeError(
            f"{_INTEGERS} of other integers, got {type(other).__name__} {other!r}: n * 5 // 2 is two and a half times n"
        )
    return NotImplemented
