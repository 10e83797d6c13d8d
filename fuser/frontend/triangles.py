"""Triangles of matrices: triu, of iota, comparisons and where."""

from __future__ import annotations

from collections.abc import Callable

from fuser.errors import DefinitionRuntimeError
from fuser.frontend.elementwise import ELEMENTWISE
from fuser.frontend.factories import iota
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import operation, scalar_argument, tensor_argument
from fuser.frontend.shape_ops import broadcast


@operation("triu(arg: TensorView, diagonal: Val | int = 0) -> TensorView")
def triu(arg: object, diagonal: object = 0) -> TensorView:
    """The elements [.., i, j] with j - i >= diagonal, 0 elsewhere.

    Raises DefinitionRuntimeError for an arg of rank below 2 and a diagonal that is no integer.
    """
    tv, first = tensor_argument("arg", arg), scalar_argument("diagonal", diagonal)
    ndim = tv.node.ndim
    if ndim < 2:
        raise DefinitionRuntimeError(f"input tensor for triu must have 2 or more dims, but got {ndim} dims")
    is_integral = first.node.dtype.is_integral if isinstance(first, Val) else type(first) is int
    if not is_integral:
        raise DefinitionRuntimeError(f"triu(): diagonal must be an integer, got {diagonal}")

    def along(dim: int) -> TensorView:
        return broadcast(iota(tv.size(dim)), [d != dim for d in range(ndim)])

    row, column = along(ndim - 2), along(ndim - 1)
    kept = ELEMENTWISE["ge"](column, ELEMENTWISE["add"](row, first))
    dtype = tv.node.dtype
    zero = 0j if dtype.is_complex else 0.0 if dtype.is_floating else 0 if dtype.is_integral else False
    result = ELEMENTWISE["where"](kept, tv, zero)
    assert isinstance(result, TensorView)
    return result


TRIANGLES: dict[str, Callable[..., object]] = {"triu": triu}
"""Ops on triangles by name."""
