"""The judge of results: used by tests of the simulator, of generated text and of kernels on a GPU.

Bounds
    pointwise      row.ulp ulps of the compute dtype plus half an ulp of the output dtype
    sum            4 * log2(2n) * eps(accumulator) * sum|x|, plus half an ulp of the output; mean: the same over n
    prod           4 * n * eps(accumulator), relative, plus half an ulp of the output
    cumsum, cumprod  as sum and prod of the elements that are folded
    var, m2        16 * log2(2n) * eps(accumulator) * (1 + mean**2 / var), relative, plus half an ulp of the output
    integers, Bool, copies, max, min, cummax, cummin   exact
nan, infinities and the sign of zero are exact; complex results are measured by their magnitude, and of their special
values only the class (finite, infinite, nan) counts. References are computed in the next wider type (float32 in
float64, float64 in longdouble, or with mpmath where NumPy has no such function), exact ops in their own type.

A judge that accepts anything proves nothing: `assert_wrong_results_fail` asserts that zeros, the first input and the
reference rounded through the next lower dtype are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fuser.ir.ops.dtypes import DataType, from_numpy_name, numpy_dtype, real_of, scalar_type
from fuser.ir.ops.op_table import (
    POINTWISE,
    REDUCTIONS,
    SCANS,
    DtypeRule,
    OperandClass,
    PointwiseOp,
    Samples,
    compute_dtype,
    kind_of,
    numpy_cast,
    operand_dtype,
    result_dtype,
)

Array = npt.NDArray[Any]
Number = bool | int | float | complex
SMALLEST_JUDGED = 64
"""Cases with fewer elements are not asked to reject wrong results: rounding may agree by chance."""


class Counts(NamedTuple):
    """How many wrong results were shown to fail, and how many could not be because they are right."""

    asserted: int
    skipped: int

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        return Counts(self.asserted + other.asserted, self.skipped + other.skipped)


class Format(NamedTuple):
    """Precision (bits with the leading one) and exponents of a floating type: 2**emin is its smallest normal number."""

    digits: int
    emin: int
    emax: int


_FORMATS = {
    DataType.Double: Format(53, -1022, 1023),
    DataType.Float: Format(24, -126, 127),
    DataType.Half: Format(11, -14, 15),
    DataType.BFloat16: Format(8, -126, 127),
}


def format_of(dtype: DataType) -> Format:
    """The floating format of `dtype`, of its parts if complex."""
    return _FORMATS[real_of(dtype)]


def epsilon(dtype: DataType) -> float:
    """Distance from 1 to the next larger value."""
    return 2.0 ** (1 - format_of(dtype).digits)


def ulp(magnitude: Array, dtype: DataType) -> Array:
    """The distance between neighbours in `dtype` at each magnitude, as longdouble; a subnormal step at least."""
    form = format_of(dtype)
    magnitude = np.abs(magnitude).astype(np.longdouble)
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0))[1].astype(np.int64) - 1
    exponent = np.where(magnitude == 0, form.emin, np.clip(exponent, form.emin, form.emax))
    return np.ldexp(np.ones(magnitude.shape, np.longdouble), exponent - (form.digits - 1))


def half_ulp(value: Array, dtype: DataType) -> Array:
    """The largest error of rounding `value` to `dtype`; both parts of a complex value are rounded."""
    return ulp(value, dtype) * (0.70711 if dtype.is_complex else 0.5)


def dtype_of(value: Array | Number) -> DataType:
    """The DataType of an array or Python number."""
    if isinstance(value, np.ndarray | np.generic):
        found = from_numpy_name(value.dtype.name)
        assert found is not None, f"no DataType for {value.dtype}"
        return found
    return scalar_type(value)


def _carrier(value: Array | Number) -> Any:
    if isinstance(value, np.ndarray):
        return "D" if value.ndim else "Z"
    return "S"


_WIDER = {
    DataType.Float: np.dtype(np.float64),
    DataType.Double: np.dtype(np.longdouble),
    DataType.ComplexFloat: np.dtype(np.complex128),
    DataType.ComplexDouble: np.dtype(np.clongdouble),
}


class Reference(NamedTuple):
    """`value` as accurate as known, `magnitude` what ulps are measured at, the compute dtype and the output dtype."""

    value: Array
    magnitude: Array
    compute: DataType
    output: DataType


def operand_dtype_of(row: PointwiseOp, inputs: Sequence[Array | Number]) -> DataType:
    """The dtype that the op casts these inputs to."""
    return operand_dtype(row, [OperandClass(dtype_of(x), _carrier(x)) for x in inputs])


def reference_pointwise(
    row: PointwiseOp, inputs: Sequence[Array | Number], out_dtype: DataType | None = None
) -> Reference:
    """The right result of `row` for inputs in their storage dtypes, cast as the op's dtype rule says."""
    operand = operand_dtype_of(row, inputs)
    compute = compute_dtype(operand)
    output = result_dtype(row, operand) if out_dtype is None else out_dtype
    cast = [_as_argument(row, i, x, operand, compute) for i, x in enumerate(inputs)]
    if row.exact or compute not in _WIDER:
        value = np.asarray(row.numpy(*cast))
        return Reference(value, np.abs(value) if value.dtype.kind != "b" else value, compute, output)
    wide = [a if a.dtype.kind == "b" else a.astype(_WIDER[compute]) for a in cast]
    precise = _PRECISE.get(row.name) if compute is DataType.Double else None
    with np.errstate(all="ignore"):
        value = np.asarray(precise(wide[0]) if precise is not None else row.numpy(*wide))
        magnitude = np.abs(value) if row.magnitude is None else np.abs(np.asarray(row.magnitude(*wide)))
    return Reference(value, np.broadcast_to(magnitude, value.shape), compute, output)


