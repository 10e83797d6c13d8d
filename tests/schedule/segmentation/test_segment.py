"""Who takes a segment, and why the others do not."""

from __future__ import annotations

from fuser.ir.fusion.fusion import tensor_outputs
from fuser.schedule.segmentation.registry import SCHEDULERS
from fuser.schedule.segmentation.segment import SizeRefusal, choose_scheduler
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.schedule.segments import NO_OP, PERSISTENT, fusion_named, types


def test_refusals_are_kept() -> None:
    segmented = segment_fusion(fusion_named("softmax"))
    assert [t for t, _ in segmented.segments[0].refusals] == [NO_OP]
    scheduler, why = choose_scheduler(fusion_named("forced_boundary"))
    assert scheduler is None
    assert len(why) == len(SCHEDULERS)
    assert all("is a segment_set: what reads it belongs to another kernel" in reason for _, reason in why)


def test_who_refused_the_sizes_of_a_segment_is_not_asked_about_its_exprs() -> None:
    fusion = fusion_named("softmax")
    whole = frozenset(t.name for e in fusion.tensor_exprs for t in tensor_outputs(e))
    assert types(segment_fusion(fusion)) == [PERSISTENT]
    elsewhere = SizeRefusal(PERSISTENT, frozenset(["t1000"]))
    assert types(segment_fusion(fusion, [elsewhere])) == [PERSISTENT]
    for refused in (whole, frozenset([fusion.output_tensors[0].name])):
        scheduler, refusals = choose_scheduler(fusion, [SizeRefusal(PERSISTENT, refused)])
        assert scheduler is not None
        assert scheduler.type not in (NO_OP, PERSISTENT)
        assert "it does not take the sizes of a segment with some of these exprs" in dict(refusals)[PERSISTENT]
