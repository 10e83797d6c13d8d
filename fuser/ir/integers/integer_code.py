"""What integer expressions turn into: C text, Python and NumPy functions, SymPy expressions."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

from fuser.generated_code import code_of
from fuser.ir.integers.integer_nodes import (
    AllOf,
    AnyOf,
    Compare,
    Cond,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Select,
    Symbol,
    SymbolQuotient,
    Truth,
    Xor,
)
from fuser.ir.integers.integer_rules import has_plain_division
from fuser.ir.integers.integer_text import ATOM_LEVEL, DIVISION_LEVEL, SUM_LEVEL, Printer

if TYPE_CHECKING:
    import sympy

# ------------------------------------------------------------------------------------------------------------- C text


class _CPrinter(Printer):
    """C text for signed integers; division rounds towards minus infinity whatever the sign of the numerator."""

    def __init__(
        self,
        names: Callable[[Symbol], str],
        suffix: str,
        unrolled: Container[Symbol] = (),
        divide: Callable[[str, Int, bool], str | None] | None = None,
    ) -> None:
        self.names = names
        self.suffix = suffix
        self.unrolled = unrolled
        self.divide = divide

    def name(self, symbol: Symbol) -> str:
        return self.names(symbol)

    def literal(self, value: int) -> str:
        return f"{value}{self.suffix}"

    def truth(self, value: bool) -> str:
        return "true" if value else "false"

    def comparison(self, node: Compare) -> str:
        # What becomes a number alone on the left: the rest is the same in every iteration, and computed once.
        numbers = [
            (monomial, -coefficient)
            for monomial, coefficient in node.operand.terms
            if coefficient < 0 and all(isinstance(f, Symbol) and f in self.unrolled for f in monomial)
        ]
        rest = [(m, c) for m, c in node.operand.terms if (m, -c) not in numbers]
        limit = node.operand.constant + 1
        if node.kind != ">=" or not numbers or len(rest) + (limit != 0) < 2:
            return super().comparison(node)
        return f"{self.side(0, numbers)} < {self.side(limit, rest)}"

    def quotient(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        x, d = self.operand(numerator), self.operand(divisor)
        if has_plain_division(numerator, divisor):
            call = self.call_of_division(numerator, divisor, is_quotient=True)
            return (f"{x} / {d}", DIVISION_LEVEL) if call is None else (call, ATOM_LEVEL)
        # C rounds towards zero: one less where a remainder is left of a negative numerator.
        return f"{x} / {d} - ({x} % {d} < 0)", SUM_LEVEL

    def remainder(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        x, d = self.operand(numerator), self.operand(divisor)
        if has_plain_division(numerator, divisor):
            call = self.call_of_division(numerator, divisor, is_quotient=False)
            return (f"{x} % {d}", DIVISION_LEVEL) if call is None else (call, ATOM_LEVEL)
        return f"({x} % {d} + {d}) % {d}", DIVISION_LEVEL

    def call_of_division(self, numerator: Int, divisor: Int, *, is_quotient: bool) -> str | None:
        return None if self.divide is None else self.divide(self.expression(numerator), divisor, is_quotient)

    def extremum(self, name: str, arguments: Sequence[Int]) -> tuple[str, int]:
        # Ternaries: a call of min() is ambiguous in CUDA when the types of the arguments differ.
        compare = "<" if name == "min" else ">"
        text = self.operand(arguments[-1])
        for argument in reversed(arguments[:-1]):
            other = self.operand(argument)
            text = f"({other} {compare} {text} ? {other} : {text})"
        return text, ATOM_LEVEL

    def selection(self, node: Select) -> tuple[str, int]:
        condition = self.condition(node.condition)
        return f"({condition} ? {self.expression(node.chosen)} : {self.expression(node.otherwise)})", ATOM_LEVEL

    def junction(self, arguments: Sequence[Cond], every: bool) -> str:
        parts = [f"({self.condition(a)})" if isinstance(a, (AllOf, AnyOf)) else self.condition(a) for a in arguments]
        return (" && " if every else " || ").join(parts)


def to_c(
    expression: Int | Cond,
    names: Callable[[Symbol], str] | None = None,
    suffix: str = "",
    unrolled: Container[Symbol] = (),
    divide: Callable[[str, Int, bool], str | None] | None = None,
) -> str:
    """C text of an expression or condition over signed integers.

    `names` gives the C name of a symbol (its own name by default), `suffix` follows every literal ("LL"). `unrolled` are
    counters that become numbers when their loops are unrolled. Divisions of
    a numerator that is not proved nonnegative get a form that still rounds towards minus infinity. Of others, `divide` is asked
    for a call that computes them: by the numerator's text, the divisor, and whether it is the quotient or the remainder. The
    text is not parenthesised as a whole.
    """
    printer = _CPrinter(names or (lambda s: s.name), suffix, unrolled, divide)
    return printer.expression(expression) if isinstance(expression, Int) else printer.condition(expression)


# ---------------------------------------------------------------------------------------------------- Python functions


class _PythonPrinter(Printer):
    """Python text over local variables: parameters and the subexpressions that are computed once."""

    def __init__(self, parameters: dict[Symbol, str]) -> None:
        self.parameters = parameters
        self.locals: dict[Int, str] = {}
        # How deep the text stands inside branches of selections, which may not be evaluated.
        self.branch_depth = 0

    def name(self, symbol: Symbol) -> str:
        return self.parameters[symbol]

    def atom(self, node: Int) -> tuple[str, int]:
        local = self.locals.get(node)
        return super().atom(node) if local is None else (local, ATOM_LEVEL)

    def text(self, node: Int) -> tuple[str, int]:
        local = self.locals.get(node)
        return super().text(node) if local is None else (local, ATOM_LEVEL)

    def selection(self, node: Select) -> tuple[str, int]:
        condition = self.condition(node.condition)
        self.branch_depth += 1
        text = f"({self.expression(node.chosen)} if {condition} else {self.expression(node.otherwise)})"
        self.branch_depth -= 1
        return text, ATOM_LEVEL


class _NumpyPrinter(_PythonPrinter):
    """Text that works on arrays elementwise. Both branches of a selection are evaluated."""

    def quotient(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}//{self.divisor(divisor)}", DIVISION_LEVEL

    def remainder(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}%{self.divisor(divisor)}", DIVISION_LEVEL

    def divisor(self, node: Int) -> str:
        # In a branch that is not taken the divisor may be 0, which the condition excluded.
        if self.branch_depth and (node.lo is None or node.lo < 1):
            return f"maximum({self.expression(node)}, 1)"
        return self.operand(node)

    def extremum(self, name: str, arguments: Sequence[Int]) -> tuple[str, int]:
        function = "minimum" if name == "min" else "maximum"
        text = self.expression(arguments[0])
        for argument in arguments[1:]:
            text = f"{function}({text}, {self.expression(argument)})"
        return text, ATOM_LEVEL

    def selection(self, node: Select) -> tuple[str, int]:
        condition = self.condition(node.condition)
        self.branch_depth += 1
        text = f"where({condition}, {self.expression(node.chosen)}, {self.expression(node.otherwise)})"
        self.branch_depth -= 1
        return text, ATOM_LEVEL

    def junction(self, arguments: Sequence[Cond], every: bool) -> str:
        return (" & " if every else " | ").join(f"({self.condition(a)})" for a in arguments)


def compile_function(
    outputs: Sequence[Int | Cond], parameters: Sequence[Symbol]
) -> Callable[..., tuple[int | bool, ...]]:
    """A Python function of ints, in the order of `parameters`, that returns the tuple of `outputs`.

    Subexpressions that occur more than once are computed once, unless only a branch of a selection needs them.
    ValueError names symbols that are no parameter.
    """
    names = _parameter_names(outputs, parameters)
    return _build_function(outputs, _PythonPrinter(names), {"min": min, "max": max})


def compile_vectorized(outputs: Sequence[Int | Cond], parameters: Sequence[Symbol]) -> Callable[..., tuple[Any, ...]]:
    """As `compile_function`, for ints and NumPy integer arrays (of shapes that broadcast together).

    An output is an int64 or bool array, or a scalar where nothing it depends on is an array. Both branches of a
    selection are evaluated; a divisor of 0 in the branch that is not taken does no harm.
    """
    import numpy as np

    names = _parameter_names(outputs, parameters)
    scope = {"minimum": np.minimum, "maximum": np.maximum, "where": np.where}
    return _build_function(outputs, _NumpyPrinter(names), scope)


def _parameter_names(outputs: Sequence[Int | Cond], parameters: Sequence[Symbol]) -> dict[Symbol, str]:
    names = {parameter: f"p{index}" for index, parameter in enumerate(parameters)}
    missing = sorted({s.name for output in outputs for s in output.symbols if s not in names})
    if missing:
        raise ValueError(f"no parameter for the symbols {', '.join(missing)}")
    return names


def _build_function(
    outputs: Sequence[Int | Cond], printer: _PythonPrinter, scope: dict[str, Any]
) -> Callable[..., tuple[Any, ...]]:
    lines = [f"def evaluate({', '.join(printer.parameters.values())}):"]
    for index, node in enumerate(_shared_nodes(outputs)):
        text = printer.expression(node)
        printer.locals[node] = f"t{index}"
        lines.append(f"    t{index} = {text}")
    results = [printer.expression(o) if isinstance(o, Int) else printer.condition(o) for o in outputs]
    lines.append(f"    return ({''.join(f'{result}, ' for result in results)})")
    space: dict[str, Any] = {"__builtins__": {}, **scope}
    exec(code_of("\n".join(lines), "<integer expressions>"), space)
    return space["evaluate"]


def _shared_nodes(outputs: Sequence[Int | Cond]) -> list[Int]:
    """Nodes that occur more than once outside the branches of selections, operands before their users."""
    uses: dict[Int, int] = {}
    order: list[Int] = []

    def visit(node: Int) -> None:
        if not node.terms or isinstance(node, (Symbol, SymbolQuotient)):
            return
        count = uses.get(node, 0)
        uses[node] = count + 1
        if count:
            return
        match node:
            case FloorDiv() | Mod():
                visit(node.numerator)
                visit(node.divisor)
            case Min() | Max():
                for argument in node.arguments:
                    visit(argument)
            case Select():
                visit_condition(node.condition)
            case Xor():
                visit(node.left)
                visit(node.right)
            case _:
                for monomial, _ in node.terms:
                    for factor in monomial:
                        visit(factor)
        order.append(node)

    def visit_condition(node: Cond) -> None:
        match node:
            case Compare():
                # The comparison prints the terms, not the operand itself.
                for monomial, _ in node.operand.terms:
                    for factor in monomial:
                        visit(factor)
            case AllOf() | AnyOf():
                for argument in node.arguments:
                    visit_condition(argument)
            case _:
                pass

    for output in outputs:
        if isinstance(output, Int):
            visit(output)
        else:
            visit_condition(output)
    return [node for node in order if uses[node] > 1]


# -------------------------------------------------------------------------------------------------------------- SymPy


def to_sympy(expression: Int | Cond) -> sympy.Basic:
    """The expression in SymPy, over integer symbols of the same names (nonnegative where the range says so)."""
    import sympy

    known: dict[Int, Any] = {}

    def convert(node: Int) -> Any:
        result = known.get(node)
        if result is not None:
            return result
        match node:
            case Symbol():
                signs = {"nonnegative": True} if node.lo is not None and node.lo >= 0 else {}
                result = sympy.Symbol(node.name, integer=True, **signs)
            case SymbolQuotient():
                result = sympy.floor(convert(node.symbol) / sympy.Integer(node.symbol.multiple))
            case FloorDiv():
                result = sympy.floor(convert(node.numerator) / convert(node.divisor))
            case Mod():
                result = sympy.Mod(convert(node.numerator), convert(node.divisor))
            case Min():
                result = sympy.Min(*(convert(a) for a in node.arguments))
            case Max():
                result = sympy.Max(*(convert(a) for a in node.arguments))
            case Select():
                first = convert(node.chosen), decide(node.condition)
                result = sympy.Piecewise(first, (convert(node.otherwise), True))
            case Xor():
                a, b = convert(node.left), convert(node.right)
                assert node.hi is not None
                bits = range(node.hi.bit_length())
                result = sympy.Add(*(2**k * sympy.Mod(sympy.floor(a / 2**k) + sympy.floor(b / 2**k), 2) for k in bits))
            case _:
                result = sympy.Integer(node.constant)
                for monomial, coefficient in node.terms:
                    result += sympy.Mul(coefficient, *(convert(factor) for factor in monomial))
        known[node] = result
        return result

    def decide(node: Cond) -> Any:
        match node:
            case Truth():
                return sympy.true if node.value else sympy.false
            case Compare(kind=">="):
                return sympy.Ge(convert(node.operand), 0)
            case Compare(kind="=="):
                return sympy.Eq(convert(node.operand), 0)
            case Compare():
                return sympy.Ne(convert(node.operand), 0)
            case AllOf():
                return sympy.And(*(decide(a) for a in node.arguments))
            case AnyOf():
                return sympy.Or(*(decide(a) for a in node.arguments))
            case _:
                raise TypeError(f"expected a condition, got {type(node).__name__}")

    return convert(expression) if isinstance(expression, Int) else decide(expression)
