"""The special functions that NumPy lacks, against SciPy over wide ranges and mpmath at hard places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fuser.ir.ops import references

Array = npt.NDArray[np.float64]
special: Any = pytest.importorskip("scipy.special")


def ulps(got: Array, want: Array) -> Array:
    """Distance in ulps of `want`; equal values, infinities and nan count as 0."""
    with np.errstate(all="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return np.where(same, 0.0, np.abs(got - want) / np.spacing(np.abs(want)))


def _everywhere(low: float, high: float) -> Array:
    rng = np.random.default_rng(0)
    signs = np.where(rng.random(20000) < 0.5, -1.0, 1.0)
    spread = signs * 10.0 ** rng.uniform(-300, 2, 20000)
    return np.concatenate([rng.uniform(low, high, 20000), spread[(spread > low) & (spread < high)]])


# SciPy loses ulps where it squares the argument of erfc and far out in lgamma; mpmath judges those places below.
@pytest.mark.parametrize(
    ("name", "low", "high", "bound"),
    [
        ("erf", -7.0, 7.0, 3),
        ("erfc", -7.0, 3.0, 16),
        ("erfinv", -1.0, 1.0, 6),
        ("erfcinv", 0.0, 2.0, 6),
        ("lgamma", 0.0, 100.0, 40),
    ],
)
def test_agrees_with_scipy(name: str, low: float, high: float, bound: float):
    x = _everywhere(low, high)
    scipy_name = {"lgamma": "gammaln"}.get(name, name)
    want = getattr(special, scipy_name)(x)
    got = getattr(references, name)(x)
    if name == "lgamma":  # near its zeros at 1 and 2 SciPy loses relative accuracy; mpmath judges those
        keep = (np.abs(x - 1) > 0.1) & (np.abs(x - 2) > 0.1)
        got, want = got[keep], want[keep]
    error = ulps(got, want)
    assert error.max() <= bound, (x[error.argmax()], error.max())


def _exact(function: Callable[[Any], Any], x: Array, digits: int) -> Array:
    import mpmath

    with mpmath.workdps(digits):
        return np.array([float(function(mpmath.mpf(float(v)))) for v in x])


@pytest.mark.parametrize(
    ("name", "points", "digits", "bound"),
    [
        ("erf", np.linspace(-1.2, 1.2, 301), 30, 2),
        ("erfc", np.linspace(0.3, 27.2, 301), 30, 3),
        ("erfinv", np.concatenate([np.linspace(-0.999, 0.999, 101), 1 - 2.0 ** -np.arange(2.0, 53.0)]), 40, 3),
        ("erfcinv", np.concatenate([np.linspace(0.01, 1.99, 50), 10.0 ** -np.arange(2.0, 40.0, 4.0)]), 100, 3),
        ("lgamma", np.concatenate([np.linspace(0.01, 12, 400), 1 + 10.0 ** -np.arange(1.0, 12.0)]), 40, 3),
        ("lgamma", 2 - 10.0 ** -np.arange(1.0, 12.0), 40, 3),
        ("lgamma", np.linspace(-2.2, -0.05, 101), 40, 4),
        ("lgamma", 10.0 ** np.arange(-300.0, 305.0, 25.0), 40, 3),
    ],
)
def test_accurate_to_a_few_ulp(name: str, points: Array, digits: int, bound: float):
    import mpmath

    exact: dict[str, Callable[[Any], Any]] = {
        "erf": mpmath.erf,
        "erfc": mpmath.erfc,
        "erfinv": mpmath.erfinv,
        "erfcinv": lambda x: mpmath.erfinv(1 - x),
        "lgamma": lambda x: mpmath.loggamma(x).real,
    }
    error = ulps(getattr(references, name)(points), _exact(exact[name], points, digits))
    assert error.max() <= bound, (points[error.argmax()], error.max())


_INF, _NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("erf", [(0.0, 0.0), (-0.0, -0.0), (_INF, 1.0), (-_INF, -1.0), (_NAN, _NAN), (5e-324, 5e-324)]),
        ("erfc", [(0.0, 1.0), (_INF, 0.0), (-_INF, 2.0), (_NAN, _NAN), (28.0, 0.0), (-10.0, 2.0)]),
        ("erfinv", [(0.0, 0.0), (-0.0, -0.0), (1.0, _INF), (-1.0, -_INF), (1.5, _NAN), (-_INF, _NAN), (_NAN, _NAN)]),
        ("erfcinv", [(1.0, 0.0), (0.0, _INF), (2.0, -_INF), (-0.5, _NAN), (3.0, _NAN), (_NAN, _NAN)]),
        (
            "lgamma",
            [
                (1.0, 0.0),
                (2.0, 0.0),
                (0.0, _INF),
                (-0.0, _INF),
                (-3.0, _INF),
                (_INF, _INF),
                (-_INF, _INF),
                (_NAN, _NAN),
            ],
        ),
    ],
)
def test_special_values(name: str, pairs: list[tuple[float, float]]):
    x, want = np.array(pairs).T
    got = getattr(references, name)(x)
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "erfcinv", "lgamma"])
def test_keeps_the_dtype_and_the_shape(name: str):
    function = getattr(references, name)
    for dtype in (np.float32, np.float64, np.longdouble):
        result = function(np.full((2, 3), 0.25, dtype))
        assert result.dtype == dtype
        assert result.shape == (2, 3)
    assert function(np.float64(0.25)).shape == ()
    assert function(np.empty((0, 2))).shape == (0, 2)
    single = function(np.array([0.3], np.float32))
    assert single[0] == np.float32(function(np.array([np.float32(0.3)], np.float64))[0])


def test_inverses_invert():
    x = np.linspace(-0.99, 0.99, 999)
    np.testing.assert_allclose(references.erf(references.erfinv(x)), x, rtol=1e-15, atol=1e-16)
    q = 10.0 ** np.linspace(-300, 0, 301)
    # The relative error of erfc is that of its argument, magnified by 2 y**2.
    np.testing.assert_allclose(references.erfc(references.erfcinv(q)), q, rtol=1e-12)
