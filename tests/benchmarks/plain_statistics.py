"""Statistics as a plain kernel computes them, in the dtype of the data."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def scalar_of(x: Array, value: float) -> Any:
    return x.dtype.type(value)


def plain_var_mean(x: Array) -> list[Array]:
    """Welford's update in 32 threads, which join in pairs, as torch's kernel has it."""
    threads, one = 32, scalar_of(x, 1)
    mean, m2 = (np.zeros((threads, x.shape[1]), x.dtype) for _ in range(2))
    count = np.zeros((threads, 1), x.dtype)
    for k in range(0, len(x), threads):
        rows = x[k : k + threads]
        n, delta = len(rows), rows - mean[: len(rows)]
        count[:n] += one
        mean[:n] += delta / count[:n]
        m2[:n] += delta * (rows - mean[:n])
    while len(mean) > 1:
        half = len(mean) // 2
        delta, total = mean[half:] - mean[:half], count[half:] + count[:half]
        share = count[half:] / total
        m2 = m2[half:] + m2[:half] + delta * delta * count[:half] * share
        mean, count = mean[:half] + delta * share, total
    return [m2[0] / (count[0] - one), mean[0]]
