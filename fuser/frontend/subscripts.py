"""`tensor[1:, -1, None, ...]`: parts of tensors by subscripts, of the ops slice, select, squeeze and broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.indexing_ops import element_bounds, whole_dim
from fuser.frontend.operation import fusion_of, is_index
from fuser.frontend.resize_ops import Bound, normalized, sliced

Item: TypeAlias = "Val | int | slice | EllipsisType | None"


def subscript(tv: TensorView, key: object) -> TensorView:
    """A part of the tensor: ints and integer scalars take one element of a dim and drop it, slices some of them, each a
    step behind the last, None is a new dim of one element, `...` all dims that are not named.

    Negative positions count from the end, slices are clamped to the extent. Raises DefinitionTypeError for other keys
    (ops.index_select and ops.take_along_axis read at the indices of a tensor), and DefinitionRuntimeError for steps
    below 1, too many positions and those out of a known range.
    """
    items = [_checked(i) for i in (key if isinstance(key, tuple) else (key,))]
    fusion_of("tensor[...]", tv, *(v for i in items for v in _values(i)))
    items = _without_ellipsis(items, tv.node.ndim)
    builder = tv.fusion.builder()
    bounds: list[tuple[Bound, Bound]] = []
    dropped: list[bool] = []
    steps: list[int] = []
    for dim, item in enumerate(i for i in items if i is not None):
        bounds.append(_bounds(tv, dim, item))
        dropped.append(not isinstance(item, slice))
        steps.append(item.step if isinstance(item, slice) and item.step is not None else 1)
    tensor = tv.node
    if any(isinstance(i, Val | int) or (isinstance(i, slice) and not _takes_all(i)) for i in items):
        tensor = sliced(builder, tensor, bounds, steps)
    if True in dropped:
        tensor = builder.squeeze(tensor, dropped)
    kept = [i for i in items if not isinstance(i, Val | int)]
    if None in kept:
        tensor = builder.broadcast(tensor, [i is None for i in kept])
    return tv.fusion.tensor_handle(tensor)


def _checked(item: Any) -> Item:
    """An item of a key, its numbers as Python's. Raises for what is none, and for steps below 1."""
    if item is None or item is Ellipsis:
        return item
    if isinstance(item, slice):
        if item.step is not None and not (is_index(item.step) and int(item.step) >= 1):
            raise DefinitionRuntimeError(
                f"tensor[...]: steps of slices are numbers of at least 1, got step {item.step}: select positions with "
                "ops.index_select(x, ops.iota(length, start, step), dim)"
            )
        start, stop = (None if b is None else _position(b, "a bound of a slice") for b in (item.start, item.stop))
        return slice(start, stop, None if item.step is None else int(item.step))
    return _position(item, "a subscript")


def _position(value: object, what: str) -> Val | int:
    if isinstance(value, TensorView):
        remedy = (
            "ops.where selects by a condition"
            if value.dtype.name == "Bool"
            else "ops.index_select and ops.take_along_axis"
        )
        if value.dtype.name != "Bool":
            remedy += " read at the indices of a tensor"
        raise DefinitionTypeError(
            f"tensor[...]: {what} must be an int, a slice, None or ..., got a TensorView: {remedy}"
        )
    if isinstance(value, Val):
        if not value.dtype.is_integral:
            raise DefinitionTypeError(
                f"tensor[...]: {what} must be an integer, got a scalar of dtype {value.dtype.name}"
            )
        constant = getattr(value.node, "value", None)
        return value if constant is None else int(constant)
    if is_index(value):
        return value.__index__()  # type: ignore[attr-defined]
    hint = (
        ": index with a tensor by ops.index_select" if hasattr(value, "__len__") and not isinstance(value, str) else ""
    )
    raise DefinitionTypeError(
        f"tensor[...]: {what} must be an int, a slice, None or ..., got {type(value).__name__}{hint}"
    )


def _values(item: Item) -> list[Val]:
    """The scalars in an item."""
    parts = (item.start, item.stop) if isinstance(item, slice) else (item,)
    return [p for p in parts if isinstance(p, Val)]


def _without_ellipsis(items: Sequence[Item], ndim: int) -> list[Item]:
    """An item for each dim, beside those of new dims."""
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    named = sum(item is not None and item is not Ellipsis for item in items)
    if len(places) > 1:
        raise DefinitionRuntimeError("tensor[...]: there can be one `...` only")
    if named > ndim:
        raise DefinitionRuntimeError(f"tensor[...]: {named} subscripts for a tensor of rank {ndim}")
    at = places[0] if places else len(items)
    rest: list[Item] = [slice(None)] * (ndim - named)
    return [*items[:at], *rest, *items[at + len(places) :]]


def _takes_all(item: slice) -> bool:
    is_from_first = item.start is None or (isinstance(item.start, int) and item.start == 0)
    return is_from_first and item.stop is None and item.step in (None, 1)


def _bounds(tv: TensorView, dim: int, item: Item) -> tuple[Bound, Bound]:
    """[start, end) of a dim."""
    extent = tv.node.visible[dim].extent
    if not isinstance(item, slice):
        assert isinstance(item, Val | int)
        if isinstance(item, int) and item < 0:
            item = tv.size(dim) + item if not extent.is_const else item + extent.value
        if isinstance(item, int) and extent.is_const and not 0 <= item < extent.value:
            shown = item if item >= 0 else item - extent.value
            raise DefinitionRuntimeError(
                f"tensor[...]: subscript {shown} is out of range for dim {dim}, of extent {extent}"
            )
        return element_bounds(tv.fusion.builder(), tv, dim, item)
    if _takes_all(slice(item.start, item.stop)):
        return whole_dim(tv, dim)
    start = 0 if item.start is None else item.start
    stop = item.stop
    if stop is None:
        stop = extent.value if extent.is_const else tv.size(dim)
    return normalized(tv.fusion.builder(), tv, dim, start, stop)
