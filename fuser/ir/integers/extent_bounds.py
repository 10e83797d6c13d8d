"""What bounds of an extent say of the symbol that it is computed from.

A schedule asks for bounds of the extents of inputs. An input that an earlier kernel makes may have a computed one, such as
`2*n` or `min(n, 3)`: bounds of that follow from those of `n`, which is what a kernel's expressions are made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fuser.ir.integers.integers import ONE, FloorDiv, Int, Max, Min, Symbol


def bounds_of_symbol(extent: Int, low: int | None, high: int | None) -> tuple[Symbol, int | None, int | None] | None:
    """(symbol, low, high) that hold wherever low <= extent <= high does, None for no bound; None where an extent has several
    symbols, or has one in a way that is not followed.

    Of what is followed ranges find the bounds of `extent` again: `a*n + b`, `e // d`, `min(e, c)` and `max(e, c)`, with
    constants a > 0, b, c and d > 0.
    """
    if isinstance(extent, Symbol):
        return extent, low, high
    if isinstance(extent, FloorDiv):
        if not extent.divisor.is_const:
            return None
        step = extent.divisor.value
        above = None if high is None else high * step + step - 1
        return bounds_of_symbol(extent.numerator, None if low is None else low * step, above)
    if isinstance(extent, Min | Max):
        constants = [a.value for a in extent.arguments if a.is_const]
        others = [a for a in extent.arguments if not a.is_const]
        if len(constants) != 1 or len(others) != 1:
            return None
        # A bound that the constant meets by itself says nothing of the other one.
        if isinstance(extent, Min) and high is not None and constants[0] <= high:
            high = None
        if isinstance(extent, Max) and low is not None and low <= constants[0]:
            low = None
        return bounds_of_symbol(others[0], low, high)
    if len(extent.terms) != 1:
        return None
    monomial, factor = extent.terms[0]
    if factor < 1 or len(monomial) != 1 or monomial[0] is extent:
        return None
    first = None if low is None else -((extent.constant - low) // factor)
    last = None if high is None else (high - extent.constant) // factor
    return bounds_of_symbol(monomial[0], first, last)


def has_followed_bounds(extent: Int) -> bool:
    """Whether bounds of an extent are as good as bounds of the symbol that it is computed from."""
    return bounds_of_symbol(extent, 1, 1) is not None


def has_bounded_product(extents: Iterable[Int]) -> bool:
    """Whether the product of extents with followed bounds is found to be at most that of their upper bounds.

    It grows in each symbol then, and all are largest at once. `(n - 1) * m` is `n*m - m`, whose terms are bounded each by
    itself: for n <= 4 and m <= 3 it is 12 less what m is at least.
    """
    return all(factor > 0 for _, factor in math.prod(extents, start=ONE).terms)
