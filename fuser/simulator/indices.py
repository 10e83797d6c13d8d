"""Index expressions at run time: vectorised functions of them, their ranges in one launch, and a guard against overflow.

Lowering promises that 32-bit index arithmetic does not overflow, that divisors are positive and that symbols keep to the
ranges they declare (expressions were simplified by them). The ranges of all expressions are computed once per launch from
the actual extents; only what these ranges leave open gets a guard, which evaluates it for the active threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from fuser.ir.integers.integers import (
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
    Xor,
    compile_vectorized,
    const,
)
from fuser.records import record
from fuser.simulator.errors import Kind
from fuser.simulator.lanes import Index, Lanes
from fuser.simulator.program import Definition

Node: TypeAlias = "Int | Cond"
Range: TypeAlias = "tuple[int, int]"

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1


@lru_cache(maxsize=4096)
def vectorized(outputs: tuple[Node, ...]) -> tuple[Callable[..., tuple[Any, ...]], tuple[Symbol, ...]]:
    """A function of the symbols returned with it that gives all outputs."""
    symbols = tuple(sorted({s for output in outputs for s in output.symbols}, key=lambda s: s.order))
    function = compile_vectorized(outputs, symbols)
    if any(isinstance(part, (Min, Max, Select)) for output in outputs for part in parts(output)):
        return _with_plain_scalars(function), symbols
    return function, symbols


def _with_plain_scalars(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """`function`, with ints for the NumPy scalars that minimum, maximum and where make of ints."""

    def evaluate(*values: Index) -> tuple[Any, ...]:
        return tuple(
            result.item() if isinstance(result, (np.generic, np.ndarray)) and result.ndim == 0 else result
            for result in function(*values)
        )

    return evaluate


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
            case Xor():
                visit(node.left)
                visit(node.right)
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
                # A comparison is computed with its negative terms on the other side.
                for side in _sides(node):
                    visit(side)
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


def _sides(node: Compare) -> tuple[Int, Int]:
    """What a comparison compares: expressions with positive coefficients. `a - b - 1 >= 0` is `b < a`."""
    operand = node.operand
    strict = node.kind == ">=" and operand.constant < 0
    left, right = const(max(operand.constant, 0)), const(max(-operand.constant - strict, 0))
    for monomial, coefficient in operand.terms:
        if coefficient > 0:
            left = left + _product(monomial) * coefficient
        else:
            right = right - _product(monomial) * coefficient
    return left, right


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
            case Xor():
                most = max(self.of(node.left)[1], self.of(node.right)[1], 0)
                return 0, (1 << most.bit_length()) - 1
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

    def excess(self, node: Int, low: int | None, high: int | None) -> bool:
        """Whether the range of `node` leaves [low, high]; None is an open end."""
        least, most = self.of(node)
        return (low is not None and least < low) or (high is not None and most > high)


@record
class Suspect:
    """An expression that has to stay in [low, high]."""

    node: Int
    low: int | None
    high: int | None
    kind: Kind


class IndexGuard:
    """Finds the first suspect that leaves its range for an active thread."""

    def __init__(self, suspects: Sequence[Suspect], symbols: tuple[Symbol, ...]) -> None:
        self.suspects = tuple(suspects)
        self._evaluate = compile_vectorized([suspect.node for suspect in suspects], symbols)

    @staticmethod
    def make(outputs: Sequence[Node], ranges: Ranges, *, is_int32: bool) -> IndexGuard | None:
        """A guard for expressions that are evaluated together; None if their ranges prove them right."""
        nodes = [part for output in outputs for part in parts(output)]
        divisors = [node.divisor for node in nodes if isinstance(node, (FloorDiv, Mod))]
        suspects = [Suspect(node, 1, None, Kind.division_by_zero) for node in divisors if ranges.excess(node, 1, None)]
        if is_int32:
            suspects.extend(
                Suspect(node, INT32_MIN, INT32_MAX, Kind.index_overflow)
                for node in nodes
                if ranges.excess(node, INT32_MIN, INT32_MAX)
            )
        return IndexGuard(suspects, vectorized(tuple(outputs))[1]) if suspects else None

    def find(self, values: Sequence[Index], lanes: Lanes) -> tuple[Suspect, int, int] | None:
        """(suspect, position in `lanes.shape`, value), or None."""
        for suspect, value in zip(self.suspects, self._evaluate(*values), strict=True):
            position = _first_outside(lanes.pick(value), suspect.low, suspect.high, lanes)
            if position is not None:
                return suspect, position, int(lanes.value_at(lanes.pick(value), position))
        return None


class SymbolGuard:
    """Finds a value that a symbol must not have: outside [lo, hi], not below `below`, no multiple of `multiple`.

    `extent`: what an index of the user's must be below, where the kernel is not passed the symbols of `below`.
    """

    def __init__(self, definition: Definition, extent: int | None) -> None:
        self.symbol = symbol = definition.symbol
        self.given = definition.given
        is_bounded = definition.is_bounded and symbol.below is not None
        self._below = vectorized((symbol.below,))[0] if is_bounded and symbol.below is not None else None
        self._extent = extent

    @staticmethod
    def make(
        definition: Definition, low: int, high: int, ranges: Ranges, extent: int | None = None
    ) -> SymbolGuard | None:
        """A guard for a symbol that is given values in [low, high]; None if all of these are right."""
        symbol = definition.symbol
        inside = (symbol.lo is None or symbol.lo <= low) and (symbol.hi is None or high <= symbol.hi)
        below = not definition.is_bounded or symbol.below is None or high < ranges.of(symbol.below)[0]
        return None if inside and below and symbol.multiple == 1 else SymbolGuard(definition, extent)

    def find(self, value: Index, bounds: Sequence[Index], lanes: Lanes) -> tuple[str, int] | None:
        """(what is wrong, position in `lanes.shape`), or None. `bounds` are the symbols' values of `below`."""
        name, picked = self.symbol.name, np.asarray(lanes.pick(value))
        limit = self._extent if self._below is None else lanes.pick(self._below(*bounds)[0])
        position = _first_outside(picked, self.symbol.lo, self.symbol.hi, lanes)
        if position is not None:
            found, low, high = int(lanes.value_at(picked, position)), self.symbol.lo, self.symbol.hi
            if self.given is not None:
                extent = (
                    int(lanes.value_at(limit, position)) if limit is not None else None if high is None else high + 1
                )
                return _outside_dim(found, self.given.dim, extent), position
            return f"{name} is {found}, declared in [{low}, {high}]", position
        wrong = picked % self.symbol.multiple != 0
        if wrong.any():
            position = lanes.position(wrong)
            found = int(lanes.value_at(picked, position))
            return f"{name} is {found}, declared a multiple of {self.symbol.multiple}", position
        if limit is not None:
            wrong = picked >= limit
            if np.any(wrong):
                position = lanes.position(wrong)
                found, least = int(lanes.value_at(picked, position)), int(lanes.value_at(limit, position))
                if self.given is not None:
                    return _outside_dim(found, self.given.dim, least), position
                return f"{name} is {found}, declared below {self.symbol.below}, which is {least}", position
        return None


def _outside_dim(index: int, dim: int, extent: int | None) -> str:
    valid = "" if extent is None else f", which has extent {extent}: it must be in [0, {extent})"
    return f"the index {index} is outside of dim {dim}{valid}"


def _first_outside(value: Index, low: int | None, high: int | None, lanes: Lanes) -> int | None:
    picked = np.asarray(value)
    wrong = np.zeros(picked.shape, np.bool_)
    if low is not None:
        wrong |= picked < low
    if high is not None:
        wrong |= picked > high
    return lanes.position(wrong) if wrong.any() else None
