"""Pointwise ops that lose less: what rounding a product loses, sums of products, what was lost before, sums that cancel.

They are rows as those of the op table in every respect, and no ops of the front end. `product` is for what is also added to
something: the compiler contracts a plain product and a sum to one rounding, so that what it loses would not be what it lost.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.cuda_spelling import CudaRule, spelled
from fuser.ir.numpy_functions import Array, NumpyFunction
from fuser.ir.op_table import PointwiseOp, Samples
from fuser.ir.pointwise_op import DtypeRule

_WIDE = Samples(-100.0, 100.0, specials=False)
_WHOLE = Samples(-100.0, 100.0)
_ONE = Samples(1.0, 1.0, specials=False)


def float_row(
    name: str,
    doc: str,
    numpy: NumpyFunction,
    cuda: CudaRule,
    ulp: tuple[float, float] | None = None,
    *,
    magnitude: NumpyFunction | None = None,
    **samples: Samples,
) -> PointwiseOp:
    """A row of an op on floating types: `samples` by operand. Without bounds in `ulp` its results are exact."""
    return PointwiseOp(
        name,
        len(samples),
        DtypeRule.FLT,
        doc,
        numpy,
        cuda,
        kinds="f",
        ulp=(0.0, 0.0) if ulp is None else ulp,
        exact=ulp is None,
        magnitude=magnitude,
        samples=tuple(samples.values()),
        parameters=tuple(samples),
    )


def _product_error(a: Array, b: Array) -> Array:
    """What rounding a product loses, by splitting both factors (Dekker 1971)."""
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            wide = a.astype(np.float64) * b.astype(np.float64)
            return np.asarray(wide - np.asarray(a * b, np.float64), a.dtype)
        p = a * b
        (ah, al), (bh, bl) = _halves(a), _halves(b)
        return np.asarray(al * bl - (((p - ah * bh) - al * bh) - ah * bl), a.dtype)


def _halves(x: Array) -> tuple[Array, Array]:
    scaled = x * x.dtype.type(2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c: through a wider type, or from the errors of the product and of the sum (Knuth's TwoSum)."""
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            return np.asarray(a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64), a.dtype)
        p = np.asarray(a * b)
        s = np.asarray(p + c)
        z = s - p
        exact = np.asarray(s + ((p - (s - z)) + (c - z) + _product_error(a, b)), s.dtype)
        return np.where(np.isfinite(exact), exact, s)


def _product(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a * b)


def _total(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a + b)


def _bounded(x: Array) -> Array:
    largest = np.finfo(x.dtype).max
    return np.asarray(np.where(np.isnan(x), largest, np.clip(x, -largest, largest)), x.dtype)


def _divisor_scale(x: Array) -> Array:
    return np.asarray(np.where(np.abs(x) < 2.0**-500, 2.0**500, 1.0), x.dtype)


def _scaled_divisor(x: Array) -> Array:
    return np.asarray(x * _divisor_scale(x))


def _divide_by_common(a: Array, scale: Array, scaled: Array, reciprocal: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a * scale / scaled)


