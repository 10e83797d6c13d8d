"""What a fusion means, op by op in NumPy: the expected values of the tests of lowering.

Every expr of `fuser.ir.fusion.fusion` is evaluated on whole arrays, in definition order. Nothing here knows about
schedules, loops or indices, and no code is shared with lowering. Pointwise rows come from the op table, whose NumPy
functions are checked on their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    ExpSum,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Scan,
    Squeeze,
    Tensor,
    Val,
    Welford,
)
from fuser.ir.fusion.random_numbers import random_values
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, argument_dtypes, compute_dtype, numpy_cast

Array = npt.NDArray[Any]
Number = bool | int | float | complex

_FOLD = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def extent_values(fusion: Fusion, inputs: Sequence[Array | Number]) -> dict[Symbol, int]:
    """Value of every extent symbol of a fusion for the inputs at hand."""
    values: dict[Symbol, int] = {}
    for val, given in zip(fusion.inputs, inputs, strict=True):
        if isinstance(val, Tensor):
            for dim, size in zip(val.visible, np.shape(given), strict=True):
                if isinstance(dim.extent, Symbol):
                    values[dim.extent] = size
        else:
            for name, scalar in fusion.extent_scalars.items():
                if scalar == val.name:
                    values.update({s: int(given) for s in _symbols_named(fusion, name)})  # type: ignore[arg-type]
    return values


def _symbols_named(fusion: Fusion, name: str) -> set[Symbol]:
    return {s for t in fusion.tensors for d in t.produced for s in d.extent.symbols if s.name == name}


def evaluate(fusion: Fusion, inputs: Sequence[Array | Number], state: tuple[int, int] = (0, 0)) -> dict[str, Array]:
    """Every tensor of the fusion by name. `inputs` has one entry per fusion input; arrays already have its dtype.

    `state`: (seed, offset) of the generator.
    """
    sizes = extent_values(fusion, inputs)
    known: dict[Val, Array | Number] = dict(zip(fusion.inputs, inputs, strict=True))

    def extent(e: Int) -> int:
        return e.evaluate(sizes)

    def value(v: Val) -> Array | Number:
        if isinstance(v, Scalar) and v.value is not None:
            return v.value
        if isinstance(v, Scalar) and v not in known and v.expression is not None:
            return extent(v.expression)
        return known[v]

    def shape(t: Tensor) -> tuple[int, ...]:
        return tuple(1 if d.is_broadcast else extent(d.extent) for d in t.visible)

    with np.errstate(all="ignore"):
        for expr in fusion.exprs:
            match expr:
                case ExtentOp():
                    known[expr.output] = extent(expr.tensor.visible[expr.dim].extent)
                case ScalarOp():
                    known[expr.output] = _scalar(expr, [value(v) for v in expr.inputs])
                case Pointwise():
                    known[expr.output] = _pointwise(expr, [value(v) for v in expr.inputs])
                case Reduction():
                    known[expr.output] = _reduce(expr, np.asarray(known[expr.input]))
                case Welford():
                    known.update(_welford(expr, np.asarray(known[expr.input])))
                case ExpSum():
                    known.update(_exp_sum(expr, np.asarray(known[expr.input])))
                case Scan():
                    init = None if expr.init is None else value(expr.init)
                    known[expr.output] = _scan(expr, np.asarray(known[expr.input]), init)
                case Broadcast():
                    known[expr.output] = np.reshape(known[expr.input], shape(expr.output))
                case Squeeze():
                    known[expr.output] = np.asarray(known[expr.input])[
                        tuple(0 if f else slice(None) for f in expr.flags)
                    ]
                case Expand():
                    known[expr.output] = np.broadcast_to(known[expr.input], shape(expr.output))
                case Permute():
                    known[expr.output] = np.transpose(known[expr.input], expr.dims)
                case Reshape():
                    known[expr.output] = np.reshape(known[expr.input], shape(expr.output))
                case Resize():
                    inside = np.ix_(
                        *(range(extent(w.begin), max(extent(w.begin), extent(w.end))) for w in expr.windows)
                    )
                    result = np.full(
                        shape(expr.output), 0 if expr.fill is None else value(expr.fill), expr.output.dtype.numpy
                    )
                    places = tuple(i * w.step + extent(w.offset) for i, w in zip(inside, expr.windows, strict=True))
                    result[inside] = np.asarray(known[expr.input])[places]
                    known[expr.output] = result
                case Cat():
                    along = np.arange(shape(expr.output)[expr.dim]).reshape(
                        -1, *[1] * (expr.output.ndim - 1 - expr.dim)
                    )
                    chosen = sum(((along >= extent(b)).astype(int) for b in expr.bounds), np.zeros_like(along))
                    parts = np.broadcast_arrays(*(np.asarray(known[t]) for t in expr.inputs))
                    known[expr.output] = np.choose(chosen, parts)
                case Gather():
                    source, index = np.asarray(known[expr.input]), np.asarray(known[expr.index])
                    if expr.kind is GatherKind.index_select:
                        known[expr.output] = np.take(source, np.atleast_1d(index), expr.dim)
                    elif expr.kind is GatherKind.gather:
                        part = tuple(slice(None) if d == expr.dim else slice(n) for d, n in enumerate(index.shape))
                        known[expr.output] = np.take_along_axis(source[part], index, expr.dim)
                    else:
                        known[expr.output] = np.take_along_axis(source, index, expr.dim)
                case Full():
                    filled = numpy_cast(np.asarray(value(expr.value)), expr.output.dtype)
                    known[expr.output] = np.broadcast_to(filled, shape(expr.output))
                case Iota():
                    steps = np.arange(shape(expr.output)[0]) * value(expr.step) + value(expr.start)
                    known[expr.output] = numpy_cast(np.asarray(steps), expr.output.dtype)
                case Random():
                    seed, offset = (
                        (state[0], state[1] + expr.ordinal)
                        if expr.state is None
                        else (int(np.asarray(value(v))) for v in expr.state)
                    )
                    index = np.arange(math.prod(shape(expr.output))).reshape(shape(expr.output))
                    a, b = (value(v) for v in expr.parameters)
                    known[expr.output] = random_values(
                        expr.distribution, seed, offset, index, (np.asarray(a), np.asarray(b)), expr.output.dtype
                    )
    return {v.name: np.asarray(a) for v, a in known.items() if isinstance(v, Tensor)}


def _scalar(expr: ScalarOp, operands: Sequence[Any]) -> Number:
    if expr.op == "cast":
        return numpy_cast(np.asarray(operands[0]), expr.output.dtype).item()
    return np.asarray(POINTWISE[expr.op].numpy(*(np.asarray(o) for o in operands))).item()


def _pointwise(expr: Pointwise, operands: Sequence[Any]) -> Array:
    dtype = expr.output.dtype
    if expr.op in ("set", "segment_set", "stride_order", "cast"):
        return numpy_cast(np.asarray(operands[0]), dtype)
    row = ROWS[expr.op]
    tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
    compute = compute_dtype(dtype if expr.op == "where" else tensors[0].dtype)
    arguments = [numpy_cast(np.asarray(o), d) for o, d in zip(operands, argument_dtypes(row, compute), strict=True)]
    return numpy_cast(np.asarray(row.numpy(*arguments)), dtype)


def _reduced_axes(output: Tensor) -> tuple[int, ...]:
    return tuple(i for i, d in enumerate(output.produced) if d.is_reduction)


def _reduce(expr: Reduction, x: Array) -> Array:
    dtype = expr.output.dtype
    axes = _reduced_axes(expr.output)
    wide = numpy_cast(x, compute_dtype(dtype))
    fold = _FOLD[expr.op]
    if expr.op in ("max", "min") and any(x.shape[a] == 0 for a in axes):
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        if wide.dtype.kind == "f":
            empty: float | int = -np.inf if expr.op == "max" else np.inf
        else:
            empty = np.iinfo(wide.dtype).min if expr.op == "max" else np.iinfo(wide.dtype).max
        return numpy_cast(np.full(kept, empty, wide.dtype), dtype)
    return numpy_cast(np.asarray(fold.reduce(wide, axis=axes)), dtype)


_RUNNING = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}


def _scan(expr: Scan, x: Array, init: Any) -> Array:
    """Element after element, at the dtype of the accumulator."""
    fold = _RUNNING[expr.op]
    source = np.moveaxis(numpy_cast(x, compute_dtype(expr.output.dtype)), expr.dim, 0)
    result = np.empty_like(source)
    carried = None if init is None else numpy_cast(np.asarray(init), compute_dtype(expr.output.dtype))
    for i in range(len(source)):
        carried = source[i] if carried is None else fold(carried, source[i])
        result[i] = carried
    return numpy_cast(np.moveaxis(result, 0, expr.dim), expr.output.dtype)


def _exp_sum(expr: ExpSum, x: Array) -> Mapping[Val, Array]:
    assert expr.partial is None, "a fusion has no second stages; schedules do"
    axes = _reduced_axes(expr.total)
    wide = x.astype(np.float64)
    largest = wide.max(axis=axes, keepdims=True, initial=-np.inf)
    total = np.exp(wide - largest).sum(axis=axes)
    return {
        expr.largest: numpy_cast(largest.reshape(total.shape), expr.largest.dtype),
        expr.total: numpy_cast(np.asarray(total), expr.total.dtype),
    }


def _welford(expr: Welford, x: Array) -> Mapping[Val, Array]:
    assert expr.partial is None, "a fusion has no second stages; schedules do"
    axes = _reduced_axes(expr.mean)
    wide = x.astype(np.float64)
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    total = wide.sum(axis=axes, keepdims=True)
    mean = total / count if count else np.zeros_like(total)
    m2 = ((wide - mean) ** 2).sum(axis=axes)
    return {
        expr.mean: numpy_cast(mean.reshape(m2.shape), expr.mean.dtype),
        expr.m2: numpy_cast(np.asarray(m2), expr.m2.dtype),
        expr.count: numpy_cast(np.full(m2.shape, count), DataType.Index),
    }
