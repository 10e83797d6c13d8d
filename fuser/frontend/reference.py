"""The reference evaluator: one op at a time in NumPy, at the declared dtypes, knowing nothing of schedules or kernels.

Pointwise ops run the functions of the op table in the compute dtype of their operands (Float for 16-bit floats) and are
rounded once to the dtype of their result. Sums are accumulated with at least twice the precision of the accumulator, so
that what remains of an error is the kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, assert_never

import numpy as np

from fuser.errors import InputRuntimeError
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.extent_binding import Binding, bind_extents, check_constraints
from fuser.ir.fusion.fusion import (
    COPIES,
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    LibraryOp,
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
    Window,
)
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.fusion.random_numbers import random_values
from fuser.ir.fusion.scalar_evaluation import rounded_number
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import (
    POINTWISE,
    REDUCTIONS,
    SCANS,
    OperandClass,
    compute_dtype,
    numpy_cast,
    operand_dtype,
)
from fuser.runtime.arrays import array_library

Array: TypeAlias = np.ndarray[Any, Any]


def returned_tensors(fusion: Fusion) -> list[Tensor]:
    """The tensor whose values each returned output has after a run.

    An output that is an input is that input itself, and so has the new values if it is updated in place.
    """
    updated: dict[Tensor, Tensor] = {o.alias_of: o.tensor for o in fusion.outputs if o.alias_of is not None}
    return [updated.get(o.tensor, o.tensor) for o in fusion.outputs if not o.hidden]


def evaluate_fusion(fusion: Fusion, inputs: Iterable[Any], state: tuple[int, int] | None = None) -> list[Array]:
    """The returned outputs (in-place updates are not returned) for NumPy arrays and numbers, one per input.

    `state`: see `evaluate_values`. Raises InputRuntimeError for a wrong number of inputs and for sizes that do not fit one
    another.
    """
    values = evaluate_values(fusion, inputs, state)
    return [np.asarray(values[t.name], order="C") for t in returned_tensors(fusion)]


def evaluate_values(fusion: Fusion, inputs: Iterable[Any], state: tuple[int, int] | None = None) -> dict[str, Array]:
    """Every tensor of the fusion for these inputs, by name.

    `state`: the generator's (seed, offset) for random exprs without a state of their own. Raises InputRuntimeError where it is
    needed and not given.
    """
    arguments = [v if isinstance(v, bool | int | float | complex) else np.asarray(v) for v in inputs]
    if len(arguments) != len(fusion.inputs):
        raise InputRuntimeError(f"expected {len(fusion.inputs)} inputs, got {len(arguments)}")
    binding = bind_extents(fusion, [v.shape if isinstance(v, np.ndarray) else v for v in arguments])
    concrete = concretize(fusion, binding.extents)
    check_constraints(concrete, binding.extents)
    evaluation = _State(binding, dict(zip((v.name for v in fusion.inputs), arguments, strict=True)), state)
    for expr in concrete.exprs:
        evaluation.evaluate(expr)
    return evaluation.tensors


class _State:
    """Values computed so far."""

    def __init__(self, binding: Binding, inputs: Mapping[str, Any], generator: tuple[int, int] | None) -> None:
        self.binding = binding
        self.generator = generator
        self.tensors: dict[str, Array] = {n: v for n, v in inputs.items() if isinstance(v, np.ndarray)}

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Visible extents, where they are not those of operands."""
        return tuple(self.binding.extent(d.extent) for d in tensor.visible)

    def evaluate(self, expr: Expr) -> None:
        """Compute the results of one expr."""
        match expr:
            case ScalarOp() | ExtentOp():
                pass  # bound before
            case Pointwise():
                self.tensors[expr.output.name] = self._pointwise(expr)
            case Reduction():
                self.tensors[expr.output.name] = _reduce(expr, self.tensors[expr.input.name])
            case Welford():
                self._welford(expr)
            case ExpSum():
                self._exp_sum(expr)
            case Scan():
                self.tensors[expr.output.name] = self._scan(expr)
            case Broadcast():
                new = [d for d, flag in enumerate(expr.flags) if flag]
                self.tensors[expr.output.name] = np.expand_dims(self.tensors[expr.input.name], tuple(new))
            case Squeeze():
                self.tensors[expr.output.name] = self._squeeze(expr)
            case Expand():
                self.tensors[expr.output.name] = self._expand(expr)
            case Permute():
                self.tensors[expr.output.name] = self.tensors[expr.input.name].transpose(expr.dims)
            case Reshape():
                self.tensors[expr.output.name] = self.tensors[expr.input.name].reshape(self.shape(expr.output))
            case Resize():
                self.tensors[expr.output.name] = self._resize(expr)
            case Cat():
                self.tensors[expr.output.name] = self._cat(expr)
            case Gather():
                self.tensors[expr.output.name] = self._gather(expr)
            case Full():
                value = rounded_number(self.binding.scalar(expr.value), expr.output.dtype)
                self.tensors[expr.output.name] = np.full(self.shape(expr.output), value, expr.output.dtype.numpy)
            case Iota():
                self.tensors[expr.output.name] = self._iota(expr)
            case Random():
                self.tensors[expr.output.name] = self._random(expr)
            case LibraryOp():
                self._library(expr)
            case unreachable:
                assert_never(unreachable)

    def _library(self, expr: LibraryOp) -> None:
        tensors: dict[str, Array] = {}
        numbers: dict[str, Any] = {**LIBRARY_OPS[expr.op].defaults, **dict(expr.options)}
        for name, value in zip(expr.names, expr.inputs, strict=True):
            if isinstance(value, Tensor):
                tensors[name] = _accumulated(self._operand(value, value.dtype))
            else:
                numbers[name] = self.binding.scalar(value)
        with np.errstate(all="ignore"):
            results = array_library.compute(np, expr.op, tensors, numbers)
        for t, result in zip(expr.outputs, results, strict=True):
            self.tensors[t.name] = numpy_cast(np.asarray(result), t.dtype)

    def _pointwise(self, expr: Pointwise) -> Array:
        if expr.op in COPIES:
            (source,) = expr.inputs
            return self._operand(source, expr.output.dtype)
        if expr.op == "cast":
            (source,) = expr.inputs
            return numpy_cast(self._operand(source, source.dtype), expr.output.dtype)
        row = ROWS[expr.op]
        classes = [OperandClass(v.dtype, "S" if isinstance(v, Scalar) else "D" if v.ndim else "Z") for v in expr.inputs]
        compute = compute_dtype(operand_dtype(row, classes))
        operands = [
            self._operand(v, DataType.Bool if expr.op == "where" and i == 0 else compute)
            for i, v in enumerate(expr.inputs)
        ]
        return numpy_cast(np.asarray(row.numpy(*np.broadcast_arrays(*operands))), expr.output.dtype)

    def _operand(self, value: Val, dtype: DataType) -> Array:
        if isinstance(value, Tensor):
            return numpy_cast(self.tensors[value.name], dtype)
        return np.asarray(rounded_number(self.binding.scalar(value), dtype), dtype.numpy)

    def _welford(self, expr: Welford) -> None:
        assert expr.partial is None, "a scheduled fusion is not evaluated here"
        array = self.tensors[expr.input.name]
        axes = _reduced_axes(expr.mean)
        wide = array.astype(np.longdouble if array.dtype == np.float64 else np.float64)
        count = 1
        for axis in axes:
            count *= array.shape[axis]
        with np.errstate(all="ignore"):
            mean = (
                wide.sum(axis=axes, keepdims=True) / count
                if count
                else np.zeros_like(wide.sum(axis=axes, keepdims=True))
            )
            m2 = ((wide - mean) ** 2).sum(axis=axes)
        self.tensors[expr.mean.name] = np.asarray(mean.reshape(m2.shape).astype(expr.mean.dtype.numpy))
        self.tensors[expr.m2.name] = np.asarray(m2.astype(expr.m2.dtype.numpy))
        self.tensors[expr.count.name] = np.full(m2.shape, count, expr.count.dtype.numpy)

    def _exp_sum(self, expr: ExpSum) -> None:
        """Step by step as max, sub, exp and sum give it."""
        assert expr.partial is None, "a scheduled fusion is not evaluated here"
        array, axes = self.tensors[expr.input.name], _reduced_axes(expr.total)
        wider = _WIDER[f"f{array.dtype.itemsize}"]
        with np.errstate(all="ignore"):
            largest = REDUCTIONS["max"].numpy(array, axes, True)
            powers = POINTWISE["exp"].numpy(POINTWISE["sub"].numpy(array, largest))
            total = REDUCTIONS["sum"].numpy(powers.astype(wider), axes, False)
        self.tensors[expr.total.name] = np.asarray(np.asarray(total).astype(array.dtype))
        self.tensors[expr.largest.name] = np.asarray(largest).reshape(np.shape(total))

    def _scan(self, expr: Scan) -> Array:
        array = self.tensors[expr.input.name]
        wider = _WIDER.get(f"{array.dtype.kind}{array.dtype.itemsize}") if expr.op in ("cumsum", "cumprod") else None
        source = array if wider is None else array.astype(wider)
        with np.errstate(all="ignore"):
            if expr.init is not None and source.shape[expr.dim]:
                # It is folded in before the first element.
                source = source.copy()
                first: tuple[slice | int, ...] = (*(slice(None),) * expr.dim, 0)
                init = self._operand(expr.init, expr.output.dtype).astype(source.dtype)
                source[first] = POINTWISE[SCANS[expr.op].combine].numpy(init, source[first])
            scanned = SCANS[expr.op].numpy(source, expr.dim)
            return numpy_cast(np.asarray(scanned.astype(array.dtype)), expr.output.dtype)

    def _squeeze(self, expr: Squeeze) -> Array:
        array = self.tensors[expr.input.name]
        return array[tuple(0 if gone else slice(None) for gone in expr.flags)]

    def _expand(self, expr: Expand) -> Array:
        return np.broadcast_to(self.tensors[expr.input.name], self.shape(expr.output))

    def _resize(self, expr: Resize) -> Array:
        array = self.tensors[expr.input.name]
        fill = 0 if expr.fill is None else rounded_number(self.binding.scalar(expr.fill), expr.output.dtype)
        shape = tuple(self.binding.extent(d.extent) for d in expr.output.produced)
        result = np.full(shape, fill, expr.output.dtype.numpy)
        array, targets = self._shown(array, dict(enumerate(expr.windows)))
        result[targets] = array
        return result.reshape(self.shape(expr.output))

    def _shown(self, array: Array, windows: Mapping[int, Window]) -> tuple[Array, tuple[slice, ...]]:
        """The elements in windows along some dims, and where they stand in a result that is whole along the others."""
        targets = [slice(None)] * array.ndim
        for d, w in windows.items():
            positions, places = self._places(w)
            targets[d] = slice(positions.start, positions.stop)
            array = np.take(array, places, axis=d)
        return array, tuple(targets)

    def _places(self, window: Window) -> tuple[range, Array]:
        """Indices of the result that lie in a window, and where their elements are found."""
        begin, end = self.binding.extent(window.begin), self.binding.extent(window.end)
        positions = range(begin, max(begin, end))
        offsets = np.full(len(positions), self.binding.extent(window.offset))
        offsets += np.arange(positions.start, positions.stop) * (window.step - 1)
        for first, offset in window.pieces:
            offsets[max(0, self.binding.extent(first) - begin) :] = self.binding.extent(offset)
        return positions, np.arange(positions.start, positions.stop) + offsets

    def _cat(self, expr: Cat) -> Array:
        arrays = np.broadcast_arrays(*(self.tensors[t.name] for t in expr.inputs))
        result = arrays[-1].copy()
        for array, bound in reversed(list(zip(arrays, expr.bounds, strict=False))):
            part = (*[slice(None)] * expr.dim, slice(0, max(0, self.binding.extent(bound))))
            result[part] = array[part]
        return result

    def _gather(self, expr: Gather) -> Array:
        array, index = self.tensors[expr.input.name], self.tensors[expr.index.name]
        array, targets = self._shown(array, {d: w for d, w in enumerate(expr.windows) if d != expr.dim})
        if expr.fill is not None:
            pairs = enumerate(position_pairs(expr, expr.input, expr.output))
            shape = [array.shape[d] if d == expr.dim else self.binding.extent(b.extent) for d, (_, b) in pairs]
            fill = rounded_number(self.binding.scalar(expr.fill), expr.output.dtype)
            shown, array = array, np.full(shape, fill, array.dtype)
            array[targets] = shown
        if expr.kind is GatherKind.index_select:
            return np.take(array, index if index.ndim else index.reshape(1), axis=expr.dim)
        shape = self.shape(expr.output)
        positions = list(np.ogrid[tuple(slice(0, n) for n in shape)])
        positions[expr.dim] = np.broadcast_to(index, shape)
        others = [n if d == expr.dim else max(n, shape[d]) for d, n in enumerate(array.shape)]
        if expr.kind is GatherKind.take_along_axis:
            array = np.broadcast_to(array, others)
        return array[tuple(positions)]

    def _iota(self, expr: Iota) -> Array:
        (length,) = self.shape(expr.output)
        compute = compute_dtype(expr.output.dtype)
        # Floats in the wider type round once, as a fused multiply-add does; integers wrap.
        wide = np.dtype(np.float64) if compute is DataType.Float else compute.numpy
        start, step = (
            np.asarray(rounded_number(self.binding.scalar(s), compute), wide) for s in (expr.start, expr.step)
        )
        with np.errstate(all="ignore"):
            values = numpy_cast(np.asarray(start + np.arange(length).astype(wide) * step), compute)
        return numpy_cast(np.asarray(values), expr.output.dtype)

    def _random(self, expr: Random) -> Array:
        if expr.state is not None:
            seed, offset = (int(self._operand(v, DataType.Int)) for v in expr.state)
        elif self.generator is not None:
            seed, offset = self.generator[0], self.generator[1] + expr.ordinal
        else:
            raise InputRuntimeError(
                f"{expr.output.name} draws from the generator: its values need the (seed, offset) that an execution drew",
                location=expr.output.location,
            )
        shape = self.shape(expr.output)
        index = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        first, second = (np.asarray(self.binding.scalar(v)) for v in expr.parameters)
        return random_values(expr.distribution, seed, offset, index, (first, second), expr.output.dtype)


def _accumulated(array: Array) -> Array:
    """Floats as they are summed up here."""
    is_float = array.dtype.kind not in "biuc" and array.dtype.itemsize < 8
    return array.astype(np.float64) if is_float else array


def _reduced_axes(output: Tensor) -> tuple[int, ...]:
    return tuple(i for i, d in enumerate(output.produced) if d.is_reduction)


# The dtype that sums and products are accumulated in, by kind and itemsize.
_WIDER: Mapping[str, type] = {
    "f2": np.float64,
    "f4": np.float64,
    "f8": np.longdouble,
    "c8": np.complex128,
    "c16": np.clongdouble,
}


def _reduce(expr: Reduction, array: Array) -> Array:
    axes = _reduced_axes(expr.output)
    wider = _WIDER.get(f"{array.dtype.kind}{array.dtype.itemsize}") if expr.op in ("sum", "prod") else None
    source = array if wider is None else array.astype(wider)
    with np.errstate(all="ignore"):
        reduced = np.asarray(REDUCTIONS[expr.op].numpy(source, axes, False))
        return numpy_cast(np.asarray(reduced.astype(array.dtype)), expr.output.dtype)
