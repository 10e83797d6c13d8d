"""Which reductions one kernel takes: those that no loop over another tensor's dims would repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.schedule.segmentation.segmentation import segment_fusion


def define(over: int, then: Callable[[FusionDefinition, Any, Any, Any], list[Any]], ranks: str) -> FusionDefinition:
    """Outputs of `then(fd, table, x, sums of the table)`. `ranks` has "1" for dims of one element of the table."""
    with FusionDefinition() as fd:
        table = fd.define_tensor([1 if r == "1" else -1 for r in ranks], dtype=DataType.Float, contiguity=True)
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        for out in then(fd, table, x, table.sum(over, keepdim=True)):
            fd.add_output(out)
    return fd


def check(fd: FusionDefinition, inputs: list[np.ndarray[Any, Any]], expected: list[Any], kernels: int) -> None:
    for out, want in zip(fd.execute(inputs), expected, strict=True):
        np.testing.assert_allclose(out, want, rtol=1e-5)
    assert len(fd.program(inputs).launches()) == kernels


def test_sums_of_a_table_are_not_made_again_for_each_row_that_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rng = np.random.default_rng(0)
    table, x = rng.random((100, 1, 33), np.float32), rng.random((7, 33), np.float32)
    fd = define(0, lambda fd, t, x, s: [x * s, fd.ops.maximum(x, t)], "n1n")
    (reduced,) = [s for s in segment_fusion(fd.fusion.ir_fusion).segments if s.scheduler.type.name == "reduction"]
    assert all(len(t.logical) < 3 or t.logical[1].is_broadcast for t in reduced.fusion.output_tensors)
    check(fd, [table, x], [x * table.sum(0, keepdims=True), np.maximum(x, table)], 3)


@pytest.mark.parametrize("rows", [2, 5])
def test_a_row_that_all_rows_share_is_reduced_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rng = np.random.default_rng(1)
    table, x = rng.random((1, 40), np.float32), rng.random((rows, 40), np.float32)
    fd = define(1, lambda fd, t, x, s: [x * t / s], "1n")
    check(fd, [table, x], [x * table / table.sum(1, keepdims=True)], 2)


def test_rows_of_their_own_stay_in_one_kernel() -> None:
    rng = np.random.default_rng(2)
    table, x = rng.random((6, 40), np.float32), rng.random((6, 40), np.float32)
    fd = define(1, lambda fd, t, x, s: [x * t / s], "nn")
    check(fd, [table, x], [x * table / table.sum(1, keepdims=True)], 1)
