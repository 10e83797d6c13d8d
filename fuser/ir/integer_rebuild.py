"""Nodes made again: by the makers with new values (substitution), or just as they were (pickling)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fuser.ir.integer_choices import exclusive_or, extremum, select
from fuser.ir.integer_conditions import all_of, any_of, compare
from fuser.ir.integer_nodes import (
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
    Select,
    Symbol,
    SymbolQuotient,
    Terms,
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
from fuser.ir.integer_sums import sort_sum


def substitute(node: Int, values: Mapping[Symbol, Int | int]) -> Int:
    """`node` with symbols replaced, simplified again."""
    return _replace(node, {name: as_int(value) for name, value in values.items()})


def substitute_condition(node: Cond, values: Mapping[Symbol, Int | int]) -> Cond:
    """`node` with symbols replaced, decided again where possible."""
    return _replace_in(node, {name: as_int(value) for name, value in values.items()})


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


def pickle_node(node: Int | Cond) -> tuple[Callable[..., object], tuple[object, ...]]:
    """A maker and its arguments that give this very node again, for `__reduce__`. No rule is applied."""
    match node:
        case Symbol():
            return _symbol_again, (node.name, node.lo, node.hi, node.multiple, node.below)
        case SymbolQuotient():
            return getattr, (node.symbol, "unit")
        case FloorDiv():
            return floor_div_atom, (node.numerator, node.divisor)
        case Mod():
            return mod_atom, (node.numerator, node.divisor)
        case Min() | Max():
            return extremum_atom, (type(node), node.arguments)
        case Select():
            return select_atom, (node.condition, node.chosen, node.otherwise)
        case Xor():
            return xor_atom, (node.left, node.right)
        case Int():
            return _sum_again, (node.constant, node.terms)
        case Truth():
            return _truth_again, (node.value,)
        case Compare():
            return compare_node, (node.kind, node.operand)
        case AllOf():
            return junction_node, (AllOf, node.arguments)
        case AnyOf():
            return junction_node, (AnyOf, node.arguments)
        case _:
            raise TypeError(f"expected an expression or a condition, got {type(node).__name__}")


def _symbol_again(name: str, lo: int | None, hi: int | None, multiple: int, below: Int | None) -> Symbol:
    return symbol(name, lo, hi, multiple=multiple, below=below)


def _sum_again(constant: int, terms: Terms) -> Int:
    return sort_sum(constant, dict(terms))


def _truth_again(value: bool) -> Cond:
    return TRUE if value else FALSE
