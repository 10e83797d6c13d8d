"""Pointwise ops of rewrites that are exact: quotients by what many elements have in common, a sum that would cancel.

They are rows as those of the op table in every respect, and no ops of the front end.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.ops.cuda_spelling import CudaRule, spelled
from fuser.ir.ops.numpy_functions import Array, NumpyFunction
from fuser.ir.ops.op_table import PointwiseOp, Samples
from fuser.ir.ops.pointwise_op import DtypeRule

_WIDE = Samples(-100.0, 100.0, specials=False)
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
EXACT: dict[str, PointwiseOp] = {row.name: row for row in (ONE_PLUS_TANH, *_DIVISION)}
"""Every one by name."""

_IS_SMALL = f"fd.ops.lt(fd.ops.abs({{0}}), {2.0**-500!r})"

EXACT_DEFINITIONS: dict[str, str] = {
    ONE_PLUS_TANH.name: "add(fd.ops.tanh({0}), 1.00000)",
    DIVISOR_SCALE.name: f"where({_IS_SMALL}, {2.0**500!r}, 1.00000)",
    SCALED_DIVISOR.name: f"where({_IS_SMALL}, fd.ops.mul({{0}}, {2.0**500!r}), {{0}})",
    DIVIDE_BY_COMMON.name: "truediv(fd.ops.mul({0}, {1}), {2})",
    DIVIDE_BY_SUM.name: "truediv({0}, {1})",
}
"""What those that stand in fusions stand for, as calls of `fd.ops`."""
