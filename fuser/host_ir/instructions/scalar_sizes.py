"""Extents of a fusion as sizes of a host program: what tensor inputs carry, scalar inputs, and integer arithmetic on both.

c4 = n * 2 + 1;  t5 = full([c4])     ->     Allocate("t5", (2*scalar("c0") + 1,), ...)
"""

from __future__ import annotations

from collections.abc import Callable

from fuser.errors import InternalError, NotSupportedError
from fuser.host_ir.instructions.expressions import extent, scalar
from fuser.ir.fusion.fusion import ExtentOp, Fusion, Scalar, ScalarOp
from fuser.ir.integers.integers import (
    Cond,
    Int,
    Symbol,
    const,
    equal,
    less,
    less_equal,
    maximum,
    minimum,
    not_equal,
    select,
)

_COMPARISONS: dict[str, Callable[[Int, Int], Cond]] = {
    "lt": less,
    "le": less_equal,
    "gt": lambda a, b: less(b, a),
    "ge": lambda a, b: less_equal(b, a),
    "eq": equal,
    "ne": not_equal,
}


class ExtentSizes:
    """Sizes by extent symbol, for one fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._input_names = frozenset(v.name for v in fusion.inputs)
        self._carried: dict[str, Int] = {}
        for t in fusion.input_tensors:
            for d, dim in enumerate(t.visible):
                if isinstance(dim.extent, Symbol):
                    self._carried.setdefault(dim.extent.name, extent(t.name, d))
        self._computed = {e.output.name: e for e in fusion.exprs if isinstance(e, (ScalarOp, ExtentOp))}

    def of_symbol(self, symbol: Symbol) -> Int:
        """The size that an extent symbol stands for.

        Raises NotSupportedError for a scalar computed in a way that sizes have no word for.
        """
        found = self._carried.get(symbol.name)
        if found is not None:
            return found
        name = self._fusion.extent_scalars.get(symbol.name)
        if name is None:
            raise InternalError(f"no input carries the extent {symbol}", pass_name="build_host_program")
        return self.of_scalar(name)

    def of_extent(self, expression: Int) -> Int:
        """An extent with sizes in place of its symbols."""
        return expression.substitute({s: self.of_symbol(s) for s in expression.symbols})

    def of_scalar(self, name: str) -> Int:
        """A scalar of the fusion as a size. Raises NotSupportedError for one that sizes have no word for."""
        if name in self._input_names:
            return scalar(name)
        expr = self._computed.get(name)
        if isinstance(expr, ExtentOp):
            return self.of_extent(expr.tensor.visible[expr.dim].extent)
        if expr is None:
            raise InternalError(f"the scalar {name} is not defined", pass_name="build_host_program")
        if expr.op == "where" and expr.output.dtype.is_integral:
            chosen, other = (self._operand(s) for s in expr.inputs[1:])
            return select(self._condition(expr, expr.inputs[0]), chosen, other)
        if not all(s.dtype.is_integral for s in (*expr.inputs, expr.output)):
            raise _unsupported(expr)
        operands = [self._operand(s) for s in expr.inputs]
        match expr.op, operands:
            case (("set" | "cast"), [a]):
                return a
            case "neg", [a]:
                return -a
            case "abs", [a]:
                return maximum(a, -a)
            case "add", [a, b]:
                return a + b
            case "sub", [a, b]:
                return a - b
            case "mul", [a, b]:
                return a * b
            case "minimum", [a, b]:
                return minimum(a, b)
            case "maximum", [a, b]:
                return maximum(a, b)
            case "div", [a, b] if b.is_const and b.value > 0:
                return _truncated(a, b.value)
            case (("fmod" | "mod"), [a, b]) if b.is_const and b.value > 0:
                return a - _truncated(a, b.value) * b.value
            case "remainder", [a, b] if b.is_const and b.value > 0:
                return a % b.value
            case _:
                raise _unsupported(expr)

    def _condition(self, expr: ScalarOp, condition: Scalar) -> Cond:
        """The comparison of integers that a `where` asks for."""
        made = self._computed.get(condition.name)
        compare = _COMPARISONS.get(made.op) if isinstance(made, ScalarOp) else None
        if not isinstance(made, ScalarOp) or compare is None or not all(s.dtype.is_integral for s in made.inputs):
            raise _unsupported(expr)
        left, right = (self._operand(s) for s in made.inputs)
        return compare(left, right)

    def _operand(self, s: Scalar) -> Int:
        return self.of_scalar(s.name) if s.value is None else const(int(s.value.real))


def _truncated(a: Int, divisor: int) -> Int:
    """a / divisor, rounded toward zero."""
    return select(less(a, 0), -((-a) // divisor), a // divisor)


def _unsupported(expr: ScalarOp) -> NotSupportedError:
    operands = ", ".join(f"{s} ({s.dtype.name})" for s in expr.inputs)
    remedy = "pass the extent as a scalar input of its own"
    if any(s.dtype.is_floating for s in expr.inputs):
        remedy = f"divide sizes by //, as / gives a floating number, or {remedy}"
    return NotSupportedError(
        f"the extent {expr.output.name} = {expr.op}({operands}) cannot be computed by a host program yet: extents take integer "
        "+, -, *, min, max, where, and division by positive constants; "
        f"{remedy}",
        location=expr.output.location,
    )