def _as_argument(row: PointwiseOp, index: int, x: Array | Number, operand: DataType, compute: DataType) -> Array:
    if row.rule is DtypeRule.SELECT and index == 0:
        return np.asarray(x, np.bool_)
    if isinstance(x, np.ndarray):
        return numpy_cast(numpy_cast(x, operand), compute)
    return np.asarray(numpy_cast(np.asarray(x), compute))  # a scalar is converted where it is used


def _with_mpmath(evaluate: Callable[[Any, Any], Any]) -> Callable[[Array], Array]:
    """A longdouble function evaluated element by element with 40 digits; nan gives nan. Each value is computed once."""
    known: dict[float, np.longdouble] = {}

    def value(number: float) -> np.longdouble:
        import mpmath

        if number != number:
            return np.longdouble(np.nan)
        with mpmath.workdps(40):
            y = evaluate(mpmath, mpmath.mpf(number))
            high = float(y)
            low = float(y - high) if math.isfinite(high) else 0.0
        return np.longdouble(high) + np.longdouble(low)

    def apply(x: Array) -> Array:
        result = np.empty(x.shape, np.longdouble)
        for index, element in np.ndenumerate(x):
            number = float(element)
            found = known.get(number)
            if found is None:
                found = known[number] = value(number)
            result[index] = found
        return result

    return apply


