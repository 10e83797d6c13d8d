"""Frames of operands, op by op: dims that an op adds, drops or reorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion, Gather, Pointwise, Reduction, Window
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ZERO, const
from fuser.optimize.displaced_reads.frame import Frame
from fuser.optimize.displaced_reads.ops_in_frames import op_in_frame

D = DataType
Part = tuple[int, int]
"""Of a dim: where elements begin, and how many."""


def defined(build: Callable[[Any, Any, Any], Any]) -> Fusion:
    """Over x [6, 8] and y [6, 1]."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([6, 1], True, D.Double)
        fd.add_output(build(fd.ops, x, y))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def frame_of(parts: tuple[Part, ...]) -> Frame:
    windows = (Window(const(offset), ZERO, const(extent)) for offset, extent in parts)
    return Frame(tuple(windows), tuple(const(extent) for _, extent in parts))


CASES: dict[str, tuple[Callable[[Any, Any, Any], Any], tuple[Part, ...], list[tuple[Part, ...]]]] = {
    "pointwise": (lambda o, x, y: o.exp(x), ((1, 3), (2, 5)), [((1, 3), (2, 5))]),
    "an operand of one column": (lambda o, x, y: x + y, ((1, 3), (2, 5)), [((1, 3), (2, 5)), ((1, 3), (0, 1))]),
    "permute": (lambda o, x, y: o.permute(x, [1, 0]), ((2, 5), (1, 3)), [((1, 3), (2, 5))]),
    "broadcast": (lambda o, x, y: o.broadcast(x, [False, True, False]), ((1, 3), (0, 1), (2, 5)), [((1, 3), (2, 5))]),
    "squeeze": (lambda o, x, y: o.squeeze(y, [1]), ((1, 3),), [((1, 3), (0, 1))]),
    "expand": (lambda o, x, y: o.expand(y, [6, 5]), ((1, 3), (2, 2)), [((1, 3), (0, 1))]),
    "full": (lambda o, x, y: o.full([6, 8], 2.0, D.Double), ((1, 3), (2, 5)), []),
    "cat": (lambda o, x, y: o.cat([x, x], 1), ((1, 3), (6, 4)), [((1, 3), (6, 4))] * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_frames_of_operands(name: str) -> None:
    build, parts, expected = CASES[name]
    fusion = defined(build)
    builder = FusionBuilder.of_concrete(fusion)
    op = op_in_frame(builder, fusion.tensor_exprs[-1], frame_of(parts))
    assert op is not None
    assert [own for _, own in op.operands] == [frame_of(p) for p in expected]
    made = op.make([builder.resize(t, own.windows, own.extents, None) for t, own in op.operands])
    assert [d.extent.value for d in made.visible] == [extent for _, extent in parts]


def test_a_part_of_a_lookup_asks_for_a_part_of_the_index() -> None:
    fusion = defined(lambda o, x, y: o.index_select(x, o.iota(4), 0))
    (lookup,) = [e for e in fusion.tensor_exprs if isinstance(e, Gather)]
    op = op_in_frame(FusionBuilder.of_concrete(fusion), lookup, frame_of(((1, 2), (3, 4))))
    assert op is not None
    assert list(op.operands) == [(lookup.index, frame_of(((1, 2),)))]


def test_forced_boundaries_and_reductions_have_no_operands_in_frames() -> None:
    for build, kind in ((lambda o, x, y: o.segment_set(x), Pointwise), (lambda o, x, y: o.sum(x, [1]), Reduction)):
        fusion = defined(build)
        (expr,) = [e for e in fusion.tensor_exprs if isinstance(e, kind)]
        parts = ((1, 3), (2, 5)) if kind is Pointwise else ((1, 3),)
        assert op_in_frame(FusionBuilder.of_concrete(fusion), expr, frame_of(parts)) is None
