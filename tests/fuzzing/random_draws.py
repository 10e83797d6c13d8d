"""Random decisions that are written down, so that what was made of them can be made again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Unfit(Exception):
    """What is made again cannot be made as it was."""


class Draws:
    """Decisions of a seed; where `log`, those of an earlier one, is given, the same decisions.

    Of a choice the position is written down, not what is there: it may be another extent the next time.
    """

    def __init__(self, seed: int, log: Sequence[Any] | None = None) -> None:
        self.log: list[Any] = []
        self._random = random.Random(seed)
        self._earlier: Iterator[Any] | None = None if log is None else iter(log)

    def made(self, draw: Callable[[random.Random], T]) -> T:
        """What `draw` gives, or gave earlier. Raises Unfit where nothing was drawn."""
        try:
            value = draw(self._random) if self._earlier is None else next(self._earlier)
        except StopIteration:
            raise Unfit from None
        self.log.append(value)
        return value

    def said(self, answer: bool) -> bool:
        """The answer. Raises Unfit if it was another one earlier."""
        if self.made(lambda _: answer) is not answer:
            raise Unfit
        return answer

    def random(self) -> float:
        """See random.Random, here and below."""
        value: object = self.made(lambda r: r.random())
        if not isinstance(value, float):
            raise Unfit
        return value

    def randint(self, low: int, high: int) -> int:
        return self.made(lambda r: r.randint(low, high))

    def randrange(self, end: int) -> int:
        return self.made(lambda r: r.randrange(end))

    def choice(self, found: Sequence[T]) -> T:
        return _at(found, self.made(lambda r: r.randrange(len(found))))

    def sample(self, found: Sequence[T], count: int) -> list[T]:
        positions = self.made(lambda r: r.sample(range(len(found)), count))
        if not isinstance(positions, list) or len(positions) != count:
            raise Unfit
        return [_at(found, i) for i in positions]

    def shuffle(self, found: MutableSequence[T]) -> None:
        found[:] = self.sample(found, len(found))


def _at(found: Sequence[T], position: int) -> T:
    if not isinstance(position, int) or position >= len(found):
        raise Unfit
    return found[position]
