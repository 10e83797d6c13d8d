"""Operands of library calls in several layouts, and how far results may be off."""

from __future__ import annotations

from typing import Any

import numpy as np

# Of one rounding to the result, and of sums in float.
ERRORS = {"float64": 2.0**-50, "float32": 2.0**-21, "float16": 2.0**-11, "bfloat16": 2.0**-8}

Array = np.ndarray[Any, Any]


def bounded(out: Array, exact: Array, magnitude: Array) -> bool:
    """Whether `out` is one rounding off a sum of terms of that magnitude, which ran in Float or better."""
    error = ERRORS[out.dtype.name]
    sums = 2.0**-48 if out.dtype == np.float64 else 2.0**-20
    return bool(np.all(np.abs(out.astype(np.float64) - exact) <= error * np.abs(exact) + sums * magnitude))


def laid_out(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, which: int) -> Array:
    """Random numbers in one of several layouts: dense, transposed, every other element, expanded."""
    if which == 1 and len(shape) > 1:
        return np.swapaxes(rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(dtype), -1, -2)
    if which == 2:
        wide = rng.standard_normal(tuple(2 * n + 1 for n in shape)).astype(dtype)
        return wide[tuple(slice(1, 2 * n + 1, 2) for n in shape)]
    if which == 3 and len(shape) > 1:
        return np.broadcast_to(rng.standard_normal((1, *shape[1:])).astype(dtype), shape)
    return rng.standard_normal(shape).astype(dtype)
