"""Bodies of kernels with statements, symbols or buffers replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from fuser.ir.integers.integers import Int, Substitution, Symbol
from fuser.ir.kernel.kernel import Allocate, Buffer, For, Stmt, map_child_bodies

_FIRST_NAME = re.compile(r"^\w+")
_Node = TypeVar("_Node")


def map_body(body: tuple[Stmt, ...], rewrite: Callable[[Stmt], tuple[Stmt, ...] | None]) -> tuple[Stmt, ...]:
    """Rewrite statements bottom-up: `rewrite` gives the replacement, or None to keep the statement.

    Sharing is kept: an unchanged list is returned as the same object.
    """
    result: list[Stmt] = []
    changed = False
    for stmt in body:
        current = map_child_bodies(stmt, lambda inner: map_body(inner, rewrite))
        replacement = rewrite(current)
        if replacement is None:
            result.append(current)
            changed = changed or current is not stmt
        else:
            result.extend(replacement)
            changed = True
    return tuple(result) if changed else body


def map_loops(body: Sequence[Stmt], rewrite: Callable[[For], Iterable[Stmt]]) -> tuple[Stmt, ...]:
    """Replace every loop that no other loop is around, in tests too."""
    result: list[Stmt] = []
    for stmt in body:
        result += rewrite(stmt) if isinstance(stmt, For) else [map_child_bodies(stmt, lambda b: map_loops(b, rewrite))]
    return tuple(result)


def substitute_symbols(body: tuple[Stmt, ...], values: dict[Symbol, Int]) -> tuple[Stmt, ...]:
    """A body with symbols replaced in every index, bound and condition; not where a statement gives one its value."""
    substitution = Substitution(values)
    mapper = _OperandMapper({"Int": substitution.integer, "Cond": substitution.condition})
    return tuple(map(mapper.mapped, body))


def substitute_buffers(body: tuple[Stmt, ...], buffers: Mapping[Buffer, Buffer]) -> tuple[Stmt, ...]:
    """A body that reads and writes other buffers in the places of some. Their declarations stay: whoever joins two arrays says
    where the one is declared."""

    def buffer(b: Buffer) -> Buffer:
        return buffers.get(b, b)

    return tuple(map(_OperandMapper({"Buffer": buffer}, unchanged=Allocate).mapped, body))


class _OperandMapper:
    """Rewrites operands of one type wherever statements have them, nested statements and values included.

    rewrites    by name of the type in the annotations of nodes: a symbol that a statement defines is a `Symbol`, no `Int`
    unchanged   statements that stay as they are
    """

    def __init__(self, rewrites: Mapping[str, Callable[[Any], Any]], unchanged: type[Stmt] | tuple[()] = ()) -> None:
        self._rewrites = {**rewrites, "Value": self.mapped, "Stmt": self.mapped}
        self._unchanged = unchanged

    def mapped(self, node: _Node) -> _Node:
        """A statement or value with its operands rewritten; the same object if all of them are."""
        if isinstance(node, self._unchanged):
            return node
        operands: list[Any] = []
        changed = False
        for name, kind, is_tuple in _operands(type(node)):
            old = getattr(node, name)
            rewrite = self._rewrites.get(kind)
            if rewrite is None or old is None:
                new = old
            elif is_tuple:
                new = tuple(map(rewrite, old))
                new = old if all(a is b for a, b in zip(new, old, strict=True)) else new
            else:
                new = rewrite(old)
            changed = changed or new is not old
            operands.append(new)
        make: Callable[..., _Node] = type(node)
        return make(*operands) if changed else node


@cache
def _operands(node: type[Any]) -> tuple[tuple[str, str, bool], ...]:
    """For each field of a statement or value: its name, the type that its annotation names first, and whether in a tuple."""
    annotations = [(f.name, str(f.type)) for f in fields(node)]
    kinds = [(name, a.startswith("tuple["), a.removeprefix("tuple[")) for name, a in annotations]
    return tuple((name, _FIRST_NAME.findall(a)[0], is_tuple) for name, is_tuple, a in kinds)
