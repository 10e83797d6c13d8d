"""The canonical order of a fusion: what its outputs need, depth first, each expr once.

Two definitions of the same computation list their exprs in the same order here, whatever order they were written in.
Printing, equality and the numbering of random ops all use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fuser.errors import InternalError
from fuser.ir.fusion import Expr, Fusion, Scalar, Val, expr_inputs, expr_outputs, extent_operands


def live_exprs(fusion: Fusion) -> list[Expr]:
    """Exprs that outputs depend on, in depth-first post-order: outputs in order, operands left to right."""
    return exprs_below((o.tensor for o in fusion.outputs), fusion.definitions)


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


def canonical_numbers(fusion: Fusion) -> dict[Val, int]:
    """Number of each input and live result in canonical order. Constants have none."""
    numbers: dict[Val, int] = {}
    for value in fusion.inputs:
        numbers.setdefault(value, len(numbers))
    for expr in live_exprs(fusion):
        for value in expr_outputs(expr):
            numbers.setdefault(value, len(numbers))
    return numbers


def undefined_leaves(fusion: Fusion) -> list[Val]:
    """Values that exprs or outputs read and nothing defines: neither inputs nor constants nor results."""
    known: set[Val] = {*fusion.inputs, *(v for e in fusion.exprs for v in expr_outputs(e))}
    read = [*(v for e in fusion.exprs for v in all_operands(e)), *(o.tensor for o in fusion.outputs)]
    missing = (v for v in read if v not in known and not (isinstance(v, Scalar) and v.is_constant))
    return list(dict.fromkeys(missing))
