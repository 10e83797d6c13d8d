"""An op in a frame: the frames in which its operands are read, and what the op is there. Each op has a case here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Expr,
    Full,
    Gather,
    GatherKind,
    Iota,
    Permute,
    Pointwise,
    Scalar,
    Squeeze,
    Tensor,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.scalar_evaluation import rounded_number
from fuser.ir.integers.integers import Int
from fuser.ir.ops.dtypes import DataType
from fuser.optimize.displaced_reads.composed_reads import composed, first_at
from fuser.optimize.displaced_reads.frame import Frame, extents_of, whole_frame
from fuser.records import record

Make: TypeAlias = Callable[[Sequence[Tensor]], Tensor]


@record(eq=False)
class FramedOp:
    """Tensors and the frames in which an op reads them; `make` is the op of these."""

    operands: Sequence[tuple[Tensor, Frame]]
    make: Make


def op_in_frame(builder: FusionBuilder, expr: Expr | None, frame: Frame) -> FramedOp | None:
    """What gives a frame of the result of an elementwise op, a view, a factory or a lookup; None for other exprs, and where
    the frame asks for more than these can give."""
    match expr:
        case Pointwise(op="segment_set"):
            return None
        case Pointwise():
            tensors = [v for v in expr.inputs if isinstance(v, Tensor)]
            return FramedOp(
                [(v, _frame_of_elementwise(expr, v, frame)) for v in tensors], _pointwise_maker(builder, expr)
            )
        case Broadcast(source, _, flags):
            kept = frame.take([d for d, is_new in enumerate(flags) if not is_new])
            return FramedOp([(source, kept)], lambda made: builder.broadcast(made[0], flags))
        case Squeeze(source, _, flags):
            gone = [d.extent for d, is_gone in zip(source.visible, flags, strict=True) if is_gone]
            own = frame.among(whole_frame(gone), flags)
            return FramedOp([(source, own)], lambda made: builder.squeeze(made[0], flags))
        case Permute(source, _, dims):
            order = sorted(range(len(dims)), key=dims.__getitem__)
            return FramedOp([(source, frame.take(order))], lambda made: builder.permute(made[0], dims))
        case Expand():
            return _expand(builder, expr, frame)
        case Full(value, output):
            return FramedOp((), lambda _: builder.full(frame.extents, value, output.dtype))
        case Iota():
            return _positions(builder, expr, frame)
        case Cat(inputs, _, dim, bounds):
            window = frame.windows[dim]
            if window.pieces:
                return None
            own_bounds = [first_at(b, window) for b in bounds]
            return FramedOp([(t, frame) for t in inputs], lambda made: builder.cat(made, dim, own_bounds))
        case Gather():
            return _part_of_lookup(builder, expr, frame)
        case _:
            return None


def zero_of(builder: FusionBuilder, dtype: DataType) -> Scalar:
    """What stands where nothing is wanted."""
    return builder.constant(rounded_number(0, dtype), dtype)


def _pointwise_maker(builder: FusionBuilder, expr: Pointwise) -> Make:
    def make(made: Sequence[Tensor]) -> Tensor:
        tensors = iter(made)
        operands = [v if isinstance(v, Scalar) else next(tensors) for v in expr.inputs]
        return builder.pointwise(expr.op, operands, expr.output.dtype)

    return make


def _frame_of_elementwise(expr: Pointwise, operand: Tensor, frame: Frame) -> Frame:
    own = frame
    for d, (a, b) in enumerate(zip(operand.visible, expr.output.visible, strict=True)):
        # The op's extent may be an equal one that is written differently.
        if (a.is_broadcast and not b.is_broadcast) or not frame.moves_dim(expr.output, d):
            own = own.with_whole(d, a.extent)
    return own


def _expand(builder: FusionBuilder, expr: Expand, frame: Frame) -> FramedOp:
    added = expr.output.ndim - expr.input.ndim
    own = frame.take(range(added, expr.output.ndim))
    wanted: list[Int | None] = []
    for d, b in enumerate(expr.output.visible):
        a = expr.input.visible[d - added] if d >= added else None
        is_expanded = a is None or (a.is_broadcast and not b.is_broadcast)
        wanted.append(frame.extents[d] if is_expanded else None)
        if a is not None and is_expanded:
            own = own.with_whole(d - added, a.extent)
    return FramedOp([(expr.input, own)], lambda made: builder.expand(made[0], wanted))


def _positions(builder: FusionBuilder, expr: Iota, frame: Frame) -> FramedOp | None:
    """Positions from another one on; None where that is not known, or rounded."""
    (window,), (extent,) = frame.windows, frame.extents
    start, step, dtype = expr.start.value, expr.step.value, expr.output.dtype
    if not (isinstance(start, int) and isinstance(step, int) and dtype.is_integral and window.offset.is_const):
        return None
    if window.pieces:
        return None

    def make(_: Sequence[Tensor]) -> Tensor:
        first = builder.constant(start + window.offset.value * step, expr.start.dtype)
        return builder.iota(extent, first, builder.constant(step * window.step, expr.step.dtype), dtype)

    return FramedOp((), make)


def _part_of_lookup(builder: FusionBuilder, expr: Gather, frame: Frame) -> FramedOp | None:
    """A lookup in the frame: a part of the index, at offsets along the other dims. None for more than the index has, and of
    lookups of elements for more than what is looked up."""
    of_index = _frame_of_lookup(expr, expr.index, frame)
    own = _frame_of_lookup(expr, expr.input, frame)
    if not (of_index if expr.kind is GatherKind.index_select else frame).spans:
        return None
    sizes = extents_of([b for _, b in position_pairs(expr, expr.input, expr.output)])
    windows = composed(own, expr.windows or whole_frame(sizes).windows, sizes, is_filled=expr.fill is not None)
    if windows is None:
        return None

    def make(made: Sequence[Tensor]) -> Tensor:
        is_filled = expr.fill is not None or Frame(windows, own.extents).spans
        fill = expr.fill if is_filled else zero_of(builder, expr.output.dtype)
        return builder.gather(expr.kind, expr.input, made[0], expr.dim, windows, own.extents, fill)

    return FramedOp([(expr.index, of_index)], make)


def _frame_of_lookup(expr: Gather, operand: Tensor, frame: Frame) -> Frame:
    """The frame of an operand of a lookup: along the gathered dim the input is whole."""
    places = {b: d for d, b in enumerate(expr.output.visible)}
    pairs = list(position_pairs(expr, operand, expr.output))
    is_whole = [a.is_broadcast or (operand is expr.input and i == expr.dim) for i, (a, _) in enumerate(pairs)]
    moved = frame.take([places[b] for whole, (_, b) in zip(is_whole, pairs, strict=True) if not whole])
    return moved.among(
        whole_frame([a.extent for whole, (a, _) in zip(is_whole, pairs, strict=True) if whole]), is_whole
    )
