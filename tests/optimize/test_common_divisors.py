"""What is divided by what a row or column has in common: where, and how exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.float_functions import FLOAT_FUNCTIONS
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Broadcast, Fusion, Pointwise
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.ir.ops.exact_ops import DIVIDE_BY_COMMON, DIVIDE_BY_SUM, DIVISOR_SCALE, SCALED_DIVISOR
from fuser.optimize.common_divisors import common_divisors
from fuser.optimize.compute_before_broadcast import compute_before_broadcast
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.optimize.pipeline import optimize_fusion
from fuser.optimize.use_ranges import use_ranges

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
    [
        lambda fd, x, s: x / s,
        lambda fd, x, s: fd.ops.exp(x) / s,
        lambda fd, x, s: (x - s) / s,
        lambda fd, x, s: [x / s, fd.ops.abs(x) / s],
    ],
    ids=["an input", "an exponential", "a difference", "twice"],
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
        (lambda fd, x, s: x / fd.ops.exp(x), Double),
        (lambda fd, x, s: s / x, Double),
        (lambda fd, x, s: x / 3.0, Double),
    ],
    ids=["Floats", "a divisor each", "a dividend in common", "a number"],
)
def test_others_stay(define: Define, dtype: DataType) -> None:
    fusion = fusion_of(define, dtype)
    assert common_divisors(fusion) is fusion


def of_columns(define: Define) -> Fusion:
    """The optimized fusion of `define(fd, x, x)`, of a matrix of Floats."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(define(fd, x, x))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def _standardized(fd: Any, x: Any, _: Any) -> Any:
    variance, mean = fd.ops.var_mean(x, [0], 0, True)
    return (x - mean) / (fd.ops.sqrt(variance) + 1e-6)


FLOATS: dict[str, Define] = {
    "a deviation": _standardized,
    "an extent of values": lambda fd, x, _: (
        x / fd.ops.maximum(fd.ops.max(x, [0], True) - fd.ops.min(x, [0], True), 1e-6)
    ),
    "a norm": lambda fd, x, _: x / fd.ops.sqrt(fd.ops.sum(x * x, [1], True) + 1e-12),
    "a softmax": lambda fd, x, _: _softmax(fd, x, _),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_multiplied_by_the_reciprocal_of_no_tiny_number(name: str) -> None:
    fusion = of_columns(FLOATS[name])
    (reciprocal,) = (e for e in fusion.exprs if isinstance(e, Pointwise) and e.op == "near_truediv")
    assert getattr(reciprocal.inputs[0], "value", None) == 1.0
    assert ops(fusion)[-1] == "mul"
    assert common_divisors(fusion) is fusion


@pytest.mark.parametrize(
    "define",
    [
        lambda fd, x, _: x / fd.ops.sum(x, [0], True),
        lambda fd, x, _: x / fd.ops.sqrt(fd.ops.sum(x * x, [0], True)),
        lambda fd, x, _: x / (fd.ops.sqrt(fd.ops.sum(x * x, [0], True)) + 1e-40),
        lambda fd, x, _: x / (fd.ops.abs(x) + 1.0),
        lambda fd, x, _: fd.ops.round(x / (fd.ops.max(fd.ops.abs(x), [0], True) + 1.0)),
    ],
    ids=["any number", "maybe 0", "maybe tiny", "a divisor each", "a rounding"],
)
def test_other_floats_stay(define: Define) -> None:
    assert [op for op in ops(of_columns(define)) if op in ("mul", "truediv", "near_truediv")][-1] != "mul"


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_divided_on_the_simulator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(FLOATS[name](fd, x, x))
    assert fd.fusion is not None
    values = np.random.default_rng(3).standard_normal((60, 40)).astype(np.float32) * np.logspace(-6, 6, 40).astype(
        np.float32
    )
    values[:, 3], values[:, 4] = 7.0, 0.0
    (found,) = fd.execute([values])
    (plain,) = evaluate_fusion(fd.fusion.ir_fusion, [values])
    # Means and norms are summed in another order.
    np.testing.assert_allclose(found, plain, rtol=2.0**-20, atol=2.0**-18)
    values[5, 7], values[6, 8] = np.inf, np.nan
    with np.errstate(all="ignore"):
        (found,) = fd.execute([values])
        (plain,) = evaluate_fusion(fd.fusion.ir_fusion, [values])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(plain))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(plain))


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of Doubles, rounded once: through fractions where all are finite."""

    def of(x: float, y: float, z: float) -> float:
        if not all(map(math.isfinite, (x, y, z))):
            return x * y + z
        try:
            return float(Fraction(x) * Fraction(y) + Fraction(z))
        except OverflowError:
            return math.copysign(math.inf, x * y + z)

    return np.vectorize(of, otypes=[float])(a, b, c)


def divided(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the device function makes of them."""
    text = FLOAT_FUNCTIONS["fuser_divide_by_common"]
    assert "double n = a * s, q = n * r, c = fma(-fma(q, d, -n), r, q);" in text
    assert "return c == c ? c : q;" in text
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


