"""Reductions: sum, prod, max, min, var, var_mean, welford (section 3.4 of the contract).

In the IR a reduction runs in its accumulator dtype and reduces no size-1 dim: 16-bit floats are cast to Float before and
back after, size-1 dims are squeezed, `keepdim` is a broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.elementwise import pointwise_value, tensor_cast
from fuser.frontend.handles import TensorView, wrap_axis
from fuser.frontend.operation import (
    ArgumentMismatch,
    bool_argument,
    dtype_argument,
    int_argument,
    int_list_argument,
    is_index,
    operation,
    sequence_argument,
    tensor_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.ops.dtypes import DataType, as_dtype, real_of, widen
from fuser.ir.ops.op_table import POINTWISE, REDUCTIONS, ReductionOp

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder


def reduction_axes(tensor: ir.Tensor, dims: Sequence[int]) -> list[int]:
    """`dims` wrapped, in increasing order.

    Raises DefinitionRuntimeError for no dims, dims out of range and repeated ones. A rank-0 tensor has the one dim that
    torch gives it, and no axis.
    """
    if not dims:
        raise DefinitionRuntimeError("No reduction axis specified: leave dims out to reduce over all of them")
    axes = [wrap_axis(d, tensor.ndim or 1) for d in dims]
    if len(set(axes)) != len(axes):
        raise DefinitionRuntimeError(
            f"Reduction axes are not unique: {list(dims)} are {axes} of a tensor of rank {tensor.ndim}"
        )
    return sorted(axes) if tensor.ndim else []


def _kept(builder: FusionBuilder, tensor: ir.Tensor, axes: Sequence[int], keepdim: bool) -> ir.Tensor:
    """`tensor` with its reduced dims back as size-1 dims."""
    if not keepdim or not axes:
        return tensor
    return builder.broadcast(tensor, [d in axes for d in range(tensor.ndim + len(axes))])


def _without_broadcast(builder: FusionBuilder, tensor: ir.Tensor, axes: Sequence[int]) -> tuple[ir.Tensor, list[int]]:
    """`tensor` less those `axes` that have one element by definition, and what the other axes are called then."""
    trivial = [a for a in axes if tensor.visible[a].is_broadcast]
    if not trivial:
        return tensor, list(axes)
    squeezed = builder.squeeze(tensor, [d in trivial for d in range(tensor.ndim)])
    rest = [a - len([t for t in trivial if t < a]) for a in axes if a not in trivial]
    return squeezed, rest


def reduce_tensor(
    builder: FusionBuilder, row: ReductionOp, tensor: ir.Tensor, axes: Sequence[int], dtype: DataType, keepdim: bool
) -> ir.Tensor:
    """Reduce wrapped, unique `axes` (none for a rank-0 tensor, which is copied) to a tensor of `dtype`."""
    source = tensor
    operand = tensor_cast(builder, tensor, dtype)
    if not axes:
        return operand if operand is not source else builder.pointwise("set", [operand], dtype)
    squeezed, rest = _without_broadcast(builder, operand, axes)
    if not rest:
        return _kept(builder, squeezed, axes, keepdim)
    # Partial results are held in Float for the 16-bit floats; Index and Int hold the same numbers.
    accumulated = tensor_cast(builder, squeezed, widen(dtype))
    reduced = builder.reduction(row.name, accumulated, rest, accumulated.dtype)
    return _kept(builder, tensor_cast(builder, reduced, dtype), axes, keepdim)


_OVERLOADS = (
    "{name}(arg: TensorView, dtype: DataType = DataType.Null) -> TensorView",
    "{name}(arg: TensorView, dim: int, keepdim: bool = False, dtype: DataType = DataType.Null) -> TensorView",
    "{name}(arg: TensorView, dims: Sequence[int], keepdim: bool = False, dtype: DataType = DataType.Null) -> TensorView",
)


def make_reduction(row: ReductionOp) -> Callable[..., TensorView]:
    """The op of a row of the table."""

    @operation(*(s.format(name=row.name) for s in _OVERLOADS))
    def op(arg: object, *positional: object, **named: object) -> TensorView:
        tv = tensor_argument("arg", arg)
        dims, keepdim, dtype = _overload(tv, positional, named)
        result = row.result_dtype(tv.node.dtype, dtype)
        axes = reduction_axes(tv.node, dims) if dims is not None else list(range(tv.node.ndim))
        builder = tv.fusion.builder()
        return tv.fusion.tensor_handle(reduce_tensor(builder, row, tv.node, axes, result, keepdim))

    widened = "Int for Bool, Int32 and Int, else that of arg" if row.widens else "that of arg"
    asked = "`dtype` if given (arg is cast first), else " if row.widens else ""
    op.__doc__ = (
        f"{row.doc}\n\n"
        "All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.\n"
        f"Result: dtype {asked}{widened}; 16-bit floats accumulate in Float and round once.\n"
        "Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.\n"
    )
    return op


def _overload(
    tv: TensorView, positional: tuple[object, ...], named: dict[str, object]
) -> tuple[list[int] | None, bool, DataType]:
    """(dims or None for all, keepdim, dtype) of one of the three overloads."""
    rest = dict(named)
    keys = {"dim", "dims", "keepdim", "dtype"}
    if unknown := set(rest) - keys:
        raise ArgumentMismatch(f"There is no argument {sorted(unknown)[0]!r}.")
    if positional and as_dtype(positional[0]) is not None:
        names = ["dtype"]
    else:
        axis_name = "dim" if positional and is_index(positional[0]) else "dims"
        names = [axis_name, "keepdim", "dtype"]
    if len(positional) > len(names):
        raise ArgumentMismatch(f"It takes at most {len(names) + 1} positional arguments, got {len(positional) + 1}.")
    for name, value in zip(names, positional, strict=False):
        if name in rest:
            raise ArgumentMismatch(f"{name} is given twice.")
        rest[name] = value
    if "dim" in rest and "dims" in rest:
        raise ArgumentMismatch("dim and dims exclude each other.")
    if "dim" in rest:
        dims = [int_argument("dim", rest["dim"])]
    elif "dims" in rest:
        dims = int_list_argument("dims", rest["dims"])
    elif "keepdim" in rest:
        raise ArgumentMismatch("keepdim needs dim or dims.")
    else:
        dims = None
    keepdim = bool_argument("keepdim", rest.get("keepdim", False))
    asked = rest.get("dtype")
    return dims, keepdim, DataType.Null if asked is None else dtype_argument("dtype", asked)


# --- welford and variance ---------------------------------------------------------------------------------------------


def welford_tensors(
    builder: FusionBuilder, tensor: ir.Tensor, axes: Sequence[int]
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    """Mean, sum of squared deviations and count of a Float or Double tensor over wrapped, unique axes."""
    squeezed, rest = _without_broadcast(builder, tensor, axes)
    if rest:
        return builder.welford(squeezed, rest)
    # One element: it is the mean, and deviates by x - x, which is nan for inf and nan as a running update gives.
    deviation = pointwise_value(builder, POINTWISE["sub"], [squeezed, squeezed])
    assert isinstance(deviation, ir.Tensor)
    ones = [d.extent for d in squeezed.visible]
    sizes = [None if e.is_const else builder.size(squeezed, i) for i, e in enumerate(ones)]
    count = builder.full(ones, builder.constant(1, DataType.Index), DataType.Index, sizes)
    mean = squeezed if squeezed is not tensor else builder.pointwise("set", [squeezed], squeezed.dtype)
    return mean, deviation, count


@operation("welford(arg: TensorView, dims: Sequence[int]) -> tuple[TensorView, TensorView, TensorView]")
def welford(arg: object, dims: object) -> tuple[TensorView, TensorView, TensorView]:
    """(mean, m2, n) over `dims`: mean and sum of squared deviations in the dtype of arg (16-bit floats: Float), count in
    Index.

    Raises DefinitionRuntimeError for a rank-0 tensor, operands that are not floating, empty or repeated dims.
    """
    tv = tensor_argument("arg", arg)
    wanted = int_list_argument("dims", dims)
    if tv.node.ndim == 0:
        raise DefinitionRuntimeError("welford() needs a tensor of rank 1 or more, got a rank-0 tensor")
    _require_floating("welford", tv.node)
    axes = reduction_axes(tv.node, wanted)
    builder = tv.fusion.builder()
    results = welford_tensors(builder, tensor_cast(builder, tv.node, widen(tv.node.dtype)), axes)
    mean, m2, count = (tv.fusion.tensor_handle(t) for t in results)
    return mean, m2, count


def _require_floating(name: str, tensor: ir.Tensor) -> None:
    if not tensor.dtype.is_floating:
        raise DefinitionRuntimeError(
            f"{name}() needs a floating operand, got {tensor.dtype.name}: fd.ops.cast(x, DataType.Float) makes one"
        )


def _moments(
    builder: FusionBuilder, tensor: ir.Tensor, axes: Sequence[int], correction: int
) -> tuple[ir.Tensor, ir.Tensor]:
    """(variance, mean) over wrapped axes; a rank-0 tensor is one element."""

    def op(name: str, *operands: ir.Val) -> ir.Tensor:
        return cast(ir.Tensor, pointwise_value(builder, POINTWISE[name], operands))

    if tensor.dtype.is_complex:
        # The squared distance in the plane is the sum of those along its axes.
        real, real_mean = _moments(builder, op("real", tensor), axes, correction)
        imaginary, imaginary_mean = _moments(builder, op("imag", tensor), axes, correction)
        return op("add", real, imaginary), op("complex", real_mean, imaginary_mean)
    count = scalars.constant(builder, 1)
    sizes = [builder.size(tensor, a) for a in axes]
    if sizes:
        count = sizes[0]
    for size in sizes[1:]:
        count = scalars.scalar_operation(builder, POINTWISE["mul"], [count, size])
    if tensor.ndim:
        mean, m2, _ = welford_tensors(builder, tensor, axes)
    else:
        mean, m2 = builder.pointwise("set", [tensor], tensor.dtype), op("sub", tensor, tensor)
    if correction:
        less = scalars.scalar_operation(builder, POINTWISE["sub"], [count, scalars.constant(builder, correction)])
        count = scalars.scalar_operation(builder, POINTWISE["maximum"], [less, scalars.constant(builder, 0)])
    return op("div", m2, count), mean


def _variance_arguments(
    name: str, arg: object, dims: object, correction: object, keepdim: object
) -> tuple[TensorView, list[int], int, bool]:
    tv = tensor_argument("arg", arg)
    sequence_argument("dims", dims)
    wanted = int_list_argument("dims", dims)
    freedom = int_argument("correction", correction)
    kept = bool_argument("keepdim", keepdim)
    if freedom < 0:
        raise DefinitionRuntimeError(f"{name}(): correction must not be negative, got {freedom}")
    if not tv.node.dtype.is_complex:
        _require_floating(name, tv.node)
    return tv, reduction_axes(tv.node, wanted), freedom, kept


_VARIANCE = "(arg: TensorView, dims: Sequence[int], correction: int = 1, keepdim: bool = False)"


@operation(f"var{_VARIANCE} -> TensorView")
def var(arg: object, dims: object, correction: object = 1, keepdim: object = False) -> TensorView:
    """Sum of squared deviations over max(N - correction, 0), N the number of elements folded.

    Half and BFloat16 give Float, complex dtypes the dtype of their parts. A divisor of 0 gives nan or inf.
    Raises DefinitionRuntimeError for a negative correction, integers and Bool, empty or repeated dims.
    """
    tv, axes, freedom, kept = _variance_arguments("var", arg, dims, correction, keepdim)
    builder = tv.fusion.builder()
    variance, _ = _moments(builder, tensor_cast(builder, tv.node, widen(tv.node.dtype)), axes, freedom)
    assert variance.dtype is real_of(widen(tv.node.dtype))
    return tv.fusion.tensor_handle(_kept(builder, variance, axes, kept))


@operation(f"var_mean{_VARIANCE} -> tuple[TensorView, TensorView]")
def var_mean(
    arg: object, dims: object, correction: object = 1, keepdim: object = False
) -> tuple[TensorView, TensorView]:
    """(variance, mean) in one pass; see `var`. The mean of a complex tensor is complex."""
    tv, axes, freedom, kept = _variance_arguments("var_mean", arg, dims, correction, keepdim)
    builder = tv.fusion.builder()
    results = _moments(builder, tensor_cast(builder, tv.node, widen(tv.node.dtype)), axes, freedom)
    variance, mean = (tv.fusion.tensor_handle(_kept(builder, t, axes, kept)) for t in results)
    return variance, mean


REDUCTION_OPS: dict[str, Callable[..., object]] = {
    **{name: make_reduction(row) for name, row in REDUCTIONS.items()},
    "welford": welford,
    "var": var,
    "var_mean": var_mean,
}
"""Every reduction by name."""
