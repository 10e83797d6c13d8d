"""Ops that read at run-time indices (section 3.7 of the contract): index_select, select, gather, take_along_axis,
embedding_fwd.

Indices are not wrapped. A GPU does not check those that tensors hold: what an index outside of the extent reads is unspecified,
and it may end the process's work on the device with an illegal address. The simulator reports such an index with the op's line
and the range. That of select is a number: one outside of its dim is an InputRuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError, NotSupportedError
from fuser.frontend import scalars
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    Number,
    bool_argument,
    fusion_of,
    int_argument,
    operation,
    scalar_argument,
    tensor_argument,
)
from fuser.frontend.resize_ops import Bound, size_scalar, sliced
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion import GatherKind
from fuser.ir.integers.integers import ZERO, const
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder


@operation("index_select(arg: TensorView, index: TensorView, dim: int) -> TensorView")
def index_select(arg: object, index: object, dim: object) -> TensorView:
    """out[.., k, ..] = arg[.., index[k], ..]; an index of rank 0 gives a dim of extent 1.

    Raises DefinitionRuntimeError for an arg of rank 0, an index of rank above 1 or that holds no numbers, and a dim out of
    range.
    """
    tv, indices = tensor_argument("arg", arg), tensor_argument("index", index)
    axis = int_argument("dim", dim)
    if not tv.node.ndim:
        raise DefinitionRuntimeError("index_select() of a tensor of rank 0 has no dim to select from")
    if indices.node.ndim > 1:
        raise DefinitionRuntimeError(
            f"index_select() takes an index of rank 0 or 1, got one of rank {indices.node.ndim}"
        )
    return _gathered("index_select", GatherKind.index_select, tv, indices, axis)


@operation("select(arg: TensorView, index: Val | int, dim: int) -> TensorView")
def select(arg: object, index: object, dim: object) -> TensorView:
    """arg without `dim`, at one index of it.

    Raises DefinitionRuntimeError for an arg of rank 0, a dim out of range and an index that is no integer. An index that turns
    out to be outside of the dim is an InputRuntimeError of the execution.
    """
    tv = tensor_argument("arg", arg)
    position = scalar_argument("index", index)
    ndim = tv.node.ndim
    if not ndim:
        raise DefinitionRuntimeError("select() of a tensor of rank 0 has no dim to select from")
    axis = _wrapped("select", int_argument("dim", dim), ndim)
    fusion_of("select", tv, position)
    builder = tv.fusion.builder()
    bounds = [whole_dim(tv, d) for d in range(ndim)]
    bounds[axis] = element_bounds(builder, tv, axis, position)
    part = sliced(builder, tv.node, bounds)
    return tv.fusion.tensor_handle(builder.squeeze(part, [d == axis for d in range(ndim)]))


def whole_dim(tv: TensorView, dim: int) -> tuple[Bound, Bound]:
    """The bounds of all of a dim."""
    extent = tv.node.visible[dim].extent
    return (ZERO, None), (extent, None if extent.is_const else size_scalar(tv, dim))


def element_bounds(builder: FusionBuilder, tv: TensorView, dim: int, position: Val | Number) -> tuple[Bound, Bound]:
    """The bounds of one element of a dim. Raises DefinitionRuntimeError for one that is outside by definition."""
    if isinstance(position, Val):
        assert isinstance(position.node, ir.Scalar)
        start = scalars.extent_of(builder, position.node)
        scalar = position.node
    elif isinstance(position, int) and not isinstance(position, bool):
        start, scalar = const(position), None
    else:
        raise ArgumentMismatch("index must be an integer.")
    if start.is_const:
        scalar = None
        extent = tv.node.visible[dim].extent
        if start.value < 0 or (extent.is_const and start.value >= extent.value):
            raise DefinitionRuntimeError(f"select(): index {start} is outside of dim {dim}, of extent {extent}")
    last = None
    if scalar is not None:
        last = scalars.scalar_operation(builder, POINTWISE["add"], (scalar, scalars.constant(builder, 1)))
    return (start, scalar), (start + 1, last)


@operation("gather(arg: TensorView, index: TensorView, dim: int) -> TensorView")
def gather(arg: object, index: object, dim: object) -> TensorView:
    """The shape of index: out[i, j, k] = arg[i, index[i, j, k], k] for dim=1. Other dims of index may be shorter than arg's.

    Raises DefinitionRuntimeError for different ranks, a dim out of range and an index that holds no numbers or is longer.
    """
    tv, indices = tensor_argument("arg", arg), tensor_argument("index", index)
    axis = _same_ranks(tv, indices, int_argument("dim", dim))
    for d, (a, b) in enumerate(zip(tv.node.visible, indices.node.visible, strict=True)):
        if d != axis and a.extent.is_const and b.extent.is_const and b.extent.value > a.extent.value:
            raise DefinitionRuntimeError(
                f"gather(): dim {d} of index has extent {b.extent}, that of arg {a.extent}; only dim {axis} may be longer"
            )
    return _gathered("gather", GatherKind.gather, tv, indices, axis)


@operation("take_along_axis(arg: TensorView, index: TensorView, dim: int) -> TensorView")
def take_along_axis(arg: object, index: object, dim: object) -> TensorView:
    """As gather, but dims other than `dim` are of equal extent or broadcast (extent 1 on either side).

    Raises DefinitionRuntimeError for different ranks or extents, a dim out of range and an index that holds no numbers.
    """
    tv, indices = tensor_argument("arg", arg), tensor_argument("index", index)
    axis = _same_ranks(tv, indices, int_argument("dim", dim))
    return _gathered("take_along_axis", GatherKind.take_along_axis, tv, indices, axis)


def _same_ranks(tv: TensorView, index: TensorView, dim: int) -> int:
    ndim = tv.node.ndim
    if index.node.ndim != ndim:
        raise DefinitionRuntimeError(
            f"Tensor arguments have different dimensions: {ndim} of arg, {index.node.ndim} of index"
        )
    if not -ndim <= dim < ndim:
        raise DefinitionRuntimeError(
            f"Tensor arguments have dimension {ndim} so dim argument must satisfy -{ndim} <= dim < {ndim}, "
            f"but received {dim}"
        )
    return dim % ndim


def _wrapped(name: str, dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise DefinitionRuntimeError(f"{name}(): Tried to access out of boundary index {dim}. total index: {ndim}")
    return dim % ndim


def _gathered(name: str, kind: GatherKind, tv: TensorView, index: TensorView, dim: int) -> TensorView:
    """The op behind all of these. An index of a floating dtype is cast to Int, which cuts off fractions."""
    dtype = index.node.dtype
    if not (dtype.is_floating or dtype in (DataType.Int, DataType.Int32, DataType.Index)):
        raise DefinitionRuntimeError(f"{name}(): the index must be a tensor of dtype Int or Int32, got {dtype.name}")
    axis = _wrapped(name, dim, tv.node.ndim)
    fusion = fusion_of(name, tv, index)
    builder = fusion.builder()
    indices = index.node
    if dtype.is_floating:
        indices = builder.pointwise("cast", [indices], DataType.Int)
    if indices is tv.node or indices.is_cpu:
        # Kernels take a host tensor by value; and an operand has one part in an op.
        indices = builder.pointwise("set", [indices], indices.dtype)
    return fusion.tensor_handle(builder.gather(kind, tv.node, indices, axis))


@operation(
    "embedding_fwd(input: TensorView, weight: TensorView, padding_idx: int | None = None, "
    "max_norm: float | None = None, norm_type: float | None = None, scale_grad_by_freq: bool | None = None, "
    "sparse: bool | None = None) -> TensorView"
)
def embedding_fwd(
    input: object,
    weight: object,
    padding_idx: object = None,
    max_norm: object = None,
    norm_type: object = None,
    scale_grad_by_freq: object = None,
    sparse: object = None,
) -> TensorView:
    """Rows of weight[V, E], one for each element of input: the shape of input and E.

    padding_idx, scale_grad_by_freq and sparse are about gradients. Raises DefinitionRuntimeError for an input of rank 0, a
    weight of other rank than 2 and tensor-valued options; NotSupportedError for max_norm.
    """
    indices, rows = tensor_argument("input", input), tensor_argument("weight", weight)
    options = {"padding_idx": padding_idx, "max_norm": max_norm, "norm_type": norm_type}
    for name, value in {**options, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}.items():
        if isinstance(value, TensorView):
            raise DefinitionRuntimeError(f"embedding_fwd(): {name} must be a scalar, got a tensor")
    for name, value in options.items():
        if value is not None:
            scalar_argument(name, value)
    for name, value in (("scale_grad_by_freq", scale_grad_by_freq), ("sparse", sparse)):
        if value is not None and not isinstance(value, Val):
            bool_argument(name, value)
    if not indices.node.ndim:
        raise DefinitionRuntimeError("embedding_fwd(): input must have at least one dim, got rank 0")
    if rows.node.ndim != 2:
        raise DefinitionRuntimeError(f"embedding_fwd(): weight must have rank 2, got rank {rows.node.ndim}")
    if max_norm is not None:
        raise NotSupportedError("embedding_fwd(): max_norm is not supported yet: it updates the weight")
    return _gathered("embedding_fwd", GatherKind.index_select, rows, indices, 0)


INDEXING_OPS: dict[str, Callable[..., object]] = {
    "embedding_fwd": embedding_fwd,
    "gather": gather,
    "index_select": index_select,
    "select": select,
    "take_along_axis": take_along_axis,
}
"""Every op of this module by name."""
