"""Bounds of symbols against all values of the extents that are computed from them."""

from __future__ import annotations

from itertools import product

import pytest

from fuser.ir.integers.extent_bounds import bounds_of_symbol, has_bounded_product, has_followed_bounds
from fuser.ir.integers.integers import Int, ceil_div, const, maximum, minimum, symbol

N = symbol("n")
FOLLOWED = [
    N,
    2 * N,
    3 * N + 5,
    N - 4,
    N // 4,
    (2 * N + 1) // 3,
    minimum(N, 7),
    maximum(N, 3),
    minimum(N // 2, 5) + 1,
    maximum(2 * N - 3, 4),
]


@pytest.mark.parametrize("extent", FOLLOWED, ids=str)
def test_bounds_hold_for_every_value_within(extent: Int) -> None:
    for low, high in product(range(9), range(9)):
        found = bounds_of_symbol(extent, low, high)
        assert found is not None
        assert found[0] is N
        _, first, last = found
        for n in range(60):
            if low <= extent.evaluate({N: n}) <= high:
                assert first is None or first <= n, (low, high)
                assert last is None or n <= last, (low, high)


@pytest.mark.parametrize("extent", FOLLOWED, ids=str)
def test_ranges_find_the_bounds_again(extent: Int) -> None:
    """What a loop of a row that `capacity` elements hold takes: one trip, where the extent is at least 1."""
    capacity = 32
    found = bounds_of_symbol(extent, 1, capacity)
    assert found is not None
    bounded = symbol("n", max(found[1] or 0, 0), found[2])
    trips = ceil_div(extent.substitute({N: bounded}), capacity)
    assert trips.is_const
    assert trips.value == 1


def test_what_is_not_followed() -> None:
    m = symbol("m")
    for extent in (N * m, N + m, minimum(N, m), N // m, minimum(N + 6, 20) - minimum(N + 6, 14), 9 - N):
        assert bounds_of_symbol(extent, 1, 8) is None
        assert not has_followed_bounds(extent)


@pytest.mark.parametrize(
    ("extents", "is_bounded"),
    [
        ((N - 4,), True),
        ((N - 4, const(6)), True),
        ((N + 2, symbol("m") // 2, const(3)), True),
        ((N, N), True),
        ((N - 1, symbol("m")), False),
        ((N + 1, symbol("m") - 3), False),
    ],
    ids=str,
)
def test_products_of_bounded_extents(extents: tuple[Int, ...], is_bounded: bool) -> None:
    """Of those that are found to be bounded a row that just fits takes one trip, however it is split."""
    assert has_bounded_product(extents) is is_bounded
    if not is_bounded:
        return
    most = 5
    bounded: dict[Int, Int] = {}
    for extent in extents:
        found = bounds_of_symbol(extent, 1, most)
        if found is not None:
            bounded[found[0]] = symbol(found[0].name, max(found[1] or 0, 0), found[2])
    row, length = 1, const(1)
    for extent in extents:
        row *= extent.value if extent.is_const else most
        length = length * extent.substitute(bounded)
    for vector, threads in product((1, 2, 4), (1, 3, 8)):
        capacity = -(-row // (vector * threads))
        trips = ceil_div(ceil_div(ceil_div(length, vector), threads), capacity)
        assert trips.hi == 1
