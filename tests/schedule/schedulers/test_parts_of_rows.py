"""Values with some of the dims of a row that is kept on chip: weights of samples, in rows of samples and pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion

Float, Half, BFloat16 = DataType.Float, DataType.Half, DataType.BFloat16


@pytest.mark.parametrize("shape", [(5, 17, 17), (4, 3, 16), (5, 2, 18)])
@pytest.mark.parametrize("dim", [0, 2])
def test_several_loops_read_them(shape: tuple[int, ...], dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of channels over samples and pixels, then what is centred by it, and an output beside: each needs the weights."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1, -1], True, Float), fd.define_tensor([-1, -1, -1], True, Half)
        weight = fd.define_tensor([-1], True, Float).broadcast([d != dim for d in range(3)])
        shifted = x * y.float() + weight
        fd.add_output(shifted.bfloat16())
        total = (y.float() * weight).sum([0, 2], keepdim=True)
        fd.add_output((shifted - total).tanh().sum([0, 2]))
    random = np.random.default_rng(0)
    given = (random.standard_normal(s) for s in (shape, shape, shape[dim : dim + 1]))
    arrays: list[Any] = [a.astype(t) for a, t in zip(given, (np.float32, np.float16, np.float32), strict=True)]
    found = fd.execute(arrays, device="simulator")
    assert fd.fusion is not None
    assert len(fd.program(arrays).launches()) == 1
    for a, b in zip(found, evaluate_fusion(fd.fusion.ir_fusion, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1])
def test_columns_have_them_too(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over the slow dims, and three of everything that need the weights as well."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    shape = (17, 8, 17)
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1, -1], True, Float), fd.define_tensor([-1, -1, -1], True, Half)
        weight = fd.define_tensor([-1], True, Float).broadcast([d != dim for d in range(3)])
        shifted, scaled = x * y.float() + weight, y.float() * weight
        fd.add_output(shifted.mean([0, 1, 2]))
        fd.add_output((shifted * shifted).sum())
        fd.add_output((shifted - (scaled * scaled).sum([0, 1])).tanh().mean([0, 1, 2]))
    random = np.random.default_rng(0)
    given = (random.standard_normal(s) for s in (shape, shape, shape[dim : dim + 1]))
    arrays: list[Any] = [a.astype(t) for a, t in zip(given, (np.float32, np.float16, np.float32), strict=True)]
    found = fd.execute(arrays, device="simulator")
    assert fd.fusion is not None
    for a, b in zip(found, evaluate_fusion(fd.fusion.ir_fusion, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-4)
