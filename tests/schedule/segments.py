"""Fusions of the corpus, and who takes their segments."""

from __future__ import annotations

from fuser import SchedulerType
from fuser.ir.fusion.fusion import Fusion, tensor_inputs, tensor_outputs
from fuser.schedule.segmentation.segment import forced_boundary
from fuser.schedule.segmentation.segmentation import SegmentedFusion, segment_fusion
from tests.fusions.fusion_corpus import case

NO_OP, POINTWISE, REDUCTION = SchedulerType.no_op, SchedulerType.pointwise, SchedulerType.reduction
PERSISTENT, INNER_OUTER = SchedulerType.inner_persistent, SchedulerType.inner_outer_persistent


def fusion_named(name: str) -> Fusion:
    handle = case(name).define().fusion
    assert handle is not None
    return handle.ir_fusion


def types(segmented: SegmentedFusion) -> list[SchedulerType]:
    return [s.scheduler.type for s in segmented.segments]


def check_cut(fusion: Fusion) -> None:
    """Every output is made once, everything is made before it is read, and nothing is made for nobody."""
    segmented = segment_fusion(fusion)
    made: set[str] = {t.name for t in fusion.input_tensors}
    for segment in segmented.segments:
        inputs = {t.name for t in segment.fusion.input_tensors}
        assert inputs <= made, f"{inputs - made} is read before it is made"
        outputs = {o.tensor.name for o in segment.fusion.outputs} - inputs
        assert not outputs & made, f"{outputs & made} is made twice"
        assert forced_boundary(segment.fusion) is None
        local = set(inputs)
        for expr in segment.fusion.tensor_exprs:
            assert {t.name for t in tensor_inputs(expr)} <= local
            local |= {t.name for t in tensor_outputs(expr)}
        made |= outputs
    assert {o.tensor.name for o in fusion.outputs} <= made
    wanted = {o.tensor.name for o in fusion.outputs}
    for k, segment in enumerate(segmented.segments):
        later = {t.name for s in segmented.segments[k + 1 :] for t in s.fusion.input_tensors}
        for t in segment.fusion.output_tensors:
            assert t.name in wanted | later, f"{t.name} is written for nobody"
