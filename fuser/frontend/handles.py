"""What a user holds: handles of the values, axes and exprs of one fusion, interned so that identity is stable.

Grammar
    handle := Val | TensorView | IterDomain | TensorDomain | Expr
    Expr   := Split | Merge | BroadcastOp | ReshapeOp | SqueezeOp | Expr        tested with type(...)

A handle names a value of `fuser.ir`; it holds no state of its own. Scheduling verbs and queries go to
`fuser.frontend.schedule_access`, arithmetic goes to `fuser.frontend.ops`. Ops are methods of tensors as well: those that
`fuser.frontend.methods` puts on the class when the first is called, and `handles.pyi` shows to type checkers.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from fuser.errors import DefinitionAttributeError, DefinitionIndexError, DefinitionRuntimeError, DefinitionTypeError
from fuser.ir import fusion as ir
from fuser.ir.axis_range import outside_text
from fuser.ir.dtypes import DataType
from fuser.ir.print_fusion import dim_text, expr_text, transform_text, typed_text
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks, shorten

if TYPE_CHECKING:
    from typing import TypeAlias

    from fuser.frontend.fusion_handle import Fusion
    from fuser.ir.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType

    Number: TypeAlias = bool | int | float | complex
    Operand: TypeAlias = "Val | Number"


class _Handle(type):
    """`dir` of a class of handles shows what users call, as that of a handle does."""

    def __dir__(cls) -> list[str]:
        from fuser.frontend.methods import public_names

        return public_names(cls)


class Statement(metaclass=_Handle):
    """Anything of a fusion that can be printed."""

    __slots__ = ("fusion",)

    fusion: Fusion

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def __repr__(self) -> str:
        return str(self)


@short_tracebacks
class Val(Statement):
    """A scalar or tensor of a fusion.

    Operators are ops: `==` and `!=` compare elements and give a value of Bool. Two names are one value if `a is b`;
    hashes go by identity, so that values can be keys.
    """

    __slots__ = ("node",)

    node: ir.Val

    # NumPy scalars and arrays must hand `array + val` over to `val.__radd__` instead of looping over elements.
    __array_ufunc__ = None

    def __array_function__(self, function: object, *_: object) -> NoReturn:
        """The answer to NumPy's functions, which take arrays: what the op is called here."""
        from fuser.frontend.advice import advice_on_numpy

        raise DefinitionTypeError(advice_on_numpy(function), location=caller_location())

    def __init__(self, fusion: Fusion, value: ir.Val) -> None:
        self.fusion = fusion
        self.node = value

    def __str__(self) -> str:
        return typed_text(self.node)

    @property
    def name(self) -> str:
        """The stable name of the value in its fusion."""
        return self.node.name

    @property
    def dtype(self) -> DataType:
        """Element type; `dtype()` is the same."""
        return self.node.dtype

    def is_symbolic(self) -> bool:
        """True unless the value is a constant."""
        return isinstance(self.node, ir.Tensor) or not self.node.is_constant

    def is_tensor(self) -> bool:
        """True for a TensorView."""
        return isinstance(self.node, ir.Tensor)

    def definition(self) -> Expr | None:
        """The expr that computes the value; None for inputs and constants."""
        from fuser.frontend import schedule_access

        return schedule_access.definition(self)

    def uses(self) -> list[Expr]:
        """The exprs that read the value."""
        from fuser.frontend import schedule_access

        return schedule_access.uses(self)

    # Operators. Those of `==` and `!=` give a value, not a bool, as arrays do.

    def __eq__(self, other: object) -> Val:  # type: ignore[reportIncompatibleMethodOverride]
        return _comparison("eq", self, other)

    def __ne__(self, other: object) -> Val:  # type: ignore[reportIncompatibleMethodOverride]
        return _comparison("ne", self, other)

    __hash__ = object.__hash__

    def __add__(self, other: Operand) -> Val:
        return _binary("add", self, other)

    def __radd__(self, other: Operand) -> Val:
        return _binary("add", other, self)

    def __sub__(self, other: Operand) -> Val:
        return _binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Val:
        return _binary("sub", other, self)

    def __mul__(self, other: Operand) -> Val:
        return _binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Val:
        return _binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Val:
        return _binary("truediv", self, other)

    def __rtruediv__(self, other: Operand) -> Val:
        return _binary("truediv", other, self)

    def __floordiv__(self, other: Operand) -> Val:
        return _binary("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Val:
        return _binary("floordiv", other, self)

    def __mod__(self, other: Operand) -> Val:
        return _binary("remainder", self, other)

    def __rmod__(self, other: Operand) -> Val:
        return _binary("remainder", other, self)

    def __pow__(self, other: Operand) -> Val:
        return _binary("pow", self, other)

    def __rpow__(self, other: Operand) -> Val:
        return _binary("pow", other, self)

    def __matmul__(self, other: Operand) -> Val:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Val:
        return _binary("matmul", other, self)

    def __and__(self, other: Operand) -> Val:
        return _binary("bitwise_and", self, other)

    def __rand__(self, other: Operand) -> Val:
        return _binary("bitwise_and", other, self)

    def __or__(self, other: Operand) -> Val:
        return _binary("bitwise_or", self, other)

    def __ror__(self, other: Operand) -> Val:
        return _binary("bitwise_or", other, self)

    def __xor__(self, other: Operand) -> Val:
        return _binary("bitwise_xor", self, other)

    def __rxor__(self, other: Operand) -> Val:
        return _binary("bitwise_xor", other, self)

    def __lshift__(self, other: Operand) -> Val:
        return _binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Operand) -> Val:
        return _binary("bitwise_left_shift", other, self)

    def __rshift__(self, other: Operand) -> Val:
        return _binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Operand) -> Val:
        return _binary("bitwise_right_shift", other, self)

    def __lt__(self, other: Operand) -> Val:
        return _binary("lt", self, other)

    def __le__(self, other: Operand) -> Val:
        return _binary("le", self, other)

    def __gt__(self, other: Operand) -> Val:
        return _binary("gt", self, other)

    def __ge__(self, other: Operand) -> Val:
        return _binary("ge", self, other)

    def __neg__(self) -> Val:
        return _unary("neg", self)

    def __pos__(self) -> Val:
        return self

    def __abs__(self) -> Val:
        return _unary("abs", self)

    def __invert__(self) -> Val:
        return _unary("bitwise_not", self)

    def __getattr__(self, name: str) -> Any:
        # Not for what Python and libraries look for, nor for the fields of a handle that is being made.
        if name.startswith("__") or name in ("fusion", "node"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        from fuser.frontend.methods import find_attribute

        try:
            return find_attribute(self, name)
        except DefinitionAttributeError as error:
            shorten(error)
            raise

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        # NumPy would make an array of one object.
        raise DefinitionTypeError(
            "a definition has no values, so that no array can be made of them; they are what fd.execute(...) returns"
            + ("" if self.is_tensor() else ", and math.prod(x.shape) is a product of extents"),
            location=caller_location(),
        )

    def __bool__(self) -> bool:
        """The truth of a constant scalar; anything else has none while defining."""
        if isinstance(self.node, ir.Scalar) and self.node.value is not None:
            return bool(self.node.value)
        raise DefinitionTypeError(
            f"{'a TensorView' if self.is_tensor() else 'a symbolic scalar'} has no truth value while defining; "
            "select elements with ops.where, ops.maximum or ops.minimum, join conditions with & and |, and ask whether two "
            "names are one value with `is`",
            location=caller_location(),
        )


def _binary(op: str, left: Operand, right: Operand) -> Val:
    from fuser.frontend.operators import apply_operator

    return apply_operator(op, left, right)


def _comparison(op: str, left: Val, right: object) -> Val:
    from fuser.frontend.operators import compare

    return compare(op, left, right)


def _unary(op: str, operand: Operand) -> Val:
    from fuser.frontend.operators import apply_operator

    return apply_operator(op, operand)


@short_tracebacks
class Shape(tuple[Val, ...]):
    """The extents of a tensor. Called, a list of them: `tensor.shape[0]` and `tensor.shape()[0]` are the same."""

    __slots__ = ()

    def __call__(self) -> list[Val]:
        return list(self)

    if not TYPE_CHECKING:

        def __getitem__(self, key: object) -> Any:
            """As a tuple's; DefinitionIndexError for a dim that the tensor does not have."""
            try:
                return super().__getitem__(key)
            except IndexError:
                raise DefinitionIndexError(
                    outside_text("shape: dim", operator.index(key), len(self)), location=caller_location()
                ) from None


@short_tracebacks
class TensorView(Val):
    """A tensor of a fusion: its dims, its dtype, and the verbs that schedule it."""

    __slots__ = ()

    node: ir.Tensor  # type: ignore[reportIncompatibleVariableOverride] - set once, by the class that fits

    @property
    def ndim(self) -> int:
        """Number of dims, reduced ones not counted."""
        return self.node.ndim

    def size(self, dim: int) -> Val:
        """The extent of a dim as an integer Val; the expanded extent of an expanded dim."""
        return self.fusion.size(self, wrap_axis(dim, self.node.ndim, "size(): dim"))

    @property
    def shape(self) -> Shape:
        """All extents; `shape()` is a list of them."""
        return Shape(self.fusion.size(self, d) for d in range(self.node.ndim))

    def __getitem__(self, key: object) -> TensorView:
        """A part of the tensor: ints and integer scalars take one element of a dim and drop it, slices a run of them (step 1),
        None is a new dim of one element, `...` all dims that are not named.

        Negative positions count from the end, slices are clamped to the extent. Raises DefinitionTypeError for other keys
        (ops.index_select and ops.take_along_axis read at the indices of a tensor), and DefinitionRuntimeError for steps, too
        many positions and those out of a known range.
        """
        from fuser.frontend.subscripts import subscript

        return subscript(self, key)

    if not TYPE_CHECKING:

        def __setitem__(self, key: object, value: object) -> NoReturn:
            raise DefinitionTypeError(
                "elements of a tensor cannot be set: make another tensor, as with fd.ops.where(condition, value, x) or "
                "fd.ops.cat([x[:1], y])",
                location=caller_location(),
            )

        def __delitem__(self, key: object) -> NoReturn:
            self[key] = None

    def __iter__(self) -> NoReturn:
        raise DefinitionTypeError(
            "a TensorView cannot be iterated over or unpacked: fd.ops take all of its elements at once, max and min give "
            "values alone, x[i] is one row, and x[:2], x[2:] are two parts",
            location=caller_location(),
        )

    # Domains.

    def has_root(self) -> bool:
        """True if the op that makes the tensor transforms its dims (reshape, rfactor)."""
        from fuser.frontend import schedule_access

        return schedule_access.current_tensor(self).root is not None

    def domain(self) -> TensorDomain:
        """All axes, for printing."""
        return TensorDomain(self)

    def get_root_domain(self) -> list[IterDomain]:
        """Dims as the op produces them; the logical ones where the op transforms none."""
        from fuser.frontend import schedule_access

        return self._axes(schedule_access.current_tensor(self).produced)

    def get_logical_domain(self) -> list[IterDomain]:
        """Dims as the user sees them, reduced ones included."""
        from fuser.frontend import schedule_access

        return self._axes(schedule_access.current_tensor(self).logical)

    def get_loop_domain(self) -> list[IterDomain]:
        """Axes of the loop nest as scheduled so far."""
        from fuser.frontend import schedule_access

        return self._axes(schedule_access.loop_domain(self))

    def axis(self, index: int) -> IterDomain:
        """One axis of the loop domain; negative indices wrap."""
        loop = self.get_loop_domain()
        return loop[wrap_axis(index, len(loop), "axis(): loop axis")]

    def _axes(self, domains: Sequence[ir.IterDomain]) -> list[IterDomain]:
        return [self.fusion.axis_handle(self, d) for d in domains]

    # Verbs. Each appends a record to the schedule of the definition.

    def split(self, axis: int, factor: int, inner_split: bool = True) -> TensorView:
        """Loop extent E becomes (ceil(E/f), f), or (f, ceil(E/f)) if not `inner_split`. Returns self."""
        from fuser.frontend import schedule_access

        return schedule_access.split(self, axis, factor, inner_split)

    def inner_split(self, axis: int, factor: int) -> TensorView:
        """`split` with the factor inside."""
        return self.split(axis, factor, True)

    def outer_split(self, axis: int, factor: int) -> TensorView:
        """`split` with the factor outside."""
        return self.split(axis, factor, False)

    def merge(self, axis_o: int, axis_i: int | None = None) -> TensorView:
        """One axis of the product of two, `axis_o` outer; `axis_i` is the next one if omitted. Returns self."""
        from fuser.frontend import schedule_access

        return schedule_access.merge(self, axis_o, axis_i)

    def reorder(self, old2new: Mapping[int, int]) -> TensorView:
        """Move axes; unnamed ones fill the gaps in order. Returns self."""
        from fuser.frontend import schedule_access

        return schedule_access.reorder(self, old2new)

    def swizzle(self, x: int, y: int) -> TensorView:
        """XOR swizzle of two loop axes. Returns self."""
        from fuser.frontend import schedule_access

        return schedule_access.swizzle(self, x, y)

    def swizzle1d(self, x: int, parallel_type: ParallelType) -> TensorView:
        """Rotate an axis by the device index on a mesh dim (needs several GPUs)."""
        from fuser.frontend import schedule_access

        return schedule_access.swizzle1d(self, x, parallel_type)

    def rfactor(self, axes: Sequence[int]) -> TensorView:
        """A new producer that reduces exactly `axes`; self reduces what remains over it."""
        from fuser.frontend import schedule_access

        return schedule_access.rfactor(self, axes)

    def cache_after(
        self,
        op_type: LoadStoreOpType | None = None,
        cache_op: CacheOp | None = None,
        propagate_allocation_domain: bool = True,
        cached_uses: Sequence[Expr] = (),
    ) -> TensorView:
        """Insert a copy of self, consumed by all or the listed uses; returns the copy."""
        from fuser.frontend import schedule_access

        return schedule_access.cache_after(self, op_type, cache_op, propagate_allocation_domain, cached_uses)

    def cache_before(self, op_type: LoadStoreOpType | None = None) -> TensorView:
        """A new tensor computes what self did and self becomes a copy of it; returns the new tensor."""
        from fuser.frontend import schedule_access

        return schedule_access.cache_before(self, op_type)

    def set_memory_type(self, memory_type: MemoryType) -> None:
        """Where the tensor lives; inputs and outputs stay global."""
        from fuser.frontend import schedule_access

        schedule_access.set_memory_type(self, memory_type)

    def set_allocation_domain(
        self, new_allocation_domain: Sequence[IterDomain], new_contiguity: bool | Sequence[bool | None]
    ) -> None:
        """Memory order, slowest axis first: a permutation or transform of the logical domain."""
        from fuser.frontend import schedule_access

        schedule_access.set_allocation_domain(self, new_allocation_domain, new_contiguity)

    def set_device_mesh(self, mesh: object) -> None:
        """Distribute over several GPUs."""
        from fuser.frontend import schedule_access

        schedule_access.set_device_mesh(self, mesh)


@short_tracebacks
class IterDomain(Statement):
    """A dim of a tensor, or an axis that transforms made. Compares and hashes by identity."""

    __slots__ = ("node", "tensor")

    node: ir.IterDomain
    tensor: TensorView

    def __init__(self, tensor: TensorView, domain: ir.IterDomain) -> None:
        self.fusion = tensor.fusion
        self.tensor = tensor
        self.node = domain

    def __str__(self) -> str:
        return dim_text(self.node)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Not for what Python and libraries look for, nor for the fields of a handle that is being made.
            if name.startswith("_") or name in ("fusion", "node", "tensor"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            from fuser.frontend.methods import no_axis_attribute

            try:
                no_axis_attribute(name)
            except DefinitionAttributeError as error:
                shorten(error)
                raise

    def is_reduction(self) -> bool:
        return self.node.is_reduction

    def is_broadcast(self) -> bool:
        return self.node.is_broadcast

    def extent(self) -> Val:
        """Number of positions along the axis."""
        visible = self.tensor.node.visible
        if self.node in visible:
            return self.fusion.size(self.tensor, visible.index(self.node))
        return self.fusion.extent_handle(self.node.extent)

    def parallelize(self, parallel_type: ParallelType) -> None:
        """Bind the axis to blockIdx, threadIdx or a kind of loop."""
        from fuser.frontend import schedule_access

        schedule_access.parallelize(self, parallel_type)

    def definition(self) -> Expr | None:
        """The Split or Merge that made the axis, if one did."""
        made_by = self.node.definition
        return None if made_by is None else self.fusion.transform_handle(self.tensor, made_by)

    def uses(self) -> list[Expr]:
        """The transforms of the tensor that consume the axis."""
        from fuser.frontend import schedule_access

        return schedule_access.uses_of_axis(self)


@short_tracebacks
class TensorDomain(Statement):
    """All dims of a tensor, for printing."""

    __slots__ = ("tensor",)

    tensor: TensorView

    def __init__(self, tensor: TensorView) -> None:
        self.fusion = tensor.fusion
        self.tensor = tensor

    def __str__(self) -> str:
        return f"[{', '.join(str(axis) for axis in self.tensor.get_loop_domain())}]"


@short_tracebacks
class Expr(Statement):
    """An op of a fusion, or a transform of one axis into others."""

    __slots__ = ("inputs", "node", "outputs")

    node: ir.Expr | ir.Transform
    inputs: tuple[Val | IterDomain, ...]
    outputs: tuple[Val | IterDomain, ...]

    def __init__(
        self,
        fusion: Fusion,
        expr: ir.Expr | ir.Transform,
        inputs: Sequence[Val | IterDomain],
        outputs: Sequence[Val | IterDomain],
    ) -> None:
        self.fusion = fusion
        self.node = expr
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)

    def input(self, index: int) -> Val | IterDomain:
        """Operand number `index`."""
        return self.inputs[wrap_axis(index, len(self.inputs), "input(): operand")]

    def output(self, index: int) -> Val | IterDomain:
        """Result number `index`."""
        return self.outputs[wrap_axis(index, len(self.outputs), "output(): result")]

    def __str__(self) -> str:
        if isinstance(self.node, (ir.Split, ir.Merge)):
            return transform_text(self.node)
        return expr_text(self.node)


class Split(Expr):
    """One axis becomes two."""

    __slots__ = ()

    def outer(self) -> Val | IterDomain:
        return self.outputs[0]

    def inner(self) -> Val | IterDomain:
        return self.outputs[1]


class Merge(Expr):
    """Two axes become one."""

    __slots__ = ()

    def outer(self) -> Val | IterDomain:
        return self.inputs[0]

    def inner(self) -> Val | IterDomain:
        return self.inputs[1]


class BroadcastOp(Expr):
    """New dims of extent 1."""

    __slots__ = ()


class ReshapeOp(Expr):
    """Dims of the same elements in row-major order."""

    __slots__ = ()


class SqueezeOp(Expr):
    """Dims of extent 1 are dropped."""

    __slots__ = ()


def wrap_axis(index: int, total: int, what: str = "dim") -> int:
    """`index` with negative values counted from the end.

    Raises DefinitionRuntimeError (`Tried to access out of boundary index`) outside [-total, total).
    """
    wrapped = index + total if index < 0 else index
    if not 0 <= wrapped < total:
        raise DefinitionRuntimeError(outside_text(what, index, total), location=caller_location())
    return wrapped
