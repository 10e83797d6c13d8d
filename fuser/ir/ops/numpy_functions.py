"""NumPy semantics of the pointwise ops: what the simulator runs and what tests take as reference.

Every function takes arrays that are already in one compute dtype (`where`: a Bool condition first) and returns the
result in the dtype that the op's rule says. They never warn. Floats may also be `longdouble`, complex numbers
`clongdouble`: with wider arrays the same functions are the reference of a narrower computation.

Conventions
    integers wrap; the smallest integer over -1 wraps to itself; x / 0 and x % 0 have all bits set (`_over_zero`)
    Bool arithmetic is that of the integers 0 and 1 converted back with `!= 0`
    of two zeros `maximum` is +0 if either is, `minimum` is -0 if either is
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fuser.ir.ops import references
from fuser.ir.ops.dtypes import DataType, numpy_dtype

if TYPE_CHECKING:
    from typing import TypeAlias

Array: TypeAlias = npt.NDArray[Any]
NumpyFunction: TypeAlias = Callable[..., Array]


def quiet(function: NumpyFunction) -> NumpyFunction:
    """`function` with floating-point warnings off: overflow and nan are results here, not accidents."""

    @functools.wraps(function)
    def silent(*arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return silent


def per_kind(
    *,
    floating: NumpyFunction | None = None,
    integer: NumpyFunction | None = None,
    boolean: NumpyFunction | None = None,
    cplx: NumpyFunction | None = None,
) -> NumpyFunction:
    """A function that dispatches on the kind of its last array; a missing kind is an error.

    The last array, because the first one of `where` is its condition.
    """
    # ml_dtypes' floats have no kind of their own in NumPy.
    table = {"f": floating, "V": floating, "i": integer, "u": integer, "b": boolean, "c": cplx}

    def dispatch(*arrays: Array) -> Array:
        function = table[arrays[-1].dtype.kind]
        if function is None:
            raise TypeError(f"no NumPy semantics for operands of dtype {arrays[-1].dtype}")
        with np.errstate(all="ignore"):
            return function(*arrays)

    return dispatch


def identity(x: Array) -> Array:
    return x


def cast_needs_target(*_: Array) -> Array:
    """`cast` has no semantics without its target dtype."""
    raise TypeError("a cast is evaluated by numpy_cast(array, dtype)")


def _false(x: Array) -> Array:
    return np.zeros(x.shape, np.bool_)


def _true(x: Array) -> Array:
    return np.ones(x.shape, np.bool_)


def _zero(x: Array, *others: Array) -> Array:
    return np.zeros(np.broadcast_shapes(x.shape, *(y.shape for y in others)), x.dtype)


_DOUBLES = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}


def in_double(function: NumpyFunction) -> NumpyFunction:
    """A transcendental `function` whose single-precision results are computed in double and rounded once.

    NumPy's own single-precision loops are off by up to 4 ulp, more than the device functions, on some processors.
    """

    @functools.wraps(function)
    def compute(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        double = _DOUBLES.get(dtype)
        with np.errstate(all="ignore"):
            if double is None:
                return function(*arrays)
            return function(*(a.astype(double) for a in arrays)).astype(dtype)

    return compute


def rounding(ufunc: NumpyFunction) -> NumpyFunction:
    """A rounding of floats that leaves integers as they are."""
    return per_kind(floating=ufunc, integer=identity, boolean=identity)


# --- one operand ------------------------------------------------------------------------------------------------------


def _frac(x: Array) -> Array:
    return x - np.trunc(x)


def _rsqrt(x: Array) -> Array:
    return np.reciprocal(np.sqrt(x))


def _complex_rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _complex_log2(x: Array) -> Array:
    z: Array = np.asarray(np.log(x))
    angle = np.asarray(np.imag(z))
    base = np.log(angle.dtype.type(2))
    return complex_(np.real(z) / base, angle / base)


def _sigmoid(x: Array) -> Array:
    # 1 / (1 + exp(-x)) overflows where the result is still subnormal; exp(-|x|) does not.
    t = np.exp(-np.abs(x))
    return np.where(x < 0, t, x.dtype.type(1)) / (1 + t)


def _complex_sigmoid(x: Array) -> Array:
    left = np.real(x) < 0  # there exp(-x) may overflow
    t = np.exp(np.where(left, x, -x))
    return np.where(left, t, x.dtype.type(1)) / (1 + t)


def _silu(x: Array) -> Array:
    # x * sigmoid(x) with the exponential split in two, so that nothing is rounded to a subnormal before the end.
    h = np.exp(-np.abs(x) / 2)
    t = h * h
    return np.where(x < 0, (x * h) * h, x) / (1 + t)


def _relu(x: Array) -> Array:
    return np.where(x <= 0, x.dtype.type(0), x)


def _sign(x: Array) -> Array:
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def _reciprocal(x: Array) -> Array:
    return 1 / x


abs_ = per_kind(floating=np.abs, integer=np.abs, boolean=identity, cplx=np.abs)
neg = per_kind(floating=np.negative, integer=np.negative, boolean=identity, cplx=np.negative)
frac = per_kind(floating=_frac, integer=_zero, boolean=_zero)
log2 = in_double(per_kind(floating=np.log2, cplx=_complex_log2))
rsqrt = in_double(per_kind(floating=_rsqrt, cplx=_complex_rsqrt))
reciprocal = per_kind(floating=_reciprocal, cplx=np.reciprocal)
sigmoid = in_double(per_kind(floating=_sigmoid, cplx=_complex_sigmoid))
silu = in_double(per_kind(floating=_silu))
relu = per_kind(floating=_relu, integer=_relu, boolean=identity)
sign = per_kind(floating=_sign, integer=_sign, boolean=identity)
signbit = per_kind(floating=np.signbit, integer=lambda x: x < 0, boolean=_false)
bitwise_not = per_kind(integer=np.invert, boolean=np.logical_not)
isfinite = per_kind(floating=np.isfinite, integer=_true, boolean=_true, cplx=np.isfinite)
isinf = per_kind(floating=np.isinf, integer=_false, boolean=_false, cplx=np.isinf)
isnan = per_kind(floating=np.isnan, integer=_false, boolean=_false, cplx=np.isnan)
isposinf = per_kind(floating=lambda x: x == np.inf, integer=_false, boolean=_false)
isneginf = per_kind(floating=lambda x: x == -np.inf, integer=_false, boolean=_false)
isreal = per_kind(floating=_true, integer=_true, boolean=_true, cplx=lambda x: np.imag(x) == 0)
erf = quiet(references.erf)
erfc = quiet(references.erfc)
erfinv = quiet(references.erfinv)
erfcinv = quiet(references.erfcinv)
lgamma = quiet(references.lgamma)


def real(x: Array) -> Array:
    return np.array(np.real(x))


def imag(x: Array) -> Array:
    return np.array(np.imag(x))


# --- two operands -----------------------------------------------------------------------------------------------------


def _guarded(divisor: Array) -> tuple[Array, Array]:
    """Mask of the zero divisors, and the divisors with 1 in their place."""
    zero = divisor == 0
    return zero, np.where(zero, divisor.dtype.type(1), divisor)


def _over_zero(x: Array) -> Array:
    """x / 0 and x % 0: all bits of a division of 64 bits set, or of 32 where that many hold both operands.

    So torch and other compilers for GPUs give it, who leave it to the machine.
    """
    low = x.astype(np.uint32)
    return np.where(low == x, np.uint32(0xFFFFFFFF).astype(x.dtype), x.dtype.type(-1))


def _truncated_quotient(x: Array, y: Array) -> Array:
    zero, safe = _guarded(y)
    q = np.floor_divide(x, safe)
    inexact = (q * safe != x) & ((x < 0) != (safe < 0))
    return np.where(zero, _over_zero(x), q + inexact.astype(x.dtype))


def _truncated_remainder(x: Array, y: Array) -> Array:
    zero, safe = _guarded(y)
    return np.where(zero, _over_zero(x), np.fmod(x, safe))


def _floored_remainder(x: Array, y: Array) -> Array:
    zero, safe = _guarded(y)
    return np.where(zero, _over_zero(x), np.remainder(x, safe))


def _integer_power(x: Array, y: Array) -> Array:
    one = x.dtype.type(1)
    power = np.power(x, np.maximum(y, 0))
    odd = (y & 1) != 0
    of_negative = np.where(x == 1, one, np.where(x == -1, np.where(odd, -one, one), x.dtype.type(0)))
    return np.where(y < 0, of_negative, power)


@in_double
def _floating_power(x: Array, y: Array) -> Array:
    """C's pow. NumPy takes the square root where an exponent is 0.5 for a whole row, which differs for -inf and -0."""
    return np.where(y == 0.5, np.where(np.isneginf(x), np.inf, np.power(x, y) + 0.0), np.power(x, y)).astype(x.dtype)