def _odd(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """mpmath has no -0: the sign of a zero argument is carried over."""
    return lambda x: np.where(x == 0, x, function(x))


def _erfinv(mp: Any, x: Any) -> Any:
    if abs(x) >= 1:
        return mp.sign(x) * mp.inf if abs(x) == 1 else mp.nan
    return mp.erfinv(x)


def _erfcinv(mp: Any, x: Any) -> Any:
    if x == 0 or x == 2:
        return mp.inf if x == 0 else -mp.inf
    if not 0 < x < 2:
        return mp.nan
    if x > mp.mpf("1e-25"):
        return mp.erfinv(1 - x)
    log_x, y = mp.log(x), mp.sqrt(-mp.log(x))
    for _ in range(12):  # Newton on the logarithm, from an asymptotic start
        value = mp.erfc(y)
        y += (mp.log(value) - log_x) * value * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y


def _lgamma(mp: Any, x: Any) -> Any:
    if mp.isinf(x) or (x <= 0 and x == mp.floor(x)):
        return mp.inf
    return mp.log(abs(mp.gamma(x))) if x < 0 else mp.loggamma(x)


_PRECISE: dict[str, Callable[[Array], Array]] = {
    "erf": _odd(_with_mpmath(lambda mp, x: mp.erf(x) if abs(x) < 30 else mp.sign(x))),
    "erfc": _with_mpmath(lambda mp, x: mp.erfc(x) if abs(x) < 30 else 1 - mp.sign(x)),
    "erfinv": _odd(_with_mpmath(_erfinv)),
    "erfcinv": _with_mpmath(_erfcinv),
    "lgamma": _with_mpmath(_lgamma),
}


# --- judging ----------------------------------------------------------------------------------------------------------


def check_pointwise(
    row: PointwiseOp, inputs: Sequence[Array | Number], got: Array, out_dtype: DataType | None = None
) -> None:
    """Raise AssertionError unless `got` is a right result of `row` for `inputs`.

    Inputs are arrays in their storage dtypes or Python numbers. `out_dtype`: the dtype of the output, that of the
    op's rule if not given.
    """
    ref = reference_pointwise(row, inputs, out_dtype)
    _check_shape_and_dtype(row.name, got, ref.value.shape, ref.output)
    if row.exact or not (ref.output.is_floating or ref.output.is_complex) or ref.compute not in _WIDER:
        assert_exact(row.name, got, numpy_cast(ref.value, ref.output))
        return
    bound = row.ulp_bound(ref.compute) * ulp(ref.magnitude, ref.compute) + half_ulp(ref.value, ref.output)
    assert_within(row.name, got, ref.value, bound, ref.output, zero_sign=row.magnitude is None)


def _check_shape_and_dtype(name: str, got: Array, shape: tuple[int, ...], dtype: DataType) -> None:
    assert got.shape == shape, f"{name}: shape {got.shape}, expected {shape}"
    assert got.dtype == numpy_dtype(dtype), f"{name}: dtype {got.dtype}, expected {dtype.name}"


def assert_exact(name: str, got: Array, want: Array) -> None:
    """Equal values; nan equals nan, zeros differ by sign."""
    good = _same_value(got, want)
    if good.all():
        return
    error: Array | None = None
    if want.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            exact = _in_longdouble(want)
            error = np.abs(_in_longdouble(got) - exact) / ulp(exact, dtype_of(want))
    _report(name, got, want, ~good, error)


def _in_longdouble(x: Array) -> Array:
    if x.dtype.kind == "c":
        return x.astype(np.clongdouble)
    return x.astype(np.longdouble) if x.dtype.kind == "f" else x.astype(np.float32).astype(np.longdouble)


def _same_value(a: Array, b: Array) -> Array:
    """Element by element: equal, both nan, and zeros of one sign; part by part for complex."""
    if a.dtype.kind == "c":
        return _same_value(a.real, b.real) & _same_value(a.imag, b.imag)
    if a.dtype.kind in "biu":
        return np.asarray(a == b)
    with np.errstate(all="ignore"):
        return np.asarray(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b)))


def assert_within(name: str, got: Array, want: Array, bound: Array, dtype: DataType, *, zero_sign: bool = True) -> None:
    """`|got - want| <= bound` with special values as they must be; `want` in a wider type than `dtype`.

    A result that overflows counts as the power of two that follows the largest finite number.
    """
    with np.errstate(all="ignore"):
        if dtype.is_complex:
            good, error = _within_complex(got, want, bound, dtype)
        else:
            good, error = _within_real(got, want, bound, dtype, zero_sign=zero_sign)
    if good.all():
        return
    _report(name, got, want, ~good, error / ulp(want, dtype))


