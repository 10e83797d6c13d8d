"""Errors against float64 on NumPy arrays, counted as benchmarks/verify.py counts them on torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Either
from tests.judging.accuracy import dtype_of, ulp


def largest_error(result: Any, reference: Any) -> float:
    """In ulps of the result's dtype; inf for another shape, a nan or an infinity in the wrong place."""
    both = [
        np.asarray(r) for r in ((reference.lower, reference.upper) if isinstance(reference, Either) else (reference,))
    ]
    if result.shape != both[0].shape:
        return float("inf")
    dtype = dtype_of(result)
    if not dtype.is_floating:
        return 0.0 if np.array_equal(result, both[0]) else float("inf")
    finite = np.abs(np.where(np.isfinite(both[0]), both[0], 0.0))
    floor = finite.max(initial=0.0) * 2.0 ** (-10 if dtype.itemsize == 2 else -4)
    errors = [_errors(result, want, floor) for want in both]
    return float(np.minimum(errors[0], errors[-1]).max(initial=0.0))


def _errors(result: Any, want: Any, floor: float) -> Any:
    dtype = dtype_of(result)
    with np.errstate(all="ignore"):
        # What does not fit the dtype is an infinity in it.
        want = np.where(np.isfinite(want), want, want.astype(result.dtype).astype(np.float64))
        got = result.astype(np.float64)
        error = np.abs(got - want) / ulp(np.maximum(np.abs(want), floor), dtype).astype(np.float64)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return np.where(np.isfinite(want), np.nan_to_num(error, nan=np.inf, posinf=np.inf), np.where(same, 0, np.inf))
