"""The reasons for a choice of parameters, as text that is made when it is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import overload


class Reasons(Sequence[str]):
    """A sequence of sentences, computed on first access: their text takes longer to make than the parameters."""

    __slots__ = ("_find", "_words")

    def __init__(self, find: Callable[[], Iterable[str]]) -> None:
        self._find = find
        self._words: tuple[str, ...] | None = None

    @staticmethod
    def of(words: tuple[str, ...]) -> Reasons:
        """Reasons whose sentences are known."""
        return Reasons(lambda: words)

    def words(self) -> tuple[str, ...]:
        """The sentences."""
        if self._words is None:
            self._words = tuple(self._find())
        return self._words

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self.words()[index]

    def __len__(self) -> int:
        return len(self.words())

    def __repr__(self) -> str:
        return repr(self.words())
