"""What reads a tensor behind which a kernel ends reads a copy, and everything else stays."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion import Fusion, Pointwise, Reduction, tensor_inputs
from fuser.ir.verify_fusion import verify_fusion
from fuser.optimize.end_kernels import end_kernels
from fuser.schedule.segment import forced_boundary
from fuser.schedule.segmentation import segment_fusion


def norm(*, returned: bool) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        total = fd.ops.sum(fd.ops.abs(x), [0, 1])
        fd.add_output(x / total)
        if returned:
            fd.add_output(total)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def ended(fusion: Fusion) -> Fusion:
    names = [e.output.name for e in fusion.tensor_exprs if isinstance(e, Reduction)]
    made = end_kernels(fusion, names)
    verify_fusion(made, "end_kernels")
    return made


def test_readers_read_a_copy() -> None:
    for returned in (False, True):
        before = norm(returned=returned)
        made = ended(before)
        (total,) = (e.output for e in made.tensor_exprs if isinstance(e, Reduction))
        readers = [e for e in made.tensor_exprs if total in tensor_inputs(e)]
        (only,) = readers
        assert isinstance(only, Pointwise)
        assert only.op == "segment_set"
        assert [t.name for t in made.output_tensors] == [t.name for t in before.output_tensors]
        assert forced_boundary(made) is only.output
        x = np.random.default_rng(0).standard_normal((5, 7)).astype("f4")
        for a, b in zip(evaluate_fusion(made, [x]), evaluate_fusion(before, [x]), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_the_reduction_is_a_segment() -> None:
    assert len(segment_fusion(norm(returned=True)).segments) == 1
    assert len(segment_fusion(ended(norm(returned=True))).segments) == 2


def test_no_name_changes_nothing() -> None:
    before = norm(returned=True)
    assert str(end_kernels(before, ())) == str(before)
