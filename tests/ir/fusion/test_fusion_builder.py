"""Building fusions: dims of results, constraints, what is dropped."""

from __future__ import annotations

import pytest

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import ExtentOp, IterKind, Pointwise, Scalar
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import const
from fuser.ir.ops.dtypes import DataType

Float, Int = DataType.Float, DataType.Int


def test_input_dims() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 1, 5, 0])
    assert [str(d.extent) for d in x.logical] == ["t0_size0", "1", "5", "0"]
    assert [d.kind for d in x.logical] == [
        IterKind.iteration,
        IterKind.broadcast,
        IterKind.iteration,
        IterKind.iteration,
    ]
    assert x.stride_order == (3, 2, 1, 0)
    assert x.contiguity == (True, None, True, True)


def test_broadcast_combines_with_any_extent() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1, 1]), b.input_tensor(Float, [1, -1])
    z = b.pointwise("add", [x, y], Float)
    assert [str(d.extent) for d in z.logical] == ["t0_size0", "t1_size1"]
    assert not b.constraints


def test_static_extents_must_match() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [3]), b.input_tensor(Float, [4])
    with pytest.raises(DefinitionRuntimeError, match="Expected sizes to match"):
        b.pointwise("add", [x, y], Float)


def test_symbolic_extents_become_constraints_that_die_with_their_expr() -> None:
    b = FusionBuilder()
    x, y, z = (b.input_tensor(Float, [-1]) for _ in range(3))
    kept = b.pointwise("add", [x, y], Float)
    b.pointwise("mul", [x, z], Float)
    b.add_output(kept)
    assert [str(c.what) for c in b.freeze().constraints] == ["add, dim 0"]
    assert len(b.constraints) == 2


def test_dead_exprs_are_dropped() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    b.pointwise("neg", [x], Float)
    out = b.pointwise("abs", [x], Float)
    b.add_output(out)
    assert [e.op for e in b.freeze().exprs if isinstance(e, Pointwise)] == ["abs"]


def test_reduced_dims_are_hidden() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 4])
    r = b.reduction("sum", x, [0], Float)
    assert [d.kind for d in r.logical] == [IterKind.reduction, IterKind.iteration]
    assert r.ndim == 1
    assert [str(d.extent) for d in r.visible] == ["4"]


def test_extents_as_scalars() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 4])
    assert b.size(x, 1).value == 4
    n = b.size(x, 0)
    assert n.value is None
    assert isinstance(b.exprs[-1], ExtentOp)
    assert n.expression is x.logical[0].extent


def test_expand_and_squeeze() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 1])
    wide = b.expand(x, [None, const(5)])
    assert wide.logical[1].expanded
    assert b.expand(x, [None, const(1)]).logical[1].is_broadcast
    assert b.squeeze(wide, [False, True]).ndim == 1
    assert not b.constraints
    b.squeeze(wide, [True, False])
    assert [str(c.right) for _, c in b.constraints] == ["1"]
    with pytest.raises(DefinitionRuntimeError, match="Invalid expand size"):
        b.expand(b.input_tensor(Float, [3]), [const(4)])


def test_user_scalars_as_extents() -> None:
    b = FusionBuilder()
    n = b.input_scalar(Int)
    extent = b.extent_of_scalar(n)
    t = b.full([extent], b.constant(1.0, DataType.Double), Float, [n])
    b.add_output(t)
    fusion = b.freeze()
    assert fusion.extent_scalars == {n.name: n.name}
    assert isinstance(fusion.inputs[0], Scalar)


def test_definitions_and_uses() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    y = b.pointwise("neg", [x], Float)
    b.add_output(y)
    fusion = b.freeze()
    assert fusion.definitions[y] is fusion.exprs[0]
    assert fusion.uses(x) == [fusion.exprs[0]]
    assert fusion.output_tensors == (y,)
    assert fusion.tensors == (x, y)
