"""Frames: pieces of a dim, dims among others, and what lies outside of windows."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Window
from fuser.ir.integers.integers import ZERO, const
from fuser.optimize.displaced_reads.frame import Frame, whole_frame


def window(offset: int, begin: int, end: int) -> Window:
    return Window(const(offset), const(begin), const(end))


def test_pieces_of_a_roll_are_frames_of_one_offset_each() -> None:
    roll = Window(const(3), ZERO, const(8), ((const(5), const(-5)),))
    frame = whole_frame([const(4)]).among(Frame((roll,), (const(8),)), [False, True])
    frames, bounds = frame.pieces(1)
    assert [f.windows for f in frames] == [(window(0, 0, 4), window(3, 0, 5)), (window(0, 0, 4), window(-5, 5, 8))]
    assert all(f.extents == (const(4), const(8)) for f in frames)
    assert bounds == [const(5)]


def test_dims_are_put_among_others_and_taken_from_them() -> None:
    own = Frame((window(1, 0, 3), window(2, 0, 5)), (const(3), const(5)))
    both = own.among(whole_frame([const(7)]), [False, True, False])
    assert both.extents == (const(3), const(7), const(5))
    assert both.windows[1] == window(0, 0, 7)
    assert both.take([0, 2]) == own


def test_a_frame_spans_where_nothing_is_outside_of_its_windows() -> None:
    assert Frame((window(2, 0, 5),), (const(5),)).spans
    assert not Frame((window(-1, 1, 5),), (const(5),)).spans
    assert not Frame((window(0, 0, 4),), (const(5),)).spans
    assert Frame((window(-1, 1, 5),), (const(5),)).with_whole(0, const(6)).spans
