"""Proofs that an integer expression is nonnegative, from ranges and symbolic bounds.

`i*M + m < N*M` for i below N and m below M: the indices are replaced by what they are at most, `N - 1` and `M - 1`, and
the polynomials cancel. Proofs are sound, not complete; they compute with plain sums, so that no rule depends on itself.
"""

from __future__ import annotations

from typing import Final

from fuser.ir.integers.integer_nodes import (
    Bound,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Monomial,
    Select,
    Symbol,
    SymbolQuotient,
    const,
    memo,
    remember,
    scale,
    shift,
)
from fuser.ir.integers.integer_sums import (
    add_multiple,
    exact_quotient,
    monomial_product,
    monomial_quotient,
    plain_product,
    plain_sum,
    sort_sum,
)

# Eliminations one proof may try before it gives up.
_PROOF_STEPS: Final = 48
_proofs: dict[Int, bool] = memo()


def is_nonnegative(node: Int) -> bool:
    """Whether `node >= 0` is proved.

    Atoms with symbolic bounds are replaced by the bound that makes the expression least, the most dependent first
    (an index before the extents that bound it), until ranges decide.
    """
    lo = node.lo
    if lo is not None and lo >= 0:
        return True
    hi = node.hi
    if hi is not None and hi < 0:
        return False
    result = _proofs.get(node)
    if result is None:
        result = _eliminate(node, [_PROOF_STEPS])
        remember(_proofs, node, result)
    return result


def _eliminate(node: Int, budget: list[int]) -> bool:
    lo = node.lo
    if lo is not None and lo >= 0:
        return True
    hi = node.hi
    if hi is not None and hi < 0:
        return False
    positive = node.constant > 0
    negative = False
    for _, coefficient in node.terms:
        if coefficient > 0:
            positive = True
        else:
            negative = True
    if not positive or budget[0] <= 0:
        return False
    if negative and _shifted_lo(node):
        return True
    budget[0] -= 1
    factors = {factor for monomial, _ in node.terms for factor in monomial if not _is_free(factor)}
    for factor in sorted(factors, key=lambda f: (-f.rank, f.order)):
        cofactor_terms: dict[Monomial, int] = {}
        rest_terms: dict[Monomial, int] = {}
        cofactor_constant = 0
        for monomial, coefficient in node.terms:
            quotient = monomial_quotient(monomial, (factor,))
            if quotient is None:
                rest_terms[monomial] = coefficient
            elif quotient:
                cofactor_terms[quotient] = coefficient
            else:
                cofactor_constant = coefficient
        cofactor = sort_sum(cofactor_constant, cofactor_terms)
        rest = sort_sum(node.constant, rest_terms)
        if cofactor.hi is not None and cofactor.hi <= 0:
            falling = True
        elif cofactor.lo is not None and cofactor.lo >= 0:
            falling = False
        else:
            continue
        # The bounds of one atom are alternatives; an atom without any is left to the ranges.
        bounded = False
        for every, goals in _bounded_goals(factor, cofactor, rest, falling):
            bounded = True
            if every:
                if all(_eliminate(goal, budget) for goal in goals):
                    return True
            elif any(_eliminate(goal, budget) for goal in goals):
                return True
        if bounded:
            return False
    return False


def _is_free(factor: Int) -> bool:
    """Whether only the range of the factor is known."""
    return isinstance(factor, (Symbol, SymbolQuotient)) and factor.rank == 0


