"""Ops that show the elements of a tensor under other dims, or lay them out in another order (section 3.6 of the contract):
reshape, stride_order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import (
    checked_stride_order,
    extent_list_argument,
    fusion_of,
    int_list_argument,
    operation,
    sequence_argument,
    tensor_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.reshape_dims import product
from fuser.ir.integers.integers import ZERO, Int, const
from fuser.ir.ops.dtypes import DataType


@operation("reshape(arg: TensorView, new_shape: Sequence[Val | int]) -> TensorView")
def reshape(arg: object, new_shape: object) -> TensorView:
    """The elements in row-major order of the logical dims under other dims: `reshape(x, [x.size(0), groups, -1])`.

    A size is an int, -1 at most once, for what the others leave, or a scalar of the fusion: a size of a tensor, a
    `define_scalar`, or an expression of them, `x.size(1) // groups`. Scalars of floating dtypes, such as quotients of sizes,
    are cast to Int.

    Raises DefinitionRuntimeError for two -1 (`A maximum of one value of -1`), other numbers of elements (`Total element counts
    across view operation must match`), and an empty arg without a 0 in new_shape. Symbolic extents are checked when inputs are
    bound.
    """
    tv = tensor_argument("arg", arg)
    given_shape = sequence_argument("new_shape", new_shape)
    entries = extent_list_argument("new_shape", [_without_fraction(i, e) for i, e in enumerate(given_shape)])
    fusion_of("reshape", tv, *(e for e in entries if isinstance(e, Val)))
    if sum(isinstance(e, int) and e == -1 for e in entries) > 1:
        raise DefinitionRuntimeError(
            f"A maximum of one value of -1 can be in new_shape of reshape(), got {_shape_text(entries)}"
        )
    builder = tv.fusion.builder()
    extents: list[Int | None] = []
    given: list[ir.Scalar | None] = []
    for entry in entries:
        if isinstance(entry, Val):
            assert isinstance(entry.node, ir.Scalar)
            extent = scalars.extent_of(builder, entry.node)
            extents.append(extent)
            given.append(None if extent.is_const else entry.node)
        else:
            extents.append(None if entry == -1 else const(entry))
            given.append(None)
    sources = [d.extent for d in tv.node.visible]
    if ZERO in sources and ZERO not in extents and all(e is None or e.is_const for e in extents):
        raise DefinitionRuntimeError(
            f"an empty tensor needs a 0 in new_shape of reshape(): {_extents_text(sources)} cannot become "
            f"{_shape_text(entries)}"
        )
    if None in extents:
        extents[extents.index(None)] = _inferred(sources, extents, entries)
    return tv.fusion.tensor_handle(builder.reshape(tv.node, [e for e in extents if e is not None], given))


def _without_fraction(index: int, entry: object) -> object:
    """An entry of a shape, cast to Int if it is a scalar of a floating dtype."""
    if not (isinstance(entry, Val) and isinstance(entry.node, ir.Scalar) and entry.node.dtype.is_floating):
        return entry
    if entry.node.value is not None and not math.isfinite(entry.node.value.real):
        raise DefinitionRuntimeError(f"new_shape[{index}] must be an integer, got {entry.node.value}")
    return entry.fusion.handle(scalars.scalar_cast(entry.fusion.builder(), entry.node, DataType.Int))


def _inferred(sources: Sequence[Int], extents: Sequence[Int | None], entries: Sequence[Val | int]) -> Int:
    """The extent that -1 stands for. Extents on both sides cancel, so that the extent of a kept dim is found as it is."""
    known = Counter(e for e in extents if e is not None)
    left = list((Counter(sources) - known).elements())
    right = list((known - Counter(sources)).elements())
    total, divisor = product(left), product(right)
    mismatch = total.is_const and divisor.is_const and divisor is not ZERO and total.value % divisor.value != 0
    if divisor is ZERO or ZERO in known or mismatch:
        raise DefinitionRuntimeError(
            "Total element counts across view operation must match: no extent in place of -1 makes "
            f"{_shape_text(entries)} as many elements as {_extents_text(sources)}"
        )
    return total // divisor


def _extents_text(extents: Sequence[Int]) -> str:
    return f"[{', '.join(map(str, extents))}]"


def _shape_text(entries: Sequence[Val | int]) -> str:
    return f"[{', '.join(map(str, entries))}]"


@operation("stride_order(arg: TensorView, stride_order: Sequence[int]) -> TensorView")
def stride_order(arg: object, stride_order: object) -> TensorView:  # the contract gives op and argument one name
    """Dense copy in a memory order: per dim its rank from fastest (0) to slowest, negative ones wrap; [] is a plain copy.

    Raises DefinitionRuntimeError for a list of other length than the rank, ranks out of range and repeated ones.
    """
    tv = tensor_argument("arg", arg)
    given = int_list_argument("stride_order", stride_order)
    builder = tv.fusion.builder()
    if not given:
        return tv.fusion.tensor_handle(builder.pointwise("set", [tv.node], tv.node.dtype))
    return tv.fusion.tensor_handle(builder.stride_order(tv.node, checked_stride_order(given, tv.node.ndim)))


RESHAPE_OPS: dict[str, Callable[..., object]] = {"reshape": reshape, "stride_order": stride_order}
"""Every op of this module by name."""
