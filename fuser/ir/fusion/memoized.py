"""Memoized questions about a fusion or a schedule.

`memoized`: what follows from the structure of a fusion alone is found once, however many shapes ask for it. Answers stand in
the fusion itself and name its own tensors and dims; a copy of the fusion finds its own.

`memoized_while_unchanged`: what follows from the exprs of a schedule is found once, until a verb replaces them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fuser.ir.fusion.fusion import Fusion

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Answering(Protocol):
    """What keeps answers about itself, and drops them when it changes."""

    answers: dict[Any, Any]


_B = TypeVar("_B", bound=Answering)


def memoized(find: Callable[Concatenate[Fusion, _P], _T]) -> Callable[Concatenate[Fusion, _P], _T]:
    """`find`, called once for each fusion and each of its other arguments, which must be hashable.

    Nobody may change what it answers: the next one to ask gets the same object.
    """

    @wraps(find)
    def asked(fusion: Fusion, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        known = fusion.answers
        key = (find, args, *kwargs.items()) if kwargs else (find, args)
        try:
            return known[key]
        except KeyError:
            # Two threads may both find it, and find the same.
            return known.setdefault(key, find(fusion, *args, **kwargs))

    return asked


def memoized_while_unchanged(find: Callable[[_B], _T]) -> Callable[[_B], _T]:
    """`find`, called once for each state of a schedule's exprs and the groups of their dims. Loops do not count.

    Nobody may change what it answers.
    """

    @wraps(find)
    def asked(schedule: _B, /) -> _T:
        known = schedule.answers
        if find not in known:
            known[find] = find(schedule)
        return known[find]

    return asked
