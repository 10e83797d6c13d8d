"""`once`: what follows from the structure of a fusion alone is found once, however many shapes ask for it.

The answers stand in the fusion itself and name its own tensors and dims; a copy of the fusion finds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from fuser.ir.fusion import Fusion

_P = ParamSpec("_P")
_T = TypeVar("_T")


def once(find: Callable[Concatenate[Fusion, _P], _T]) -> Callable[Concatenate[Fusion, _P], _T]:
    """`find`, called once for each fusion and each of its other arguments, which must be hashable.

    Nobody may change what it answers: the next one to ask gets the same object.
    """

    @wraps(find)
    def asked(fusion: Fusion, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        known = fusion.answers
        key = (find, args, *kwargs.items())
        try:
            return known[key]
        except KeyError:
            # Two threads may both find it, and find the same.
            return known.setdefault(key, find(fusion, *args, **kwargs))

    return asked
