"""Nodes made again: by the makers with new values (substitution), or just as they were (files and pickles)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from fuser.ir.integers.integer_choices import exclusive_or, extremum, select
from fuser.ir.integers.integer_conditions import all_of, any_of, compare
from fuser.ir.integers.integer_nodes import (
    FALSE,
    TRUE,
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
    as_int,
    compare_node,
    const,
    extremum_atom,
    floor_div_atom,
    junction_node,
    mod_atom,
    select_atom,
    symbol,
    xor_atom,
)
from fuser.ir.integers.integer_sums import sort_sum


def substitute(node: Int, values: Mapping[Symbol, Int | int]) -> Int:
    """`node` with symbols replaced, simplified again."""
    return _replace(node, {name: as_int(value) for name, value in values.items()})


def replaced(node: Int, values: Mapping[Int, Int]) -> Int:
    """The same with any atoms (or the whole) in place of symbols: `min(a, b) + 3` with a for `min(a, b)` is `a + 3`."""
    return _replace(node, dict(values))


def substitute_condition(node: Cond, values: Mapping[Symbol, Int | int]) -> Cond:
    """`node` with symbols replaced, decided again where possible."""
    return _replace_in(node, {name: as_int(value) for name, value in values.items()})


class Substitution:
    """`substitute` for many expressions: what they share is made once."""

    __slots__ = ("_conditions", "_known")

    def __init__(self, values: Mapping[Symbol, Int | int]) -> None:
        self._known: dict[Int, Int] = {name: as_int(value) for name, value in values.items()}
        self._conditions: dict[Cond, Cond] = {}

    def integer(self, node: Int) -> Int:
        """`node` with symbols replaced, simplified again."""
        return _replace(node, self._known)

    def condition(self, node: Cond) -> Cond:
        """`node` with symbols replaced, decided again where possible."""
        found = self._conditions.get(node)
        if found is None:
            found = self._conditions[node] = _replace_in(node, self._known)
        return found


def _replace(node: Int, known: dict[Int, Int]) -> Int:
    """`known` maps symbols to their values and carries the results of shared nodes."""
    found = known.get(node)
    if found is not None:
        return found
    match node:
        case Symbol():
            return node
        case SymbolQuotient():
            value = known.get(node.symbol)
            return node if value is None else value // node.symbol.multiple
        case FloorDiv():
            result = _replace(node.numerator, known) // _replace(node.divisor, known)
        case Mod():
            result = _replace(node.numerator, known) % _replace(node.divisor, known)
        case Min() | Max():
            result = extremum(type(node), [_replace(a, known) for a in node.arguments])
        case Select():
            condition = _replace_in(node.condition, known)
            # Only the branch that is taken is made again: the other may divide by a 0 that the condition excludes.
            if condition is TRUE:
                result = _replace(node.chosen, known)
            elif condition is FALSE:
                result = _replace(node.otherwise, known)
            else:
                result = select(condition, _replace(node.chosen, known), _replace(node.otherwise, known))
        case Xor():
            result = exclusive_or(_replace(node.left, known), _replace(node.right, known))
        case _:
            result = const(node.constant)
            for monomial, coefficient in node.terms:
                product = const(coefficient)
                for factor in monomial:
                    product = product * _replace(factor, known)
                result = result + product
    known[node] = result
    return result


def _replace_in(node: Cond, known: dict[Int, Int]) -> Cond:
    match node:
        case Compare():
            return compare(node.kind, _replace(node.operand, known))
        case AllOf():
            return all_of(*(_replace_in(a, known) for a in node.arguments))
        case AnyOf():
            return any_of(*(_replace_in(a, known) for a in node.arguments))
        case _:
            return node


Part = Int | Cond | str | int | bool | None


def parts_of(node: Int | Cond) -> tuple[str, tuple[Part, ...]]:
    """A word for what a node is, and the nodes, numbers and names that it is made of: `from_parts` makes it again.

    Those of a sum are its constant, then for each term the coefficient, the number of factors and the factors.
    """
    match node:
        case Symbol():
            return "symbol", (node.name, node.lo, node.hi, node.multiple, node.below)
        case SymbolQuotient():
            return "unit", (node.symbol,)
        case FloorDiv():
            return "//", (node.numerator, node.divisor)
        case Mod():
            return "%", (node.numerator, node.divisor)
        case Min():
            return "min", node.arguments
        case Max():
            return "max", node.arguments
        case Select():
            return "select", (node.condition, node.chosen, node.otherwise)
        case Xor():
            return "^", (node.left, node.right)
        case Int():
            parts: list[Part] = [node.constant]
            for monomial, coefficient in node.terms:
                parts += (coefficient, len(monomial), *monomial)
            return "+", tuple(parts)
        case Truth():
            return "truth", (node.value,)
        case Compare():
            return node.kind, (node.operand,)
        case AllOf():
            return "and", node.arguments
        case AnyOf():
            return "or", node.arguments
        case _:
            raise TypeError(f"expected an integer expression or a condition, got {type(node).__name__}")


def from_parts(word: str, parts: Sequence[Part]) -> Int | Cond:
    """The node of `parts_of`, the interned one; no rule is applied. ValueError for parts of another form."""
    match word, parts:
        case "symbol", [str(name), int() | None as lo, int() | None as hi, int(multiple), Int() | None as below]:
            return symbol(name, lo, hi, multiple=multiple, below=below)
        case "unit", [Symbol() as whole]:
            return whole.unit
        case "//", [Int() as numerator, Int() as divisor]:
            return floor_div_atom(numerator, divisor)
        case "%", [Int() as numerator, Int() as divisor]:
            return mod_atom(numerator, divisor)
        case "min" | "max", [Int(), *_] if all(isinstance(a, Int) for a in parts):
            return extremum_atom(Min if word == "min" else Max, cast("Sequence[Int]", parts))
        case "select", [Cond() as condition, Int() as chosen, Int() as otherwise]:
            return select_atom(condition, chosen, otherwise)
        case "^", [Int() as left, Int() as right]:
            return xor_atom(left, right)
        case "+", [int(constant), *terms]:
            return sort_sum(constant, _terms_again(terms))
        case "truth", [bool(value)]:
            return TRUE if value else FALSE
        case ">=" | "==" | "!=", [Int() as operand]:
            return compare_node(word, operand)
        case "and" | "or", [Cond(), *_] if all(isinstance(a, Cond) for a in parts):
            return junction_node(AllOf if word == "and" else AnyOf, cast("Sequence[Cond]", parts))
        case _:
            raise ValueError(f"{word!r} of {list(parts)!r} is no integer expression")


def _terms_again(parts: Sequence[Part]) -> dict[Monomial, int]:
    terms: dict[Monomial, int] = {}
    at = 0
    while at < len(parts):
        match parts[at : at + 2]:
            case [int(coefficient), int(count)] if count >= 1 and at + 2 + count <= len(parts):
                factors = parts[at + 2 : at + 2 + count]
            case _:
                raise ValueError(f"{list(parts[at:])!r} is no term of a sum")
        for factor in factors:
            if not isinstance(factor, Int) or factor.terms != (((factor,), 1),):
                raise ValueError(f"{factor} cannot be a factor of a term")
        # As `factors` are sorted by name in every process, so they are again.
        terms[cast("Monomial", tuple(factors))] = coefficient
        at += 2 + count
    return terms


def pickle_node(node: Int | Cond) -> tuple[Callable[..., object], tuple[object, ...]]:
    """A maker and its arguments that give this very node again, for `__reduce__`."""
    return from_parts, parts_of(node)
