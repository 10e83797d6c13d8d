"""Python's syntax trees of texts, in any thread."""

from __future__ import annotations

import ast
from typing import Literal, overload

from fuser import locks

_ATTEMPTS = 100

# CPython 3.11 and 3.12 count how deep they are in a tree in one number for all threads, and raise SystemError if two build
# trees at once (https://github.com/python/cpython/issues/106905).
_one_at_a_time = locks.lock()


@overload
def syntax_tree(text: str, mode: Literal["exec"] = "exec") -> ast.Module: ...


@overload
def syntax_tree(text: str, mode: Literal["eval"]) -> ast.Expression: ...


def syntax_tree(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """`ast.parse(text, mode=mode)` with its errors. A SystemError only if others parse in threads of theirs all the time."""
    with _one_at_a_time:
        for _ in range(_ATTEMPTS - 1):
            try:
                return ast.parse(text, mode=mode)
            except SystemError:  # a thread that is not ours parsed meanwhile
                pass
        return ast.parse(text, mode=mode)
