"""Fusions before and after displaced reads are moved, with values compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, Resize
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.schedule.analysis.input_reads import displaced_intermediate

D = DataType
X = np.arange(48, dtype=np.float64).reshape(6, 8) - 20
Y = X[:, :1] * 3


def hoisted(build: Callable[[Any, Any, Any], Any]) -> tuple[Fusion, Fusion]:
    """(fusion, after the pass), of outputs over x [6, 8] and y [6, 1]; values are compared."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([6, 8], True, D.Double), fd.define_tensor([6, 1], True, D.Double)
        results = build(fd.ops, x, y)
        for result in results if isinstance(results, tuple) else (results,):
            fd.add_output(result)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    after = hoist_displaced_reads(fusion)
    verify_fusion(after)
    assert hoist_displaced_reads(after) is after, "nothing is left to do"
    assert [o.tensor.name for o in after.outputs] == [o.tensor.name for o in fusion.outputs]
    assert len({o.tensor for o in after.outputs}) == len({o.tensor for o in fusion.outputs})
    for a, b in zip(evaluate_fusion(fusion, [X, Y]), evaluate_fusion(after, [X, Y]), strict=True):
        np.testing.assert_array_equal(a, b)
    return fusion, after


def resizes(fusion: Fusion) -> list[Resize]:
    return [e for e in fusion.tensor_exprs if isinstance(e, Resize)]


def is_at_inputs(fusion: Fusion) -> bool:
    return displaced_intermediate(fusion) is None
