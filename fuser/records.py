"""Frozen slotted dataclasses that are cheap to make: `record` does what `dataclass(frozen=True, slots=True)` does.

Every node of an IR is such a class, and there are far more of them than a process uses. `dataclasses` compiles each method of
each class by itself, five to seven of them, for about 0.8 ms a class: more than half of what `import fuser.compiler` would
take. Here a class's `__init__`, `__eq__` and `__hash__` are one piece of text, which is compiled once for all classes with as
many fields and renamed for each, and the other methods, which are not asked often, are shared by all records.

What `dataclasses` offers for classes of its own (`fields`, `replace`, `asdict`) works for records too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, field
from functools import cache
from types import CodeType
from typing import Any, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@overload
def record(cls: type[_T], /) -> type[_T]: ...
@overload
def record(*, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def record(cls: type[_T] | None = None, /, *, eq: bool = True) -> type[_T] | Callable[[type[_T]], type[_T]]:
    """Make a frozen class with slots of the annotated names of `cls`, in order, those of a base that is a record first.

    eq   whether records compare, and hash, by their fields (those with `compare`); else by identity

    Defaults, `default_factory`, `compare` and `repr` of `field` are known. Raises TypeError for what is not: `kw_only`,
    `init=False`, `hash`, `ClassVar`, a mutable default, a field named `self`, a dataclass as a base.
    """
    if cls is None:
        return lambda made: _make(made, eq)
    return _make(cls, eq)


def _make(cls: type[_T], eq: bool) -> type[_T]:
    inherited: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited.update(base.__dict__.get("__record_defaults__", {}))
    annotations = cls.__annotations__
    own: dict[str, Any] = {name: cls.__dict__.get(name, MISSING) for name in annotations}
    defaults = {**inherited, **own}
    _check(cls, annotations, own)
    members = {k: v for k, v in cls.__dict__.items() if k not in annotations and k not in ("__dict__", "__weakref__")}
    members["__slots__"] = tuple(name for name in own if name not in inherited)
    members["__record_defaults__"] = defaults
    members["__match_args__"] = tuple(defaults)
    members["__dataclass_fields__"] = _Fields()
    setters: dict[str, Any] = {}
    members |= _compiled(cls, defaults, eq, setters)
    for name, shared in _SHARED.items():
        members.setdefault(name, shared)
    made = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    # Slots set themselves faster than `object.__setattr__` finds them.
    setters.update({f"_set_field{k}": getattr(made, name).__set__ for k, name in enumerate(defaults)})
    return made


def _check(cls: type, annotations: dict[str, Any], own: dict[str, Any]) -> None:
    for base in cls.__mro__[1:]:
        if "__dataclass_fields__" in base.__dict__ and "__record_defaults__" not in base.__dict__:
            raise TypeError(f"{cls.__name__}: its base {base.__name__} is a dataclass and no record")
    if "self" in annotations:
        raise TypeError(f"{cls.__name__}: a field of a record is not named self, as what its methods are given first")
    if any("ClassVar" in str(a) or "InitVar" in str(a) for a in annotations.values()):
        raise TypeError(f"{cls.__name__}: a record has no ClassVar and no InitVar")
    for name, default in own.items():
        if isinstance(default, Field) and (not default.init or default.kw_only is True or default.hash is not None):
            raise TypeError(f"{cls.__name__}.{name}: a field of a record has a default, compare and repr only")
        if isinstance(default, (list, dict, set)):
            raise TypeError(f"{cls.__name__}.{name}: a mutable default would be shared; use default_factory")


def _compiled(cls: type, defaults: dict[str, Any], eq: bool, setters: dict[str, Any]) -> dict[str, Any]:
    """`__init__`, and with `eq` `__eq__` and `__hash__`, where the class has none of its own. `setters` become globals of the
    first: there are none before there is the class."""
    made = _initializer(cls, defaults, setters)
    if eq:
        made |= _comparison([n for n, d in defaults.items() if not isinstance(d, Field) or d.compare])
    for method in made.values():
        method.__module__ = cls.__module__
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
    # A class with an __eq__ of its own and no __hash__ has None for one.
    return {k: v for k, v in made.items() if cls.__dict__.get(k) is None}


def _initializer(cls: type, defaults: dict[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
    scope["_missing"] = MISSING
    names = {f"field{k}": name for k, name in enumerate(defaults)}
    body: list[str] = []
    given: list[object] = []
    for name, default in zip(names, defaults.values(), strict=True):
        value, plain, factory = name, default, MISSING
        if isinstance(default, Field):
            plain, factory = default.default, default.default_factory
        if factory is not MISSING:
            scope[f"_make_{name}"] = factory
            given.append(MISSING)
            value = f"_make_{name}() if {name} is _missing else {name}"
        elif plain is not MISSING:
            given.append(plain)
        elif given:
            raise TypeError(f"{cls.__name__}.{names[name]}: a field without a default stands behind one that has one")
        body.append(f"    _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    made = _run(f"def __init__({', '.join(['self', *names])}):", *(body or ["    pass"]), names=names, scope=scope)
    # Not in the text, which has to be compiled for each that differs.
    made["__init__"].__defaults__ = tuple(given)
    return made


def _comparison(compared: list[str]) -> dict[str, Any]:
    names = {f"field{k}": name for k, name in enumerate(compared)}
    mine, theirs = (f"({''.join(f'{who}.{n}, ' for n in names)})" for who in ("self", "other"))
    return _run(
        "def __eq__(self, other):",
        "    if other.__class__ is not self.__class__:",
        "        return NotImplemented",
        f"    return {mine} == {theirs}",
        "def __hash__(self):",
        f"    return hash({mine})",
        names=names,
        scope={},
    )


def _run(*lines: str, names: dict[str, str], scope: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(_renamed(_code("\n".join(lines)), names), scope, made)
    return made


@cache
def _code(text: str) -> CodeType:
    return compile(text, "<record>", "exec")


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    """The same code with other names for its variables and attributes, and for constants that are names."""

    def new_constant(constant: object) -> object:
        if isinstance(constant, CodeType):
            return _renamed(constant, names)
        return names.get(constant, constant) if isinstance(constant, str) else constant

    return code.replace(
        co_varnames=tuple([names.get(n, n) for n in code.co_varnames]),
        co_names=tuple([names.get(n, n) for n in code.co_names]),
        co_consts=tuple([new_constant(c) for c in code.co_consts]),
    )


# --- what all records share -------------------------------------------------------------------------------------------


def _no_assignment(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _text(self: Any) -> str:
    shown = (n for n, default in self.__record_defaults__.items() if not isinstance(default, Field) or default.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _values(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__record_defaults__]


def _set_values(self: Any, values: list[object]) -> None:
    for name, value in zip(self.__record_defaults__, values, strict=True):
        object.__setattr__(self, name, value)


_SHARED: dict[str, Any] = {
    "__setattr__": _no_assignment,
    "__delattr__": _no_deletion,
    "__repr__": _text,
    # Copies and pickles go past the frozen `__setattr__`.
    "__getstate__": _values,
    "__setstate__": _set_values,
}


class _Fields:
    """`__dataclass_fields__` of a record, made on first need: what `dataclasses` makes of the same fields."""

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, Any]:
        annotations: dict[str, Any] = {}
        for base in reversed(owner.__mro__):
            if "__record_defaults__" in base.__dict__:
                annotations.update(base.__annotations__)
        defaults = {name: d for name, d in owner.__record_defaults__.items() if d is not MISSING}
        # Without a docstring `dataclass` would make one of the signature, for most of the time that it takes.
        about = {"__annotations__": annotations, "__module__": owner.__module__, "__doc__": owner.__name__}
        same = type(owner.__name__, (), {**about, **defaults})
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(same)
        found: dict[str, Any] = made.__dataclass_fields__
        owner.__dataclass_fields__ = found
        return found
