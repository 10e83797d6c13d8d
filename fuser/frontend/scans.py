"""Scans: cumsum, cumprod, cummin, cummax (section 3.4 of the contract).

In the IR a scan runs in its accumulator dtype along a dim of more than one element: 16-bit floats are cast to Float before
and back after, a scan of one element is a copy, or the fold of `init` and that element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fuser.errors import DefinitionRuntimeError
from fuser.frontend import scalars
from fuser.frontend.elementwise import tensor_cast
from fuser.frontend.handles import TensorView, Val, wrap_axis
from fuser.frontend.operation import fusion_of, int_argument, operation, scalar_argument, tensor_argument
from fuser.ir.fusion import fusion as ir
from fuser.ir.ops.dtypes import DataType, widen
from fuser.ir.ops.op_table import SCANS, ScanOp, kind_of

if TYPE_CHECKING:
    from fuser.frontend.operation import Number
    from fuser.ir.fusion.fusion_builder import FusionBuilder

# A scalar of one of these kinds starts a scan of that kind without loss of kind.
_STARTS = {"b": "b", "i": "bi", "f": "bif", "c": "bifc"}


def make_scan(row: ScanOp) -> Callable[..., TensorView]:
    """The op of a row of the table."""

    @operation(f"{row.name}(arg: TensorView, dim: int, init: Val | number | None = None) -> TensorView")
    def op(arg: object, dim: object, init: object = None) -> TensorView:
        tv = tensor_argument("arg", arg)
        axis = int_argument("dim", dim)
        start = None if init is None else scalar_argument("init", init)
        fusion = fusion_of(row.name, tv, start)
        axis = wrap_axis(axis, tv.node.ndim)
        row.check_operand(tv.node.dtype)
        builder = fusion.builder()
        first = None if start is None else _first_value(builder, row, start, tv.node.dtype)
        return fusion.tensor_handle(scan_tensor(builder, row, tv.node, axis, first))

    op.__doc__ = (
        f"{row.doc}\n\n"
        "Element i folds elements 0 to i along `dim`, and before them the scalar `init`, if one is given.\n"
        "Result: dtype of arg; integers are not widened, 16-bit floats accumulate in Float and are rounded per element.\n"
        "Raises DefinitionRuntimeError for a dim out of range, operands of other kinds, and an `init` of a\n"
        "kind that arg's dtype cannot hold.\n"
    )
    return op


def _first_value(builder: FusionBuilder, row: ScanOp, start: Val | Number, dtype: DataType) -> ir.Scalar:
    """`init` as an operand of a scan of `dtype`."""
    scalar = start.node if isinstance(start, Val) else scalars.constant(builder, start)
    assert isinstance(scalar, ir.Scalar)
    if kind_of(scalar.dtype) not in _STARTS[kind_of(dtype)]:
        raise DefinitionRuntimeError(
            f"{row.name}(): init is a {scalar.dtype.name} scalar, which a {dtype.name} tensor cannot hold; cast the tensor"
        )
    return scalars.as_operand(builder, scalar, widen(dtype), beside_tensor=True)


def scan_tensor(builder: FusionBuilder, row: ScanOp, tensor: ir.Tensor, axis: int, init: ir.Scalar | None) -> ir.Tensor:
    """The scan along visible dim `axis`, in the dtype of the tensor."""
    if tensor.visible[axis].is_broadcast and init is None:
        return builder.pointwise("set", [tensor], tensor.dtype)
    operand = tensor_cast(builder, tensor, widen(tensor.dtype))
    if tensor.visible[axis].is_broadcast:
        scanned = builder.scan_of_one(row.combine, operand, init)
    else:
        scanned = builder.scan(row.name, operand, axis, init)
    return tensor_cast(builder, scanned, tensor.dtype)


SCAN_OPS: dict[str, Callable[..., object]] = {name: make_scan(row) for name, row in SCANS.items()}
"""Every scan by name."""
