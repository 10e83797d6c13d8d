"""One division for all elements of a thread, if they are in at most two rows.

Before: w[(8 * t + i) % n]                                                          in an unrolled loop over i < 8, with n >= 8
After:  w[select(8 * t % n + i < n, 8 * t % n + i, 8 * t % n + i - n)]              of which 8 * t % n is the same in
        all iterations

A division by an extent takes about twenty instructions, a comparison and a selection two. A quotient becomes that of the first
element, or one more. Applied to normalised offsets, in which n * (x // n) + x % n has been folded to x.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from fuser.ir.integers.integers import ONE, ZERO, FloorDiv, Int, Mod, Symbol, const, less, prove_less, select

MAX_INDEX = 2**31 - 1


def divide_once(offset: Int, unrolled: AbstractSet[Symbol]) -> Int:
    """The same offset without divisions that depend on indices of unrolled loops, where that can be."""
    indices = sorted(offset.symbols & unrolled, key=lambda s: s.name)
    if not indices:
        return offset
    result: Int = const(offset.constant)
    for monomial, coefficient in offset.terms:
        product: Int = const(coefficient)
        for factor in monomial:
            product = product * _without_division(factor, indices)
        result = result + product
    return result


def _without_division(factor: Int, indices: list[Symbol]) -> Int:
    if not isinstance(factor, (FloorDiv, Mod)):
        return factor
    factor = _merge_divisions(factor)
    for i in indices:
        start = factor.numerator.substitute({i: ZERO})
        if factor.numerator - start is i and i not in factor.divisor.symbols and prove_less(i, factor.divisor):
            return _select_from_first(factor, start, i)
    return factor


def _merge_divisions(factor: FloorDiv | Mod) -> FloorDiv | Mod:
    """(a + b // m) // n as (m a + b) // (m n), which is the place of an element among whole images instead of rows of them.

    Only where what is divided is known to fit 32 bits.
    """
    if not isinstance(factor, FloorDiv) or not factor.divisor.is_const:
        return factor
    for monomial, coefficient in factor.numerator.terms:
        inner = monomial[0]
        if len(monomial) == 1 and coefficient == 1 and isinstance(inner, FloorDiv) and inner.divisor.is_const:
            whole = (factor.numerator - inner) * inner.divisor + inner.numerator
            if whole.lo is not None and whole.hi is not None and whole.lo >= -MAX_INDEX and whole.hi <= MAX_INDEX:
                made = whole // (factor.divisor * inner.divisor)
                return _merge_divisions(made) if isinstance(made, FloorDiv) else factor
    return factor


def _select_from_first(factor: FloorDiv | Mod, start: Int, i: Symbol) -> Int:
    place = start % factor.divisor
    is_same = less(place + i, factor.divisor)
    if isinstance(factor, FloorDiv):
        return start // factor.divisor + select(is_same, ZERO, ONE)
    return select(is_same, place + i, place + i - factor.divisor)
