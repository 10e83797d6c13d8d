"""What reads a tensor behind which a kernel ends reads a copy, and everything else stays."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Pointwise, Reduction, Tensor, TensorExpr, tensor_inputs, tensor_outputs
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.end_kernels import end_kernels
from fuser.schedule.segmentation.segment import forced_boundary
from fuser.schedule.segmentation.segmentation import segment_fusion


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


def running_statistics() -> Fusion:
    """A normalisation of columns in training: mean and variance are used, and kept up in what is given."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, -1], True, DataType.Float)
        means, spreads = (fd.define_tensor([-1], True, DataType.Float) for _ in range(2))
        mean = o.sum(x, [0]) / 5.0
        spread = o.sum(x * x, [0]) / 5.0
        wide = [o.broadcast(t, [True, False]) for t in (mean, o.rsqrt(spread + 1.0))]
        fd.add_output((x - wide[0]) * wide[1])
        fd.add_output(means * 0.9 + mean * 0.1, alias_input=means)
        fd.add_output(spreads * 0.9 + spread * 0.1)
        fd.add_output(o.sum(x - wide[0], [0]))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_small_outputs_stay_in_the_kernel_that_ends() -> None:
    before = running_statistics()
    normalized, *small, deviations = before.output_tensors
    totals = [e.output for e in before.tensor_exprs if isinstance(e, Reduction) and e.output is not deviations]
    made = end_kernels(before, [t.name for t in totals])
    verify_fusion(made, "end_kernels")
    marked = {e.output for e in made.tensor_exprs if isinstance(e, Pointwise) and e.op == "segment_set"}
    assert len(marked) == 2

    assert [len(marked & _made_below(made, t)) for t in (normalized, *small, deviations)] == [2, 0, 0, 1]
    x, a, b = np.random.default_rng(0).standard_normal((7, 4)).astype("f4"), np.ones(4, "f4"), np.full(4, 2, "f4")
    x = x[:5]
    for one, other in zip(evaluate_fusion(made, [x, a, b]), evaluate_fusion(before, [x, a, b]), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    first, *rest = (s for s in segment_fusion(made).segments if s.has_kernel)
    assert {t.name for t in small} <= {t.name for t in first.fusion.output_tensors}
    assert rest


def _made_below(fusion: Fusion, t: Tensor) -> set[Tensor]:
    return {s for e in exprs_below([t], fusion.definitions) if isinstance(e, TensorExpr) for s in tensor_outputs(e)}
