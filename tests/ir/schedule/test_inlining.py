"""Inlining: which positions are legal, and why others are not."""

from __future__ import annotations

import pytest

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule import inlining
from fuser.ir.schedule.inlining import LoopSharing, share_loops
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.scheduled_fusion import ScheduledFusion
from tests.fusions.kernel_corpus import BX, BY, VECTOR

Float = DataType.Float


def chain() -> tuple[ScheduleBuilder, str, str]:
    """out = abs(neg x); schedule, names of neg x and out."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    out = b.pointwise("abs", [y], Float)
    b.add_output(out)
    return ScheduleBuilder(b.freeze()), y.name, out.name


def softmax_like() -> tuple[ScheduleBuilder, dict[str, Tensor]]:
    """out = x - max(x): x is needed before and after the reduction."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    r = b.reduction("max", y, [1], Float)
    wide = b.broadcast(r, [False, True])
    out = b.pointwise("sub", [y, wide], Float)
    b.add_output(out)
    return ScheduleBuilder(b.freeze()), {"y": y, "r": r, "wide": wide, "out": out}


def test_inline_most_takes_the_deepest_position() -> None:
    s, y, out = chain()
    s.inline_most()
    assert s.state(y).inline_at == 2
    assert s.state(out).inline_at == 0


def test_a_limit_holds_a_tensor_further_out() -> None:
    """Consumers come first: what the tensor is computed from stands where it does."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    z = b.pointwise("exp", [y], Float)
    out = b.pointwise("abs", [z], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 4)
    s.transform_like(out.name)
    assert [s.common_loops(z.name, out.name, n) for n in range(4)] == [0, 1, 2, 3]
    s.inline_most(limits=[(z.name, s.common_loops(z.name, out.name, 1))])
    assert [s.state(t.name).inline_at for t in (y, z)] == [3, 1]


def test_different_loops_stop_it() -> None:
    s, y, out = chain()
    s.split(out, 1, 4)
    s.inline_most()
    assert s.state(y).inline_at == 1


def test_value_needed_on_both_sides_of_a_reduction_stops_at_the_shared_row() -> None:
    s, t = softmax_like()
    s.inline_most()
    assert s.state(t["y"].name).inline_at == 1
    assert s.state(t["r"].name).inline_at == 1
    assert s.state(t["wide"].name).inline_at == 2


def test_reduced_axis_cannot_be_shared_with_consumers() -> None:
    s, t = softmax_like()
    with pytest.raises(SchedulingError, match="is reduced, its consumers need the complete result"):
        s.inline_at(t["out"].name, 2, selected=[t["r"].name])


def test_refusal_names_the_axes_and_changes_nothing() -> None:
    s, y, out = chain()
    s.split(out, 0, 4)
    s.split(y, 0, 4)
    s.parallelize(y, 0, BX)
    s.parallelize(out, 0, BY)
    with pytest.raises(SchedulingError, match=f"cannot inline {y} at position 1"):
        s.inline_at(out, 1)
    assert s.state(y).inline_at == 0


def test_vectorized_axes_are_not_shared() -> None:
    s, y, out = chain()
    for name in (y, out):
        s.split(name, 1, 4)
    s.parallelize(out, 2, VECTOR)
    s.inline_most()
    assert s.state(y).inline_at == 2


def test_best_effort_takes_what_it_can() -> None:
    s, y, out = chain()
    for name in (y, out):
        s.split(name, 1, 4)
    s.parallelize(y, 1, BX)
    s.parallelize(out, 1, BY)
    s.inline_at(out, 3, best_effort=True)
    assert s.state(y).inline_at == 1


def test_loop_cannot_be_left_and_entered_again() -> None:
    """y feeds both the reduction and what follows it: their inner loops cannot become one."""
    s, t = softmax_like()
    s.inline_most([t["wide"].name, t["r"].name])
    with pytest.raises(SchedulingError, match="left and entered again"):
        s.inline_at(t["out"].name, 2, selected=[t["y"].name])


def test_positions_are_counted_from_the_end_when_negative() -> None:
    s, y, out = chain()
    s.inline_at(out, -1)
    assert s.state(y).inline_at == 2
    with pytest.raises(SchedulingError, match="cannot inline at position 5"):
        s.inline_at(out, 5)


def test_selected_tensors_only() -> None:
    s, t = softmax_like()
    s.inline_most([t["wide"].name])
    assert s.state(t["wide"].name).inline_at == 2
    assert s.state(t["y"].name).inline_at == 0


def test_verbs_one_after_another_share_what_the_first_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ScheduledFusion] = []

    def counted(builder: ScheduledFusion, graph: IterationGraph) -> LoopSharing:
        calls.append(builder)
        return share_loops(builder, graph)

    monkeypatch.setattr(inlining, "share_loops", counted)
    s, y, out = chain()
    s.inline_at(out, 1)
    s.inline_most()
    assert s.state(y).inline_at == 2
    assert len(calls) == 1


def test_what_changes_between_two_verbs_is_seen() -> None:
    s, y, out = chain()
    s.inline_at(out, 1)
    s.parallelize(out, 1, VECTOR)
    s.inline_most()
    assert s.state(y).inline_at == 1


def test_a_refusal_leaves_nothing_to_the_next_verb() -> None:
    s, t = softmax_like()
    s.inline_most([t["wide"].name, t["r"].name])
    with pytest.raises(SchedulingError, match="left and entered again"):
        s.inline_at(t["out"].name, 2, selected=[t["y"].name])
    assert s.state(t["y"].name).inline_at == 0
    s.inline_most()
    assert s.state(t["y"].name).inline_at == 1


def test_one_element_shares_loops_as_it_is() -> None:
    """It is computed once in the wider loops of its consumers: its own axes do not become theirs."""
    b = FusionBuilder()
    x, s = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [1, 1])
    number = b.pointwise("exp", [s], Float)
    out = b.pointwise("mul", [x, number], Float)
    b.add_output(out)
    builder = ScheduleBuilder(b.freeze())
    for name in (out.name, number.name):
        builder.merge(name, 0, 1)
        builder.split(name, 0, 4)
    builder.inline_most(limits=[(number.name, 1)])
    sharing = share_loops(builder, builder.exact_graph())
    assert sharing.positions[number.name] == 1
    assert all(g.is_broadcast for g in sharing.loops(number.name))
    assert not any(g.is_broadcast for g in sharing.loops(out.name))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_dim_of_a_reshape_is_merged_with_one_that_is_broadcast(dim: int) -> None:
    """The loops of [4, 2] merged are the dim that was split; a row or a column beside it follows all the same."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [8]), b.input_tensor(Float, [(4, 2)[dim]])
    parts = b.reshape(b.pointwise("neg", [x], Float), [const(4), const(2)])
    side = b.pointwise("abs", [y], Float)
    wide = b.pointwise("exp", [b.broadcast(side, [dim == 1, dim == 0])], Float)
    out = b.pointwise("add", [parts, wide], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.merge(out.name, 0)
    s.split(out.name, 0, 3)
    s.transform_like(out.name)
    s.inline_most()
    assert [len(s.state(t.name).loop) for t in (side, wide, parts)] == [2, 2, 2]
    assert [s.state(t.name).inline_at for t in (side, wide, parts)] == [2, 2, 2]


def test_loops_that_split_what_a_reshape_merged_are_shared_by_a_broadcast_dim() -> None:
    """[4, 2, 3] reshaped to [8, 3] and split by 2: the loops are the dims that were merged."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [4, 2, 3]), b.input_tensor(Float, [3])
    whole = b.reshape(b.pointwise("neg", [x], Float), [const(8), const(3)])
    wide = b.pointwise("exp", [b.broadcast(y, [True, False])], Float)
    out = b.pointwise("add", [whole, wide], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    for t in (out, wide):
        s.split(t.name, 0, 2)
    s.inline_most()
    assert s.state(wide.name).inline_at == 3
