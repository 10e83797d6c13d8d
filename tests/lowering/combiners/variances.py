"""Variances along one dim on the simulator, and as they should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]
Define = Callable[[FusionDefinition, Any], Any]


def variance_of(define: Define, dtype: DataType, x: Array, dim: int) -> Array:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.var_mean(define(fd, t), [dim])[0])
    (found,) = fd.execute([x], device="simulator")
    return np.asarray(found)


def exact(x: Array, dim: int) -> Array:
    wide = x.astype(np.longdouble)
    return ((wide - wide.mean(dim, keepdims=True)) ** 2).sum(dim) / (x.shape[dim] - 1)


def typical_error(found: Array, right: Array) -> float:
    """The root of the mean square, in ulps of the results' dtype."""
    unit = np.spacing(right.astype(found.dtype))
    return float(np.sqrt(np.mean(((found - right) / unit) ** 2)))
