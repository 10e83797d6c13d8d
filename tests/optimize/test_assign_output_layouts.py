"""Outputs lie as their definition says, everything else is row major."""

from __future__ import annotations

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion, Pointwise
from fuser.optimize.assign_output_layouts import assign_output_layouts


def definition(*, is_returned: bool) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor([6, 8], True, DataType.Float)
        y = fd.ops.stride_order(fd.ops.neg(x), [0, 1])
        fd.add_output(fd.ops.exp(y))
        if is_returned:
            fd.add_output(y)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


@pytest.mark.parametrize("is_returned", [False, True])
def test_orders_are_those_of_outputs(is_returned: bool) -> None:
    fusion = assign_output_layouts(definition(is_returned=is_returned))
    ops = {e.op: e.output for e in fusion.exprs if isinstance(e, Pointwise)}
    assert ops["exp"].stride_order == (0, 1), "what an ordered value implies of an output stays"
    assert ops["stride_order" if is_returned else "set"].stride_order == ((0, 1) if is_returned else (1, 0))
    assert set(ops) == {"neg", "exp", "stride_order" if is_returned else "set"}
