"""The rewrites before segmentation."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import ExtentOp, Fusion, ScalarOp, memory_order, undefined_leaves
from fuser.ir.fusion.output_layout import output_stride_orders
from fuser.optimize.assign_output_layouts import assign_output_layouts, with_stride_orders
from fuser.optimize.common_divisors import common_divisors
from fuser.optimize.compute_before_broadcast import compute_before_broadcast
from fuser.optimize.drop_exact_roundings import drop_exact_roundings
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.hoist_reads_of_reshapes import hoist_reads_of_reshapes
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.join_reductions import join_reductions
from fuser.optimize.nest_reductions import nest_reductions
from fuser.optimize.pad_reductions import pad_reductions
from fuser.optimize.pipeline import PASSES, optimize_fusion
from fuser.optimize.recompute_across_calls import recompute_across_calls
from fuser.optimize.remove_dead_code import remove_dead_code
from fuser.optimize.round_as_floats import round_as_floats
from fuser.optimize.separate_positions import separate_positions
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from fuser.optimize.uncancelled_sums import uncancelled_sums
from fuser.optimize.undo_squeezes import undo_squeezes
from fuser.optimize.unroll_packed_dims import unroll_packed_dims
from fuser.optimize.use_approximate_ops import use_approximate_ops
from fuser.optimize.use_ranges import use_ranges
from tests.fusions.fusion_corpus import CORPUS, RAGGED
from tests.fuzzing.random_fusions import generate

Float = DataType.Float


def test_dead_code_goes_and_extents_stay() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        b = fd.define_tensor([-1], True, Float)
        fd.add_output(x + fd.ops.broadcast_in_dim(b, x.shape(), [1]))
        fd.add_output(fd.ops.exp(x) * (x.size(0) * 7))
    assert fd.fusion is not None
    whole = fd.fusion.ir_fusion
    fusion = Fusion(whole.inputs, whole.exprs, whole.outputs[:1], whole.constraints, whole.extent_scalars)
    lean = remove_dead_code(fusion)
    assert len(lean.exprs) < len(fusion.exprs)
    assert not any(getattr(e, "op", "") == "exp" for e in lean.exprs)
    assert not any(isinstance(e, ScalarOp) for e in lean.exprs)
    assert sum(isinstance(e, ExtentOp) for e in lean.exprs) == 2, "the extents that expand is given"
    assert remove_dead_code(lean) is lean


def test_passes_keep_the_meaning() -> None:
    """Outputs, inputs and aliases are the same values; nothing reads what is gone; a second run changes nothing."""
    assert list(PASSES) == [
        remove_dead_code,
        recompute_across_calls,
        use_approximate_ops,
        uncancelled_sums,
        assign_output_layouts,
        join_pieces,
        separate_positions,
        hoist_reads_of_reshapes,
        split_reshaped_dims,
        join_reductions,
        pad_reductions,
        unroll_packed_dims,
        hoist_displaced_reads,
        nest_reductions,
        fuse_exp_sums,
        use_ranges,
        drop_exact_roundings,
        undo_squeezes,
        compute_before_broadcast,
        common_divisors,
        round_as_floats,
    ]
    handles = [c.define().fusion for c in CORPUS] + [generate(seed).fd.fusion for seed in range(40)]
    for handle in handles:
        assert handle is not None
        fusion = handle.ir_fusion
        stages: dict[str, str] = {}
        optimized = optimize_fusion(fusion, lambda name, text, stages=stages: stages.update({name: text()}))
        assert list(stages) == [f"fusion.{k:02d}-{run.__name__}.py" for k, run in enumerate(PASSES)]
        assert optimized.inputs == fusion.inputs
        assert [o.tensor.name for o in optimized.outputs] == [o.tensor.name for o in fusion.outputs]
        assert [o.alias_of for o in optimized.outputs] == [o.alias_of for o in fusion.outputs]
        assert undefined_leaves(optimized) == []
        assert optimize_fusion(optimized, lambda name, text: None) is optimized


def test_passes_keep_the_values() -> None:
    for c in CORPUS:
        handle = c.define().fusion
        assert handle is not None
        fusion = handle.ir_fusion
        optimized = optimize_fusion(fusion, lambda name, text: None)
        inputs = c.inputs(RAGGED)
        for before, after in zip(evaluate_fusion(fusion, inputs), evaluate_fusion(optimized, inputs), strict=True):
            if any(getattr(e, "op", "") == "near_truediv" for e in optimized.exprs):
                # A product with a rounded reciprocal, for a quotient.
                np.testing.assert_allclose(before, after, rtol=2.0**-22, err_msg=c.name)
            else:
                np.testing.assert_array_equal(before, after, err_msg=c.name)


def test_outputs_take_the_order_of_their_reference() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, Float, stride_order=[0, 2, 1])
        fd.add_output(x * 2.0)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (tensor,) = assign_output_layouts(fusion).output_tensors
    assert tensor.stride_order == (0, 2, 1)
    assert memory_order(tensor.stride_order) == (1, 2, 0)
    assert assign_output_layouts(assign_output_layouts(fusion)).output_tensors[0] is not None


def test_given_orders() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(x * 2.0)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (out,) = fusion.output_tensors
    assert with_stride_orders(fusion, output_stride_orders(fusion)) is fusion
    turned = with_stride_orders(fusion, {out: (0, 1)})
    assert turned.output_tensors[0].stride_order == (0, 1)
    assert turned.output_tensors[0].name == out.name
