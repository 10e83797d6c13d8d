"""Pointwise ops that the optimizer puts in: mostly such with an error above that of a float, where it does not show.

Grammar
    table    := APPROXIMATE: name -> ApproximateOp; ROUND_TO_BFLOAT16, EXP_OF_NEGATIVE, LOG1P_OF_FRACTION, POW_OF_POSITIVE:
                PointwiseOp
                ROWS: name -> PointwiseOp, those of the op table and of `exact_ops.py`, too
    ApproximateOp := row, error, definition

Rows are those of the op table in every respect: dtype rule, NumPy semantics (of the exact function), CUDA text for Float and a
bound in ulp. They are no ops of the front end, and a definition prints what they stand for.

Errors are relative; a result below 2**-126 may be off by 2**-142 besides, that of coarse_one_plus_tanh by 2**-126. Where that
is so, 1 + tanh(x) in Float has been 0 for long: it is so from x = -9. coarse_exp_of_negative is for sums of at least 1 only.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fuser.ir.ops import numpy_functions as npf
from fuser.ir.ops.cuda_spelling import ConstantRule, CudaRule, CudaSpelling, cuda_literal, raised_to_constant, spelled
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.exact_ops import EXACT, EXACT_DEFINITIONS, float_row
from fuser.ir.ops.numpy_functions import Array, numpy_cast
from fuser.ir.ops.op_table import POINTWISE, PointwiseOp, Samples
from fuser.records import record


@record
class ApproximateOp:
    """What stands for ops of the op table.

    error       largest relative error of the result, for operands without an error
    definition  what it stands for, as calls of `fd.ops`, `{0}` for the operands
    least       the smallest operand that it is for
    """

    row: PointwiseOp
    error: float
    definition: str
    least: float = -math.inf


_NEGATIVE = Samples(-80.0, 0.0, specials=False)
COARSE_FORM, NEAR = "coarse", "near"
"""What names of approximate ops begin with: `near` ones are off by at most twice what a correctly rounded result may be, and
stand for it wherever no comparison or integer depends on it."""


def _text(template: str) -> CudaRule:
    def rule(dtype: DataType) -> CudaSpelling:
        if dtype is not DataType.Float:
            raise TypeError(f"approximate ops have no CUDA text for compute dtype {dtype.name}")
        return CudaSpelling(template)

    return rule


def _times_reciprocal(dtype: DataType, divisor: float) -> CudaSpelling | None:
    # The reciprocal is a normal float, rounded as the product is.
    if dtype is not DataType.Float or not 2.0**-60 <= abs(divisor) <= 2.0**60:
        return None
    return CudaSpelling(f"({{0}} * {cuda_literal(1 / divisor, dtype)})")


def _approximate(
    op: str,
    template: str,
    error: float,
    *,
    constant: ConstantRule | None = None,
    prefix: str = COARSE_FORM,
    least: float = -math.inf,
) -> ApproximateOp:
    """An approximate form of the op `op`."""
    exact = POINTWISE[op]
    row = PointwiseOp(
        f"{prefix}_{op}",
        exact.arity,
        exact.rule,
        exact.doc,
        exact.numpy,
        _text(template),
        kinds="f",
        ulp=(error * 2.0**24, 0.0),
        samples=exact.samples if least < 0 else (Samples(0.0, 50.0, specials=False),),
        parameters=exact.parameters,
        constant=constant,
    )
    operands = ", ".join(f"{{{i}}}" for i in range(exact.arity))
    return ApproximateOp(row, error, f"{op}({operands})", least)


def _one_plus_tanh(x: Array) -> Array:
    # 2 / (1 + exp(-2 x)): the sum would cancel where tanh is near -1.
    with np.errstate(all="ignore"):
        return np.asarray(npf.sigmoid(2 * x) * 2, x.dtype)


def _unflushed(x: Array) -> Array:
    # The bound in ulps of this is 2**-125, which covers what the reciprocal flushes.
    return np.maximum(_one_plus_tanh(x), x.dtype.type(2.0**-110))


_ONE_PLUS_TANH = float_row(
    "coarse_one_plus_tanh",
    "1 + tanh(x) without cancellation; 0 below 2**-126.",
    _one_plus_tanh,
    _text("fuser_coarse_one_plus_tanh({0})"),
    (2.0**8, 0.0),
    magnitude=_unflushed,
    x=Samples(),
)


def _large_exp(x: Array) -> Array:
    # The bound in ulps of this is more than 2**-126, which covers what is flushed.
    with np.errstate(all="ignore"):
        return np.maximum(np.exp(x), x.dtype.type(2.0**-105))


# Where terms of a sum that is 1 or more are all that it is for.
_EXP_OF_NEGATIVE = float_row(
    "coarse_exp_of_negative",
    "exp(x) for x <= 0; 0 below 2**-126.",
    POINTWISE["exp"].numpy,
    _text("fuser_coarse_exp_of_negative({0})"),
    (12.0, 0.0),
    magnitude=_large_exp,
    x=Samples(-100.0, 0.0, -100, 0, specials=False),
)

APPROXIMATE: dict[str, ApproximateOp] = {
    op.row.name: op
    for op in (
        _approximate("exp", "fuser_coarse_exp({0})", 2.0**-16),
        _approximate("log1p", "fuser_coarse_log1p({0})", 2.0**-15, least=0.0),
        _approximate("sigmoid", "fuser_coarse_sigmoid({0})", 2.0**-16),
        _approximate("silu", "fuser_coarse_silu({0})", 2.0**-16),
        _approximate("div", "fuser_coarse_divide({0}, {1})", 2.0**-21, constant=_times_reciprocal),
        _approximate("truediv", "fuser_coarse_divide({0}, {1})", 2.0**-21, constant=_times_reciprocal),
        _approximate("reciprocal", "fuser_coarse_divide(1.0f, {0})", 2.0**-21),
        _approximate("div", "fuser_near_divide({0}, {1})", 2.0**-23, constant=_times_reciprocal, prefix=NEAR),
        _approximate("truediv", "fuser_near_divide({0}, {1})", 2.0**-23, constant=_times_reciprocal, prefix=NEAR),
        _approximate("reciprocal", "fuser_near_reciprocal({0})", 2.0**-23, prefix=NEAR),
        _approximate("sqrt", "fuser_near_sqrt({0})", 2.0**-23, prefix=NEAR),
        ApproximateOp(_EXP_OF_NEGATIVE, 2.0**-20.5, "exp({0})"),
        ApproximateOp(_ONE_PLUS_TANH, 2.0**-16, "add(fd.ops.tanh({0}), 1.00000)"),
    )
}
"""Every approximate op by name."""


def _rounded(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(numpy_cast(numpy_cast(x, DataType.BFloat16), DataType.Float), x.dtype)


ROUND_TO_BFLOAT16 = float_row(
    "round_to_bfloat16",
    "The nearest number of BFloat16, as a Float.",
    _rounded,
    _text("fuser_round_to_bfloat16({0})"),
    x=Samples(),
)


# What operands that are known to lie in a range allow (`optimize/use_ranges.py`).
EXP_OF_NEGATIVE = float_row(
    "exp_of_negative",
    "exp(x), x <= 0.",
    POINTWISE["exp"].numpy,
    spelled(floating=("fuser_exp({0})", "fuser_exp_of_negative({0})")),
    (2.0, 1.2),
    x=_NEGATIVE,
)
LOG1P_OF_FRACTION = float_row(
    "log1p_of_fraction",
    "log(1 + x), 0 <= x <= 1.",
    POINTWISE["log1p"].numpy,
    spelled(floating=("fuser_log1p_of_fraction({0})", "log1p({0})")),
    (1.0, 1.0),
    x=Samples(0.0, 1.0, specials=False),
)


def _power_of_positive(dtype: DataType, exponent: float) -> CudaSpelling | None:
    by_products = raised_to_constant(dtype, exponent)
    if by_products is not None or dtype is not DataType.Float or not abs(exponent) <= _LARGEST_EXPONENT:
        return by_products
    return CudaSpelling(f"fuser_pow_of_positive({{0}}, {cuda_literal(exponent, dtype)})")


_LARGEST_EXPONENT = 3.0
POW_OF_POSITIVE = replace(
    float_row(
        "pow_of_positive",
        "x to the power y, x >= 0.",
        POINTWISE["pow"].numpy,
        spelled(floating=("powf({0}, {1})", "pow({0}, {1})")),
        POINTWISE["pow"].ulp,
        x=Samples(0.0, 8.0, specials=False),
        y=Samples(-3.0, 3.0, specials=False),
    ),
    constant=_power_of_positive,
)

DEFINITIONS: dict[str, str] = {
    **{name: op.definition for name, op in APPROXIMATE.items()},
    ROUND_TO_BFLOAT16.name: "cast(fd.ops.cast({0}, dtype=DataType.BFloat16), dtype=DataType.Float)",
    EXP_OF_NEGATIVE.name: "exp({0})",
    LOG1P_OF_FRACTION.name: "log1p({0})",
    POW_OF_POSITIVE.name: "pow({0}, {1})",
    **EXACT_DEFINITIONS,
}
"""What ops that are no ops of the front end stand for, as calls of `fd.ops` with `{0}` for the operands."""


def _add_exp_summand(total: Array, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(total + np.exp(x), total.dtype)


# Lowering alone uses these, in Float and Double. In Float the rounding of the product is worth |x| 2**-24 of a summand that is
# exp(-|x|) of the largest, and results below 2**-126 are 0; in Double those below 2**-1022.
_SUMS_OF_EXPONENTIALS = (
    float_row(
        "exp_summand",
        "exp(x), x <= 0, of what is added to a sum of at least 1.",
        POINTWISE["exp"].numpy,
        spelled(floating=("fuser_exp2_approx({0} * 1.44269504f)", "fuser_exp_summand({0})")),
        (130.0, 1.2),
        x=_NEGATIVE,
    ),
    float_row(
        "add_exp_summand",
        "total + exp(x), x <= 0, of a total that is at least 1 in the end.",
        _add_exp_summand,
        spelled(floating=("({0} + fuser_exp2_approx({1} * 1.44269504f))", "fuser_add_exp({0}, {1})")),
        (130.0, 2.0),
        total=Samples(0.0, 4.0, specials=False),
        x=_NEGATIVE,
    ),
    float_row(
        "largest",
        "Larger operand; nan if either is nan. Zeros are equal: either may be the result.",
        POINTWISE["maximum"].numpy,
        spelled(floating=("fuser_max({0}, {1})", "fuser_largest({0}, {1})")),
        (0.0, 0.0),
        a=Samples(),
        b=Samples(),
    ),
)


ROWS: dict[str, PointwiseOp] = {
    **POINTWISE,
    **{name: op.row for name, op in APPROXIMATE.items()},
    ROUND_TO_BFLOAT16.name: ROUND_TO_BFLOAT16,
    EXP_OF_NEGATIVE.name: EXP_OF_NEGATIVE,
    LOG1P_OF_FRACTION.name: LOG1P_OF_FRACTION,
    POW_OF_POSITIVE.name: POW_OF_POSITIVE,
    **{op.name: op for op in _SUMS_OF_EXPONENTIALS},
    **EXACT,
}
"""Every row that an expr of a fusion or a call of a kernel may name."""


def in_fusion(row: PointwiseOp) -> PointwiseOp:
    """A row of the op table with the error bound of results of fusions: that of the `near` form, where one may stand for it."""
    near = APPROXIMATE.get(f"{NEAR}_{row.name}")
    return row if near is None else replace(row, ulp=(max(row.ulp[0], near.row.ulp[0]), row.ulp[1]))
