"""Rows of the reductions, and of the ops that the front end composes from others without being pointwise.

Grammar
    ReductionOp := name, combine (a pointwise op), identity, numpy
    CompositeOp := name, parameters, numpy

A reduction folds a set of elements with an associative, commutative pointwise op, in an accumulator that is Float for
the 16-bit floats; its operand is cast to the result dtype first. `welford` has three results and is an op of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.dtypes import DataType, check_cast, compute_dtype, kind_of
from fuser.ir.ops.numpy_functions import Array
from fuser.records import record

Number = bool | int | float | complex


@record
class ReductionOp:
    """An op that folds a set of elements into one.

    combine     name of the pointwise op that folds two values; associative and commutative up to rounding
    identity    dtype -> the value that changes nothing, also the result of an empty set
    numpy       (array, axes, keepdims) -> array, in the dtype of the array
    widens      whether Bool and Int32 give Int unless a dtype is asked for
    """

    name: str
    combine: str
    doc: str
    identity: Callable[[DataType], Number]
    numpy: Callable[[Array, tuple[int, ...], bool], Array]
    kinds: str
    widens: bool

    def result_dtype(self, dtype: DataType, requested: DataType = DataType.Null) -> DataType:
        """The dtype of the result; the operand is cast to it before it is reduced.

        Raises DefinitionRuntimeError for operands the reduction does not take and for a dtype asked of max or min.
        """
        if requested is not DataType.Null and not self.widens:
            raise DefinitionRuntimeError(f"{self.name}(): dtype cannot be given, the result has the operand's dtype")
        if requested is not DataType.Null:
            check_cast(dtype, requested)
            dtype = requested
        if kind_of(dtype) not in self.kinds:
            raise DefinitionRuntimeError(f"{self.name}() does not support {dtype.name} operands")
        if self.widens and requested is DataType.Null and dtype in (DataType.Bool, DataType.Int32):
            return DataType.Int
        return dtype

    def accumulator_dtype(self, dtype: DataType) -> DataType:
        """What partial results are held in: Float for the 16-bit floats, Int for Index, else the dtype itself."""
        return compute_dtype(dtype)


def _reduced(ufunc: Callable[..., Any]) -> Callable[[Array, tuple[int, ...], bool], Array]:
    def reduce(array: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(array, axis=axes, keepdims=keepdims, dtype=array.dtype))

    return reduce


def _extreme(fold: str) -> Callable[[Array, tuple[int, ...], bool], Array]:
    def reduce(array: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
        largest = fold == "maximum"
        ufunc = np.maximum if largest else np.minimum
        if array.dtype.kind == "b":
            ufunc = np.logical_or if largest else np.logical_and
        with np.errstate(all="ignore"):
            initial = np.asarray(_limit(array.dtype, largest=not largest), array.dtype)
            result = np.asarray(ufunc.reduce(array, axis=axes, keepdims=keepdims, initial=initial))
            if array.dtype.kind == "f" and (result == 0).any():
                # The sign of a zero: +0 wins for a maximum, -0 for a minimum.
                winner = ~np.signbit(array) if largest else np.signbit(array)
                any_winner = ((array == 0) & winner).any(axis=axes, keepdims=keepdims)
                winning, losing = (0.0, -0.0) if largest else (-0.0, 0.0)
                zeros = np.where(any_winner, array.dtype.type(winning), array.dtype.type(losing))
                result = np.where(result == 0, zeros, result)
        return result

    return reduce


def _limit(dtype: np.dtype[Any], *, largest: bool) -> float | int | bool:
    if dtype.kind == "b":
        return largest
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.max if largest else info.min)
    return np.inf if largest else -np.inf


def _extreme_identity(*, largest: bool) -> Callable[[DataType], Number]:
    def identity(dtype: DataType) -> float | int | bool:
        if dtype.is_floating:
            return np.inf if largest else -np.inf
        return _limit(dtype.numpy, largest=largest)

    return identity


def _constant(value: int) -> Callable[[DataType], Number]:
    def identity(dtype: DataType) -> Number:
        if dtype is DataType.Bool:
            return bool(value)
        if dtype.is_complex:
            return complex(value)
        return float(value) if dtype.is_floating else value

    return identity


REDUCTIONS: dict[str, ReductionOp] = {
    "sum": ReductionOp("sum", "add", "Sum over the given dims.", _constant(0), _reduced(np.sum), "fibc", True),
    "prod": ReductionOp("prod", "mul", "Product over the given dims.", _constant(1), _reduced(np.prod), "fibc", True),
    "max": ReductionOp(
        "max",
        "maximum",
        "Largest element over the given dims; nan if any is nan.",
        _extreme_identity(largest=False),
        _extreme("maximum"),
        "fib",
        False,
    ),
    "min": ReductionOp(
        "min",
        "minimum",
        "Smallest element over the given dims; nan if any is nan.",
        _extreme_identity(largest=True),
        _extreme("minimum"),
        "fib",
        False,
    ),
}
"""The reductions that one pointwise op folds."""


# --- composites that are no rows of the tables above ------------------------------------------------------------------


@record
class CompositeOp:
    """An op with several results or its own arguments: its name, parameters, doc and NumPy reference."""

    name: str
    parameters: tuple[str, ...]
    doc: str
    numpy: Callable[..., Any]


def _welford(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Mean, sum of squared deviations and count over `axes`."""
    with np.errstate(all="ignore"):
        count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
        mean = np.asarray(x.sum(axis=axes, keepdims=True) / x.dtype.type(count))
        deviations = np.abs(x - mean)
        m2 = np.asarray((deviations * deviations).sum(axis=axes))
    mean = mean.reshape(m2.shape)
    return mean, m2, np.full(m2.shape, count, np.int64)


