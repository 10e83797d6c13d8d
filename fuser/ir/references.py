"""Special functions that NumPy lacks, in float64: erf, erfc, erfinv, erfcinv, lgamma.

Vectorised, accurate to a few ulp of float64, and checked against SciPy and mpmath in tests. Any real dtype is
accepted: the arithmetic is float64 and the result is rounded to the dtype of the argument (longdouble arguments
therefore get no more than float64 accuracy).

Method: Chebyshev series of a smooth factor of each function, computed once with 50-digit arithmetic.
    erf(x)    = x * E(x**2)                              |x| <= 1
    erfc(x)   = exp(-x**2) * S(t) / (1 + 2*x)            x >= 0.5, t = (x - 3) / (x + 3)
    lgamma(x) = (x - 1) * (x - 2) * G(x)                 0.75 <= x <= 2.25
The inverses are Newton and Halley steps from an elementary start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

# Coefficients in T_0, T_1, ... of the mapped argument; `_ERF_OVER_X` of 2*x**2 - 1.
_ERF_OVER_X: Float64 = np.array(
    [
        0.975476939382654096,
        -0.1422612051037136424,
        0.01003558218759979558,
        -0.0005768764699767484765,
        0.00002741993125219606103,
        -1.10431755073445076e-6,
        3.848875542034503695e-8,
        -1.180858253387546697e-9,
        3.233421582605090965e-11,
        -7.991015947004548758e-13,
        1.799072511396145561e-14,
        -3.718635487818692638e-16,
        7.103599003714252971e-18,
    ]
)
_SCALED_ERFC: Float64 = np.array(
    [
        1.177562574196560046,
        0.005353904539615676769,
        -0.09377550342284209052,
        0.0543665255574432205,
        -0.01897659670784520739,
        0.00445342606146271157,
        -0.000633553171055314694,
        0.00001766171952317159185,
        0.00001284153286405667074,
        -2.007228565905991439e-6,
        -1.807522790414837053e-7,
        7.549828343825093254e-8,
        1.885668523838605852e-9,
        -2.699519049798362487e-9,
        -1.460079119939125991e-11,
        1.036160744596929908e-10,
        1.475715976620091314e-12,
        -4.277340064401379982e-12,
        -2.079224928648434093e-13,
        1.813450200267273933e-13,
        1.973425574098386258e-14,
        -7.287943740967859684e-15,
        -1.516987870925180736e-15,
        2.351411223737014732e-16,
        1.000611184142762395e-16,
        -2.057249784627145222e-18,
        -5.608603999857896904e-18,
    ]
)
_LGAMMA_QUOTIENT: Float64 = np.array(
    [
        0.5031836568008650782,
        -0.1210620673725012718,
        0.02091042535855245761,
        -0.004177992989316350256,
        0.0009002630239208575603,
        -0.0002028792728589347599,
        0.00004707206618277411502,
        -0.00001114555172234564606,
        2.678647139808519188e-6,
        -6.511750867977598339e-7,
        1.597447652327773043e-7,
        -3.948017821331451811e-8,
        9.818026931961620159e-9,
        -2.454479012485274213e-9,
        6.164112849015010637e-10,
        -1.554202666627941905e-10,
        3.93248343142550405e-11,
        -9.981136019707805859e-12,
        2.540421235872441697e-12,
        -6.482230781256435686e-13,
        1.657806013462776676e-13,
        -4.248589986683655374e-14,
        1.090889384802968929e-14,
        -2.805910611186575319e-15,
        7.228773472698541319e-16,
        -1.865092154919639769e-16,
        4.818744278140676048e-17,
        -1.246589142421538644e-17,
        3.228724077191804288e-18,
    ]
)

_HALF_LOG_2PI = 0.91893853320467274178
_LOG_PI = 1.1447298858494001741
_SQRT_PI = 1.7724538509055160273
# B(2k) / (2k * (2k - 1)): the asymptotic series of lgamma in 1/x.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def _in_float64(function: Callable[[Float64], Float64]) -> Callable[[Array], Array]:
    """Apply `function` in float64, without warnings, and round to the dtype of the argument."""

    def apply(x: Array) -> Array:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            return function(np.asarray(x, np.float64)).astype(x.dtype, copy=False)

    apply.__doc__ = function.__doc__
    apply.__name__ = function.__name__
    return apply


def _chebyshev(coefficients: Float64, t: Float64) -> Float64:
    """Clenshaw's recurrence for a Chebyshev series at `t` in [-1, 1]."""
    twice = 2 * t
    b1 = np.full_like(t, coefficients[-1])
    b2 = np.zeros_like(t)
    for c in coefficients[-2:0:-1]:
        b1, b2 = twice * b1 - b2 + c, b1
    return t * b1 - b2 + coefficients[0]


def _erf_near(x: Float64) -> Float64:
    """erf for |x| <= 1."""
    return x * _chebyshev(_ERF_OVER_X, 2 * (x * x) - 1)


def _scaled_erfc(x: Float64) -> Float64:
    """exp(x**2) * erfc(x) for x >= 0."""
    t = np.where(np.isinf(x), 1.0, (x - 3) / (x + 3))
    return _chebyshev(_SCALED_ERFC, t) / (1 + 2 * x)


def _exp_minus_square(x: Float64) -> Float64:
    """exp(-x**2), with the square split into an exact part and a small one: its rounding error would be amplified."""
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(-high * high) * np.exp(-(x - high) * (x + high))


def _erfc_far(x: Float64) -> Float64:
    """erfc for x >= 0.5; 0 beyond the smallest subnormal."""
    bounded = np.minimum(x, 30.0)
    return _exp_minus_square(bounded) * _scaled_erfc(bounded)


