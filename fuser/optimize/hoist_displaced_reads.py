"""Move slices, pads and gathers up to the inputs, so that a kernel computes in the frame of their results.

Before: t1 = exp(t0); t2 = slice(t1, 8:16); t3 = neg(t2)
After:  t4 = slice(t0, 8:16); t5 = exp(t4); t3 = neg(t5)

Before: t2 = index_select(t0, t1, 0); t3 = slice(t2, [:, 8:16])
After:  t3 = index_select(slice(t0, [:, 8:16]), t1, 0)                    one read, a Gather with windows

A displaced read of a computed tensor needs elements that other threads compute; one of an input does not. Elementwise ops,
views and concatenations commute with it: what they compute is computed again, only where it is needed. A slice of a lookup
looks up a slice, at a part of the index; a pad of whole rows that are looked up is a Gather with a fill. What
is left on a computed tensor (a reduction, a reshape) ends a segment.

Behind a pad of a computed tensor a Resize remains that moves nothing and fills what is outside, unless the ops compute what
fills from what fills (a cast, a product with 0): then the reads fill. The parts of a Cat need none.

Before: t1 = cast(t0, Float); t2 = pad(t1, [1, 1], 0.0)
After:  t3 = pad(t0, [1, 1], 0.0); t2 = cast(t3, Float)

Slices and pads of elementwise ops of inputs, which reshapes are made of, are moved before these are split
(`hoist_reads_of_reshapes`): a read of an input may give parts of its dims.

A row that is normalised and read at another place is normalised there, if few places read it (rows_read_elsewhere.py):

Before: t1 = sum(t0[n, m], [1]); t2 = div(t0, broadcast(t1)); t3 = slice(t2, 8:16)
After:  t4 = slice(t0, 8:16); t5 = sum(t4, [1]); t3 = div(t4, broadcast(t5))

A Squeeze of a dim that is known to have one element, though it is not broadcast, is such a read as well, of element 0, where
a reduction runs over this dim together with others that its operand does not have: threads are spread over those.

Before: t2 = sum(mul(t0[n, b 1], t1[n, m]), [0, 1]); t3 = squeeze(t0, [0, 1])     constraint n == 1
After:  t4 = slice(t0, 0:1); t3 = squeeze(t4, [0, 1])
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
    Output,
    Permute,
    Pointwise,
    Reducing,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Squeeze,
    Tensor,
    Welford,
    Window,
    expr_outputs,
    map_expr,
    next_number,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.scalar_evaluation import Number, evaluate_op, rounded_number
from fuser.ir.fusion.tensors import place_in_root
from fuser.ir.integers.integers import ONE, ZERO, Int, const, maximum, minimum
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE
from fuser.optimize.rows_read_elsewhere import rows_read_elsewhere
from fuser.records import record

# Chains of slices of slices recompute more and more; past this many exprs the rest stay where they are.
_GROWTH = 8
_ROOM = 64

_FEW = 8
"""Elements of a reduction that is computed again where it is read at other indices."""
_COMBINE = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}


@record
class Frame:
    """Per dim, where its elements are found and how many are wanted; what lies outside the windows may be anything."""

    windows: tuple[Window, ...]
    extents: tuple[Int, ...]

    def moves(self, tensor: Tensor) -> bool:
        """Whether the frame is another than the tensor's own."""
        return any(self.moves_dim(tensor, d) for d in range(tensor.ndim))

    def moves_dim(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dim is resized."""
        return self.windows[dim].moves or self.extents[dim] is not tensor.visible[dim].extent

    def take(self, dims: Sequence[int]) -> Frame:
        """The frame of some dims."""
        return Frame(tuple(self.windows[d] for d in dims), tuple(self.extents[d] for d in dims))

    def apart(self, dim: int) -> tuple[list[Frame], list[Int]]:
        """The frames of the pieces of a dim, and where each but the first begins."""
        window = self.windows[dim]
        offsets = [window.offset, *(offset for _, offset in window.pieces)]
        bounds = [first for first, _ in window.pieces]
        begins = [window.begin, *(maximum(window.begin, b) for b in bounds)]
        ends = [*(minimum(b, window.end) for b in bounds), window.end]
        found = zip(offsets, begins, ends, strict=True)
        return [self.with_dim(dim, Window(*w), self.extents[dim]) for w in found], bounds

    def with_dim(self, dim: int, window: Window, extent: Int) -> Frame:
        """Another dim in place of one."""
        return Frame(
            (*self.windows[:dim], window, *self.windows[dim + 1 :]),
            (*self.extents[:dim], extent, *self.extents[dim + 1 :]),
        )


def hoist_displaced_reads(fusion: Fusion) -> Fusion:
    """The same outputs, with displaced reads at inputs as far as they can go."""
    picking = _picking_squeezes(fusion)
    if not picking and not any(isinstance(e, (Resize, Gather)) and e.input not in fusion.inputs for e in fusion.exprs):
        return fusion
    return _Hoist(fusion, picking).run()


def hoist_reads_of_reshapes(fusion: Fusion) -> Fusion:
    """The same outputs, with slices and pads that reshapes are made of at inputs, where elementwise ops are between."""
    wanted: set[Tensor] = set()
    found: set[Resize] = set()
    for e in reversed(fusion.tensor_exprs):
        outputs = tensor_outputs(e)
        if (isinstance(e, Reshape) and e.is_resolved) or not wanted.isdisjoint(outputs):
            wanted.update(tensor_inputs(e))
        if isinstance(e, Resize) and e.input not in fusion.inputs and e.output in wanted:
            found.add(e)
    return _Hoist(fusion, frozenset(), frozenset(found)).run() if found else fusion


def _picking_squeezes(fusion: Fusion) -> frozenset[Squeeze]:
    """Squeezes that read the only element of a dim along which others go, together with dims that the operand does not have."""
    squeezes = [e for e in fusion.exprs if isinstance(e, Squeeze) and any(_picked(e))]
    if not squeezes:
        return frozenset()
    graph = fusion.resolved_dims
    reduced = [
        {graph.group(d) for d in tensor_outputs(e)[0].produced if d.is_reduction}
        for e in fusion.exprs
        if isinstance(e, Reducing)
    ]
    found: set[Squeeze] = set()
    for e in squeezes:
        own = graph.concrete_groups(e.input.visible)
        picked = {graph.group(d) for d, gone in zip(e.input.visible, _picked(e), strict=True) if gone}
        if any(groups & picked and not groups <= own for groups in reduced):
            found.add(e)
    return frozenset(found)


def _picked(expr: Squeeze) -> list[bool]:
    """Per dim of the operand, whether its only element is taken though it is not broadcast."""
    return [gone and not d.is_broadcast for d, gone in zip(expr.input.visible, expr.flags, strict=True)]


def _first_at(place: Int, window: Window) -> Int:
    """The first element of a window that is read at `place` or behind it."""
    return (place - window.offset + (window.step - 1)) // window.step


def _spans(window: Window, extent: Int) -> bool:
    """Whether a window without pieces shows elements of its operand alone."""
    return window.begin is ZERO and window.end is extent and not window.pieces


def _has_dims(new: Tensor, old: Tensor) -> bool:
    """Whether the dims of `new` have the kinds and extents that consumers of `old` were made for."""
    return all(a.kind is b.kind and a.extent is b.extent for a, b in zip(new.visible, old.visible, strict=True))


class _Hoist:
    """One use: `run()`."""

    def __init__(self, fusion: Fusion, picking: frozenset[Squeeze], only: frozenset[Resize] | None = None) -> None:
        self.fusion = fusion
        self.picking = picking
        self.only = only
        self.builder = FusionBuilder(is_concrete=True)
        self.builder.inputs = list(fusion.inputs)
        self.builder.extent_scalars = dict(fusion.extent_scalars)
        self.builder.next_number = next_number(fusion)
        self.definitions: dict[Tensor, Expr] = {}
        self.tensors: dict[Tensor, Tensor] = {}
        self.framed: dict[tuple[Tensor, Frame], Tensor | None] = {}
        self.filled: dict[tuple[Tensor, Frame, str | None], Tensor | None] = {}
        self.apart: dict[Tensor, Tensor] = {}
        self.rows: set[Expr] = {e for e in rows_read_elsewhere(fusion) if not _has_few(e)}
        # Extents and other scalars, which fusions of known sizes have none of, give no room.
        self.limit = len(fusion.exprs) + (_GROWTH - 1) * len(fusion.tensor_exprs) + _ROOM

    def run(self) -> Fusion:
        """The rewritten fusion."""
        changed = False
        for expr in self.fusion.exprs:
            is_hoisted = False
            match expr:
                case ScalarOp():
                    self.builder.exprs.append(expr)
                    continue
                case ExtentOp():
                    self.builder.exprs.append(ExtentOp(self._new(expr.tensor), expr.dim, expr.output))
                    continue
                case _ if self.only is not None and expr not in self.only:
                    pass
                case Resize():
                    self.builder.location = expr.output.location
                    is_hoisted = self._resized(expr)
                case Cat():
                    self.builder.location = expr.output.location
                    is_hoisted = self._concatenated(expr)
                case Gather():
                    self.builder.location = expr.output.location
                    is_hoisted = self._gathered(expr)
                case Squeeze() if expr in self.picking:
                    self.builder.location = expr.output.location
                    is_hoisted = self._squeezed(expr)
                case _:
                    pass
            changed = changed or is_hoisted
            if not is_hoisted:
                self._append(map_expr(expr, self.tensors))
        return self._finished() if changed else self.fusion

    def _new(self, tensor: Tensor) -> Tensor:
        return self.tensors.get(tensor, tensor)

    def _append(self, expr: Expr) -> None:
        self.builder.exprs.append(expr)
        for v in expr_outputs(expr):
            if isinstance(v, Tensor):
                self.definitions[v] = expr

    def _made(self, tensor: Tensor) -> Tensor:
        """A result that the builder has just appended."""
        self.definitions[tensor] = self.builder.exprs[-1]
        return tensor

    def _finished(self) -> Fusion:
        """Outputs keep names and memory order; those that were two values are two arrays."""
        taken: set[Tensor] = {v for v in self.fusion.inputs if isinstance(v, Tensor)}
        taken.update(t for t in self.fusion.output_tensors if t not in self.tensors)
        stands_for: dict[Tensor, Tensor] = {}
        for old in self.fusion.output_tensors:
            new = self.tensors.get(old, old)
            if new is old:
                continue
            if new in taken:
                new = self._made(self.builder.pointwise("set", [new], new.dtype))
            taken.add(new)
            stands_for[new] = Tensor(
                old.name, old.dtype, new.logical, old.stride_order, old.contiguity, None, False, old.location
            )
            self.tensors[old] = stands_for[new]
        self.builder.outputs = [Output(self._new(o.tensor), o.alias_of) for o in self.fusion.outputs]
        self.builder.constraints = [(None, c) for c in self.fusion.constraints]
        self.builder.exprs = [
            ExtentOp(stands_for.get(e.tensor, e.tensor), e.dim, e.output)
            if isinstance(e, ExtentOp)
            else e
            if isinstance(e, ScalarOp)
            else map_expr(e, stands_for)
            for e in self.builder.exprs
        ]
        self._move_extents()
        return self.builder.freeze()

    def _move_extents(self) -> None:
        """Ask extents of inputs, where they have them: nothing is computed for the sake of its size."""
        places = {
            d.extent: (t, i)
            for t in reversed(self.fusion.input_tensors)
            for i, d in enumerate(t.visible)
            if not d.is_broadcast
        }
        for i, e in enumerate(self.builder.exprs):
            if isinstance(e, ExtentOp) and e.tensor not in self.builder.inputs:
                found = places.get(e.tensor.visible[e.dim].extent)
                if found is not None:
                    self.builder.exprs[i] = ExtentOp(*found, e.output)

    # --- the exprs that read elsewhere ---

    def _replace(self, old: Tensor, new: Tensor | None) -> bool:
        """Let `new` stand for `old`, if there is one and its dims are of the same kinds."""
        if new is None or not _has_dims(new, old):
            return False
        if any(a.expanded is not b.expanded for a, b in zip(old.visible, new.visible, strict=True)):
            return False
        self.tensors[old] = new
        return True

    def _resized(self, expr: Resize) -> bool:
        frame = Frame(expr.windows, tuple(d.extent for d in expr.output.visible))
        source = self._new(expr.input)
        if source in self.builder.inputs or expr.output.root is not None or not frame.moves(source):
            return False
        if expr.fill is not None or self.only is not None:
            found = self._filling(source, frame, expr.fill)
            if found is not None or self.only is not None:
                return self._replace(expr.output, found)
        found = self._in_frame(source, frame, expands=expr.fill is not None)
        if found is not None and expr.fill is not None:
            found = self._filled(found, frame.windows, expr.fill)
        return self._replace(expr.output, found)

    def _squeezed(self, expr: Squeeze) -> bool:
        source, picked = self._new(expr.input), _picked(expr)
        extents = tuple(ONE if one else d.extent for d, one in zip(source.visible, picked, strict=True))
        part = self._operand(source, Frame(tuple(Window(ZERO, ZERO, e) for e in extents), extents), expands=False)
        return part is not None and self._replace(expr.output, self._made(self.builder.squeeze(part, expr.flags)))

    def _filled(self, tensor: Tensor, windows: Sequence[Window], fill: Scalar) -> Tensor:
        """`fill` outside of the windows, which say nothing else."""
        still = [Window(ZERO, w.begin, w.end) for w in windows]
        return self._made(self.builder.resize(tensor, still, [d.extent for d in tensor.visible], fill))

    def _filling(self, tensor: Tensor, frame: Frame, fill: Scalar | None) -> Tensor | None:
        """The tensor in a frame and `fill` around it, as ops of reads that fill; None where these compute another number."""
        key = tensor, frame, None if fill is None else repr(fill.value)
        if key not in self.filled:
            self.filled[key] = self._read_filling(tensor, frame, fill)
        return self.filled[key]

    def _read_filling(self, tensor: Tensor, frame: Frame, fill: Scalar | None) -> Tensor | None:
        if tensor in self.builder.inputs:
            return self._windowed(tensor, frame, fill)
        expr = self.definitions.get(tensor)
        if isinstance(expr, Resize) and expr.input in self.builder.inputs and expr.output.root is None:
            windows = _composed_windows(expr, frame)
            fills = {repr(f.value): f for f in (fill, expr.fill) if f is not None}
            if windows is None or len(fills) > 1:
                return None
            return self._windowed(expr.input, Frame(windows, frame.extents), next(iter(fills.values()), None))
        if len(self.builder.exprs) > self.limit:
            return None
        if isinstance(expr, Broadcast) and fill is None:
            inner = self._filling(expr.input, frame.take([d for d, new in enumerate(expr.flags) if not new]), None)
            return None if inner is None else self._made(self.builder.broadcast(inner, expr.flags))
        if isinstance(expr, Permute) and fill is None:
            order = sorted(range(len(expr.dims)), key=expr.dims.__getitem__)
            inner = self._filling(expr.input, frame.take(order), None)
            return None if inner is None else self._made(self.builder.permute(inner, expr.dims))
        if isinstance(expr, (Reduction, Welford)) and fill is None:
            return self._row(expr, tensor, frame)
        if not isinstance(expr, Pointwise) or expr.op == "segment_set":
            return None
        fills = _fills(expr, fill)
        if fills is None:
            return None
        made: list[Tensor | Scalar] = []
        for v, number in zip(expr.inputs, fills, strict=True):
            if isinstance(v, Scalar):
                made.append(v)
                continue
            for d, (a, b) in enumerate(zip(v.visible, tensor.visible, strict=True)):
                is_whole = not frame.moves_dim(tensor, d) and _spans(frame.windows[d], frame.extents[d])
                is_filled = fill is not None and (a.is_broadcast or not frame.moves_dim(tensor, d))
                if not is_whole and (is_filled or b.is_broadcast):
                    return None
            own = None if number is None else self.builder.constant(number, v.dtype)
            operand = self._filling(v, self._frame_of_operand(expr, v, frame), own)
            if operand is None:
                return None
            made.append(operand)
        return self._made(self.builder.pointwise(expr.op, made, expr.output.dtype))

    def _concatenated(self, expr: Cat) -> bool:
        """A Cat of what its pads read: it looks at nothing that they would fill."""
        parts: list[Tensor] = []
        for t in expr.inputs:
            part = self._new(t)
            made = self.fusion.definitions.get(t)
            if isinstance(made, Resize) and t.root is None and self._new(made.input) not in self.builder.inputs:
                frame = Frame(made.windows, tuple(d.extent for d in t.visible))
                others = (w for d, w in enumerate(made.windows) if d != expr.dim)
                extents = (e for d, e in enumerate(frame.extents) if d != expr.dim)
                if all(w.begin is ZERO and w.end is e for w, e in zip(others, extents, strict=True)):
                    found = self._in_frame(self._new(made.input), frame, expands=True)
                    # A dim that an expand gives the extent 1 is concrete; a read of one element of an input is broadcast.
                    part = found if found is not None and _has_dims(found, part) else part
            parts.append(part)
        if all(part is self._new(t) for part, t in zip(parts, expr.inputs, strict=True)):
            return False
        self._append(Cat(tuple(parts), expr.output, expr.dim, expr.bounds))
        return True

    def _gathered(self, expr: Gather) -> bool:
        source, index = self._new(expr.input), self._new(expr.index)
        if source in self.builder.inputs:
            return False
        found = self._gather_of_slice(expr, source, index)
        return self._replace(expr.output, found or self._gather_of(expr.kind, source, index, expr.dim))

    def _gather_of_slice(self, expr: Gather, source: Tensor, index: Tensor) -> Tensor | None:
        """A lookup in a slice or a pad as one read, with an index that counts from the start of the tensor; None for another
        source, and where elements of it are one: a lookup does not move along what is broadcast, in the tensor or in the slice.
        None too for a pad along what is looked up, and where a dim of the result is a part of one that the windows are of."""
        made = self.definitions.get(source)
        if not isinstance(made, Resize) or expr.windows or made.output.root is not None:
            return None
        is_whole = _spans(made.windows[expr.dim], source.visible[expr.dim].extent)
        if made.fill is not None and (expr.kind is not GatherKind.index_select or not is_whole):
            return None
        frame = Frame(made.windows, tuple(d.extent for d in source.visible))
        moved = [d for d in range(source.ndim) if frame.moves_dim(made.input, d)]
        if any(made.input.visible[d].is_broadcast for d in moved):
            return None
        if expr.dim in moved:
            start = self._start_of(made, expr.dim, index)
            if start is None or expr.kind is not GatherKind.index_select:
                return None
            index = self._made(self.builder.pointwise("add", [index, start], index.dtype))
            extent = made.input.visible[expr.dim].extent
            frame = frame.with_dim(expr.dim, Window(ZERO, ZERO, extent), extent)
            if not frame.moves(made.input):
                return self._made(self.builder.gather(expr.kind, made.input, index, expr.dim))
        if expr.kind is GatherKind.take_along_axis and any(
            source.visible[d].is_broadcast and not expr.output.visible[d].is_broadcast for d in moved
        ):
            return None
        if expr.kind is GatherKind.gather:
            extents = tuple(d.extent for d in expr.output.visible)
            windows = (replace(w, begin=ZERO, end=e) for w, e in zip(frame.windows, extents, strict=True))
            frame = Frame(tuple(windows), extents)
        windows, extents = frame.windows, frame.extents
        return self._made(self.builder.gather(expr.kind, made.input, index, expr.dim, windows, extents, made.fill))

    def _start_of(self, expr: Resize, dim: int, index: Tensor) -> Scalar | None:
        """Where a slice starts along a dim, as a number of the type of an index; None where that is not known."""
        window = expr.windows[dim]
        if window.pieces or window.step != 1:
            return None
        if window.offset.is_const:
            return self.builder.constant(window.offset.value, index.dtype)
        start = expr.scalars[dim][0] if expr.scalars else None
        is_offset = start is not None and start.expression is window.offset and start.dtype is index.dtype
        return start if is_offset else None

    def _gather_of(self, kind: GatherKind, source: Tensor, index: Tensor, dim: int) -> Tensor | None:
        """A gather of an elementwise op, or of a broadcast of one, as that op of gathers; None where nothing is gained.

        An operand that is the same for all that a gather may take (the sum of a row) is taken as it is.
        """
        expr, flags = self.definitions.get(source), ()
        if isinstance(expr, Broadcast):
            expr, flags = self.definitions.get(expr.input), expr.flags
        if not isinstance(expr, Pointwise) or expr.op == "segment_set" or len(self.builder.exprs) > self.limit:
            return None
        visible = expr.output.visible
        operands = [v for v in expr.inputs if isinstance(v, Tensor)]
        if any(a.extent is not d.extent for v in operands for a, d in zip(v.visible, visible, strict=True)):
            pairs = enumerate(zip(source.visible, index.visible, strict=False))
            if kind is GatherKind.gather and all(d == dim or a.extent is b.extent for d, (a, b) in pairs):
                kind = GatherKind.take_along_axis
            if kind is not GatherKind.take_along_axis:
                return None
        made: list[Tensor | Scalar] = []
        for v in expr.inputs:
            if isinstance(v, Scalar):
                made.append(v)
                continue
            operand = self._made(self.builder.broadcast(v, flags)) if flags else v
            if operand.visible[dim].is_broadcast and not source.visible[dim].is_broadcast:
                made.append(operand)
                continue
            inner = None if v in self.builder.inputs else self._gather_of(kind, operand, index, dim)
            made.append(inner if inner is not None else self._made(self.builder.gather(kind, operand, index, dim)))
        return self._made(self.builder.pointwise(expr.op, made, expr.output.dtype))

    # --- frames ---

    def _in_frame(self, tensor: Tensor, frame: Frame, *, expands: bool) -> Tensor | None:
        """The tensor read in a frame; None where it has to be computed first.

        `expands`: a dim of one element may be seen everywhere, because what is outside of its window is not looked at.
        """
        if not frame.moves(tensor):
            return tensor
        key = tensor, frame
        if key not in self.framed:
            # What is reduced at another place and what it is divided by are one read.
            row = self._filling(tensor, frame, None) if self.rows else None
            self.framed[key] = row or self._read_in(tensor, frame, expands) or self._in_pieces(tensor, frame)
        return self.framed[key]

    def _in_pieces(self, tensor: Tensor, frame: Frame) -> Tensor | None:
        """A concatenation of each piece by itself, where all pieces of a dim cannot be read at once but each can be."""
        dim = next((d for d, w in enumerate(frame.windows) if w.pieces), None)
        if dim is None:
            return None
        frames, bounds = frame.apart(dim)
        parts = [self._in_frame(tensor, f, expands=True) for f in frames]
        known = [p for p in parts if p is not None]
        return self._made(self.builder.cat(known, dim, bounds)) if len(known) == len(parts) else None

    def _read_in(self, tensor: Tensor, frame: Frame, expands: bool) -> Tensor | None:
        if len(self.builder.exprs) > self.limit:
            return None
        one = next((d for d, dim in enumerate(tensor.visible) if dim.is_broadcast and frame.moves_dim(tensor, d)), None)
        if one is not None and tensor not in self.builder.inputs:
            if not expands:
                return None
            extent = frame.extents[one]
            rest = frame.with_dim(one, Window(ZERO, ZERO, tensor.visible[one].extent), tensor.visible[one].extent)
            inner = self._in_frame(tensor, rest, expands=True)
            if inner is None:
                return None
            wanted = [extent if d == one else None for d in range(inner.ndim)]
            return self._made(self.builder.expand(inner, wanted))
        expr = self.definitions.get(tensor)
        match expr:
            case Pointwise() if expr.op != "segment_set":
                return self._pointwise(expr, frame, expands)
            case Broadcast():
                inner = self._operand(
                    expr.input, frame.take([d for d, new in enumerate(expr.flags) if not new]), expands
                )
                return None if inner is None else self._made(self.builder.broadcast(inner, expr.flags))
            case Squeeze():
                return self._squeeze(expr, frame, expands)
            case Permute():
                order = sorted(range(len(expr.dims)), key=expr.dims.__getitem__)
                inner = self._operand(expr.input, frame.take(order), expands)
                return None if inner is None else self._made(self.builder.permute(inner, expr.dims))
            case Expand():
                return self._expand(expr, frame, expands)
            case Full():
                return self._made(self.builder.full(frame.extents, expr.value, tensor.dtype))
            case Iota():
                return self._positions(expr, frame)
            case Cat():
                window = frame.windows[expr.dim]
                if window.pieces:
                    return None
                parts = [self._operand(t, frame, expands) for t in expr.inputs]
                known = [p for p in parts if p is not None]
                if len(known) < len(parts):
                    return None
                bounds = [_first_at(b, window) for b in expr.bounds]
                return self._made(self.builder.cat(known, expr.dim, bounds))
            case Resize():
                return self._composed(expr, frame, expands)
            case Gather():
                return self._part_of_lookup(expr, frame)
            case Reduction():
                return self._reduced(expr, frame) or self._row(expr, tensor, frame)
            case Welford():
                return self._row(expr, tensor, frame)
            case None:
                return self._windowed(tensor, frame)
            case _:
                return None

    def _operand(self, tensor: Tensor, frame: Frame, expands: bool) -> Tensor | None:
        """An operand in its frame; a displaced read of it where it has to be computed first."""
        found = self._in_frame(tensor, frame, expands=expands)
        if found is not None or len(self.builder.exprs) > self.limit:
            return found
        return self._windowed(tensor, frame)

    def _windowed(self, tensor: Tensor, frame: Frame, fill: Scalar | None = None) -> Tensor:
        """A displaced read, 0 where nothing is wanted."""
        spans = all(w.begin is ZERO and w.end is e for w, e in zip(frame.windows, frame.extents, strict=True))
        if fill is None and not spans:
            fill = _zero(self.builder, tensor.dtype)
        return self._made(self.builder.resize(tensor, frame.windows, frame.extents, fill))

    def _pointwise(self, expr: Pointwise, frame: Frame, expands: bool) -> Tensor | None:
        made: list[Tensor | Scalar] = []
        for v in expr.inputs:
            if isinstance(v, Scalar):
                made.append(v)
                continue
            operand = self._operand(v, self._frame_of_operand(expr, v, frame), expands)
            if operand is None:
                return None
            dims = zip(v.visible, expr.output.visible, frame.extents, strict=True)
            is_shared = operand is v and any(a.is_broadcast and not b.is_broadcast and n is ONE for a, b, n in dims)
            made.append(self._apart(v) if is_shared else operand)
        return self._made(self.builder.pointwise(expr.op, made, expr.output.dtype))

    def _apart(self, tensor: Tensor) -> Tensor:
        """The same values, in dims of one element of their own: what is seen beside one element of a dim is no value that is
        seen along all of it."""
        if tensor in self.apart or not any(d.is_broadcast for d in tensor.visible):
            return self.apart.get(tensor, tensor)
        match self.definitions.get(tensor):
            case Broadcast(source, _, flags):
                made = self.builder.broadcast(source, flags)
            case Pointwise(op, inputs) if op != "segment_set":
                operands = [v if isinstance(v, Scalar) else self._apart(v) for v in inputs]
                made = self.builder.pointwise(op, operands, tensor.dtype)
            case _:
                return tensor
        self.apart[tensor] = self._made(made)
        return self.apart[tensor]

    def _frame_of_operand(self, expr: Pointwise, operand: Tensor, frame: Frame) -> Frame:
        own = frame
        for d, (a, b) in enumerate(zip(operand.visible, expr.output.visible, strict=True)):
            # The op's extent may be an equal one that is written differently.
            if (a.is_broadcast and not b.is_broadcast) or not frame.moves_dim(expr.output, d):
                own = own.with_dim(d, Window(ZERO, ZERO, a.extent), a.extent)
        return own

    def _positions(self, expr: Iota, frame: Frame) -> Tensor | None:
        """Positions from another one on; None where that is not known, or rounded."""
        (window,) = frame.windows
        start, step, dtype = expr.start.value, expr.step.value, expr.output.dtype
        if not (isinstance(start, int) and isinstance(step, int) and dtype.is_integral and window.offset.is_const):
            return None
        first = self.builder.constant(start + window.offset.value * step, expr.start.dtype)
        then = self.builder.constant(step * window.step, expr.step.dtype)
        return None if window.pieces else self._made(self.builder.iota(frame.extents[0], first, then, dtype))

    def _part_of_lookup(self, expr: Gather, frame: Frame) -> Tensor | None:
        """A lookup in the frame: a part of the index, at offsets along the other dims. None for more than the index has, and
        of lookups of elements for more than what is looked up."""
        of_index = self._frame_of(expr, expr.index, frame)
        whole = of_index if expr.kind is GatherKind.index_select else frame
        if any(w.begin is not ZERO or w.end is not e for w, e in zip(whole.windows, whole.extents, strict=True)):
            return None
        index = self._operand(expr.index, of_index, expands=False)
        if index is None:
            return None
        own = self._frame_of(expr, expr.input, frame)
        sizes = [b.extent for _, b in position_pairs(expr, expr.input, expr.output)]
        inner = expr.windows or [Window(ZERO, ZERO, e) for e in sizes]
        windows = _composed(own, inner, sizes, is_filled=expr.fill is not None)
        if windows is None:
            return None
        spans = all(w.begin is ZERO and w.end is e for w, e in zip(windows, own.extents, strict=True))
        fill = expr.fill if spans or expr.fill is not None else _zero(self.builder, expr.output.dtype)
        return self._made(self.builder.gather(expr.kind, expr.input, index, expr.dim, windows, own.extents, fill))

    def _frame_of(self, expr: Gather, operand: Tensor, frame: Frame) -> Frame:
        """The frame of an operand of a lookup: along the gathered dim the input is whole."""
        places = {b: d for d, b in enumerate(expr.output.visible)}
        windows: list[Window] = []
        extents: list[Int] = []
        for i, (a, b) in enumerate(position_pairs(expr, operand, expr.output)):
            is_whole = a.is_broadcast or (operand is expr.input and i == expr.dim)
            windows.append(Window(ZERO, ZERO, a.extent) if is_whole else frame.windows[places[b]])
            extents.append(a.extent if is_whole else frame.extents[places[b]])
        return Frame(tuple(windows), tuple(extents))

    def _squeeze(self, expr: Squeeze, frame: Frame, expands: bool) -> Tensor | None:
        kept = iter(range(len(frame.windows)))
        windows: list[Window] = []
        extents: list[Int] = []
        for d, gone in zip(expr.input.visible, expr.flags, strict=True):
            position = None if gone else next(kept)
            windows.append(Window(ZERO, ZERO, d.extent) if position is None else frame.windows[position])
            extents.append(d.extent if position is None else frame.extents[position])
        inner = self._operand(expr.input, Frame(tuple(windows), tuple(extents)), expands)
        return None if inner is None else self._made(self.builder.squeeze(inner, expr.flags))

    def _expand(self, expr: Expand, frame: Frame, expands: bool) -> Tensor | None:
        added = expr.output.ndim - expr.input.ndim
        own = frame.take(range(added, expr.output.ndim))
        wanted: list[Int | None] = []
        for d, b in enumerate(expr.output.visible):
            a = expr.input.visible[d - added] if d >= added else None
            if a is None or (a.is_broadcast and not b.is_broadcast):
                wanted.append(frame.extents[d])
                if a is not None:
                    own = own.with_dim(d - added, Window(ZERO, ZERO, a.extent), a.extent)
            else:
                wanted.append(None)
        inner = self._operand(expr.input, own, expands)
        return None if inner is None else self._made(self.builder.expand(inner, wanted))

    def _composed(self, expr: Resize, frame: Frame, expands: bool) -> Tensor | None:
        """A window of a window: offsets add, and the inner fill surrounds what both leave. None of parts of what that moved."""
        if expr.output.root is not None:
            return self._of_parts(expr, frame)
        windows = _composed_windows(expr, frame)
        if windows is None:
            return None
        both = Frame(windows, frame.extents)
        if expr.fill is None:
            return self._operand(expr.input, both, expands)
        if expr.input in self.builder.inputs:
            return self._windowed(expr.input, both, expr.fill)
        found = self._operand(expr.input, both, expands=True)
        return None if found is None else self._filled(found, windows, expr.fill)

    def _of_parts(self, expr: Resize, frame: Frame) -> Tensor | None:
        """A window of a read of an input whose dims are split into parts: some elements of the first part of a dim, with all of
        the others or, a step apart, with one of the last. None for other windows."""
        if expr.input not in self.builder.inputs:
            return None
        windows: list[Window] = []
        extents: list[Int] = []
        parts: list[tuple[Int, ...]] = []
        flags: list[bool] = []  # of the result: dims of one element that the read does not have
        places = iter(zip(expr.output.visible, frame.windows, frame.extents, strict=True))
        counts = Counter(place_in_root(d)[0] for d in expr.output.visible)
        for inner, root in zip(expr.windows, expr.output.produced, strict=True):
            own = list(itertools.islice(places, counts[root]))
            found = _on_root(own)
            if found is None or inner.pieces:
                return None
            outer, seen, is_one = found
            extents.append(math.prod(seen, start=ONE))
            begin = maximum(_first_at(inner.begin, outer), ZERO) if expr.fill is not None else ZERO
            end = minimum(_first_at(inner.end, outer), extents[-1]) if expr.fill is not None else extents[-1]
            windows.append(replace(_known(outer.of(inner)), begin=begin, end=end))
            parts.append(seen)
            flags += [False] * len(seen) + [True] * is_one
        read = self._made(self.builder.resize(expr.input, windows, extents, expr.fill, (), parts))
        return self._made(self.builder.broadcast(read, flags)) if any(flags) else read

    def _reduced(self, expr: Reduction, frame: Frame) -> Tensor | None:
        """A reduction of few elements as that many reads, joined two by two."""
        combine = _COMBINE.get(expr.op)
        source, flags = expr.input, [d.is_reduction for d in expr.output.produced]
        counts = _reduced_extents(expr)
        if combine is None or not _has_few(expr):
            return None
        found: Tensor | None = None
        for place in itertools.product(*(range(n.value) for n in counts)):
            kept, at = iter(zip(frame.windows, frame.extents, strict=True)), iter(place)
            own = [(Window(const(next(at)), ZERO, ONE), ONE) if gone else next(kept) for gone in flags]
            operand = self._operand(source, Frame(tuple(w for w, _ in own), tuple(e for _, e in own)), expands=False)
            if operand is None:
                return None
            term = self._made(self.builder.squeeze(operand, flags))
            if term.dtype is not expr.output.dtype:
                term = self._made(self.builder.pointwise("cast", [term], expr.output.dtype))
            found = term if found is None else self._made(self.builder.pointwise(combine, [found, term], term.dtype))
        return found

    def _row(self, expr: Reduction | Welford, output: Tensor, frame: Frame) -> Tensor | None:
        """A reduction of a row at another place; None where all that it reduces is not read there from inputs."""
        if expr not in self.rows:
            return None
        outputs = tensor_outputs(expr)
        flags = [d.is_reduction for d in outputs[0].produced]
        kept = iter(zip(frame.windows, frame.extents, strict=True))
        dims = zip(expr.input.visible, flags, strict=True)
        own = [(Window(ZERO, ZERO, d.extent), d.extent) if gone else next(kept) for d, gone in dims]
        operand = self._filling(expr.input, Frame(tuple(w for w, _ in own), tuple(e for _, e in own)), None)
        if operand is None:
            return None
        axes = [d for d, gone in enumerate(flags) if gone]
        if isinstance(expr, Reduction):
            row = self._made(self.builder.reduction(expr.op, operand, axes, expr.output.dtype))
            self.rows.add(self.definitions[row])
            return row
        made = self.builder.welford(operand, axes)
        self.rows.add(self.builder.exprs[-1])
        for old, new in zip(outputs, made, strict=True):
            self.framed[old, frame] = self.filled[old, frame, None] = self._made(new)
        return self.framed[output, frame]


def _zero(builder: FusionBuilder, dtype: DataType) -> Scalar:
    return builder.constant(rounded_number(0, dtype), dtype)


def _composed_windows(expr: Resize, frame: Frame) -> tuple[Window, ...] | None:
    """Where a frame of a Resize shows elements of its operand."""
    return _composed(frame, expr.windows, [d.extent for d in expr.output.visible], is_filled=expr.fill is not None)


def _composed(
    frame: Frame, inner: Sequence[Window], sizes: Sequence[Int], *, is_filled: bool
) -> tuple[Window, ...] | None:
    """Where a frame of what windows show, of some sizes, shows elements of what these are of. `is_filled`: they do not span."""
    windows: list[Window] = []
    for outer, k, size, extent in zip(frame.windows, inner, sizes, frame.extents, strict=True):
        window = outer.of(k)
        if window is None or (outer.pieces and not (k.begin is ZERO and k.end is size)):
            return None
        if is_filled and not outer.pieces:
            begin = maximum(maximum(outer.begin, _first_at(k.begin, outer)), ZERO)
            end = minimum(minimum(outer.end, _first_at(k.end, outer)), extent)
            window = replace(window, begin=begin, end=end)
        windows.append(window)
    return tuple(windows)


def _reduced_extents(expr: Reduction | Welford) -> list[Int]:
    produced = tensor_outputs(expr)[0].produced
    return [d.extent for d, made in zip(expr.input.visible, produced, strict=True) if made.is_reduction]


def _has_few(expr: Reduction | Welford) -> bool:
    """Whether few elements make a result, as the definition says."""
    counts = _reduced_extents(expr)
    return all(n.is_const for n in counts) and 0 < math.prod(n.value for n in counts) <= _FEW


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


_Part = tuple[IterDomain, Window, Int]


def _on_root(parts: Sequence[_Part]) -> tuple[Window, tuple[Int, ...], bool] | None:
    """The window of a dim that the windows of its parts are, the extents of the parts that stay, and whether the last one is
    a single element; None where it is no window."""
    (_, first, extent), *rest = parts
    if not _spans(first, extent):
        return None
    if not rest:
        return first, (extent,), False
    *inner, (last, window, count) = rest
    wholes = [d.extent for d, _, _ in rest]
    if not all(n.is_const for n in wholes) or not _spans(window, count):
        return None
    if any(w.moves or n is not d.extent for d, w, n in inner):
        return None
    size = math.prod(n.value for n in wholes)
    if first.step != 1 and (inner or count is not ONE):
        return None
    if count is ONE:
        kept = (extent, *wholes[:-1])
        step = first.step * last.extent.value
        return Window(first.offset * size + window.offset, ZERO, math.prod(kept, start=ONE), (), step), kept, True
    if window.moves or count is not last.extent:
        return None
    return Window(first.offset * size, ZERO, extent * size), (extent, *wholes), False


def _known(window: Window | None) -> Window:
    assert window is not None
    return window
