"""What is derived from a node on first use and kept: sort key, known divisor, weight, rank, symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Final

from fuser.ir.integers.integer_nodes import (
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Monomial,
    Select,
    Symbol,
    SymbolQuotient,
    Xor,
    shorten,
)


def _order(node: Int) -> str:
    """A sort key made from names and structure. Bounded in length, so that shared subtrees do not multiply."""
    match node:
        case Symbol():
            below = "" if node.below is None else node.below.order
            return shorten(f"{node.name}\0{node.lo},{node.hi},{node.multiple},{below}")
        case SymbolQuotient():
            return node.symbol.order
        case FloorDiv():
            return shorten(f"~({node.numerator.order})//({node.divisor.order})")
        case Mod():
            return shorten(f"~({node.numerator.order})%({node.divisor.order})")
        case Min() | Max():
            return shorten(f"~{type(node).__name__}({','.join(a.order for a in node.arguments)})")
        case Select():
            return shorten(f"~select({node.condition.order},{node.chosen.order},{node.otherwise.order})")
        case Xor():
            return shorten(f"~({node.left.order})^({node.right.order})")
        case _:
            parts = [f"{c}*{_monomial_order(m)}" for m, c in node.terms]
            parts.append(str(node.constant))
            return shorten("+".join(parts))


def _multiple(node: Int) -> int:
    return gcd(node.constant, *(c for _, c in node.terms))


def _weight(node: Int) -> int:
    match node:
        case Symbol() | SymbolQuotient():
            return 1
        case FloorDiv() | Mod():
            return 4 + node.numerator.weight + node.divisor.weight
        case Min() | Max():
            return 4 + sum(a.weight for a in node.arguments)
        case Select():
            return 6 + node.chosen.weight + node.otherwise.weight
        case Xor():
            return 4 + node.left.weight + node.right.weight
        case _:
            return sum(monomial_weight(m) for m, _ in node.terms)


def _rank(node: Int) -> int:
    match node:
        case Symbol():
            return 0 if node.below is None else 1 + node.below.rank
        case SymbolQuotient():
            return node.symbol.rank
        case FloorDiv() | Mod():
            return 1 + max(node.numerator.rank, node.divisor.rank)
        case Min() | Max():
            return 1 + max(a.rank for a in node.arguments)
        case Select():
            return 1 + max(node.chosen.rank, node.otherwise.rank)
        case Xor():
            return 1 + max(node.left.rank, node.right.rank)
        case _:
            return max((factor.rank for m, _ in node.terms for factor in m), default=0)


def _symbols(node: Int) -> frozenset[Symbol]:
    match node:
        case Symbol():
            return frozenset((node,))
        case SymbolQuotient():
            return frozenset((node.symbol,))
        case FloorDiv() | Mod():
            return node.numerator.symbols | node.divisor.symbols
        case Min() | Max():
            return frozenset[Symbol]().union(*(a.symbols for a in node.arguments))
        case Select():
            return node.condition.symbols | node.chosen.symbols | node.otherwise.symbols
        case Xor():
            return node.left.symbols | node.right.symbols
        case _:
            return frozenset[Symbol]().union(*(factor.symbols for m, _ in node.terms for factor in m))


def _monomial_order(monomial: Monomial) -> str:
    return monomial[0].order if len(monomial) == 1 else "*".join([factor.order for factor in monomial])


def monomial_weight(monomial: Monomial) -> int:
    return 1 + sum([factor.weight for factor in monomial])


DERIVED: Final[Mapping[str, Callable[[Int], object]]] = {
    "order": _order,
    "multiple": _multiple,
    "weight": _weight,
    "rank": _rank,
    "symbols": _symbols,
}
