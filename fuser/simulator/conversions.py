"""Constants and conversions that compiled kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.fusion.fusion import Distribution
from fuser.ir.fusion.random_numbers import random_values
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import numpy_cast


def cast_to(target: DataType) -> Callable[[Any], Any]:
    """A function that converts values as kernels do."""

    def cast(value: Any) -> Any:
        return numpy_cast(value, target)

    return cast


def index_to(dtype: DataType) -> Callable[[Any], Any]:
    """A function that makes values of `dtype` of indices; what does not fit wraps."""
    target = dtype.numpy

    def convert(index: Any) -> Any:
        return np.asarray(index, np.int64).astype(target)

    return convert


def random_of(distribution: Distribution, dtype: DataType) -> Callable[[Any, Any, Any, Any, Any], Any]:
    """A function of (index, seed, offset, parameters) that gives random numbers."""

    def draw(index: Any, seed: Any, offset: Any, first: Any, second: Any) -> Any:
        return random_values(distribution, seed, offset, index, (first, second), dtype)

    return draw


def literal_array(number: bool | int | float | complex, dtype: DataType) -> Any:
    """A literal as an array of no dimensions; integers wrap."""
    if isinstance(number, int) and dtype.is_integral:
        return np.asarray(int(number) % 2 ** (8 * dtype.itemsize), np.uint64).astype(dtype.numpy)
    return np.asarray(numpy_cast(np.asarray(number), dtype))


def stored_dtype(dtype: DataType) -> DataType:
    """The type in memory: Index is Int there."""
    return DataType.Int if dtype is DataType.Index else dtype
