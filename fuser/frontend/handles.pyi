"""What a user holds: handles of the values, axes and exprs of one fusion. Written by `tools/generate_stubs.py`: not by hand."""

import builtins
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, ClassVar, NoReturn, Protocol, Self, SupportsIndex, TypeAlias, overload

from fuser.frontend.argument_types import Dtype, Flag, Number
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import Int
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder

Operand: TypeAlias = "Val | Number"
Extent: TypeAlias = "Val | SupportsIndex"
Subscript: TypeAlias = "SupportsIndex | Val | slice[Any, Any, Any] | EllipsisType | None"

class Owner(Protocol):
    """The fusion that handles belong to, as handles and ops know it. `fuser.frontend.fusion_handle.Fusion` is one."""

    schedule: ScheduleBuilder | None
    @property
    def is_open(self) -> bool: ...
    @property
    def ir_fusion(self) -> ir.Fusion: ...
    def builder(self) -> FusionBuilder: ...
    def start_schedule(self) -> ScheduleBuilder: ...
    def current_exprs(self) -> Sequence[ir.Expr]: ...
    def current_tensor(self, tensor: ir.Tensor) -> ir.Tensor: ...
    def loop_domain(self, tensor: ir.Tensor) -> Sequence[ir.IterDomain]: ...
    def handle(self, value: ir.Val) -> Val: ...
    def tensor_handle(self, value: ir.Tensor) -> TensorView: ...
    def expr_handle(self, expr: ir.Expr) -> Expr: ...
    def axis_handle(self, tensor: TensorView, domain: ir.IterDomain) -> IterDomain: ...
    def transform_handle(self, tensor: TensorView, transform: ir.Transform) -> Expr: ...
    def size(self, tensor: TensorView, dim: int) -> Val: ...
    def extent_handle(self, extent: Int) -> Val: ...
    def check_member(self, val: Val, op: str) -> None: ...

class _Handle(type):
    """`dir` of a class of handles shows what users call, as that of a handle does."""

def public_names(kind: type) -> list[str]:
    """What users may ask a handle of a class for."""

class Statement:
    """Anything of a fusion that can be printed."""

    fusion: Owner

class Val(Statement):
    """A scalar or tensor of a fusion.

    Operators are ops: `==` and `!=` compare elements and give a value of Bool. Two names are one value if `a is b`;
    hashes go by identity, so that values can be keys.
    """

    node: ir.Val
    def __init__(self, fusion: Owner, value: ir.Val) -> None: ...
    @property
    def name(self) -> str:
        """The stable name of the value in its fusion."""
    @property
    def dtype(self) -> DataType:
        """Element type; `dtype()` is the same."""
    def is_symbolic(self) -> builtins.bool:
        """True unless the value is a constant."""
    def is_tensor(self) -> builtins.bool:
        """True for a TensorView."""
    def definition(self) -> Expr | None:
        """The expr that computes the value; None for inputs and constants."""
    def uses(self) -> list[Expr]:
        """The exprs that read the value, in order."""
    def __pos__(self) -> Self: ...
    def __array__(self, *args: object, **kwargs: object) -> NoReturn: ...
    def __bool__(self) -> builtins.bool:
        """The truth of a constant scalar; anything else has none while defining."""
    @overload
    def __eq__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __eq__(self, other: Operand, /) -> Val: ...  # type: ignore[reportIncompatibleMethodOverride]
    @overload
    def __ne__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __ne__(self, other: Operand, /) -> Val: ...  # type: ignore[reportIncompatibleMethodOverride]
    @overload
    def __add__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __add__(self, other: Operand, /) -> Val: ...
    @overload
    def __radd__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __radd__(self, other: Operand, /) -> Val: ...
    @overload
    def __sub__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __sub__(self, other: Operand, /) -> Val: ...
    @overload
    def __rsub__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rsub__(self, other: Operand, /) -> Val: ...
    @overload
    def __mul__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __mul__(self, other: Operand, /) -> Val: ...
    @overload
    def __rmul__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rmul__(self, other: Operand, /) -> Val: ...
    @overload
    def __truediv__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __truediv__(self, other: Operand, /) -> Val: ...
    @overload
    def __rtruediv__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rtruediv__(self, other: Operand, /) -> Val: ...
    @overload
    def __floordiv__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __floordiv__(self, other: Operand, /) -> Val: ...
    @overload
    def __rfloordiv__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rfloordiv__(self, other: Operand, /) -> Val: ...
    @overload
    def __mod__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __mod__(self, other: Operand, /) -> Val: ...
    @overload
    def __rmod__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rmod__(self, other: Operand, /) -> Val: ...
    @overload
    def __pow__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __pow__(self, other: Operand, /) -> Val: ...
    @overload
    def __rpow__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rpow__(self, other: Operand, /) -> Val: ...
    @overload
    def __matmul__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __matmul__(self, other: Operand, /) -> Val: ...
    @overload
    def __rmatmul__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rmatmul__(self, other: Operand, /) -> Val: ...
    @overload
    def __and__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __and__(self, other: Operand, /) -> Val: ...
    @overload
    def __rand__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rand__(self, other: Operand, /) -> Val: ...
    @overload
    def __or__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __or__(self, other: Operand, /) -> Val: ...
    @overload
    def __ror__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __ror__(self, other: Operand, /) -> Val: ...
    @overload
    def __xor__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __xor__(self, other: Operand, /) -> Val: ...
    @overload
    def __rxor__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rxor__(self, other: Operand, /) -> Val: ...
    @overload
    def __lshift__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __lshift__(self, other: Operand, /) -> Val: ...
    @overload
    def __rlshift__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rlshift__(self, other: Operand, /) -> Val: ...
    @overload
    def __rshift__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rshift__(self, other: Operand, /) -> Val: ...
    @overload
    def __rrshift__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __rrshift__(self, other: Operand, /) -> Val: ...
    @overload
    def __lt__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __lt__(self, other: Operand, /) -> Val: ...
    @overload
    def __le__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __le__(self, other: Operand, /) -> Val: ...
    @overload
    def __gt__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __gt__(self, other: Operand, /) -> Val: ...
    @overload
    def __ge__(self, other: TensorView, /) -> TensorView: ...
    @overload
    def __ge__(self, other: Operand, /) -> Val: ...
    def __neg__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def __invert__(self) -> Self: ...
    def __array_function__(self, function: object, *_: object) -> NoReturn: ...
    def __hash__(self) -> builtins.int: ...
    __array_ufunc__: ClassVar[None]

