"""Traces: a calculation with numbers, recorded as the source of one function that repeats it for other numbers.

    trace = NumberTrace()
    n = trace.leaf(1000)
    blocks = -(-n // 256) if n > 512 else 1             ordinary Python, run once on numbers that record what is done to them
    find = trace.function((blocks, 256))
    find([2000])                                        (8, 256)
    find([100])                                         None: the calculation would take another branch

    Source: def find(numbers):
                v0, = numbers
                if not v0 > 512: return None
                v1 = -v0
                v2 = v1 // 256
                v3 = -v2
                return (v3, 256)

As in a tracing JIT, each comparison becomes a guard: the function returns None if its result is another one than in the
trace. A number that is used as a plain number (`range`, an index, `math.log2`) is guarded to be equal. The calculation learns
nothing about its numbers in any other way, so a function that passes all guards returns what the calculation would. Guards are
in the order in which they were recorded. For an operation that raises an error, which the calculation may catch, the numbers
are guarded to be equal.

Texts are for people to read and decide nothing, so writing a number into one records no guard. Numbers of a trace cannot be
dictionary keys, as the entry would outlive the trace; used as a list index they are guarded. What cannot be traced raises
UntraceableError, which is no `Exception`, so that code that catches errors does not catch it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

# Compilation takes some microseconds a line.
MOST_LINES = 4000

_N = TypeVar("_N", bound=float)
Find = Callable[[Sequence[int]], Any]


class UntraceableError(BaseException):
    """A calculation cannot be kept."""


class _Line(NamedTuple):
    """`name` is None for a test. `must_run`: it may raise an error, as the calculation would have."""

    name: str | None
    text: str
    operands: tuple[str, ...]
    must_run: bool


class NumberTrace:
    """Notes one calculation."""

    def __init__(self) -> None:
        self._leaves: list[str] = []
        self._lines: list[_Line] = []
        self._made: dict[str, TracedNumber] = {}
        self._tests: set[str] = set()
        # What is another number, or a plain one, as tests have found before.
        self._same: dict[str, TracedNumber | int] = {}
        self._constants: dict[str, object] = {
            "ceil": math.ceil,
            "floor": math.floor,
            "round": round,
            "abs": abs,
            "int": int,
        }

    def leaf(self, value: int) -> TracedNumber:
        """A number that calls of the function give, in order."""
        name = self._name()
        self._leaves.append(name)
        return TracedNumber(self, name, value)

    def derive(self, text: str, operands: Sequence[TracedNumber], value: Any, *, may_raise: bool = False) -> Any:
        """The result of an operation; of plain numbers a plain one."""
        if not operands:
            return value
        if type(value) not in (int, float):
            raise UntraceableError(f"{text} is {value!r}")
        found = self._made.get(text)
        if found is None:
            found = self._made[text] = TracedNumber(self, self._name(), value)
            self._add(_Line(found.name, text, tuple(o.name for o in operands), may_raise))
        return found

    def test(self, text: str, operands: Sequence[TracedNumber], answer: bool) -> bool:
        """Note the answer to a question, unless it asks nothing."""
        if operands and text not in self._tests:
            self._tests.add(text)
            wrong = f"not {text}" if answer else text
            self._add(_Line(None, f"if {wrong}: return None", tuple(o.name for o in operands), must_run=True))
        return answer

    def function(self, result: object) -> Find:
        """The function. It takes the leaves' numbers and returns `result` for them, or None.

        `result` is a number, a record, or a tuple of such; anything else in it is returned as it is.
        """
        used: set[str] = set()
        returned = self._text_of(result, used)
        kept: list[str] = []
        for line in reversed(self._lines):
            if line.must_run or line.name in used:
                used.update(line.operands)
                kept.append(line.text if line.name is None else f"{line.name} = {line.text}")
        names = "".join(f"{name}, " for name in self._leaves)
        body = [*([f"{names}= numbers"] if names else []), *reversed(kept), f"return {returned}"]
        text = "\n".join(("def find(numbers):", *(f"    {line}" for line in body)))
        space: dict[str, Any] = dict(self._constants)
        exec(compile(text, "<numbers of a trace>", "exec"), space)
        return space["find"]

    def equate(self, number: TracedNumber, other: TracedNumber | int) -> None:
        """From here on a number is another one: a test says so. Both are ints."""
        self._same[number.name] = other

    def resolved(self, number: TracedNumber) -> TracedNumber | int:
        """What a number is."""
        found: TracedNumber | int = number
        while type(found) is TracedNumber and found.name in self._same:
            found = self._same[found.name]
        return found

    def constant(self, value: object) -> str:
        """The text of what is no number of the trace."""
        if type(value) in (bool, str) or value is None:
            return repr(value)
        if type(value) is int or (type(value) is float and math.isfinite(value)):
            return repr(value) if value >= 0 else f"({value!r})"
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def _text_of(self, value: object, used: set[str]) -> str:
        if type(value) is TracedNumber:
            _, text, operands = value.operand(self)
            used.update(o.name for o in operands)
            return text
        if not has_traced(value):
            return self.constant(value)
        if type(value) is tuple:
            return f"({''.join(f'{self._text_of(item, used)}, ' for item in value)})"
        return f"{self.constant(type(value))}({', '.join(self._text_of(field, used) for field in _fields_of(value))})"

    def _name(self) -> str:
        return f"v{len(self._made) + len(self._leaves)}"

    def _add(self, line: _Line) -> None:
        if len(self._lines) >= MOST_LINES:
            raise UntraceableError(f"more than {MOST_LINES} lines")
        self._lines.append(line)


def has_traced(value: object) -> bool:
    """Whether a number of a trace is in a number, a record, or a tuple of such."""
    if type(value) is TracedNumber:
        return True
    if type(value) is tuple:
        return any(map(has_traced, value))
    if hasattr(type(value), "__record_defaults__"):
        return any(map(has_traced, _fields_of(value)))
    return False


def as_told(value: _N) -> _N:
    """A number as texts for people have it. One of a trace is not asked for it: nothing may be decided by what this gives."""
    return value._value if type(value) is TracedNumber else value  # noqa: SLF001


def settled(value: Any) -> Any:
    """What has no numbers of a trace in it any more: they were asked for."""
    if not has_traced(value):
        return value
    if type(value) is TracedNumber:
        return value.plain()
    if type(value) is tuple:
        return tuple(map(settled, value))
    return type(value)(*map(settled, _fields_of(value)))


def _fields_of(value: Any) -> list[Any]:
    """Those of a record."""
    return [getattr(value, name) for name in type(value).__match_args__]


class TracedNumber:
    """An int or a float that notes what is done to it. It passes for one, but where C code asks for the number itself."""

    __slots__ = ("_value", "name", "trace")

    def __init__(self, trace: NumberTrace, name: str, value: float) -> None:
        self.trace = trace
        self._value = value
        self.name = name

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return type(self._value)

    def plain(self) -> Any:
        """The number, which the function will ask to be the same."""
        found = self.trace.resolved(self)
        if type(found) is TracedNumber:
            self._is(found, self._value)
        return self._value

    def _is(self, number: TracedNumber, value: float) -> None:
        self.trace.test(f"{number.name} == {self.trace.constant(value)}", (number,), answer=True)
        if type(value) is int:
            self.trace.equate(number, value)

    def operand(self, trace: NumberTrace) -> Operand:
        """As part of an operation that a trace notes. Raises UntraceableError for a number of another one."""
        if self.trace is not trace:
            raise UntraceableError("numbers of two traces meet")
        found = trace.resolved(self)
        if type(found) is not TracedNumber:
            return found, trace.constant(found), ()
        return found._value, found.name, (found,)  # noqa: SLF001

    @property
    def real(self) -> TracedNumber:
        """Itself."""
        return self

    # --- what is asked of it ------------------------------------------------------------------------------------------

    def __hash__(self) -> NoReturn:
        raise UntraceableError("a number of a trace is a key")

    def __index__(self) -> int:
        return operator.index(self.plain())

    def __int__(self) -> int:
        return int(self.plain())

    def __trunc__(self) -> int:
        return int(self.plain())

    def __float__(self) -> float:
        return float(self.plain())

    def __complex__(self) -> complex:
        return complex(self.plain())

    def __bool__(self) -> bool:
        value, text, operands = self.operand(self.trace)
        return self.trace.test(text, operands, bool(value))

    def __lt__(self, other: object) -> bool:
        return self._ask("<", operator.lt, other)

    def __le__(self, other: object) -> bool:
        return self._ask("<=", operator.le, other)

    def __gt__(self, other: object) -> bool:
        return self._ask(">", operator.gt, other)

    def __ge__(self, other: object) -> bool:
        return self._ask(">=", operator.ge, other)

    def __eq__(self, other: object) -> bool:
        return self._ask("==", operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return self._ask("!=", operator.ne, other)

    def _ask(self, sign: str, compare: Callable[[Any, Any], bool], other: Any) -> bool:
        found = _operands(self, other)
        if found is None:
            return NotImplemented
        (mine, text, first), (theirs, other_text, second) = found
        answer = compare(mine, theirs)
        are_ints = type(mine) is int and type(theirs) is int
        if text == other_text and are_ints:
            return answer
        self.trace.test(f"{text} {sign} {other_text}", (*first, *second), answer)
        if are_ints and answer is (sign == "==") and sign in ("==", "!="):
            # The older of two stays.
            if second:
                self.trace.equate(second[0], first[0] if first else mine)
            elif first:
                self.trace.equate(first[0], theirs)
        return answer

    # --- what is made of it -------------------------------------------------------------------------------------------

    def __neg__(self) -> Any:
        return self._call("-", operator.neg)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._call("abs", abs)

    def __invert__(self) -> Any:
        return self._call("~", operator.invert)

    def __ceil__(self) -> Any:
        return self._call("ceil", math.ceil)

    def __floor__(self) -> Any:
        return self._call("floor", math.floor)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return self._call("round", round)
        known = operator.index(digits)
        return self._call("round", lambda value: round(value, known), f", {known}")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def bit_length(self) -> Any:
        """As of an int."""
        return self._call("int.bit_length", int.bit_length)

    def _call(self, function: str, apply: Callable[[Any], Any], given: str = "") -> Any:
        # Of an infinite number.
        may_raise = type(self._value) is float and function in ("ceil", "floor", "round")
        value, text, operands = self.operand(self.trace)
        with _errors_of(operands):
            made = apply(value)
        return self.trace.derive(f"{function}({text}{given})", operands, made, may_raise=may_raise)

    # Numbers go out and into files as they are written, for people.

    def __str__(self) -> str:
        return str(self._value)

    def __repr__(self) -> str:
        return repr(self._value)

    def __format__(self, spec: str) -> str:
        return format(self._value, spec)


Operand = tuple[Any, str, tuple[TracedNumber, ...]]
"""Value, text, and the numbers of the trace in it."""


def _operands(number: TracedNumber, other: Any) -> tuple[Operand, Operand] | None:
    """Both sides of an operation; None where the other one is no number."""
    trace = number.trace
    if type(other) is TracedNumber:
        return number.operand(trace), other.operand(trace)
    if type(other) in (int, float, bool):
        return number.operand(trace), (other, trace.constant(other), ())
    if isinstance(other, (int, float, complex)):
        # Their own methods know no numbers of a trace: `==` would be answered by identity.
        raise UntraceableError(f"a number meets {other!r}")
    return None


@contextmanager
def _errors_of(operands: Sequence[TracedNumber]) -> Generator[None]:
    """What raises an error asks for its operands: whoever takes the error for an answer was told of these very numbers."""
    try:
        yield
    except (ArithmeticError, ValueError):
        for operand in operands:
            operand.plain()
        raise


def _ask_for_kind(base: Operand, exponent: Operand) -> None:
    """Ask for what makes a power an int, a float or a complex number."""
    (x, _, first), (y, _, second) = base, exponent
    if type(x) is int and type(y) is int:
        bool(second and second[0] < 0)
        return
    bool(first and first[0] < 0)
    if x < 0:
        for operand in second:
            operand.plain()


_NOTHING = frozenset((("+", 0), ("-", 0), ("*", 1), ("//", 1)))
_MAY_RAISE = frozenset(("/", "//", "%", "**", "<<", ">>"))


def _operation(
    sign: str, apply: Callable[[Any, Any], Any], *, is_reflected: bool
) -> Callable[[TracedNumber, Any], Any]:
    def made(self: TracedNumber, other: Any) -> Any:
        found = _operands(self, other)
        if found is None:
            return NotImplemented
        (x, left, first), (y, right, second) = reversed(found) if is_reflected else found
        if type(x) is int and type(y) is int:
            # Nothing is done to a number.
            if first and not second and (sign, y) in _NOTHING:
                return first[0]
            if second and not first and (x, sign) in ((0, "+"), (1, "*")):
                return second[0]
        if sign == "**":
            _ask_for_kind((x, left, first), (y, right, second))
        with _errors_of((*first, *second)):
            value = apply(x, y)
        # A divisor that is known was a good one.
        may_raise = sign in _MAY_RAISE and (sign == "**" or bool(second))
        return self.trace.derive(f"{left} {sign} {right}", (*first, *second), value, may_raise=may_raise)

    return made


_OPERATIONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "truediv": ("/", operator.truediv),
    "floordiv": ("//", operator.floordiv),
    "mod": ("%", operator.mod),
    "pow": ("**", operator.pow),
    "lshift": ("<<", operator.lshift),
    "rshift": (">>", operator.rshift),
    "and": ("&", operator.and_),
    "or": ("|", operator.or_),
    "xor": ("^", operator.xor),
}

for _name, (_sign, _apply) in _OPERATIONS.items():
    setattr(TracedNumber, f"__{_name}__", _operation(_sign, _apply, is_reflected=False))
    setattr(TracedNumber, f"__r{_name}__", _operation(_sign, _apply, is_reflected=True))


__all__ = ["NumberTrace", "TracedNumber", "UntraceableError", "as_told", "has_traced", "settled"]
