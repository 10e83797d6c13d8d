"""Infix text of integer expressions and conditions; C, Python and NumPy are dialects of it in `integer_code`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fuser.ir.integers.integer_nodes import (
    AllOf,
    AnyOf,
    Compare,
    Cond,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Monomial,
    Select,
    Symbol,
    SymbolQuotient,
    Truth,
    Xor,
    const,
)

# Binding strength of printed text, loosest first.
SUM_LEVEL: Final = 0
DIVISION_LEVEL: Final = 1
PRODUCT_LEVEL: Final = 2
ATOM_LEVEL: Final = 3


class Printer:
    """Infix text of expressions: valid Python over `min`, `max` and `select`. Dialects override single methods."""

    def name(self, symbol: Symbol) -> str:
        return symbol.name

    def literal(self, value: int) -> str:
        return str(value)

    def atom(self, node: Int) -> tuple[str, int]:
        """Text and binding strength of an atom."""
        match node:
            case Symbol():
                return self.name(node), ATOM_LEVEL
            case SymbolQuotient():
                return self.quotient(node.symbol, const(node.symbol.multiple))
            case FloorDiv():
                return self.quotient(node.numerator, node.divisor)
            case Mod():
                return self.remainder(node.numerator, node.divisor)
            case Min():
                return self.extremum("min", node.arguments)
            case Max():
                return self.extremum("max", node.arguments)
            case Select():
                return self.selection(node)
            case Xor():
                # As a whole in parentheses: languages disagree on what binds weaker than `^`.
                return f"({self.operand_of_xor(node.left)} ^ {self.operand_of_xor(node.right)})", ATOM_LEVEL
            case _:
                raise TypeError(f"{node} is not an atom")

    def quotient(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}//{self.operand(divisor)}", DIVISION_LEVEL

    def remainder(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}%{self.operand(divisor)}", DIVISION_LEVEL

    def extremum(self, name: str, arguments: Sequence[Int]) -> tuple[str, int]:
        return f"{name}({', '.join(self.expression(a) for a in arguments)})", ATOM_LEVEL

    def selection(self, node: Select) -> tuple[str, int]:
        parts = self.condition(node.condition), self.expression(node.chosen), self.expression(node.otherwise)
        return f"select({', '.join(parts)})", ATOM_LEVEL

    def junction(self, arguments: Sequence[Cond], every: bool) -> str:
        parts = [f"({self.condition(a)})" if isinstance(a, (AllOf, AnyOf)) else self.condition(a) for a in arguments]
        return (" and " if every else " or ").join(parts)

    def truth(self, value: bool) -> str:
        return str(value)

    def operand(self, node: Int) -> str:
        """Text that may stand beside `*`, `//` or `%`."""
        text, level = self.text(node)
        return text if level == ATOM_LEVEL else f"({text})"

    def operand_of_xor(self, node: Int) -> str:
        text, level = self.text(node)
        return f"({text})" if level == SUM_LEVEL else text

    def expression(self, node: Int) -> str:
        return self.text(node)[0]

    def text(self, node: Int) -> tuple[str, int]:
        if isinstance(node, Symbol):
            return self.name(node), ATOM_LEVEL
        if not node.terms:
            return self.literal(node.constant), ATOM_LEVEL if node.constant >= 0 else SUM_LEVEL
        if len(node.terms) == 1 and node.constant == 0:
            text, level, minus = self.term(*node.terms[0])
            return (self.negative(text, level), SUM_LEVEL) if minus else (text, level)
        return self.sum(node.constant, node.terms), SUM_LEVEL

    def sum(self, constant: int, terms: Sequence[tuple[Monomial, int]]) -> str:
        pieces = [self.term(monomial, coefficient) for monomial, coefficient in terms]
        if constant:
            pieces.append((self.literal(abs(constant)), ATOM_LEVEL, constant < 0))
        # Start with something positive where there is one: it reads better and avoids a unary minus.
        first = next((index for index, (_, _, minus) in enumerate(pieces) if not minus), 0)
        text, level, minus = pieces.pop(first)
        parts = [self.negative(text, level) if minus else text]
        for text, level, minus in pieces:
            parts.append(" - " if minus else " + ")
            parts.append(f"({text})" if level == SUM_LEVEL else text)
        return "".join(parts)

    def negative(self, text: str, level: int) -> str:
        # -x//8 would be (-x)//8.
        return f"-({text})" if level < PRODUCT_LEVEL else f"-{text}"

    def term(self, monomial: Monomial, coefficient: int) -> tuple[str, int, bool]:
        """Text, binding strength and sign of `coefficient * monomial`; the text is that of the absolute value."""
        count = abs(coefficient)
        factors: list[str] = []
        alone: tuple[str, int] = ("", ATOM_LEVEL)
        for factor in monomial:
            if isinstance(factor, SymbolQuotient) and count % factor.symbol.multiple == 0:
                # 8 * (N // 8) is N again.
                count //= factor.symbol.multiple
                alone = self.name(factor.symbol), ATOM_LEVEL
            else:
                alone = self.atom(factor)
            factors.append(alone[0] if alone[1] == ATOM_LEVEL else f"({alone[0]})")
        minus = coefficient < 0
        if count == 1 and len(factors) == 1:
            return alone[0], alone[1], minus
        if count != 1:
            factors.insert(0, self.literal(count))
        return "*".join(factors), PRODUCT_LEVEL, minus

    def condition(self, node: Cond) -> str:
        match node:
            case Truth():
                return self.truth(node.value)
            case Compare():
                return self.comparison(node)
            case AllOf():
                return self.junction(node.arguments, True)
            case AnyOf():
                return self.junction(node.arguments, False)
            case _:
                raise TypeError(f"expected a condition, got {type(node).__name__}")

    def comparison(self, node: Compare) -> str:
        left = [(m, -c) for m, c in node.operand.terms if c < 0]
        right = [(m, c) for m, c in node.operand.terms if c > 0]
        constant = node.operand.constant
        if node.kind != ">=":
            left, right, constant = right, left, -constant
            if constant < 0 and right:
                return f"{self.side(-constant, left)} {node.kind} {self.side(0, right)}"
            return f"{self.side(0, left)} {node.kind} {self.side(constant, right)}"
        # left <= right + constant, with the constant on the side where it is positive, and `<` where that is shorter.
        if not right:
            return f"{self.side(0, left)} < {self.literal(constant + 1)}"
        if constant < 0:
            return f"{self.side(-constant - 1, left)} < {self.side(0, right)}"
        return f"{self.side(0, left)} <= {self.side(constant, right)}"

    def side(self, constant: int, terms: Sequence[tuple[Monomial, int]]) -> str:
        return self.sum(constant, terms) if terms else self.literal(constant)


def text_of(node: Int | Cond) -> str:
    """The text that `str` gives."""
    printer = Printer()
    return printer.expression(node) if isinstance(node, Int) else printer.condition(node)