class Shape(tuple[Val, ...]):
    """The extents of a tensor. Called, a list of them: `tensor.shape[0]` and `tensor.shape()[0]` are the same."""
    def __call__(self) -> list[Val]: ...

class TensorView(Val):
    """A tensor of a fusion: its dims, its dtype, and the verbs that schedule it."""

    node: ir.Tensor  # type: ignore[reportIncompatibleVariableOverride] - set once, by the class that fits
    @property
    def ndim(self) -> builtins.int:
        """Number of dims, reduced ones not counted."""
    def size(self, dim: SupportsIndex) -> Val:
        """The extent of a dim as an integer Val; the expanded extent of an expanded dim."""
    @property
    def shape(self) -> Shape:
        """All extents; `shape()` is a list of them."""
    def __iter__(self) -> NoReturn: ...
    def has_root(self) -> builtins.bool:
        """True if the op that makes the tensor transforms its dims (reshape, rfactor)."""
    def domain(self) -> TensorDomain:
        """All axes, for printing."""
    def get_root_domain(self) -> list[IterDomain]:
        """Dims as the op produces them; the logical ones where the op transforms none."""
    def get_logical_domain(self) -> list[IterDomain]:
        """Dims as the user sees them, reduced ones included."""
    def get_loop_domain(self) -> list[IterDomain]:
        """Axes of the loop nest as scheduled so far."""
    def axis(self, index: SupportsIndex) -> IterDomain:
        """One axis of the loop domain; negative indices wrap."""
    def __getitem__(self, key: Subscript | tuple[Subscript, ...]) -> TensorView:
        """A part of the tensor: ints and integer scalars take one element of a dim and drop it, slices some of them,
        each a
        step behind the last, None is a new dim of one element, `...` all dims that are not named.

        Negative positions count from the end, slices are clamped to the extent. Raises DefinitionTypeError for
        other keys
        (ops.index_select and ops.take_along_axis read at the indices of a tensor), and DefinitionRuntimeError for
        steps
        below 1, too many positions and those out of a known range.
        """
    def split(self, axis: SupportsIndex, factor: SupportsIndex, inner_split: Flag = True) -> TensorView:
        """Loop extent E becomes (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`. Returns self."""
    def inner_split(self, axis: SupportsIndex, factor: SupportsIndex) -> TensorView:
        """`split` with the factor inside."""
    def outer_split(self, axis: SupportsIndex, factor: SupportsIndex) -> TensorView:
        """`split` with the factor outside."""
    def merge(self, axis_o: SupportsIndex, axis_i: SupportsIndex | None = None) -> TensorView:
        """One axis of the product of two, `axis_o` outer; `axis_i` is the next one if omitted. Returns self."""
    def reorder(self, old2new: Mapping[builtins.int, builtins.int]) -> TensorView:
        """Move axes; unnamed ones fill the gaps in order. Returns self."""
    def swizzle(self, x: SupportsIndex, y: SupportsIndex) -> TensorView:
        """XOR swizzle of two loop axes. Returns self."""
    def swizzle1d(self, x: SupportsIndex, parallel_type: ParallelType) -> TensorView:
        """Rotate an axis by the device index on a mesh dim (needs several GPUs)."""
    def rfactor(self, axes: Sequence[SupportsIndex]) -> TensorView:
        """A new producer that reduces exactly `axes`; self reduces what remains over it."""
    def cache_after(
        self,
        op_type: LoadStoreOpType | None = None,
        cache_op: CacheOp | None = None,
        propagate_allocation_domain: Flag = True,
        cached_uses: Sequence[Expr] = (),
    ) -> TensorView:
        """Insert a copy of self, consumed by all or the listed uses; returns the copy."""
    def cache_before(self, op_type: LoadStoreOpType | None = None) -> TensorView:
        """A new tensor computes what self did and self becomes a copy of it; returns the new tensor."""
    def set_memory_type(self, memory_type: MemoryType) -> None:
        """Where the tensor lives; inputs and outputs stay global."""
    def set_allocation_domain(
        self, new_allocation_domain: Sequence[IterDomain], new_contiguity: Flag | Sequence[Flag | None]
    ) -> None:
        """Memory order, slowest axis first: a permutation or transform of the logical domain."""
    def set_device_mesh(self, mesh: object) -> None:
        """Distribute over several GPUs."""
    def __eq__(self, other: Operand, /) -> TensorView: ...
    def __ne__(self, other: Operand, /) -> TensorView: ...
    def __add__(self, other: Operand, /) -> TensorView: ...
    def __radd__(self, other: Operand, /) -> TensorView: ...
    def __sub__(self, other: Operand, /) -> TensorView: ...
    def __rsub__(self, other: Operand, /) -> TensorView: ...
    def __mul__(self, other: Operand, /) -> TensorView: ...
    def __rmul__(self, other: Operand, /) -> TensorView: ...
    def __truediv__(self, other: Operand, /) -> TensorView: ...
    def __rtruediv__(self, other: Operand, /) -> TensorView: ...
    def __floordiv__(self, other: Operand, /) -> TensorView: ...
    def __rfloordiv__(self, other: Operand, /) -> TensorView: ...
    def __mod__(self, other: Operand, /) -> TensorView: ...
    def __rmod__(self, other: Operand, /) -> TensorView: ...
    def __pow__(self, other: Operand, /) -> TensorView: ...
    def __rpow__(self, other: Operand, /) -> TensorView: ...
    def __matmul__(self, other: Operand, /) -> TensorView: ...
    def __rmatmul__(self, other: Operand, /) -> TensorView: ...
    def __and__(self, other: Operand, /) -> TensorView: ...
    def __rand__(self, other: Operand, /) -> TensorView: ...
    def __or__(self, other: Operand, /) -> TensorView: ...
    def __ror__(self, other: Operand, /) -> TensorView: ...
    def __xor__(self, other: Operand, /) -> TensorView: ...
    def __rxor__(self, other: Operand, /) -> TensorView: ...
    def __lshift__(self, other: Operand, /) -> TensorView: ...
    def __rlshift__(self, other: Operand, /) -> TensorView: ...
    def __rshift__(self, other: Operand, /) -> TensorView: ...
    def __rrshift__(self, other: Operand, /) -> TensorView: ...
    def __lt__(self, other: Operand, /) -> TensorView: ...
    def __le__(self, other: Operand, /) -> TensorView: ...
    def __gt__(self, other: Operand, /) -> TensorView: ...
    def __ge__(self, other: Operand, /) -> TensorView: ...
    def __hash__(self) -> builtins.int: ...
    def __bool__(self) -> NoReturn: ...
    @property
    def T(self) -> TensorView:
        """All dims in reverse order."""
    @property
    def mT(self) -> TensorView:
        """The last two dims swapped. Raises DefinitionRuntimeError for a tensor of rank below 2."""
    def abs(self) -> TensorView:
        """Absolute value; the magnitude of a complex number.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the dtype of the operand; of its parts if that is complex.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def acos(self) -> TensorView:
        """Arc cosine; real input outside [-1, 1] gives nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def acosh(self) -> TensorView:
        """Inverse hyperbolic cosine; real input below 1 gives nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def add(self, rhs: Operand, /) -> TensorView:
        """Sum; logical or of two Bools.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def addcmul(self, b: Operand, c: Operand, alpha: Operand) -> TensorView:
        """a + b * (c * alpha) with a scalar alpha, in the promoted dtype of a, b and c."""
    def argsort(self, dim: SupportsIndex, descending: Flag = False, stable: Flag = False) -> TensorView:
        """The indices (Int) that sort a dim. A nan is larger than any number; `stable` keeps equal elements in order.

        Raises DefinitionRuntimeError for a dim out of range and for complex numbers.
        """
    def asin(self) -> TensorView:
        """Arc sine; real input outside [-1, 1] gives nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def asinh(self) -> TensorView:
        """Inverse hyperbolic sine.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def atan(self) -> TensorView:
        """Arc tangent.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def atan2(self, rhs: Operand, /) -> TensorView:
        """Angle of the point (x = rhs, y = lhs).

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def atanh(self) -> TensorView:
        """Inverse hyperbolic tangent; +-1 gives +-inf, outside nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bfloat16(self) -> TensorView:
        """The tensor in BFloat16, as `cast`."""
    def bitwise_and(self, rhs: Operand, /) -> TensorView:
        """Bitwise and; logical and of two Bools.

        Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bitwise_left_shift(self, rhs: Operand, /) -> TensorView:
        """lhs shifted left; an amount below 0 or not below the width gives 0.

        Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bitwise_not(self) -> TensorView:
        """Ones' complement of integers; logical not of Bool.

        Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bitwise_or(self, rhs: Operand, /) -> TensorView:
        """Bitwise or; logical or of two Bools.

        Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bitwise_right_shift(self, rhs: Operand, /) -> TensorView:
        """lhs shifted right arithmetically; an amount below 0 or not below the width fills with the sign.

        Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bitwise_xor(self, rhs: Operand, /) -> TensorView:
        """Bitwise exclusive or; `ne` of two Bools.

        Operands: integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def bool(self) -> TensorView:
        """The tensor in Bool, as `cast`."""
    def broadcast(self, is_broadcast_dim: Sequence[Flag]) -> TensorView:
        """New size-1 dims at the True positions; the dims of arg take the False ones in order.

        Raises DefinitionRuntimeError (`Invalid broadcast`) if the number of False entries is not the rank.
        """
    def broadcast_in_dim(self, shape: Sequence[Extent], broadcast_dims: Sequence[SupportsIndex]) -> TensorView:
        """Dim i of arg becomes dim broadcast_dims[i] of the result, other dims are new; then expanded to `shape`.

        Raises DefinitionRuntimeError for a list of other length than the rank, a shape of lower rank, and positions
        that are
        repeated, not increasing or out of range.
        """
    def cast(self, dtype: Dtype) -> TensorView:
        """`arg` in `dtype`; of the same dtype, a copy.

        float -> integer truncates toward zero (out of range unspecified), anything -> Bool is `!= 0`, narrowing of
        floats
        rounds to nearest even, complex -> real drops the imaginary part with a warning.
        Raises DefinitionRuntimeError (`Illegal Cast value`) for pairs that cannot be converted.
        """
    def ceil(self) -> TensorView:
        """Smallest whole number not below x; integers unchanged.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def clamp(self, min: Operand | None, max: Operand | None) -> TensorView:
        """min(max(x, min), max) with scalar bounds, None for no bound; keeps the dtype, nan stays nan, min > max gives
        max.
        """
    def complex(self, rhs: Operand, /) -> TensorView:
        """Complex number of real part lhs and imaginary part rhs.

        Operands: floating; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the complex dtype whose parts the operands are.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def cos(self) -> TensorView:
        """Cosine.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def cosh(self) -> TensorView:
        """Hyperbolic cosine.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def cummax(self, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
        """Running maximum along a dim; nan from the first nan on.

        Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
        Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per
        element.
        Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
        kind that arg's dtype cannot hold.
        """
    def cummin(self, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
        """Running minimum along a dim; nan from the first nan on.

        Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
        Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per
        element.
        Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
        kind that arg's dtype cannot hold.
        """
    def cumprod(self, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
        """Running product along a dim.

        Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
        Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per
        element.
        Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
        kind that arg's dtype cannot hold.
        """
    def cumsum(self, dim: SupportsIndex, init: Operand | None = None) -> TensorView:
        """Running sum along a dim.

        Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.
        Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per
        element.
        Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a
        kind that arg's dtype cannot hold.
        """
    def div(self, rhs: Operand, /) -> TensorView:
        """Quotient; truncated toward zero for integers.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def double(self) -> TensorView:
        """The tensor in Double, as `cast`."""
    def eq(self, rhs: Operand, /) -> TensorView:
        """lhs == rhs; nan is never equal.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def erf(self) -> TensorView:
        """Error function.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def erfc(self) -> TensorView:
        """Complementary error function, 1 - erf(x) without cancellation.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def erfcinv(self) -> TensorView:
        """Inverse of erfc: erfinv(1 - x).

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def erfinv(self) -> TensorView:
        """Inverse of erf; +-1 gives +-inf, outside nan.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def exp(self) -> TensorView:
        """Exponential.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def exp2(self) -> TensorView:
        """2 to the power x.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def expand(self, *shape: Extent | Sequence[Extent]) -> TensorView:
        """Size-1 dims seen as many times as the shape says, without a copy; -1 keeps an extent. See `ops.expand`."""
    def expm1(self) -> TensorView:
        """exp(x) - 1, accurate near 0.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def float(self) -> TensorView:
        """The tensor in Float, as `cast`."""
    def floor(self) -> TensorView:
        """Largest whole number not above x; integers unchanged.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def fmod(self, rhs: Operand, /) -> TensorView:
        """Remainder with the sign of lhs.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def frac(self) -> TensorView:
        """x - trunc(x).

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def gather(self, index: TensorView, dim: SupportsIndex) -> TensorView:
        """The shape of index: out[i, j, k] = arg[i, index[i, j, k], k] for dim=1. Other dims of index may be shorter
        than arg's.

        Raises DefinitionRuntimeError for different ranks, a dim out of range and an index that holds no numbers or
        is longer.
        """
    def gcd(self, rhs: Operand, /) -> TensorView:
        """Greatest common divisor, never negative; gcd(0, 0) = 0.

        Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def ge(self, rhs: Operand, /) -> TensorView:
        """lhs >= rhs; False if either is nan.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    @overload
    def grouped_mm(self, mat2: TensorView, offsets: TensorView) -> TensorView:
        """Products of groups, whose ends along one dim are in offsets[g]: [m, k] x [k, n] gives [g, m, n], k is cut;
        [g, m, k] x
        [k, n] gives [m, n], n is cut; [m, k] x [g, k, n] gives [m, n], m is cut. What lies behind the last end is
        unspecified.

        Raises DefinitionRuntimeError for other ranks, dims that do not fit, offsets that are no Int32[g], operands
        of other dtypes
        than one floating one; NotSupportedError for scales, which come with 8- and 4-bit floats.
        """
    @overload
    def grouped_mm(
        self,
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
    def gt(self, rhs: Operand, /) -> TensorView:
        """lhs > rhs; False if either is nan.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def half(self) -> TensorView:
        """The tensor in Half, as `cast`."""
    def imag(self) -> TensorView:
        """Imaginary part of a complex number.

        Operands: complex; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the dtype of the parts of a complex operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def index_select(self, index: TensorView, dim: SupportsIndex) -> TensorView:
        """out[.., k, ..] = arg[.., index[k], ..]; an index of rank 0 gives a dim of extent 1.

        Raises DefinitionRuntimeError for an arg of rank 0, an index of rank above 1 or that holds no numbers, and a
        dim out of
        range.
        """
    def int(self) -> TensorView:
        """The tensor in Int32, as `cast`."""
    def isfinite(self) -> TensorView:
        """True where x is neither infinite nor nan.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def isinf(self) -> TensorView:
        """True where x, or a part of it, is infinite.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def isnan(self) -> TensorView:
        """True where x, or a part of it, is nan.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def isneginf(self) -> TensorView:
        """True where x is -inf.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def isposinf(self) -> TensorView:
        """True where x is +inf.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def isreal(self) -> TensorView:
        """True where the imaginary part is 0; always for real dtypes.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def le(self, rhs: Operand, /) -> TensorView:
        """lhs <= rhs; False if either is nan.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def lerp(self, end: Operand, weight: Operand, /) -> TensorView:
        """start + w * (end - start), exact at both ends.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def lgamma(self) -> TensorView:
        """Logarithm of the absolute value of the gamma function.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def linear(self, arg2: TensorView, bias: TensorView | None = None) -> TensorView:
        """arg1[.., K] @ arg2[N, K] transposed + bias[N]: [.., N].

        Raises DefinitionRuntimeError for operands of other dtypes than one floating one, an arg2 of other rank than
        2, a bias of
        other rank than 1, and for dims that do not fit. How long the bias is the execution checks.
        """
    def log(self) -> TensorView:
        """Natural logarithm; log(0) = -inf, negative real input nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def log10(self) -> TensorView:
        """Logarithm to base 10.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def log1p(self) -> TensorView:
        """log(1 + x), accurate near 0.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def log2(self) -> TensorView:
        """Logarithm to base 2.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def logical_and(self, rhs: Operand, /) -> TensorView:
        """True where both operands are nonzero.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def logical_not(self) -> TensorView:
        """True where x is zero.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def logical_or(self, rhs: Operand, /) -> TensorView:
        """True where either operand is nonzero.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def logical_right_shift(self, rhs: Operand, /) -> TensorView:
        """lhs shifted right with zeros at its width; an amount not below the width gives 0, a negative one is
        unspecified.
        """
    def long(self) -> TensorView:
        """The tensor in Int, as `cast`."""
    def lt(self, rhs: Operand, /) -> TensorView:
        """lhs < rhs; False if either is nan.

        Operands: floating, integer, Bool, UInt64; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def matmul(self, arg2: TensorView) -> TensorView:
        """arg1[.., M, K] @ arg2[.., K, N]: [.., M, N]. Of a vector the dim that it lacks is dropped; leading dims
        broadcast.

        Sums run in Float, of Double in Double, and are rounded once. Raises DefinitionRuntimeError for operands of
        rank 0, of
        other dtypes than one floating one, and for dims that do not fit.
        """
    @overload
    def max(self, dtype: Dtype = DataType.Null) -> TensorView:
        """Largest element over the given dims; nan if any is nan.

        All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
        Result: dtype that of arg; 16-bit floats accumulate in Float and round once.
        Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
        """
    @overload
    def max(self, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    @overload
    def max(self, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    def maximum(self, rhs: Operand, /) -> TensorView:
        """Larger operand; nan if either is nan.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def mean(self, dim: SupportsIndex | Sequence[SupportsIndex] | None = None, keepdim: Flag = False) -> TensorView:
        """The sum over the dims, all unless given, divided by the number of elements.

        Result: the dtype of the tensor; 16-bit floats, integers and Bool give Float. No element gives nan.
        Raises DefinitionRuntimeError for empty, repeated or out-of-range dims.
        """
    @overload
    def min(self, dtype: Dtype = DataType.Null) -> TensorView:
        """Smallest element over the given dims; nan if any is nan.

        All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
        Result: dtype that of arg; 16-bit floats accumulate in Float and round once.
        Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
        """
    @overload
    def min(self, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    @overload
    def min(self, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    def minimum(self, rhs: Operand, /) -> TensorView:
        """Smaller operand; nan if either is nan.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def mod(self, rhs: Operand, /) -> TensorView:
        """Integer remainder with the sign of lhs.

        Operands: integer; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def mul(self, rhs: Operand, /) -> TensorView:
        """Product; logical and of two Bools.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def ne(self, rhs: Operand, /) -> TensorView:
        """lhs != rhs; nan is always unequal.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def neg(self) -> TensorView:
        """Negation.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def nextafter(self, rhs: Operand, /) -> TensorView:
        """Next floating-point number after lhs toward rhs.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands, which must be Float or Double.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def pad(self, pad_widths: Sequence[Extent], value: Operand | None = None) -> TensorView:
        """`value` (0 or False unless given) around arg: pairs (left, right) of widths, innermost dim first, dims not
        listed as
        they are. A negative width crops.

        Raises DefinitionRuntimeError for an odd number of widths, more than two per dim, a value of another kind
        than arg, and a
        dim whose extent would become negative.
        """
    def permute(self, *dims: SupportsIndex | Sequence[SupportsIndex]) -> TensorView:
        """Dim i of the result is dim dims[i], `permute(1, 0)` or `permute([1, 0])`. See `ops.permute`."""
    def pow(self, rhs: Operand, /) -> TensorView:
        """lhs to the power rhs; integers stay integer (negative exponents round toward zero).

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    @overload
    def prod(self, dtype: Dtype = DataType.Null) -> TensorView:
        """Product over the given dims.

        All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
        Result: dtype `dtype` if given (arg is cast first), else Int for Bool, Int32 and Int, else that of arg;
        16-bit floats accumulate in Float and round once.
        Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
        """
    @overload
    def prod(self, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    @overload
    def prod(
        self, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null
    ) -> TensorView: ...
    def rand_like(self) -> TensorView:
        """Uniform random numbers in [0, 1) of the shape and dtype of x, as `uniform` draws them.

        Raises DefinitionRuntimeError for tensors that are not floating.
        """
    def randn_like(self) -> TensorView:
        """Standard normal random numbers of the shape and dtype of x, as `normal` draws them.

        Raises DefinitionRuntimeError for tensors that are not floating.
        """
    def real(self) -> TensorView:
        """Real part; a copy of real input.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: the dtype of the parts of a complex operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def reciprocal(self) -> TensorView:
        """1 / x.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def relu(self) -> TensorView:
        """0 where x <= 0, else x; nan stays nan.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def remainder(self, rhs: Operand, /) -> TensorView:
        """Remainder with the sign of rhs.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def reshape(self, *new_shape: Extent | Sequence[Extent]) -> TensorView:
        """The elements in row-major order of the logical dims under other dims, `reshape(2, -1)` or `reshape([2,
        -1])`.

        A size is an int, -1 at most once, for what the others leave, or a scalar of the fusion: a size of a tensor,
        a
        `define_scalar`, or an expression of them, as in `x.reshape(x.size(0), groups, x.size(1) // groups)`.
        Scalars of floating
        dtypes are cast to Int. Errors are those of `ops.reshape`.
        """
    def round(self) -> TensorView:
        """Nearest whole number, ties to even; integers unchanged.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def rsqrt(self) -> TensorView:
        """1 / sqrt(x).

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def scatter(self, index: TensorView, src: Operand, dim: SupportsIndex) -> TensorView:
        """A copy of arg with out[i, index[i, j, k], k] = src[i, j, k], for dim=1; src is a number, or like arg.

        Where two indices are equal one of them counts, which is not said. Indices are not wrapped, and what one
        outside of the dim
        does is unspecified; the simulator tells of it. Raises DefinitionRuntimeError for other ranks and dtypes, a
        dim out of
        range, and an index that is longer than src, or than arg along other dims.
        """
    def sdpfa_bwd(
        self,
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

        Raises DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than 4 or
        5, a logsumexp
        that has not one dim less, and for dims that do not fit.
        """
    def sdpfa_fwd(
        self,
        key: TensorView,
        value: TensorView,
        bias: TensorView | None = None,
        mask: TensorView | None = None,
        dropout_p: Operand | None = None,
        is_causal: Val | Flag | None = None,
        scale: Operand | None = None,
    ) -> tuple[TensorView, TensorView, TensorView, TensorView]:
        """Attention, softmax(query key^T * scale + bias) value, of query[N.., H, L, E], key[N.., H, S, E] and
        value[N.., H, S, Ev].

        Also the logarithm of the sum of exponentials of each row, [N.., H, L] in Float, and the state of the
        dropout. Where mask is
        False, and where a column is behind its row if is_causal, nothing is seen. Without scale it is 1/sqrt(E).
        Raises
        DefinitionRuntimeError for operands of other dtypes than one floating one, of other ranks than one of at
        least 4, and for
        dims that do not fit.
        """
    def segment_set(self) -> TensorView:
        """Copy that forces a kernel boundary between its producer and its consumers. Keeps the dtype."""
    def select(self, index: Extent, dim: SupportsIndex) -> TensorView:
        """arg without `dim`, at one index of it.

        Raises DefinitionRuntimeError for an arg of rank 0, a dim out of range and an index that is no integer. An
        index that turns
        out to be outside of the dim is an InputRuntimeError of the execution.
        """
    def set(self) -> TensorView:
        """Copy.

        Operands: floating, integer, Bool, complex, UInt64; shapes are broadcast, lower ranks get size-1 dims on the
        left. Scalars alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def sigmoid(self) -> TensorView:
        """1 / (1 + exp(-x)).

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def sign(self) -> TensorView:
        """-1, 0 or 1; 0 for zeros of either sign and for nan. Keeps the dtype."""
    def signbit(self) -> TensorView:
        """The sign bit of floats (True for -0.0; of a computed nan either); x < 0 for integers.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: Bool.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def silu(self) -> TensorView:
        """x * sigmoid(x).

        Operands: floating; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a
        scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def sin(self) -> TensorView:
        """Sine.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def sinh(self) -> TensorView:
        """Hyperbolic sine.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def slice(
        self,
        start_indices: Sequence[Extent],
        end_indices: Sequence[Extent],
        strides: Sequence[Extent] | None = None,
        manual_normalization: Flag = False,
    ) -> TensorView:
        """Every stride-th of the elements [start, end) of each dim. An end past the extent is clamped; run-time
        indices count from
        the end where they are negative and are clamped to the extent, unless `manual_normalization` promises
        0 <= start <= end <= extent.

        Raises DefinitionRuntimeError for lists of other length than the rank, literal starts below 0, ends below
        starts and
        strides that are no constants or below 1.
        """
    def sqrt(self) -> TensorView:
        """Square root; negative real input gives nan.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def squeeze(self, *dims: SupportsIndex | Sequence[SupportsIndex], squeeze_expanded: Flag = False) -> TensorView:
        """Drop size-1 dims, which are named: `squeeze(0)`, `squeeze(0, 2)` or `squeeze([0, 2])`. See `ops.squeeze`.

        Raises DefinitionTypeError without dims: which extents are 1 may be known only when inputs are.
        """
    def stride_order(self, stride_order: Sequence[SupportsIndex]) -> TensorView:
        """Dense copy in a memory order: per dim its rank from fastest (0) to slowest, negative ones wrap; [] is a
        plain copy.

        Raises DefinitionRuntimeError for a list of other length than the rank, ranks out of range and repeated
        ones.
        """
    def sub(self, rhs: Operand, /) -> TensorView:
        """lhs - rhs.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    @overload
    def sum(self, dtype: Dtype = DataType.Null) -> TensorView:
        """Sum over the given dims.

        All dims without `dim` or `dims`; `keepdim` keeps reduced dims as size-1 dims. A rank-0 tensor is copied.
        Result: dtype `dtype` if given (arg is cast first), else Int for Bool, Int32 and Int, else that of arg;
        16-bit floats accumulate in Float and round once.
        Raises DefinitionRuntimeError for empty, repeated or out-of-range dims and operands of other kinds.
        """
    @overload
    def sum(self, dim: SupportsIndex, keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    @overload
    def sum(self, dims: Sequence[SupportsIndex], keepdim: Flag = False, dtype: Dtype = DataType.Null) -> TensorView: ...
    def take_along_axis(self, index: TensorView, dim: SupportsIndex) -> TensorView:
        """As gather, but dims other than `dim` are of equal extent or broadcast (extent 1 on either side).

        Raises DefinitionRuntimeError for different ranks or extents, a dim out of range and an index that holds no
        numbers.
        """
    def tan(self) -> TensorView:
        """Tangent.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def tanh(self) -> TensorView:
        """Hyperbolic tangent.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def threshold(self, thr: Operand, value: Operand) -> TensorView:
        """`value` where x <= thr, else x, with scalar thr and value; keeps the dtype, nan stays nan."""
    def to(self, dtype: Dtype) -> TensorView:
        """The tensor in another dtype, as `cast`."""
    def topk(
        self, k: Extent, dim: SupportsIndex = -1, largest: Flag = True, sorted: Flag = False
    ) -> tuple[TensorView, TensorView]:
        """The k largest or smallest elements of a dim, and their indices (Int). A nan is larger than any number.

        Without `sorted` they come in any order. Raises DefinitionRuntimeError for a dim out of range, a k that is
        no integer,
        negative (`Invalid resized domain extent`) or longer than the dim (`k is .. out of range`), and for complex
        numbers; of a k
        that is a scalar the execution tells.
        """
    def transpose(self, dim0: SupportsIndex, dim1: SupportsIndex) -> TensorView:
        """Two dims swapped.

        Raises DefinitionRuntimeError for dims out of range.
        """
    def triu(self, diagonal: Extent = 0) -> TensorView:
        """The elements [.., i, j] with j - i >= diagonal, 0 elsewhere.

        Raises DefinitionRuntimeError for an arg of rank below 2 and a diagonal that is no integer.
        """
    def truediv(self, rhs: Operand, /) -> TensorView:
        """True division; two integers give Float.

        Operands: floating, integer, Bool, complex; shapes are broadcast, lower ranks get size-1 dims on the left.
        Scalars alone give a scalar.
        Result: the promoted dtype of the operands; 16-bit floats, integers and Bool become Float.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def trunc(self) -> TensorView:
        """Whole number next toward zero; integers unchanged.

        Operands: floating, integer, Bool; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars
        alone give a scalar.
        Result: the dtype of the operand.
        Raises DefinitionRuntimeError for operands of other kinds.
        """
    def unsqueeze(self, dim: SupportsIndex) -> TensorView:
        """A new size-1 dim at position `dim` of the result.

        Raises DefinitionRuntimeError for a position outside of the result.
        """
    def var(
        self,
        dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        correction: SupportsIndex = 1,
        keepdim: Flag = False,
    ) -> TensorView:
        """Sum of squared deviations over max(N - correction, 0), over all dims unless given. See `ops.var`."""
    def var_mean(
        self,
        dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        correction: SupportsIndex = 1,
        keepdim: Flag = False,
    ) -> tuple[TensorView, TensorView]:
        """(variance, mean) in one pass, over all dims unless given. See `ops.var_mean`."""
    def welford(self, dims: Sequence[SupportsIndex]) -> tuple[TensorView, TensorView, TensorView]:
        """(mean, m2, n) over `dims`: mean and sum of squared deviations in the dtype of arg (16-bit floats: Float),
        count in
        Index.

        Raises DefinitionRuntimeError for a rank-0 tensor, operands that are not floating, empty or repeated dims.
        """

class IterDomain(Statement):
    """A dim of a tensor, or an axis that transforms made. Compares and hashes by identity."""

    node: ir.IterDomain
    tensor: TensorView
    def __init__(self, tensor: TensorView, domain: ir.IterDomain) -> None: ...
    def is_reduction(self) -> builtins.bool: ...
    def is_broadcast(self) -> builtins.bool: ...
    def extent(self) -> Val:
        """Number of positions along the axis."""
    def definition(self) -> Expr | None:
        """The Split or Merge that made the axis, if one did."""
    def uses(self) -> list[Expr]:
        """The splits and merges of the tensor that take the axis, from its loop domain back to its dims."""
    def parallelize(self, parallel_type: ParallelType) -> None:
        """Bind the axis to blockIdx, threadIdx or a kind of loop."""

class TensorDomain(Statement):
    """All dims of a tensor, for printing."""

    tensor: TensorView
    def __init__(self, tensor: TensorView) -> None: ...

class Expr(Statement):
    """An op of a fusion, or a transform of one axis into others."""

    node: ir.Expr | ir.Transform
    inputs: tuple[Val | IterDomain, ...]
    outputs: tuple[Val | IterDomain, ...]
    def __init__(
        self,
        fusion: Owner,
        expr: ir.Expr | ir.Transform,
        inputs: Sequence[Val | IterDomain],
        outputs: Sequence[Val | IterDomain],
    ) -> None: ...
    def input(self, index: SupportsIndex) -> Val | IterDomain:
        """Operand number `index`."""
    def output(self, index: SupportsIndex) -> Val | IterDomain:
        """Result number `index`."""

class Split(Expr):
    """One axis becomes two."""
    def outer(self) -> Val | IterDomain: ...
    def inner(self) -> Val | IterDomain: ...

class Merge(Expr):
    """Two axes become one."""
    def outer(self) -> Val | IterDomain: ...
    def inner(self) -> Val | IterDomain: ...

class BroadcastOp(Expr):
    """New dims of extent 1."""

class ReshapeOp(Expr):
    """Dims of the same elements in row-major order."""

class SqueezeOp(Expr):
    """Dims of extent 1 are dropped."""

def wrap_axis(index: int, total: int, what: str = "dim") -> int:
    """`index` with negative values counted from the end.

    Raises DefinitionRuntimeError (`Tried to access out of boundary index`) outside [-total, total).
    """
