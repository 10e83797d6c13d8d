"""Polynomial arithmetic on integer expressions, as it is: no rule is applied.

Proofs compute with it, and the rules build on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.ir.integers.integer_nodes import Int, Monomial, Terms, const, factor_order, intern_sum, scale, shift


def _term_order(term: tuple[Monomial, int]) -> str:
    monomial = term[0]
    return monomial[0].order if len(monomial) == 1 else "*".join([factor.order for factor in monomial])


def sort_sum(constant: int, terms: dict[Monomial, int]) -> Int:
    """The node for unsorted terms without zero coefficients."""
    if len(terms) > 1:
        return intern_sum(constant, tuple(sorted(terms.items(), key=_term_order)))
    return intern_sum(constant, tuple(terms.items()))


def add_terms(a: Int, b: Int, sign: int) -> tuple[int, dict[Monomial, int]]:
    """Constant and terms of `a + sign * b`."""
    terms = dict(a.terms)
    add_multiple(terms, b.terms, sign)
    return a.constant + sign * b.constant, terms


def multiply_terms(a: Int, b: Int) -> tuple[int, dict[Monomial, int]]:
    """Constant and terms of `a * b`."""
    terms: dict[Monomial, int] = {}
    add_product(terms, a.terms, b.terms)
    if b.constant:
        add_multiple(terms, a.terms, b.constant)
    if a.constant:
        add_multiple(terms, b.terms, a.constant)
    return a.constant * b.constant, terms


def plain_sum(a: Int, b: Int, sign: int = 1) -> Int:
    """`a + sign * b`, quotients and remainders left alone."""
    if not b.terms:
        return shift(a, sign * b.constant)
    return sort_sum(*add_terms(a, b, sign))


def plain_product(a: Int, b: Int) -> Int:
    """`a * b`, quotients and remainders left alone."""
    if not b.terms:
        return scale(a, b.constant)
    if not a.terms:
        return scale(b, a.constant)
    return sort_sum(*multiply_terms(a, b))


def exact_quotient(node: Int, divisor: int) -> Int:
    """`node / divisor` where `divisor` divides every coefficient."""
    return intern_sum(node.constant // divisor, tuple([(m, c // divisor) for m, c in node.terms]))


def divide_out(node: Int, coefficient: int, monomial: Monomial) -> Int:
    """`node / (coefficient * monomial)` where that divides every term."""
    constant = node.constant // coefficient
    terms: dict[Monomial, int] = {}
    for term, count in node.terms:
        cofactor = monomial_quotient(term, monomial)
        if cofactor:
            terms[cofactor] = count // coefficient
        else:
            constant += count // coefficient
    return sort_sum(constant, terms)


def product_node(coefficient: int, monomial: Monomial) -> Int:
    return const(coefficient) if not monomial else intern_sum(0, ((monomial, coefficient),))


def add_product(terms: dict[Monomial, int], left: Iterable[tuple[Monomial, int]], right: Terms) -> None:
    for m, c in left:
        for n, k in right:
            monomial = monomial_product(m, n)
            total = terms.get(monomial, 0) + c * k
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]


def add_multiple(terms: dict[Monomial, int], addend: Iterable[tuple[Monomial, int]], factor: int) -> None:
    for monomial, coefficient in addend:
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]


def monomial_product(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    return tuple(sorted(a + b, key=factor_order))


def monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """`monomial / divisor`, None if it does not divide."""
    if not divisor:
        return monomial
    rest = list(monomial)
    for factor in divisor:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def common_factors(a: Monomial, b: Monomial) -> Monomial:
    rest = list(b)
    common: list[Int] = []
    for factor in a:
        if factor in rest:
            rest.remove(factor)
            common.append(factor)
    return tuple(common)


def leading(node: Int) -> Monomial:
    """The monomial of highest degree; empty for a constant."""
    return max((m for m, _ in node.terms), key=lambda m: (len(m), m[0].order), default=())
