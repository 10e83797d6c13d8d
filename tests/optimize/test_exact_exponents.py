"""exp(x - max(x)) from the difference before it is rounded: where it is put, and what it is worth."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.float_functions import FLOAT_FUNCTIONS
from fuser.ir.approximate_ops import EXP_BELOW
from fuser.ir.fusion import Pointwise
from fuser.optimize.pipeline import optimize_fusion

Double, Float, Half = DataType.Double, DataType.Float, DataType.Half
Narrow = (DataType.BFloat16, Half)
Array = np.ndarray[Any, Any]


def softmax(dtype: DataType, *, reaches: str = "max") -> FusionDefinition:
    """Over the rows. `reaches`: the reduction whose result is subtracted."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        wide = fd.ops.cast(x, Float) if dtype in Narrow else x
        e = fd.ops.exp(wide - getattr(fd.ops, reaches)(wide, [1], keepdim=True))
        y = e / fd.ops.sum(e, [1], keepdim=True)
        fd.add_output(fd.ops.cast(y, dtype) if dtype in Narrow else y)
    return fd


def ops(fd: FusionDefinition) -> list[str]:
    assert fd.fusion is not None
    found = optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)
    return [e.op for e in found.exprs if isinstance(e, Pointwise)]


def test_differences_of_wide_results_are_not_rounded() -> None:
    assert ops(softmax(Float)) == [EXP_BELOW.name, "truediv"]
    assert ops(softmax(Double))[0] == EXP_BELOW.name


@pytest.mark.parametrize("fd", [softmax(Half), softmax(Float, reaches="min")], ids=["16 bits", "not below"])
def test_others_stay(fd: FusionDefinition) -> None:
    assert EXP_BELOW.name not in ops(fd)


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


def test_the_text_finds_what_the_difference_loses() -> None:
    """The statements of the device function, in NumPy: they are additions only, which have no freedom."""
    assert "z = d - a, lost = (a - (d - z)) - (b + z), y" in FLOAT_FUNCTIONS["fuser_exp_below"]
    generator = np.random.default_rng(0)
    b = (generator.standard_normal(10000) * 10.0 ** generator.integers(-3, 4, 10000)).astype(np.float32)
    a = (b - generator.random(10000) * 80).astype(np.float32)
    d = a - b
    z = d - a
    lost = (a - (d - z)) - (b + z)
    np.testing.assert_array_equal(d.astype(np.float64) + lost, a.astype(np.float64) - b)
    with np.errstate(invalid="ignore"):
        infinite = np.float32(-np.inf) - b
        lost = (np.float32(-np.inf) - (infinite - (infinite - np.float32(-np.inf)))) - (
            b + (infinite + np.float32(np.inf))
        )
    np.testing.assert_array_equal(np.fmax(lost, np.float32(-1)), -1)


def test_the_text_has_an_exponential_within_a_unit() -> None:
    """Its statements in NumPy. A product of two Floats is exact in Double, and a sum of it and a Float nearly."""
    text = FLOAT_FUNCTIONS["fuser_exp_below"]
    numbers = [np.float32(float.fromhex(c)) for c in re.findall(r"-?0x1\.?[0-9a-f]*p[+-][0-9]+(?=f)", text)]
    log2e, magic, again, low, high, *coefficients, unit = numbers
    assert magic == again == 2**23 * 1.5 + 127 + 24
    assert [len(coefficients), unit] == [5, 2.0**-24]

    def fma(a: Array, b: Array | np.float32, c: Array | np.float32) -> Array:
        return np.asarray(a.astype(np.float64) * np.float64(b) + c, np.float32)

    generator = np.random.default_rng(0)
    d = np.concatenate([-generator.random(10**6) * s for s in (0.5, 8, 110)]).astype(np.float32)
    y = np.where(d < -104, np.float32(-104), d)
    shifted = fma(y, log2e, magic)
    n = shifted - magic
    scale = (shifted.view(np.int32) << 23).view(np.float32)
    r = fma(n, low, fma(n, high, y))
    p = np.full_like(r, coefficients[0])
    for c in (*coefficients[1:], np.float32(1), np.float32(1)):
        p = fma(p, r, c)
    exact = np.exp(d.astype(np.float64))
    unit_of = np.maximum(np.ldexp(1.0, np.frexp(exact)[1] - 24), 2.0**-149)
    error = (p * scale * unit - exact) / unit_of
    assert np.abs(error[d > -86]).max() < 0.9
    assert np.abs(error).max() < 1.4, "subnormal numbers are rounded twice"
    assert abs(error.mean()) < 0.02


def test_the_text_for_doubles_adds_what_the_difference_loses_to_the_remainder() -> None:
    """Of an infinite difference it loses nothing: both functions in NumPy, but for the polynomial."""
    below, text = FLOAT_FUNCTIONS["fuser_exp_of_difference"], FLOAT_FUNCTIONS["fuser_exp_of_negative"]
    assert "z = d - a, lost = (a - (d - z)) - (b + z);" in below
    assert "fuser_exp_of_negative(d, d < -746.0 ? -0.0 : lost)" in below
    assert "double rest = -0.0" in text
    assert "fma(n, -0x1.62e42fefa38p-1, y)) + rest;" in text
    generator = np.random.default_rng(0)
    b = generator.standard_normal(10000) * 10.0 ** generator.integers(-3, 4, 10000)
    a = b - generator.random(10000) * 80
    d = a - b
    z = d - a
    lost = (a - (d - z)) - (b + z)
    np.testing.assert_array_equal(d.astype(np.longdouble) + lost, a.astype(np.longdouble) - b)
    high, low = float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c7673p-45")
    n = np.rint(d * float.fromhex("0x1.71547652b82fep+0"))
    r = (d - n * high) - n * low + lost
    exact = np.exp(a.astype(np.longdouble) - b)
    error = np.abs(np.ldexp(np.exp(r.astype(np.longdouble)), n.astype(int)) - exact) / exact
    assert np.max(error) < 2.0**-54


def test_sums_of_doubles_are_off_by_two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sum is off by all quotients of its row are."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    x = np.random.default_rng(0).standard_normal((100, 2560)) * np.logspace(-4, 1, 100)[:, None]
    (y,) = softmax(Double).execute([x])
    e = np.exp(x.astype(np.longdouble) - x.max(1, keepdims=True))
    exact = e / e.sum(1, keepdims=True)
    # All that rounding does to single elements goes in either direction.
    assert np.max(np.abs(((y - exact) / exact).mean(1))) <= 2.0**-53 * 4
