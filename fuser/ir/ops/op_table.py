"""One row per pointwise, reduction and scan op: the single place where an op is described.

Grammar
    table       := POINTWISE: name -> PointwiseOp, REDUCTIONS: name -> ReductionOp, SCANS: name -> ScanOp,
                   COMPOSITES: name -> CompositeOp
    PointwiseOp := name, arity, rule, kinds, numpy, cuda, ulp, samples, symbol, ...
    ReductionOp, CompositeOp: reductions.py; ScanOp: scans.py

From a row come the front end's method and docstring, dtype rule and refusals, the simulator (`numpy`), CUDA text
(`cuda`), generated tests (`ulp`, `samples`, `trivial`) and the page of ops. A row with `primitive=False` is built
from other rows by the front end and never reaches the IR: it has a NumPy reference but no CUDA text.

To add an op, add a row; CONTRIBUTING.md lists what else may have to change (counts in tests, instruction counts, device
functions). Type rules live in `promotion.py`, NumPy semantics in `numpy_functions.py`, CUDA text in
`cuda_spelling.py`, reductions in `reductions.py`, scans in `scans.py`; their public names are re-exported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fuser.ir.ops import numpy_functions as npf
from fuser.ir.ops.cuda_spelling import (
    CudaRule,
    CudaSpelling,
    cast_spelling,
    cuda_literal,
    cuda_type,
    device_names,
    divided_by_constant,
    math_function,
    no_cuda,
    raised_to_constant,
    spelled,
)
from fuser.ir.ops.dtypes import DataType, check_cast, compute_dtype, kind_of
from fuser.ir.ops.numpy_functions import Array, NumpyFunction, numpy_cast
from fuser.ir.ops.pointwise_op import DtypeRule, PointwiseOp, Samples, argument_dtypes
from fuser.ir.ops.promotion import OperandClass, operand_dtype, promoted_dtype, result_dtype
from fuser.ir.ops.reductions import COMPOSITES, REDUCTIONS, WELFORD, CompositeOp, ReductionOp
from fuser.ir.ops.scans import SCANS, ScanOp

__all__ = [
    "COMPOSITES",
    "POINTWISE",
    "REDUCTIONS",
    "SCANS",
    "WELFORD",
    "CompositeOp",
    "CudaSpelling",
    "DtypeRule",
    "OperandClass",
    "PointwiseOp",
    "ReductionOp",
    "Samples",
    "ScanOp",
    "argument_dtypes",
    "cast_spelling",
    "check_cast",
    "compute_dtype",
    "cuda_literal",
    "cuda_type",
    "device_names",
    "evaluate_scalar",
    "kind_of",
    "numpy_cast",
    "operand_dtype",
    "promoted_dtype",
    "result_dtype",
]


def _row(
    name: str,
    rule: DtypeRule,
    doc: str,
    numpy: NumpyFunction,
    cuda: CudaRule,
    *,
    arity: int = 1,
    samples: Samples | tuple[Samples, ...] = Samples(),
    parameters: str = "",
    **rest: Any,
) -> PointwiseOp:
    named = tuple(parameters.split()) or {1: ("x",), 2: ("lhs", "rhs")}[arity]
    drawn = (samples,) * arity if isinstance(samples, Samples) else samples
    kinds: str = rest.setdefault("kinds", "fib")

    def text(dtype: DataType) -> CudaSpelling:
        if kind_of(dtype) not in kinds:
            raise TypeError(f"{name} has no CUDA text for compute dtype {dtype.name}")
        return cuda(dtype)

    return PointwiseOp(name, arity, rule, doc, numpy, text, samples=drawn, parameters=named, **rest)


KEEP, PROM, FLT, FULL, BOOL, LOGICAL = (
    DtypeRule.KEEP,
    DtypeRule.PROM,
    DtypeRule.FLT,
    DtypeRule.FULL,
    DtypeRule.BOOL,
    DtypeRule.LOGICAL,
)

_INFINITY = ("__int_as_float(0x7f800000)", "__longlong_as_double(0x7ff0000000000000ll)")
_POSITIVE = Samples(0.0, 50.0)
_UNIT = Samples(-1.0, 1.0, -1, 1)
_SPECIAL_ONLY = (("lower", "ib"),)  # integers give only values that every float type holds
_WIDE = Samples(wide=True)
_PLAIN = Samples(specials=False)
_NONZERO_INT = Samples(int_low=-7, int_high=7)
_ALL_COPY = (("first", "fibcu"),)
_INTEGER_COPY = (("first", "ib"),)


def _test(condition: str) -> CudaRule:
    """Text of a test of a float against infinity: `condition` names the operand {0} and the constant {inf}."""
    return spelled(
        floating=(
            condition.replace("{fabs}", "fabsf").replace("{inf}", _INFINITY[0]),
            condition.replace("{fabs}", "fabs").replace("{inf}", _INFINITY[1]),
        ),
        integer="false",
        boolean="false",
        cplx="fuser_complex_isinf({0})",
    )


def _whole(single: str, double: str) -> CudaRule:
    """Text of a rounding to whole numbers, which leaves integers as they are."""
    return spelled(floating=(single + "({0})", double + "({0})"), integer="{0}", boolean="{0}")


def _signbit(dtype: DataType) -> CudaSpelling:
    if dtype.is_reduced_float:
        return CudaSpelling("(({0}).bits >> 15 != 0)")
    return spelled(floating="fuser_signbit({0})", integer="({0} < 0)", boolean="false")(dtype)


def _comparison(symbol: str, floating: str = "", *, cplx: str | None = None) -> CudaRule:
    # `floating`: a device function for what must be False of nan (`codegen/device_functions.py`).
    text = f"({{0}} {symbol} {{1}})"
    return spelled(floating=floating or text, integer=text, boolean=text, cplx=cplx)


def _sigmoid_magnitude(x: Array) -> Array:
    # Complex: near its poles 1 + exp(-z) cancels and the relative error of the exponential is magnified.
    value = np.abs(npf.sigmoid(x))
    if x.dtype.kind != "c":
        return value
    t = np.abs(np.exp(-x))
    return np.where(np.isfinite(t), value * (1 + t / np.abs(1 + np.exp(-x))), value)


_UNARY = (
    _row("abs", DtypeRule.MAGNITUDE, "Absolute value; the magnitude of a complex number.", npf.abs_,
         spelled(floating=("fabsf({0})", "fabs({0})"), integer="fuser_integer_abs({0})", boolean="{0}",
                 cplx="fuser_complex_abs({0})"),
         kinds="fibc", complex_ulp=(3, 2), trivial=(("first", "b"),)),
    _row("acos", FLT, "Arc cosine; real input outside [-1, 1] gives nan.", npf.in_double(np.arccos),
         math_function("acos", cplx="fuser_complex_acos"), kinds="fibc", complex_ulp=(10, 8), ulp=(3, 2),
         samples=_UNIT),
    _row("acosh", FLT, "Inverse hyperbolic cosine; real input below 1 gives nan.", npf.in_double(np.arccosh),
         math_function("acosh", cplx="fuser_complex_acosh"), kinds="fibc", complex_ulp=(10, 8), ulp=(4, 3),
         samples=Samples(1.0, 50.0), trivial=(("lower", "b"),)),
    _row("asin", FLT, "Arc sine; real input outside [-1, 1] gives nan.", npf.in_double(np.arcsin),
         math_function("asin", cplx="fuser_complex_asin"), kinds="fibc", complex_ulp=(10, 8), ulp=(4, 2),
         samples=_UNIT),
    _row("asinh", FLT, "Inverse hyperbolic sine.", npf.in_double(np.arcsinh),
         math_function("asinh", cplx="fuser_complex_asinh"), kinds="fibc", complex_ulp=(10, 8), ulp=(3, 3)),
    _row("atan", FLT, "Arc tangent.", npf.in_double(np.arctan),
         math_function("atan", cplx="fuser_complex_atan"), kinds="fibc", complex_ulp=(6, 5), ulp=(2, 2)),
    _row("atanh", FLT, "Inverse hyperbolic tangent; +-1 gives +-inf, outside nan.", npf.in_double(np.arctanh),
         math_function("atanh", cplx="fuser_complex_atanh"), kinds="fibc", complex_ulp=(6, 5), ulp=(3, 3),
         samples=_UNIT, trivial=_SPECIAL_ONLY),
    _row("bitwise_not", KEEP, "Ones' complement of integers; logical not of Bool.", npf.bitwise_not,
         spelled(integer="(~{0})", boolean="(!{0})"), kinds="ib",
         refusal="Integer or boolean input is required", exact=True, symbol="~"),
    _row("ceil", KEEP, "Smallest whole number not below x; integers unchanged.", npf.rounding(np.ceil),
         _whole("ceilf", "ceil"), exact=True, samples=_WIDE, trivial=_INTEGER_COPY),
    _row("cos", FLT, "Cosine.", npf.in_double(np.cos),
         spelled(floating=("fuser_cos({0})", "cos({0})"), cplx="fuser_complex_cos({0})"), kinds="fibc",
         complex_ulp=(6, 5), ulp=(2, 2)),
    _row("cosh", FLT, "Hyperbolic cosine.", npf.in_double(np.cosh),
         math_function("cosh", cplx="fuser_complex_cosh"), kinds="fibc", complex_ulp=(6, 5), ulp=(2, 2)),
    _row("erf", FLT, "Error function.", npf.erf, spelled(floating=("fuser_erf({0})", "erf({0})")), ulp=(2, 2),
         samples=Samples(-4.0, 4.0)),
    _row("erfc", FLT, "Complementary error function, 1 - erf(x) without cancellation.", npf.erfc,
         math_function("erfc"), ulp=(4, 5), samples=Samples(-4.0, 10.0)),
    _row("erfcinv", FLT, "Inverse of erfc: erfinv(1 - x).", npf.erfcinv, math_function("erfcinv"), ulp=(4, 6),
         samples=Samples(0.0, 2.0, 0, 2), trivial=_SPECIAL_ONLY),
    _row("erfinv", FLT, "Inverse of erf; +-1 gives +-inf, outside nan.", npf.erfinv, math_function("erfinv"),
         ulp=(2, 5), samples=_UNIT, trivial=_SPECIAL_ONLY),
    _row("exp", FLT, "Exponential.", npf.in_double(np.exp),
         spelled(floating=("fuser_exp({0})", "exp({0})"), cplx="fuser_complex_exp({0})"), kinds="fibc",
         complex_ulp=(5, 4), ulp=(2, 1)),
    _row("exp2", FLT, "2 to the power x.", npf.in_double(np.exp2), math_function("exp2"), ulp=(2, 1),
         trivial=_SPECIAL_ONLY),
    _row("expm1", FLT, "exp(x) - 1, accurate near 0.", npf.in_double(np.expm1),
         spelled(floating=("fuser_expm1({0})", "expm1({0})")), ulp=(1, 1)),
    _row("floor", KEEP, "Largest whole number not above x; integers unchanged.", npf.rounding(np.floor),
         _whole("floorf", "floor"), exact=True, samples=_WIDE, trivial=_INTEGER_COPY),
    _row("frac", KEEP, "x - trunc(x).", npf.frac,
         spelled(floating="fuser_frac({0})", integer="(({T})0)", boolean="false"), exact=True,
         trivial=(("zeros", "ib"), ("first", "b"))),
    _row("imag", DtypeRule.REAL_PART, "Imaginary part of a complex number.", npf.imag,
         spelled(cplx="({0}).im"), kinds="c", refusal="imag not supported for non-complex tensors", exact=True),
    _row("isfinite", BOOL, "True where x is neither infinite nor nan.", npf.isfinite,
         spelled(floating=(f"(fabsf({{0}}) < {_INFINITY[0]})", f"(fabs({{0}}) < {_INFINITY[1]})"), integer="true",
                 boolean="true", cplx="fuser_complex_isfinite({0})"), kinds="fibcu", exact=True),
    _row("isinf", BOOL, "True where x, or a part of it, is infinite.", npf.isinf, _test("({fabs}({0}) == {inf})"),
         kinds="fibcu", exact=True, trivial=(("zeros", "ibu"),)),
    _row("isnan", BOOL, "True where x, or a part of it, is nan.", npf.isnan,
         spelled(floating="fuser_isnan({0})", integer="false", boolean="false", cplx="fuser_complex_isnan({0})"),
         kinds="fibcu", exact=True, trivial=(("zeros", "ibu"),)),
    _row("isneginf", BOOL, "True where x is -inf.", npf.isneginf, _test("({0} == -{inf})"), exact=True, kinds="fibu",
         trivial=(("zeros", "ibu"),)),
    _row("isposinf", BOOL, "True where x is +inf.", npf.isposinf, _test("({0} == {inf})"), exact=True, kinds="fibu",
         trivial=(("zeros", "ibu"),)),
    _row("isreal", BOOL, "True where the imaginary part is 0; always for real dtypes.", npf.isreal,
         spelled(floating="true", integer="true", boolean="true", cplx="(({0}).im == 0)"), kinds="fibcu", exact=True),
    _row("lgamma", FLT, "Logarithm of the absolute value of the gamma function.", npf.lgamma,
         math_function("lgamma"), ulp=(6, 4), samples=Samples(-2.2, 60.0, -2, 60), trivial=(("lower", "b"),)),
    _row("log", FLT, "Natural logarithm; log(0) = -inf, negative real input nan.", npf.in_double(np.log),
         math_function("log", cplx="fuser_complex_log"), kinds="fibc", complex_ulp=(6, 5), ulp=(1, 1),
         samples=_POSITIVE, trivial=(("lower", "b"),)),
    _row("log10", FLT, "Logarithm to base 10.", npf.in_double(np.log10), math_function("log10"), ulp=(2, 1),
         samples=_POSITIVE, trivial=(("lower", "b"),)),
    _row("log1p", FLT, "log(1 + x), accurate near 0.", npf.in_double(np.log1p),
         spelled(floating=("fuser_log1p({0})", "log1p({0})")), ulp=(1, 1),
         samples=Samples(-1.0, 50.0)),
    _row("log2", FLT, "Logarithm to base 2.", npf.log2,
         math_function("log2", cplx="fuser_complex_log2"), kinds="fibc", complex_ulp=(7, 6), ulp=(1, 1),
         samples=_POSITIVE, trivial=(("lower", "b"),)),
    _row("logical_not", LOGICAL, "True where x is zero.", npf.quiet(np.logical_not), spelled(boolean="(!{0})"),
         kinds="fibu", exact=True),
    _row("neg", PROM, "Negation.", npf.neg,
         spelled(floating="(- {0})", integer="fuser_wrap_neg({0})", boolean="{0}", cplx="fuser_complex_neg({0})"),
         kinds="fibc", exact=True, symbol="-", trivial=(("first", "b"),)),
    _row("real", DtypeRule.REAL_PART, "Real part; a copy of real input.", npf.real,
         spelled(floating="{0}", integer="{0}", boolean="{0}", cplx="({0}).re"), kinds="fibcu", exact=True,
         trivial=_ALL_COPY),
    _row("reciprocal", FLT, "1 / x.", npf.reciprocal,
         spelled(floating=("(1.0f / {0})", "(1.0 / {0})"), cplx="fuser_complex_reciprocal({0})"), kinds="fibc",
         complex_ulp=(3, 3),
         ulp=(0, 0), trivial=(("lower", "b"),)),
    _row("relu", KEEP, "0 where x <= 0, else x; nan stays nan.", npf.relu,
         spelled(floating="fuser_relu({0})", integer="fuser_relu({0})", boolean="{0}"), exact=True,
         trivial=(("first", "b"),)),
    _row("round", KEEP, "Nearest whole number, ties to even; integers unchanged.", npf.rounding(np.rint),
         _whole("rintf", "rint"), exact=True, samples=_WIDE, trivial=_INTEGER_COPY),
    _row("rsqrt", FLT, "1 / sqrt(x).", npf.rsqrt,
         math_function("rsqrt", cplx="fuser_complex_rsqrt"), kinds="fibc", complex_ulp=(6, 5), ulp=(2, 1),
         samples=_POSITIVE, trivial=(("lower", "b"),)),
    _row("set", KEEP, "Copy.", npf.identity,
         spelled(floating="{0}", integer="{0}", boolean="{0}", cplx="{0}"), kinds="fibcu", exact=True,
         trivial=_ALL_COPY),
    _row("sigmoid", FLT, "1 / (1 + exp(-x)).", npf.sigmoid,
         spelled(floating="fuser_sigmoid({0})", cplx="fuser_complex_sigmoid({0})"), kinds="fibc",
         magnitude=_sigmoid_magnitude, complex_ulp=(10, 8), ulp=(4, 3)),
    _row("sign", KEEP, "-1, 0 or 1; 0 for zeros of either sign and for nan.", npf.sign, no_cuda, exact=True,
         primitive=False, trivial=(("first", "b"), ("lower", "f"))),
    _row("signbit", BOOL, "The sign bit of floats (True for -0.0; of a computed nan either); x < 0 for integers.",
         npf.signbit, _signbit, exact=True, in_own_type=True, trivial=(("zeros", "b"),)),
    _row("silu", KEEP, "x * sigmoid(x).", npf.silu, spelled(floating="fuser_silu({0})"), kinds="f",
         refusal="floating input is required", ulp=(8, 6)),
    _row("sin", FLT, "Sine.", npf.in_double(np.sin),
         spelled(floating=("fuser_sin({0})", "sin({0})"), cplx="fuser_complex_sin({0})"), kinds="fibc",
         complex_ulp=(6, 5), ulp=(2, 2)),
    _row("sinh", FLT, "Hyperbolic sine.", npf.in_double(np.sinh),
         math_function("sinh", cplx="fuser_complex_sinh"), kinds="fibc", complex_ulp=(6, 5), ulp=(3, 2)),
    _row("sqrt", FLT, "Square root; negative real input gives nan.", npf.quiet(np.sqrt),
         spelled(floating="fuser_sqrt({0})", cplx="fuser_complex_sqrt({0})"), kinds="fibc", complex_ulp=(4, 4), ulp=(0, 0),
         samples=_POSITIVE, trivial=(("lower", "b"), ("first", "b"))),
    _row("tan", FLT, "Tangent.", npf.in_double(np.tan), math_function("tan"), ulp=(4, 2)),
    _row("tanh", FLT, "Hyperbolic tangent.", npf.in_double(np.tanh),
         spelled(floating=("fuser_tanh({0})", "tanh({0})")), ulp=(2, 2)),
    _row("trunc", KEEP, "Whole number next toward zero; integers unchanged.", npf.rounding(np.trunc),
         _whole("truncf", "trunc"), exact=True, samples=_WIDE, trivial=_INTEGER_COPY),
)  # fmt: skip

_INTEGRAL = "input must have integral type"
_SHIFT = (Samples(), Samples(int_low=-3, int_high=70))

_BINARY = (
    _row("add", PROM, "Sum; logical or of two Bools.", npf.add,
         spelled(floating="({0} + {1})", integer="fuser_wrap_add({0}, {1})", boolean="({0} | {1})",
                 cplx="fuser_complex_add({0}, {1})"), arity=2, kinds="fibc", symbol="+", commutative=True),
    _row("sub", PROM, "lhs - rhs.", npf.sub,
         spelled(floating="({0} - {1})", integer="fuser_wrap_sub({0}, {1})", boolean="({0} != {1})",
                 cplx="fuser_complex_sub({0}, {1})"), arity=2, kinds="fibc", symbol="-"),
    _row("mul", PROM, "Product; logical and of two Bools.", npf.mul,
         spelled(floating="({0} * {1})", integer="fuser_wrap_mul({0}, {1})", boolean="({0} & {1})",
                 cplx="fuser_complex_mul({0}, {1})"), arity=2, kinds="fibc", complex_ulp=(2, 2), symbol="*",
         commutative=True),
    _row("div", PROM, "Quotient; truncated toward zero for integers.", npf.div,
         spelled(floating=("fuser_divide({0}, {1})", "({0} / {1})"), integer="fuser_integer_div({0}, {1})",
                 boolean="({0} & {1})", cplx="fuser_complex_div({0}, {1})"), constant=divided_by_constant,
         arity=2, kinds="fibc", ulp=(1, 0), complex_ulp=(4, 4), samples=(Samples(), _NONZERO_INT)),
    _row("truediv", FLT, "True division; two integers give Float.", npf.truediv,
         spelled(floating=("fuser_divide({0}, {1})", "({0} / {1})"), cplx="fuser_complex_div({0}, {1})"),
         constant=divided_by_constant, arity=2, kinds="fibc", ulp=(1, 0), complex_ulp=(4, 4),
         symbol="/",
         samples=(Samples(), _NONZERO_INT), trivial=(("lower", "b"),)),
    _row("pow", PROM, "lhs to the power rhs; integers stay integer (negative exponents round toward zero).", npf.pow_,
         spelled(floating=("powf({0}, {1})", "pow({0}, {1})"), integer="fuser_integer_pow({0}, {1})",
                 boolean="({0} | !{1})"), constant=raised_to_constant, arity=2, ulp=(4, 2), symbol="**",
         samples=(Samples(0.0, 8.0, -8, 8), Samples(int_low=-3, int_high=30))),
    _row("fmod", PROM, "Remainder with the sign of lhs.", npf.fmod,
         spelled(floating=("fmodf({0}, {1})", "fmod({0}, {1})"), integer="fuser_integer_mod({0}, {1})",
                 boolean="false"), arity=2, samples=(Samples(-100.0, 100.0), _NONZERO_INT),
         exact=True, trivial=(("zeros", "b"),)),
    _row("mod", PROM, "Integer remainder with the sign of lhs.", npf.fmod,
         spelled(integer="fuser_integer_mod({0}, {1})"), arity=2, kinds="i", refusal=_INTEGRAL,
         samples=(Samples(), _NONZERO_INT)),
    _row("remainder", PROM, "Remainder with the sign of rhs.", npf.remainder,
         spelled(floating="fuser_remainder({0}, {1})", integer="fuser_integer_remainder({0}, {1})", boolean="false"),
         arity=2, symbol="%", exact=True, samples=(Samples(-100.0, 100.0), _NONZERO_INT), trivial=(("zeros", "b"),)),
    _row("minimum", PROM, "Smaller operand; nan if either is nan.", npf.minimum,
         spelled(floating="fuser_min({0}, {1})", integer="fuser_min({0}, {1})", boolean="({0} & {1})"), arity=2,
         exact=True, commutative=True),
    _row("maximum", PROM, "Larger operand; nan if either is nan.", npf.maximum,
         spelled(floating="fuser_max({0}, {1})", integer="fuser_max({0}, {1})", boolean="({0} | {1})"), arity=2,
         exact=True, commutative=True),
    _row("atan2", FLT, "Angle of the point (x = rhs, y = lhs).", npf.in_double(np.arctan2),
         math_function("atan2", arity=2), arity=2, ulp=(3, 2)),
    _row("nextafter", FULL, "Next floating-point number after lhs toward rhs.", npf.quiet(np.nextafter),
         math_function("nextafter", arity=2), arity=2, exact=True),
    _row("eq", BOOL, "lhs == rhs; nan is never equal.", npf.quiet(np.equal),
         _comparison("==", cplx="fuser_complex_eq({0}, {1})"), arity=2, kinds="fibcu", exact=True, symbol="==",
         commutative=True),
    _row("ne", BOOL, "lhs != rhs; nan is always unequal.", npf.quiet(np.not_equal),
         _comparison("!=", cplx="(!fuser_complex_eq({0}, {1}))"), arity=2, kinds="fibcu", exact=True, symbol="!=",
         commutative=True),
    _row("ge", BOOL, "lhs >= rhs; False if either is nan.", npf.quiet(np.greater_equal),
         _comparison(">=", "fuser_less_equal({1}, {0})"), arity=2, kinds="fibu", exact=True, symbol=">="),
    _row("gt", BOOL, "lhs > rhs; False if either is nan.", npf.quiet(np.greater),
         _comparison(">", "fuser_less({1}, {0})"), arity=2, kinds="fibu", exact=True, symbol=">"),
    _row("le", BOOL, "lhs <= rhs; False if either is nan.", npf.quiet(np.less_equal),
         _comparison("<=", "fuser_less_equal({0}, {1})"), arity=2, kinds="fibu", exact=True, symbol="<="),
    _row("lt", BOOL, "lhs < rhs; False if either is nan.", npf.quiet(np.less),
         _comparison("<", "fuser_less({0}, {1})"), arity=2, kinds="fibu", exact=True, symbol="<"),
    _row("logical_and", LOGICAL, "True where both operands are nonzero.", npf.quiet(np.logical_and),
         spelled(boolean="({0} & {1})"), arity=2, kinds="fibu", exact=True, commutative=True),
    _row("logical_or", LOGICAL, "True where either operand is nonzero.", npf.quiet(np.logical_or),
         spelled(boolean="({0} | {1})"), arity=2, kinds="fibu", exact=True, commutative=True),
    _row("bitwise_and", PROM, "Bitwise and; logical and of two Bools.", npf.quiet(np.bitwise_and),
         spelled(integer="({0} & {1})", boolean="({0} & {1})"), arity=2, kinds="ib",
         refusal="Integer or boolean input is required", exact=True, symbol="&", commutative=True),
    _row("bitwise_or", PROM, "Bitwise or; logical or of two Bools.", npf.quiet(np.bitwise_or),
         spelled(integer="({0} | {1})", boolean="({0} | {1})"), arity=2, kinds="ib",
         refusal="Integer or boolean input is required", exact=True, symbol="|", commutative=True),
    _row("bitwise_xor", PROM, "Bitwise exclusive or; `ne` of two Bools.", npf.quiet(np.bitwise_xor),
         spelled(integer="({0} ^ {1})", boolean="({0} != {1})"), arity=2, kinds="ib",
         refusal="Integer or boolean input is required", exact=True, symbol="^", commutative=True),
    _row("bitwise_left_shift", PROM, "lhs shifted left; an amount below 0 or not below the width gives 0.",
         npf.left_shift, spelled(integer="fuser_shift_left({0}, {1})"), arity=2, kinds="i", refusal=_INTEGRAL,
         exact=True, symbol="<<", samples=_SHIFT),
    _row("bitwise_right_shift", PROM,
         "lhs shifted right arithmetically; an amount below 0 or not below the width fills with the sign.",
         npf.right_shift, spelled(integer="fuser_shift_right({0}, {1})"), arity=2, kinds="i", refusal=_INTEGRAL,
         exact=True, symbol=">>", samples=_SHIFT),
    _row("logical_right_shift", PROM,
         "lhs shifted right with zeros at its width; an amount not below the width gives 0.",
         npf.logical_right_shift, no_cuda, arity=2, kinds="i", refusal=_INTEGRAL, exact=True, primitive=False,
         samples=(Samples(), Samples(int_low=0, int_high=70))),
    _row("gcd", PROM, "Greatest common divisor, never negative; gcd(0, 0) = 0.", npf.quiet(np.gcd),
         spelled(integer="fuser_gcd({0}, {1})"), arity=2, kinds="i", refusal=_INTEGRAL, exact=True, commutative=True),
    _row("complex", DtypeRule.COMPLEX_PAIR, "Complex number of real part lhs and imaginary part rhs.", npf.complex_,
         spelled(floating="fuser_complex<{T}>{{{0}, {1}}}"), arity=2, kinds="f", exact=True),
)  # fmt: skip


def _lerp_magnitude(start: Array, end: Array, weight: Array) -> Array:
    # The larger of the two terms of the sum that is taken; the terms cancel where start and end differ in sign.
    difference = np.abs(start) + np.abs(end)
    near = np.abs(start) + np.abs(weight) * difference
    far = np.abs(end) + difference * np.abs(1 - weight)
    return np.where(weight < 0.5, near, far)


def _addcmul_magnitude(a: Array, b: Array, c: Array, alpha: Array) -> Array:
    return np.abs(a) + np.abs(b * c * alpha)


_TERNARY = (
    _row("where", DtypeRule.SELECT, "x where the condition is true, else y.", npf.where,
         spelled(floating="({0} ? {1} : {2})", integer="({0} ? {1} : {2})", boolean="({0} ? {1} : {2})",
                 cplx="({0} ? {1} : {2})"), arity=3, parameters="condition x y", kinds="fibcu", exact=True),
    _row("lerp", PROM, "start + w * (end - start), exact at both ends.", npf.lerp,
         spelled(floating="fuser_lerp({0}, {1}, {2})", integer="fuser_integer_lerp({0}, {1}, {2})",
                 boolean="({2} ? {1} : {0})"), arity=3, parameters="start end weight",
         ulp=(3, 3), magnitude=_lerp_magnitude, samples=(Samples(), Samples(), Samples(0.0, 1.0, -3, 3))),
    _row("clamp", KEEP, "x limited to [min, max]; nan stays nan, min > max gives max.", npf.clamp,
         spelled(floating="fuser_clamp({0}, {1}, {2})", integer="fuser_clamp({0}, {1}, {2})",
                 boolean="fuser_clamp({0}, {1}, {2})"), arity=3, parameters="x min max", exact=True,
         samples=(Samples(), Samples(-5.0, -1.0, -50, -10, specials=False), Samples(1.0, 5.0, 10, 50, specials=False))),
    _row("threshold", KEEP, "value where x <= thr, else x; nan stays nan.", npf.threshold,
         spelled(floating="fuser_threshold({0}, {1}, {2})", integer="fuser_threshold({0}, {1}, {2})",
                 boolean="fuser_threshold({0}, {1}, {2})"), arity=3, parameters="x thr value", exact=True,
         samples=(Samples(), Samples(-1.0, 1.0, -5, 5, specials=False), Samples(-9.0, 9.0, specials=False))),
    _row("addcmul", PROM, "a + b * (c * alpha).", npf.addcmul, no_cuda, arity=4, parameters="a b c alpha",
         ulp=(2, 2), magnitude=_addcmul_magnitude, primitive=False,
         samples=(Samples(), _PLAIN, _PLAIN, _PLAIN)),
    _row("cast", DtypeRule.CAST, "Conversion to another dtype.", npf.cast_needs_target, no_cuda,
         parameters="arg", kinds="fibcu"),
)  # fmt: skip


def _by_name(rows: Iterable[PointwiseOp]) -> dict[str, PointwiseOp]:
    return {row.name: row for row in rows}


POINTWISE: dict[str, PointwiseOp] = _by_name((*_UNARY, *_BINARY, *_TERNARY))
"""Every pointwise op by name, composites included (`primitive=False`)."""


def evaluate_scalar(
    row: PointwiseOp, dtype: DataType, values: Sequence[complex | float | int | bool]
) -> complex | float | int | bool:
    """The op on Python numbers, as the host computes it.

    `dtype` is the operand dtype. Floats are computed in double, complex numbers in complex128; integers wrap at the
    width of their type.
    """
    compute = compute_dtype(dtype)
    if compute is DataType.Float:
        compute = DataType.Double
    elif compute is DataType.ComplexFloat:
        compute = DataType.ComplexDouble
    arrays = [_scalar_array(v, d) for v, d in zip(values, argument_dtypes(row, compute), strict=True)]
    return np.asarray(row.numpy(*arrays)).item()


def _scalar_array(value: complex | float | int | bool, dtype: DataType) -> Array:
    if isinstance(value, int) and not isinstance(value, bool) and dtype.is_integral:
        bits = 8 * dtype.itemsize
        wrapped = value & ((1 << bits) - 1)
        if dtype is not DataType.UInt64 and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        return np.asarray(wrapped, dtype.numpy)
    return np.asarray(numpy_cast(np.asarray(value), dtype))
