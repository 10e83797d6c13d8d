"""The ops of the DSL. Written by `tools/generate_stubs.py`: not by hand."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, SupportsIndex, overload

from fuser.frontend.argument_types import Dtype, Flag, Number
from fuser.frontend.handles import Extent, Operand, TensorView, Val
from fuser.ir.ops.dtypes import DataType

OPS: dict[str, Callable[..., Any]]
UNSUPPORTED: dict[str, str]
ELEMENTWISE: dict[str, Callable[..., Val]]

@overload
def abs(x: TensorView, /) -> TensorView:
    """Absolute value; the magnitude of a complex number.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the dtype of the operand; of its parts if that is complex.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def abs(x: Operand, /) -> Val: ...
@overload
def acos(x: TensorView, /) -> TensorView:
    """Arc cosine; real input outside [-1, 1] gives nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def acos(x: Operand, /) -> Val: ...
@overload
def acosh(x: TensorView, /) -> TensorView:
    """Inverse hyperbolic cosine; real input below 1 gives nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def acosh(x: Operand, /) -> Val: ...
@overload
def add(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Sum; logical or of two Bools.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def add(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def add(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def addcmul(a: TensorView, b: Operand, c: Operand, alpha: Operand) -> TensorView:
    """a + b * (c * alpha) with a scalar alpha, in the promoted dtype of a, b and c."""

@overload
def addcmul(a: Operand, b: TensorView, c: Operand, alpha: Operand) -> TensorView: ...
@overload
def addcmul(a: Operand, b: Operand, c: TensorView, alpha: Operand) -> TensorView: ...
@overload
def addcmul(a: Operand, b: Operand, c: Operand, alpha: Operand) -> Val: ...
def argsort(arg: TensorView, dim: SupportsIndex, descending: Flag = False, stable: Flag = False) -> TensorView:
    """The indices (Int) that sort a dim. A nan is larger than any number; `stable` keeps equal elements in order.

    Raises DefinitionRuntimeError for a dim out of range and for complex numbers.
    """

@overload
def asin(x: TensorView, /) -> TensorView:
    """Arc sine; real input outside [-1, 1] gives nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def asin(x: Operand, /) -> Val: ...
@overload
def asinh(x: TensorView, /) -> TensorView:
    """Inverse hyperbolic sine.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def asinh(x: Operand, /) -> Val: ...
@overload
def atan(x: TensorView, /) -> TensorView:
    """Arc tangent.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def atan(x: Operand, /) -> Val: ...
@overload
def atan2(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Angle of the point (x = rhs, y = lhs).

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def atan2(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def atan2(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def atanh(x: TensorView, /) -> TensorView:
    """Inverse hyperbolic tangent; +-1 gives +-inf, outside nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def atanh(x: Operand, /) -> Val: ...
@overload
def bitwise_and(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Bitwise and; logical and of two Bools.

    Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
    scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_and(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def bitwise_and(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def bitwise_left_shift(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs shifted left; an amount below 0 or not below the width gives 0.

    Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_left_shift(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def bitwise_left_shift(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def bitwise_not(x: TensorView, /) -> TensorView:
    """Ones' complement of integers; logical not of Bool.

    Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
    scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_not(x: Operand, /) -> Val: ...
@overload
def bitwise_or(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Bitwise or; logical or of two Bools.

    Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
    scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_or(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def bitwise_or(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def bitwise_right_shift(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs shifted right arithmetically; an amount below 0 or not below the width fills with the sign.

    Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_right_shift(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def bitwise_right_shift(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def bitwise_xor(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Bitwise exclusive or; `ne` of two Bools.

    Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
    scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def bitwise_xor(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def bitwise_xor(lhs: Operand, rhs: Operand, /) -> Val: ...
def broadcast(arg: TensorView, is_broadcast_dim: Sequence[Flag]) -> TensorView:
    """New size-1 dims at the True positions; the dims of arg take the False ones in order.

    Raises DefinitionRuntimeError (`Invalid broadcast`) if the number of False entries is not the rank.
    """

def broadcast_in_dim(arg: TensorView, shape: Sequence[Extent], broadcast_dims: Sequence[SupportsIndex]) -> TensorView:
    """Dim i of arg becomes dim broadcast_dims[i] of the result, other dims are new; then expanded to `shape`.

    Raises DefinitionRuntimeError for a list of other length than the rank, a shape of lower rank, and positions
    that are
    repeated, not increasing or out of range.
    """

@overload
def cast(arg: TensorView, dtype: Dtype) -> TensorView:
    """`arg` in `dtype`; of the same dtype, a copy.

    float -> integer truncates toward zero (out of range unspecified), anything -> Bool is `!= 0`, narrowing of
    floats
    rounds to nearest even, complex -> real drops the imaginary part with a warning.
    Raises DefinitionRuntimeError (`Illegal Cast value`) for pairs that cannot be converted.
    """

@overload
def cast(arg: Operand, dtype: Dtype) -> Val: ...
def cat(tensors: Sequence[TensorView], dim: SupportsIndex = 0, manual_padding: Flag = False) -> TensorView:
    """Tensors side by side along `dim`; one tensor is copied. With `manual_padding` each is the result of a `pad` to
    the shape
    of the result, and they do not overlap.

    Raises DefinitionRuntimeError for no tensors, different dtypes or ranks, a dim out of range, and other dims of
    different
    static extents.
    """

@overload
def ceil(x: TensorView, /) -> TensorView:
    """Smallest whole number not below x; integers unchanged.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def ceil(x: Operand, /) -> Val: ...
@overload
def clamp(x: TensorView, min: Operand | None, max: Operand | None) -> TensorView:
    """min(max(x, min), max) with scalar bounds, None for no bound; keeps the dtype, nan stays nan, min > max gives
    max.
    """

@overload
def clamp(x: Operand, min: Operand | None, max: Operand | None) -> Val: ...
@overload
def complex(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Complex number of real part lhs and imaginary part rhs.

    Operands: floating; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the complex dtype whose parts the operands are.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def complex(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def complex(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def cos(x: TensorView, /) -> TensorView:
    """Cosine.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def cos(x: Operand, /) -> Val: ...
@overload
def cosh(x: TensorView, /) -> TensorView:
    """Hyperbolic cosine.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def cosh(x: Operand, /) -> Val: ...
def cummax(arg: TensorView, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
    """Running maximum along a dim; nan from the first nan on.

    Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
    Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per element.
    Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
    kind that arg's dtype cannot hold.
    """

def cummin(arg: TensorView, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
    """Running minimum along a dim; nan from the first nan on.

    Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
    Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per element.
    Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
    kind that arg's dtype cannot hold.
    """

def cumprod(arg: TensorView, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
    """Running product along a dim.

    Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
    Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per element.
    Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
    kind that arg's dtype cannot hold.
    """

def cumsum(arg: TensorView, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
    """Running sum along a dim.

    Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
    Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per element.
    Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
    kind that arg's dtype cannot hold.
    """

def cutlass_nvfp4_grouped_mm(*args: object, **kwargs: object) -> NoReturn:
    """Not supported yet: matrix products of 4-bit floats need sm100."""

@overload
def div(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Quotient; truncated toward zero for integers.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def div(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def div(lhs: Operand, rhs: Operand, /) -> Val: ...
def embedding_fwd(
    input: TensorView,
    weight: TensorView,
    padding_idx: SupportsIndex | None = None,
    max_norm: Number | None = None,
    norm_type: Number | None = None,
    scale_grad_by_freq: Flag | None = None,
    sparse: Flag | None = None,
) -> TensorView:
    """Rows of weight[V, E], one for each element of input: the shape of input and E.

    padding_idx, scale_grad_by_freq and sparse are about gradients. Raises DefinitionRuntimeError for an input of
    rank 0, a
    weight of other rank than 2 and tensor-valued options; NotSupportedError for max_norm.
    """

@overload
def eq(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs == rhs; nan is never equal.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def eq(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def eq(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def erf(x: TensorView, /) -> TensorView:
    """Error function.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def erf(x: Operand, /) -> Val: ...
@overload
def erfc(x: TensorView, /) -> TensorView:
    """Complementary error function, 1 - erf(x) without cancellation.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def erfc(x: Operand, /) -> Val: ...
@overload
def erfcinv(x: TensorView, /) -> TensorView:
    """Inverse of erfc: erfinv(1 - x).

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def erfcinv(x: Operand, /) -> Val: ...
@overload
def erfinv(x: TensorView, /) -> TensorView:
    """Inverse of erf; +-1 gives +-inf, outside nan.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def erfinv(x: Operand, /) -> Val: ...
@overload
def exp(x: TensorView, /) -> TensorView:
    """Exponential.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def exp(x: Operand, /) -> Val: ...
@overload
def exp2(x: TensorView, /) -> TensorView:
    """2 to the power x.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def exp2(x: Operand, /) -> Val: ...
def expand(arg: TensorView, shape: Sequence[Extent]) -> TensorView:
    """Size-1 dims seen as many times as `shape` says, without a copy; new dims on the left; -1 keeps an extent.

    Raises DefinitionRuntimeError (`Invalid expand size`) for a dim of another static extent, and for a shape of
    lower
    rank. A symbolic extent is compared when inputs are bound.
    """

@overload
def expm1(x: TensorView, /) -> TensorView:
    """exp(x) - 1, accurate near 0.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def expm1(x: Operand, /) -> Val: ...
@overload
def floor(x: TensorView, /) -> TensorView:
    """Largest whole number not above x; integers unchanged.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def floor(x: Operand, /) -> Val: ...
@overload
def fmod(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Remainder with the sign of lhs.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def fmod(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def fmod(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def frac(x: TensorView, /) -> TensorView:
    """x - trunc(x).

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def frac(x: Operand, /) -> Val: ...
def full(shape: Sequence[Extent], fill_value: Operand, dtype: Dtype) -> TensorView:
    """A tensor of one value, cast to `dtype`.

    Raises DefinitionRuntimeError for extents below 0.
    """

def gather(arg: TensorView, index: TensorView, dim: SupportsIndex) -> TensorView:
    """The shape of index: out[i, j, k] = arg[i, index[i, j, k], k] for dim=1. Other dims of index may be shorter than
    arg's.

    Raises DefinitionRuntimeError for different ranks, a dim out of range and an index that holds no numbers or is
    longer.
    """

@overload
def gcd(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Greatest common divisor, never negative; gcd(0, 0) = 0.

    Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def gcd(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def gcd(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def ge(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs >= rhs; False if either is nan.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def ge(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def ge(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def grouped_mm(mat1: TensorView, mat2: TensorView, offsets: TensorView) -> TensorView:
    """Products of groups, whose ends along one dim are in offsets[g]: [m, k] x [k, n] gives [g, m, n], k is cut; [g,
    m, k] x
    [k, n] gives [m, n], n is cut; [m, k] x [g, k, n] gives [m, n], m is cut. What lies behind the last end is
    unspecified.

    Raises DefinitionRuntimeError for other ranks, dims that do not fit, offsets that are no Int32[g], operands of
    other dtypes
    than one floating one; NotSupportedError for scales, which come with 8- and 4-bit floats.
    """

@overload
def grouped_mm(
    mat1: TensorView,
    mat2: TensorView,
    offsets: TensorView,
    scale1: TensorView,
    scale2: TensorView,
    alpha: TensorView | None = None,
    bias: TensorView | None = None,
    beta: TensorView | None = None,
    dtype: Dtype = DataType.BFloat16,
    output_block_scale_size: SupportsIndex = 0,
    output_block_scale_dtype: Dtype = DataType.BFloat16,
    output_gamma: Flag = False,
) -> tuple[TensorView, TensorView | None, TensorView | None]: ...
@overload
def gt(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs > rhs; False if either is nan.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def gt(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def gt(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def imag(x: TensorView, /) -> TensorView:
    """Imaginary part of a complex number.

    Operands: complex; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the dtype of the parts of a complex operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def imag(x: Operand, /) -> Val: ...
def index_select(arg: TensorView, index: TensorView, dim: SupportsIndex) -> TensorView:
    """out[.., k, ..] = arg[.., index[k], ..]; an index of rank 0 gives a dim of extent 1.

    Raises DefinitionRuntimeError for an arg of rank 0, an index of rank above 1 or that holds no numbers, and a dim
    out of
    range.
    """

def iota(
    length: Extent, start: Operand | None = None, step: Operand | None = None, dtype: Dtype = DataType.Int
) -> TensorView:
    """The 1-D tensor start + i * step; start is 0 and step 1 unless given.

    Raises DefinitionRuntimeError for a length that is no integer, a start or step that is floating for an integer
    dtype
    or the reverse, not finite, or a step of 0.
    """

@overload
def isfinite(x: TensorView, /) -> TensorView:
    """True where x is neither infinite nor nan.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isfinite(x: Operand, /) -> Val: ...
@overload
def isinf(x: TensorView, /) -> TensorView:
    """True where x, or a part of it, is infinite.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isinf(x: Operand, /) -> Val: ...
@overload
def isnan(x: TensorView, /) -> TensorView:
    """True where x, or a part of it, is nan.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isnan(x: Operand, /) -> Val: ...
@overload
def isneginf(x: TensorView, /) -> TensorView:
    """True where x is -inf.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isneginf(x: Operand, /) -> Val: ...
@overload
def isposinf(x: TensorView, /) -> TensorView:
    """True where x is +inf.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isposinf(x: Operand, /) -> Val: ...
@overload
def isreal(x: TensorView, /) -> TensorView:
    """True where the imaginary part is 0; always for real dtypes.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def isreal(x: Operand, /) -> Val: ...
@overload
def le(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs <= rhs; False if either is nan.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def le(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def le(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def lerp(start: TensorView, end: Operand, weight: Operand, /) -> TensorView:
    """start + w * (end - start), exact at both ends.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def lerp(start: Operand, end: TensorView, weight: Operand, /) -> TensorView: ...
@overload
def lerp(start: Operand, end: Operand, weight: TensorView, /) -> TensorView: ...
@overload
def lerp(start: Operand, end: Operand, weight: Operand, /) -> Val: ...
@overload
def lgamma(x: TensorView, /) -> TensorView:
    """Logarithm of the absolute value of the gamma function.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def lgamma(x: Operand, /) -> Val: ...
def linear(arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> TensorView:
    """arg1[.., K] @ arg2[N, K] transposed + bias[N]: [.., N].

    Raises DefinitionRuntimeError for operands of other dtypes than one floating one, an arg2 of other rank than 2,
    a bias of
    other rank than 1, and for dims that do not fit. How long the bias is the execution checks.
    """

@overload
def log(x: TensorView, /) -> TensorView:
    """Natural logarithm; log(0) = -inf, negative real input nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def log(x: Operand, /) -> Val: ...
@overload
def log10(x: TensorView, /) -> TensorView:
    """Logarithm to base 10.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def log10(x: Operand, /) -> Val: ...
@overload
def log1p(x: TensorView, /) -> TensorView:
    """log(1 + x), accurate near 0.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def log1p(x: Operand, /) -> Val: ...
@overload
def log2(x: TensorView, /) -> TensorView:
    """Logarithm to base 2.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def log2(x: Operand, /) -> Val: ...
@overload
def logical_and(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """True where both operands are nonzero.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def logical_and(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def logical_and(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def logical_not(x: TensorView, /) -> TensorView:
    """True where x is zero.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def logical_not(x: Operand, /) -> Val: ...
@overload
def logical_or(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """True where either operand is nonzero.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def logical_or(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def logical_or(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def logical_right_shift(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs shifted right with zeros at its width; an amount not below the width gives 0, a negative one is unspecified."""

@overload
def logical_right_shift(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def logical_right_shift(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def lt(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs < rhs; False if either is nan.

    Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def lt(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def lt(lhs: Operand, rhs: Operand, /) -> Val: ...
def matmul(arg1: TensorView, arg2: TensorView) -> TensorView:
    """arg1[.., M, K] @ arg2[.., K, N]: [.., M, N]. Of a vector the dim that it lacks is dropped; leading dims
    broadcast.

    Sums run in Float, of Double in Double, and are rounded once. Raises DefinitionRuntimeError for operands of rank
    0, of
    other dtypes than one floating one, and for dims that do not fit.
    """

@overload
def max(arg: TensorView, dtype: Dtype = DataType.Null) -> TensorView:
    """Largest element over the given dims; nan if any is nan.

    All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
    Result: dtype that of arg; 16-bit floats accumulate in Float and round once.
    Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
    """

@overload
def max(arg: TensorView, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
@overload
def max(
    arg: TensorView, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null
) -> TensorView: ...
@overload
def maximum(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Larger operand; nan if either is nan.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def maximum(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def maximum(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def min(arg: TensorView, dtype: Dtype = DataType.Null) -> TensorView:
    """Smallest element over the given dims; nan if any is nan.

    All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
    Result: dtype that of arg; 16-bit floats accumulate in Float and round once.
    Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
    """

@overload
def min(arg: TensorView, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
@overload
def min(
    arg: TensorView, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null
) -> TensorView: ...
@overload
def minimum(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Smaller operand; nan if either is nan.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def minimum(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def minimum(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def mod(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Integer remainder with the sign of lhs.

    Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def mod(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def mod(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def mul(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Product; logical and of two Bools.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def mul(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def mul(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def ne(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs != rhs; nan is always unequal.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def ne(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def ne(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def neg(x: TensorView, /) -> TensorView:
    """Negation.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def neg(x: Operand, /) -> Val: ...
@overload
def nextafter(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Next floating-point number after lhs toward rhs.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands, which must be Float or Double.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def nextafter(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def nextafter(lhs: Operand, rhs: Operand, /) -> Val: ...
def normal(
    mean: Operand,
    std: Operand,
    shape: Sequence[Extent],
    *,
    rng_seed: Extent | None = None,
    rng_offset: Extent | None = None,
    dtype: Dtype = DataType.Float,
) -> TensorView:
    """Normal random numbers by Box and Muller; the rest is as for `uniform`.

    Raises DefinitionRuntimeError for a constant std below 0 as well.
    """

def nv_block_quantize(*args: object, **kwargs: object) -> NoReturn:
    """Not supported yet: block-scaled formats need sm100."""

def nv_grouped_block_quantize(*args: object, **kwargs: object) -> NoReturn:
    """Not supported yet: block-scaled formats need sm100."""

def pad(arg: TensorView, pad_widths: Sequence[Extent], value: Operand | None = None) -> TensorView:
    """`value` (0 or False unless given) around arg: pairs (left, right) of widths, innermost dim first, dims not
    listed as
    they are. A negative width crops.

    Raises DefinitionRuntimeError for an odd number of widths, more than two per dim, a value of another kind than
    arg, and a
    dim whose extent would become negative.
    """

def permute(arg: TensorView, dims: Sequence[SupportsIndex]) -> TensorView:
    """Dim i of the result is dim dims[i] of arg; [] is a copy.

    Raises DefinitionRuntimeError for a list of other length than the rank, dims out of range and repeated ones.
    """

@overload
def pow(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs to the power rhs; integers stay integer (negative exponents round toward zero).

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def pow(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def pow(lhs: Operand, rhs: Operand, /) -> Val: ...
def preprocess_grouped_matmul_input_sf(*args: object, **kwargs: object) -> NoReturn:
    """Not supported yet: block-scaled formats need sm100."""

@overload
def prod(arg: TensorView, dtype: Dtype = DataType.Null) -> TensorView:
    """Product over the given dims.

    All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
    Result: dtype `dtype` if given (arg is cast first), else Int for Bool, Int32 and Int, else that of arg; 16-bit
    floats accumulate in Float and round once.
    Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
    """

@overload
def prod(arg: TensorView, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
@overload
def prod(
    arg: TensorView, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null
) -> TensorView: ...
def rand_like(x: TensorView, /) -> TensorView:
    """Uniform random numbers in [0, 1) of the shape and dtype of x, as `uniform` draws them.

    Raises DefinitionRuntimeError for tensors that are not floating.
    """

def randn_like(x: TensorView, /) -> TensorView:
    """Standard normal random numbers of the shape and dtype of x, as `normal` draws them.

    Raises DefinitionRuntimeError for tensors that are not floating.
    """

@overload
def real(x: TensorView, /) -> TensorView:
    """Real part; a copy of real input.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: the dtype of the parts of a complex operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def real(x: Operand, /) -> Val: ...
@overload
def reciprocal(x: TensorView, /) -> TensorView:
    """1 / x.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def reciprocal(x: Operand, /) -> Val: ...
@overload
def relu(x: TensorView, /) -> TensorView:
    """0 where x <= 0, else x; nan stays nan.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def relu(x: Operand, /) -> Val: ...
@overload
def remainder(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """Remainder with the sign of rhs.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def remainder(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def remainder(lhs: Operand, rhs: Operand, /) -> Val: ...
def reshape(arg: TensorView, new_shape: Sequence[Extent]) -> TensorView:
    """The elements in row-major order of the logical dims under other dims: `reshape(x, [x.size(0), groups, -1])`.

    A size is an int, -1 at most once, for what the others leave, or a scalar of the fusion: a size of a tensor, a
    `define_scalar`, or an expression of them, `x.size(1) // groups`. Scalars of floating dtypes, such as quotients
    of sizes,
    are cast to Int.

    Raises DefinitionRuntimeError for two -1 (`A maximum of one value of -1`), other numbers of elements (`Total
    element counts
    across view operation must match`), and an empty arg without a 0 in new_shape. Symbolic extents are checked when
    inputs are
    bound.
    """

@overload
def round(x: TensorView, /) -> TensorView:
    """Nearest whole number, ties to even; integers unchanged.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def round(x: Operand, /) -> Val: ...
@overload
def rsqrt(x: TensorView, /) -> TensorView:
    """1 / sqrt(x).

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def rsqrt(x: Operand, /) -> Val: ...
def scaled_mm(*args: object, **kwargs: object) -> NoReturn:
    """Not supported yet: matrix products of 8- and 4-bit floats need sm100."""

def scatter(arg: TensorView, index: TensorView, src: Operand, dim: SupportsIndex) -> TensorView:
    """A copy of arg with out[i, index[i, j, k], k] = src[i, j, k], for dim=1; src is a number, or like arg.

    Where two indices are equal one of them counts, which is not said. Indices are not wrapped, and what one outside
    of the dim
    does is unspecified; the simulator tells of it. Raises DefinitionRuntimeError for other ranks and dtypes, a dim
    out of
    range, and an index that is longer than src, or than arg along other dims.
    """

def sdpfa_bwd(
    grad_output: TensorView,
    query: TensorView,
    key: TensorView,
    value: TensorView,
    output: TensorView,
    logsumexp: TensorView,
    dropout_p: Operand | None,
    is_causal: Val | Flag | None,
    philox_seed: TensorView,
    philox_offset: TensorView,
    scale: Operand | None,
) -> tuple[TensorView, TensorView, TensorView]:
    """Gradients of query, key and value of `sdpfa_fwd`, from that of its result and from what it gave.

    Raises DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than 4 or 5, a
    logsumexp
    that has not one dim less, and for dims that do not fit.
    """

def sdpfa_fwd(
    query: TensorView,
    key: TensorView,
    value: TensorView,
    bias: TensorView | None = None,
    mask: TensorView | None = None,
    dropout_p: Operand | None = None,
    is_causal: Val | Flag | None = None,
    scale: Operand | None = None,
) -> tuple[TensorView, TensorView, TensorView, TensorView]:
    """Attention, softmax(query key^T * scale + bias) value, of query[N.., H, L, E], key[N.., H, S, E] and value[N..,
    H, S, Ev].

    Also the logarithm of the sum of exponentials of each row, [N.., H, L] in Float, and the state of the dropout.
    Where mask is
    False, and where a column is behind its row if is_causal, nothing is seen. Without scale it is 1/sqrt(E). Raises
    DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than one of at least
    4, and for
    dims that do not fit.
    """

@overload
def segment_set(x: TensorView, /) -> TensorView:
    """Copy that forces a kernel boundary between its producer and its consumers. Keeps the dtype."""

@overload
def segment_set(x: Operand, /) -> Val: ...
def select(arg: TensorView, index: Extent, dim: SupportsIndex) -> TensorView:
    """arg without `dim`, at one index of it.

    Raises DefinitionRuntimeError for an arg of rank 0, a dim out of range and an index that is no integer. An index
    that turns
    out to be outside of the dim is an InputRuntimeError of the execution.
    """

@overload
def set(x: TensorView, /) -> TensorView:
    """Copy.

    Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
    left. Scalars alone give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def set(x: Operand, /) -> Val: ...
def shape(arg: TensorView) -> list[Val]:
    """All extents."""

@overload
def sigmoid(x: TensorView, /) -> TensorView:
    """1 / (1 + exp(-x)).

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def sigmoid(x: Operand, /) -> Val: ...
@overload
def sign(x: TensorView, /) -> TensorView:
    """-1, 0 or 1; 0 for zeros of either sign and for nan. Keeps the dtype."""

@overload
def sign(x: Operand, /) -> Val: ...
@overload
def signbit(x: TensorView, /) -> TensorView:
    """The sign bit of floats (True for -0.0; of a computed nan either); x < 0 for integers.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: Bool.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def signbit(x: Operand, /) -> Val: ...
@overload
def silu(x: TensorView, /) -> TensorView:
    """x * sigmoid(x).

    Operands: floating; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def silu(x: Operand, /) -> Val: ...
@overload
def sin(x: TensorView, /) -> TensorView:
    """Sine.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def sin(x: Operand, /) -> Val: ...
@overload
def sinh(x: TensorView, /) -> TensorView:
    """Hyperbolic sine.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def sinh(x: Operand, /) -> Val: ...
def size(arg: TensorView, dim: SupportsIndex) -> Val:
    """The extent of a dim (the expanded one of an expanded dim) as an integer scalar, usable in any shape."""

def slice(
    arg: TensorView,
    start_indices: Sequence[Extent],
    end_indices: Sequence[Extent],
    strides: Sequence[Extent] | None = None,
    manual_normalization: Flag = False,
) -> TensorView:
    """Every stride-th of the elements [start, end) of each dim. An end past the extent is clamped; run-time indices
    count from
    the end where they are negative and are clamped to the extent, unless `manual_normalization` promises
    0 <= start <= end <= extent.

    Raises DefinitionRuntimeError for lists of other length than the rank, literal starts below 0, ends below starts
    and
    strides that are no constants or below 1.
    """

@overload
def sqrt(x: TensorView, /) -> TensorView:
    """Square root; negative real input gives nan.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def sqrt(x: Operand, /) -> Val: ...
def squeeze(arg: TensorView, dims: Sequence[SupportsIndex], squeeze_expanded: Flag = False) -> TensorView:
    """Drop size-1 dims; with `squeeze_expanded` also expanded ones, of which one copy is kept.

    Raises DefinitionRuntimeError for dims out of range or of another static size; symbolic ones are checked when
    inputs
    are bound.
    """

def stride_order(arg: TensorView, stride_order: Sequence[SupportsIndex]) -> TensorView:
    """Dense copy in a memory order: per dim its rank from fastest (0) to slowest, negative ones wrap; [] is a plain
    copy.

    Raises DefinitionRuntimeError for a list of other length than the rank, ranks out of range and repeated ones.
    """

@overload
def sub(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """lhs - rhs.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def sub(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def sub(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def sum(arg: TensorView, dtype: Dtype = DataType.Null) -> TensorView:
    """Sum over the given dims.

    All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
    Result: dtype `dtype` if given (arg is cast first), else Int for Bool, Int32 and Int, else that of arg; 16-bit
    floats accumulate in Float and round once.
    Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
    """

@overload
def sum(arg: TensorView, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
@overload
def sum(
    arg: TensorView, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null
) -> TensorView: ...
def take_along_axis(arg: TensorView, index: TensorView, dim: SupportsIndex) -> TensorView:
    """As gather, but dims other than `dim` are of equal extent or broadcast (extent 1 on either side).

    Raises DefinitionRuntimeError for different ranks or extents, a dim out of range and an index that holds no
    numbers.
    """

@overload
def tan(x: TensorView, /) -> TensorView:
    """Tangent.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def tan(x: Operand, /) -> Val: ...
@overload
def tanh(x: TensorView, /) -> TensorView:
    """Hyperbolic tangent.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def tanh(x: Operand, /) -> Val: ...
@overload
def threshold(x: TensorView, thr: Operand, value: Operand) -> TensorView:
    """`value` where x <= thr, else x, with scalar thr and value; keeps the dtype, nan stays nan."""

@overload
def threshold(x: Operand, thr: Operand, value: Operand) -> Val: ...
def topk(
    arg: TensorView, k: Extent, dim: SupportsIndex = -1, largest: Flag = True, sorted: Flag = False
) -> tuple[TensorView, TensorView]:
    """The k largest or smallest elements of a dim, and their indices (Int). A nan is larger than any number.

    Without `sorted` they come in any order. Raises DefinitionRuntimeError for a dim out of range, a k that is no
    integer,
    negative (`Invalid resized domain extent`) or longer than the dim (`k is .. out of range`), and for complex
    numbers; of a k
    that is a scalar the execution tells.
    """

def triu(arg: TensorView, diagonal: Extent = 0) -> TensorView:
    """The elements [.., i, j] with j - i >= diagonal, 0 elsewhere.

    Raises DefinitionRuntimeError for an arg of rank below 2 and a diagonal that is no integer.
    """

@overload
def truediv(lhs: TensorView, rhs: Operand, /) -> TensorView:
    """True division; two integers give Float.

    Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
    Scalars alone give a scalar.
    Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def truediv(lhs: Operand, rhs: TensorView, /) -> TensorView: ...
@overload
def truediv(lhs: Operand, rhs: Operand, /) -> Val: ...
@overload
def trunc(x: TensorView, /) -> TensorView:
    """Whole number next toward zero; integers unchanged.

    Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone
    give a scalar.
    Result: the dtype of the operand.
    Raises DefinitionRuntimeError for operands of other kinds.
    """

@overload
def trunc(x: Operand, /) -> Val: ...
def uniform(
    minval: Operand,
    maxval: Operand,
    shape: Sequence[Extent],
    *,
    rng_seed: Extent | None = None,
    rng_offset: Extent | None = None,
    dtype: Dtype = DataType.Float,
) -> TensorView:
    """Uniform random numbers in [minval, maxval): the upper end is never returned, also after rounding to a 16-bit
    type.

    What rounds to the upper end becomes minval, as in torch: one number in 2**12 of [0, 1) in Half, one in 2**9 in
    BFloat16.
    Compare in Float where such a share matters (a drop rate, say).

    A number depends on (rng_seed, rng_offset, position of the element) alone; without the two, each execution takes
    the state
    of the generator (torch's on the GPU, else the one that `fuser.manual_seed` sets) and advances it. An empty
    interval gives
    minval. Raises DefinitionRuntimeError for one of rng_seed and rng_offset without the other and for dtypes that
    are not
    floating.
    """

def var(
    arg: TensorView, dims: Sequence[SupportsIndex], correction: SupportsIndex = 1, keepdim: Flag = False
) -> TensorView:
    """Sum of squared deviations over max(N - correction, 0), N the number of elements folded.

    Half and BFloat16 give Float, complex dtypes the dtype of their parts. A divisor of 0 gives nan or inf.
    Raises DefinitionRuntimeError for a negative correction, integers and Bool, empty or repeated dims.
    """

def var_mean(
    arg: TensorView, dims: Sequence[SupportsIndex], correction: SupportsIndex = 1, keepdim: Flag = False
) -> tuple[TensorView, TensorView]:
    """(variance, mean) in one pass; see `var`. The mean of a complex tensor is complex."""

def welford(arg: TensorView, dims: Sequence[SupportsIndex]) -> tuple[TensorView, TensorView, TensorView]:
    """(mean, m2, n) over `dims`: mean and sum of squared deviations in the dtype of arg (16-bit floats: Float), count
    in
    Index.

    Raises DefinitionRuntimeError for a rank-0 tensor, operands that are not floating, empty or repeated dims.
    """

@overload
def where(condition: TensorView, x: Operand, y: Operand, /) -> TensorView:
    """x where the condition is true, else y; dtype of the two, promoted but not widened.

    Raises DefinitionRuntimeError (`Condition should be of DataType Bool`) for other conditions.
    """

@overload
def where(condition: Operand, x: TensorView, y: Operand, /) -> TensorView: ...
@overload
def where(condition: Operand, x: Operand, y: TensorView, /) -> TensorView: ...
@overload
def where(condition: Operand, x: Operand, y: Operand, /) -> Val: ...
