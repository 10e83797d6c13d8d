"""What the rows of a segment move: each element of an input once, however many rows and reads bring it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.device_info import H200
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.analysis.rows import Rows, find_rows
from fuser.schedule.cost.row_space import row_space
from tests.fusions.rows import described, inputs_for

B, S, H, D = 4, 96, 8, 64
Float = DataType.Float


def normalised(x: Any) -> Any:
    return x / (x * x).sum([-1], keepdim=True)


def turned(o: Any, y: Any) -> Any:
    return o.cat([-y[..., D // 2 :], y[..., : D // 2]], -1)


def masked_softmax(o: Any, x: Any, mask: Any) -> Any:
    e = o.exp(x + mask - o.max(x + mask, [-1], keepdim=True))
    return e / o.sum(e, [-1], keepdim=True)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], tuple[int, int]]] = {
    "a row": (lambda o, x: normalised(x), [(B, S, H, D)], (8, 0)),
    # Both halves of it are read once more.
    "a row and its turned halves": (
        lambda o, x: normalised(x) + turned(o, normalised(x)),
        [(B, S, H, D)],
        (8, 8),
    ),
    "halves of rows": (lambda o, x: normalised(x[..., : D // 2] * x[..., D // 2 :]), [(B, S, H, D)], (12, 0)),
    # All heads of a position have the same ones.
    "a table of positions": (lambda o, x, t: normalised(x) * t[:, None, :], [(B, S, H, D), (S, D)], (8, 4)),
    "a mask of batches": (lambda o, x, m: masked_softmax(o, x, m[:, None, None]), [(B, S, H, D), (B, D)], (8, 4)),
    "a residual": (lambda o, x, r: normalised(x + r), [(B, S, H, D)] * 2, (12, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_of_an_element(name: str) -> None:
    """(moved, from a cache)."""
    build, shapes, expected = CASES[name]
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor(list(shape), True, Float) for shape in shapes]
        fd.add_output(build(fd.ops, *tensors))
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda stage, text: None)
    found = find_rows(fusion, inputs_for(fusion, *(described(Float, *shape) for shape in shapes)))
    assert isinstance(found, Rows)
    space = row_space(fusion, found, H200)
    assert (space.moved, space.shared_bytes) == expected
