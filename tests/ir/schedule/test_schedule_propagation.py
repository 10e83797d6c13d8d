"""Verbs that carry a reference's loops over to other tensors."""

from __future__ import annotations

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX
from tests.ir.small_schedules import pointwise

Float = DataType.Float


def test_transform_like_reaches_through_broadcasts_and_permutes() -> None:
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    turned = b.permute(x, [1, 0])
    wide = b.broadcast(bias, [True, False])
    out = b.pointwise("add", [turned, wide], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    cached = s.cache_after(bias.name)
    copied = s.cache_after(x.name)
    s.split(out.name, 1, 8)
    s.reorder(out.name, {0: 1})
    s.transform_like(out.name)
    assert [str(a.extent) for a in s.state(copied).loop] == ["(t0_size0 + 7)//8", "t0_size1", "8"]
    assert [a.is_broadcast for a in s.state(wide.name).loop] == [False, True, False]
    assert [a.is_broadcast for a in s.state(cached).loop] == [False, True, False]
    s.parallelize(out.name, 0, GX)
    s.parallelize(out.name, 2, BX)
    s.parallelize_like(out.name)
    for name in (copied, wide.name, cached, turned.name):
        state = s.state(name)
        assert [state.parallel_type(a) for a in state.loop] == [GX, ParallelType.serial, BX]


def test_parallelize_like_takes_positions_types_and_tensors() -> None:
    s, x, out = pointwise(-1, -1)
    cached = s.cache_after(x)
    s.parallelize(out, 0, GX)
    s.parallelize(out, 1, BX)
    s.parallelize_like(out, 1)
    assert list(s.state(cached).parallel.values()) == [GX]
    s.parallelize_like(out, -1, None, frozenset([BX]))
    assert sorted(p.name for p in s.state(cached).parallel.values()) == ["block_x", "grid_x"]


def test_an_empty_selection_is_no_tensor() -> None:
    """None is all of them: a scheduler that has nothing to say about any tensor changes none."""
    s, x, out = pointwise(-1, -1)
    cached = s.cache_after(x)
    s.split(out, 0, 4)
    s.parallelize(out, 0, GX)
    s.transform_like(out, [])
    s.parallelize_like(out, selected=[])
    s.inline_most([])
    s.inline_at(out, 1, selected=[])
    state = s.state(cached)
    assert (len(state.loop), dict(state.parallel), state.inline_at) == (2, {}, 0)
    again = ScheduleBuilder(s.fusion)
    again.replay(s.records)
    assert again.state(cached).inline_at == 0
    for replayed in (s, again):
        replayed.transform_like(out)
        replayed.parallelize_like(out)
        replayed.inline_most()
        state = replayed.state(cached)
        assert (len(state.loop), list(state.parallel.values()), state.inline_at) == (3, [GX], 3)
