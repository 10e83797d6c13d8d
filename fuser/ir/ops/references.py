"""Special functions that NumPy lacks, in float64: erf, erfc, erfinv, erfcinv, lgamma.

Vectorised, accurate to a few ulp of float64, and checked against SciPy and mpmath in tests. Any real dtype is
accepted: the arithmetic is float64 and the result is rounded to the dtype of the argument (longdouble arguments
therefore get no more than float64 accuracy).

Method: a Chebyshev approximation of a smooth factor of each function, computed once with 50-digit arithmetic and
written out in powers.
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
Series = Callable[[Float64], Float64]

# Coefficients in ascending powers: of x**2; of t; of (x - 1.5) / 0.75.
_ERF_OVER_X = (
    1.128379167095512574,
    -0.3761263890318374812,
    0.1128379167095488157,
    -0.0268661706450773342,
    0.005223977624823222568,
    -0.0008548326981129665996,
    0.0001205533112229926526,
    -0.00001492559551950604345,
    1.646100448096203468e-6,
    -1.635035446195965564e-7,
    1.466005199839484768e-8,
    -1.137390229643091163e-9,
    5.958930743134941219e-11,
)
_SCALED_ERFC = (
    1.253008058269729653,
    -0.1356211061245812099,
    -0.04756229435345109239,
    0.1296451587027647412,
    -0.1192736634152802244,
    0.0683080273438451592,
    -0.0237705149195068497,
    0.00252939181804746371,
    0.001888690371690747059,
    -0.0007798322884822832479,
    -0.0001051599010871872932,
    0.0001250994355711530088,
    4.949988661759739885e-6,
    -0.00002010084309442068178,
    -7.331432582162643051e-7,
    3.473024166903544186e-6,
    3.603910894212089124e-7,
    -6.175617665007299445e-7,
    -1.468317504997103812e-7,
    1.027799734959738165e-7,
    4.695094248050574529e-8,
    -1.390614491570944974e-8,
    -1.173446157155764096e-8,
    1.201971625153024927e-9,
    2.06263138835198375e-9,
    -3.451492400264309485e-11,
    -1.881935215281598113e-10,
)
_LGAMMA_QUOTIENT = (
    0.4831289505409808896,
    -0.109469921935729539,
    0.03538766310444268721,
    -0.01320826816449215511,
    0.005314706988780687698,
    -0.002236744389497916504,
    0.0009693524823916110691,
    -0.0004287601347308634504,
    0.0001925087431594159092,
    -0.00008742966862671160608,
    0.00004006829189655269864,
    -0.00001849896585172225695,
    8.593231081943657507e-6,
    -4.011643235106825202e-6,
    1.881337443451298102e-6,
    -8.887466366397435539e-7,
    4.205954976756347754e-7,
    -1.928184997038071958e-7,
    9.04807638737998971e-8,
    -5.362691230630418737e-8,
    2.700358982733566195e-8,
    -8.966953205990478223e-10,
    -7.325568312851066319e-10,
    -9.152512583357478379e-9,
    5.033645148223075916e-9,
    2.517754338229221654e-9,
    -1.416561797794460133e-9,
    -8.365718122264366753e-10,
    4.333520099795805917e-10,
)

_HALF_LOG_2PI = 0.91893853320467274178
_LOG_PI = 1.1447298858494001741
_SQRT_PI = 1.7724538509055160273
# B(2k) / (2k * (2k - 1)): the asymptotic series of lgamma in 1/x.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


_BLOCK = 8192  # elements whose intermediate arrays stay in the second-level cache


def _in_float64(function: Series) -> Callable[[Array], Array]:
    """Apply `function` in float64, without warnings, block by block, and round to the dtype of the argument."""

    def apply(x: Array) -> Array:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            if x.size <= _BLOCK:
                return function(np.asarray(x, np.float64)).astype(x.dtype, copy=False)
            flat = x.reshape(-1)
            result = np.empty(flat.shape, x.dtype)
            for start in range(0, flat.size, _BLOCK):
                part = slice(start, start + _BLOCK)
                result[part] = function(flat[part].astype(np.float64))
            return result.reshape(x.shape)

    apply.__doc__ = function.__doc__
    apply.__name__ = function.__name__
    return apply


def _polynomial(coefficients: tuple[float, ...], t: Float64) -> Float64:
    """Horner's scheme in place: erf is used in simulated kernels, where speed counts."""
    result = np.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= t
        result += c
    return result


def _split(condition: npt.NDArray[np.bool_], x: Float64, yes: Series, no: Series) -> Float64:
    """`yes(x)` where the condition holds, `no(x)` elsewhere; each evaluated only there."""
    if condition.all():
        return yes(x)
    if not condition.any():
        return no(x)
    result = np.empty_like(x)
    result[condition] = yes(x[condition])
    result[~condition] = no(x[~condition])
    return result


def _erf_near(x: Float64) -> Float64:
    """erf for |x| <= 1."""
    return x * _polynomial(_ERF_OVER_X, x * x)


def _scaled_erfc(x: Float64) -> Float64:
    """exp(x**2) * erfc(x) for x >= 0."""
    t = np.where(np.isinf(x), 1.0, (x - 3) / (x + 3))
    return _polynomial(_SCALED_ERFC, t) / (1 + 2 * x)


def _exp_minus_square(x: Float64) -> Float64:
    """exp(-x**2), with the square split into an exact part and a small one: its rounding error would be amplified."""
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(-high * high) * np.exp(-(x - high) * (x + high))


def _erfc_far(x: Float64) -> Float64:
    """erfc for x >= 0.5; 0 beyond the smallest subnormal."""
    bounded = np.minimum(x, 30.0)
    return _exp_minus_square(bounded) * _scaled_erfc(bounded)


def _erfc_signed(x: Float64) -> Float64:
    """erfc for |x| >= 0.5."""
    far = _erfc_far(np.abs(x))
    return np.where(x < 0, 2 - far, far)


@_in_float64
def erf(x: Float64) -> Float64:
    """2/sqrt(pi) times the integral of exp(-t**2) from 0 to x."""
    # A nan is not near; it goes through the exponential.
    return _split(np.abs(x) <= 1, x, _erf_near, lambda far: np.copysign(1 - _erfc_far(np.abs(far)), far))


@_in_float64
def erfc(x: Float64) -> Float64:
    """1 - erf(x), without cancellation for positive x."""
    return _split(np.abs(x) < 0.5, x, lambda near: 1 - _erf_near(near), _erfc_signed)


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
    return less_one * less_two * _polynomial(_LGAMMA_QUOTIENT, (x - 1.5) / 0.75)


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
