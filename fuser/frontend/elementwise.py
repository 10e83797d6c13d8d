"""Ops applied element by element (sections 3.1 to 3.3 of the contract), from the rows of the op table.

Promotion becomes explicit here: tensors are cast to the operand dtype of the row, operands of lower rank get size-1 dims
on the left, scalars of another kind are converted. What reaches the IR needs no more promotion.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fuser.frontend import scalars
from fuser.frontend.handles import TensorView, Val
from fuser.frontend.operation import (
    ArgumentMismatch,
    Number,
    dtype_argument,
    fusion_of,
    operand_argument,
    operation,
    scalar_argument,
)
from fuser.ir.fusion import fusion as ir
from fuser.ir.ops.dtypes import DataType, scalar_type, widen
from fuser.ir.ops.op_table import POINTWISE, OperandClass, PointwiseOp, check_cast, operand_dtype, result_dtype
from fuser.ir.ops.pointwise_op import DtypeRule

if TYPE_CHECKING:
    from fuser.ir.fusion.fusion_builder import FusionBuilder

Operand = Val | Number


def apply_pointwise(row: PointwiseOp, operands: Sequence[Operand]) -> Val:
    """The op of a row on checked operands: a tensor if any operand is one, else a host scalar."""
    fusion = fusion_of(row.name, *operands)
    builder = fusion.builder()
    values = [o.node if isinstance(o, Val) else scalars.constant(builder, o) for o in operands]
    return fusion.handle(pointwise_value(builder, row, values))


def pointwise_value(builder: FusionBuilder, row: PointwiseOp, values: Sequence[ir.Val]) -> ir.Val:
    """`apply_pointwise` on values of the IR."""
    tensors = [v for v in values if isinstance(v, ir.Tensor)]
    if not tensors:
        return scalars.scalar_operation(builder, row, [v for v in values if isinstance(v, ir.Scalar)])
    dtype = operand_dtype(row, [operand_class(v) for v in values])
    rank = max(t.ndim for t in tensors)
    first_value = 1 if row.rule is DtypeRule.SELECT else 0
    beside_tensor = any(isinstance(v, ir.Tensor) for v in values[first_value:])
    operands: list[ir.Val] = []
    for i, value in enumerate(values):
        wanted = value.dtype if i < first_value else dtype
        if isinstance(value, ir.Tensor):
            operands.append(with_rank(builder, tensor_cast(builder, value, wanted), rank))
        elif i < first_value:
            operands.append(value)
        else:
            operands.append(scalars.as_operand(builder, value, wanted, beside_tensor=beside_tensor))
    return builder.pointwise(row.name, operands, result_dtype(row, dtype))


def operand_class(value: ir.Val) -> OperandClass:
    """What promotion looks at."""
    if isinstance(value, ir.Scalar):
        return OperandClass(value.dtype, "S")
    return OperandClass(value.dtype, "D" if value.ndim else "Z")


def tensor_cast(builder: FusionBuilder, tensor: ir.Tensor, dtype: DataType) -> ir.Tensor:
    """`tensor` in `dtype`; itself if it has it already."""
    if tensor.dtype is dtype:
        return tensor
    check_cast(tensor.dtype, dtype)
    return builder.pointwise("cast", [tensor], dtype)


def with_rank(builder: FusionBuilder, tensor: ir.Tensor, rank: int) -> ir.Tensor:
    """`tensor` with size-1 dims added on the left up to `rank`."""
    added = rank - tensor.ndim
    return builder.broadcast(tensor, [True] * added + [False] * tensor.ndim) if added else tensor


# --- rows -------------------------------------------------------------------------------------------------------------

_RULE_TEXT = {
    DtypeRule.KEEP: "the dtype of the operand",
    DtypeRule.PROM: "the promoted dtype of the operands; 16-bit floats become Float",
    DtypeRule.FLT: "the promoted dtype of the operands; 16-bit floats, integers and Bool become Float",
    DtypeRule.FULL: "the promoted dtype of the operands, which must be Float or Double",
    DtypeRule.BOOL: "Bool",
    DtypeRule.LOGICAL: "Bool",
    DtypeRule.MAGNITUDE: "the dtype of the operand; of its parts if that is complex",
    DtypeRule.REAL_PART: "the dtype of the parts of a complex operand",
    DtypeRule.COMPLEX_PAIR: "the complex dtype whose parts the operands are",
    DtypeRule.SELECT: "the promoted dtype of x and y, not widened",
    DtypeRule.CAST: "the dtype asked for",
}


def signature_of(row: PointwiseOp) -> str:
    """The call as errors and docstrings show it."""
    operands = ", ".join(f"{p}: TensorView | Val | number" for p in row.parameters)
    return f"{row.name}({operands}, /) -> TensorView | Val"


def docstring_of(row: PointwiseOp) -> str:
    """Docstring of the op of a row."""
    kinds = {"f": "floating", "i": "integer", "b": "Bool", "c": "complex", "u": "UInt64"}
    accepted = ", ".join(kinds[k] for k in "fibcu" if k in row.kinds)
    return (
        f"{row.doc}\n\n"
        f"Operands: {accepted}; shapes are broadcast, lower ranks get size-1 dims on the left. Scalars alone give a "
        f"scalar.\nResult: {_RULE_TEXT[row.rule]}.\nRaises DefinitionRuntimeError for operands of other kinds.\n"
    )


def make_pointwise(row: PointwiseOp) -> Callable[..., Val]:
    """The op of a row of the table."""

    @operation(signature_of(row))
    def op(*operands: object) -> Val:
        if len(operands) != row.arity:
            raise ArgumentMismatch(f"It takes {row.arity} operands, got {len(operands)}.")
        checked = [operand_argument(p, o) for p, o in zip(row.parameters, operands, strict=True)]
        return apply_pointwise(row, checked)

    op.__doc__ = docstring_of(row)
    return op


def _named(name: str, *operands: Operand) -> Val:
    return apply_pointwise(POINTWISE[name], operands)


# --- ops with arguments or parts of their own -------------------------------------------------------------------------


@operation("segment_set(x: TensorView | Val | number, /) -> TensorView | Val")
def segment_set(x: object, /) -> Val:
    """Copy that forces a kernel boundary between its producer and its consumers. Keeps the dtype."""
    operand = operand_argument("x", x)
    if not isinstance(operand, TensorView):
        return _named("set", operand)
    builder = operand.fusion.builder()
    tensor = operand.node
    return operand.fusion.handle(builder.pointwise("segment_set", [tensor], tensor.dtype))


@operation("cast(arg: TensorView | Val | number, dtype: DataType) -> TensorView | Val")
def cast(arg: object, dtype: object) -> Val:
    """`arg` in `dtype`; of the same dtype, a copy.

    float -> integer truncates toward zero (out of range unspecified), anything -> Bool is `!= 0`, narrowing of floats
    rounds to nearest even, complex -> real drops the imaginary part with a warning.
    Raises DefinitionRuntimeError (`Illegal Cast value`) for pairs that cannot be converted.
    """
    operand = operand_argument("arg", arg)
    target = dtype_argument("dtype", dtype)
    fusion = fusion_of("cast", operand)
    builder = fusion.builder()
    value = operand.node if isinstance(operand, Val) else scalars.constant(builder, operand)
    check_cast(value.dtype, target)
    if value.dtype.is_complex and not target.is_complex and target is not DataType.Bool:
        warnings.warn(
            f"casting {value.dtype.name} to {target.name} drops the imaginary part", UserWarning, stacklevel=3
        )
    if isinstance(value, ir.Scalar):
        return fusion.handle(scalars.scalar_cast(builder, value, target))
    return fusion.handle(builder.pointwise("set" if value.dtype is target else "cast", [value], target))


@operation(
    "clamp(x: TensorView | Val | number, min: Val | number | None, max: Val | number | None) -> TensorView | Val"
)
def clamp(x: object, min: object, max: object) -> Val:
    """min(max(x, min), max) with scalar bounds, None for no bound; keeps the dtype, nan stays nan, min > max gives max."""
    operand = operand_argument("x", x)
    row = POINTWISE["clamp"]
    dtype = operand.node.dtype if isinstance(operand, Val) else scalar_type(operand)
    low = _lowest(dtype) if min is None else scalar_argument("min", min)
    high = _highest(dtype) if max is None else scalar_argument("max", max)
    return apply_pointwise(row, (operand, low, high))


def _lowest(dtype: DataType) -> Number:
    if dtype is DataType.Bool:
        return False
    return -(2 ** (8 * dtype.itemsize - 1)) if dtype.is_integral else float("-inf")


def _highest(dtype: DataType) -> Number:
    if dtype is DataType.Bool:
        return True
    return 2 ** (8 * dtype.itemsize - 1) - 1 if dtype.is_integral else float("inf")


@operation("threshold(x: TensorView | Val | number, thr: Val | number, value: Val | number) -> TensorView | Val")
def threshold(x: object, thr: object, value: object) -> Val:
    """`value` where x <= thr, else x, with scalar thr and value; keeps the dtype, nan stays nan."""
    operands = (operand_argument("x", x), scalar_argument("thr", thr), scalar_argument("value", value))
    return apply_pointwise(POINTWISE["threshold"], operands)


@operation(
    "addcmul(a: TensorView | Val | number, b: TensorView | Val | number, c: TensorView | Val | number, "
    "alpha: Val | number) -> TensorView | Val"
)
def addcmul(a: object, b: object, c: object, alpha: object) -> Val:
    """a + b * (c * alpha) with a scalar alpha, in the promoted dtype of a, b and c."""
    first, second, third = operand_argument("a", a), operand_argument("b", b), operand_argument("c", c)
    scale = scalar_argument("alpha", alpha)
    return _named("add", first, _named("mul", second, _named("mul", third, scale)))


@operation("sign(x: TensorView | Val | number, /) -> TensorView | Val")
def sign(x: object, /) -> Val:
    """-1, 0 or 1; 0 for zeros of either sign and for nan. Keeps the dtype."""
    operand = operand_argument("x", x)
    row = POINTWISE["sign"]
    fusion = fusion_of("sign", operand)
    builder = fusion.builder()
    value = operand.node if isinstance(operand, Val) else scalars.constant(builder, operand)
    dtype = operand_dtype(row, [operand_class(value)])
    if isinstance(value, ir.Scalar) and value.is_constant:
        return fusion.handle(scalars.scalar_operation(builder, row, [value]))
    if dtype is DataType.Bool:
        return fusion.handle(pointwise_value(builder, POINTWISE["set"], [value]))

    def number(n: int) -> ir.Scalar:
        return scalars.constant(builder, n, dtype)

    # One cast for both comparisons, which are made in Float for 16-bit floats.
    compared = tensor_cast(builder, value, widen(dtype)) if isinstance(value, ir.Tensor) else value
    below = pointwise_value(builder, POINTWISE["lt"], [compared, scalars.constant(builder, 0)])
    above = pointwise_value(builder, POINTWISE["gt"], [compared, scalars.constant(builder, 0)])
    rest = pointwise_value(builder, POINTWISE["where"], [below, number(-1), number(0)])
    return fusion.handle(pointwise_value(builder, POINTWISE["where"], [above, number(1), rest]))


@operation("logical_right_shift(lhs: TensorView | Val | number, rhs: TensorView | Val | number, /) -> TensorView | Val")
def logical_right_shift(lhs: object, rhs: object, /) -> Val:
    """lhs shifted right with zeros at its width; an amount not below the width gives 0, a negative one is unspecified."""
    x, amount = operand_argument("lhs", lhs), operand_argument("rhs", rhs)
    row = POINTWISE["logical_right_shift"]
    fusion = fusion_of(row.name, x, amount)
    builder = fusion.builder()
    values = [o.node if isinstance(o, Val) else scalars.constant(builder, o) for o in (x, amount)]
    dtype = operand_dtype(row, [operand_class(v) for v in values])

    def op(name: str, *operands: ir.Val) -> ir.Val:
        return pointwise_value(builder, POINTWISE[name], operands)

    # (x >> n) & ~(-1 << max(width - n, 0)): the arithmetic shift less the sign bits that came in from the left.
    # An amount not below the width leaves the mask ~(-1 << 0) = 0.
    width = 8 * min(values[0].dtype.itemsize, dtype.itemsize)
    minus_one = scalars.constant(builder, -1, dtype)
    left = op(
        "maximum", op("sub", scalars.constant(builder, width, dtype), values[1]), scalars.constant(builder, 0, dtype)
    )
    mask = op("bitwise_not", op("bitwise_left_shift", minus_one, left))
    return fusion.handle(op("bitwise_and", op("bitwise_right_shift", values[0], values[1]), mask))


@operation(
    "where(condition: TensorView | Val | number, x: TensorView | Val | number, y: TensorView | Val | number, /) "
    "-> TensorView | Val"
)
def where(condition: object, x: object, y: object, /) -> Val:
    """x where the condition is true, else y; dtype of the two, promoted but not widened.

    Raises DefinitionRuntimeError (`Condition should be of DataType Bool`) for other conditions.
    """
    operands = [operand_argument(p, o) for p, o in (("condition", condition), ("x", x), ("y", y))]
    return apply_pointwise(POINTWISE["where"], operands)


BUILT: dict[str, Callable[..., Val]] = {
    "segment_set": segment_set,
    "cast": cast,
    "clamp": clamp,
    "threshold": threshold,
    "addcmul": addcmul,
    "sign": sign,
    "logical_right_shift": logical_right_shift,
    "where": where,
}
"""Ops with arguments or parts of their own."""

ELEMENTWISE: dict[str, Callable[..., Val]] = {
    **{name: make_pointwise(row) for name, row in POINTWISE.items() if name not in BUILT},
    **BUILT,
}
"""Every op of sections 3.1 to 3.3 by name."""
