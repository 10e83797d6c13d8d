"""Parts of concatenations, names, extents and locations of a fusion whose reads are moved."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize
from fuser.ir.fusion.fusion import Cat, Pointwise
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from tests.optimize.displaced_reads.hoisted_fusions import X, hoisted, resizes

D = DataType


def test_parts_of_a_cat_are_not_filled() -> None:
    _, after = hoisted(lambda o, x, y: o.cat([x * 2.0, o.neg(x)], 1))
    assert sum(isinstance(e, Cat) for e in after.tensor_exprs) == 1
    assert all(r.input in after.inputs for r in resizes(after))


def test_parts_of_a_cat_keep_kinds_of_dims() -> None:
    """A dim that is expanded to an extent which turns out to be 1 is broadcast; so is a part that is read with one element."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Double)
        y = fd.ops.neg(fd.ops.expand(x, [x.size(1), -1]))
        fd.add_output(fd.ops.cat([y, y], 1))
        fd.add_output(fd.ops.triu(y))
    assert fd.fusion is not None
    one = concretize(fd.fusion.ir_fusion, {"t0_size0": 1, "t0_size1": 1})
    (cat,) = [e for e in one.exprs if isinstance(e, Cat)]
    assert cat.output.visible[0].is_broadcast
    after = hoist_displaced_reads(one)
    verify_fusion(after)
    for a, b in zip(evaluate_fusion(one, [X[:1, :1]]), evaluate_fusion(after, [X[:1, :1]]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_forced_boundary_stays() -> None:
    _, after = hoisted(lambda o, x, y: o.slice(o.segment_set(x * 2.0), [2, 0], [4, 8]))
    (read,) = resizes(after)
    made = after.definitions[read.input]
    assert isinstance(made, Pointwise)
    assert made.op == "segment_set"


def test_nothing_is_computed_for_its_extent() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.Double)
        y = fd.ops.exp(x)
        fd.add_output(fd.ops.slice(y, [0, 1], [y.size(0), y.size(1)]))
    assert fd.fusion is not None
    after = hoist_displaced_reads(fd.fusion.ir_fusion)
    assert sum(isinstance(e, Pointwise) for e in after.tensor_exprs) == 1


def test_errors_keep_the_users_line() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Double)
        fd.add_output(fd.ops.slice(fd.ops.exp(x), [0, 1], [6, 8]))
    assert fd.fusion is not None
    for t in hoist_displaced_reads(fd.fusion.ir_fusion).tensors:
        assert t.location is not None
        assert t.location.filename == __file__
