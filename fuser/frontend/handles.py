"""What a user holds: handles of the values, axes and exprs of one fusion, interned so that identity is stable.

Grammar
    handle := Val | TensorView | IterDomain | TensorDomain | Expr
    Expr   := Split | Merge | BroadcastOp | ReshapeOp | SqueezeOp | Expr        tested with type(...)

A handle names a value of `fuser.ir`; it holds no state of its own. Here stands what handles are and tell of themselves. What
they do with ops and schedules (operators, subscripts, ops as methods, verbs) is put on the classes by
`fuser.frontend.complete_handles`, which stands above the ops; `handles.pyi` shows type checkers both.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, SupportsIndex, TypeAlias

from fuser.errors import DefinitionIndexError, DefinitionRuntimeError, DefinitionTypeError
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.print_fusion import dim_text, expr_text, transform_text, typed_text
from fuser.ir.integers.axis_range import outside_text
from fuser.ir.ops.dtypes import DataType
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from types import EllipsisType

    from fuser.frontend.argument_types import Number
    from fuser.ir.fusion.fusion_builder import FusionBuilder
    from fuser.ir.integers.integers import Int
    from fuser.ir.schedule.schedule import ScheduleBuilder

Operand: TypeAlias = "Val | Number"
"""A tensor, a scalar of the fusion or a number."""

Extent: TypeAlias = "Val | SupportsIndex"
"""An entry of a shape or a position: an int or an integer scalar of the fusion."""

Subscript: TypeAlias = "SupportsIndex | Val | slice[Any, Any, Any] | EllipsisType | None"
"""An item between the brackets of `tensor[...]`."""


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

    def __dir__(cls) -> list[str]:
        return public_names(cls)


_INTERNAL = {"fusion", "node"}


def public_names(kind: type) -> list[str]:
    """What users may ask a handle of a class for."""
    names = {name for cls in kind.__mro__ for name in vars(cls)}
    return sorted(name for name in names if not name.startswith("_") and name not in _INTERNAL)


class Statement(metaclass=_Handle):
    """Anything of a fusion that can be printed."""

    __slots__ = ("fusion",)

    fusion: Owner

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

    def __init__(self, fusion: Owner, value: ir.Val) -> None:
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
        name = self.node.name
        for expr in self.fusion.current_exprs():
            if any(v.name == name for v in ir.expr_outputs(expr)):
                return self.fusion.expr_handle(expr)
        return None

    def uses(self) -> list[Expr]:
        """The exprs that read the value, in order."""
        name = self.node.name
        readers = (e for e in self.fusion.current_exprs() if any(v.name == name for v in ir.expr_inputs(e)))
        return [self.fusion.expr_handle(e) for e in readers]

    def __pos__(self) -> Val:
        return self

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
        return self.fusion.current_tensor(self.node).root is not None

    def domain(self) -> TensorDomain:
        """All axes, for printing."""
        return TensorDomain(self)

    def get_root_domain(self) -> list[IterDomain]:
        """Dims as the op produces them; the logical ones where the op transforms none."""
        return self._axes(self.fusion.current_tensor(self.node).produced)

    def get_logical_domain(self) -> list[IterDomain]:
        """Dims as the user sees them, reduced ones included."""
        return self._axes(self.fusion.current_tensor(self.node).logical)

    def get_loop_domain(self) -> list[IterDomain]:
        """Axes of the loop nest as scheduled so far."""
        return self._axes(self.fusion.loop_domain(self.node))

    def axis(self, index: int) -> IterDomain:
        """One axis of the loop domain; negative indices wrap."""
        loop = self.get_loop_domain()
        return loop[wrap_axis(index, len(loop), "axis(): loop axis")]

    def _axes(self, domains: Sequence[ir.IterDomain]) -> list[IterDomain]:
        return [self.fusion.axis_handle(self, d) for d in domains]


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

    def definition(self) -> Expr | None:
        """The Split or Merge that made the axis, if one did."""
        made_by = self.node.definition
        return None if made_by is None else self.fusion.transform_handle(self.tensor, made_by)

    def uses(self) -> list[Expr]:
        """The splits and merges of the tensor that take the axis, from its loop domain back to its dims."""
        found: dict[ir.Transform, None] = {}
        pending = list(self.fusion.loop_domain(self.tensor.node))
        while pending:
            made_by = pending.pop().definition
            if made_by is None:
                continue
            sources = [made_by.source] if isinstance(made_by, ir.Split) else [made_by.outer, made_by.inner]
            if self.node in sources:
                found[made_by] = None
            pending.extend(sources)
        return [self.fusion.transform_handle(self.tensor, t) for t in found]


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
        fusion: Owner,
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