def _bounded_goals(factor: Int, cofactor: Int, rest: Int, falling: bool) -> list[tuple[bool, list[Int]]]:
    """Expressions that are at most a positive multiple of `factor*cofactor + rest`.

    Each entry is a list of goals, of which all (True) or one (False) must be nonnegative. `falling` says that the
    cofactor is at most 0, so an upper bound of the factor is wanted; else it is at least 0 and a lower bound is.
    """
    goals: list[tuple[bool, list[Int]]] = []

    def put(bound: Int) -> Int:
        return plain_sum(plain_product(cofactor, bound), rest)

    match factor:
        case Symbol():
            if falling:
                if factor.below is not None:
                    goals.append((True, [put(shift(factor.below, -1))]))
                if factor.hi is not None:
                    goals.append((True, [put(const(factor.hi))]))
            elif factor.lo is not None:
                goals.append((True, [put(const(factor.lo))]))
        case SymbolQuotient():
            step = factor.symbol.multiple
            if falling:
                if factor.symbol.below is not None:
                    below = factor.symbol.below
                    if below.multiple % step == 0:
                        goals.append((True, [put(shift(exact_quotient(below, step), -1))]))
                    else:
                        goals.append((True, [plain_sum(plain_product(cofactor, shift(below, -1)), scale(rest, step))]))
                if factor.hi is not None:
                    goals.append((True, [put(const(factor.hi))]))
            elif factor.lo is not None:
                goals.append((True, [put(const(factor.lo))]))
        case FloorDiv():
            if not cofactor.terms and rest.multiple % cofactor.constant == 0:
                # c*q <= c*r is x < (r + 1) * divisor, and c*q >= -c*r is x >= -r * divisor.
                limit = plain_product(exact_quotient(rest, abs(cofactor.constant)), factor.divisor)
                if falling:
                    goal = plain_sum(shift(plain_sum(limit, factor.divisor), -1), factor.numerator, -1)
                else:
                    goal = plain_sum(factor.numerator, limit)
                goals.append((True, [goal]))
            # divisor * (x // divisor) lies in [x - divisor + 1, x]: scale by the divisor, which is positive.
            scaled = plain_product(rest, factor.divisor)
            bound_of_product = factor.numerator
            if not falling:
                bound_of_product = shift(plain_sum(factor.numerator, factor.divisor, -1), 1)
            goals.append((True, [plain_sum(plain_product(cofactor, bound_of_product), scaled)]))
            bound = factor.hi if falling else factor.lo
            if bound is not None:
                goals.append((True, [put(const(bound))]))
        case Mod():
            if falling:
                goals.append((True, [put(shift(factor.divisor, -1))]))
                if factor.numerator.lo is not None and factor.numerator.lo >= 0:
                    goals.append((True, [put(factor.numerator)]))
            else:
                goals.append((True, [rest]))
        case Min():
            goals.append((not falling, [put(a) for a in factor.arguments]))
        case Max():
            goals.append((falling, [put(a) for a in factor.arguments]))
        case Select():
            goals.append((True, [put(factor.chosen), put(factor.otherwise)]))
        case _:
            pass
    return goals


def _shifted_lo(node: Int) -> bool:
    """Whether the range of `node` is nonnegative once every atom is written as its lower bound plus a rest.

    Products then cancel that plain interval arithmetic cannot see: N*M - N for M >= 1.
    """
    if all(len(monomial) == 1 for monomial, _ in node.terms):
        return False
    ranges: dict[Int, tuple[int, Bound]] = {}
    for monomial, _ in node.terms:
        for factor in monomial:
            lo, hi = factor.lo, factor.hi
            if lo is None:
                return False
            ranges[factor] = (lo, hi)
    shifted: dict[Monomial, int] = {}
    for monomial, coefficient in node.terms:
        # Expand the product of (lo + rest); `factor` stands for its own rest from here on.
        expansion: dict[Monomial, int] = {(): coefficient}
        for factor in monomial:
            lo = ranges[factor][0]
            grown: dict[Monomial, int] = {}
            for m, c in expansion.items():
                add_multiple(grown, ((monomial_product(m, (factor,)), 1),), c)
                if lo:
                    add_multiple(grown, ((m, 1),), c * lo)
            expansion = grown
        add_multiple(shifted, expansion.items(), 1)
    total = node.constant
    for monomial, coefficient in shifted.items():
        if coefficient > 0:
            if not monomial:
                total += coefficient
            continue
        most = coefficient
        for factor in monomial:
            lo, hi = ranges[factor]
            if hi is None:
                return False
            most *= hi - lo
        total += most
    return total >= 0
