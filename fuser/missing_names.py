"""Names that modules and objects do not have, and calls of objects that are no functions: what to write instead.

    from fuser.ops import sofmax     DefinitionImportError, which says what softmax is written with
    program.execute([x])             DefinitionAttributeError: program.run([x]) runs it
    program([x])                     DefinitionTypeError: the same

What a message ends with has its punctuation in front, and is empty where there is nothing to say.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from fuser.errors import DefinitionAttributeError, DefinitionKeyError, DefinitionTypeError, missing_from_module
from fuser.tracebacks import short_traceback

C = TypeVar("C")
V = TypeVar("V")

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_OPERATORS = tuple(
    f"__{name}__"
    for name in (*_BINARY, *(f"r{name}" for name in _BINARY), "neg", "pos", "abs", "invert", "lt", "le", "gt", "ge")
)


def like_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names that are spelled like a name, the most similar first."""
    # One letter of three may differ, as in `sun`; longer names with so few letters in common are other words.
    return difflib.get_close_matches(name.lower(), list(known), n=3, cutoff=0.66 if len(name) <= 3 else 0.75)


class KnownNames(dict[str, V]):
    """Values by name. One that is not there is a DefinitionKeyError with what `missing` says of it; else a dict."""

    def __init__(self, values: Mapping[str, V], missing: Callable[[object], str]) -> None:
        super().__init__(values)
        self._missing = missing

    @short_traceback
    def __missing__(self, name: object) -> NoReturn:
        raise DefinitionKeyError(self._missing(name))

    def __reduce__(self) -> tuple[type[dict[str, V]], tuple[dict[str, V]]]:
        """Pickles and copies are plain dicts."""
        return dict, (dict(self),)


def refers_to_package(folder: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a folder of the package: a name that users import from the package is there."""

    @short_traceback
    def __getattr__(name: str) -> NoReturn:
        message = f"module {folder!r} has no attribute {name!r}"
        # Importing a submodule asks the folder for its name first, and nobody reads what the answer says.
        importing = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
        if name.startswith("_") or importing.startswith("importlib."):
            raise AttributeError(message)
        exports: Iterable[str] = sys.modules["fuser"].__all__
        like = [name] if name in exports else like_names(name, exports)
        raise missing_from_module(f"{message}" + (f"; write `from fuser import {like[0]}`" if like else ""), name)

    return __getattr__


def says_instead(
    call: str, names: Mapping[str, str] | None = None, items: str | None = None, operators: str | None = None
) -> Callable[[type[C]], type[C]]:
    """A class whose objects say what to write in place of a call of them, of names that they do not have, of a subscript and of
    arithmetic.

    call       what does what a call may mean: "program.run([x]) runs it"
    names      the same for names; others are compared with those that there are
    items      the same for subscripts; None leaves those to Python
    operators  the same for arithmetic and order
    """
    elsewhere = names or {}

    def decorate(cls: type[C]) -> type[C]:
        kind = cls.__name__

        @short_traceback
        def __call__(self: C, *_: object, **__: object) -> NoReturn:
            raise DefinitionTypeError(f"this {kind} is no function; {call}")

        @short_traceback
        def __getattr__(self: C, name: str) -> NoReturn:
            message = f"this {kind} has no attribute {name!r}"
            # Not for what Python and libraries look for, nor for fields of an object that is being made.
            if name.startswith("_"):
                raise AttributeError(message)
            if name in elsewhere:
                raise DefinitionAttributeError(f"{message}; {elsewhere[name]}", name)
            like = like_names(name, [known for known in dir(cls) if not known.startswith("_")])[:1]
            meant = f"; did you mean {like[0]}?" if like else ""
            raise DefinitionAttributeError(f"{message}{meant}", name)

        @short_traceback
        def __getitem__(self: C, key: object) -> NoReturn:
            raise DefinitionTypeError(f"this {kind} has no items; {items}")

        @short_traceback
        def compute(self: C, *_: object) -> NoReturn:
            raise DefinitionTypeError(f"this {kind} has no operators; {operators}")

        # Type checkers see none of these, and report calls, names, subscripts and operators themselves.
        methods: dict[str, Callable[..., Any]] = {"__call__": __call__, "__getattr__": __getattr__}
        if items is not None:
            methods["__getitem__"] = __getitem__
        if operators is not None:
            methods |= dict.fromkeys(_OPERATORS, compute)
        for name, method in methods.items():
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
        return cls

    return decorate
