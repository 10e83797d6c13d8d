"""Pointwise ops in front of the broadcasts of their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Broadcast, Fusion, Pointwise
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.compute_before_broadcast import compute_before_broadcast

Float, BFloat16 = DataType.Float, DataType.BFloat16


def fusion_of(define: Callable[[Any, Any, Any], Any]) -> Fusion:
    """The fusion of the outputs of `define(fd, x, v)`, of a matrix and a vector for its rows."""
    with FusionDefinition() as fd:
        made = define(fd, fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1], True, Float))
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def down(fd: Any, v: Any) -> Any:
    """A value for each row."""
    return fd.ops.broadcast(v, [False, True])


MOVING: dict[str, tuple[int, Callable[[Any, Any, Any], Any]]] = {
    "a chain": (2, lambda fd, x, v: x * fd.ops.rsqrt(down(fd, v) + 1.5)),
    "two of them": (1, lambda fd, x, v: x + down(fd, v) * down(fd, fd.ops.exp(v))),
    "one twice": (1, lambda fd, x, v: x + (lambda w: w * w)(down(fd, v))),
    "another type": (1, lambda fd, x, v: x + fd.ops.cast(fd.ops.cast(down(fd, v), BFloat16), Float)),
    "a statistic": (2, lambda fd, x, v: x * fd.ops.rsqrt(fd.ops.sum(x * x, [1], True) + 1.0)),
    "used wide too": (1, lambda fd, x, v: (lambda w: x * w + fd.ops.neg(w))(down(fd, v))),
}
STAYING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a whole operand": lambda fd, x, v: x * down(fd, v),
    "other dims": lambda fd, x, v: x + (fd.ops.broadcast(v, [True, False]) + down(fd, v)),
    "an output": lambda fd, x, v: [x + down(fd, v), fd.ops.neg(down(fd, v))],
}


def arrays() -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    return [generator.random((4, 4), np.float32), generator.random(4, np.float32)]


@pytest.mark.parametrize("name", MOVING)
def test_ops_move(name: str) -> None:
    least, define = MOVING[name]
    before = fusion_of(define)
    after = compute_before_broadcast(before)
    verify_fusion(after, "compute_before_broadcast")
    wide = {e.output for e in after.tensor_exprs if isinstance(e, Broadcast)}
    for expr in after.tensor_exprs:
        if isinstance(expr, Pointwise):
            assert not all(v in wide for v in expr.inputs), "computed behind a broadcast"
    assert sum(isinstance(e, Pointwise) and len(e.output.visible) == 1 for e in after.tensor_exprs) >= least
    for a, b in zip(evaluate_fusion(before, arrays()), evaluate_fusion(after, arrays()), strict=True):
        np.testing.assert_array_equal(a, b)
    assert compute_before_broadcast(after) is after


@pytest.mark.parametrize("name", STAYING)
def test_ops_that_stay(name: str) -> None:
    before = fusion_of(STAYING[name])
    assert compute_before_broadcast(before) is before
