"""Forms of functions for the ranges of their operands: where they are put, and that results stay as good as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Pointwise
from fuser.ir.ops.approximate_ops import EXP_OF_NEGATIVE, LOG1P_OF_FRACTION, POW_OF_POSITIVE
from fuser.optimize.pipeline import optimize_fusion

Double, Float, Half = DataType.Double, DataType.Float, DataType.Half
Narrow = (DataType.BFloat16, Half)


def softmax(dtype: DataType, *, reaches: str = "max") -> FusionDefinition:
    """Over the rows. `reaches`: the reduction whose result is subtracted."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        wide = fd.ops.cast(x, Float) if dtype in Narrow else x
        e: Any = fd.ops.exp(wide - getattr(fd.ops, reaches)(wide, [1], keepdim=True))
        y = e / fd.ops.sum(e, [1], keepdim=True)
        fd.add_output(fd.ops.cast(y, dtype) if dtype in Narrow else y)
    return fd


def of_one_tensor(define: Callable[[Any, Any], Any], dtype: DataType = Float) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(define(fd, fd.define_tensor([-1, -1], True, dtype)))
    return fd


def ops(fd: FusionDefinition) -> list[str]:
    assert fd.fusion is not None
    found = optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)
    return [e.op for e in found.exprs if isinstance(e, Pointwise)]


def test_exponentials_of_doubles_below_a_maximum() -> None:
    assert ops(softmax(Double))[1] == EXP_OF_NEGATIVE.name
    for fd in (softmax(Half), softmax(Float), softmax(Double, reaches="min")):
        assert EXP_OF_NEGATIVE.name not in ops(fd)


@pytest.mark.parametrize(
    ("define", "is_fraction"),
    [
        (lambda fd, x: fd.ops.log1p(fd.ops.exp(fd.ops.neg(fd.ops.abs(x)))), True),
        (lambda fd, x: fd.ops.log1p(fd.ops.exp(fd.ops.minimum(x, 0.0))), True),
        (lambda fd, x: fd.ops.log1p(fd.ops.sigmoid(x) * fd.ops.exp(fd.ops.neg(fd.ops.relu(x)))), True),
        (lambda fd, x: fd.ops.log1p(fd.ops.cast(fd.ops.gt(x, 0.0), Float)), True),
        (lambda fd, x: fd.ops.log1p(fd.ops.exp(x)), False),
        (lambda fd, x: fd.ops.log1p(fd.ops.neg(fd.ops.sigmoid(x))), False),
        (lambda fd, x: fd.ops.log1p(fd.ops.sigmoid(x) + fd.ops.sigmoid(x)), False),
        (lambda fd, x: fd.ops.log1p(fd.ops.tanh(x)), False),
        (lambda fd, x: fd.ops.log1p(x), False),
    ],
)
def test_logarithms_of_fractions(define: Callable[[Any, Any], Any], is_fraction: bool) -> None:
    assert (LOG1P_OF_FRACTION.name in ops(of_one_tensor(define))) == is_fraction


@pytest.mark.parametrize(
    ("define", "is_positive"),
    [
        (lambda fd, x: fd.ops.pow(fd.ops.maximum(x, 0.0031), 0.41), True),
        (lambda fd, x: fd.ops.pow(fd.ops.sqrt(x), 2.4), True),
        (lambda fd, x: fd.ops.pow(fd.ops.clamp(x, 0.0, 1.0), 2.4), True),
        (lambda fd, x: fd.ops.pow(fd.ops.clamp(x, -1.0, 1.0), 2.4), False),
        (lambda fd, x: fd.ops.pow(x, 2.4), False),
        (lambda fd, x: fd.ops.pow(fd.ops.minimum(x, 1.0), 2.4), False),
    ],
)
def test_powers_of_what_is_not_negative(define: Callable[[Any, Any], Any], is_positive: bool) -> None:
    assert (POW_OF_POSITIVE.name in ops(of_one_tensor(define))) == is_positive


def test_doubles_and_integers_have_no_form() -> None:
    softplus: Callable[[Any, Any], Any] = lambda fd, x: fd.ops.log1p(fd.ops.exp(fd.ops.neg(fd.ops.abs(x))))  # noqa: E731
    assert LOG1P_OF_FRACTION.name not in ops(of_one_tensor(softplus, Double))
    of_integers = of_one_tensor(lambda fd, x: fd.ops.log1p(fd.ops.abs(x)), DataType.Int)
    assert LOG1P_OF_FRACTION.name not in ops(of_integers)


@pytest.mark.parametrize("dtype", [Float, Double])
@pytest.mark.parametrize("columns", [7, 5003, 300007])
def test_softmax_is_off_by_twice_what_plain_arithmetic_is(
    columns: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    narrow, wide = (np.float32, np.float64) if dtype is Float else (np.float64, np.longdouble)
    x = np.random.default_rng(0).standard_normal((6, columns)).astype(narrow)
    x[2:4] *= narrow(1e-6)
    x[4:] += 1000
    (y,) = softmax(dtype).execute([x])
    e, plain = (np.exp(v - v.max(1, keepdims=True)) for v in (x.astype(wide), x))
    exact = e / e.sum(1, keepdims=True)
    unit = np.spacing(exact.astype(narrow))
    ours, theirs = (np.max(np.abs(v - exact) / unit) for v in (y, plain / plain.sum(1, keepdims=True)))
    assert ours <= max(2.0, 2 * theirs)


@pytest.mark.parametrize("dtype", [Float, Double])
def test_rows_that_are_not_finite(dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.zeros((4, 8), np.float32 if dtype is Float else np.float64)
    x[0, 3], x[1, :7], x[2], x[3, 2] = np.inf, -np.inf, -np.inf, np.nan
    (y,) = softmax(dtype).execute([x])
    assert np.isnan(y[[0, 2, 3]]).any(1).all()
    np.testing.assert_array_equal(y[1], [0, 0, 0, 0, 0, 0, 0, 1])


def test_sums_of_doubles_are_off_by_two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sum is off by all quotients of its row are."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.random.default_rng(0).standard_normal((100, 2560)) * np.logspace(-4, 1, 100)[:, None]
    (y,) = softmax(Double).execute([x])
    e = np.exp(x.astype(np.longdouble) - x.max(1, keepdims=True))
    exact = e / e.sum(1, keepdims=True)
    # All that rounding does to single elements goes in either direction.
    assert np.max(np.abs(((y - exact) / exact).mean(1))) <= 2.0**-53 * 4


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_losses_of_logits_are_as_good_as_plain_arithmetic(sign: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = (np.random.default_rng(0).standard_normal((64, 257)) * np.logspace(-6, 1.9, 64)[:, None]).astype(np.float32)
    x[0, :6] = np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40
    loss = of_one_tensor(
        lambda fd, t: fd.ops.log1p(fd.ops.exp(fd.ops.neg(fd.ops.abs(t)))) + fd.ops.maximum(fd.ops.mul(t, sign), 0.0)
    )
    (y,) = loss.execute([x])
    wide = x.astype(np.float64)
    exact = np.log1p(np.exp(-np.abs(wide))) + np.maximum(wide * sign, 0)
    np.testing.assert_allclose(y, exact, rtol=2.0**-22, atol=2.0**-126)
