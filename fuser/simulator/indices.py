"""Index expressions at run time: vectorised functions of them, their ranges in one launch, and a guard against overflow.

Lowering promises that 32-bit index arithmetic does not overflow. The ranges of all expressions are computed once per
launch from the actual extents; only expressions whose range leaves int32 get a guard, which evaluates every
subexpression for the active threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fuser.ir.integers import (
    AllOf,
    AnyOf,
    Compare,
    Cond,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Select,
    Symbol,
    SymbolQuotient,
    Truth,
    compile_vectorized,
)
from fuser.simulator.lanes import Index, Lanes

Node: TypeAlias = "Int | Cond"
Range: TypeAlias = "tuple[int, int]"

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1


@lru_cache(maxsize=4096)
def vectorized(outputs: tuple[Node, ...]) -> tuple[Callable[..., tuple[Any, ...]], tuple[Symbol, ...]]:
    """A function of the symbols returned with it that gives all outputs."""
    symbols = tuple(sorted({s for output in outputs for s in output.symbols}, key=lambda s: s.order))
    return compile_vectorized(outputs, symbols), symbols


def parts(node: Node) -> list[Int]:
    """The expressions that evaluating `node` computes, without single symbols and constants."""
    found: dict[Int, None] = {}

    def visit(node: Int) -> None:
        if node in found or not node.terms or isinstance(node, Symbol):
            return
        match node:
            case SymbolQuotient():
                return
            case FloorDiv() | Mod():
                visit(node.numerator)
                visit(node.divisor)
            case Min() | Max():
                for argument in node.arguments:
                    visit(argument)
            case Select():
                visit_condition(node.condition)
                # The branch that is not taken is not computed: it may divide by 0 or leave the range.
            case _:
                visit_terms(node)
        found[node] = None

    def visit_terms(node: Int) -> None:
        for monomial, coefficient in node.terms:
            for factor in monomial:
                visit(factor)
            product = _product(monomial) * coefficient
            if product is not node and not isinstance(product, Symbol):
                found[product] = None

    def visit_condition(node: Cond) -> None:
        match node:
            case Compare():
                visit_terms(node.operand)
            case AllOf() | AnyOf():
                for argument in node.arguments:
                    visit_condition(argument)
            case Truth():
                pass
            case _:
                raise TypeError(f"expected a condition, got {type(node).__name__}")

    if isinstance(node, Int):
        visit(node)
    else:
        visit_condition(node)
    return list(found)


def _product(monomial: tuple[Int, ...]) -> Int:
    result = monomial[0]
    for factor in monomial[1:]:
        result = result * factor
    return result


class Ranges:
    """Inclusive ranges of symbols, and of expressions over them. A symbol defined twice has the union."""

    def __init__(self) -> None:
        self._symbols: dict[Symbol, Range] = {}
        self._known: dict[Int, Range] = {}

    def define(self, symbol: Symbol, low: int, high: int) -> None:
        old = self._symbols.get(symbol)
        if old is not None:
            low, high = min(low, old[0]), max(high, old[1])
        if old != (low, high):
            self._symbols[symbol] = (low, high)
            self._known.clear()

    def of(self, node: Int) -> Range:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._compute(node)
        return found

    def _compute(self, node: Int) -> Range:
        match node:
            case Symbol():
                return self._symbols[node]
            case SymbolQuotient():
                low, high = self._symbols[node.symbol]
                return low // node.symbol.multiple, high // node.symbol.multiple
            case FloorDiv():
                low, high = self.of(node.numerator)
                least, most = (max(1, bound) for bound in self.of(node.divisor))
                corners = (low // least, low // most, high // least, high // most)
                return min(corners), max(corners)
            case Mod():
                low, high = self.of(node.numerator)
                most = max(1, self.of(node.divisor)[1]) - 1
                return 0, min(high, most) if low >= 0 else most
            case Min() | Max():
                ranges = [self.of(argument) for argument in node.arguments]
                choose = min if isinstance(node, Min) else max
                return choose(r[0] for r in ranges), choose(r[1] for r in ranges)
            case Select():
                a, b = self.of(node.chosen), self.of(node.otherwise)
                return min(a[0], b[0]), max(a[1], b[1])
            case _:
                low = high = node.constant
                for monomial, coefficient in node.terms:
                    least, most = coefficient, coefficient
                    for factor in monomial:
                        a, b = self.of(factor)
                        corners = (least * a, least * b, most * a, most * b)
                        least, most = min(corners), max(corners)
                    low, high = low + least, high + most
                return low, high

    def fits(self, node: Int) -> bool:
        low, high = self.of(node)
        return low >= INT32_MIN and high <= INT32_MAX


class IndexGuard:
    """Finds the first expression that leaves int32 for an active thread."""

    def __init__(self, suspects: Sequence[Int], symbols: tuple[Symbol, ...]) -> None:
        self.suspects = tuple(suspects)
        self._evaluate = compile_vectorized(self.suspects, symbols)

    @staticmethod
    def make(outputs: Sequence[Node], ranges: Ranges) -> IndexGuard | None:
        """A guard for expressions that are evaluated together; None if none of them can overflow."""
        suspects = [part for output in outputs for part in parts(output) if not ranges.fits(part)]
        return IndexGuard(suspects, vectorized(tuple(outputs))[1]) if suspects else None

    def find(self, values: Sequence[Index], lanes: Lanes) -> tuple[Int, int, int] | None:
        """(expression, position in `lanes.shape`, value), or None."""
        for node, value in zip(self.suspects, self._evaluate(*values), strict=True):
            picked = np.asarray(lanes.pick(value))
            wrong = (picked < INT32_MIN) | (picked > INT32_MAX)
            if wrong.any():
                position = lanes.position(wrong)
                return node, position, int(lanes.value_at(picked, position))
        return None
