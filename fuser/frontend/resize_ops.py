"""Ops that take parts of tensors, surround them or put them side by side (section 3.6 of the contract): slice, pad, cat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    bool_argument,
    fusion_of,
    int_argument,
    operation,
    scalar_argument,
    sequence_argument,
    tensor_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.integers.axis_range import outside_text
from fuser.ir.integers.integers import ONE, ZERO, const, minimum
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, kind_of

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int

Bound: TypeAlias = "tuple[Int, ir.Scalar | None]"
"""A position as an expression, and the scalar that has its value where it is no constant."""


def _position_list(name: str, value: object) -> list[Val | int]:
    """Ints and integer Vals, mixed; Vals that are constants as ints."""
    entries: list[Val | int] = []
    for i, entry in enumerate(sequence_argument(name, value)):
        if not isinstance(entry, Val):
            entries.append(int_argument(f"{name}[{i}]", entry))
            continue
        scalar_argument(f"{name}[{i}]", entry)
        if not entry.node.dtype.is_integral:
            raise DefinitionRuntimeError(
                f"{name}[{i}] must be an integer, got a scalar of dtype {entry.node.dtype.name}"
            )
        constant = entry.node.value if isinstance(entry.node, ir.Scalar) else None
        entries.append(entry if constant is None else int(constant.real))
    return entries


# --- slice ------------------------------------------------------------------------------------------------------------


@operation(
    "slice(arg: TensorView, start_indices: Sequence[Val | int], end_indices: Sequence[Val | int], "
    "strides: Sequence[Val | int] | None = None, manual_normalization: bool = False) -> TensorView"
)
def slice_(
    arg: object,
    start_indices: object,
    end_indices: object,
    strides: object = None,
    manual_normalization: object = False,
) -> TensorView:
    """Every stride-th of the elements [start, end) of each dim. An end past the extent is clamped; run-time indices count from
    the end where they are negative and are clamped to the extent, unless `manual_normalization` promises
    0 <= start <= end <= extent.

    Raises DefinitionRuntimeError for lists of other length than the rank, literal starts below 0, ends below starts and
    strides that are no constants or below 1.
    """
    tv = tensor_argument("arg", arg)
    starts = _position_list("start_indices", start_indices)
    ends = _position_list("end_indices", end_indices)
    steps = [1] * len(starts) if strides is None else _position_list("strides", strides)
    is_manual = bool_argument("manual_normalization", manual_normalization)
    if len(steps) != len(starts):
        raise DefinitionRuntimeError(
            f"Slice start_indices and strides don't match! {len(starts)} starts, {len(steps)} strides"
        )
    if len(ends) != len(starts):
        raise DefinitionRuntimeError(
            f"Slice indexing attribute dimensions don't match! {len(starts)} starts, {len(ends)} ends"
        )
    if len(starts) != tv.node.ndim:
        raise DefinitionRuntimeError(
            "Number of tensor dimensions does not match slice dimensions! "
            f"the tensor has {tv.node.ndim}, start_indices {len(starts)}"
        )
    for i, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
        if isinstance(start, int) and start < 0:
            raise DefinitionRuntimeError(
                f"Slice operation start_indices must be greater than or equal to 0, got {start} in dim {i}"
            )
        if isinstance(start, int) and isinstance(end, int) and end < start:
            raise DefinitionRuntimeError(
                f"Slice operation end_indices must be greater than or equal to start_indices, got {end} and {start} in dim {i}"
            )
        if isinstance(step, Val) or step < 1:
            # The wording is nvFuser's, which its users match; it takes no strides but 1.
            raise DefinitionRuntimeError(
                f"nvFuser Limitation: All slice operation strides must be of const size 1 or more, got {step} in dim {i}"
            )
    fusion_of("slice", tv, *(e for e in (*starts, *ends) if isinstance(e, Val)))
    builder = tv.fusion.builder()
    bounds: list[tuple[Bound, Bound]] = []
    for dim, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if is_manual:
            bounds.append((_plain(builder, start), _plain(builder, end)))
        else:
            bounds.append(normalized(builder, tv, dim, start, end))
    strides_of = [step for step in steps if isinstance(step, int)]
    return tv.fusion.tensor_handle(sliced(builder, tv.node, bounds, strides_of))


def sliced(
    builder: FusionBuilder, tensor: ir.Tensor, bounds: Sequence[tuple[Bound, Bound]], steps: Sequence[int] = ()
) -> ir.Tensor:
    """Every step-th element of [start, end) of each dim; a copy where that is everything."""
    dims = zip(tensor.visible, bounds, strict=True)
    if all(start[0] is ZERO and end[0] is d.extent for d, (start, end) in dims) and all(s == 1 for s in steps):
        return builder.pointwise("set", [tensor], tensor.dtype)
    return builder.slice(
        tensor,
        [start[0] for start, _ in bounds],
        [end[0] for _, end in bounds],
        [(start[1], end[1]) for start, end in bounds],
        steps,
    )


def _plain(builder: FusionBuilder, position: Val | int) -> Bound:
    """A position as it was given."""
    if isinstance(position, int):
        return const(position), None
    assert isinstance(position.node, ir.Scalar)
    extent = scalars.extent_of(builder, position.node)
    return extent, None if extent.is_const else position.node


def normalized(
    builder: FusionBuilder, tv: TensorView, dim: int, start: Val | int, end: Val | int
) -> tuple[Bound, Bound]:
    """(start, end) of a dim, with 0 <= start <= end <= extent; negative positions count from the end."""
    extent = tv.node.visible[dim].extent

    def whole() -> ir.Scalar:
        return size_scalar(tv, dim)

    def op(name: str, *operands: ir.Scalar) -> ir.Scalar:
        return scalars.scalar_operation(builder, POINTWISE[name], operands)

    def at_least_zero(position: Val) -> ir.Scalar:
        """A run-time position counted from the start."""
        assert isinstance(position.node, ir.Scalar)
        node = position.node
        low = None if node.expression is None else node.expression.lo
        if (low is not None and low >= 0) or node.expression is extent:
            return node
        zero = scalars.constant(builder, 0)
        wrapped = op("where", op("lt", node, zero), op("add", node, whole()), node)
        return op("maximum", wrapped, zero)

    def from_end(position: int) -> ir.Scalar:
        return op("maximum", op("add", whole(), scalars.constant(builder, position)), scalars.constant(builder, 0))

    def bound(scalar: ir.Scalar) -> Bound:
        found = scalars.extent_of(builder, scalar)
        return found, None if found.is_const else scalar

    def scalar_of(position: Val | int) -> ir.Scalar:
        if isinstance(position, Val):
            return at_least_zero(position)
        return scalars.constant(builder, position) if position >= 0 else from_end(position)

    if isinstance(start, int) and isinstance(end, int) and extent.is_const:
        low, high, _ = slice(start, end).indices(extent.value)
        return (const(low), None), (const(max(low, high)), None)
    first, last = scalar_of(start), scalar_of(end)
    # One from the end is not past it.
    if isinstance(start, Val) or start > 0:
        first = op("minimum", first, whole())
    if last.expression is not extent and (isinstance(end, Val) or end >= 0):
        last = op("minimum", last, whole())
    # An end before the start makes the part empty. What is known not to be before it needs no such bound.
    in_order = isinstance(start, int) and isinstance(end, int) and (start >= 0) == (end >= 0) and start <= end
    from_zero = isinstance(start, int) and start == 0
    if not (in_order or from_zero or last.expression is extent):
        last = op("maximum", last, first)
    return bound(first), bound(last)


# --- pad --------------------------------------------------------------------------------------------------------------


@operation(
    "pad(arg: TensorView, pad_widths: Sequence[Val | int], value: Val | number | None = None) -> TensorView",
)
def pad(arg: object, pad_widths: object, value: object = None) -> TensorView:
    """`value` (0 or False unless given) around arg: pairs (left, right) of widths, innermost dim first, dims not listed as
    they are. A negative width crops.

    Raises DefinitionRuntimeError for an odd number of widths, more than two per dim, a value of another kind than arg, and a
    dim whose extent would become negative.
    """
    tv = tensor_argument("arg", arg)
    widths = _position_list("pad_widths", pad_widths)
    fill = None if value is None else scalar_argument("value", value)
    if len(widths) % 2:
        raise DefinitionRuntimeError(f"Invalid number of padding widths: {len(widths)}, they come in pairs")
    ndim = tv.node.ndim
    if len(widths) > 2 * ndim:
        raise DefinitionRuntimeError(
            f"Number of pad widths must be at most twice the input dimension: {len(widths)} widths for rank {ndim}"
        )
    fusion_of("pad", tv, *(e for e in (*widths, fill) if isinstance(e, Val)))
    builder = tv.fusion.builder()
    node = _fill_value(builder, tv.node.dtype, fill)
    pairs: list[tuple[Bound, Bound]] = [((ZERO, None), (ZERO, None))] * ndim
    for i in range(len(widths) // 2):
        pairs[ndim - 1 - i] = _plain(builder, widths[2 * i]), _plain(builder, widths[2 * i + 1])
    if not ndim:
        return tv.fusion.tensor_handle(builder.pointwise("set", [tv.node], tv.node.dtype))
    return tv.fusion.tensor_handle(_padded(builder, tv.node, pairs, node))


def _fill_value(builder: FusionBuilder, dtype: DataType, value: Val | bool | int | float | complex | None) -> ir.Scalar:
    kind = kind_of(dtype)
    if value is None:
        zero: dict[str, bool | int | float | complex] = {"b": False, "f": 0.0, "c": 0j}
        return scalars.as_operand(builder, scalars.constant(builder, zero.get(kind, 0)), dtype, beside_tensor=True)
    node = value.node if isinstance(value, Val) else scalars.constant(builder, value)
    assert isinstance(node, ir.Scalar)
    if kind_of(node.dtype).replace("u", "i") != kind.replace("u", "i"):
        raise DefinitionRuntimeError(
            f"Tensor arg and pad value must have the same dtype. The tensor is {dtype.name}, the value {node.dtype.name}"
        )
    return scalars.as_operand(builder, node, dtype, beside_tensor=True)


def _padded(
    builder: FusionBuilder, tensor: ir.Tensor, pairs: Sequence[tuple[Bound, Bound]], fill: ir.Scalar
) -> ir.Tensor:
    return builder.pad(
        tensor,
        [left[0] for left, _ in pairs],
        [right[0] for _, right in pairs],
        fill,
        [(left[1], right[1]) for left, right in pairs],
    )


# --- cat --------------------------------------------------------------------------------------------------------------


@operation("cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> TensorView")
def cat(tensors: object, dim: object = 0, manual_padding: object = False) -> TensorView:
    """Tensors side by side along `dim`; one tensor is copied. With `manual_padding` each is the result of a `pad` to the shape
    of the result, and they do not overlap.

    Raises DefinitionRuntimeError for no tensors, different dtypes or ranks, a dim out of range, and other dims of different
    static extents.
    """
    views = [tensor_argument(f"tensors[{i}]", t) for i, t in enumerate(sequence_argument("tensors", tensors))]
    axis = int_argument("dim", dim)
    is_manual = bool_argument("manual_padding", manual_padding)
    if not views:
        raise DefinitionRuntimeError("cat() needs at least one tensor, got an empty list")
    fusion = fusion_of("cat", *views)
    builder = fusion.builder()
    nodes = [v.node for v in views]
    ndim = nodes[0].ndim
    for i, node in enumerate(nodes):
        if node.dtype is not nodes[0].dtype:
            raise DefinitionRuntimeError(
                f"cat() needs tensors of one dtype: tensors[0] is {nodes[0].dtype.name}, tensors[{i}] {node.dtype.name}"
            )
        if node.ndim != ndim:
            raise DefinitionRuntimeError(
                f"Unexpected number of dimensions: tensors[0] of cat() has {ndim}, tensors[{i}] has {node.ndim}"
            )
    if not -ndim <= axis < ndim:
        raise DefinitionRuntimeError(f"Invalid dimension to cat: {outside_text('dim', axis, ndim)}")
    axis %= ndim
    if len(nodes) == 1:
        return fusion.tensor_handle(builder.pointwise("set", nodes, nodes[0].dtype))
    if is_manual:
        return fusion.tensor_handle(builder.cat(nodes, axis, _bounds_of_pads(builder, nodes, axis)))
    _check_other_extents(nodes, axis)
    fill = _fill_value(builder, nodes[0].dtype, None)
    sizes = [_size(v, axis) for v in views]
    padded: list[ir.Tensor] = []
    for k, node in enumerate(nodes):
        pairs: list[tuple[Bound, Bound]] = [((ZERO, None), (ZERO, None))] * ndim
        pairs[axis] = _total(builder, sizes[:k]), _total(builder, sizes[k + 1 :])
        padded.append(_padded(builder, node, pairs, fill))
    bounds = [_total(builder, sizes[:k])[0] for k in range(1, len(nodes))]
    return fusion.tensor_handle(builder.cat(padded, axis, bounds))


def size_scalar(tv: TensorView, dim: int) -> ir.Scalar:
    """The extent of a dim, as `tv.size(dim)` has it."""
    node = tv.size(dim).node
    assert isinstance(node, ir.Scalar)
    return node


def _size(tv: TensorView, dim: int) -> Bound:
    extent = tv.node.visible[dim].extent
    return extent, None if extent.is_const else size_scalar(tv, dim)


def _total(builder: FusionBuilder, sizes: Sequence[Bound]) -> Bound:
    """The sum of some extents."""
    total: ir.Scalar | None = None
    constant = sum(extent.value for extent, _ in sizes if extent.is_const)
    for _, scalar in sizes:
        if scalar is not None:
            total = scalar if total is None else scalars.scalar_operation(builder, POINTWISE["add"], (total, scalar))
    if total is None:
        return const(constant), None
    if constant:
        total = scalars.scalar_operation(builder, POINTWISE["add"], (total, scalars.constant(builder, constant)))
    return scalars.extent_of(builder, total), total


def _check_other_extents(nodes: Sequence[ir.Tensor], axis: int) -> None:
    for d in range(nodes[0].ndim):
        extents = [n.visible[d].extent for n in nodes]
        if d != axis and ONE in extents and any(e.is_const and e is not ONE for e in extents):
            raise DefinitionRuntimeError(
                f"Expected sizes to match in cat: dim {d} of the operands has extents {', '.join(map(str, extents))}"
            )


def _bounds_of_pads(builder: FusionBuilder, nodes: Sequence[ir.Tensor], axis: int) -> list[Int]:
    """Where each operand but the first begins, as its pad says."""
    made = {e.output: e for e in builder.exprs if isinstance(e, ir.Resize) and e.fill is not None}
    bounds: list[Int] = []
    for i, node in enumerate(nodes):
        expr = made.get(node)
        if expr is None:
            raise ArgumentMismatch(f"with manual_padding=True, tensors[{i}] must be the result of pad().")
        if i:
            bounds.append(minimum(expr.windows[axis].begin, node.visible[axis].extent))
    return bounds


RESIZE_OPS: dict[str, Callable[..., object]] = {"cat": cat, "pad": pad, "slice": slice_}
"""Every op of this module by name."""
