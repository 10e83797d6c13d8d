"""How fusions are cut: as few segments as schedulers allow, in an order that respects data."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.ir.fusion.fusion import ExtentOp, Pointwise, Tensor, tensor_outputs
from fuser.schedule.segmentation import segment as segment_module
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.fusions.fusion_corpus import CORPUS
from tests.fuzzing.random_fusions import generate
from tests.schedule.segments import INNER_OUTER, NO_OP, PERSISTENT, POINTWISE, REDUCTION, check_cut, fusion_named, types

Float = DataType.Float


# One kernel where one will do, and where it will not, this many.
EXPECTED = {
    "add_two": [POINTWISE],
    "bias_gelu": [POINTWISE],
    "softmax": [PERSISTENT],
    "layer_norm": [PERSISTENT],
    "batch_norm": [PERSISTENT],
    "rms_norm": [PERSISTENT],
    "outer_softmax": [PERSISTENT],
    "welford_triple": [REDUCTION],
    "cross_entropy": [PERSISTENT],
    "full_sum": [REDUCTION],
    "transposed_view": [NO_OP],
    "broadcast_view": [NO_OP],
    "input_and_its_square": [NO_OP, POINTWISE],
    "swap": [POINTWISE, POINTWISE],  # nothing says that the two have one shape
    "momentum_step": [POINTWISE],
    "sums_both_ways": [INNER_OUTER],
    "forced_boundary": [POINTWISE, POINTWISE],
    "outputs_of_two_ranks": [POINTWISE, POINTWISE],
    "full_of_a_scalar": [POINTWISE],
}


@pytest.mark.parametrize("name", list(EXPECTED))
def test_number_of_kernels(name: str) -> None:
    assert types(segment_fusion(fusion_named(name))) == EXPECTED[name]


@pytest.mark.parametrize("name", [c.name for c in CORPUS])
def test_corpus_is_cut_well(name: str) -> None:
    check_cut(fusion_named(name))


def test_random_fusions_are_cut_well() -> None:
    for seed in range(80):
        handle = generate(seed).fd.fusion
        assert handle is not None
        check_cut(handle.ir_fusion)


@pytest.mark.parametrize("factor_comes_first", [True, False])
def test_sums_of_less_than_the_largest_dims_come_first(*, factor_comes_first: bool) -> None:
    """All of a row is divided by a sum over rows: the kernel of the rows begins when that is there, and is one."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, labels = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
        counted = o.broadcast(o.ne(labels, 0.0), [False, True])
        scale = o.broadcast(o.sum(o.mul(labels, labels), [0]), [True, True])
        e = o.exp(o.sub(x, o.max(x, [1], keepdim=True)))
        full = o.div(e, o.sum(e, [1], keepdim=True))
        scaled = o.mul(scale, full) if factor_comes_first else o.mul(full, scale)
        fd.add_output(o.where(counted, scaled, 0.0))
    assert fd.fusion is not None
    segmented = segment_fusion(fd.fusion.ir_fusion)
    check_cut(fd.fusion.ir_fusion)
    assert types(segmented) == [SchedulerType.reduction, SchedulerType.inner_persistent]
    assert [t.ndim for t in segmented.segments[0].fusion.output_tensors] == [0]


def test_what_a_view_of_a_result_is_of_is_stored() -> None:
    """A cheap value that only the view reads, beside a reduction that a smaller one comes before."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, w = fd.define_tensor([4, 6, 8], True), fd.define_tensor([8], True)
        total = o.sum(w, [0])
        moved = o.add(x, o.broadcast(total, [True, True, True]))
        fd.add_output(o.sum(o.mul(x, o.broadcast(w, [True, True, False])), [0, 1, 2]))
        fd.add_output(o.reshape(moved, [24, 8]))
    assert fd.fusion is not None
    check_cut(fd.fusion.ir_fusion)
    assert types(segment_fusion(fd.fusion.ir_fusion)) == [REDUCTION, REDUCTION, NO_OP]


def test_forced_boundary() -> None:
    """A segment_set that is returned, or read by nobody, needs no second kernel."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, Float)
        fd.add_output(fd.ops.segment_set(x * 2.0))
    assert fd.fusion is not None
    segmented = segment_fusion(fd.fusion.ir_fusion)
    assert types(segmented) == [POINTWISE]
    (expr,) = [
        e for e in segmented.segments[0].fusion.tensor_exprs if isinstance(e, Pointwise) and e.op == "segment_set"
    ]
    assert isinstance(expr.inputs[0], Tensor)


