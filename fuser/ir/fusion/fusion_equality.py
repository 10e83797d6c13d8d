"""Structural equality of fusions: same inputs, exprs, attributes, outputs and aliases; names and order do not count.

Grammar
    structure := (inputs, exprs, outputs)            exprs in canonical order (fuser.ir.fusion.live_order)
    operand   := number of a value in canonical order | (dtype, text) of a constant
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from fuser.ir.fusion.fusion_exprs import (
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Gather,
    Iota,
    LibraryOp,
    Output,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    ScalarOp,
    Scan,
    Squeeze,
    Welford,
    expr_inputs,
    expr_outputs,
)
from fuser.ir.fusion.tensors import Scalar, Tensor, Val
from fuser.ir.ops.dtypes import DataType

Structure: TypeAlias = tuple[object, ...]


def structure_of(values: Sequence[Val], live: Sequence[Expr], results: Sequence[Output]) -> Structure:
    """A hashable value that is equal for two fusions exactly when they compute the same thing in the same way.

    values    the inputs
    live      exprs in canonical order
    results   the outputs
    """
    numbers: dict[Val, int] = {}
    for value in values:
        numbers.setdefault(value, len(numbers))
    inputs = tuple(_input_structure(v) for v in values)
    exprs: list[object] = []
    for expr in live:
        exprs.append(_expr_structure(expr, numbers))
        for value in expr_outputs(expr):
            numbers.setdefault(value, len(numbers))
    outputs = tuple(
        (_operand(o.tensor, numbers), None if o.alias_of is None else _operand(o.alias_of, numbers)) for o in results
    )
    # A stride order given to an output beyond what its definition implies is part of the structure.
    layouts = tuple((o.tensor.stride_order, o.tensor.contiguity) for o in results)
    return inputs, tuple(exprs), outputs, layouts


def _input_structure(value: Val) -> object:
    if isinstance(value, Scalar):
        return "scalar", value.dtype
    # Extents of inputs are constants or symbols of their own.
    dims = tuple((d.extent.value if d.extent.is_const else -1, d.kind, d.expanded) for d in value.logical)
    return "tensor", value.dtype, dims, value.stride_order, value.contiguity, value.is_cpu


def _operand(value: Val | None, numbers: dict[Val, int]) -> object:
    if value is None:
        return None
    number = numbers.get(value)
    if number is not None:
        return number
    if isinstance(value, Scalar) and value.is_constant:
        # Text, so that 0.0 and -0.0 differ, nan equals nan, and True is not 1.
        # An Index constant is the Int that it is written as.
        return DataType.Int if value.dtype is DataType.Index else value.dtype, repr(value.value)
    # A value that nothing defines and that is no input: equal to itself only.
    return id(value)


def _expr_structure(expr: Expr, numbers: dict[Val, int]) -> object:
    operands = tuple(_operand(v, numbers) for v in expr_inputs(expr))
    match expr:
        case Pointwise(op="stride_order"):
            return "Pointwise", expr.op, expr.output.stride_order, operands
        case Pointwise() | ScalarOp():
            return type(expr).__name__, expr.op, expr.output.dtype, operands
        case Reduction():
            return "Reduction", expr.op, expr.output.dtype, _reduced_dims(expr.output), operands
        case Welford():
            return "Welford", expr.mean.dtype, _reduced_dims(expr.mean), operands
        case ExpSum():
            return "ExpSum", expr.op, expr.total.dtype, _reduced_dims(expr.total), operands
        case Scan():
            return "Scan", expr.op, expr.output.dtype, expr.dim, operands
        case Broadcast() | Squeeze():
            return type(expr).__name__, expr.flags, operands
        case Expand():
            return "Expand", _extents(expr.output, expr.extents, numbers), operands
        case Permute():
            return "Permute", expr.dims, operands
        case Reshape():
            return "Reshape", expr.is_resolved, _extents(expr.output, expr.extents, numbers), operands
        case Resize():
            parts = tuple(d.extent.value if d.extent.is_const else -1 for d in expr.output.visible)
            return "Resize", _windows(expr, numbers), parts if expr.output.root is not None else (), operands
        case Cat():
            return "Cat", expr.dim, tuple(b.value if b.is_const else -1 for b in expr.bounds), operands
        case Gather():
            windows = tuple(e.value if e.is_const else -1 for w in expr.windows for e in w.seams)
            steps = tuple(w.step for w in expr.windows)
            return "Gather", expr.kind, expr.dim, windows, steps, operands
        case Full():
            return "Full", expr.output.dtype, _extents(expr.output, expr.extents, numbers), operands
        case Iota():
            return "Iota", expr.output.dtype, _extents(expr.output, (expr.length,), numbers), operands
        case Random():
            # What an expr without a state draws follows from the order of the exprs.
            extents = _extents(expr.output, expr.extents, numbers)
            return "Random", expr.distribution, expr.output.dtype, extents, operands
        case LibraryOp():
            return "LibraryOp", expr.op, expr.names, expr.options, operands
        case ExtentOp():
            return "ExtentOp", expr.dim, operands
        case unreachable:
            assert_never(unreachable)


def _reduced_dims(output: Tensor) -> tuple[int, ...]:
    return tuple(i for i, d in enumerate(output.produced) if d.is_reduction)


def _windows(expr: Resize, numbers: dict[Val, int]) -> tuple[object, ...]:
    """Per dim: step, offset, begin, end and extent; the scalars that gave them stand for what is not constant."""
    given = expr.scalars or ((None, None),) * len(expr.windows)
    return tuple(
        (
            (w.step, *(e.value if e.is_const else -1 for e in (*w.seams, d.extent))),
            tuple(None if s is None else _operand(s, numbers) for s in pair),
        )
        for w, d, pair in zip(expr.windows, expr.output.produced, given, strict=True)
    )


def _extents(output: Tensor, scalars: tuple[Scalar | None, ...], numbers: dict[Val, int]) -> tuple[object, ...]:
    """Per dim: its constant, the number of the scalar that gave it, or -1 for a dim that is kept."""
    given = scalars or (None,) * len(output.logical)
    return tuple(
        d.extent.value if d.extent.is_const else -1 if s is None else ("scalar", _operand(s, numbers))
        for d, s in zip(output.logical, given, strict=True)
    )
