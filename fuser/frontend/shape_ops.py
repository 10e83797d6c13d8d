"""Ops that change shapes (section 3.6 of the contract): broadcast, broadcast_in_dim, expand, squeeze, permute, size, shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.handles import TensorView, Val, wrap_axis
from fuser.frontend.operation import (
    bool_argument,
    extent_list_argument,
    int_argument,
    int_list_argument,
    operation,
    sequence_argument,
    tensor_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.integers.axis_range import outside_text
from fuser.ir.integers.integers import const

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int


@operation("broadcast(arg: TensorView, is_broadcast_dim: Sequence[bool]) -> TensorView")
def broadcast(arg: object, is_broadcast_dim: object) -> TensorView:
    """New size-1 dims at the True positions; the dims of arg take the False ones in order.

    Raises DefinitionRuntimeError (`Invalid broadcast`) if the number of False entries is not the rank.
    """
    tv = tensor_argument("arg", arg)
    flags = [
        bool_argument(f"is_broadcast_dim[{i}]", f)
        for i, f in enumerate(sequence_argument("is_broadcast_dim", is_broadcast_dim))
    ]
    if flags.count(False) != tv.node.ndim:
        raise DefinitionRuntimeError(
            f"Invalid broadcast, number of false entries in is_broadcast_dim expected to be {tv.node.ndim} but "
            f"{flags.count(False)} were given in {flags}"
        )
    builder = tv.fusion.builder()
    if True not in flags:
        return tv.fusion.tensor_handle(_copy(builder, tv.node))
    return tv.fusion.tensor_handle(builder.broadcast(tv.node, flags))


def _copy(builder: FusionBuilder, tensor: ir.Tensor) -> ir.Tensor:
    return builder.pointwise("set", [tensor], tensor.dtype)


@operation("expand(arg: TensorView, shape: Sequence[Val | int]) -> TensorView")
def expand(arg: object, shape: object) -> TensorView:
    """Size-1 dims seen as many times as `shape` says, without a copy; new dims on the left; -1 keeps an extent.

    Raises DefinitionRuntimeError (`Invalid expand size`) for a dim of another static extent, and for a shape of lower
    rank. A symbolic extent is compared when inputs are bound.
    """
    tv = tensor_argument("arg", arg)
    entries = extent_list_argument("shape", shape)
    return tv.fusion.tensor_handle(_expanded(tv, tv.node, entries))


def _expanded(tv: TensorView, tensor: ir.Tensor, entries: Sequence[Val | int]) -> ir.Tensor:
    builder = tv.fusion.builder()
    added = len(entries) - tensor.ndim
    if added < 0:
        raise DefinitionRuntimeError(
            f"Invalid expand size: shape has {len(entries)} entries, the tensor has {tensor.ndim} dims"
        )
    tensor = _with_ones(builder, tensor, entries[added:])
    extents: list[Int | None] = []
    given: list[ir.Scalar | None] = []
    for i, entry in enumerate(entries):
        kept = tensor.visible[i - added].extent if i >= added else const(1)
        if isinstance(entry, Val):
            tv.fusion.check_member(entry, "expand")
            assert isinstance(entry.node, ir.Scalar)
            extent = scalars.extent_of(builder, entry.node)
        else:
            # A new dim has nothing to keep but its one element.
            extent = kept if entry == -1 else const(entry)
        changed = extent is not kept or i < added
        extents.append(extent if changed else None)
        node = entry.node if isinstance(entry, Val) else None
        given.append(node if changed and not extent.is_const and isinstance(node, ir.Scalar) else None)
    if all(e is None for e in extents):
        return _copy(builder, tensor)
    return builder.expand(tensor, extents, given)


def _with_ones(builder: FusionBuilder, tensor: ir.Tensor, entries: Sequence[Val | int]) -> ir.Tensor:
    """The tensor with dims that broadcast where symbolic ones are expanded to 1: by that they are known to have one element."""
    flags = [
        not isinstance(entry, Val) and entry == 1 and not (d.is_broadcast or d.expanded or d.extent.is_const)
        for d, entry in zip(tensor.visible, entries, strict=True)
    ]
    return builder.broadcast(builder.squeeze(tensor, flags), flags) if True in flags else tensor


@operation("broadcast_in_dim(arg: TensorView, shape: Sequence[Val | int], broadcast_dims: Sequence[int]) -> TensorView")
def broadcast_in_dim(arg: object, shape: object, broadcast_dims: object) -> TensorView:
    """Dim i of arg becomes dim broadcast_dims[i] of the result, other dims are new; then expanded to `shape`.

    Raises DefinitionRuntimeError for a list of other length than the rank, a shape of lower rank, and positions that are
    repeated, not increasing or out of range.
    """
    tv = tensor_argument("arg", arg)
    entries = extent_list_argument("shape", shape)
    positions = int_list_argument("broadcast_dims", broadcast_dims)
    ndim = tv.node.ndim
    if len(positions) != ndim:
        raise DefinitionRuntimeError(
            f"broadcast_dims must name one output dim for each of the {ndim} dims of the input, got {positions}"
        )
    if len(entries) < ndim:
        raise DefinitionRuntimeError(
            f"shape must have at least as many entries as the input has dims: {len(entries)} against {ndim}"
        )
    wrapped = [wrap_axis(p, len(entries)) for p in positions]
    for before, after in itertools.pairwise(wrapped):
        if after == before:
            raise DefinitionRuntimeError(f"broadcast_dims must not repeat a dim, got {positions}")
        if after < before:
            raise DefinitionRuntimeError(f"broadcast_dims must be increasing, got {positions}; permute the input first")
    builder = tv.fusion.builder()
    placed = tv.node
    if len(entries) > ndim:
        placed = builder.broadcast(placed, [d not in wrapped for d in range(len(entries))])
    result = _expanded(tv, placed, entries)
    return tv.fusion.tensor_handle(result)


@operation("squeeze(arg: TensorView, dims: Sequence[int], squeeze_expanded: bool = False) -> TensorView")
def squeeze(arg: object, dims: object, squeeze_expanded: object = False) -> TensorView:
    """Drop size-1 dims; with `squeeze_expanded` also expanded ones, of which one copy is kept.

    Raises DefinitionRuntimeError for dims out of range or of another static size; symbolic ones are checked when inputs
    are bound.
    """
    tv = tensor_argument("arg", arg)
    wanted = int_list_argument("dims", dims)
    with_expanded = bool_argument("squeeze_expanded", squeeze_expanded)
    ndim = tv.node.ndim
    if len(wanted) > ndim:
        raise DefinitionRuntimeError(
            "The dims to squeeze must be <= the number of dims of the input tensor: "
            f"{len(wanted)} dims of a tensor of rank {ndim}"
        )
    flags = [False] * ndim
    for d in wanted:
        if not -ndim <= d < ndim:
            raise DefinitionRuntimeError(f"Squeeze dim is outside of Tensor size! {outside_text('dim', d, ndim)}")
        domain = tv.node.visible[d]
        if domain.expanded and not with_expanded:
            raise DefinitionRuntimeError(
                f"Can not squeeze dim {d}: it is expanded to {domain.extent}; pass squeeze_expanded=True to keep one copy"
            )
        if not domain.expanded and not domain.is_broadcast and domain.extent.is_const:
            raise DefinitionRuntimeError(
                f"Can not squeeze dim {d}: its size is {domain.extent}, not 1; fd.ops.select takes one position of a dim"
            )
        flags[d] = True
    builder = tv.fusion.builder()
    if True not in flags:
        return tv.fusion.tensor_handle(_copy(builder, tv.node))
    return tv.fusion.tensor_handle(builder.squeeze(tv.node, flags))


@operation("permute(arg: TensorView, dims: Sequence[int]) -> TensorView")
def permute(arg: object, dims: object) -> TensorView:
    """Dim i of the result is dim dims[i] of arg; [] is a copy.

    Raises DefinitionRuntimeError for a list of other length than the rank, dims out of range and repeated ones.
    """
    tv = tensor_argument("arg", arg)
    wanted = int_list_argument("dims", dims)
    builder = tv.fusion.builder()
    if not wanted:
        return tv.fusion.tensor_handle(_copy(builder, tv.node))
    ndim = tv.node.ndim
    if len(wanted) != ndim:
        raise DefinitionRuntimeError(
            f"permute() expects the dims argument to have the same length as input: {len(wanted)} dims for rank {ndim}"
        )
    for d in wanted:
        if not -ndim <= d < ndim:
            raise DefinitionRuntimeError(
                f"permute(): dims argument is out of range, expects values between {-ndim} and {ndim - 1}, got {d}"
            )
    wrapped = [d % ndim for d in wanted]
    if len(set(wrapped)) != ndim:
        raise DefinitionRuntimeError(f"permute(): duplicated dimension entries in dims: {wanted}")
    return tv.fusion.tensor_handle(builder.permute(tv.node, wrapped))


@operation("size(arg: TensorView, dim: int) -> Val")
def size(arg: object, dim: object) -> Val:
    """The extent of a dim (the expanded one of an expanded dim) as an integer scalar, usable in any shape."""
    return tensor_argument("arg", arg).size(int_argument("dim", dim))


@operation("shape(arg: TensorView) -> list[Val]")
def shape(arg: object) -> list[Val]:
    """All extents."""
    return list(tensor_argument("arg", arg).shape)


SHAPE_OPS: dict[str, Callable[..., object]] = {
    "broadcast": broadcast,
    "broadcast_in_dim": broadcast_in_dim,
    "expand": expand,
    "permute": permute,
    "shape": shape,
    "size": size,
    "squeeze": squeeze,
}
"""Every op of this module by name."""
