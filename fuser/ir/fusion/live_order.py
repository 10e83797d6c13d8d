"""The canonical order of exprs: what values need, depth first, each expr once.

Two definitions of the same computation list their exprs in the same order here, whatever order they were written in.
Printing, equality and the numbering of random ops all use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.errors import InternalError
from fuser.ir.fusion.fusion_exprs import Expr, expr_inputs, extent_operands
from fuser.ir.fusion.tensors import Val


def exprs_below(values: Iterable[Val], definitions: Mapping[Val, Expr]) -> list[Expr]:
    """Exprs that `values` depend on, in depth-first post-order. Raises InternalError where one depends on itself."""
    order: list[Expr] = []
    begun: set[Expr] = set()
    done: set[Expr] = set()
    for value in values:
        # An explicit stack: definitions may be longer than Python's recursion limit.
        stack: list[tuple[Val, bool]] = [(value, False)]
        while stack:
            current, operands_done = stack.pop()
            expr = definitions.get(current)
            if expr is None or expr in done:
                continue
            if operands_done:
                done.add(expr)
                order.append(expr)
                continue
            if expr in begun:
                raise InternalError(f"{current.name} depends on itself")
            begun.add(expr)
            stack.append((current, True))
            stack.extend((v, False) for v in reversed(all_operands(expr)))
    return order


def all_operands(expr: Expr) -> tuple[Val, ...]:
    """Operands left to right, then the scalars that say how large the result is."""
    return (*expr_inputs(expr), *extent_operands(expr))