@_in_float64
def erf(x: Float64) -> Float64:
    """2/sqrt(pi) times the integral of exp(-t**2) from 0 to x."""
    magnitude = np.abs(x)
    near = magnitude <= 1
    result = np.copysign(1 - _erfc_far(np.maximum(magnitude, 1.0)), x)
    return np.where(near, _erf_near(np.where(near, x, 0.0)), result)


@_in_float64
def erfc(x: Float64) -> Float64:
    """1 - erf(x), without cancellation for positive x."""
    magnitude = np.abs(x)
    near = magnitude < 0.5
    far = _erfc_far(np.maximum(magnitude, 0.5))
    return np.where(near, 1 - _erf_near(np.where(near, x, 0.0)), np.where(x < 0, 2 - far, far))


def _erfinv_near(x: Float64) -> Float64:
    """erfinv for |x| <= 0.5: a start from x + pi/12 x**3, then Halley steps."""
    y = x * (_SQRT_PI / 2) * (1 + (np.pi / 12) * x * x)
    for _ in range(3):
        step = (_erf_near(y) - x) * (_SQRT_PI / 2) * np.exp(y * y)
        y = y - step / (1 + y * step)
    return y


def _erfcinv_far(q: Float64) -> Float64:
    """y with erfc(y) = q for 0 < q <= 0.5: Newton's method on the logarithm, which is nearly a parabola."""
    log_q = np.log(q)
    # Start: an elementary approximation of erfinv with relative error 2e-3.
    half = np.log(q * (2 - q)) / 2
    a = 0.147
    shift = 2 / (np.pi * a) + half
    y = np.sqrt(np.sqrt(shift * shift - 2 * half / a) - shift)
    for _ in range(4):
        scaled = _scaled_erfc(y)
        residual = (np.log(scaled) - y * y) - log_q
        y = y + residual * scaled * (_SQRT_PI / 2)
    return y


def _erfcinv_all(near: Float64, q: Float64) -> Float64:
    """Inverse where `near` = 1 - q is known exactly for |near| <= 0.5 and `q` for the tail q <= 0.5."""
    is_near = np.abs(near) <= 0.5
    in_tail = (q > 0) & (q < 0.5)
    y = np.where(in_tail, _erfcinv_far(np.where(in_tail, q, 0.25)), np.where(q == 0, np.inf, np.nan))
    return np.where(is_near, _erfinv_near(np.where(is_near, near, 0.0)), y)


@_in_float64
def erfinv(x: Float64) -> Float64:
    """Inverse of erf on [-1, 1]; +-1 gives +-inf, outside nan."""
    magnitude = np.abs(x)
    return np.copysign(_erfcinv_all(magnitude, 1 - magnitude), x)


@_in_float64
def erfcinv(x: Float64) -> Float64:
    """Inverse of erfc on [0, 2]; 0 gives inf, 2 gives -inf, outside nan."""
    upper = x > 1
    tail = np.where(upper, 2 - x, x)
    y = _erfcinv_all(np.where(upper, x - 1, 1 - x), tail)
    return np.where(upper, -y, y)


def _lgamma_near(x: Float64, less_one: Float64, less_two: Float64) -> Float64:
    """lgamma for 0.75 <= x <= 2.25, given x - 1 and x - 2 without rounding."""
    return less_one * less_two * _chebyshev(_LGAMMA_QUOTIENT, (x - 1.5) / 0.75)


def _lgamma_stirling(x: Float64) -> Float64:
    """lgamma for x >= 10."""
    inverse = 1 / x
    square = inverse * inverse
    series = np.full_like(x, _STIRLING[-1])
    for c in _STIRLING[-2::-1]:
        series = series * square + c
    return (x - 0.5) * (np.log(x) - 1) + (_HALF_LOG_2PI - 0.5) + series * inverse


def _lgamma_positive(x: Float64) -> Float64:
    """lgamma for x > 0."""
    small = x < 0.75
    middle = ~small & (x < 10)
    # Middle: x = y + n with 1.25 < y <= 2.25 (or y = x), the factors between them collected in one product.
    # Subtracting whole numbers is exact here.
    n = np.where(middle, np.maximum(np.ceil(x - 2.25), 0.0), 0.0)
    y = np.where(middle, x - n, 1.0)
    product = np.ones_like(x)
    for k in range(8):
        product = np.where(k < n, product * (y + k), product)
    near = _lgamma_near(np.where(small, 1 + x, y), np.where(small, x, y - 1), np.where(small, x - 1, y - 2))
    large = _lgamma_stirling(np.maximum(x, 10.0))
    large = np.where(np.isinf(x), np.inf, large)
    return np.where(small, near - np.log(x), np.where(middle, near + np.log(product), large))


@_in_float64
def lgamma(x: Float64) -> Float64:
    """log(abs(gamma(x))); +inf at 0, at negative whole numbers and at both infinities.

    Negative x by reflection: there the error is absolute (about 1e-15), because lgamma has zeros between the poles.
    """
    negative = x < 0
    forward = _lgamma_positive(np.where(negative, 1 - x, x))
    if not negative.any():
        return forward
    fraction = x - np.rint(x)
    log_sine = np.where(
        np.abs(fraction) < 1e-10, np.log(np.abs(fraction)), np.log(np.abs(np.sin(np.pi * fraction))) - _LOG_PI
    )
    reflected = -log_sine - forward
    reflected = np.where((fraction == 0) | np.isinf(x), np.inf, reflected)
    return np.where(negative, reflected, forward)
