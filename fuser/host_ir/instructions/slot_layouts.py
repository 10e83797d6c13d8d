"""How the values of a segmented fusion lie in the slots of its host program.

The only place that says so. The program's builder takes from here what `Allocate` and `Alias` make; whoever compiles a
kernel takes from here, as numbers, what the kernel will be launched on. Were these two answers, a kernel could be compiled
for, or taken from a cache by, a layout that its argument does not have.

    made by a kernel             row major, or in the order that the fusion says, in memory of its own
    ... and updates an input     as that input, if the kernel's segment says so; in its memory or in a temporary
    made by a segment of views   a view; a copy of the view, laid out as what kernels make, if it is an output and another
                                 output updates what it views
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from fuser.errors import InternalError
from fuser.host_ir.instructions.expressions import Size, extent, stride
from fuser.host_ir.instructions.scalar_sizes import ExtentSizes
from fuser.ir.fusion.fusion import Broadcast, Fusion, Permute, Reshape, Squeeze, Tensor, memory_order
from fuser.ir.fusion.views import ViewExpr, runs_of
from fuser.ir.integers.integers import ONE, Int, Symbol, as_int
from fuser.records import record


class SegmentLike(Protocol):
    """A segment as this layer sees it."""

    @property
    def fusion(self) -> Fusion: ...

    @property
    def extent_inputs(self) -> tuple[Symbol, ...]: ...


class SegmentedLike(Protocol):
    """A segmented fusion as this layer sees it."""

    @property
    def fusion(self) -> Fusion: ...

    @property
    def segments(self) -> Sequence[SegmentLike]: ...


@record
class View:
    """A value that is another view of the memory of `of`, by `exprs`. `is_copied`: what has its name is a copy of that view."""

    of: str
    exprs: tuple[ViewExpr, ...]
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    is_copied: bool


def updated_by(t: Tensor, segment: Fusion) -> Tensor | None:
    """The input that the kernel of a segment updates with a value, in its memory or by a temporary that is laid out like it."""
    return next((o.alias_of for o in reversed(segment.outputs) if o.tensor is t and o.alias_of is not None), None)


class SlotLayouts:
    """Layouts of one segmented fusion, as sizes of its host program."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.extents = ExtentSizes(fusion)
        self._updated = frozenset(o.alias_of.name for o in fusion.outputs if o.alias_of is not None)
        self._roots: dict[str, str] = {}  # a view -> the value that is no view and whose memory it is

    def shape(self, t: Tensor) -> tuple[Size, ...]:
        """Extents of a value's storage: a broadcast dim has one element."""
        return tuple(1 if d.is_broadcast else self._size(d.extent) for d in t.visible)

    def strides(self, t: Tensor, segment: Fusion) -> tuple[Size, ...] | None:
        """Strides of what the kernel of a segment makes; None for row major."""
        target = updated_by(t, segment)
        if target is not None:
            return tuple(stride(target.name, d) for d in range(target.ndim))
        return self.own_strides(t)

    def own_strides(self, t: Tensor) -> tuple[Size, ...] | None:
        """Strides of a value in memory that no input has a say in; None for row major."""
        order = memory_order(t.stride_order)
        if order == tuple(range(t.ndim)):
            return None
        shape = self.shape(t)
        strides: dict[int, Size] = {}
        running: Int = ONE
        for d in reversed(order):
            strides[d] = running.value if running.is_const else running
            running = running * shape[d]
        return tuple(strides[d] for d in range(t.ndim))

    def view(self, t: Tensor, made: Collection[str], storage: Mapping[str, str] | None = None) -> View:
        """A value that a segment of views makes; asked in the order in which they are made.

        made      values that are there
        storage   the slot that has a value's memory, where it is not the one of its name
        """
        source, exprs = self.viewed(t, made)
        slot = (storage or {}).get(source.name, source.name)
        sizes: list[Size] = [extent(slot, d) for d in range(source.ndim)]
        strides: list[Size] = [stride(slot, d) for d in range(source.ndim)]
        for expr in exprs:
            match expr:
                case Broadcast():
                    old = iter(zip(sizes, strides, strict=True))
                    pairs = [(1, 0) if new else next(old) for new in expr.flags]
                    sizes, strides = [p[0] for p in pairs], [p[1] for p in pairs]
                case Squeeze():
                    sizes = [s for s, gone in zip(sizes, expr.flags, strict=True) if not gone]
                    strides = [s for s, gone in zip(strides, expr.flags, strict=True) if not gone]
                case Permute():
                    sizes, strides = [sizes[d] for d in expr.dims], [strides[d] for d in expr.dims]
                case Reshape():
                    sizes, strides = self._reshaped(expr, strides)
        root = self._roots[t.name] = self._roots.get(source.name, source.name)
        # An output stays what it is while its input is updated.
        is_copied = root in self._updated and t in self.fusion.output_tensors
        return View(slot, exprs, tuple(sizes), tuple(strides), is_copied)

    def viewed(self, t: Tensor, made: Collection[str]) -> tuple[Tensor, tuple[ViewExpr, ...]]:
        """The last value among those that are there of which another is a view, and by which exprs."""
        chain: list[ViewExpr] = []
        source = t
        while source.name not in made:
            expr = self.fusion.definitions.get(source)
            if not isinstance(expr, (Broadcast, Squeeze, Permute, Reshape)):
                raise InternalError(f"{source.name} is no view of an input", pass_name="build_host_program")
            chain.append(expr)
            source = expr.input
        return source, tuple(reversed(chain))

    def _reshaped(self, expr: Reshape, strides: Sequence[Size]) -> tuple[list[Size], list[Size]]:
        """(sizes, strides) of a reshape of something that lies so that it is a view: each run of dims like one long dim."""
        sizes = list(self.shape(expr.output))
        found: list[Size] = [0] * len(sizes)
        for run in runs_of(expr):
            step = as_int(strides[run.inputs[-1]])
            for j in reversed(run.outputs):
                found[j] = step.value if step.is_const else step
                step = step * sizes[j]
        return sizes, found

    def _size(self, expression: Int) -> Size:
        result = self.extents.of_extent(expression)
        return result.value if result.is_const else result
