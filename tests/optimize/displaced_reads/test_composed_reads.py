"""A displaced read of a displaced read is one read, of whole dims or of parts."""

from __future__ import annotations

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from tests.optimize.displaced_reads.hoisted_fusions import X, hoisted, is_at_inputs, resizes

D = DataType


def test_composition_is_one_read() -> None:
    """A pad of a slice of a pad of an input reads the input once."""
    _, after = hoisted(lambda o, x, y: o.pad(o.slice(o.pad(x, [3, 3], 5.0), [0, 1], [6, 13]), [1, 1], 5.0))
    (read,) = resizes(after)
    assert read.input in after.inputs
    # With another number, what the inner pad fills lies inside of what the outer one does.
    _, after = hoisted(lambda o, x, y: o.pad(o.slice(o.pad(x, [3, 3], 5.0), [0, 1], [6, 13]), [1, 1], 6.0))
    (read, filled) = resizes(after)
    assert read.input in after.inputs
    assert filled.input is read.output
    assert [w.offset.value for w in filled.windows] == [0, 0]
    _, after = hoisted(lambda o, x, y: o.slice(o.slice(x, [1, 2], [6, 8]), [1, 1], [3, 4]))
    (read,) = resizes(after)
    assert [w.offset.value for w in read.windows] == [2, 3]


def test_one_of_the_parts_of_a_dim_is_read_in_steps() -> None:
    """Every other column of a read that is split into pairs; a result of all pairs stays one."""

    def pairs(fd: FusionDefinition) -> None:
        x = fd.define_tensor([6, 7], True, D.Double)
        split = fd.ops.reshape(fd.ops.pad(x, [1, 2]), [6, 5, 2])
        fd.add_output(split[:, 1:4, 1] * 2.0)
        fd.add_output(split[:, 1:] * 2.0)

    with FusionDefinition() as fd:
        pairs(fd)
    assert fd.fusion is not None
    split = split_reshaped_dims(fd.fusion.ir_fusion)
    after = hoist_displaced_reads(split)
    verify_fusion(after)
    assert is_at_inputs(after)
    assert {tuple(w.step for w in e.windows) for e in resizes(after)} == {(1, 2), (1, 1)}
    x = X[:, :7]
    for a, b in zip(evaluate_fusion(fd.fusion.ir_fusion, [x]), evaluate_fusion(after, [x]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_last_of_three_parts_of_a_dim_is_read_in_steps() -> None:
    """An element of each of the innermost parts, of all groups of a slice."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 28], True, D.Double)
        split = fd.ops.reshape(x[:, 4:], [6, 2, 3, 4])
        fd.add_output(split[..., 1] * split[..., 3])
    assert fd.fusion is not None
    after = hoist_displaced_reads(split_reshaped_dims(fd.fusion.ir_fusion))
    verify_fusion(after)
    assert is_at_inputs(after)
    assert [(e.windows[1].offset.value, e.windows[1].step) for e in resizes(after)] == [(5, 4), (7, 4)]
    given = np.arange(168, dtype=np.float64).reshape(6, 28)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [given])
    np.testing.assert_array_equal(evaluate_fusion(after, [given])[0], expected)
    np.testing.assert_array_equal(fd.execute([given], device="simulator")[0], expected)
