"""Doubles that are divided by what a row has in common: where, and how exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.float_functions import FLOAT_FUNCTIONS
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.exact_ops import DIVIDE_BY_COMMON, DIVISOR_SCALE, EXACT, FMA, SCALED_DIVISOR
from fuser.ir.fusion import Broadcast, Fusion, Pointwise
from fuser.ir.verify_fusion import verify_fusion
from fuser.optimize.common_divisors import common_divisors
from fuser.optimize.compute_before_broadcast import compute_before_broadcast

Double, Float = DataType.Double, DataType.Float
Define = Callable[[Any, Any, Any], Any]


def fusion_of(define: Define, dtype: DataType = Double) -> Fusion:
    """The fusion of the outputs of `define(fd, x, s)`, of a matrix and the norms of its rows, one a column."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        made = define(fd, x, fd.ops.sqrt(fd.ops.sum(x * x, [1], True)))
        for output in made if isinstance(made, list) else [made]:
            fd.add_output(output)
    assert fd.fusion is not None
    return compute_before_broadcast(fd.fusion.ir_fusion)


def ops(fusion: Fusion) -> list[str]:
    return [e.op for e in fusion.exprs if isinstance(e, Pointwise)]


@pytest.mark.parametrize(
    "define",
    [lambda fd, x, s: x / s, lambda fd, x, s: fd.ops.exp(x) / s, lambda fd, x, s: [x / s, fd.ops.abs(x) / s]],
    ids=["an input", "an exponential", "twice"],
)
def test_one_reciprocal_serves_a_row(define: Define) -> None:
    fusion = fusion_of(define)
    made = common_divisors(fusion)
    verify_fusion(made, "common_divisors")
    found = ops(made)
    assert found.count(DIVIDE_BY_COMMON.name) == len(fusion.outputs)
    assert "truediv" not in found
    assert [found.count(n) for n in (DIVISOR_SCALE.name, SCALED_DIVISOR.name, "reciprocal")] == [1, 1, 1]
    wide = {e.output for e in made.exprs if isinstance(e, Broadcast)}
    quotients = [e for e in made.exprs if isinstance(e, Pointwise) and e.op == DIVIDE_BY_COMMON.name]
    assert all(set(e.inputs[1:]) <= wide for e in quotients)
    assert common_divisors(made) is made
    x = np.random.default_rng(0).standard_normal((5, 33))
    for before, after in zip(evaluate_fusion(fusion, [x]), evaluate_fusion(made, [x]), strict=True):
        np.testing.assert_array_max_ulp(before, after, 1)


@pytest.mark.parametrize(
    ("define", "dtype"),
    [
        (lambda fd, x, s: x / s, Float),
        (lambda fd, x, s: (x - s) / s, Double),
        (lambda fd, x, s: x / fd.ops.exp(x), Double),
        (lambda fd, x, s: s / x, Double),
        (lambda fd, x, s: x / 3.0, Double),
    ],
    ids=["Floats", "a rest is carried", "a divisor each", "a dividend in common", "a number"],
)
def test_others_stay(define: Define, dtype: DataType) -> None:
    fusion = fusion_of(define, dtype)
    assert common_divisors(fusion) is fusion


def divided(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the device function makes of them."""
    text = FLOAT_FUNCTIONS["fuser_divide_by_common"]
    assert "double n = a * s, q = n * r, c = fma(-fma(q, d, -n), r, q);" in text
    assert "return c == c ? c : q;" in text
    fma = EXACT[FMA.name].numpy
    with np.errstate(all="ignore"):
        s, d = DIVISOR_SCALE.numpy(b), SCALED_DIVISOR.numpy(b)
        r, n = 1 / d, a * s
        q = n * r
        c = np.asarray(fma(-np.asarray(fma(q, d, -n)), r, q))
        return np.where(np.isnan(c), q, c)


def test_quotients_are_rounded_once() -> None:
    generator = np.random.default_rng(1)
    a = generator.standard_normal(40000) * 2.0 ** generator.integers(-300, 300, 40000)
    b = generator.standard_normal(40000) * 2.0 ** generator.integers(-300, 300, 40000)
    exact = a.astype(np.longdouble) / b
    assert np.max(np.abs(divided(a, b) - exact) / np.spacing(np.abs(exact.astype(np.float64)))) < 0.51


def test_quotients_of_the_largest_and_smallest() -> None:
    values = [0.0, 5e-324, 1e-310, 1e-300, 1e-150, 1.0, 3.0, 1e150, 1.5e308, np.inf, np.nan]
    a, b = (v.reshape(-1) for v in np.meshgrid(np.array(values + [-v for v in values]), np.array(values)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(divided(a, b), a / b, rtol=2.0**-51)
        # What is left of numbers below the smallest normal one has few bits, and is rounded twice.
        normal = (np.abs(a) > 1e-280) & (np.abs(a / b) > 1e-280) & (b > 1e-280)
        np.testing.assert_array_equal(divided(a, b)[normal], (a / b)[normal])


def test_rows_are_divided_on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Double)
        fd.add_output(x / fd.ops.sqrt(fd.ops.sum(x * x, [1], True)))
    values = np.random.default_rng(2).standard_normal((7, 300))
    values[1] = 0
    values[2] *= 1e-160
    values[3, 4] = np.inf
    (found,) = fd.execute([values])
    with np.errstate(all="ignore"):
        want = values / np.sqrt((values * values).sum(1, keepdims=True))
    np.testing.assert_allclose(found, want, rtol=1e-14)