def test_extents_are_asked_of_what_a_segment_reads() -> None:
    """Not of what it computes from them: that would need itself. What has the same extent is found in order."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        count = x.size(1)
        y = fd.ops.cumsum(x, 1)
        for _ in range(30):
            y = fd.ops.mul(y, count)
        fd.add_output(y)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    part, _ = segment_module.sub_fusion(fusion, fusion.tensor_exprs[1:])
    asked = [e.tensor for e in part.exprs if isinstance(e, ExtentOp)]
    assert asked
    assert set(asked) <= set(part.input_tensors)


@pytest.mark.parametrize("measured", [False, True])
def test_inputs_that_nobody_reads_change_no_kernel(*, measured: bool) -> None:
    """Their dims are in no loop of a kernel. A run of exprs in order would end where the broadcast of a small input begins."""
    with FusionDefinition() as fd:
        o = fd.ops
        unread = fd.define_tensor([-1, -1, -1], [True] * 3, Float)
        x = fd.define_tensor([-1, -1, -1], [True] * 3)
        scale, shift = (fd.define_tensor([-1, -1], [True] * 2) for _ in range(2))
        wide = o.exp(x)
        scaled = o.mul(wide, o.broadcast(scale, [False, False, True]))
        y = o.add(scaled, o.broadcast(shift, [False, False, True]))
        fd.add_output(o.mul(y, o.size(unread, 2)) if measured else y)
    assert fd.fusion is not None
    (segment,) = segment_fusion(fd.fusion.ir_fusion).segments
    assert segment.scheduler.type is POINTWISE
    assert [t.name for t in segment.fusion.input_tensors] == [x.name, scale.name, shift.name]
    data = np.linspace(-1, 1, 24, dtype="f4").reshape(2, 3, 4)
    small = np.arange(6, dtype="f4").reshape(2, 3)
    (found,) = fd.execute([np.zeros((7, 3, 5), "f4"), data, small, small + 1], device="simulator")
    wanted = (np.exp(data) * small[..., None] + small[..., None] + 1) * (5 if measured else 1)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


def test_an_update_of_an_input_that_nobody_reads_stays_one() -> None:
    with FusionDefinition() as fd:
        x, old = (fd.define_tensor([-1, -1], [True] * 2) for _ in range(2))
        fd.define_tensor([-1], [True])
        fd.add_output(fd.ops.exp(x), old)
    data, kept = np.ones((3, 4), "f4"), np.zeros((3, 4), "f4")
    fd.execute([data, kept, np.zeros(7, "f4")], device="simulator")
    np.testing.assert_allclose(kept, np.exp(data), rtol=1e-6)


@pytest.mark.parametrize("others", [False, True])
def test_what_is_only_measured_is_in_no_segment(*, others: bool) -> None:
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1])
        y = o.exp(o.pad(x, [1, 2]))
        fd.add_output(o.full([o.size(y, 0)], 1.0, Float))
        if others:
            fd.add_output(o.cumsum(x, 0))
    assert fd.fusion is not None
    segments = segment_fusion(fd.fusion.ir_fusion).segments
    assert y.name not in {t.name for s in segments for e in s.fusion.tensor_exprs for t in tensor_outputs(e)}
    assert [t for s in segments for t in s.fusion.output_tensors] == list(fd.fusion.ir_fusion.output_tensors)


def test_sizes_of_another_segment_are_not_asked_of_what_has_them() -> None:
    """The size of a padded tensor says how large a result is; no tensor of its kernel had it but that result itself."""
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1, -1])
        padded = o.pad(x, [1, 2, 0, 3])
        total = o.sum(o.cumsum(padded, 1), [0, 1])
        spread = o.broadcast_in_dim(total, [o.size(padded, 0), o.size(padded, 1)], [])
        e = o.exp(spread - o.max(spread, [1], True))
        fd.add_output(o.div(e, o.sum(e, [1], True)))
    for rows, columns in [(2, 3), (4, 1), (2, 3)]:
        (found,) = fd.execute([np.ones((rows, columns), np.float32)], device="simulator")
        expected = np.full((rows + 3, columns + 3), 1 / (columns + 3))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