def _var(x: Array, axes: tuple[int, ...], correction: int = 1, keepdim: bool = False) -> Array:
    """Sum of squared deviations over max(N - correction, 0)."""
    _, m2, count = _welford(x, axes)
    with np.errstate(all="ignore"):
        variance = np.asarray(m2 / np.maximum(count - correction, 0).astype(m2.dtype))
    return np.expand_dims(variance, tuple(a % x.ndim for a in axes)) if keepdim else variance


def _var_mean(x: Array, axes: tuple[int, ...], correction: int = 1, keepdim: bool = False) -> tuple[Array, Array]:
    mean = _welford(x, axes)[0]
    kept = np.expand_dims(mean, tuple(a % x.ndim for a in axes)) if keepdim else mean
    return _var(x, axes, correction, keepdim), kept


def _broadcast_in_dim(x: Array, shape: Sequence[int], broadcast_dims: Sequence[int]) -> Array:
    inner = [1] * len(shape)
    for extent, dim in zip(x.shape, broadcast_dims, strict=True):
        inner[dim] = extent
    return np.broadcast_to(x.reshape(inner), tuple(shape))


WELFORD = CompositeOp("welford", ("arg", "dims"), "Mean, sum of squared deviations and count over dims.", _welford)
"""The one reduction with several results. It is an IR op of its own, lowered to arithmetic; not in REDUCTIONS."""

COMPOSITES: dict[str, CompositeOp] = {
    row.name: row
    for row in (
        CompositeOp("var", ("arg", "dims", "correction", "keepdim"), "Variance over dims.", _var),
        CompositeOp("var_mean", ("arg", "dims", "correction", "keepdim"), "Variance and mean over dims.", _var_mean),
        CompositeOp(
            "broadcast_in_dim",
            ("arg", "shape", "broadcast_dims"),
            "arg placed into dims of a larger shape, then expanded to it.",
            _broadcast_in_dim,
        ),
    )
}
"""Ops built from others by the front end that are not pointwise; pointwise ones are rows of POINTWISE."""
