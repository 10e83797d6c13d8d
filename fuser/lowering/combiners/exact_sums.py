"""Statistics of Doubles that threads join as sums: of differences from one value that all of them know, and of their squares.

Sums and squares carry what their additions lose, so that a tree of joins costs no digits, and no step divides: the mean and the
squares of the differences from it come of the complete sums, once. A partial of no values is zeros. Where threads have shifts
of their own, their means and squares are joined instead (`exact_welford.py`).
"""

from __future__ import annotations

from fuser.ir.integers import Int
from fuser.ir.kernel import Buffer, Stmt, Value
from fuser.lowering.combiners.compensated_sum import join_sums

EXACT_MOMENTS = "exact_moments"
"""What a collective over (sum, sum of squares, count, rest of the sum, that of the squares) is called."""


def moments_joined(acc: tuple[Buffer, ...], at: Int, other: tuple[Value, ...], name: str) -> list[Stmt]:
    """Join sums of differences from one shift to element `at`; counts are still to be added."""
    total, squares, _, rest, squares_rest = acc
    return [
        *join_sums((total, rest), at, (other[0], other[3]), f"{name}_s"),
        *join_sums((squares, squares_rest), at, (other[1], other[4]), f"{name}_q"),
    ]