def _within_real(got: Array, want: Array, bound: Array, dtype: DataType, *, zero_sign: bool) -> tuple[Array, Array]:
    wide = got.astype(np.longdouble) if got.dtype.kind == "f" else got.astype(np.float32).astype(np.longdouble)
    want = want.astype(np.longdouble)
    overflow = np.ldexp(np.longdouble(1), format_of(dtype).emax + 1)
    error = np.abs(wide - want)
    overflowed = np.isinf(wide) & np.isfinite(want) & (np.signbit(wide) == np.signbit(want))
    error = np.where(overflowed, np.maximum(overflow - np.abs(want), 0), error)
    exact = (wide == want) | (np.isnan(wide) & np.isnan(want))
    good = exact | (np.isfinite(want) & (error <= bound))
    if zero_sign:
        good &= (wide != 0) | (np.signbit(wide) == np.signbit(want))
    return good, np.where(exact, 0, error)


def _within_complex(got: Array, want: Array, bound: Array, dtype: DataType) -> tuple[Array, Array]:
    wide = got.astype(np.clongdouble)
    error = np.abs(wide - want.astype(np.clongdouble))
    limit = np.ldexp(np.longdouble(1), format_of(dtype).emax + 1)
    fits = np.isfinite(want) & (np.abs(want.real) < limit * (1 - 1e-2)) & (np.abs(want.imag) < limit * (1 - 1e-2))
    near_limit = np.isfinite(want) & ~fits
    good = np.where(fits, error <= bound, False)
    good |= near_limit & ((error <= bound) | np.isinf(wide) | np.isnan(wide))
    good |= np.isinf(want) & np.isinf(wide)
    good |= np.isnan(want) & ~np.isinf(want) & np.isnan(wide) & ~np.isinf(wide)
    return good, error


def _report(name: str, got: Array, want: Array, bad: Array, error: Array | None) -> None:
    if error is not None:
        ranked = np.where(bad, np.where(np.isnan(error), np.inf, error), -1)
        index = np.unravel_index(int(np.argmax(ranked)), bad.shape)
    else:
        index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    at = tuple(int(i) for i in index)
    measured = "" if error is None else f", error {float(error[index]):.4g} ulp"
    raise AssertionError(
        f"{name}: wrong at index {at}: got {got[index]!r}, want {want[index]!r}{measured}; "
        f"{int(bad.sum())} of {bad.size} elements are wrong"
    )


_EXACT_REDUCTIONS = ("max", "min")


class ReductionReference(NamedTuple):
    """Right value of a reduction in a wide type, and the bound on its absolute error before the output's rounding."""

    value: Array
    bound: Array
    exact: bool


