"""`Named`: the metaclass of the enumerations that users write, which says what a name or value that is none may mean.

DataType.float32, DataType["float32"]    DataType has no member 'float32'; did you mean DataType.Float?
ParallelType("block_x")                  'block_x' is no value of a ParallelType; write ParallelType.block_x
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum, EnumType
from typing import TYPE_CHECKING, Any

from fuser.errors import DefinitionAttributeError, DefinitionKeyError, DefinitionValueError
from fuser.tracebacks import short_traceback


class Named(EnumType):
    """Each kind of look-up raises what Python's does: AttributeError, KeyError and ValueError.

    An enumeration may have its own `spelled`.
    """

    def spelled(cls, value: object) -> Enum | None:
        """The member that other libraries spell so."""
        return None

    if not TYPE_CHECKING:

        @short_traceback
        def __getattr__(cls, name: str) -> Any:
            found = cls.__dict__.get("_member_map_", {}).get(name)
            if found is not None:
                return found
            message = f"{cls.__name__} has no member {name!r}"
            if name.startswith("_"):
                raise AttributeError(message)
            raise DefinitionAttributeError(f"{message}{_meant(cls, name)}", name)

        @short_traceback
        def __getitem__(cls, name: str) -> Any:
            found = cls._member_map_.get(name) if isinstance(name, str) else None
            if found is not None:
                return found
            raise DefinitionKeyError(f"{cls.__name__} has no member {name!r}{_meant(cls, name)}")

        @short_traceback
        def __call__(cls, value: Any, *more: Any, **options: Any) -> Any:
            try:
                return super().__call__(value, *more, **options)
            except ValueError:
                if more or options:
                    raise
            member = cls._member_map_.get(value) if isinstance(value, str) else None
            meant = f"; write {member!r}" if member is not None else _meant(cls, value)
            raise DefinitionValueError(f"{value!r} is no value of {cls.__name__}{meant}")


def _meant(cls: Named, name: object) -> str:
    """The member that a name is like, or what other libraries call so; else all there are."""
    like: object = cls.spelled(name.lower() if isinstance(name, str) else name)
    if like is None and isinstance(name, str):
        folded = {k.lower(): member for k, member in cls.__members__.items()}
        close = get_close_matches(name.lower(), folded, n=1, cutoff=0.8)
        like = folded[close[0]] if close else None
    return f"; did you mean {like!r}?" if like is not None else f"; they are {', '.join(cls.__members__)}"
