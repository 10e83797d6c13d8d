"""A frame of what a displaced read gives, as windows of what it reads: a window of a window is one."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fuser.ir.fusion.fusion import IterDomain, Resize, Window
from fuser.ir.fusion.tensors import place_in_root
from fuser.ir.integers.integers import ONE, ZERO, Int, maximum, minimum
from fuser.optimize.displaced_reads.frame import Frame, extents_of, spans
from fuser.records import record


def first_at(place: Int, window: Window) -> Int:
    """The first element of a window that is read at `place` or behind it."""
    return (place - window.offset + (window.step - 1)) // window.step


def composed_windows(expr: Resize, frame: Frame) -> tuple[Window, ...] | None:
    """Where a frame of a Resize shows elements of its operand; None for what is no window."""
    return composed(frame, expr.windows, extents_of(expr.output.visible), is_filled=expr.fill is not None)


def composed(
    frame: Frame, inner: Sequence[Window], sizes: Sequence[Int], *, is_filled: bool
) -> tuple[Window, ...] | None:
    """Where a frame of what windows show, of some sizes, shows elements of what these are of. `is_filled`: they do not span."""
    windows: list[Window] = []
    for outer, k, size, extent in zip(frame.windows, inner, sizes, frame.extents, strict=True):
        window = outer.of(k)
        if window is None or (outer.pieces and not spans(k, size)):
            return None
        if is_filled and not outer.pieces:
            begin = maximum(maximum(outer.begin, first_at(k.begin, outer)), ZERO)
            end = minimum(minimum(outer.end, first_at(k.end, outer)), extent)
            window = replace(window, begin=begin, end=end)
        windows.append(window)
    return tuple(windows)


@record
class ReadInParts:
    """A read whose dims are split.

    parts   extents of those of each dim
    flags   per dim of the result, whether it is one of one element that the read does not have
    """

    frame: Frame
    parts: tuple[tuple[Int, ...], ...]
    flags: tuple[bool, ...]


def read_in_parts(expr: Resize, frame: Frame) -> ReadInParts | None:
    """A frame of a read whose dims are split: some elements of the first part of a dim, with all of the others or, a step
    apart, with one of the last. None for other frames."""
    windows: list[Window] = []
    extents: list[Int] = []
    parts: list[tuple[Int, ...]] = []
    flags: list[bool] = []
    places = iter(zip(expr.output.visible, frame.windows, frame.extents, strict=True))
    counts = Counter(place_in_root(d)[0] for d in expr.output.visible)
    for inner, root in zip(expr.windows, expr.output.produced, strict=True):
        found = _on_root(list(itertools.islice(places, counts[root])))
        if found is None or inner.pieces:
            return None
        outer, seen, is_one = found
        extents.append(math.prod(seen, start=ONE))
        begin = maximum(first_at(inner.begin, outer), ZERO) if expr.fill is not None else ZERO
        end = minimum(first_at(inner.end, outer), extents[-1]) if expr.fill is not None else extents[-1]
        window = outer.of(inner)
        assert window is not None, "neither has pieces"
        windows.append(replace(window, begin=begin, end=end))
        parts.append(seen)
        flags += [False] * len(seen) + [True] * is_one
    return ReadInParts(Frame(tuple(windows), tuple(extents)), tuple(parts), tuple(flags))


_Part = tuple[IterDomain, Window, Int]


def _on_root(parts: Sequence[_Part]) -> tuple[Window, tuple[Int, ...], bool] | None:
    """The window of a dim that the windows of its parts are, the extents of the parts that stay, and whether the last one is
    a single element; None where it is no window."""
    (_, first, extent), *rest = parts
    if first.pieces or not spans(first, extent):
        return None
    if not rest:
        return first, (extent,), False
    *inner, (last, window, count) = rest
    wholes = [d.extent for d, _, _ in rest]
    if not all(n.is_const for n in wholes) or window.pieces or not spans(window, count):
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
