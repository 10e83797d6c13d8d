"""`FramedTensors`: a tensor in a frame, as ops of displaced reads of inputs.

A frame goes from an op to its operands (`ops_in_frames`) until it meets an input or another read. There are two ways down:
`in_frame`, where what lies outside of the frame may be anything, and `filling`, where it is a number that every read fills
with, or where nothing lies outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    Gather,
    Permute,
    Pointwise,
    Reduction,
    Resize,
    Scalar,
    Scan,
    Tensor,
    Welford,
    Window,
    expr_outputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.scalar_evaluation import Number, evaluate_op, rounded_number
from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.ops.op_table import POINTWISE, SCANS
from fuser.optimize.displaced_reads.composed_reads import composed_windows, read_in_parts
from fuser.optimize.displaced_reads.frame import Frame, spans, whole_frame
from fuser.optimize.displaced_reads.ops_in_frames import op_in_frame, zero_of
from fuser.optimize.displaced_reads.rows_read_elsewhere import has_few_elements, reduced_extents, shows_first

_COMBINE = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}


class FramedTensors:
    """What is computed elsewhere of a fusion that is being built.

    definitions   of the tensors of the new fusion
    rows          reductions and scans that are worth computing again where a row is read (`rows_read_elsewhere`)
    limit         exprs past which nothing more is computed again
    """

    def __init__(self, builder: FusionBuilder, rows: Iterable[Expr], limit: int) -> None:
        self.builder = builder
        self.definitions: dict[Tensor, Expr] = {}
        self._limit = limit
        self._rows = set(rows)
        self._framed: dict[tuple[Tensor, Frame], Tensor | None] = {}
        self._filled: dict[tuple[Tensor, Frame, str | None], Tensor | None] = {}
        self._apart: dict[Tensor, Tensor] = {}

    @property
    def is_full(self) -> bool:
        """Whether the fusion has grown as far as it may."""
        return len(self.builder.exprs) > self._limit

    def append(self, expr: Expr, old: Expr | None = None) -> None:
        """An expr of the new fusion. `old`: the one that it stands for."""
        if old in self._rows:
            self._rows.add(expr)
        self.builder.exprs.append(expr)
        for v in expr_outputs(expr):
            if isinstance(v, Tensor):
                self.definitions[v] = expr

    def made(self, tensor: Tensor) -> Tensor:
        """A result that the builder has just appended."""
        self.definitions[tensor] = self.builder.exprs[-1]
        return tensor

    # --- what is outside may be anything ---

    def in_frame(self, tensor: Tensor, frame: Frame, *, expands: bool) -> Tensor | None:
        """The tensor read in a frame; None where it has to be computed first.

        `expands`: a dim of one element may be seen everywhere, because what is outside of its window is not looked at.
        """
        if not frame.moves(tensor):
            return tensor
        key = tensor, frame
        if key not in self._framed:
            # What is reduced at another place and what it is divided by are one read.
            row = self.filling(tensor, frame, None) if self._rows else None
            self._framed[key] = row or self._read_in(tensor, frame, expands) or self._in_pieces(tensor, frame)
        return self._framed[key]

    def operand(self, tensor: Tensor, frame: Frame, *, expands: bool) -> Tensor | None:
        """An operand in its frame; a displaced read of it where it has to be computed first."""
        found = self.in_frame(tensor, frame, expands=expands)
        return found if found is not None or self.is_full else self._windowed(tensor, frame)

    def _in_pieces(self, tensor: Tensor, frame: Frame) -> Tensor | None:
        """A concatenation of each piece by itself, where all pieces of a dim cannot be read at once but each can be."""
        dim = next((d for d, w in enumerate(frame.windows) if w.pieces), None)
        if dim is None:
            return None
        frames, bounds = frame.pieces(dim)
        parts = [self.in_frame(tensor, f, expands=True) for f in frames]
        known = [p for p in parts if p is not None]
        return self.made(self.builder.cat(known, dim, bounds)) if len(known) == len(parts) else None

    def _read_in(self, tensor: Tensor, frame: Frame, expands: bool) -> Tensor | None:
        if self.is_full:
            return None
        one = next((d for d, dim in enumerate(tensor.visible) if dim.is_broadcast and frame.moves_dim(tensor, d)), None)
        if one is not None and tensor not in self.builder.inputs:
            return self._expanded(tensor, one, frame) if expands else None
        expr = self.definitions.get(tensor)
        match expr:
            case None:
                return self._windowed(tensor, frame)
            case Resize():
                return self._read_of_read(expr, frame, expands)
            case Reduction():
                return self._few_reads(expr, frame)
            case Scan():
                return self._scan(expr, frame, expands)
            case _:
                return self._op(expr, frame, lambda v, own: self._operand_of(expr, v, own, frame, expands))

    def _expanded(self, tensor: Tensor, dim: int, frame: Frame) -> Tensor | None:
        """One element of a dim, seen everywhere."""
        inner = self.in_frame(tensor, frame.with_whole(dim, tensor.visible[dim].extent), expands=True)
        if inner is None:
            return None
        wanted = [frame.extents[dim] if d == dim else None for d in range(inner.ndim)]
        return self.made(self.builder.expand(inner, wanted))

    def _op(self, expr: Expr, frame: Frame, read: Callable[[Tensor, Frame], Tensor | None]) -> Tensor | None:
        """An op in a frame, of what `read` finds for its operands; None where that is none for one of them."""
        op = op_in_frame(self.builder, expr, frame)
        if op is None:
            return None
        operands: list[Tensor] = []
        for tensor, own in op.operands:
            found = read(tensor, own)
            if found is None:
                return None
            operands.append(found)
        return self.made(op.make(operands))

    def _operand_of(self, expr: Expr, tensor: Tensor, own: Frame, frame: Frame, expands: bool) -> Tensor | None:
        # All of an index is looked at: an index that may be anything is out of bounds.
        found = self.operand(tensor, own, expands=expands and not isinstance(expr, Gather))
        if found is not tensor or not isinstance(expr, Pointwise):
            return found
        dims = zip(tensor.visible, expr.output.visible, frame.extents, strict=True)
        is_shared = any(a.is_broadcast and not b.is_broadcast and n is ONE for a, b, n in dims)
        return self._apart_from(tensor) if is_shared else found

    def _apart_from(self, tensor: Tensor) -> Tensor:
        """The same values, in dims of one element of their own: what is seen beside one element of a dim is no value that is
        seen along all of it."""
        if tensor in self._apart or not any(d.is_broadcast for d in tensor.visible):
            return self._apart.get(tensor, tensor)
        match self.definitions.get(tensor):
            case Broadcast(source, _, flags):
                made = self.builder.broadcast(source, flags)
            case Pointwise(op, inputs) if op != "segment_set":
                operands = [v if isinstance(v, Scalar) else self._apart_from(v) for v in inputs]
                made = self.builder.pointwise(op, operands, tensor.dtype)
            case _:
                return tensor
        self._apart[tensor] = self.made(made)
        return self._apart[tensor]

    def _windowed(self, tensor: Tensor, frame: Frame, fill: Scalar | None = None) -> Tensor:
        """A displaced read, 0 where nothing is wanted."""
        if fill is None and not frame.spans:
            fill = zero_of(self.builder, tensor.dtype)
        return self.made(self.builder.resize(tensor, frame.windows, frame.extents, fill))

    def _read_of_read(self, expr: Resize, frame: Frame, expands: bool) -> Tensor | None:
        """A window of a window: offsets add, and the inner fill surrounds what both leave."""
        if expr.output.root is not None:
            return self._read_in_parts(expr, frame)
        windows = composed_windows(expr, frame)
        if windows is None:
            return None
        both = Frame(windows, frame.extents)
        if expr.fill is None:
            return self.operand(expr.input, both, expands=expands)
        if expr.input in self.builder.inputs:
            return self._windowed(expr.input, both, expr.fill)
        found = self.operand(expr.input, both, expands=True)
        return None if found is None else self.with_fill_around(found, windows, expr.fill)

    def _read_in_parts(self, expr: Resize, frame: Frame) -> Tensor | None:
        found = read_in_parts(expr, frame) if expr.input in self.builder.inputs else None
        if found is None:
            return None
        b, own = self.builder, found.frame
        read = self.made(b.resize(expr.input, own.windows, own.extents, expr.fill, (), found.parts))
        return self.made(b.broadcast(read, found.flags)) if any(found.flags) else read

    def _few_reads(self, expr: Reduction, frame: Frame) -> Tensor | None:
        """A reduction of few elements as that many reads, joined two by two."""
        combine = _COMBINE.get(expr.op)
        if combine is None or not has_few_elements(expr):
            return None
        flags = [d.is_reduction for d in expr.output.produced]
        found: Tensor | None = None
        for place in itertools.product(*(range(n.value) for n in reduced_extents(expr))):
            element = Frame(tuple(Window(const(k), ZERO, ONE) for k in place), (ONE,) * len(place))
            operand = self.operand(expr.input, frame.among(element, flags), expands=False)
            if operand is None:
                return None
            term = self.made(self.builder.squeeze(operand, flags))
            if term.dtype is not expr.output.dtype:
                term = self.made(self.builder.pointwise("cast", [term], expr.output.dtype))
            found = term if found is None else self.made(self.builder.pointwise(combine, [found, term], term.dtype))
        return found

    def _row(self, expr: Reduction | Welford, output: Tensor, frame: Frame) -> Tensor | None:
        """A reduction of a row at another place; None where all that it reduces is not read there from inputs."""
        if expr not in self._rows:
            return None
        outputs = tensor_outputs(expr)
        flags = [d.is_reduction for d in outputs[0].produced]
        operand = self.filling(expr.input, frame.among(whole_frame(reduced_extents(expr)), flags), None)
        if operand is None:
            return None
        axes = [d for d, gone in enumerate(flags) if gone]
        b = self.builder
        is_one = isinstance(expr, Reduction)
        made = (b.reduction(expr.op, operand, axes, output.dtype),) if is_one else b.welford(operand, axes)
        self._rows.add(b.exprs[-1])
        for old, new in zip(outputs, made, strict=True):
            self._framed[old, frame] = self._filled[old, frame, None] = self.made(new)
        return self._framed[output, frame]

    def _scan(self, expr: Scan, frame: Frame, expands: bool) -> Tensor | None:
        """The first elements of a scan, behind others perhaps, as a scan of its identity where those are; None where what is
        scanned has to be computed first."""
        window, extent = frame.windows[expr.dim], frame.extents[expr.dim]
        if expr not in self._rows or extent is ONE or not shows_first(window):
            return None
        first = const(-window.offset.value)
        operand = self.in_frame(
            expr.input, frame.with_dim(expr.dim, replace(window, begin=first), extent), expands=expands
        )
        if operand is None or operand.visible[expr.dim].is_broadcast:
            return None
        if first is not ZERO:
            identity = self.builder.constant(SCANS[expr.op].identity(expr.output.dtype), expr.output.dtype)
            others = whole_frame(frame.extents).with_dim(expr.dim, Window(ZERO, first, extent), extent)
            operand = self.with_fill_around(operand, others.windows, identity)
        found = self.made(self.builder.scan(expr.op, operand, expr.dim, expr.init))
        self._rows.add(self.builder.exprs[-1])
        return found

    # --- a number, or nothing, is outside ---

    def with_fill_around(self, tensor: Tensor, windows: Sequence[Window], fill: Scalar) -> Tensor:
        """`fill` outside of the windows, which say nothing else."""
        still = [Window(ZERO, w.begin, w.end) for w in windows]
        return self.made(self.builder.resize(tensor, still, [d.extent for d in tensor.visible], fill))

    def filling(self, tensor: Tensor, frame: Frame, fill: Scalar | None) -> Tensor | None:
        """The tensor in a frame and `fill` around it, as ops of reads that fill; None where these compute another number."""
        key = tensor, frame, None if fill is None else repr(fill.value)
        if key not in self._filled:
            self._filled[key] = self._read_filling(tensor, frame, fill)
        return self._filled[key]

    def _read_filling(self, tensor: Tensor, frame: Frame, fill: Scalar | None) -> Tensor | None:
        if tensor in self.builder.inputs:
            return self._windowed(tensor, frame, fill)
        expr = self.definitions.get(tensor)
        if isinstance(expr, Resize) and expr.input in self.builder.inputs and expr.output.root is None:
            windows = composed_windows(expr, frame)
            fills = {repr(f.value): f for f in (fill, expr.fill) if f is not None}
            if windows is None or len(fills) > 1:
                return None
            return self._windowed(expr.input, Frame(windows, frame.extents), next(iter(fills.values()), None))
        if self.is_full:
            return None
        match expr:
            case Pointwise():
                return self._filling_op(expr, frame, fill)
            case Broadcast() | Permute() if fill is None:
                return self._op(expr, frame, lambda v, own: self.filling(v, own, None))
            case Reduction() | Welford() if fill is None:
                return self._row(expr, tensor, frame)
            case _:
                return None

    def _filling_op(self, expr: Pointwise, frame: Frame, fill: Scalar | None) -> Tensor | None:
        """An op of operands that are filled with what it computes `fill` from."""
        numbers = _fills(expr, fill)
        if numbers is None:
            return None
        fills = iter([n for v, n in zip(expr.inputs, numbers, strict=True) if isinstance(v, Tensor)])

        def read(tensor: Tensor, own: Frame) -> Tensor | None:
            number = next(fills)
            if not _is_filled_alike(expr, tensor, frame, fill):
                return None
            return self.filling(tensor, own, None if number is None else self.builder.constant(number, tensor.dtype))

        return self._op(expr, frame, read)


def _is_filled_alike(expr: Pointwise, operand: Tensor, frame: Frame, fill: Scalar | None) -> bool:
    """Whether an operand has elements of its own outside of the windows of a frame, to be filled."""
    for d, (a, b) in enumerate(zip(operand.visible, expr.output.visible, strict=True)):
        moves = frame.moves_dim(expr.output, d)
        is_whole = not moves and spans(frame.windows[d], frame.extents[d])
        if not is_whole and (b.is_broadcast or (fill is not None and (a.is_broadcast or not moves))):
            return False
    return True


def _fills(expr: Pointwise, fill: Scalar | None) -> Sequence[Number | None] | None:
    """Numbers that an op computes `fill` from: `fill` for every tensor. None where it computes another one, or rounds it."""
    if fill is None:
        return [None] * len(expr.inputs)
    row = POINTWISE.get(expr.op)
    is_exact = expr.op == "cast" or (row is not None and row.ulp == (0.0, 0.0))
    if fill.value is None or isinstance(fill.value, complex) or not is_exact:
        return None
    given = [rounded_number(fill.value, v.dtype) if isinstance(v, Tensor) else v.value for v in expr.inputs]
    known = [n for n in given if n is not None]
    if len(known) < len(given):
        return None
    found = evaluate_op(expr.op, known, [v.dtype for v in expr.inputs], expr.output.dtype)
    return known if repr(found) == repr(rounded_number(fill.value, expr.output.dtype)) else None