def _divide_by_sum(a: Array, total: Array, reciprocal: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(a / total)


def _one_plus_tanh(x: Array) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(-2 * np.abs(x))
        return np.asarray(np.where(x < 0, 2 * e, 2) / (1 + e), x.dtype)


# fmt: off
PRODUCT_ERROR = float_row(
    "product_error", "a * b before it is rounded less a * b; exact where that is no subnormal number.",
    _product_error, spelled(floating="fuser_product_error({0}, {1})"), a=_WIDE, b=_WIDE,
)
PRODUCT = float_row(
    "product", "a * b, rounded whatever it is added to.",
    _product, spelled(floating=("__fmul_rn({0}, {1})", "__dmul_rn({0}, {1})")), a=_WIDE, b=_WIDE,
)
TOTAL = float_row(
    "total", "a + b, computed where it stands: values of a row that were added before are not kept for it.",
    _total, spelled(floating=("__fadd_rn({0}, {1})", "__dadd_rn({0}, {1})")), a=_WIDE, b=_WIDE,
)
FMA = float_row(
    "fma", "a * b + c, rounded once.",
    _fma, spelled(floating=("fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})")), (1.0, 1.0), a=_WHOLE, b=_WHOLE, c=_WHOLE,
)
BOUNDED = float_row(
    "bounded", "x, the largest number where that is infinite or nan, of either sign.",
    _bounded, spelled(floating="fuser_bounded({0})"), x=_WIDE,
)
REST_OF = float_row(
    "rest_of", "What rounding lost of x, 0 where nothing is known of it.",
    np.zeros_like, spelled(floating=("0.0f", "0.0")), x=_WIDE,
)
DIVISOR_SCALE = float_row(
    "divisor_scale", "A power of two with which a Double has a reciprocal that is finite; 1 for all but very small ones.",
    _divisor_scale, spelled(floating=("1.0f", "fuser_divisor_scale({0})")), x=_WIDE,
)
SCALED_DIVISOR = float_row(
    "scaled_divisor", "x * divisor_scale(x).",
    _scaled_divisor, spelled(floating=("{0}", "fuser_scaled_divisor({0})")), x=_WIDE,
)
DIVIDE_BY_COMMON = float_row(
    "divide_by_common", "a * scale / scaled, with the reciprocal of the divisor at hand.",
    _divide_by_common, spelled(floating=("({0} * {1} / {2})", "fuser_divide_by_common({0}, {1}, {2}, {3})")), (1.0, 1.0),
    a=Samples(), scale=_ONE, scaled=_ONE, reciprocal=_ONE,
)
DIVIDE_BY_SUM = float_row(
    "divide_by_sum", "a / total of what is one of the terms of a total from 1 on, or nan, with the reciprocal of that at hand.",
    _divide_by_sum, spelled(floating=("({0} / {1})", "fuser_divide_by_sum({0}, {1}, {2})")), (1.0, 1.0),
    a=Samples(0.0, 1.0, specials=False), total=_ONE, reciprocal=_ONE,
)
ONE_PLUS_TANH = float_row(
    "one_plus_tanh", "1 + tanh(x) without cancellation.",
    _one_plus_tanh, spelled(floating=("(2.0f / (1.0f + expf(-2.0f * {0})))", "fuser_one_plus_tanh({0})")), (6.0, 4.0),
    x=Samples(),
)
# fmt: on

_DIVISION = (DIVISOR_SCALE, SCALED_DIVISOR, DIVIDE_BY_COMMON, DIVIDE_BY_SUM)
EXACT: dict[str, PointwiseOp] = {
    row.name: row for row in (PRODUCT_ERROR, PRODUCT, TOTAL, FMA, BOUNDED, REST_OF, ONE_PLUS_TANH, *_DIVISION)
}
"""Every one by name."""

_IS_SMALL = f"fd.ops.lt(fd.ops.abs({{0}}), {2.0**-500!r})"

EXACT_DEFINITIONS: dict[str, str] = {
    FMA.name: "add(fd.ops.mul({0}, {1}), {2})",
    PRODUCT.name: "mul({0}, {1})",
    ONE_PLUS_TANH.name: "add(fd.ops.tanh({0}), 1.00000)",
    REST_OF.name: "mul({0}, 0.00000)",
    DIVISOR_SCALE.name: f"where({_IS_SMALL}, {2.0**500!r}, 1.00000)",
    SCALED_DIVISOR.name: f"where({_IS_SMALL}, fd.ops.mul({{0}}, {2.0**500!r}), {{0}})",
    DIVIDE_BY_COMMON.name: "truediv(fd.ops.mul({0}, {1}), {2})",
    DIVIDE_BY_SUM.name: "truediv({0}, {1})",
}
"""What those that stand in fusions stand for, as calls of `fd.ops`."""
