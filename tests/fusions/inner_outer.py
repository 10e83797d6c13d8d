"""Fusions with statistics of rows and sums of columns, what they compute in float64, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from tests.judging.oracle import Array

Float, Half, BFloat16 = DataType.Float, DataType.Half, DataType.BFloat16

Definition = Callable[[FusionDefinition, DataType], None]


def layer_norm_backward(fd: FusionDefinition, dtype: DataType, wide: DataType = Float) -> None:
    dy, x = (fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True) for _ in range(2))
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    mean, rstd = (fd.define_tensor(shape=[-1, 1], dtype=wide, contiguity=True) for _ in range(2))
    o = fd.ops
    n = o.size(x, 1)
    dyf = o.cast(dy, wide)
    hat = o.mul(o.sub(o.cast(x, wide), mean), rstd)
    wdy = o.mul(dyf, o.cast(w, wide))
    c1 = o.div(o.sum(o.mul(hat, wdy), [1], keepdim=True), n)
    c2 = o.div(o.sum(wdy, [1], keepdim=True), n)
    fd.add_output(o.cast(o.mul(o.sub(wdy, o.add(o.mul(hat, c1), c2)), rstd), dtype))
    fd.add_output(o.cast(o.sum(o.mul(dyf, hat), [0]), dtype))
    fd.add_output(o.cast(o.sum(dyf, [0]), dtype))


def rms_norm_backward(fd: FusionDefinition, dtype: DataType) -> None:
    """The statistic of the row is computed here, so that three stages follow one another; the weight is updated by the sum."""
    dy, x = (fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True) for _ in range(2))
    w = fd.define_tensor(shape=[-1], dtype=Float, contiguity=True)
    o = fd.ops
    n = o.size(x, 1)
    xf, dyf = o.cast(x, Float), o.cast(dy, Float)
    r = o.rsqrt(o.add(o.div(o.sum(o.mul(xf, xf), [1], keepdim=True), n), 1e-5))
    hat = o.mul(xf, r)
    wdy = o.mul(dyf, w)
    c = o.div(o.sum(o.mul(hat, wdy), [1], keepdim=True), n)
    fd.add_output(o.cast(o.mul(o.sub(wdy, o.mul(hat, c)), r), dtype))
    fd.add_output(o.sub(w, o.mul(o.sum(o.mul(dyf, hat), [0]), 0.5)))
    fd.add_output(r)


def softmax_and_sums(fd: FusionDefinition, dtype: DataType) -> None:
    """The sums of columns need the statistics of rows; a row and a column result are outputs as they are reduced."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    o = fd.ops
    f = o.cast(x, Float)
    top = o.max(f, [1], keepdim=True)
    e = o.exp(o.sub(f, top))
    p = o.div(e, o.sum(e, [1], keepdim=True))
    fd.add_output(o.cast(p, dtype))
    fd.add_output(o.sum(p, [0]))
    fd.add_output(top)
    fd.add_output(o.max(f, [0]))


def moments_both_ways(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1, -1], dtype=dtype, contiguity=True)
    o = fd.ops
    f = o.cast(x, Float)
    variance, mean = o.var_mean(f, [1, 2], 0, True)
    fd.add_output(o.cast(o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5))), dtype))
    v, m = o.var_mean(f, [0], 0, False)
    fd.add_output(v)
    fd.add_output(m)


DEFINITIONS: list[Definition] = [layer_norm_backward, rms_norm_backward, softmax_and_sums, moments_both_ways]


def arrays_for(define: Definition, rows: int, length: int, dtype: DataType, offset: float = 0.0) -> list[Array]:
    rng = np.random.default_rng((rows, length))

    def normal(*shape: int, of: DataType = dtype) -> Array:
        return (rng.normal(size=shape) + offset).astype(of.numpy)

    if define is layer_norm_backward:
        x = normal(rows, length)
        exact = x.astype(np.float64)
        mean, var = exact.mean(1, keepdims=True), exact.var(1, keepdims=True)
        rstd = 1 / np.sqrt(var + 1e-5)
        return [normal(rows, length), x, normal(length), mean.astype(np.float32), rstd.astype(np.float32)]
    if define is rms_norm_backward:
        return [normal(rows, length), normal(rows, length), normal(length, of=Float)]
    if define is moments_both_ways:
        return [normal(rows, 3, length)]
    return [normal(rows, length)]


def expected_of(define: Definition, arrays: list[Array]) -> list[Array]:
    """The results in float64."""
    first, *rest = (a.astype(np.float64) for a in arrays)
    if define is layer_norm_backward:
        x, w, mean, rstd = rest
        hat, wdy = (x - mean) * rstd, first * w
        c1, c2 = (hat * wdy).mean(1, keepdims=True), wdy.mean(1, keepdims=True)
        return [(wdy - (hat * c1 + c2)) * rstd, (first * hat).sum(0), first.sum(0)]
    if define is rms_norm_backward:
        x, w = rest
        r = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
        hat, wdy = x * r, first * w
        return [(wdy - hat * (hat * wdy).mean(1, keepdims=True)) * r, w - 0.5 * (first * hat).sum(0), r]
    if define is softmax_and_sums:
        e = np.exp(first - first.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        return [p, p.sum(0), first.max(1, keepdims=True), first.max(0)]
    mean, var = first.mean((1, 2), keepdims=True), first.var((1, 2), keepdims=True)
    return [(first - mean) / np.sqrt(var + 1e-5), first.var(0), first.mean(0)]


def fusion_of(define: Definition, dtype: DataType = BFloat16) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def described(a: Array) -> TensorDescriptor:
    name = {"bfloat16": BFloat16, "float16": Half, "float32": Float}[a.dtype.name]
    return TensorDescriptor(name, a.shape, tuple(s // a.itemsize for s in a.strides))