add = quiet(np.add)
sub = per_kind(floating=np.subtract, integer=np.subtract, boolean=np.not_equal, cplx=np.subtract)
mul = quiet(np.multiply)
div = per_kind(floating=np.true_divide, integer=_truncated_quotient, boolean=np.logical_and, cplx=np.true_divide)
truediv = quiet(np.true_divide)
pow_ = per_kind(floating=_floating_power, integer=_integer_power, boolean=lambda x, y: x | ~y)
fmod = per_kind(floating=np.fmod, integer=_truncated_remainder, boolean=_zero)
remainder = per_kind(floating=np.remainder, integer=_floored_remainder, boolean=_zero)
left_shift = quiet(np.left_shift)
right_shift = quiet(np.right_shift)


def _maximum(x: Array, y: Array) -> Array:
    r = np.maximum(x, y)
    at_zero = r == 0
    if not at_zero.any():
        return r
    positive = at_zero & ~((np.signbit(x) | (x != 0)) & (np.signbit(y) | (y != 0)))
    return np.where(at_zero, np.where(positive, x.dtype.type(0.0), x.dtype.type(-0.0)), r)


def _minimum(x: Array, y: Array) -> Array:
    r = np.minimum(x, y)
    at_zero = r == 0
    if not at_zero.any():
        return r
    negative = at_zero & ((np.signbit(x) & (x == 0)) | (np.signbit(y) & (y == 0)))
    return np.where(at_zero, np.where(negative, x.dtype.type(-0.0), x.dtype.type(0.0)), r)


