"""How elements lie in memory, as sizes and strides alone. Strides in elements."""

from __future__ import annotations

from collections.abc import Sequence


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Dense row-major strides in elements; extents of 0 count as 1."""
    strides: list[int] = []
    step = 1
    for n in reversed(sizes):
        strides.append(step)
        step *= n or 1
    return tuple(reversed(strides))


def element_span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to past the last one stored, for strides that are not negative; 0 without elements."""
    span = 1
    for n, s in zip(sizes, strides, strict=True):
        if n == 0:
            return 0
        span += (n - 1) * s
    return span


def overlaps_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two different indices name the same element (an expanded dimension, a sliding window).

    Exact up to a million elements; above, a layout whose dimensions interleave without nesting counts as overlapping.
    """
    if 0 in sizes:
        return False
    dims = sorted((abs(s), n) for n, s in zip(sizes, strides, strict=True) if n > 1)
    reach = 0
    for stride, n in dims:
        if stride <= reach:
            return stride == 0 or _repeats_an_offset(dims)
        reach += (n - 1) * stride
    return False


def _repeats_an_offset(dims: Sequence[tuple[int, int]]) -> bool:
    import numpy as np

    offsets = np.zeros(1, np.int64)
    for stride, n in dims:
        if offsets.size * n > 1 << 20:
            return True
        offsets = (offsets[:, None] + np.arange(n, dtype=np.int64) * stride).reshape(-1)
        if np.unique(offsets).size != offsets.size:
            return True
    return False


def has_gaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether there are elements between the first and the last that belong to no index; strides not negative."""
    reach = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride > reach:
            return True
        reach += (n - 1) * stride
    return False
