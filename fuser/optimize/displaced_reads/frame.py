"""`Frame`: which elements of a tensor are wanted, and where in it each dim of them is found."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.fusion.fusion import IterDomain, Resize, Tensor, Window
from fuser.ir.integers.integers import ZERO, Int, maximum, minimum
from fuser.records import record


@record
class Frame:
    """Per dim, where its elements are found and how many are wanted; what lies outside the windows may be anything."""

    windows: tuple[Window, ...]
    extents: tuple[Int, ...]

    @property
    def spans(self) -> bool:
        """Whether nothing lies outside the windows."""
        return all(map(spans, self.windows, self.extents))

    def moves(self, tensor: Tensor) -> bool:
        """Whether the frame is another than the tensor's own."""
        return any(self.moves_dim(tensor, d) for d in range(tensor.ndim))

    def moves_dim(self, tensor: Tensor, dim: int) -> bool:
        """Whether a dim is resized."""
        return self.windows[dim].moves or self.extents[dim] is not tensor.visible[dim].extent

    def take(self, dims: Sequence[int]) -> Frame:
        """The frame of some dims."""
        return Frame(tuple(self.windows[d] for d in dims), tuple(self.extents[d] for d in dims))

    def among(self, others: Frame, flags: Sequence[bool]) -> Frame:
        """The frame with dims of another one among its own, where flags say so."""
        own, added = (iter(zip(f.windows, f.extents, strict=True)) for f in (self, others))
        dims = [next(added if is_other else own) for is_other in flags]
        return Frame(tuple(w for w, _ in dims), tuple(e for _, e in dims))

    def pieces(self, dim: int) -> tuple[list[Frame], list[Int]]:
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

    def with_whole(self, dim: int, extent: Int) -> Frame:
        """All elements of a dim of this extent in place of one."""
        return self.with_dim(dim, Window(ZERO, ZERO, extent), extent)


def whole_frame(extents: Sequence[Int]) -> Frame:
    """All elements of dims of these extents."""
    return Frame(tuple(Window(ZERO, ZERO, e) for e in extents), tuple(extents))


def extents_of(dims: Sequence[IterDomain]) -> tuple[Int, ...]:
    """Of all elements."""
    return tuple(d.extent for d in dims)


def frame_of_read(expr: Resize) -> Frame:
    """What a Resize wants of its operand."""
    return Frame(expr.windows, extents_of(expr.output.visible))


def spans(window: Window, extent: Int) -> bool:
    """Whether nothing of so many elements lies outside a window."""
    return window.begin is ZERO and window.end is extent
