"""A lookup in what is computed, or in a part of an input, as lookups in inputs."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.fusion.fusion import Broadcast, Gather, GatherKind, Pointwise, Resize, Scalar, Tensor
from fuser.ir.integers.integers import ZERO
from fuser.optimize.displaced_reads.frame import Frame, extents_of, frame_of_read, spans
from fuser.optimize.displaced_reads.framed_tensors import FramedTensors


def lookup_in_slice(tensors: FramedTensors, expr: Gather, source: Tensor, index: Tensor) -> Tensor | None:
    """A lookup in a slice or a pad as one read, with an index that counts from the start of the tensor; None for another
    source, and where elements of it are one: a lookup does not move along what is broadcast, in the tensor or in the slice.
    None too for a pad along what is looked up, and where a dim of the result is a part of one that the windows are of."""
    made, b = tensors.definitions.get(source), tensors.builder
    if not isinstance(made, Resize) or expr.windows or made.output.root is not None:
        return None
    is_whole = spans(made.windows[expr.dim], source.visible[expr.dim].extent)
    if made.fill is not None and (expr.kind is not GatherKind.index_select or not is_whole):
        return None
    frame = frame_of_read(made)
    moved = [d for d in range(source.ndim) if frame.moves_dim(made.input, d)]
    if any(made.input.visible[d].is_broadcast for d in moved):
        return None
    if expr.dim in moved:
        start = _start_of(tensors, made, expr.dim, index)
        if start is None or expr.kind is not GatherKind.index_select:
            return None
        index = tensors.made(b.pointwise("add", [index, start], index.dtype))
        frame = frame.with_whole(expr.dim, made.input.visible[expr.dim].extent)
        if not frame.moves(made.input):
            return tensors.made(b.gather(expr.kind, made.input, index, expr.dim))
    if expr.kind is GatherKind.take_along_axis and any(
        source.visible[d].is_broadcast and not expr.output.visible[d].is_broadcast for d in moved
    ):
        return None
    if expr.kind is GatherKind.gather:
        extents = extents_of(expr.output.visible)
        windows = (replace(w, begin=ZERO, end=e) for w, e in zip(frame.windows, extents, strict=True))
        frame = Frame(tuple(windows), extents)
    return tensors.made(b.gather(expr.kind, made.input, index, expr.dim, frame.windows, frame.extents, made.fill))


def _start_of(tensors: FramedTensors, expr: Resize, dim: int, index: Tensor) -> Scalar | None:
    """Where a slice starts along a dim, as a number of the type of an index; None where that is not known."""
    window = expr.windows[dim]
    if window.pieces or window.step != 1:
        return None
    if window.offset.is_const:
        return tensors.builder.constant(window.offset.value, index.dtype)
    start = expr.scalars[dim][0] if expr.scalars else None
    is_offset = start is not None and start.expression is window.offset and start.dtype is index.dtype
    return start if is_offset else None


def lookup_in_op(tensors: FramedTensors, kind: GatherKind, source: Tensor, index: Tensor, dim: int) -> Tensor | None:
    """A lookup in an elementwise op, or in a broadcast of one, as that op of lookups; None where nothing is gained.

    An operand that is the same for all that a lookup may take (the sum of a row) is taken as it is.
    """
    b = tensors.builder
    expr, flags = tensors.definitions.get(source), ()
    if isinstance(expr, Broadcast):
        expr, flags = tensors.definitions.get(expr.input), expr.flags
    if not isinstance(expr, Pointwise) or expr.op == "segment_set" or tensors.is_full:
        return None
    visible = expr.output.visible
    operands = [v for v in expr.inputs if isinstance(v, Tensor)]
    if any(a.is_broadcast and not d.is_broadcast for v in operands for a, d in zip(v.visible, visible, strict=True)):
        pairs = enumerate(zip(source.visible, index.visible, strict=False))
        if kind is GatherKind.gather and all(d == dim or own.extent is other.extent for d, (own, other) in pairs):
            kind = GatherKind.take_along_axis
        if kind is not GatherKind.take_along_axis:
            return None
    made: list[Tensor | Scalar] = []
    for v in expr.inputs:
        if isinstance(v, Scalar):
            made.append(v)
            continue
        operand = tensors.made(b.broadcast(v, flags)) if flags else v
        if operand.visible[dim].is_broadcast and not source.visible[dim].is_broadcast:
            made.append(operand)
            continue
        made.append(_lookup(tensors, kind, operand, index, dim))
    return tensors.made(b.pointwise(expr.op, made, expr.output.dtype))


def _lookup(tensors: FramedTensors, kind: GatherKind, operand: Tensor, index: Tensor, dim: int) -> Tensor:
    """A lookup in an operand, in what that is computed from where it can be."""
    found = lookup_in_op(tensors, kind, operand, index, dim)
    if found is not None:
        return found
    made = tensors.made(tensors.builder.gather(kind, operand, index, dim))
    read = tensors.definitions[made]
    assert isinstance(read, Gather)
    return lookup_in_slice(tensors, read, operand, index) or made
