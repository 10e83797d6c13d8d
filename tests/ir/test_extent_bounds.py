"""Bounds of symbols against all values of the extents that are computed from them."""

from __future__ import annotations

from itertools import product

import pytest

from fuser.ir.extent_bounds import bounds_of_symbol, has_followed_bounds
from fuser.ir.integers import Int, ceil_div, maximum, minimum, symbol

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
