"""Arithmetic of ranges: bounds are ints, None where a side is open."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TypeAlias

Bound: TypeAlias = "int | None"


def least(bounds: Iterable[Bound], open_wins: bool) -> Bound:
    """The least bound; an open one (None) wins or is skipped."""
    result: Bound = None
    for bound in bounds:
        if bound is None:
            if open_wins:
                return None
        elif result is None or bound < result:
            result = bound
    return result


def greatest(bounds: Iterable[Bound], open_wins: bool) -> Bound:
    """The greatest bound; an open one (None) wins or is skipped."""
    result: Bound = None
    for bound in bounds:
        if bound is None:
            if open_wins:
                return None
        elif result is None or bound > result:
            result = bound
    return result


def product_range(ranges: Iterable[tuple[Bound, Bound]]) -> tuple[Bound, Bound]:
    """The range of a product of factors with these ranges."""
    lo: Bound = 1
    hi: Bound = 1
    for a, b in ranges:
        lo, hi = _interval_product(lo, hi, a, b)
    return lo, hi


def _interval_product(a: Bound, b: Bound, c: Bound, d: Bound) -> tuple[Bound, Bound]:
    """[a, b] * [c, d]; None is an infinite end."""
    if a is not None and a >= 0 and c is not None and c >= 0:
        # Nonnegative operands, by far the most common case. An end of 0 stays 0 against an infinite one.
        return a * c, 0 if b == 0 or d == 0 else None if b is None or d is None else b * d
    corners = (
        _extended_product(-inf if a is None else a, -inf if c is None else c),
        _extended_product(-inf if a is None else a, inf if d is None else d),
        _extended_product(inf if b is None else b, -inf if c is None else c),
        _extended_product(inf if b is None else b, inf if d is None else d),
    )
    lo, hi = min(corners), max(corners)
    return lo if isinstance(lo, int) else None, hi if isinstance(hi, int) else None


def _extended_product(a: float, b: float) -> float:
    """The product of two ends of ranges, each an int or infinite; 0 times infinity is 0."""
    return 0 if a == 0 or b == 0 else a * b
