"""Minimum, maximum, selection and exclusive or: what makes them, and their rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TypeAlias

from fuser.ir.integers.integer_nodes import (
    FALSE,
    TRUE,
    ZERO,
    Cond,
    Int,
    Max,
    Min,
    Xor,
    as_int,
    const,
    extremum_atom,
    scale,
    select_atom,
    shift,
    xor_atom,
)
from fuser.ir.integers.integer_rules import Rule, prove_less_equal
from fuser.ir.integers.integer_sums import exact_quotient

ExtremumRule: TypeAlias = "Callable[[type[Min] | type[Max], Sequence[Int]], Int | None]"
SelectRule: TypeAlias = "Callable[[Cond, Int, Int], Int | None]"
XorRule: TypeAlias = "Callable[[Int, Int], Int | None]"


# ------------------------------------------------------------------------------------------------- minimum and maximum


def minimum(a: Int | int, b: Int | int) -> Int:
    """The lesser of two expressions."""
    return extremum(Min, (as_int(a), as_int(b)))


def maximum(a: Int | int, b: Int | int) -> Int:
    """The greater of two expressions."""
    return extremum(Max, (as_int(a), as_int(b)))


def extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int:
    if len(arguments) == 1:
        return arguments[0]
    for rule in EXTREMUM_RULES:
        result = rule.apply(kind, arguments)
        if result is not None:
            return result
    return extremum_atom(kind, arguments)


def _flatten_extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    flat: list[Int] = []
    for argument in arguments:
        if len(argument.terms) == 1:
            monomial, coefficient = argument.terms[0]
            inner = monomial[0]
            if coefficient > 0 and len(monomial) == 1 and isinstance(inner, kind):
                flat.extend(shift(scale(a, coefficient), argument.constant) for a in inner.arguments)
                continue
        flat.append(argument)
    return extremum(kind, flat) if len(flat) > len(arguments) else None


def _drop_dominated(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    for kept in arguments:
        for position, other in enumerate(arguments):
            if other is kept and arguments.index(kept) == position:
                continue
            small, large = (kept, other) if kind is Min else (other, kept)
            if small is large or prove_less_equal(small, large):
                return extremum(kind, [*arguments[:position], *arguments[position + 1 :]])
    return None


def _factor_extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    common = gcd(*(a.multiple for a in arguments))
    if common < 2:
        return None
    return scale(extremum(kind, [exact_quotient(a, common) for a in arguments]), common)


EXTREMUM_RULES: tuple[Rule[ExtremumRule], ...] = (
    Rule("flatten_extremum", "min(k*min(a, b) + n, c) is min(k*a + n, k*b + n, c)", "minimum(minimum(x, y), z)", "min(x, y, z)",
         _flatten_extremum),
    Rule("drop_dominated", "min(a, b) is a where a <= b is proved", "minimum(x, x + y)", "x", _drop_dominated),
    Rule("factor_extremum", "min(g*a, g*b) is g*min(a, b)", "minimum(8*x, 8*y)", "8*min(x, y)", _factor_extremum),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- selection


def select(condition: Cond, chosen: Int | int, otherwise: Int | int) -> Int:
    """`chosen` where the condition holds, else `otherwise`."""
    a, b = as_int(chosen), as_int(otherwise)
    for rule in SELECT_RULES:
        result = rule.apply(condition, a, b)
        if result is not None:
            return result
    return select_atom(condition, a, b)


def _select_decided(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    return chosen if condition is TRUE else otherwise if condition is FALSE else None


def _select_same(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    return chosen if chosen is otherwise else None


def _factor_select(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    common = gcd(chosen.multiple, otherwise.multiple)
    if common < 2:
        return None
    return scale(select(condition, exact_quotient(chosen, common), exact_quotient(otherwise, common)), common)


SELECT_RULES: tuple[Rule[SelectRule], ...] = (
    Rule("select_decided", "a decided condition picks its branch", "select(less(j, 128), x, y)", "x", _select_decided),
    Rule("select_same", "equal branches need no condition", "select(less(x, y), z, z)", "z", _select_same),
    Rule("factor_select", "a common factor of both branches leaves", "select(less(x, y), 8*x, 0)",
         "8*select(x < y, x, 0)", _factor_select),
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------- differing bits


def exclusive_or(a: Int | int, b: Int | int) -> Int:
    """The bits in which two expressions differ. ValueError unless both are known to be nonnegative and bounded."""
    left, right = as_int(a), as_int(b)
    for operand in (left, right):
        if operand.lo is None or operand.lo < 0 or operand.hi is None:
            raise ValueError(f"the bits of {operand} are not known to be those of a bounded nonnegative number")
    for rule in XOR_RULES:
        result = rule.apply(left, right)
        if result is not None:
            return result
    return xor_atom(left, right)


def _xor_constants(a: Int, b: Int) -> Int | None:
    return const(a.constant ^ b.constant) if a.is_const and b.is_const else None


def _xor_zero(a: Int, b: Int) -> Int | None:
    return b if a is ZERO else a if b is ZERO else None


def _xor_same(a: Int, b: Int) -> Int | None:
    return ZERO if a is b else None


def _xor_again(a: Int, b: Int) -> Int | None:
    for whole, part in ((a, b), (b, a)):
        if isinstance(whole, Xor) and part in (whole.left, whole.right):
            return whole.right if part is whole.left else whole.left
    return None


def _factor_xor(a: Int, b: Int) -> Int | None:
    common = gcd(a.multiple, b.multiple)
    common &= -common
    if common < 2:
        return None
    return scale(exclusive_or(exact_quotient(a, common), exact_quotient(b, common)), common)


XOR_RULES: tuple[Rule[XorRule], ...] = (
    Rule("xor_constants", "two constants are folded", "exclusive_or(6, 3)", "5", _xor_constants),
    Rule("xor_zero", "0 changes nothing", "exclusive_or(j, 0)", "j", _xor_zero),
    Rule("xor_same", "what is equal does not differ", "exclusive_or(j, j)", "0", _xor_same),
    Rule("xor_again", "a ^ b ^ b is a", "exclusive_or(exclusive_or(i, j), j)", "i", _xor_again),
    Rule("factor_xor", "a common power of two leaves", "exclusive_or(8*i, 12*j)", "4*(2*i ^ 3*j)", _factor_xor),
)  # fmt: skip
