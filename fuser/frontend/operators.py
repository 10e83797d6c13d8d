"""Python operators on tensors and scalars. `//` floors, `%` has the sign of the divisor, `/` is true division."""

from __future__ import annotations

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend import scalars
from fuser.frontend.elementwise import ELEMENTWISE, operand_class, pointwise_value
from fuser.frontend.handles import Val
from fuser.frontend.operation import fusion_of, is_number, operand_argument, operation
from fuser.ir import fusion as ir
from fuser.ir.op_table import POINTWISE, promoted_dtype


def apply_operator(name: str, *operands: object) -> Val:
    """The op behind an operator. Raises DefinitionTypeError for operands that are neither Vals nor numbers."""
    if name == "matmul":
        from fuser.frontend.library_calls import matmul

        return matmul(*operands)
    if name == "floordiv":
        return floordiv(*operands)
    return ELEMENTWISE[name](*operands)


def compare(name: str, left: Val, right: object) -> Val:
    """`==` or `!=`: `eq` or `ne` of two operands.

    Raises DefinitionTypeError for what is no operand (None, text, arrays), and DefinitionRuntimeError once the definition is
    closed: a Python bool in either case would be taken for the answer.
    """
    symbol, what = POINTWISE[name].symbol, "a TensorView" if left.is_tensor() else "a scalar of a fusion"
    if not (isinstance(right, Val) or is_number(right)):
        shown = repr(right) if right is None or isinstance(right, str) else f"a {type(right).__name__}"
        remedy = (
            f"`is{' not' if name == 'ne' else ''} None`"
            if right is None
            else "`is` to ask whether two names are one value"
        )
        raise DefinitionTypeError(f"{what} cannot be compared with {shown}: `{symbol}` compares elements; use {remedy}")
    if not left.fusion.is_open:
        raise DefinitionRuntimeError(
            f"`{symbol}` on {what} is an op, and nothing can be added to this fusion any more; use `is` to ask whether two "
            "names are one value",
        )
    return ELEMENTWISE[name](left, right)


@operation("floordiv(lhs: TensorView | Val | number, rhs: TensorView | Val | number, /) -> TensorView | Val")
def floordiv(lhs: object, rhs: object, /) -> Val:
    """lhs / rhs rounded toward minus infinity; integers stay integers."""
    left, right = operand_argument("lhs", lhs), operand_argument("rhs", rhs)
    fusion = fusion_of("floordiv", left, right)
    builder = fusion.builder()
    values = [o.node if isinstance(o, Val) else scalars.constant(builder, o) for o in (left, right)]

    def op(row: str, *arguments: ir.Val) -> ir.Val:
        return pointwise_value(builder, POINTWISE[row], arguments)

    dtype = promoted_dtype([operand_class(v) for v in values])
    quotient = op("div", *values)
    if dtype.is_floating or dtype.is_complex:
        return fusion.handle(op("floor", quotient))
    if all(isinstance(v, ir.Scalar) and v.expression is not None and _is_natural(v) for v in values):
        return fusion.handle(quotient)
    # Truncated quotient, less one where the division is inexact and the signs differ.
    rest = op("fmod", *values)
    zero = scalars.constant(builder, 0)
    inexact = op("ne", rest, zero)
    signs_differ = op("bitwise_xor", op("lt", rest, zero), op("lt", values[1], zero))
    return fusion.handle(op("sub", quotient, op("logical_and", inexact, signs_differ)))


def _is_natural(value: ir.Scalar) -> bool:
    low = None if value.expression is None else value.expression.lo
    return low is not None and low >= 0
