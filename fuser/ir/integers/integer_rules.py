"""Arithmetic of integer expressions in normal form, and the rule tables that make it.

One rule is one row: name, one line, example, function. Division rules rewrite a quotient and a remainder together,
identity rules recombine them in sums. `integer_choices` has the rules of minimum, maximum and selection, `integer_conditions`
those of conditions and the table of all (`RULES`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from fuser.ir.integers.integer_attributes import monomial_weight
from fuser.ir.integers.integer_nodes import (
    ONE,
    ZERO,
    FloorDiv,
    Int,
    Mod,
    Monomial,
    Terms,
    as_int,
    const,
    floor_div_atom,
    memo,
    mod_atom,
    remember,
    scale,
    shift,
)
from fuser.ir.integers.integer_proofs import is_nonnegative
from fuser.ir.integers.integer_sums import (
    add_multiple,
    add_product,
    add_terms,
    common_factors,
    divide_out,
    exact_quotient,
    leading,
    monomial_product,
    monomial_quotient,
    multiply_terms,
    product_node,
    sort_sum,
)

_F = TypeVar("_F")


class Rule(NamedTuple, Generic[_F]):
    """One local simplification.

    `example` and `result` are Python text over the symbols of the tests: x, y, z >= 0; i, j in [0, 128); v in [0, 8);
    N, M >= 1; N8 >= 8 and divisible by 8; n below N; m below M; o below N8//8. `str` of the example is the result.
    """

    name: str
    doc: str
    example: str
    result: str
    apply: _F


class Identity(NamedTuple):
    """A polynomial that is 0: `constant + terms`.

    lead       the term that a sum must be able to cancel
    partners   other terms that a sum must cancel exactly if it has them, unless all the rest cancels: x//a + s*(x%a)
               must not become s*x + (1 - s*a)*(x//a), which has fewer divisions, but no range left to prove with
    """

    lead: Monomial
    lead_coefficient: int
    constant: int
    terms: Terms
    partners: frozenset[Monomial]


DivisionRule: TypeAlias = "Callable[[Int, Int], tuple[Int, Int] | None]"
IdentityRule: TypeAlias = "Callable[[Int], Identity | None]"
PairRule: TypeAlias = "Callable[[FloorDiv, FloorDiv], Identity | None]"
_additions: dict[tuple[Int, Int, int], Int] = memo()
_products: dict[tuple[Int, Int], Int] = memo()
_divisions: dict[tuple[Int, Int], tuple[Int, Int]] = memo()
_identities: dict[Int, tuple[Identity, ...]] = memo()


# --------------------------------------------------------------------------------------------------- sums and products


def add(a: Int, b: Int, sign: int) -> Int:
    """`a + sign * b`, for sign 1 or -1."""
    if not b.terms:
        return shift(a, sign * b.constant)
    if not a.terms and sign == 1:
        return shift(b, a.constant)
    key = (a, b, sign)
    result = _additions.get(key)
    if result is None:
        result = make_sum(*add_terms(a, b, sign))
        remember(_additions, key, result)
    return result


def multiply(a: Int, b: Int) -> Int:
    """`a * b`."""
    if not b.terms:
        return scale(a, b.constant)
    if not a.terms:
        return scale(b, a.constant)
    key = (a, b)
    result = _products.get(key)
    if result is None:
        result = make_sum(*multiply_terms(a, b))
        remember(_products, key, result)
    return result


def make_sum(constant: int, terms: dict[Monomial, int]) -> Int:
    """The node for unsorted terms without zero coefficients, quotients and remainders recombined."""
    if len(terms) > 1:
        for monomial in terms:
            for factor in monomial:
                if factor.is_division:
                    constant = _recombine(constant, terms)
                    return sort_sum(constant, terms)
    return sort_sum(constant, terms)


def prove_less(a: Int | int, b: Int | int) -> bool:
    """True if `a < b` holds for all values of the symbols; False means not proved."""
    return is_nonnegative(shift(add(as_int(b), as_int(a), -1), -1))


def prove_less_equal(a: Int | int, b: Int | int) -> bool:
    """True if `a <= b` holds for all values of the symbols; False means not proved."""
    return is_nonnegative(add(as_int(b), as_int(a), -1))


def prove_divisible(a: Int | int, n: Int | int) -> bool:
    """True if `n` (at least 1) divides `a` for all values of the symbols; False means not proved."""
    return divide(as_int(a), as_int(n))[1] is ZERO


# ------------------------------------------------------------------------------------------------------------ division


# A rule returns (numerator // divisor, numerator % divisor) or None; the first that answers wins.


def divide(numerator: Int, divisor: Int) -> tuple[Int, Int]:
    """`(numerator // divisor, numerator % divisor)` in normal form.

    ZeroDivisionError for a divisor that is 0, ValueError for one that is negative.
    """
    key = (numerator, divisor)
    result = _divisions.get(key)
    if result is not None:
        return result
    if divisor.hi is not None and divisor.hi < 1:
        if divisor is ZERO:
            raise ZeroDivisionError(f"division of {numerator} by 0")
        if divisor.hi < 0 or not divisor.terms:
            raise ValueError(f"division of {numerator} by {divisor}, which is negative")
    for rule in DIVISION_RULES:
        result = rule.apply(numerator, divisor)
        if result is not None:
            break
    else:
        result = (floor_div_atom(numerator, divisor), mod_atom(numerator, divisor))
    remember(_divisions, key, result)
    return result


def split_multiples(a: Int, n: int) -> tuple[Int, Int]:
    """(q, r) with `a == n * q + r`, where r has the terms of `a` that are not known to be multiples of n."""
    quotient, rest = ZERO, const(a.constant % n)
    if a.constant // n:
        quotient = const(a.constant // n)
    for monomial, coefficient in a.terms:
        term = make_sum(0, {monomial: coefficient})
        if term.multiple % n == 0:
            quotient = add(quotient, exact_quotient(term, n), 1)
        else:
            rest = add(rest, term, 1)
    return quotient, rest


def ceil_div(a: Int | int, b: Int | int) -> Int:
    """`a / b` rounded up, for b >= 1."""
    divisor = as_int(b)
    return divide(as_int(a) + divisor - 1, divisor)[0]


def _divide_by_one(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    return (numerator, ZERO) if divisor is ONE else None


def _divide_bounded(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    lo, hi = numerator.lo, numerator.hi
    if lo is None or hi is None:
        return (ZERO, ZERO) if numerator is ZERO else None
    if not divisor.terms:
        step = divisor.constant
        quotient = lo // step
        return (const(quotient), shift(numerator, -quotient * step)) if hi // step == quotient else None
    least = divisor.lo
    if lo >= 0 and hi < max(1, least if least is not None else 1):
        return ZERO, numerator
    return None


def _divide_split(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    rest: dict[Monomial, int] = {}
    quotient: dict[Monomial, int] = {}
    constant = numerator.constant
    quotient_constant = 0
    if not divisor.terms:
        step = divisor.constant
        for monomial, coefficient in numerator.terms:
            if -step < coefficient < step:
                rest[monomial] = coefficient
            else:
                # Towards zero, so that a coefficient never changes its sign.
                whole = coefficient // step if coefficient > 0 else -(-coefficient // step)
                quotient[monomial] = whole
                if coefficient != whole * step:
                    rest[monomial] = coefficient - whole * step
        quotient_constant, constant = divmod(constant, step)
    elif len(divisor.terms) == 1 and divisor.constant == 0:
        base, step = divisor.terms[0]
        for monomial, coefficient in numerator.terms:
            cofactor = None if -step < coefficient < step else monomial_quotient(monomial, base)
            if cofactor is None:
                rest[monomial] = coefficient
                continue
            whole = coefficient // step if coefficient > 0 else -(-coefficient // step)
            if cofactor:
                quotient[cofactor] = quotient.get(cofactor, 0) + whole
            else:
                quotient_constant += whole
            if coefficient != whole * step:
                rest[monomial] = coefficient - whole * step
    else:
        return None
    if not quotient and not quotient_constant:
        return None
    whole_part = make_sum(quotient_constant, quotient)
    inner, remainder = divide(make_sum(constant, rest), divisor)
    return add(whole_part, inner, 1), remainder


def _divide_coarse(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    """With numerator = g*a + s, divisor = g*d and 0 <= s < g: quotient a // d, remainder g*(a % d) + s."""
    content = divisor.multiple
    base: Monomial = ()
    if divisor.terms and divisor.constant == 0:
        base = divisor.terms[0][0]
        for monomial, _ in divisor.terms[1:]:
            base = common_factors(base, monomial)
    candidates: list[tuple[int, Monomial]] = []
    for monomial, coefficient in numerator.terms:
        candidate = (gcd(coefficient, content), common_factors(monomial, base) if base else ())
        if candidate != (1, ()) and candidate not in candidates:
            candidates.append(candidate)
    if not candidates:
        return None
    # The coarsest grid first: it leaves the smallest division.
    candidates.sort(key=lambda c: (-len(c[1]), -c[0]))
    for step, common in candidates:
        coarse: dict[Monomial, int] = {}
        fine: dict[Monomial, int] = {}
        coarse_constant, fine_constant = (0, numerator.constant) if common else divmod(numerator.constant, step)
        for monomial, coefficient in numerator.terms:
            cofactor = None if coefficient % step else monomial_quotient(monomial, common)
            if cofactor is None:
                fine[monomial] = coefficient
            elif cofactor:
                coarse[cofactor] = coefficient // step
            else:
                coarse_constant += coefficient // step
        rest = make_sum(fine_constant, fine)
        grid = product_node(step, common)
        if not common:
            lo, hi = rest.lo, rest.hi
            if lo is None or hi is None or lo // step != hi // step:
                continue
            coarse_constant += lo // step
            rest = shift(rest, -(lo // step) * step)
        elif not (prove_less_equal(ZERO, rest) and prove_less(rest, grid)):
            continue
        quotient, remainder = divide(make_sum(coarse_constant, coarse), divide_out(divisor, step, common))
        return quotient, add(multiply(grid, remainder), rest, 1)
    return None


def _divide_proved(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if numerator.terms and not divisor.terms and not _has_both_signs(numerator):
        return None  # ranges have decided already
    if numerator.hi is not None and numerator.hi < 0:
        shifted = add(numerator, divisor, 1)
        return (const(-1), shifted) if prove_less_equal(ZERO, shifted) else None
    if prove_less_equal(ZERO, numerator) and prove_less(numerator, divisor):
        return ZERO, numerator
    return None


def _has_both_signs(node: Int) -> bool:
    return any(c < 0 for _, c in node.terms) and any(c > 0 for _, c in node.terms)


def _divide_inner_mod(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if numerator.__class__ is not Mod:
        return None
    inner: Mod = numerator  # type: ignore[assignment]
    outer, rest = divide(inner.divisor, divisor)
    if rest is not ZERO:
        return None
    quotient, remainder = divide(inner.numerator, divisor)
    return quotient % outer, remainder


def _divide_quotient(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if len(numerator.terms) != 1:
        return None
    monomial, coefficient = numerator.terms[0]
    if coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], FloorDiv):
        return None
    inner = monomial[0]
    quotient = divide(inner.numerator + numerator.constant * inner.divisor, inner.divisor * divisor)[0]
    if len(quotient.terms) == 1 and isinstance(quotient.terms[0][0][0], FloorDiv):
        return quotient, _undivided(numerator, divisor)[1]
    return quotient, numerator - quotient * divisor


def _divide_absorb(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    flat = numerator
    for monomial, coefficient in numerator.terms:
        for position, factor in enumerate(monomial):
            if isinstance(factor, Mod):
                others = product_node(coefficient, monomial[:position] + monomial[position + 1 :])
                if divide(others * factor.divisor, divisor)[1] is ZERO:
                    flat = flat - others * factor + others * factor.numerator
                    break
    if flat is numerator:
        return None
    return _undivided(numerator, divisor)[0], flat % divisor


def _divide_polynomial(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if len(divisor.terms) + (divisor.constant != 0) < 2:
        return None
    lead = leading(divisor)
    step = dict(divisor.terms)[lead]
    quotient = ZERO
    rest = numerator
    for monomial, coefficient in numerator.terms:
        cofactor = monomial_quotient(monomial, lead)
        if cofactor is not None and coefficient % step == 0:
            part = product_node(coefficient // step, cofactor)
            quotient = quotient + part
            rest = rest - part * divisor
    if quotient is ZERO:
        return None
    if rest is ZERO or (prove_less_equal(ZERO, rest) and prove_less(rest, divisor)):
        return quotient, rest
    return None


def _divide_lifted(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if has_plain_division(numerator, divisor):
        return None
    # Of the two forms (x - 1)//d + 1 and (x + d - 1)//d the second needs no care for a negative numerator in C.
    lifted = add(numerator, divisor, 1)
    if not has_plain_division(lifted, divisor):
        return None
    if prove_less(lifted, divisor):
        return const(-1), lifted
    if lifted.weight < numerator.weight:
        # The longer sum has recombined into something that may divide further.
        quotient, remainder = divide(lifted, divisor)
        return shift(quotient, -1), remainder
    back = add(lifted, divisor, -1)
    if back.weight < numerator.weight:
        return divide(back, divisor)
    return shift(floor_div_atom(lifted, divisor), -1), mod_atom(lifted, divisor)


def has_plain_division(numerator: Int, divisor: Int) -> bool:
    """Whether the numerator is proved nonnegative, for a divisor of at least 1."""
    if is_nonnegative(numerator):
        return True
    return bool(divisor.terms) and is_nonnegative(shift(add(numerator, divisor, -1), 1))


def _undivided(numerator: Int, divisor: Int) -> tuple[Int, Int]:
    """Quotient and remainder as nodes of their own."""
    lifted = _divide_lifted(numerator, divisor)
    return (floor_div_atom(numerator, divisor), mod_atom(numerator, divisor)) if lifted is None else lifted


DIVISION_RULES: tuple[Rule[DivisionRule], ...] = (
    Rule("divide_by_one", "x // 1 is x and x % 1 is 0", "x//1 + x%1", "x", _divide_by_one),
    Rule("divide_bounded", "a numerator between two multiples of the divisor", "(j + 256)//128", "2", _divide_bounded),
    Rule("divide_split", "multiples of the divisor leave the division", "(128*i + j + 128)//128", "i + 1", _divide_split),
    Rule("divide_coarse", "a grid finer than the divisor, with less than a step beside it, divides out",
         "(128*x + j)//256 + (128*x + j)%256", "j + 128*(x%2) + x//2", _divide_coarse),
    Rule("divide_proved", "0 <= x < d (or -d <= x < 0) by symbolic bounds", "(x*N + n)//N", "x", _divide_proved),
    Rule("divide_inner_mod", "(x % (a*b)) // b is (x // b) % a, and (x % (a*b)) % b is x % b", "(x%24)//8", "(x//8)%3",
         _divide_inner_mod),
    Rule("divide_quotient", "(x // a + c) // b is (x + c*a) // (a*b)", "(x//4 + 3)//8", "(x + 12)//32", _divide_quotient),
    Rule("divide_absorb", "c*(x % a) loses its % under % b if b divides c*a", "(2*(x%12) + y)%8", "(2*x + y)%8",
         _divide_absorb),
    Rule("divide_polynomial", "long division by a sum, kept if the rest is a remainder", "(x*(N + 1) + n)//(N + 1)", "x",
         _divide_polynomial),
    Rule("divide_lifted", "-d <= x may be negative: (x + d) // d - 1 divides a nonnegative number", "(x - 1)//N",
         "(N + x - 1)//N - 1", _divide_lifted),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------- recombination


# A rule gives a polynomial that is 0 around a quotient or remainder; it is added to a sum if that makes it lighter.
# `x%a + a*(x//a)` thus becomes `x`, whichever of the two the rest of the sum can use.


def _recombine(constant: int, terms: dict[Monomial, int]) -> int:
    """Cancel quotients and remainders in `terms`, in place; the new constant. Each step lowers the weight."""
    while True:
        step = _find_step(terms)
        if step is None:
            return constant
        identity, factor, cofactor = step
        product = ((monomial_product(term, cofactor), count) for term, count in identity.terms)
        add_multiple(terms, product, -factor)
        if not cofactor:
            constant -= factor * identity.constant
        elif identity.constant:
            add_multiple(terms, ((cofactor, identity.constant),), -factor)


def _find_step(terms: dict[Monomial, int]) -> tuple[Identity, int, Monomial] | None:
    quotients: list[FloorDiv] = []
    for monomial, coefficient in terms.items():
        for factor in monomial:
            if factor.is_division:
                division: FloorDiv | Mod = factor  # type: ignore[assignment]
                for identity in _identities_of(division):
                    found = _gain(terms, identity, monomial, coefficient)
                    if found is not None:
                        return found
                if isinstance(division, FloorDiv) and division not in quotients:
                    quotients.append(division)
    for rule in PAIR_IDENTITY_RULES if len(quotients) > 1 else ():
        for fine in quotients:
            for coarse in quotients:
                identity = rule.apply(fine, coarse) if fine is not coarse else None
                if identity is None:
                    continue
                for monomial, coefficient in terms.items():
                    found = _gain(terms, identity, monomial, coefficient)
                    if found is not None:
                        return found
    return None


def _identities_of(node: FloorDiv | Mod) -> tuple[Identity, ...]:
    found = _identities.get(node)
    if found is None:
        made = [rule.apply(node) for rule in ATOM_IDENTITY_RULES]
        found = tuple([identity for identity in made if identity is not None])
        remember(_identities, node, found)
    return found


def _gain(
    terms: dict[Monomial, int], identity: Identity, monomial: Monomial, coefficient: int
) -> tuple[Identity, int, Monomial] | None:
    """How to subtract the identity so that `monomial` goes, if the sum gets lighter by it."""
    if coefficient % identity.lead_coefficient:
        return None
    cofactor = monomial_quotient(monomial, identity.lead)
    if cofactor is None:
        return None
    factor = coefficient // identity.lead_coefficient
    change = 0
    exact = True
    partner_changed = False
    terms_of_identity = identity.terms
    if identity.constant and cofactor:
        terms_of_identity = (*terms_of_identity, ((), identity.constant))
    for term, count in terms_of_identity:
        product = monomial_product(term, cofactor)
        old = terms.get(product, 0)
        if old == 0:
            change += monomial_weight(product)
        elif old == factor * count:
            change -= monomial_weight(product)
            continue
        elif term in identity.partners:
            partner_changed = True
            continue
        if term not in identity.partners:
            exact = False
    return (identity, factor, cofactor) if change < 0 and (exact or not partner_changed) else None


def _make_identity(lead: Monomial, partner: tuple[Int, Int], others: Sequence[tuple[int, Int, Int]]) -> Identity | None:
    """The polynomial `sum(sign * a * b)` over the partner and the others; None unless the lead is one of its terms."""
    terms: dict[Monomial, int] = {}
    constant = 0
    partners: frozenset[Monomial] = frozenset()
    for sign, a, b in ((1, *partner), *others):
        constant += sign * a.constant * b.constant
        add_product(terms, [(m, sign * c) for m, c in a.terms], b.terms)
        if a.constant:
            add_multiple(terms, b.terms, sign * a.constant)
        if b.constant:
            add_multiple(terms, a.terms, sign * b.constant)
        partners = partners or frozenset(m for m in terms if any(factor.is_division for factor in m))
    if lead not in terms:
        return None
    return Identity(lead, terms[lead], constant, tuple(terms.items()), partners - {lead})


def _identity_of_remainder(node: Int) -> Identity | None:
    if not isinstance(node, Mod):
        return None
    quotient = divide(node.numerator, node.divisor)[0]
    return _make_identity((node,), (quotient, node.divisor), ((1, node, ONE), (-1, node.numerator, ONE)))


def _identity_of_quotient(node: Int) -> Identity | None:
    if not isinstance(node, FloorDiv):
        return None
    remainder = divide(node.numerator, node.divisor)[1]
    lead = monomial_product(leading(node.divisor), (node,))
    return _make_identity(lead, (remainder, ONE), ((1, node, node.divisor), (-1, node.numerator, ONE)))


def _identity_of_digits(node: Int) -> Identity | None:
    if not isinstance(node, Mod) or not isinstance(node.numerator, FloorDiv):
        return None
    inner = node.numerator
    low = divide(inner.numerator, inner.divisor)[1]
    both = divide(inner.numerator, inner.divisor * node.divisor)[1]
    lead = monomial_product(leading(inner.divisor), (node,))
    return _make_identity(lead, (low, ONE), ((1, node, inner.divisor), (-1, both, ONE)))


def _identity_of_nested(fine: FloorDiv, coarse: FloorDiv) -> Identity | None:
    if fine.numerator is not coarse.numerator:
        return None
    ratio, rest = divide(coarse.divisor, fine.divisor)
    if rest is not ZERO or ratio is ONE or ratio is ZERO:
        return None
    remainder = divide(fine, ratio)[1]
    lead = monomial_product(leading(ratio), (coarse,))
    return _make_identity(lead, (remainder, ONE), ((1, coarse, ratio), (-1, fine, ONE)))


ATOM_IDENTITY_RULES: tuple[Rule[IdentityRule], ...] = (
    Rule("quotient_plus_remainder", "a*(x // a) + x % a is x", "(x//4)%6 + 6*(x//24)", "x//4", _identity_of_remainder),
    Rule("remainder_from_difference", "x - a*(x // a) is x % a", "x + y - (x//24)*24", "y + x%24", _identity_of_quotient),
    Rule("mixed_radix", "a*((x // a) % b) + x % a is x % (a*b)", "((x//4)%6)*4 + x%4", "x%24", _identity_of_digits),
)  # fmt: skip
PAIR_IDENTITY_RULES: tuple[Rule[PairRule], ...] = (
    Rule("nested_quotients", "x // a - b*(x // (a*b)) is (x // a) % b", "x//4 - 6*(x//24)", "(x//4)%6",
         _identity_of_nested),
)  # fmt: skip
