"""Parts that two lists of extents have in common."""

from __future__ import annotations

from typing import Any

import pytest

from fuser.ir.integers.integers import Int, const, symbol
from fuser.optimize.dim_parts import common_parts


def ints(*values: int | Int) -> list[Int]:
    return [v if isinstance(v, Int) else const(v) for v in values]


N, M, K = symbol("n", 0), symbol("m", 0), symbol("k", 0)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (ints(24), ints(4, 6), ([[4, 6]], [[4], [6]])),
        (ints(2, 12), ints(8, 3), ([[2], [4, 3]], [[2, 4], [3]])),
        (ints(4, 6), ints(6, 4), None),
        (ints(4, 6), ints(2, 12), ([[2, 2], [6]], [[2], [2, 6]])),
        (ints(N, 6), ints(N * 6), ([[N], [6]], [[N, 6]])),
        (ints(N, M), ints(N * M), ([[N], [M]], [[N, M]])),
        (ints(N, M), ints(M, N), None),
        # Equal extents are told apart by where they stand.
        (ints(N, 3, 3), ints(N * 9), ([[N], [3], [3]], [[N, 3, 3]])),
        (ints(N, 3, 3), ints(N * 3, 3), ([[N], [3], [3]], [[N, 3], [3]])),
        (ints(N, N), ints(N * N), ([[N], [N]], [[N, N]])),
        # What is left of an extent that nothing divides are the extents left of the other side.
        (ints(N, 3, 3), ints(K), ([[N], [3], [3]], [[N, 3, 3]])),
        (ints(N, M, M, M), ints(K), ([[N], [M], [M], [M]], [[N, M, M, M]])),
        (ints(K), ints(M, M), ([[M, M]], [[M], [M]])),
        # The simpler of two extents that are equal; a constant is simplest.
        (ints(N * M, 3), ints(K, 3), ([[K], [3]], [[K], [3]])),
        (ints(N, 6), ints(4, 6), ([[4], [6]], [[4], [6]])),
        (ints(6, N, 2), ints(8, 3), None),
        (ints(2, N, 12), ints(K, 6), ([[2], [N], [2, 6]], [[2, N, 2], [6]])),
    ],
)
def test_common_parts(left: list[Int], right: list[Int], expected: Any) -> None:
    for sides in ([left, right], [right, left]):
        found = common_parts(sides)
        if expected is None:
            assert found is None
        else:
            wanted = tuple([ints(*p) for p in side] for side in expected)
            assert found == (wanted if sides[0] is left else wanted[::-1])
