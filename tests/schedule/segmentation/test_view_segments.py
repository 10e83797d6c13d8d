"""Views of inputs and of results: no kernel computes for them."""

from __future__ import annotations

from fuser import FusionDefinition
from fuser.ir.fusion.fusion import tensor_outputs
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.schedule.segments import NO_OP


def test_views_are_in_the_order_of_the_definition() -> None:
    """Sets of tensors have an order of their own in every process; programs, and what is kept of them, must not."""
    with FusionDefinition() as fd:
        inputs = [fd.define_tensor([-1, -1], contiguity=True) for _ in range(12)]
        for x in inputs:
            fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(fd.ops.exp(inputs[0]))
    assert fd.fusion is not None
    views, _ = segment_fusion(fd.fusion.ir_fusion).segments
    assert views.scheduler.type is NO_OP
    names = [t.name for e in views.fusion.tensor_exprs for t in tensor_outputs(e)]
    assert names == [t.name for t in fd.fusion.ir_fusion.output_tensors][:12]


def test_kernels_compute_nothing_for_views_of_inputs() -> None:
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1, -1])
        y = o.permute(x, [1, 0])
        fd.add_output(o.broadcast(y, [True, False, False]))
        fd.add_output(o.exp(y))
    assert fd.fusion is not None
    views, rest = segment_fusion(fd.fusion.ir_fusion).segments
    assert views.scheduler.type is NO_OP
    assert rest.fusion.output_tensors == fd.fusion.ir_fusion.output_tensors[1:]
