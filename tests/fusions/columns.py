"""Fusions of columns that are needed again after a reduction over them, what they compute in float64, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from tests.judging.oracle import Array

Float, Half, BFloat16 = DataType.Float, DataType.Half, DataType.BFloat16

Definition = Callable[[FusionDefinition, DataType], None]

CHANNELS_LAST = (3, 0, 2, 1)


def batch_norm(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True, stride_order=CHANNELS_LAST)
    w, b = (fd.define_tensor(shape=[-1], dtype=Float, contiguity=True) for _ in range(2))
    o = fd.ops
    f = o.cast(x, Float)
    variance, mean = o.var_mean(f, [0, 2, 3], 0, True)
    y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
    wide = [o.broadcast(v, [True, False, True, True]) for v in (w, b)]
    fd.add_output(o.cast(o.add(o.mul(y, wide[0]), wide[1]), dtype))
    fd.add_output(mean)
    fd.add_output(variance)


def batch_norm_backward(fd: FusionDefinition, dtype: DataType) -> None:
    """Two sums of the same blocks: one wait."""
    dy, x = (
        fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True, stride_order=CHANNELS_LAST) for _ in range(2)
    )
    mean, rstd = (fd.define_tensor(shape=[-1], dtype=Float, contiguity=True) for _ in range(2))
    o = fd.ops
    flags = [True, False, True, True]
    hat = o.mul(o.sub(o.cast(x, Float), o.broadcast(mean, flags)), o.broadcast(rstd, flags))
    g = o.cast(dy, Float)
    n = o.mul(o.mul(o.size(x, 0), o.size(x, 2)), o.size(x, 3))
    db, dw = o.sum(g, [0, 2, 3], keepdim=True), o.sum(o.mul(g, hat), [0, 2, 3], keepdim=True)
    dx = o.mul(o.sub(o.sub(g, o.div(db, n)), o.div(o.mul(hat, dw), n)), o.broadcast(rstd, flags))
    fd.add_output(o.cast(dx, dtype))
    fd.add_output(dw)
    fd.add_output(db)


def softmax_of_columns(fd: FusionDefinition, dtype: DataType) -> None:
    """Three stages: two waits."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    o = fd.ops
    f = o.cast(x, Float)
    e = o.exp(o.sub(f, o.max(f, [0], keepdim=True)))
    fd.add_output(o.cast(o.div(e, o.sum(e, [0], keepdim=True)), dtype))


def deviations_of_columns(fd: FusionDefinition, dtype: DataType) -> None:
    """The second pass only reduces: nothing of the columns is written."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    o = fd.ops
    f = o.cast(x, Float)
    apart = o.abs(o.sub(f, o.max(f, [0], keepdim=True)))
    fd.add_output(o.sum(apart, [0]))
    fd.add_output(o.max(apart, [0]))


def arrays_for(define: Definition, rows: int, columns: int, dtype: DataType, offset: float = 0.0) -> list[Array]:
    rng = np.random.default_rng((rows, columns))

    def normal(*shape: int, of: DataType = dtype) -> Array:
        return (rng.normal(size=shape) + offset).astype(of.numpy)

    def image() -> Array:
        return normal(rows, 3, 2, columns).transpose(0, 3, 1, 2)

    if define is batch_norm:
        return [image(), *(rng.normal(size=columns).astype(np.float32) for _ in range(2))]
    if define is batch_norm_backward:
        x = image()
        exact = x.astype(np.float64)
        rstd = 1 / np.sqrt(exact.var((0, 2, 3)) + 1e-5)
        return [image(), x, exact.mean((0, 2, 3)).astype(np.float32), rstd.astype(np.float32)]
    return [normal(rows, columns)]


def expected_of(define: Definition, arrays: list[Array]) -> list[Array]:
    first, *rest = (a.astype(np.float64) for a in arrays)
    axes = (0, 2, 3)
    if define is batch_norm:
        mean, variance = first.mean(axes, keepdims=True), first.var(axes, keepdims=True)
        w, b = (v.reshape(1, -1, 1, 1) for v in rest)
        return [(first - mean) / np.sqrt(variance + 1e-5) * w + b, mean, variance]
    if define is batch_norm_backward:
        x, *moments = rest
        mean, rstd = (v.reshape(1, -1, 1, 1) for v in moments)
        hat = (x - mean) * rstd
        db, dw = first.sum(axes, keepdims=True), (first * hat).sum(axes, keepdims=True)
        n = x.size // x.shape[1]
        return [(first - db / n - hat * dw / n) * rstd, dw, db]
    apart = first - first.max(0, keepdims=True)
    if define is deviations_of_columns:
        return [-apart.sum(0), -apart.min(0)]
    e = np.exp(apart)
    return [e / e.sum(0, keepdims=True)]


def fusion_of(define: Definition, dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


DEFINITIONS: list[Definition] = [batch_norm, batch_norm_backward, softmax_of_columns, deviations_of_columns]