maximum = per_kind(floating=_maximum, integer=np.maximum, boolean=np.logical_or)
minimum = per_kind(floating=_minimum, integer=np.minimum, boolean=np.logical_and)


def logical_right_shift(x: Array, y: Array) -> Array:
    """Shift right with zeros at the width of `x`; an amount >= the width gives 0."""
    bits = x.dtype.itemsize * 8
    unsigned = x.view(f"uint{bits}")
    amount = np.where((y < 0) | (y >= bits), y.dtype.type(0), y).astype(unsigned.dtype)
    shifted = np.right_shift(unsigned, amount).view(x.dtype)
    return np.where((y < 0) | (y >= bits), x.dtype.type(0), shifted)


def complex_(x: Array, y: Array) -> Array:
    """Complex numbers of the parts `x` and `y`."""
    x, y = np.broadcast_arrays(x, y)
    result = np.empty(x.shape, np.result_type(x.dtype, np.complex64))
    result.real = x
    result.imag = y
    return result


# --- three operands ---------------------------------------------------------------------------------------------------


def where(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


def _lerp(start: Array, end: Array, weight: Array) -> Array:
    difference = end - start
    return np.where(weight < 0.5, start + weight * difference, end - difference * (1 - weight))


def _bool_lerp(start: Array, end: Array, weight: Array) -> Array:
    return np.where(weight, end, start)


def clamp(x: Array, low: Array, high: Array) -> Array:
    r = np.where(x < low, low, x)
    return np.where(r > high, high, r)


def threshold(x: Array, limit: Array, value: Array) -> Array:
    return np.where(x <= limit, value, x)


lerp = per_kind(floating=_lerp, integer=_lerp, boolean=_bool_lerp)


def addcmul(a: Array, b: Array, c: Array, alpha: Array) -> Array:
    return add(a, mul(b, mul(c, alpha)))


# --- casts ------------------------------------------------------------------------------------------------------------


def numpy_cast(array: Array, dtype: DataType) -> Array:
    """`array` converted to the storage dtype of `dtype`, as the kernels convert.

    Floats round to nearest even; float -> integer truncates toward zero (out of range unspecified, never a warning);
    anything -> Bool is `!= 0`; complex -> real drops the imaginary part. Same dtype: the array itself.
    """
    target = numpy_dtype(dtype)
    source = array.dtype
    if source == target:
        return array
    if source.kind == "c" and target.kind not in "cb":
        return numpy_cast(np.asarray(np.real(array)), dtype)
    with np.errstate(all="ignore"):
        if dtype is DataType.Bool:
            return array != 0
        if target.itemsize == 2 and source.kind in "iuf" and not np.can_cast(source, np.float32):
            # ml_dtypes goes through float32, which would round a second time.
            return _round_to_odd(array).astype(target)
        if source.kind not in "biufc" and target.kind != "f":
            return array.astype(np.float32).astype(target)  # ml_dtypes converts to few types directly
        return array.astype(target)


def _round_to_odd(array: Array) -> Array:
    """`array` (of a type that float32 cannot hold) in float32, inexact results rounded to the neighbour whose last bit is set.

    Rounding such a value again to 16 bits gives what one rounding of the original gives.
    """
    nearest = array.astype(np.float32)
    if array.dtype.kind == "f":
        back = nearest.astype(array.dtype)
        below, inexact = np.abs(back) < np.abs(array), (back != array) & np.isfinite(array)
    else:
        # Integers are compared as longdouble, which holds all 64 bits.
        exact, back = array.astype(np.longdouble), nearest.astype(np.longdouble)
        below, inexact = np.abs(back) < np.abs(exact), back != exact
    bits = nearest.view(np.uint32)
    even = (bits & 1) == 0
    # Magnitudes are consecutive integers: one up if the nearest lies below the value, else one down.
    return np.where(inexact & even, np.where(below, bits + np.uint32(1), bits - np.uint32(1)), bits).view(np.float32)
