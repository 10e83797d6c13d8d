"""Fusions whose reductions reduce the results of others, what they compute in float64, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from tests.judging.oracle import Array

Float, Double, Half, BFloat16, Int = (
    DataType.Float,
    DataType.Double,
    DataType.Half,
    DataType.BFloat16,
    DataType.Int,
)

Definition = Callable[[FusionDefinition, DataType], None]


def wide_of(dtype: DataType) -> DataType:
    return Double if dtype is Double else Float


def matrix(fd: FusionDefinition, dtype: DataType) -> tuple[Any, Any]:
    """Rows as they come, and in the dtype that is computed with."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    return x, fd.ops.cast(x, wide_of(dtype))


def mean_of_norms(fd: FusionDefinition, dtype: DataType) -> None:
    x, f = matrix(fd, dtype)
    norms = fd.ops.sqrt(fd.ops.sum(fd.ops.mul(f, f), [1]))
    fd.add_output(fd.ops.div(fd.ops.sum(norms, [0]), fd.ops.size(x, 0)))


def sum_of_variances(fd: FusionDefinition, dtype: DataType) -> None:
    """The moments of each row come out, too."""
    _, f = matrix(fd, dtype)
    variance, mean = fd.ops.var_mean(f, [1], 0, False)
    fd.add_output(fd.ops.sum(variance, [0]))
    fd.add_output(mean)


def least_of_largest(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    fd.add_output(fd.ops.min(fd.ops.max(x, [1]), [0]))


def moments_of_sums(fd: FusionDefinition, dtype: DataType) -> None:
    """Welford chained to a sum."""
    _, f = matrix(fd, dtype)
    variance, mean = fd.ops.var_mean(fd.ops.sum(f, [1]), [0], 0, False)
    fd.add_output(variance)
    fd.add_output(mean)


def norm_of_column_sums(fd: FusionDefinition, dtype: DataType) -> None:
    """The fastest dim is the one that is kept."""
    _, f = matrix(fd, dtype)
    sums = fd.ops.sum(f, [0])
    fd.add_output(fd.ops.sqrt(fd.ops.sum(fd.ops.mul(sums, sums), [0])))


def losses_of(fd: FusionDefinition, dtype: DataType) -> tuple[Any, Any]:
    o = fd.ops
    x, f = matrix(fd, dtype)
    target = fd.define_tensor(shape=[-1], dtype=Int, contiguity=True)
    largest = o.max(f, [1], keepdim=True)
    total = o.sum(o.exp(o.sub(f, largest)), [1], keepdim=True)
    chosen = o.take_along_axis(f, o.broadcast(target, [False, True]), 1)
    return x, o.squeeze(o.sub(o.add(o.log(total), largest), chosen), [1])


def cross_entropy(fd: FusionDefinition, dtype: DataType) -> None:
    x, losses = losses_of(fd, dtype)
    fd.add_output(fd.ops.div(fd.ops.sum(losses, [0]), fd.ops.size(x, 0)))


def weighted_cross_entropy(fd: FusionDefinition, dtype: DataType) -> None:
    """Two chained sums, and the loss of each row beside them."""
    _, losses = losses_of(fd, dtype)
    weight = fd.define_tensor(shape=[-1], dtype=wide_of(dtype), contiguity=True)
    fd.add_output(fd.ops.div(fd.ops.sum(fd.ops.mul(losses, weight), [0]), fd.ops.sum(weight, [0])))
    fd.add_output(losses)


def cross_entropy_of_some(fd: FusionDefinition, dtype: DataType) -> None:
    """Rows whose target is -100 do not count: their index is another one, and what they lose nothing."""
    o = fd.ops
    _, f = matrix(fd, dtype)
    target = fd.define_tensor(shape=[-1], dtype=Int, contiguity=True)
    counts = o.ne(target, -100)
    largest = o.max(f, [1], keepdim=True)
    total = o.sum(o.exp(o.sub(f, largest)), [1], keepdim=True)
    chosen = o.take_along_axis(f, o.broadcast(o.where(counts, target, 0), [False, True]), 1)
    losses = o.squeeze(o.sub(o.add(o.log(total), largest), chosen), [1])
    lost = o.sum(o.where(counts, losses, 0.0), [0])
    fd.add_output(o.div(lost, o.sum(o.cast(counts, wide_of(dtype)), [0])))


def divergence(fd: FusionDefinition, dtype: DataType) -> None:
    """Mean over rows of the Kullback-Leibler divergence of two softmaxes."""
    o = fd.ops

    def log_softmax(f: Any) -> Any:
        shifted = o.sub(f, o.max(f, [1], keepdim=True))
        return o.sub(shifted, o.log(o.sum(o.exp(shifted), [1], keepdim=True)))

    (x, f), (_, g) = matrix(fd, dtype), matrix(fd, dtype)
    p, q = log_softmax(f), log_softmax(g)
    rows = o.sum(o.mul(o.exp(p), o.sub(p, q)), [1])
    fd.add_output(o.div(o.sum(rows, [0]), o.size(x, 0)))


def normalised(fd: FusionDefinition, f: Any) -> Any:
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    return fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))


