"""Numbers that make the names of temporaries unique, for all passes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fuser.ir.kernel.kernel import Allocate, Stmt, walk
from fuser.ir.kernel.statement_scopes import defined_symbol

_NUMBERED = re.compile(r"_[A-Za-z]+(\d+)(?=_|$)")


class NameCounter:
    """Each number once, and none of those that `body`, if given, has in a name like `t5_c3` or `t5_c3_mean`.

    A name is what it is a temporary of, an underscore, what for, and the number.
    """

    def __init__(self, body: Iterable[Stmt] = ()) -> None:
        self._taken = {int(n) for name in _names(tuple(body)) for n in _NUMBERED.findall(name)}
        self._next = 0

    def __call__(self) -> int:
        """The least number that is free."""
        while self._next in self._taken:
            self._next += 1
        self._next += 1
        return self._next - 1


def _names(body: tuple[Stmt, ...]) -> Iterable[str]:
    for stmt in walk(body):
        if isinstance(stmt, Allocate):
            yield stmt.buffer.name
        elif (symbol := defined_symbol(stmt)) is not None:
            yield symbol.name