def reference_reduction(
    kind: str, x: Array, axes: Sequence[int], out_dtype: DataType, *, correction: int = 1, keepdims: bool = False
) -> ReductionReference:
    """`kind`: sum, prod, max, min, mean, var or m2. `x` is in its storage dtype and is cast to `out_dtype` first
    if that is wider or of another kind (a 16-bit output only rounds the result)."""
    dims = tuple(a % x.ndim for a in axes)
    source = dtype_of(x)
    reduced_in = out_dtype if not (out_dtype.is_reduced_float and source.is_floating) else source
    if kind in ("var", "m2"):
        reduced_in = source  # complex input has a real variance
    accumulator = compute_dtype(reduced_in)
    values = numpy_cast(numpy_cast(x, reduced_in), accumulator)
    n = math.prod(x.shape[a] for a in dims)
    if kind in _EXACT_REDUCTIONS or accumulator not in _WIDER:
        value = REDUCTIONS[kind].numpy(values, dims, keepdims)
        return ReductionReference(value, np.zeros(value.shape, np.longdouble), exact=True)
    wide = values.astype(_WIDER[accumulator])
    eps, log = epsilon(accumulator), math.log2(2 * n) if n else 1.0
    with np.errstate(all="ignore"):
        total = np.asarray(wide.sum(axis=dims, keepdims=keepdims))
        absolute = np.abs(wide).sum(axis=dims, keepdims=keepdims)
        match kind:
            case "sum":
                return ReductionReference(total, 4 * log * eps * absolute, exact=False)
            case "mean":
                return ReductionReference(total / n, 4 * log * eps * absolute / n, exact=False)
            case "prod":
                value = np.asarray(wide.prod(axis=dims, keepdims=keepdims))
                return ReductionReference(value, 4 * n * eps * np.abs(value), exact=False)
            case "var" | "m2":
                mean = wide.sum(axis=dims, keepdims=True) / n
                m2 = np.asarray((np.abs(wide - mean) ** 2).sum(axis=dims, keepdims=keepdims))
                divisor = wide.real.dtype.type(1 if kind == "m2" else max(n - correction, 0))
                value = m2 / divisor
                # (1 + mean**2 / var) * value, multiplied out: var may be 0.
                square = (np.abs(mean) ** 2).sum(axis=dims, keepdims=keepdims) * n / divisor
                return ReductionReference(value, 16 * log * eps * (value + square), exact=False)
            case _:
                raise ValueError(f"unknown reduction {kind!r}")


def check_reduction(
    kind: str,
    x: Array,
    axes: Sequence[int],
    got: Array,
    out_dtype: DataType | None = None,
    *,
    correction: int = 1,
    keepdims: bool = False,
) -> None:
    """Raise AssertionError unless `got` is a right result of reducing `x` over `axes`.

    `kind`: sum, prod, max, min, mean (and the average of welford), var, m2. `out_dtype` is that of `got` if not given.
    """
    output = dtype_of(got) if out_dtype is None else out_dtype
    ref = reference_reduction(kind, x, axes, output, correction=correction, keepdims=keepdims)
    _check_shape_and_dtype(kind, got, ref.value.shape, output)
    if ref.exact:
        assert_exact(kind, got, numpy_cast(ref.value, output))
        return
    assert_within(kind, got, ref.value, ref.bound + half_ulp(ref.value, output), output, zero_sign=False)


