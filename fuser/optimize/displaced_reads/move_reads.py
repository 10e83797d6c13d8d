"""`MoveReads`: a fusion with some displaced reads at its inputs, as far as they can go."""

from __future__ import annotations

from fuser.ir.fusion.fusion import (
    Cat,
    Expr,
    ExtentOp,
    Fusion,
    Gather,
    Output,
    Resize,
    ScalarOp,
    Squeeze,
    Tensor,
    map_expr,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE
from fuser.optimize.displaced_reads.frame import frame_of_read, whole_frame
from fuser.optimize.displaced_reads.framed_tensors import FramedTensors
from fuser.optimize.displaced_reads.lookups import lookup_in_op, lookup_in_slice
from fuser.optimize.displaced_reads.rows_read_elsewhere import rows_read_elsewhere

# Chains of slices of slices recompute more and more; past this many exprs the rest stay where they are.
_GROWTH = 8
_ROOM = 64


class MoveReads:
    """One use: `run()`.

    moved       exprs that read elsewhere, to be moved: Resize, Cat, Gather, and Squeezes of dims that are not broadcast
    at_inputs   whether a read moves only where all of it is at inputs then, with what it fills
    """

    def __init__(self, fusion: Fusion, moved: frozenset[Expr], *, at_inputs: bool) -> None:
        self.fusion = fusion
        self.moved = moved
        self.at_inputs = at_inputs
        self.builder = FusionBuilder.of_concrete(fusion)
        # Extents and other scalars, which fusions of known sizes have none of, give no room.
        limit = len(fusion.exprs) + (_GROWTH - 1) * len(fusion.tensor_exprs) + _ROOM
        self.framed = FramedTensors(self.builder, rows_read_elsewhere(fusion), limit)
        self.tensors: dict[Tensor, Tensor] = {}

    def run(self) -> Fusion:
        """The rewritten fusion."""
        changed = False
        for expr in self.fusion.exprs:
            match expr:
                case ScalarOp():
                    self.builder.exprs.append(expr)
                case ExtentOp():
                    self.builder.exprs.append(ExtentOp(self._new(expr.tensor), expr.dim, expr.output))
                case _ if expr in self.moved and self._move(expr):
                    changed = True
                case _:
                    self.framed.append(map_expr(expr, self.tensors), expr)
        return self._finished() if changed else self.fusion

    def _new(self, tensor: Tensor) -> Tensor:
        return self.tensors.get(tensor, tensor)

    # --- the exprs that read elsewhere ---

    def _move(self, expr: Expr) -> bool:
        """Put something else in place of an expr; whether that was done."""
        assert isinstance(expr, (Resize, Cat, Gather, Squeeze))
        self.builder.location = expr.output.location
        match expr:
            case Resize():
                return self._replace(expr.output, self._resized(expr))
            case Cat():
                return self._concatenated(expr)
            case Gather():
                return self._replace(expr.output, self._gathered(expr))
            case Squeeze():
                return self._replace(expr.output, self._squeezed(expr))

    def _replace(self, old: Tensor, new: Tensor | None) -> bool:
        """Let `new` stand for `old`, if there is one and its dims are of the same kinds."""
        if new is None or not _has_dims(new, old):
            return False
        if any(a.expanded is not b.expanded for a, b in zip(old.visible, new.visible, strict=True)):
            return False
        self.tensors[old] = new
        return True

    def _resized(self, expr: Resize) -> Tensor | None:
        framed, frame, source = self.framed, frame_of_read(expr), self._new(expr.input)
        if source in self.builder.inputs or expr.output.root is not None or not frame.moves(source):
            return None
        if expr.fill is not None or self.at_inputs:
            found = framed.filling(source, frame, expr.fill)
            if found is not None or self.at_inputs:
                return found
        found = framed.in_frame(source, frame, expands=expr.fill is not None)
        if found is None or expr.fill is None:
            return found
        return framed.with_fill_around(found, frame.windows, expr.fill)

    def _squeezed(self, expr: Squeeze) -> Tensor | None:
        source = self._new(expr.input)
        flags = zip(source.visible, expr.input.visible, expr.flags, strict=True)
        first = whole_frame([ONE if gone and not old.is_broadcast else d.extent for d, old, gone in flags])
        part = self.framed.operand(source, first, expands=False)
        return None if part is None else self.framed.made(self.builder.squeeze(part, expr.flags))

    def _concatenated(self, expr: Cat) -> bool:
        """A Cat of what its pads read: it looks at nothing that they would fill."""
        parts = tuple(self._part(expr, t) for t in expr.inputs)
        if all(part is self._new(t) for part, t in zip(parts, expr.inputs, strict=True)):
            return False
        self.framed.append(Cat(parts, expr.output, expr.dim, expr.bounds))
        return True

    def _part(self, expr: Cat, tensor: Tensor) -> Tensor:
        part, pad = self._new(tensor), self.fusion.definitions.get(tensor)
        if not isinstance(pad, Resize) or tensor.root is not None or self._new(pad.input) in self.builder.inputs:
            return part
        frame = frame_of_read(pad)
        if not frame.take([d for d in range(tensor.ndim) if d != expr.dim]).spans:
            return part
        found = self.framed.in_frame(self._new(pad.input), frame, expands=True)
        # A dim that an expand gives the extent 1 is concrete; a read of one element of an input is broadcast.
        return found if found is not None and _has_dims(found, part) else part

    def _gathered(self, expr: Gather) -> Tensor | None:
        source, index = self._new(expr.input), self._new(expr.index)
        if source in self.builder.inputs:
            return None
        found = lookup_in_slice(self.framed, expr, source, index)
        return found or lookup_in_op(self.framed, expr.kind, source, index, expr.dim)

    # --- the new fusion ---

    def _finished(self) -> Fusion:
        """Outputs keep names and memory order; those that were two values are two arrays."""
        taken: set[Tensor] = {v for v in self.fusion.inputs if isinstance(v, Tensor)}
        taken.update(t for t in self.fusion.output_tensors if t not in self.tensors)
        stands_for: dict[Tensor, Tensor] = {}
        for old in self.fusion.output_tensors:
            new = self._new(old)
            if new is old:
                continue
            if new in taken:
                new = self.builder.pointwise("set", [new], new.dtype)
            taken.add(new)
            stands_for[new] = Tensor(
                old.name, old.dtype, new.logical, old.stride_order, old.contiguity, None, False, old.location
            )
            self.tensors[old] = stands_for[new]
        self.builder.outputs = [Output(self._new(o.tensor), o.alias_of) for o in self.fusion.outputs]
        self.builder.constraints = [(None, c) for c in self.fusion.constraints]
        # Extents of inputs are asked for, where they have them: nothing is computed for the sake of its size.
        places = {
            d.extent: (t, i)
            for t in reversed(self.fusion.input_tensors)
            for i, d in enumerate(t.visible)
            if not d.is_broadcast
        }

        def finished(expr: Expr) -> Expr:
            match expr:
                case ScalarOp():
                    return expr
                case ExtentOp(tensor, dim, output) if tensor in self.builder.inputs:
                    return expr
                case ExtentOp(tensor, dim, output):
                    place = places.get(tensor.visible[dim].extent, (stands_for.get(tensor, tensor), dim))
                    return ExtentOp(*place, output)
                case _:
                    return map_expr(expr, stands_for)

        self.builder.exprs = [finished(e) for e in self.builder.exprs]
        return self.builder.freeze()


def _has_dims(new: Tensor, old: Tensor) -> bool:
    """Whether the dims of `new` have the kinds and extents that consumers of `old` were made for."""
    return all(a.kind is b.kind and a.extent is b.extent for a, b in zip(new.visible, old.visible, strict=True))