def softmax_of(x_of: Define) -> Fusion:
    """x over the sum of exponentials of it, after the passes before this one."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Double)
        fd.add_output(x_of(fd, x, None))
    assert fd.fusion is not None
    return use_ranges(fuse_exp_sums(compute_before_broadcast(fd.fusion.ir_fusion)))


def _softmax(fd: Any, x: Any, _: Any) -> Any:
    e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
    return e / fd.ops.sum(e, [1], keepdim=True)


def _half_softmax(fd: Any, x: Any, _: Any) -> Any:
    """Terms of another sum."""
    e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
    y = fd.ops.abs(x)
    f = fd.ops.exp(y - fd.ops.max(y, [1], keepdim=True))
    return f / fd.ops.sum(e, [1], keepdim=True)


def test_terms_are_divided_by_their_sum() -> None:
    fusion = softmax_of(_softmax)
    made = common_divisors(fusion)
    verify_fusion(made, "common_divisors")
    found = ops(made)
    assert [found.count(n) for n in (DIVIDE_BY_SUM.name, "reciprocal", DIVIDE_BY_COMMON.name, "truediv")] == [
        1,
        1,
        0,
        0,
    ]
    assert common_divisors(made) is made
    x = np.random.default_rng(0).standard_normal((5, 33))
    x[1, 3], x[2, 4], x[3] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        (before,), (after,) = evaluate_fusion(fusion, [x]), evaluate_fusion(made, [x])
    np.testing.assert_array_max_ulp(before, after, 1)


def test_what_is_no_term_of_the_sum_is_divided_by_any_number() -> None:
    found = ops(common_divisors(softmax_of(_half_softmax)))
    assert DIVIDE_BY_SUM.name not in found
    assert DIVIDE_BY_COMMON.name in found


def test_quotients_of_terms_are_rounded_once() -> None:
    text = FLOAT_FUNCTIONS["fuser_divide_by_sum"]
    assert "double q = a * r;\n  return fma(-fma(q, b, -a), r, q);" in text
    generator = np.random.default_rng(1)
    a = generator.uniform(0, 1, 40000) * 2.0 ** generator.integers(-900, 1, 40000)
    b = generator.uniform(1, 2, 40000) * 2.0 ** generator.integers(0, 40, 40000)
    a[:3], b[:3] = [0.0, 1.0, np.nan], [3.0, 1.0, 2.0]
    r = 1 / b
    q = a * r
    got = np.asarray(fma(-np.asarray(fma(q, b, -a)), r, q))
    exact = a.astype(np.longdouble) / b
    np.testing.assert_array_equal(got[:3], [0.0, 1.0, np.nan])
    assert np.max(np.abs(got - exact)[3:] / np.spacing(np.abs(exact[3:].astype(np.float64)))) < 0.51
