"""1 + tanh(x) of Doubles: where it is put, and what it is worth."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.float_functions import FLOAT_FUNCTIONS
from fuser.ir.fusion.fusion import Pointwise
from fuser.ir.ops.exact_ops import ONE_PLUS_TANH
from fuser.optimize.pipeline import optimize_fusion

Double, Float = DataType.Double, DataType.Float
Array = np.ndarray[Any, Any]


def gelu(dtype: DataType, *, one: float = 1.0, keeps_tanh: bool = False) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, dtype)
        t = fd.ops.tanh(x * 0.75)
        fd.add_output(x * (one + t))
        if keeps_tanh:
            fd.add_output(t)
    return fd


def ops(fd: FusionDefinition) -> list[str]:
    assert fd.fusion is not None
    found = optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)
    return [e.op for e in found.exprs if isinstance(e, Pointwise)]


def test_a_sum_of_doubles_does_not_cancel() -> None:
    assert ops(gelu(Double)) == ["mul", ONE_PLUS_TANH.name, "mul"]
    assert ops(gelu(Double, keeps_tanh=True)) == ["mul", "tanh", ONE_PLUS_TANH.name, "mul"]


@pytest.mark.parametrize("fd", [gelu(Float), gelu(Double, one=2.0)], ids=["Float", "2"])
def test_others_stay(fd: FusionDefinition) -> None:
    assert ops(fd) == ["mul", "tanh", "add", "mul"]


def test_a_gelu_has_all_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where 1 + tanh cancels it has a few: at -15 the sum of rounded numbers is a multiple of 2**-53, here 1.8e-10."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.concatenate([np.linspace(-30, 30, 1999), [0.0, -0.0, np.nan, np.inf]])
    (y,) = gelu(Double).execute([x])
    wide = x.astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        exact = wide * (2 / (1 + np.exp(-2 * (x * 0.75).astype(np.longdouble))))
    np.testing.assert_allclose(np.asarray(y), exact.astype(np.float64), rtol=8 * 2.0**-53)


def test_the_text_is_within_two_and_a_half_units() -> None:
    """Its statements in NumPy, with reciprocals of 20 bits as the approximation has them, and exact fused multiply-adds."""
    text = FLOAT_FUNCTIONS["fuser_one_plus_tanh"]
    assert "fuser_exp_of_negative(-2.0 * fabs(x)), d = 1.0 + e, n = __double2hiint(x) < 0 ? e + e : 2.0" in text
    assert len(re.findall(r"r = fma\(r, fma\(-d, r, 1\.0\), r\);", text)) == 2
    assert "double q = n * r;\n  return fma(fma(-d, q, n), r, q);" in text
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.standard_normal(10**5) * s for s in (0.1, 3, 60)])
    wide = np.longdouble

    def fma(a: Array, b: Array, c: Array | float) -> Array:
        return np.asarray(a.astype(wide) * b + c, np.float64)

    e = np.exp(-2 * np.abs(x).astype(wide)).astype(np.float64)
    d, n = 1 + e, np.where(x < 0, 2 * e, 2.0)
    r = (1 / d * (1 + generator.uniform(-1, 1, len(x)) * 2.0**-20)).astype(np.float64)
    for _ in range(2):
        r = fma(r, fma(-d, r, 1.0), r)
    q = n * r
    found = fma(fma(-d, q, n), r, q)
    exact = np.where(x < 0, 2 * np.exp(2 * np.minimum(x, 0).astype(wide)), 2) / (
        1 + np.exp(-2 * np.abs(x).astype(wide))
    )
    assert np.max(np.abs(found / exact - 1)) < 1.6 * 2.0**-52, "that of the exponential is none here"
