"""Dims of one element that are dropped and put back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Broadcast, Fusion, Squeeze
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.undo_squeezes import undo_squeezes


def softmax(fd: FusionDefinition, x: Any, dim: int) -> Any:
    o = fd.ops
    powers = o.exp(o.sub(x, o.max(x, [dim], True)))
    return o.div(powers, o.sum(powers, [dim], True))


def fusion_of(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_reductions_over_one_element_are_nothing() -> None:
    with FusionDefinition() as fd:
        fd.add_output(softmax(fd, fd.define_tensor([-1, 1]), 1))
    fusion = fusion_of(fd)
    assert any(isinstance(e, Squeeze) for e in fusion.exprs)
    found = undo_squeezes(fusion)
    verify_fusion(found)
    assert not any(isinstance(e, (Squeeze, Broadcast)) for e in found.exprs)


@pytest.mark.parametrize("is_output", [False, True])
def test_what_is_not_the_same_stays(is_output: bool) -> None:
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, 1, 1])
        y = o.squeeze(x, [1])
        back = o.broadcast(y, [False, True, False] if is_output else [True, False, False])
        fd.add_output(back if is_output else o.neg(back))
    fusion = fusion_of(fd)
    assert undo_squeezes(fusion) is fusion


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16], ids=str)
@pytest.mark.parametrize("columns", [8, 64, 300])
def test_a_result_of_one_element_beside_many(columns: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the many would not hold it where it is read as one."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        o, x, y = fd.ops, fd.define_tensor([1, -1], dtype=DataType.Int), fd.define_tensor([-1, 1], True, dtype)
        fd.add_output(o.bitwise_or(x, o.cast(softmax(fd, o.max(y, [0], True), 1), DataType.Bool)))
    x, y = np.arange(columns)[None], np.ones((3, 1), dtype.numpy)
    (found,) = fd.execute([x, y], device="simulator")
    np.testing.assert_array_equal(np.asarray(found), x | 1)