def error_of_normalised(fd: FusionDefinition, dtype: DataType) -> None:
    """Mean over all elements of the squared difference of normalised rows from others."""
    o = fd.ops
    (x, f), (_, g) = matrix(fd, dtype), matrix(fd, dtype)
    difference = o.sub(normalised(fd, f), g)
    total = o.sum(o.mul(difference, difference), [0, 1])
    fd.add_output(o.div(total, o.mul(o.size(x, 0), o.size(x, 1))))


def chosen_beside_normalised(fd: FusionDefinition, dtype: DataType) -> None:
    """Rows are needed twice, and at gathered indices."""
    o = fd.ops
    _, f = matrix(fd, dtype)
    target = fd.define_tensor(shape=[-1], dtype=Int, contiguity=True)
    size = o.sum(o.abs(normalised(fd, f)), [1])
    chosen = o.squeeze(o.take_along_axis(f, o.broadcast(target, [False, True]), 1), [1])
    fd.add_output(o.sum(o.sub(size, chosen), [0]))


def largest_of_all(fd: FusionDefinition, dtype: DataType) -> None:
    """A result of all elements comes before those of rows, which come out, too."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    fd.add_output(fd.ops.max(fd.ops.abs(x), [0, 1]))
    fd.add_output(fd.ops.max(x, [1]))


ROWS_KEPT: list[Definition] = [
    cross_entropy,
    weighted_cross_entropy,
    cross_entropy_of_some,
    divergence,
    chosen_beside_normalised,
]

STREAMED: list[Definition] = [
    mean_of_norms,
    sum_of_variances,
    least_of_largest,
    moments_of_sums,
    norm_of_column_sums,
]


def arrays_for(define: Definition, rows: int, columns: int, dtype: DataType) -> list[Array]:
    rng = np.random.default_rng((rows, columns))
    arrays: list[Array] = [rng.normal(size=(rows, columns)).astype(dtype.numpy)]
    if define in (cross_entropy, weighted_cross_entropy, chosen_beside_normalised):
        arrays.append(rng.integers(0, columns, rows))
    if define is cross_entropy_of_some:
        arrays.append(np.where(np.arange(rows) % 3 == 1, -100, rng.integers(0, columns, rows)))
    if define is weighted_cross_entropy:
        arrays.append(rng.integers(0, 3, rows).astype(wide_of(dtype).numpy) + (np.arange(rows) == 0))
    if define in (divergence, error_of_normalised):
        arrays.append(rng.normal(size=(rows, columns)).astype(dtype.numpy))
    return [a.astype(wide_of(dtype).numpy) if k == 2 else a for k, a in enumerate(arrays)]


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def expected_of(define: Definition, arrays: list[Array]) -> list[Array]:
    x = arrays[0].astype(np.float64)
    if define is mean_of_norms:
        return [np.sqrt((x * x).sum(1)).mean()]
    if define is sum_of_variances:
        return [x.var(1).sum(), x.mean(1)]
    if define is least_of_largest:
        return [x.max(1).min()]
    if define is moments_of_sums:
        return [x.sum(1).var(), x.sum(1).mean()]
    if define is norm_of_column_sums:
        return [np.sqrt((x.sum(0) ** 2).sum())]
    if define is largest_of_all:
        return [np.abs(x).max(), x.max(1)]
    if define is chosen_beside_normalised:
        hat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return [(np.abs(hat).sum(1) - x[np.arange(len(x)), arrays[1]]).sum()]
    if define is error_of_normalised:
        hat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return [((hat - arrays[1].astype(np.float64)) ** 2).mean()]
    if define is divergence:
        p, q = _log_softmax(x), _log_softmax(arrays[1].astype(np.float64))
        return [(np.exp(p) * (p - q)).sum(1).mean()]
    if define is cross_entropy_of_some:
        kept = arrays[1] >= 0
        return [-_log_softmax(x)[kept, arrays[1][kept]].mean()]
    losses = -_log_softmax(x)[np.arange(len(x)), arrays[1]]
    if define is cross_entropy:
        return [losses.mean()]
    weight = arrays[2].astype(np.float64)
    return [(losses * weight).sum() / weight.sum(), losses]


def fusion_of(define: Definition, dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def described(a: Array) -> TensorDescriptor:
    names = {
        "bfloat16": BFloat16,
        "float16": Half,
        "float32": Float,
        "float64": Double,
        "int64": Int,
        "int32": DataType.Int32,
    }
    return TensorDescriptor(names[a.dtype.name], a.shape, tuple(s // a.itemsize for s in a.strides))
