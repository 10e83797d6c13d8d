"""Reductions of parts of one tensor, over all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.pad_reductions import pad_reductions
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.segmentation.segmentation import segment_fusion

BFloat16, Float = DataType.BFloat16, DataType.Float


def differences(x: Any, step: int) -> tuple[Any, Any]:
    return x[:, step:] - x[:, :-step], x[..., step:] - x[..., :-step]


def variation(o: Any, x: Any) -> Any:
    """Mean differences of neighbours along two dims."""
    down, right = differences(o.cast(x, Float), 1)
    return o.add(down.abs().mean(), right.abs().mean())


def largest(o: Any, x: Any) -> Any:
    """Of differences that are all negative, and of the tensor itself."""
    down, right = differences(o.cast(x, Float), 2)
    return o.max(o.sub(o.neg(down.abs()), 1.0), [0, 1, 2]), o.max(o.neg(right.abs()), [0, 1, 2]), o.max(x, [0, 1, 2])


def rows(o: Any, x: Any) -> Any:
    """Sums of the same rows."""
    wide = o.cast(x, Float)
    return o.sum((wide[..., 1:] - wide[..., :-1]).abs(), [2]), o.sum(o.exp(wide), [2])


def weighed_by_planes(o: Any, x: Any) -> Any:
    """Differences of one plane, weighed by those of another that lacks its dim of one element."""
    plane, other = o.cast(x, Float).unsqueeze(1), o.cast(x, Float) * 0.5
    right = (plane[..., 1:] - plane[..., :-1]).abs() * o.exp(-(other[..., 1:] - other[..., :-1]).abs()).unsqueeze(1)
    down = (plane[:, :, 1:] - plane[:, :, :-1]).abs() * o.exp(-(other[:, 1:] - other[:, :-1]).abs()).unsqueeze(1)
    return o.add(right.squeeze(1).mean(), down.squeeze(1).mean())


PADDED: dict[str, Callable[[Any, Any], Any]] = {f.__name__: f for f in (variation, largest, rows, weighed_by_planes)}


def fusion_of(build: Callable[[Any, Any], Any]) -> tuple[FusionDefinition, Fusion]:
    with FusionDefinition() as fd:
        results = build(fd.ops, fd.define_tensor([-1, -1, -1], True, BFloat16))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd, fd.fusion.ir_fusion


@pytest.mark.parametrize("shape", [(2, 5, 37), (3, 4, 64), (1, 3, 300)], ids=str)
@pytest.mark.parametrize("name", PADDED)
def test_one_kernel_makes_all(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, fusion = fusion_of(PADDED[name])
    found = pad_reductions(fusion)
    assert found is not fusion
    verify_fusion(found)
    assert pad_reductions(found) is found
    assert [t.name for t in found.output_tensors] == [t.name for t in fusion.output_tensors]
    segments = segment_fusion(optimize_fusion(fusion, lambda stage, text: None)).segments
    assert sum(s.has_kernel for s in segments) == 1
    x = np.random.default_rng(3).standard_normal(shape).astype(BFloat16.numpy)
    expected = evaluate_fusion(fusion, [x])
    for a, b, c in zip(fd.execute([x], device="simulator"), evaluate_fusion(found, [x]), expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(c, np.float64), rtol=2e-6)
        np.testing.assert_allclose(np.asarray(b, np.float64), np.asarray(c, np.float64), rtol=2e-6)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "one reduction": lambda o, x: o.sum(x[:, 1:] - x[:, :-1], [0, 1, 2]),
    "of parts that need not be most of it": lambda o, x: (
        o.sum(o.exp(o.slice(x, [0, 0, 0], [x.size(0), x.size(1), 3])), [0, 1, 2]),
        o.sum(x, [0, 1, 2]),
    ),
    "the same loops": lambda o, x: (o.sum(x[:, 1:] - x[:, :-1], [0, 1, 2]), o.max(x[:, 1:] * x[:, :-1], [0, 1, 2])),
    "along a dim that is kept": lambda o, x: (o.sum(x[:, 1:] - x[:, :-1], [0, 2]), o.sum(x, [0, 2])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    _, fusion = fusion_of(OTHERS[name])
    assert pad_reductions(fusion) is fusion
