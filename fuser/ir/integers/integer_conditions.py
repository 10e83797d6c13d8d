"""Conditions over integer expressions: comparisons, conjunctions, disjunctions, and the table of all rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, Final, TypeAlias

from fuser.ir.integers.integer_choices import EXTREMUM_RULES, SELECT_RULES, XOR_RULES
from fuser.ir.integers.integer_nodes import (
    FALSE,
    TRUE,
    AllOf,
    AnyOf,
    Compare,
    CompareKind,
    Cond,
    Int,
    Terms,
    Truth,
    as_int,
    compare_node,
    intern_sum,
    junction_node,
    memo,
    remember,
    shift,
)
from fuser.ir.integers.integer_proofs import is_nonnegative
from fuser.ir.integers.integer_rules import (
    ATOM_IDENTITY_RULES,
    DIVISION_RULES,
    PAIR_IDENTITY_RULES,
    Rule,
)
from fuser.ir.integers.integer_sums import divide_out

CompareRule: TypeAlias = "Callable[[CompareKind, Int], Cond | None]"
JunctionRule: TypeAlias = "Callable[[type[AllOf] | type[AnyOf], Sequence[Cond]], Cond | None]"
_comparisons: dict[tuple[CompareKind, Int], Cond] = memo()
_opposites: dict[Cond, Cond] = memo()


# --------------------------------------------------------------------------------------------------------- comparisons


def less(a: Int | int, b: Int | int) -> Cond:
    """`a < b`."""
    return compare(">=", as_int(b) - a - 1)


def less_equal(a: Int | int, b: Int | int) -> Cond:
    """`a <= b`."""
    return compare(">=", as_int(b) - a)


def equal(a: Int | int, b: Int | int) -> Cond:
    """`a == b`."""
    return compare("==", as_int(a) - b)


def not_equal(a: Int | int, b: Int | int) -> Cond:
    """`a != b`."""
    return compare("!=", as_int(a) - b)


def compare(kind: CompareKind, operand: Int) -> Cond:
    key = (kind, operand)
    result = _comparisons.get(key)
    if result is None:
        for rule in COMPARE_RULES:
            result = rule.apply(kind, operand)
            if result is not None:
                break
        else:
            result = compare_node(kind, operand)
        remember(_comparisons, key, result)
    return result


def _compare_decided(kind: CompareKind, operand: Int) -> Cond | None:
    if kind == ">=":
        if is_nonnegative(operand):
            return TRUE
        return FALSE if is_nonnegative(-operand - 1) else None
    if operand.lo == 0 and operand.hi == 0:
        return TRUE if kind == "==" else FALSE
    if is_nonnegative(operand - 1) or is_nonnegative(-operand - 1):
        return FALSE if kind == "==" else TRUE
    return None


def _compare_reduced(kind: CompareKind, operand: Int) -> Cond | None:
    common = gcd(*(c for _, c in operand.terms))
    if common < 2:
        return None
    if kind != ">=" and operand.constant % common:
        return FALSE if kind == "==" else TRUE
    return compare(kind, divide_out(operand, common, ()))


def _compare_rest(kind: CompareKind, operand: Int) -> Cond | None:
    """g*a + r >= 0 is a + q >= 0 where r // g is q for every r in its range."""
    if kind != ">=" or len(operand.terms) < 2:
        return None
    for step in sorted({abs(c) for _, c in operand.terms} - {1}, reverse=True):
        rest = intern_sum(operand.constant, tuple(t for t in operand.terms if t[1] % step))
        if len(rest.terms) in (0, len(operand.terms)) or rest.lo is None or rest.hi is None:
            continue
        if rest.lo // step == rest.hi // step:
            whole = intern_sum(0, tuple((m, c // step) for m, c in operand.terms if c % step == 0))
            return compare(">=", shift(whole, rest.lo // step))
    return None


def _compare_sign(kind: CompareKind, operand: Int) -> Cond | None:
    return compare(kind, -operand) if kind != ">=" and operand.terms and operand.terms[0][1] < 0 else None


COMPARE_RULES: tuple[Rule[CompareRule], ...] = (
    Rule("compare_decided", "ranges and symbolic bounds decide", "less(n, N)", "True", _compare_decided),
    Rule("compare_reduced", "a common factor leaves, rounding the constant", "less(8*x, 8*y + 3)", "x <= y",
         _compare_reduced),
    Rule("compare_rest", "a rest smaller than the step of all else is rounded away", "less(8*x + v, 8*y)", "x < y",
         _compare_rest),
    Rule("compare_sign", "== and != start with a positive term", "equal(y, x)", "x == y", _compare_sign),
)  # fmt: skip


# --------------------------------------------------------------------------------------- conjunctions and disjunctions


def all_of(*conditions: Cond) -> Cond:
    """True where every condition is; `TRUE` without conditions. The order of evaluation is not kept."""
    return junction(AllOf, conditions)


def any_of(*conditions: Cond) -> Cond:
    """True where some condition is; `FALSE` without conditions. The order of evaluation is not kept."""
    return junction(AnyOf, conditions)


def conjuncts(condition: Cond) -> tuple[Cond, ...]:
    """What must hold together for a condition to hold: its arguments if it is a conjunction, else itself."""
    return condition.arguments if isinstance(condition, AllOf) else (condition,)


def negate(condition: Cond) -> Cond:
    """True where the condition is not."""
    result = _opposites.get(condition)
    if result is None:
        result = _opposite(condition)
        remember(_opposites, condition, result)
    return result


def _opposite(condition: Cond) -> Cond:
    match condition:
        case Truth():
            return FALSE if condition.value else TRUE
        case Compare(kind=">="):
            return compare(">=", -condition.operand - 1)
        case Compare():
            return compare("!=" if condition.kind == "==" else "==", condition.operand)
        case AllOf():
            return any_of(*(negate(a) for a in condition.arguments))
        case AnyOf():
            return all_of(*(negate(a) for a in condition.arguments))
        case _:
            raise TypeError(f"expected a condition, got {type(condition).__name__}")


def junction(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond:
    if len(arguments) == 1:
        return arguments[0]
    for rule in JUNCTION_RULES:
        result = rule.apply(kind, arguments)
        if result is not None:
            return result
    return junction_node(kind, arguments)


def _junction_decided(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    neutral, absorbing = (TRUE, FALSE) if kind is AllOf else (FALSE, TRUE)
    if absorbing in arguments:
        return absorbing
    if not arguments:
        return neutral
    if neutral in arguments:
        return junction(kind, [a for a in arguments if a is not neutral])
    return None


def _flatten_junction(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    if not any(a.__class__ is kind for a in arguments):
        return None
    flat: list[Cond] = []
    for argument in arguments:
        flat.extend(argument.arguments if isinstance(argument, kind) else (argument,))
    return junction(kind, flat)


def _junction_opposite(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    if any(isinstance(a, Compare) and negate(a) in arguments for a in arguments):
        return FALSE if kind is AllOf else TRUE
    return None


def _drop_implied(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    kept: list[Cond] = []
    bounds: dict[Terms, int] = {}
    for argument in arguments:
        if isinstance(argument, Compare) and argument.kind == ">=":
            terms, constant = argument.operand.terms, argument.operand.constant
            position = bounds.get(terms)
            if position is not None:
                rival: Compare = kept[position]  # type: ignore[assignment]
                # `terms + constant >= 0` is stronger for the smaller constant; a conjunction keeps the stronger.
                if (constant < rival.operand.constant) is (kind is AllOf):
                    kept[position] = argument
                continue
            bounds[terms] = len(kept)
        elif argument in kept:
            continue
        kept.append(argument)
    return junction(kind, kept) if len(kept) < len(arguments) else None


JUNCTION_RULES: tuple[Rule[JunctionRule], ...] = (
    Rule("junction_decided", "true and false arguments", "all_of(less(x, y), TRUE)", "x < y", _junction_decided),
    Rule("flatten_junction", "a and (b and c) is one conjunction", "all_of(less(x, y), all_of(less(y, z), less(z, 5)))",
         "x < y and y < z and z < 5", _flatten_junction),
    Rule("junction_opposite", "a and not a is false, a or not a is true", "any_of(less(x, y), less_equal(y, x))", "True",
         _junction_opposite),
    Rule("drop_implied", "of two bounds on one value the stronger (or: the weaker) stays",
         "all_of(less(x, y), less(x, y + 1))", "x < y", _drop_implied),
)  # fmt: skip
RULES: Final[tuple[Rule[Any], ...]] = (
    *DIVISION_RULES,
    *ATOM_IDENTITY_RULES,
    *PAIR_IDENTITY_RULES,
    *EXTREMUM_RULES,
    *SELECT_RULES,
    *XOR_RULES,
    *COMPARE_RULES,
    *JUNCTION_RULES,
)
