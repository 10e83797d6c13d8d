"""Slices and pads that reshapes are made of move to inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Reshape
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_reads_of_reshapes import hoist_reads_of_reshapes
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from tests.optimize.displaced_reads.hoisted_fusions import X, is_at_inputs, resizes

D = DataType


BEFORE_RESHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "pad": lambda o, x: o.reshape(o.pad(o.cast(x, D.Double), [1, 1]), [6, 5, 2]),
    "slice": lambda o, x: o.reshape(o.slice(o.exp(o.cast(x, D.Double)), [0, 2], [6, 8]), [6, 3, 2]),
    "slice of a pad": lambda o, x: o.reshape(o.pad(o.cast(x, D.Double), [1, 2])[1:, 1:], [5, 5, 2]),
    "roll": lambda o, x: o.reshape((lambda h: o.cat([h[:, 3:], h[:, :3]], 1))(o.cast(x, D.Double)), [6, 4, 2]),
}


@pytest.mark.parametrize("name", BEFORE_RESHAPES)
def test_a_reshape_of_a_read_of_a_computed_tensor_is_none(name: str) -> None:
    """What is read becomes parts of its dims: one kernel, without a reshape."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, D.Float)
        result = BEFORE_RESHAPES[name](fd.ops, x)
        fd.add_output(fd.ops.sum(result, [result.ndim - 1]))
    assert fd.fusion is not None
    fusion = join_pieces(fd.fusion.ir_fusion)
    after = split_reshaped_dims(hoist_reads_of_reshapes(fusion))
    verify_fusion(after)
    assert is_at_inputs(after)
    assert not any(isinstance(e, Reshape) for e in after.tensor_exprs)
    assert all(e.input in after.inputs for e in resizes(after))
    given: Any = X.astype(np.float32)
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [given])
    np.testing.assert_array_equal(evaluate_fusion(after, [given])[0], expected)
    np.testing.assert_allclose(fd.execute([given], device="simulator")[0], expected, rtol=1e-14)
