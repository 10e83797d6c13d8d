"""Ranges against all values they stand for; an open side against a value far out."""

from __future__ import annotations

from itertools import product

from fuser.ir.integers.integer_ranges import Bound, greatest, least, product_range

FAR = 1000
BOUNDS: tuple[Bound, ...] = (None, -3, -1, 0, 1, 2)
RANGES = [(lo, hi) for lo, hi in product(BOUNDS, BOUNDS) if lo is None or hi is None or lo <= hi]


def values(lo: Bound, hi: Bound) -> list[int]:
    first, last = -FAR if lo is None else lo, FAR if hi is None else hi
    return [first, first + (last - first) // 2, last, *(v for v in (-1, 0, 1) if first <= v <= last)]


def test_product_holds_all_products_and_no_bound_can_be_closer() -> None:
    for a, b in product(RANGES, RANGES):
        lo, hi = product_range((a, b))
        found = [x * y for x in values(*a) for y in values(*b)]
        assert min(found) <= -FAR if lo is None else min(found) == lo, (a, b)
        assert max(found) >= FAR if hi is None else max(found) == hi, (a, b)


def test_product_of_nothing_is_one() -> None:
    assert product_range(()) == (1, 1)


def test_open_bounds_win_or_are_skipped() -> None:
    assert least((3, None, 1), True) is None
    assert least((3, None, 1), False) == 1
    assert greatest((3, None, 1), True) is None
    assert greatest((3, None, 1), False) == 3
    assert least((None, None), False) is None
