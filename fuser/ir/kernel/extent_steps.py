"""Host steps that compute an extent expression: for extents of intermediates, which no argument of a launch has."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import FloorDiv, Int, Max, Min, Mod, Symbol, SymbolQuotient
from fuser.ir.kernel.launch_plan import ScalarStep
from fuser.ir.ops.dtypes import DataType

Operand = str | int


def extent_steps(name: str, extent: Int, value_of: Callable[[Symbol], Operand]) -> list[ScalarStep] | None:
    """Steps, in order, the last of which is called `name` and has the value of `extent`.

    `value_of` gives the operand for a symbol. None for a selection, which no step can make.
    """
    steps: list[ScalarStep] = []

    def step(op: str, *operands: Operand) -> Operand:
        made = ScalarStep(f"{name}_{len(steps)}", DataType.Int, op, operands)
        steps.append(made)
        return made.name

    def folded(op: str, values: list[Operand | None]) -> Operand | None:
        result = values[0]
        for v in values[1:]:
            result = None if v is None or result is None else step(op, result, v)
        return result

    def visit(e: Int) -> Operand | None:
        match e:
            case _ if e.is_const:
                return e.value
            case Symbol():
                return value_of(e)
            case SymbolQuotient():
                return step("div", value_of(e.symbol), e.symbol.multiple)
            case Min():
                return folded("minimum", [visit(a) for a in e.arguments])
            case Max():
                return folded("maximum", [visit(a) for a in e.arguments])
            case FloorDiv() | Mod():
                a, b = visit(e.numerator), visit(e.divisor)
                if a is None or b is None:
                    return None
                rest = step("remainder", a, b)
                # What is left divides: rounding down or toward zero is the same.
                return rest if isinstance(e, Mod) else step("div", step("sub", a, rest), b)
            case _ if e.terms and not (len(e.terms) == 1 and e.terms[0] == ((e,), 1)):
                parts: list[Operand | None] = [e.constant] if e.constant else []
                for monomial, coefficient in e.terms:
                    factors = [visit(f) for f in monomial]
                    parts.append(folded("mul", [*factors, coefficient] if coefficient != 1 else factors))
                return folded("add", parts)
            case _:
                return None

    result = visit(extent)
    if result is None:
        return None
    steps.append(ScalarStep(name, DataType.Int, "cast", (result,)))
    return steps