def reference_scan(kind: str, x: Array, axis: int, init: Number | None = None) -> ReductionReference:
    """`kind`: cumsum, cumprod, cummin or cummax of `x`, in its storage dtype, along `axis`, after the value `init`."""
    accumulator = compute_dtype(dtype_of(x))
    row = SCANS[kind]
    wide = numpy_cast(x, accumulator)
    if kind in ("cumsum", "cumprod") and accumulator in _WIDER:
        wide = wide.astype(_WIDER[accumulator])
    if init is not None:
        start = np.broadcast_to(np.asarray(init, accumulator.numpy), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
        wide = np.concatenate([start.astype(wide.dtype), wide], axis)
    with np.errstate(all="ignore"):
        value = row.numpy(wide, axis)
        absolute = np.abs(wide).cumsum(axis) if wide.dtype.kind in "fc" else np.zeros(wide.shape)
    if init is not None:
        kept = tuple(slice(1, None) if a == axis else slice(None) for a in range(x.ndim))
        value, absolute = value[kept], absolute[kept]
    if kind not in ("cumsum", "cumprod") or accumulator not in _WIDER:
        return ReductionReference(value, np.zeros(value.shape, np.longdouble), exact=True)
    count = np.arange(1, x.shape[axis] + 1).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    eps = epsilon(accumulator)
    if kind == "cumsum":
        return ReductionReference(value, 4 * np.log2(2 * count + 2) * eps * absolute, exact=False)
    return ReductionReference(value, 4 * (count + 1) * eps * np.abs(value), exact=False)


def check_scan(kind: str, x: Array, axis: int, got: Array, init: Number | None = None) -> None:
    """Raise AssertionError unless `got` is a right result of a scan of `x` along `axis`."""
    output = dtype_of(x)
    ref = reference_scan(kind, x, axis, init)
    _check_shape_and_dtype(kind, got, ref.value.shape, output)
    if ref.exact:
        assert_exact(kind, got, numpy_cast(ref.value, output))
        return
    assert_within(kind, got, ref.value, ref.bound + half_ulp(ref.value, output), output, zero_sign=False)


# --- wrong results must fail ------------------------------------------------------------------------------------------


def lower_precision(want: Array, dtype: DataType) -> Array:
    """`want` (of storage dtype `dtype`) rounded through the next lower dtype: Double -> Float -> BFloat16;
    Half and BFloat16 keep 4 mantissa bits."""
    if dtype.is_complex:
        part = real_of(dtype)
        result = np.empty_like(want)
        result.real = lower_precision(np.ascontiguousarray(want.real), part)
        result.imag = lower_precision(np.ascontiguousarray(want.imag), part)
        return result
    with np.errstate(all="ignore"):
        if dtype is DataType.Double:
            return want.astype(np.float32).astype(want.dtype)
        if dtype is DataType.Float:
            return numpy_cast(numpy_cast(want, DataType.BFloat16), DataType.Float)
        mantissa, exponent = np.frexp(want.astype(np.float32))
        return np.ldexp(np.rint(mantissa * 16) / 16, exponent).astype(np.float32).astype(want.dtype)


def assert_wrong_results_fail(
    check: Callable[[Array], None],
    want: Array,
    first_input: Array,
    out_dtype: DataType,
    *,
    trivial: Collection[str] = (),
    equal_is_skipped: bool = False,
) -> Counts:
    """Assert that `check` rejects zeros, the first input and `want` in lower precision.

    `want` is the right result in `out_dtype`; `first_input` is cast to `out_dtype` and broadcast to its shape.
    `trivial` names the wrong results (`zeros`, `first`, `lower`) that cannot differ; those are skipped and counted.
    With `equal_is_skipped` so are others that happen to be right; without, inputs that do not tell them apart fail.
    Cases of fewer than 64 elements and, for `lower`, outputs that are not floating are not judged.
    """
    if want.size < SMALLEST_JUDGED:
        return Counts(0, 0)
    wrong = {
        "zeros": np.zeros_like(want),
        "first": np.broadcast_to(numpy_cast(first_input, out_dtype), want.shape).astype(want.dtype),
    }
    if out_dtype.is_floating or out_dtype.is_complex:
        wrong["lower"] = lower_precision(want, out_dtype)
    asserted = skipped = 0
    for name, result in wrong.items():
        if name in trivial:
            skipped += 1
            continue
        with np.errstate(all="ignore"):
            same = (result == want) | ((result != result) & (want != want))
        if equal_is_skipped and same.all():
            skipped += 1
            continue
        assert not same.all(), f"the inputs do not tell the wrong result {name!r} from the right one"
        try:
            check(result)
        except AssertionError:
            asserted += 1
        else:
            raise AssertionError(f"the check accepts the wrong result {name!r}")
    return Counts(asserted, skipped)


def assert_wrong_pointwise_fail(
    row: PointwiseOp,
    inputs: Sequence[Array | Number],
    out_dtype: DataType | None = None,
    *,
    equal_is_skipped: bool = False,
) -> Counts:
    """`assert_wrong_results_fail` for one op: its reference, its first input and the flags of its row."""
    ref = reference_pointwise(row, inputs, out_dtype)
    first = np.asarray(inputs[0])
    trivial = {w for w in ("zeros", "first", "lower") if row.is_trivial(w, dtype_of(inputs[-1]))}
    if row.exact and ref.output is DataType.Float and dtype_of(inputs[-1]) is DataType.BFloat16:
        trivial.add("lower")  # an op that only selects values of the next lower dtype
    return assert_wrong_results_fail(
        lambda wrong: check_pointwise(row, inputs, wrong, ref.output),
        numpy_cast(ref.value, ref.output),
        first,
        ref.output,
        trivial=trivial,
        equal_is_skipped=equal_is_skipped,
    )


def assert_wrong_reduction_fail(
    kind: str,
    x: Array,
    axes: Sequence[int],
    out_dtype: DataType,
    *,
    correction: int = 1,
    keepdims: bool = False,
    trivial: Collection[str] = (),
    equal_is_skipped: bool = False,
) -> Counts:
    """`assert_wrong_results_fail` for a reduction; the first input is the first element of each reduced set.

    Judged when at least 64 elements go in, however few come out.
    """
    ref = reference_reduction(kind, x, axes, out_dtype, correction=correction, keepdims=keepdims)
    want = np.atleast_1d(numpy_cast(np.asarray(ref.value), out_dtype))
    if x.size < SMALLEST_JUDGED or want.size == 0:
        return Counts(0, 0)
    dims = {a % x.ndim for a in axes}
    first = x[tuple(slice(0, 1) if a in dims else slice(None) for a in range(x.ndim))].reshape(ref.value.shape)
    if first.dtype.kind == "c" and not out_dtype.is_complex:
        first = np.ascontiguousarray(first.real)
    copies = -(-SMALLEST_JUDGED // want.size)  # few results are judged like many equal ones

    def check(wrong: Array) -> None:
        one = wrong[: want.size].reshape(ref.value.shape)
        check_reduction(kind, x, axes, one, out_dtype, correction=correction, keepdims=keepdims)

    return assert_wrong_results_fail(
        check,
        np.tile(want.reshape(-1), copies),
        np.tile(np.asarray(first).reshape(-1), copies),
        out_dtype,
        trivial=trivial,
        equal_is_skipped=equal_is_skipped,
    )


# --- inputs -----------------------------------------------------------------------------------------------------------


def draw_inputs(row: PointwiseOp, dtype: DataType, shape: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Arrays of `dtype` for every operand of `row` (`where`: a Bool condition first), from its sample domains.

    Special values (nan, infinities, zeros, subnormals, extremes) are mixed in, and some elements of later operands
    equal those of the first, so that comparisons see both answers.
    """
    arrays: list[Array] = []
    for index, samples in enumerate(row.samples):
        if row.rule is DtypeRule.SELECT and index == 0:
            arrays.append(rng.random(shape) < 0.5)
            continue
        x = _draw(samples, dtype, shape, rng)
        if index == 1 and row.arity == 2 and samples == row.samples[0]:
            x = np.where(rng.random(shape) < 0.125, arrays[0], x)
        if samples.specials and x.size >= 16:
            _mix(x, _specials(samples, dtype), rng)
        arrays.append(x)
    return arrays


def _draw(samples: Samples, dtype: DataType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    storage = numpy_dtype(dtype)
    if dtype is DataType.Bool:
        return rng.random(shape) < 0.5
    if dtype.is_complex:
        result = np.empty(shape, storage)
        result.real = rng.uniform(-8, 8, shape)
        result.imag = rng.uniform(-8, 8, shape)
        return result
    if not dtype.is_floating:
        low = max(samples.int_low, 0) if dtype is DataType.UInt64 else samples.int_low
        return rng.integers(low, samples.int_high, shape, endpoint=True).astype(storage)
    x = rng.uniform(samples.low, samples.high, shape)
    if samples.wide:
        # Whole numbers that fill the significand, next to small numbers that a rounding changes.
        exponent = rng.uniform(0, format_of(dtype).digits - 2, shape)
        x = np.where(rng.random(shape) < 0.5, x, np.sign(x) * np.exp2(exponent))
    with np.errstate(all="ignore"):
        return numpy_cast(np.asarray(x), dtype)


def _specials(samples: Samples, dtype: DataType) -> Array:
    storage = numpy_dtype(dtype)
    if dtype is DataType.Bool:
        return np.array([False, True])
    if dtype.is_complex:
        big, small = (2.0**100, 2.0**-100) if dtype is DataType.ComplexFloat else (2.0**600, 2.0**-600)
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan, big, -small]
        result = np.empty(len(parts) ** 2, storage)
        result.real = np.repeat(parts, len(parts))
        result.imag = np.tile(parts, len(parts))
        return result
    if not dtype.is_floating:
        limits = np.iinfo(storage)
        if samples.int_low != -100 or samples.int_high != 100:
            return np.array([max(samples.int_low, int(limits.min)), samples.int_high, 0, 1], storage)
        return np.array([limits.min, limits.max, 0, 1, max(-1, int(limits.min))], storage)
    form = format_of(dtype)
    smallest, normal = 2.0 ** (form.emin - form.digits + 1), 2.0**form.emin
    largest = (2 - 2.0 ** (1 - form.digits)) * 2.0**form.emax
    values = [np.nan, np.inf, 0.0, smallest, 3 * smallest, normal - smallest, normal, largest, 1.0, 0.5, 2.0]
    with np.errstate(all="ignore"):
        return np.array([*values, *(-v for v in values), samples.low, samples.high]).astype(storage)


def _mix(x: Array, specials: Array, rng: np.random.Generator) -> None:
    count = min(max(x.size // 4, 1), max(2 * specials.size, 1))
    positions = rng.choice(x.size, count, replace=False)
    x.reshape(-1)[positions] = rng.permutation(np.resize(specials, count))


def draw_reduction_input(
    kind: str, dtype: DataType, shape: tuple[int, ...], axes: Sequence[int], rng: np.random.Generator
) -> Array:
    """An array whose reduction neither overflows nor vanishes and whose mean is not zero."""
    storage = numpy_dtype(dtype)
    n = max(math.prod(shape[a] for a in axes), 1)
    if dtype is DataType.Bool:
        return rng.random(shape) < (1 - 0.5 / n if kind in ("prod", "min") else 0.5 if kind == "sum" else 0.5 / n)
    if kind == "prod":
        if dtype.is_integral:
            return rng.choice(np.array([1, 3, 5, 7, -3], np.int64), shape).astype(storage)  # odd: never wraps to 0
        sign = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        x = sign * np.exp(rng.normal(0.0, 1.0 / math.sqrt(n), shape))
        return np.asarray(x * np.exp(1j * rng.uniform(0, 1, shape)) if dtype.is_complex else x).astype(storage)
    if dtype.is_integral:
        return rng.integers(0 if dtype is DataType.UInt64 else -90, 110, shape).astype(storage)
    x = rng.normal(1.0, 1.0, shape)
    return np.asarray(x + 1j * rng.normal(0.5, 1.0, shape) if dtype.is_complex else x).astype(storage)


def pointwise_cases() -> list[tuple[str, DataType]]:
    """Every (op, operand dtype) that the table allows, for parametrised tests; `cast` is judged by its own tests."""
    dtypes = [
        DataType.Double,
        DataType.Float,
        DataType.Half,
        DataType.BFloat16,
        DataType.Int,
        DataType.Int32,
        DataType.Bool,
        DataType.ComplexFloat,
        DataType.ComplexDouble,
        DataType.UInt64,
    ]
    return [(name, d) for name, row in POINTWISE.items() if name != "cast" for d in dtypes if _takes(row, d)]


def _takes(row: PointwiseOp, dtype: DataType) -> bool:
    if row.rule is DtypeRule.COMPLEX_PAIR or row.rule is DtypeRule.FULL:
        return dtype in (DataType.Float, DataType.Double)
    return kind_of(dtype) in row.kinds
