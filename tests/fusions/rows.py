"""Fusions of rows that are needed again after a reduction over them, what they compute in float64, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.scheduler import SegmentInputs

Array = np.ndarray[Any, Any]
Definition = Callable[[FusionDefinition, DataType], None]


def wide_of(dtype: DataType) -> DataType:
    """What statistics of such elements are computed in."""
    return DataType.Double if dtype is DataType.Double else DataType.Float


def softmax(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    e = fd.ops.exp(fd.ops.sub(f, fd.ops.max(f, [1], keepdim=True)))
    fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)), dtype))


def padded_softmax(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    """Of rows that need not follow one another, computed in Double where they are."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    f = fd.ops.cast(x, wide_of(dtype))
    e = fd.ops.exp(fd.ops.sub(f, fd.ops.max(f, [1], keepdim=True)))
    fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)), dtype))


def layer_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    y = fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), DataType.Float))
    fd.add_output(fd.ops.cast(y, dtype))
    fd.add_output(mean)


def padded_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    """Layer norm of rows that need not follow one another, computed in Double where they are."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, wide_of(dtype))
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    y = fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), wide_of(dtype)))
    fd.add_output(fd.ops.cast(y, dtype))


def add_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    r = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    h = fd.ops.add(x, r)
    f = fd.ops.cast(h, DataType.Float)
    s = fd.ops.sum(fd.ops.mul(f, f), [1], keepdim=True)
    fd.add_output(fd.ops.cast(fd.ops.mul(f, fd.ops.rsqrt(s)), dtype))
    fd.add_output(h)


def less_its_sum(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    """A row less its sum, of rows that need not follow one another: exact for whole numbers."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    f = fd.ops.cast(x, wide_of(dtype))
    fd.add_output(fd.ops.cast(fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True)), dtype))


def group_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1, -1, -1], dtype=dtype, contiguity=True)
    variance, mean = fd.ops.var_mean(x, [2, 3], 0, True)
    fd.add_output(fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5))))


def batch_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    """Channels of images: rows whose parts lie apart, with a weight for each."""
    x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
    w = fd.define_tensor(shape=[-1], dtype=DataType.Float, contiguity=True)
    f = x if dtype is DataType.Double else fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(f, [0, 2, 3], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    fd.add_output(fd.ops.cast(fd.ops.mul(y, fd.ops.broadcast(w, [True, False, True, True])), dtype))


def fusion_of(define: Definition, dtype: DataType = DataType.Float) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def described(dtype: DataType, *sizes: int) -> TensorDescriptor:
    """A tensor without gaps."""
    strides = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        strides[d] = strides[d + 1] * sizes[d + 1]
    return TensorDescriptor(dtype, sizes, tuple(strides))


def shapes_of(define: Definition, rows: int, length: int) -> list[tuple[int, ...]]:
    """Of the inputs."""
    if define in (layer_norm, padded_norm):
        return [(rows, length), (length,)]
    return [(rows, length)] * (2 if define is add_norm else 1)


def inputs_for(fusion: Fusion, *given: TensorDescriptor) -> SegmentInputs:
    """What a scheduler is asked about."""
    bound = bind_inputs(fusion, list(given))
    return SegmentInputs(bound.tensors, bound.evaluate)


def arrays_for(define: Definition, dtype: DataType, rows: int, length: int) -> list[Array]:
    """Normal values."""
    rng = np.random.default_rng(length)
    return [rng.normal(size=s).astype(dtype.numpy) for s in shapes_of(define, rows, length)]


def reference(define: Definition, arrays: Sequence[Array]) -> list[Array]:
    """In float64."""
    x = arrays[0].astype(np.float64)
    if define in (softmax, padded_softmax):
        with np.errstate(all="ignore"):
            e = np.exp(x - x.max(1, keepdims=True))
            return [e / e.sum(1, keepdims=True)]
    if define in (layer_norm, padded_norm):
        mean = x.mean(1, keepdims=True)
        y = (x - mean) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * arrays[1].astype(np.float64)
        return [y, mean] if define is layer_norm else [y]
    if define is less_its_sum:
        return [x - x.sum(1, keepdims=True)]
    if define is group_norm:
        return [(x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)]
    if define is batch_norm:
        centred = x - x.mean((0, 2, 3), keepdims=True)
        weight = arrays[1].astype(np.float64).reshape(1, -1, 1, 1)
        return [centred / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5) * weight]
    h = (arrays[0] + arrays[1]).astype(np.float64)
    return [h / np.sqrt((h * h).sum(1, keepdims=True)), h]


TOLERANCE = {DataType.BFloat16: 1.2e-2, DataType.Half: 2e-3}


def assert_near(found: Sequence[Array], expected: Sequence[Array], dtype: DataType) -> None:
    """As near as elements of `dtype` come, in the scale of each tensor."""
    tolerance = TOLERANCE.get(dtype, 2e-5)
    for now, then in zip(found, expected, strict=True):
        scale = np.maximum(np.abs(then), np.sqrt(np.mean(then**2)))
        assert np.all(np.abs(np.asarray(now).astype(np.float64) - then) <= tolerance * scale + 1e-6)


def laid_out(x: Array, pitch: int, offset: int) -> Array:
    """The same elements, rows `pitch` apart, the base `offset` elements behind an aligned address."""
    rows, columns = x.shape if x.ndim == 2 else (1, *x.shape)
    memory = np.zeros(64 + offset + rows * pitch + 64, x.dtype)
    start = offset + (-memory.ctypes.data % 64) // x.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(
        memory[start:], (rows, columns), (pitch * x.dtype.itemsize, x.dtype.itemsize)
    )
    view[...] = x.reshape(rows, columns)
    return view if x.ndim == 2 else view[0]
