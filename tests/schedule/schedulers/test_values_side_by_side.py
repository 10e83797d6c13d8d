"""Outputs that have one value for several of the largest output: a thread has all of these, and stores the one once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, ops
from fuser.frontend.reference import evaluate_fusion
from tests.schedule.analysis.cell_programs import accesses, dense, sources

Float, Half, Double = DataType.Float, DataType.Half, DataType.Double


def waves(count: int, dtype: DataType, *, keepdim: bool, is_read: bool) -> FusionDefinition:
    """`count` values of each element, side by side, and one; with `is_read` of as many that are read."""
    with FusionDefinition() as fd:
        if is_read:
            x = fd.define_tensor([-1, -1, -1], True, dtype)
            read = [x[..., k] for k in range(count)]
        else:
            x = fd.define_tensor([-1, -1], True, dtype)
            read = [x * (k + 1.5) for k in range(count)]
        wide = [r.to(Double if dtype is Double else Float) for r in read]
        values = [(a + b).tanh().to(dtype).unsqueeze(-1) for a, b in zip(wide, wide[1:] + wide[:1], strict=True)]
        energy = (wide[0] * wide[1]).to(dtype)
        fd.add_output(ops.cat(values, -1))
        fd.add_output(energy.unsqueeze(-1) if keepdim else energy)
        fd.add_output(wide[1] > 0.0)
    return fd


SIZES = [(1, 1), (6, 1), (5, 33), (4, 64)]


@pytest.mark.parametrize(("count", "dtype"), [(2, Float), (3, Float), (4, Float), (5, Half), (8, Half), (2, Double)])
@pytest.mark.parametrize("is_read", [False, True])
def test_one_kernel_at_any_size(count: int, dtype: DataType, is_read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    random = np.random.default_rng(count)
    for k, (rows, columns) in enumerate(SIZES):
        keepdim = k % 2 > 0
        fd = waves(count, dtype, keepdim=keepdim, is_read=is_read)
        shape = (rows, columns, count) if is_read else (rows, columns)
        arrays: list[Any] = [random.standard_normal(shape).astype(dtype.numpy)]
        found = fd.execute(arrays, device="simulator")
        assert fd.fusion is not None
        assert len(fd.program(arrays).launches()) == 1
        tolerance = 2e-3 if dtype is Half else 1e-6
        for a, b in zip(found, evaluate_fusion(fd.fusion.ir_fusion, arrays), strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), atol=tolerance)


def rotated(x: Any, by: Any) -> tuple[Any, Any]:
    """Pairs times pairs, and the squares of what that is."""
    a, b, c, d = x[..., 0], x[..., 1], by[..., 0], by[..., 1]
    real, imaginary = a * c - b * d, a * d + b * c
    return ops.cat([real.unsqueeze(-1), imaginary.unsqueeze(-1)], -1), real * real + imaginary * imaginary


def test_inputs_are_read_once_and_by_vectors() -> None:
    def define(fd: FusionDefinition) -> tuple[Any, Any]:
        return rotated(*(fd.define_tensor([-1, -1, -1], True, Float) for _ in range(2)))

    bodies = sources(define, [dense(2048, 1024, 2, dtype=Float) for _ in range(2)])
    assert len(bodies) == 1
    loads, stores = accesses(bodies[0])
    assert set(loads) == {16}
    assert sorted(set(stores)) == [8, 16]


@pytest.mark.parametrize("count", [5, 7])
def test_values_that_are_no_access_are_a_kernel_of_their_own(count: int) -> None:
    """A thread would store each apart from its neighbours'."""
    fd = waves(count, Float, keepdim=False, is_read=False)
    assert len(fd.program([np.zeros((64, 64), np.float32)]).launches()) == 2
