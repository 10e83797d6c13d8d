"""Runs of exprs: a bounded number of questions, and as long as a scheduler takes them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.segmentation import segment as segment_module
from fuser.schedule.segmentation.segment import SizeRefusal
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.schedule.segments import POINTWISE, types

Float = DataType.Float


def layers(count: int) -> Fusion:
    """`count` normalisations along one axis after the other: no scheduler takes two of them together."""
    with FusionDefinition() as fd:
        value: Any = fd.define_tensor([-1, -1, -1], True, Float)
        for k in range(count):
            total = fd.ops.sum(fd.ops.abs(value), [k % 3], True)
            value = fd.ops.tanh(value / (total + 1.0)) * 2.0
        fd.add_output(value)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


@pytest.mark.in_turns
@pytest.mark.parametrize("number", [4, 8, 16, 32])
def test_scheduler_queries_grow_as_n_log_n(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = 0
    real = segment_module.choose_scheduler

    def count(fusion: Fusion, without: Collection[SizeRefusal] = ()) -> Any:
        nonlocal queries
        queries += 1
        return real(fusion, without)

    monkeypatch.setattr(segment_module, "choose_scheduler", count)
    fusion = layers(number)
    segmented = segment_fusion(fusion)
    assert len(segmented.segments) >= number
    n = len(fusion.tensor_exprs)
    assert 0 < queries <= 2 * n * math.log2(n)


def test_a_long_chain_is_one_segment() -> None:
    with FusionDefinition() as fd:
        value: Any = fd.define_tensor([-1], True, Float)
        for _ in range(500):
            value = value * 1.5 + 0.25
        fd.add_output(value)
    assert fd.fusion is not None
    assert types(segment_fusion(fd.fusion.ir_fusion)) == [POINTWISE]
