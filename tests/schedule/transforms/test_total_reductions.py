"""Reductions of all elements in two steps: what is cut, in a fusion and in a schedule, and that the meaning stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion import Fusion, Reduction
from fuser.ir.schedule import ScheduleBuilder
from fuser.ir.verify_fusion import verify_fusion
from fuser.schedule.analysis.reference import resolving_graph
from fuser.schedule.transforms.total_reductions import rfactor_totals, split_totals, total_reductions

Float = DataType.Float


def fusion_of(define: Callable[[Any, Any], list[Any]], rank: int = 2, dtype: DataType = Float) -> Fusion:
    with FusionDefinition() as fd:
        for output in define(fd.ops, fd.define_tensor([-1] * rank, True, dtype)):
            fd.add_output(output)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def reduced_dims(fusion: Fusion) -> list[tuple[int, ...]]:
    """Of each reduction, the positions of the reduced dims."""
    return [
        tuple(i for i, d in enumerate(e.output.logical) if d.is_reduction)
        for e in fusion.tensor_exprs
        if isinstance(e, Reduction)
    ]


CUT: dict[str, tuple[Callable[[Any, Any], list[Any]], int, list[tuple[int, ...]]]] = {
    "rows, then all": (lambda o, x: [o.sum(x, [1]), o.sum(o.mul(x, x), [0, 1])], 2, [(1,), (1,), (0,)]),
    "all, then rows": (lambda o, x: [o.max(x, [0, 1]), o.max(x, [1])], 2, [(1,), (0,), (1,)]),
    "columns": (lambda o, x: [o.sum(x, [0]), o.sum(x, [0, 1])], 2, [(0,), (0,), (0,)]),
    "three dims": (lambda o, x: [o.max(x, [1, 2]), o.sum(x, [0, 1, 2])], 3, [(1, 2), (1, 2), (0,)]),
    "a dim of one element stays": (
        lambda o, x: [
            o.max(x, [1]),
            o.broadcast(o.sum(o.broadcast(x, [False, True, False]), [0, 2]), [True, False, True]),
        ],
        2,
        [(1,), (2,), (0,)],
    ),
    "more follows": (lambda o, x: [o.max(x, [1]), o.sqrt(o.sum(x, [0, 1]))], 2, [(1,), (1,), (0,)]),
}
WHOLE: dict[str, tuple[Callable[[Any, Any], list[Any]], int]] = {
    "all alone": (lambda o, x: [o.sum(x, [0, 1])], 2),
    "rows alone": (lambda o, x: [o.sum(x, [1]), o.max(x, [1])], 2),
    "rows and columns": (lambda o, x: [o.sum(x, [1]), o.max(x, [0])], 2),
    "not all": (lambda o, x: [o.sum(x, [2]), o.max(x, [1, 2])], 3),
}


@pytest.mark.parametrize("name", CUT)
def test_cut(name: str) -> None:
    define, rank, dims = CUT[name]
    fusion = fusion_of(define, rank)
    cut = split_totals(fusion)
    verify_fusion(cut, "split_totals")
    assert reduced_dims(cut) == dims
    assert [o.tensor.name for o in cut.outputs] == [o.tensor.name for o in fusion.outputs]
    assert split_totals(cut) is cut
    x = np.arange(1, 25, dtype=np.float32).reshape((2, 3, 4)[:rank] if rank == 3 else (4, 6))
    for a, b in zip(evaluate_fusion(cut, [x]), evaluate_fusion(fusion, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    builder = ScheduleBuilder(fusion)
    rfactor_totals(builder)
    found = [len([d for d in e.output.logical if d.is_reduction]) for e in builder.exprs if isinstance(e, Reduction)]
    assert found == [len(d) for d in dims]


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str) -> None:
    fusion = fusion_of(*WHOLE[name])
    assert not total_reductions(fusion.tensor_exprs, resolving_graph(fusion))
    assert split_totals(fusion) is fusion
    builder = ScheduleBuilder(fusion)
    rfactor_totals(builder)
    assert not builder.records
