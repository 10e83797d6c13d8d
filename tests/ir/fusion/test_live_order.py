"""Exprs below values: once each, operands first, and never for ever."""

from __future__ import annotations

import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InternalError
from fuser.ir.fusion.fusion import Pointwise, Tensor, expr_outputs
from fuser.ir.fusion.live_order import exprs_below


def test_a_value_that_many_read_comes_once_and_first() -> None:
    with FusionDefinition() as fd:
        y = fd.ops.exp(fd.define_tensor([-1], True, DataType.Float))
        fd.add_output((y + fd.ops.sin(y)) * y)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    names = [expr_outputs(e)[0].name for e in exprs_below(fusion.output_tensors, fusion.definitions)]
    assert len(names) == len(set(names)) == 4
    assert names[0] == y.name


def test_what_depends_on_itself_is_told() -> None:
    a, b, c = (Tensor(name, DataType.Float, (), (), ()) for name in "abc")
    loop = {
        a: Pointwise("add", (b, c), a),
        b: Pointwise("neg", (c,), b),
        c: Pointwise("neg", (b,), c),
    }
    with pytest.raises(InternalError, match="depends on itself"):
        exprs_below([a], loop)
