"""Ops as methods of tensors: `x.exp()` is `ops.exp(x)`, `x.sum(1)` is `ops.sum(x, 1)`.

An op whose first operand is a tensor is a method by its own function. Beside those stand the few that read better, or that
arrays of other libraries have, in another form: shapes as separate arguments, casts by name, `mean`. `handles.pyi` lists all
of them for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend.handles import TensorView, Val, wrap_axis
from fuser.frontend.operation import (
    dtype_argument,
    int_argument,
    is_index,
    operation,
    sequence_argument,
    tensor_argument,
)
from fuser.frontend.ops import OPS, UNSUPPORTED
from fuser.ir.ops.dtypes import DataType, widen

_NO_METHODS = {"where", "embedding_fwd", "shape", "size", *UNSUPPORTED}
"""The first operand of `where` and `embedding_fwd` is not what they are about; others are attributes, or no ops yet."""


def _takes_tensor_first(op: Callable[..., Any]) -> bool:
    overloads: tuple[str, ...] = getattr(op, "overloads", ())
    return bool(overloads) and overloads[0].partition(": ")[2].startswith("TensorView")


# --- shapes -----------------------------------------------------------------------------------------------------------


def _listed(values: tuple[Any, ...]) -> list[Any]:
    """`f(2, 3)` and `f([2, 3])` are the same."""
    if (
        len(values) == 1
        and not isinstance(values[0], Val | str)
        and not is_index(values[0])
        and isinstance(values[0], Iterable)
    ):
        return list(values[0])
    return list(values)


@operation("reshape(arg: TensorView, *new_shape: Val | int | Sequence[Val | int]) -> TensorView")
def reshape(arg: TensorView, *new_shape: Any) -> TensorView:
    """The elements in row-major order of the logical dims under other dims, `reshape(2, -1)` or `reshape([2, -1])`.

    A size is an int, -1 at most once, for what the others leave, or a scalar of the fusion: a size of a tensor, a
    `define_scalar`, or an expression of them, as in `x.reshape(x.size(0), groups, x.size(1) // groups)`. Scalars of floating
    dtypes are cast to Int. Errors are those of `ops.reshape`.
    """
    return OPS["reshape"](arg, _listed(new_shape))


@operation("permute(arg: TensorView, *dims: int | Sequence[int]) -> TensorView")
def permute(arg: TensorView, *dims: Any) -> TensorView:
    """Dim i of the result is dim dims[i], `permute(1, 0)` or `permute([1, 0])`. See `ops.permute`."""
    return OPS["permute"](arg, _listed(dims))


@operation("expand(arg: TensorView, *shape: Val | int | Sequence[Val | int]) -> TensorView")
def expand(arg: TensorView, *shape: Any) -> TensorView:
    """Size-1 dims seen as many times as the shape says, without a copy; -1 keeps an extent. See `ops.expand`."""
    return OPS["expand"](arg, _listed(shape))


@operation("squeeze(arg: TensorView, *dims: int | Sequence[int], squeeze_expanded: bool = False) -> TensorView")
def squeeze(arg: TensorView, *dims: Any, squeeze_expanded: Any = False) -> TensorView:
    """Drop size-1 dims, which are named: `squeeze(0)`, `squeeze(0, 2)` or `squeeze([0, 2])`. See `ops.squeeze`.

    Raises DefinitionTypeError without dims: which extents are 1 may be known only when inputs are.
    """
    if not dims:
        raise DefinitionTypeError(
            "squeeze() needs the dims to drop: whether an extent is 1 may be known only with the inputs"
        )
    return OPS["squeeze"](arg, _listed(dims), squeeze_expanded)


@operation("unsqueeze(arg: TensorView, dim: int) -> TensorView")
def unsqueeze(arg: TensorView, dim: Any) -> TensorView:
    """A new size-1 dim at position `dim` of the result.

    Raises DefinitionRuntimeError for a position outside of the result.
    """
    ndim = arg.ndim
    at = wrap_axis(int_argument("dim", dim), ndim + 1)
    return OPS["broadcast"](arg, [d == at for d in range(ndim + 1)])


@operation("transpose(arg: TensorView, dim0: int, dim1: int) -> TensorView")
def transpose(arg: TensorView, dim0: Any, dim1: Any) -> TensorView:
    """Two dims swapped.

    Raises DefinitionRuntimeError for dims out of range.
    """
    first, second = (wrap_axis(int_argument(n, d), arg.ndim) for n, d in (("dim0", dim0), ("dim1", dim1)))
    order = list(range(arg.ndim))
    order[first], order[second] = second, first
    return OPS["permute"](arg, order)


def _transposed(arg: TensorView) -> TensorView:
    """All dims in reverse order."""
    return OPS["permute"](arg, list(reversed(range(arg.ndim))))


def _matrix_transposed(arg: TensorView) -> TensorView:
    """The last two dims swapped. Raises DefinitionRuntimeError for a tensor of rank below 2."""
    if arg.ndim < 2:
        raise DefinitionRuntimeError(f"mT needs a tensor of rank 2 or more, got rank {arg.ndim}")
    return transpose(arg, -2, -1)


# --- reductions -------------------------------------------------------------------------------------------------------


def _dims(arg: TensorView, dim: Any) -> list[Any]:
    if dim is None:
        return list(range(arg.ndim))
    return [dim] if is_index(dim) else sequence_argument("dim", dim)


@operation("mean(arg: TensorView, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> TensorView")
def mean(arg: TensorView, dim: Any = None, keepdim: Any = False) -> TensorView:
    """The sum over the dims, all unless given, divided by the number of elements.

    Result: the dtype of the tensor; 16-bit floats, integers and Bool give Float. No element gives nan.
    Raises DefinitionRuntimeError for empty, repeated or out-of-range dims.
    """
    tv = tensor_argument("arg", arg)
    dims = _dims(tv, dim)
    wide = widen(tv.dtype) if tv.dtype.is_floating or tv.dtype.is_complex else DataType.Null
    total = OPS["sum"](tv, wide) if dim is None else OPS["sum"](tv, dims, keepdim, wide)
    count: Any = 1
    for d in dims:
        count = count * tv.size(d)
    return OPS["truediv"](total, count)


_VARIANCE = "(arg: TensorView, dim: int | Sequence[int] | None = None, correction: int = 1, keepdim: bool = False)"


@operation(f"var{_VARIANCE} -> TensorView")
def var(arg: TensorView, dim: Any = None, correction: Any = 1, keepdim: Any = False) -> TensorView:
    """Sum of squared deviations over max(N - correction, 0), over all dims unless given. See `ops.var`."""
    return OPS["var"](arg, _dims(arg, dim), correction, keepdim)


@operation(f"var_mean{_VARIANCE} -> tuple[TensorView, TensorView]")
def var_mean(
    arg: TensorView, dim: Any = None, correction: Any = 1, keepdim: Any = False
) -> tuple[TensorView, TensorView]:
    """(variance, mean) in one pass, over all dims unless given. See `ops.var_mean`."""
    return OPS["var_mean"](arg, _dims(arg, dim), correction, keepdim)


# --- casts ------------------------------------------------------------------------------------------------------------


@operation("to(arg: TensorView, dtype: DataType) -> TensorView")
def to(arg: TensorView, dtype: Any) -> TensorView:
    """The tensor in another dtype, as `cast`."""
    return OPS["cast"](arg, dtype_argument("dtype", dtype))


def _cast_to(name: str, dtype: DataType) -> Callable[[TensorView], TensorView]:
    @operation(f"{name}(arg: TensorView) -> TensorView")
    def method(arg: TensorView) -> TensorView:
        return OPS["cast"](arg, dtype)

    method.__doc__ = f"The tensor in {dtype.name}, as `cast`."
    return method


CASTS: dict[str, DataType] = {
    "float": DataType.Float,
    "double": DataType.Double,
    "half": DataType.Half,
    "bfloat16": DataType.BFloat16,
    "int": DataType.Int32,
    "long": DataType.Int,
    "bool": DataType.Bool,
}
"""Casts by the names that torch's tensors have."""

METHODS: dict[str, Callable[..., Any]] = {
    **{name: op for name, op in OPS.items() if name not in _NO_METHODS and _takes_tensor_first(op)},
    **{name: _cast_to(name, dtype) for name, dtype in CASTS.items()},
    **{f.__name__: f for f in (reshape, permute, expand, squeeze, unsqueeze, transpose, mean, var, var_mean, to)},
}
"""Every method that is an op, by name; the first argument is the tensor."""

PROPERTIES: dict[str, Callable[[TensorView], TensorView]] = {"T": _transposed, "mT": _matrix_transposed}
"""Tensors that are attributes."""
