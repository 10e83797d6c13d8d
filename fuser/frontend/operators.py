"""Python operators on tensors and scalars. `//` floors, `%` has the sign of the divisor, `/` is true division."""

from __future__ import annotations

from collections.abc import Callable

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.frontend import scalars
from fuser.frontend.elementwise import ELEMENTWISE, operand_class, pointwise_value
from fuser.frontend.handles import Val
from fuser.frontend.library_calls import matmul
from fuser.frontend.operation import fusion_of, is_number, operand_argument, operation
from fuser.ir.fusion import fusion as ir
from fuser.ir.ops.op_table import POINTWISE, promoted_dtype
from fuser.tracebacks import short_traceback


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


# --- methods of Python ------------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[..., Val]] = {
    "add": ELEMENTWISE["add"],
    "sub": ELEMENTWISE["sub"],
    "mul": ELEMENTWISE["mul"],
    "truediv": ELEMENTWISE["truediv"],
    "floordiv": floordiv,
    "mod": ELEMENTWISE["remainder"],
    "pow": ELEMENTWISE["pow"],
    "matmul": matmul,
    "and": ELEMENTWISE["bitwise_and"],
    "or": ELEMENTWISE["bitwise_or"],
    "xor": ELEMENTWISE["bitwise_xor"],
    "lshift": ELEMENTWISE["bitwise_left_shift"],
    "rshift": ELEMENTWISE["bitwise_right_shift"],
}
"""The op of each operator that has a reflected form too: `__add__` and `__radd__`."""

ORDER = ("lt", "le", "gt", "ge")
"""Comparisons for order: each is the op of its name, and the reflected form of another."""

UNARY: dict[str, Callable[..., Val]] = {
    "neg": ELEMENTWISE["neg"],
    "abs": ELEMENTWISE["abs"],
    "invert": ELEMENTWISE["bitwise_not"],
}


def _equality(name: str) -> Callable[[Val, object], Val]:
    @short_traceback
    def equality(left: Val, right: object) -> Val:
        return compare(name, left, right)

    return equality


def _reflected(op: Callable[..., Val]) -> Callable[[Val, object], Val]:
    @short_traceback
    def reflected(right: Val, left: object) -> Val:
        return op(left, right)

    return reflected


OPERATORS: dict[str, Callable[..., Val]] = {
    f"__{name}__": function
    for name, function in (
        ("eq", _equality("eq")),
        ("ne", _equality("ne")),
        *(pair for name, op in BINARY.items() for pair in ((name, op), (f"r{name}", _reflected(op)))),
        *((name, ELEMENTWISE[name]) for name in ORDER),
        *UNARY.items(),
    )
}
"""The methods by which Python calls operators on values. Those of `==` and `!=` give a value, not a bool, as arrays do."""
