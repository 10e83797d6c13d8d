"""Interned integer expressions: nodes, normal form, rule tables, proofs.

Grammar (a value of type `Int` is one node; equal values in normal form are the same object)

    Int      = Const | Symbol | Sum | Atom
    Sum      = constant + coefficient * atom * ... * atom + ...      terms sorted, coefficients not 0
    Atom     = Symbol                                                when its known divisor is 1
             | SymbolQuotient(symbol)                                symbol // symbol.multiple
             | FloorDiv(numerator, divisor) | Mod(numerator, divisor)
             | Min(argument, ...) | Max(argument, ...)
             | Select(condition, chosen, otherwise)
    Cond     = Truth | Compare(kind, Int) | AllOf(Cond, ...) | AnyOf(Cond, ...)
    kind     = ">=" | "==" | "!="                                    Int kind 0

Semantics: mathematical integers, no overflow. Division rounds towards minus infinity and the remainder has the range
[0, divisor); divisors are at least 1 by contract, wherever their ranges do not say so it is assumed.

A symbol that is known to be divisible by m > 1 is the sum `m * SymbolQuotient`, and common factors are pulled out of
Mod, Min, Max and Select, so the largest known divisor of any expression is the gcd of its coefficients.

Every local simplification is a row of a rule table (`RULES`): name, one line, example, function. The tables, the
arithmetic and the proofs call one another (a division needs a proof, a proof needs sums, a sum recombines quotients),
which is why they share a file. Text, compiled functions and data live in `integer_code`.

Order of terms and arguments follows names and structure, never `id` or `hash`: printed text is the same in every
process.
"""

from __future__ import annotations

import operator
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd, inf
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

Monomial: TypeAlias = "tuple[Int, ...]"
Terms: TypeAlias = "tuple[tuple[Monomial, int], ...]"
Bound: TypeAlias = "int | None"
CompareKind: TypeAlias = Literal[">=", "==", "!="]

# Memo tables are dropped when they reach this many entries; nodes stay interned for the life of the process.
_MEMO_LIMIT: Final = 1 << 17
# Longest structural sort key kept as text; longer ones end in a checksum.
_ORDER_LENGTH: Final = 160
# Eliminations one proof may try before it gives up.
_PROOF_STEPS: Final = 48


# ---------------------------------------------------------------------------------------------------------- nodes


class Int:
    """An integer expression in normal form: `constant + sum(coefficient * product of atoms)`.

    Interned, so equality is identity and nodes serve as dictionary keys. Use `const` and `symbol` to make leaves, and
    the operators `+ - * // %` with expressions and ints. An expression has no truth value.

    lo, hi      inclusive bounds that hold for every value of the symbols, None where unbounded
    multiple    the largest known constant divisor, 0 for the constant 0
    symbols     the symbols that occur
    weight      size measure that recombination decreases
    order       structural sort key
    rank        how many symbolic bounds lie under this expression; proofs eliminate the highest first
    """

    __slots__ = ("constant", "hi", "lo", "multiple", "order", "rank", "symbols", "terms", "text", "weight")

    constant: int
    terms: Terms
    lo: Bound
    hi: Bound
    multiple: int
    weight: int
    order: str
    rank: int
    symbols: frozenset[Symbol]
    text: str

    # True for FloorDiv and Mod: sums that hold one are offered to the recombination rules.
    is_division: bool = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Python calls this only while a slot is still empty: derived values are computed on first use and kept.
            if name == "lo" or name == "hi":
                lo, hi = self._range()
                _set_lo(self, lo)
                _set_hi(self, hi)
                return lo if name == "lo" else hi
            compute = _DERIVED.get(name)
            if compute is None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            value = compute(self)
            object.__setattr__(self, name, value)
            return value

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AttributeError(f"integer expressions are immutable, cannot set {name!r}")

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def value(self) -> int:
        """The value of a constant; ValueError for anything else."""
        if self.terms:
            raise ValueError(f"{self} is not a constant")
        return self.constant

    # Arithmetic. An int on either side is accepted; other operand types are a TypeError.

    def __add__(self, other: Int | int) -> Int:
        if other.__class__ is int:
            return _shift(self, other)  # type: ignore[arg-type]
        right = _coerce(other)
        return NotImplemented if right is None else _add(self, right, 1)

    def __radd__(self, other: int) -> Int:
        return self.__add__(other)

    def __sub__(self, other: Int | int) -> Int:
        if other.__class__ is int:
            return _shift(self, -other)  # type: ignore[arg-type]
        right = _coerce(other)
        return NotImplemented if right is None else _add(self, right, -1)

    def __rsub__(self, other: int) -> Int:
        left = _coerce(other)
        return NotImplemented if left is None else _add(left, self, -1)

    def __neg__(self) -> Int:
        return _scale(self, -1)

    def __mul__(self, other: Int | int) -> Int:
        if other.__class__ is int:
            return _scale(self, other)  # type: ignore[arg-type]
        right = _coerce(other)
        return NotImplemented if right is None else _multiply(self, right)

    def __rmul__(self, other: int) -> Int:
        return self.__mul__(other)

    def __floordiv__(self, other: Int | int) -> Int:
        right = _coerce(other)
        return NotImplemented if right is None else divide(self, right)[0]

    def __rfloordiv__(self, other: int) -> Int:
        left = _coerce(other)
        return NotImplemented if left is None else divide(left, self)[0]

    def __mod__(self, other: Int | int) -> Int:
        right = _coerce(other)
        return NotImplemented if right is None else divide(self, right)[1]

    def __rmod__(self, other: int) -> Int:
        left = _coerce(other)
        return NotImplemented if left is None else divide(left, self)[1]

    def __divmod__(self, other: Int | int) -> tuple[Int, Int]:
        right = _coerce(other)
        return NotImplemented if right is None else divide(self, right)

    def __bool__(self) -> bool:
        raise TypeError(f"the integer expression {self} has no truth value; compare `.value` or ask a proof")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __copy__(self) -> Int:
        return self

    def __deepcopy__(self, memo: object) -> Int:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Through the makers, so that an unpickled node is the interned one.
        return _pickled(self)

    def substitute(self, values: Mapping[Symbol, Int | int]) -> Int:
        """This expression with symbols replaced, simplified again. Values must respect the ranges of the symbols."""
        known: dict[object, Int] = {}
        for name, value in values.items():
            known[name] = as_int(value)
        return self.rebuild(known)

    def evaluate(self, values: Mapping[Symbol, int] | Mapping[str, int] | Mapping[Symbol | str, int]) -> int:
        """The value as a Python int; `values` has each symbol, or its name. KeyError names a symbol without a value."""
        return self.compute(_Environment(values))

    def _range(self) -> tuple[Bound, Bound]:
        low: Bound = self.constant
        high: Bound = self.constant
        for monomial, coefficient in self.terms:
            if len(monomial) == 1:
                factor = monomial[0]
                lo = factor.lo
                hi = factor.hi
            else:
                lo, hi = _product_range(monomial)
            if coefficient < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + coefficient * lo
            high = None if high is None or hi is None else high + coefficient * hi
        return low, high

    # What `substitute` and `evaluate` do node by node; `known` and `values` carry the results of shared nodes.

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is not None:
            return found
        result = const(self.constant)
        for monomial, coefficient in self.terms:
            product = const(coefficient)
            for factor in monomial:
                product = _multiply(product, factor.rebuild(known))
            result = _add(result, product, 1)
        known[self] = result
        return result

    def compute(self, values: _Environment) -> int:
        found = values.known.get(self)
        if found is not None:
            return found
        total = self.constant
        for monomial, coefficient in self.terms:
            for factor in monomial:
                coefficient *= factor.compute(values)
            total += coefficient
        values.known[self] = total
        return total


class Const(Int):
    """An integer literal."""

    __slots__ = ()


class Sum(Int):
    """Anything that is neither a literal nor a single atom with coefficient 1."""

    __slots__ = ()


class Symbol(Int):
    """A named integer with a range. Its identity is `(name, lo, hi, multiple, below)`.

    below   an expression the value is less than, None if there is no symbolic bound
    unit    the atom that stands for `symbol // multiple`; the symbol itself when `multiple` is 1
    """

    __slots__ = ("below", "name", "unit")

    name: str
    below: Int | None
    unit: Int

    def rebuild(self, known: dict[object, Int]) -> Int:
        return known.get(self, self)

    def compute(self, values: _Environment) -> int:
        return values.lookup(self)


class SymbolQuotient(Int):
    """`symbol // symbol.multiple`, exact: the atom of a symbol with a known divisor."""

    __slots__ = ("symbol",)

    symbol: Symbol

    def _range(self) -> tuple[Bound, Bound]:
        step = self.symbol.multiple
        lo, hi = self.symbol.lo, self.symbol.hi
        return None if lo is None else lo // step, None if hi is None else hi // step

    def rebuild(self, known: dict[object, Int]) -> Int:
        value = known.get(self.symbol)
        return self if value is None else value // self.symbol.multiple

    def compute(self, values: _Environment) -> int:
        return values.lookup(self.symbol) // self.symbol.multiple


class FloorDiv(Int):
    """`numerator // divisor`, rounded towards minus infinity."""

    __slots__ = ("divisor", "identities", "numerator")

    numerator: Int
    divisor: Int
    identities: tuple[Identity, ...]
    is_division = True

    def _range(self) -> tuple[Bound, Bound]:
        lo, hi = self.numerator.lo, self.numerator.hi
        least = max(self.divisor.lo or 1, 1)
        most = None if self.divisor.hi is None else max(self.divisor.hi, 1)
        low: Bound = None
        high: Bound = None
        if lo is not None:
            low = lo // least if lo < 0 else 0 if most is None else lo // most
        if hi is not None:
            high = hi // least if hi >= 0 else -1 if most is None else hi // most
        return low, high

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is None:
            found = known[self] = self.numerator.rebuild(known) // self.divisor.rebuild(known)
        return found

    def compute(self, values: _Environment) -> int:
        found = values.known.get(self)
        if found is None:
            found = self.numerator.compute(values) // self.divisor.compute(values)
            values.known[self] = found
        return found


class Mod(Int):
    """`numerator % divisor`, in [0, divisor)."""

    __slots__ = ("divisor", "identities", "numerator")

    numerator: Int
    divisor: Int
    identities: tuple[Identity, ...]
    is_division = True

    def _range(self) -> tuple[Bound, Bound]:
        most = self.divisor.hi
        high: Bound = None if most is None else most - 1
        lo, hi = self.numerator.lo, self.numerator.hi
        if lo is not None and lo >= 0 and hi is not None and (high is None or hi < high):
            high = hi
        return 0, high

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is None:
            found = known[self] = self.numerator.rebuild(known) % self.divisor.rebuild(known)
        return found

    def compute(self, values: _Environment) -> int:
        found = values.known.get(self)
        if found is None:
            found = self.numerator.compute(values) % self.divisor.compute(values)
            values.known[self] = found
        return found


class Min(Int):
    """The least of two or more expressions."""

    __slots__ = ("arguments",)

    arguments: tuple[Int, ...]

    def _range(self) -> tuple[Bound, Bound]:
        return _least((a.lo for a in self.arguments), True), _least((a.hi for a in self.arguments), False)

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is None:
            found = known[self] = _extremum(Min, [a.rebuild(known) for a in self.arguments])
        return found

    def compute(self, values: _Environment) -> int:
        return min(a.compute(values) for a in self.arguments)


class Max(Int):
    """The greatest of two or more expressions."""

    __slots__ = ("arguments",)

    arguments: tuple[Int, ...]

    def _range(self) -> tuple[Bound, Bound]:
        return _greatest((a.lo for a in self.arguments), False), _greatest((a.hi for a in self.arguments), True)

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is None:
            found = known[self] = _extremum(Max, [a.rebuild(known) for a in self.arguments])
        return found

    def compute(self, values: _Environment) -> int:
        return max(a.compute(values) for a in self.arguments)


class Select(Int):
    """`chosen` where the condition holds, else `otherwise`; the other branch need not have a value."""

    __slots__ = ("chosen", "condition", "otherwise")

    condition: Cond
    chosen: Int
    otherwise: Int

    def _range(self) -> tuple[Bound, Bound]:
        a, b = self.chosen, self.otherwise
        return _least((a.lo, b.lo), True), _greatest((a.hi, b.hi), True)

    def rebuild(self, known: dict[object, Int]) -> Int:
        found = known.get(self)
        if found is None:
            condition = self.condition.rebuild(known)
            # Only the branch that is taken is rebuilt: the other may divide by a 0 that the condition excludes.
            if condition is TRUE:
                found = self.chosen.rebuild(known)
            elif condition is FALSE:
                found = self.otherwise.rebuild(known)
            else:
                found = select(condition, self.chosen.rebuild(known), self.otherwise.rebuild(known))
            known[self] = found
        return found

    def compute(self, values: _Environment) -> int:
        return (self.chosen if self.condition.compute(values) else self.otherwise).compute(values)


class Cond:
    """An interned condition over integer expressions; `TRUE` and `FALSE` where ranges decide it.

    It has no truth value of its own: write `condition is TRUE`.
    """

    __slots__ = ("order", "text")

    order: str
    text: str

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name != "text":
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
            text = Printer().condition(self)
            object.__setattr__(self, "text", text)
            return text

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AttributeError(f"conditions are immutable, cannot set {name!r}")

    @property
    def symbols(self) -> frozenset[Symbol]:
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise TypeError(f"the condition `{self}` has no truth value; write `condition is TRUE`")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __copy__(self) -> Cond:
        return self

    def __deepcopy__(self, memo: object) -> Cond:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _pickled_condition(self)

    def substitute(self, values: Mapping[Symbol, Int | int]) -> Cond:
        """This condition with symbols replaced, decided again where possible."""
        known: dict[object, Int] = {}
        for name, value in values.items():
            known[name] = as_int(value)
        return self.rebuild(known)

    def evaluate(self, values: Mapping[Symbol, int] | Mapping[str, int] | Mapping[Symbol | str, int]) -> bool:
        """The truth for given values of the symbols, or of their names."""
        return self.compute(_Environment(values))

    def rebuild(self, known: dict[object, Int]) -> Cond:
        raise NotImplementedError

    def compute(self, values: _Environment) -> bool:
        raise NotImplementedError


class Truth(Cond):
    """A decided condition: `TRUE` or `FALSE`."""

    __slots__ = ("value",)

    value: bool

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset()

    def rebuild(self, known: dict[object, Int]) -> Cond:
        return self

    def compute(self, values: _Environment) -> bool:
        return self.value


class Compare(Cond):
    """`operand >= 0`, `operand == 0` or `operand != 0`; the coefficients of the operand have no common factor."""

    __slots__ = ("kind", "operand")

    kind: CompareKind
    operand: Int

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.operand.symbols

    def rebuild(self, known: dict[object, Int]) -> Cond:
        return _compare(self.kind, self.operand.rebuild(known))

    def compute(self, values: _Environment) -> bool:
        value = self.operand.compute(values)
        return value >= 0 if self.kind == ">=" else (value == 0) is (self.kind == "==")


class AllOf(Cond):
    """True if every argument is."""

    __slots__ = ("arguments",)

    arguments: tuple[Cond, ...]

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(a.symbols for a in self.arguments))

    def rebuild(self, known: dict[object, Int]) -> Cond:
        return all_of(*(a.rebuild(known) for a in self.arguments))

    def compute(self, values: _Environment) -> bool:
        return all(a.compute(values) for a in self.arguments)


class AnyOf(Cond):
    """True if at least one argument is."""

    __slots__ = ("arguments",)

    arguments: tuple[Cond, ...]

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(a.symbols for a in self.arguments))

    def rebuild(self, known: dict[object, Int]) -> Cond:
        return any_of(*(a.rebuild(known) for a in self.arguments))

    def compute(self, values: _Environment) -> bool:
        return any(a.compute(values) for a in self.arguments)


class _Environment:
    """Values of symbols for one evaluation, and the results of shared nodes."""

    __slots__ = ("known", "values")

    def __init__(self, values: Mapping[Any, int]) -> None:
        self.values = values
        self.known: dict[Int, int] = {}

    def lookup(self, symbol: Symbol) -> int:
        value = self.values.get(symbol)
        if value is None:
            value = self.values.get(symbol.name)
            if value is None:
                raise KeyError(f"no value for the symbol {symbol.name!r}")
        return value


# Slot setters that bypass the immutability of the classes; only the makers below use them.
_set_constant: Callable[[Int, int], None] = Int.__dict__["constant"].__set__
_set_terms: Callable[[Int, Terms], None] = Int.__dict__["terms"].__set__
_set_lo: Callable[[Int, Bound], None] = Int.__dict__["lo"].__set__
_set_hi: Callable[[Int, Bound], None] = Int.__dict__["hi"].__set__
_set = object.__setattr__


# ---------------------------------------------------------------------------------------------- interning and leaves

_Key: TypeAlias = "tuple[object, ...]"

# `dict.setdefault` with keys whose hash and equality run in C is atomic, so two threads get the same node.
_constants: dict[int, Int] = {}
_sums: dict[tuple[int, Terms], Int] = {}
_atoms: dict[_Key, Any] = {}
_conditions: dict[_Key, Any] = {}
# A symbol with a known divisor enters two tables at once.
_symbol_lock = threading.Lock()
_divisions: dict[tuple[Int, Int], tuple[Int, Int]] = {}
_proofs: dict[Int, bool] = {}


def clear_memo() -> None:
    """Forget remembered divisions and proofs. Nodes stay interned; results do not change."""
    _divisions.clear()
    _proofs.clear()


def const(value: int) -> Int:
    """The literal `value`."""
    node = _constants.get(value)
    if node is None:
        node = Const.__new__(Const)
        value = int(value)
        _set_constant(node, value)
        _set_terms(node, ())
        _set_lo(node, value)
        _set_hi(node, value)
        node = _constants.setdefault(value, node)
    return node


ZERO: Final = const(0)
ONE: Final = const(1)


def symbol(
    name: str,
    lo: int | None = 0,
    hi: int | None = None,
    *,
    multiple: int = 1,
    below: Int | int | None = None,
) -> Symbol:
    """A named integer in [lo, hi], divisible by `multiple`, less than the expression `below`.

    None for `lo` or `hi` means unbounded. A constant `below` becomes part of `hi`. The range may be empty (a loop over
    an extent of 0); everything then holds. ValueError if `multiple` is less than 1 or the name is empty.
    """
    key = (Symbol, name, lo, hi, multiple, below)
    node: Symbol | None = _atoms.get(key)
    if node is not None:
        return node
    if multiple < 1 or not name:
        raise ValueError(f"symbol {name!r}: the name must not be empty and `multiple` must be positive, got {multiple}")
    bound = _coerce(below)
    if bound is not None:
        if bound.hi is not None and (hi is None or bound.hi - 1 < hi):
            hi = bound.hi - 1
        if not bound.terms:
            bound = None
    if multiple > 1:
        lo = None if lo is None else -(-lo // multiple) * multiple
        hi = None if hi is None else hi // multiple * multiple
    exact = (Symbol, name, lo, hi, multiple, bound)
    with _symbol_lock:
        node = _atoms.get(exact)
        if node is None:
            node = Symbol.__new__(Symbol)
            _set_constant(node, 0)
            _set_lo(node, lo)
            _set_hi(node, hi)
            _set(node, "name", name)
            _set(node, "multiple", multiple)
            _set(node, "below", bound)
            if multiple == 1:
                _set(node, "unit", node)
                _set_terms(node, (((node,), 1),))
            else:
                unit = SymbolQuotient.__new__(SymbolQuotient)
                _set(unit, "symbol", node)
                _set_constant(unit, 0)
                _set_terms(unit, (((unit,), 1),))
                _set(node, "unit", unit)
                _set_terms(node, (((unit,), multiple),))
                # The sum `multiple * unit` is the symbol; known before anyone can hold the unit.
                _sums[0, node.terms] = node
            _atoms[exact] = node
        _atoms[key] = node
    return node


def as_int(value: Int | int) -> Int:
    """`value` as an expression. TypeError if it is neither an expression nor an integer."""
    node = _coerce(value)
    if node is None:
        raise TypeError(f"expected an integer or an integer expression, got {type(value).__name__}")
    return node


def _coerce(value: object) -> Int | None:
    if isinstance(value, Int):
        return value
    if isinstance(value, int):
        return const(value)
    # NumPy integers and the like.
    return const(value.__index__()) if hasattr(value, "__index__") else None  # type: ignore[attr-defined]


def _make_atom(kind: type[Any], *fields: tuple[str, object]) -> Any:
    """The interned atom of class `kind` with these fields."""
    key = (kind, *(value for _, value in fields))
    node = _atoms.get(key)
    if node is None:
        node = object.__new__(kind)
        for name, value in fields:
            _set(node, name, value)
        _set_constant(node, 0)
        _set_terms(node, (((node,), 1),))
        node = _atoms.setdefault(key, node)
    return node


def _floor_div_atom(numerator: Int, divisor: Int) -> Int:
    return _make_atom(FloorDiv, ("numerator", numerator), ("divisor", divisor))


def _mod_atom(numerator: Int, divisor: Int) -> Int:
    return _make_atom(Mod, ("numerator", numerator), ("divisor", divisor))


def _pickled(node: Int) -> tuple[Callable[..., object], tuple[object, ...]]:
    """A maker and its arguments that give this node again."""
    match node:
        case Symbol():
            return _symbol_again, (node.name, node.lo, node.hi, node.multiple, node.below)
        case SymbolQuotient():
            return getattr, (node.symbol, "unit")
        case FloorDiv():
            return operator.floordiv, (node.numerator, node.divisor)
        case Mod():
            return operator.mod, (node.numerator, node.divisor)
        case Min() | Max():
            return _extremum, (type(node), node.arguments)
        case Select():
            return select, (node.condition, node.chosen, node.otherwise)
        case _:
            return _sum_again, (node.constant, node.terms)


def _symbol_again(name: str, lo: int | None, hi: int | None, multiple: int, below: Int | None) -> Symbol:
    return symbol(name, lo, hi, multiple=multiple, below=below)


def _sum_again(constant: int, terms: Terms) -> Int:
    return _make_sum(constant, dict(terms))


def _pickled_condition(node: Cond) -> tuple[Callable[..., object], tuple[object, ...]]:
    match node:
        case Truth():
            return less_equal, (0, 0 if node.value else -1)
        case Compare():
            return _compare, (node.kind, node.operand)
        case AllOf():
            return all_of, node.arguments
        case AnyOf():
            return any_of, node.arguments
        case _:
            raise TypeError(f"expected a condition, got {type(node).__name__}")


# ------------------------------------------------------------------------------------------------- derived attributes


def _shorten(text: str) -> str:
    if len(text) <= _ORDER_LENGTH:
        return text
    return f"{text[:_ORDER_LENGTH]}#{zlib.crc32(text.encode()):08x}{len(text):x}"


def _order(node: Int) -> str:
    """A sort key made from names and structure. Bounded in length, so that shared subtrees do not multiply."""
    match node:
        case Symbol():
            below = "" if node.below is None else node.below.order
            return _shorten(f"{node.name}\0{node.lo},{node.hi},{node.multiple},{below}")
        case SymbolQuotient():
            return node.symbol.order
        case FloorDiv():
            return _shorten(f"~({node.numerator.order})//({node.divisor.order})")
        case Mod():
            return _shorten(f"~({node.numerator.order})%({node.divisor.order})")
        case Min() | Max():
            return _shorten(f"~{type(node).__name__}({','.join(a.order for a in node.arguments)})")
        case Select():
            return _shorten(f"~select({node.condition.order},{node.chosen.order},{node.otherwise.order})")
        case _:
            parts = [f"{c}*{_monomial_order(m)}" for m, c in node.terms]
            parts.append(str(node.constant))
            return _shorten("+".join(parts))


def _multiple(node: Int) -> int:
    return gcd(node.constant, *(c for _, c in node.terms))


def _weight(node: Int) -> int:
    match node:
        case Symbol() | SymbolQuotient():
            return 1
        case FloorDiv() | Mod():
            return 4 + node.numerator.weight + node.divisor.weight
        case Min() | Max():
            return 4 + sum(a.weight for a in node.arguments)
        case Select():
            return 6 + node.chosen.weight + node.otherwise.weight
        case _:
            return sum(_monomial_weight(m) for m, _ in node.terms)


def _rank(node: Int) -> int:
    match node:
        case Symbol():
            return 0 if node.below is None else 1 + node.below.rank
        case SymbolQuotient():
            return node.symbol.rank
        case FloorDiv() | Mod():
            return 1 + max(node.numerator.rank, node.divisor.rank)
        case Min() | Max():
            return 1 + max(a.rank for a in node.arguments)
        case Select():
            return 1 + max(node.chosen.rank, node.otherwise.rank)
        case _:
            return max((factor.rank for m, _ in node.terms for factor in m), default=0)


def _symbols(node: Int) -> frozenset[Symbol]:
    match node:
        case Symbol():
            return frozenset((node,))
        case SymbolQuotient():
            return frozenset((node.symbol,))
        case FloorDiv() | Mod():
            return node.numerator.symbols | node.divisor.symbols
        case Min() | Max():
            return frozenset[Symbol]().union(*(a.symbols for a in node.arguments))
        case Select():
            return node.condition.symbols | node.chosen.symbols | node.otherwise.symbols
        case _:
            return frozenset[Symbol]().union(*(factor.symbols for m, _ in node.terms for factor in m))


def _identities(node: Int) -> tuple[Identity, ...]:
    found: list[Identity] = []
    for rule in ATOM_IDENTITY_RULES:
        identity = rule.apply(node)
        if identity is not None:
            found.append(identity)
    return tuple(found)


_DERIVED: dict[str, Callable[[Int], object]] = {
    "order": _order,
    "multiple": _multiple,
    "weight": _weight,
    "rank": _rank,
    "symbols": _symbols,
    "identities": _identities,
    "text": lambda node: Printer().expression(node),
}


def _least(bounds: Iterable[Bound], open_wins: bool) -> Bound:
    """The least bound; an open one (None) wins or is skipped."""
    result: Bound = None
    for bound in bounds:
        if bound is None:
            if open_wins:
                return None
        elif result is None or bound < result:
            result = bound
    return result


def _greatest(bounds: Iterable[Bound], open_wins: bool) -> Bound:
    """The greatest bound; an open one (None) wins or is skipped."""
    result: Bound = None
    for bound in bounds:
        if bound is None:
            if open_wins:
                return None
        elif result is None or bound > result:
            result = bound
    return result


def _product_range(monomial: Monomial) -> tuple[Bound, Bound]:
    lo: Bound = 1
    hi: Bound = 1
    for factor in monomial:
        lo, hi = _interval_product(lo, hi, factor.lo, factor.hi)
    return lo, hi


def _interval_product(a: Bound, b: Bound, c: Bound, d: Bound) -> tuple[Bound, Bound]:
    """[a, b] * [c, d]; None is an infinite end."""
    if a is not None and a >= 0 and c is not None and c >= 0:
        # Nonnegative operands, by far the most common case. An end of 0 stays 0 against an infinite one.
        return a * c, 0 if b == 0 or d == 0 else None if b is None or d is None else b * d
    corners = (
        _extended_product(-inf if a is None else a, -inf if c is None else c),
        _extended_product(-inf if a is None else a, inf if d is None else d),
        _extended_product(inf if b is None else b, -inf if c is None else c),
        _extended_product(inf if b is None else b, inf if d is None else d),
    )
    lo, hi = min(corners), max(corners)
    return lo if isinstance(lo, int) else None, hi if isinstance(hi, int) else None


def _extended_product(a: float, b: float) -> float:
    """The product of two ends of ranges, each an int or infinite; 0 times infinity is 0."""
    return 0 if a == 0 or b == 0 else a * b


# ------------------------------------------------------------------------------------------------------- arithmetic


def _term_order(term: tuple[Monomial, int]) -> str:
    monomial = term[0]
    return monomial[0].order if len(monomial) == 1 else "*".join([factor.order for factor in monomial])


def _monomial_order(monomial: Monomial) -> str:
    return monomial[0].order if len(monomial) == 1 else "*".join([factor.order for factor in monomial])


def _monomial_weight(monomial: Monomial) -> int:
    return 1 + sum([factor.weight for factor in monomial])


def _intern_sum(constant: int, items: Terms) -> Int:
    """The node for sorted terms."""
    if not items:
        return const(constant)
    if constant == 0 and len(items) == 1:
        monomial, coefficient = items[0]
        if coefficient == 1 and len(monomial) == 1:
            return monomial[0]
    key = (constant, items)
    node = _sums.get(key)
    if node is None:
        node = Sum.__new__(Sum)
        _set_constant(node, constant)
        _set_terms(node, items)
        node = _sums.setdefault(key, node)
    return node


def _make_sum(constant: int, terms: dict[Monomial, int]) -> Int:
    """The node for unsorted terms without zero coefficients, quotients and remainders recombined."""
    if len(terms) > 1:
        for monomial in terms:
            for factor in monomial:
                if factor.is_division:
                    constant = _recombine(constant, terms)
                    return _sort_sum(constant, terms)
    return _sort_sum(constant, terms)


def _sort_sum(constant: int, terms: dict[Monomial, int]) -> Int:
    if len(terms) > 1:
        return _intern_sum(constant, tuple(sorted(terms.items(), key=_term_order)))
    return _intern_sum(constant, tuple(terms.items()))


def _shift(node: Int, amount: int) -> Int:
    return node if amount == 0 else _intern_sum(node.constant + amount, node.terms)


def _scale(node: Int, factor: int) -> Int:
    if factor == 1:
        return node
    if factor == 0:
        return ZERO
    return _intern_sum(node.constant * factor, tuple([(m, c * factor) for m, c in node.terms]))


def _exact_quotient(node: Int, divisor: int) -> Int:
    """`node / divisor` where `divisor` divides every coefficient."""
    return _intern_sum(node.constant // divisor, tuple([(m, c // divisor) for m, c in node.terms]))


def _add(a: Int, b: Int, sign: int) -> Int:
    if not b.terms:
        return _shift(a, sign * b.constant)
    if not a.terms and sign == 1:
        return _shift(b, a.constant)
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        total = terms.get(monomial, 0) + sign * coefficient
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]
    return _make_sum(a.constant + sign * b.constant, terms)


def _multiply(a: Int, b: Int) -> Int:
    if not b.terms:
        return _scale(a, b.constant)
    if not a.terms:
        return _scale(b, a.constant)
    terms: dict[Monomial, int] = {}
    _add_product(terms, a.terms, b.terms)
    if b.constant:
        _add_multiple(terms, a.terms, b.constant)
    if a.constant:
        _add_multiple(terms, b.terms, a.constant)
    return _make_sum(a.constant * b.constant, terms)


def _add_product(terms: dict[Monomial, int], left: Iterable[tuple[Monomial, int]], right: Terms) -> None:
    for m, c in left:
        for n, k in right:
            monomial = _monomial_product(m, n)
            total = terms.get(monomial, 0) + c * k
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]


def _add_multiple(terms: dict[Monomial, int], addend: Iterable[tuple[Monomial, int]], factor: int) -> None:
    for monomial, coefficient in addend:
        total = terms.get(monomial, 0) + factor * coefficient
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]


def _factor_order(factor: Int) -> str:
    return factor.order


def _monomial_product(a: Monomial, b: Monomial) -> Monomial:
    if not a:
        return b
    if not b:
        return a
    return tuple(sorted(a + b, key=_factor_order))


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """`monomial / divisor`, None if it does not divide."""
    if not divisor:
        return monomial
    rest = list(monomial)
    for factor in divisor:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def _common_factors(a: Monomial, b: Monomial) -> Monomial:
    rest = list(b)
    common: list[Int] = []
    for factor in a:
        if factor in rest:
            rest.remove(factor)
            common.append(factor)
    return tuple(common)


def _product_node(coefficient: int, monomial: Monomial) -> Int:
    return const(coefficient) if not monomial else _intern_sum(0, ((monomial, coefficient),))


# ------------------------------------------------------------------------------------------------------- rule tables

_F = TypeVar("_F")


class Rule(NamedTuple, Generic[_F]):
    """One local simplification.

    `example` and `result` are Python text over the symbols of the tests: x, y, z >= 0; i, j in [0, 128); v in [0, 8);
    N, M >= 1; N8 >= 8 and divisible by 8; n below N; m below M; o below N8//8. `str` of the example is the result.
    """

    name: str
    doc: str
    example: str
    result: str
    apply: _F


class Identity(NamedTuple):
    """A polynomial that is 0: `constant + terms`.

    lead       the term that a sum must be able to cancel
    partners   other terms that a sum must cancel exactly if it has them, unless all the rest cancels: x//a + s*(x%a)
               must not become s*x + (1 - s*a)*(x//a), which has fewer divisions, but no range left to prove with
    """

    lead: Monomial
    lead_coefficient: int
    constant: int
    terms: Terms
    partners: frozenset[Monomial]


DivisionRule: TypeAlias = "Callable[[Int, Int], tuple[Int, Int] | None]"
IdentityRule: TypeAlias = "Callable[[Int], Identity | None]"
PairRule: TypeAlias = "Callable[[FloorDiv, FloorDiv], Identity | None]"
ExtremumRule: TypeAlias = "Callable[[type[Min] | type[Max], Sequence[Int]], Int | None]"
SelectRule: TypeAlias = "Callable[[Cond, Int, Int], Int | None]"
CompareRule: TypeAlias = "Callable[[CompareKind, Int], Cond | None]"
JunctionRule: TypeAlias = "Callable[[type[AllOf] | type[AnyOf], Sequence[Cond]], Cond | None]"


# Division. A rule returns (numerator // divisor, numerator % divisor) or None; the first that answers wins.


def divide(numerator: Int, divisor: Int) -> tuple[Int, Int]:
    """`(numerator // divisor, numerator % divisor)` in normal form.

    ZeroDivisionError for a divisor that is 0, ValueError for one that is negative.
    """
    key = (numerator, divisor)
    result = _divisions.get(key)
    if result is not None:
        return result
    if divisor.hi is not None and divisor.hi < 1:
        if divisor is ZERO:
            raise ZeroDivisionError(f"division of {numerator} by 0")
        if divisor.hi < 0 or not divisor.terms:
            raise ValueError(f"division of {numerator} by {divisor}, which is negative")
    for rule in DIVISION_RULES:
        result = rule.apply(numerator, divisor)
        if result is not None:
            break
    else:
        result = (_floor_div_atom(numerator, divisor), _mod_atom(numerator, divisor))
    if len(_divisions) >= _MEMO_LIMIT:
        _divisions.clear()
    _divisions[key] = result
    return result


def _divide_by_one(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    return (numerator, ZERO) if divisor is ONE else None


def _divide_bounded(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    lo, hi = numerator.lo, numerator.hi
    if lo is None or hi is None:
        return (ZERO, ZERO) if numerator is ZERO else None
    if not divisor.terms:
        step = divisor.constant
        quotient = lo // step
        return (const(quotient), _shift(numerator, -quotient * step)) if hi // step == quotient else None
    least = divisor.lo
    if lo >= 0 and hi < max(1, least if least is not None else 1):
        return ZERO, numerator
    return None


def _divide_split(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    rest: dict[Monomial, int] = {}
    quotient: dict[Monomial, int] = {}
    constant = numerator.constant
    quotient_constant = 0
    if not divisor.terms:
        step = divisor.constant
        for monomial, coefficient in numerator.terms:
            if -step < coefficient < step:
                rest[monomial] = coefficient
            else:
                # Towards zero, so that a coefficient never changes its sign.
                whole = coefficient // step if coefficient > 0 else -(-coefficient // step)
                quotient[monomial] = whole
                if coefficient != whole * step:
                    rest[monomial] = coefficient - whole * step
        quotient_constant, constant = divmod(constant, step)
    elif len(divisor.terms) == 1 and divisor.constant == 0:
        base, step = divisor.terms[0]
        for monomial, coefficient in numerator.terms:
            cofactor = None if -step < coefficient < step else _monomial_quotient(monomial, base)
            if cofactor is None:
                rest[monomial] = coefficient
                continue
            whole = coefficient // step if coefficient > 0 else -(-coefficient // step)
            if cofactor:
                quotient[cofactor] = quotient.get(cofactor, 0) + whole
            else:
                quotient_constant += whole
            if coefficient != whole * step:
                rest[monomial] = coefficient - whole * step
    else:
        return None
    if not quotient and not quotient_constant:
        return None
    whole_part = _make_sum(quotient_constant, quotient)
    inner, remainder = divide(_make_sum(constant, rest), divisor)
    return _add(whole_part, inner, 1), remainder


def _divide_coarse(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    """With numerator = g*a + s, divisor = g*d and 0 <= s < g: quotient a // d, remainder g*(a % d) + s."""
    content = divisor.multiple
    base: Monomial = ()
    if divisor.terms and divisor.constant == 0:
        base = divisor.terms[0][0]
        for monomial, _ in divisor.terms[1:]:
            base = _common_factors(base, monomial)
    candidates: list[tuple[int, Monomial]] = []
    for monomial, coefficient in numerator.terms:
        candidate = (gcd(coefficient, content), _common_factors(monomial, base) if base else ())
        if candidate != (1, ()) and candidate not in candidates:
            candidates.append(candidate)
    if not candidates:
        return None
    # The coarsest grid first: it leaves the smallest division.
    candidates.sort(key=lambda c: (-len(c[1]), -c[0]))
    for step, common in candidates:
        coarse: dict[Monomial, int] = {}
        fine: dict[Monomial, int] = {}
        coarse_constant, fine_constant = (0, numerator.constant) if common else divmod(numerator.constant, step)
        for monomial, coefficient in numerator.terms:
            cofactor = None if coefficient % step else _monomial_quotient(monomial, common)
            if cofactor is None:
                fine[monomial] = coefficient
            elif cofactor:
                coarse[cofactor] = coefficient // step
            else:
                coarse_constant += coefficient // step
        rest = _make_sum(fine_constant, fine)
        grid = _product_node(step, common)
        if not common:
            lo, hi = rest.lo, rest.hi
            if lo is None or hi is None or lo // step != hi // step:
                continue
            coarse_constant += lo // step
            rest = _shift(rest, -(lo // step) * step)
        elif not (prove_less_equal(ZERO, rest) and prove_less(rest, grid)):
            continue
        quotient, remainder = divide(_make_sum(coarse_constant, coarse), _divide_out(divisor, step, common))
        return quotient, _add(_multiply(grid, remainder), rest, 1)
    return None


def _divide_out(node: Int, coefficient: int, monomial: Monomial) -> Int:
    """`node / (coefficient * monomial)` where that divides every term."""
    constant = node.constant // coefficient
    terms: dict[Monomial, int] = {}
    for term, count in node.terms:
        cofactor = _monomial_quotient(term, monomial)
        if cofactor:
            terms[cofactor] = count // coefficient
        else:
            constant += count // coefficient
    return _sort_sum(constant, terms)


def _divide_proved(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if numerator.terms and not divisor.terms and not _has_both_signs(numerator):
        return None  # ranges have decided already
    if numerator.hi is not None and numerator.hi < 0:
        shifted = _add(numerator, divisor, 1)
        return (const(-1), shifted) if prove_less_equal(ZERO, shifted) else None
    if prove_less_equal(ZERO, numerator) and prove_less(numerator, divisor):
        return ZERO, numerator
    return None


def _has_both_signs(node: Int) -> bool:
    return any(c < 0 for _, c in node.terms) and any(c > 0 for _, c in node.terms)


def _divide_inner_mod(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if numerator.__class__ is not Mod:
        return None
    inner: Mod = numerator  # type: ignore[assignment]
    outer, rest = divide(inner.divisor, divisor)
    if rest is not ZERO:
        return None
    quotient, remainder = divide(inner.numerator, divisor)
    return quotient % outer, remainder


def _divide_quotient(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if len(numerator.terms) != 1:
        return None
    monomial, coefficient = numerator.terms[0]
    if coefficient != 1 or len(monomial) != 1 or not isinstance(monomial[0], FloorDiv):
        return None
    inner = monomial[0]
    quotient = divide(inner.numerator + numerator.constant * inner.divisor, inner.divisor * divisor)[0]
    if isinstance(quotient, FloorDiv):
        return quotient, _mod_atom(numerator, divisor)
    return quotient, numerator - quotient * divisor


def _divide_absorb(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    flat = numerator
    for monomial, coefficient in numerator.terms:
        for position, factor in enumerate(monomial):
            if isinstance(factor, Mod):
                others = _product_node(coefficient, monomial[:position] + monomial[position + 1 :])
                if divide(others * factor.divisor, divisor)[1] is ZERO:
                    flat = flat - others * factor + others * factor.numerator
                    break
    if flat is numerator:
        return None
    return _floor_div_atom(numerator, divisor), flat % divisor


def _divide_polynomial(numerator: Int, divisor: Int) -> tuple[Int, Int] | None:
    if len(divisor.terms) + (divisor.constant != 0) < 2:
        return None
    lead = _leading(divisor)
    step = dict(divisor.terms)[lead]
    quotient = ZERO
    rest = numerator
    for monomial, coefficient in numerator.terms:
        cofactor = _monomial_quotient(monomial, lead)
        if cofactor is not None and coefficient % step == 0:
            part = _product_node(coefficient // step, cofactor)
            quotient = quotient + part
            rest = rest - part * divisor
    if quotient is ZERO:
        return None
    if rest is ZERO or (prove_less_equal(ZERO, rest) and prove_less(rest, divisor)):
        return quotient, rest
    return None


DIVISION_RULES: tuple[Rule[DivisionRule], ...] = (
    Rule("divide_by_one", "x // 1 is x and x % 1 is 0", "x//1 + x%1", "x", _divide_by_one),
    Rule("divide_bounded", "a numerator between two multiples of the divisor", "(j + 256)//128", "2", _divide_bounded),
    Rule("divide_split", "multiples of the divisor leave the division", "(128*i + j + 128)//128", "i + 1", _divide_split),
    Rule("divide_coarse", "a grid finer than the divisor, with less than a step beside it, divides out",
         "(128*x + j)//256 + (128*x + j)%256", "j + 128*(x%2) + x//2", _divide_coarse),
    Rule("divide_proved", "0 <= x < d (or -d <= x < 0) by symbolic bounds", "(x*N + n)//N", "x", _divide_proved),
    Rule("divide_inner_mod", "(x % (a*b)) // b is (x // b) % a, and (x % (a*b)) % b is x % b", "(x%24)//8", "(x//8)%3",
         _divide_inner_mod),
    Rule("divide_quotient", "(x // a + c) // b is (x + c*a) // (a*b)", "(x//4 + 3)//8", "(x + 12)//32", _divide_quotient),
    Rule("divide_absorb", "c*(x % a) loses its % under % b if b divides c*a", "(2*(x%12) + y)%8", "(2*x + y)%8",
         _divide_absorb),
    Rule("divide_polynomial", "long division by a sum, kept if the rest is a remainder", "(x*(N + 1) + n)//(N + 1)", "x",
         _divide_polynomial),
)  # fmt: skip


# Sums. A rule gives a polynomial that is 0 around a quotient or remainder; it is added to a sum if that makes it
# lighter. `x%a + a*(x//a)` thus becomes `x`, whichever of the two the rest of the sum can use.


def _recombine(constant: int, terms: dict[Monomial, int]) -> int:
    """Cancel quotients and remainders in `terms`, in place; the new constant. Each step lowers the weight."""
    while True:
        step = _find_step(terms)
        if step is None:
            return constant
        identity, factor, cofactor = step
        product = ((_monomial_product(term, cofactor), count) for term, count in identity.terms)
        _add_multiple(terms, product, -factor)
        if not cofactor:
            constant -= factor * identity.constant
        elif identity.constant:
            _add_multiple(terms, ((cofactor, identity.constant),), -factor)


def _find_step(terms: dict[Monomial, int]) -> tuple[Identity, int, Monomial] | None:
    quotients: list[FloorDiv] = []
    for monomial, coefficient in terms.items():
        for factor in monomial:
            if factor.is_division:
                division: FloorDiv | Mod = factor  # type: ignore[assignment]
                for identity in division.identities:
                    found = _gain(terms, identity, monomial, coefficient)
                    if found is not None:
                        return found
                if isinstance(division, FloorDiv) and division not in quotients:
                    quotients.append(division)
    for rule in PAIR_IDENTITY_RULES if len(quotients) > 1 else ():
        for fine in quotients:
            for coarse in quotients:
                identity = rule.apply(fine, coarse) if fine is not coarse else None
                if identity is None:
                    continue
                for monomial, coefficient in terms.items():
                    found = _gain(terms, identity, monomial, coefficient)
                    if found is not None:
                        return found
    return None


def _gain(
    terms: dict[Monomial, int], identity: Identity, monomial: Monomial, coefficient: int
) -> tuple[Identity, int, Monomial] | None:
    """How to subtract the identity so that `monomial` goes, if the sum gets lighter by it."""
    if coefficient % identity.lead_coefficient:
        return None
    cofactor = _monomial_quotient(monomial, identity.lead)
    if cofactor is None:
        return None
    factor = coefficient // identity.lead_coefficient
    change = 0
    exact = True
    partner_changed = False
    terms_of_identity = identity.terms
    if identity.constant and cofactor:
        terms_of_identity = (*terms_of_identity, ((), identity.constant))
    for term, count in terms_of_identity:
        product = _monomial_product(term, cofactor)
        old = terms.get(product, 0)
        if old == 0:
            change += _monomial_weight(product)
        elif old == factor * count:
            change -= _monomial_weight(product)
            continue
        elif term in identity.partners:
            partner_changed = True
            continue
        if term not in identity.partners:
            exact = False
    return (identity, factor, cofactor) if change < 0 and (exact or not partner_changed) else None


def _make_identity(lead: Monomial, partner: tuple[Int, Int], others: Sequence[tuple[int, Int, Int]]) -> Identity | None:
    """The polynomial `sum(sign * a * b)` over the partner and the others; None unless the lead is one of its terms."""
    terms: dict[Monomial, int] = {}
    constant = 0
    partners: frozenset[Monomial] = frozenset()
    for sign, a, b in ((1, *partner), *others):
        constant += sign * a.constant * b.constant
        _add_product(terms, [(m, sign * c) for m, c in a.terms], b.terms)
        if a.constant:
            _add_multiple(terms, b.terms, sign * a.constant)
        if b.constant:
            _add_multiple(terms, a.terms, sign * b.constant)
        partners = partners or frozenset(m for m in terms if any(factor.is_division for factor in m))
    if lead not in terms:
        return None
    return Identity(lead, terms[lead], constant, tuple(terms.items()), partners - {lead})


def _identity_of_remainder(node: Int) -> Identity | None:
    if not isinstance(node, Mod):
        return None
    quotient = divide(node.numerator, node.divisor)[0]
    return _make_identity((node,), (quotient, node.divisor), ((1, node, ONE), (-1, node.numerator, ONE)))


def _identity_of_quotient(node: Int) -> Identity | None:
    if not isinstance(node, FloorDiv):
        return None
    remainder = divide(node.numerator, node.divisor)[1]
    lead = _monomial_product(_leading(node.divisor), (node,))
    return _make_identity(lead, (remainder, ONE), ((1, node, node.divisor), (-1, node.numerator, ONE)))


def _identity_of_digits(node: Int) -> Identity | None:
    if not isinstance(node, Mod) or not isinstance(node.numerator, FloorDiv):
        return None
    inner = node.numerator
    low = divide(inner.numerator, inner.divisor)[1]
    both = divide(inner.numerator, inner.divisor * node.divisor)[1]
    lead = _monomial_product(_leading(inner.divisor), (node,))
    return _make_identity(lead, (low, ONE), ((1, node, inner.divisor), (-1, both, ONE)))


def _identity_of_nested(fine: FloorDiv, coarse: FloorDiv) -> Identity | None:
    if fine.numerator is not coarse.numerator:
        return None
    ratio, rest = divide(coarse.divisor, fine.divisor)
    if rest is not ZERO or ratio is ONE or ratio is ZERO:
        return None
    remainder = divide(fine, ratio)[1]
    lead = _monomial_product(_leading(ratio), (coarse,))
    return _make_identity(lead, (remainder, ONE), ((1, coarse, ratio), (-1, fine, ONE)))


def _leading(node: Int) -> Monomial:
    """The monomial of highest degree; empty for a constant."""
    return max((m for m, _ in node.terms), key=lambda m: (len(m), m[0].order), default=())


ATOM_IDENTITY_RULES: tuple[Rule[IdentityRule], ...] = (
    Rule("quotient_plus_remainder", "a*(x // a) + x % a is x", "(x//4)%6 + 6*(x//24)", "x//4", _identity_of_remainder),
    Rule("remainder_from_difference", "x - a*(x // a) is x % a", "x + y - (x//24)*24", "y + x%24", _identity_of_quotient),
    Rule("mixed_radix", "a*((x // a) % b) + x % a is x % (a*b)", "((x//4)%6)*4 + x%4", "x%24", _identity_of_digits),
)  # fmt: skip
PAIR_IDENTITY_RULES: tuple[Rule[PairRule], ...] = (
    Rule("nested_quotients", "x // a - b*(x // (a*b)) is (x // a) % b", "x//4 - 6*(x//24)", "(x//4)%6",
         _identity_of_nested),
)  # fmt: skip


# Minimum and maximum.


def minimum(a: Int | int, b: Int | int) -> Int:
    """The lesser of two expressions."""
    return _extremum(Min, (as_int(a), as_int(b)))


def maximum(a: Int | int, b: Int | int) -> Int:
    """The greater of two expressions."""
    return _extremum(Max, (as_int(a), as_int(b)))


def _extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int:
    if len(arguments) == 1:
        return arguments[0]
    for rule in EXTREMUM_RULES:
        result = rule.apply(kind, arguments)
        if result is not None:
            return result
    return _make_atom(kind, ("arguments", tuple(sorted(arguments, key=_factor_order))))


def _flatten_extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    flat: list[Int] = []
    for argument in arguments:
        if len(argument.terms) == 1:
            monomial, coefficient = argument.terms[0]
            inner = monomial[0]
            if coefficient > 0 and len(monomial) == 1 and isinstance(inner, kind):
                flat.extend(_shift(_scale(a, coefficient), argument.constant) for a in inner.arguments)
                continue
        flat.append(argument)
    return _extremum(kind, flat) if len(flat) > len(arguments) else None


def _drop_dominated(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    for kept in arguments:
        for position, other in enumerate(arguments):
            if other is kept and arguments.index(kept) == position:
                continue
            small, large = (kept, other) if kind is Min else (other, kept)
            if small is large or prove_less_equal(small, large):
                return _extremum(kind, [*arguments[:position], *arguments[position + 1 :]])
    return None


def _factor_extremum(kind: type[Min] | type[Max], arguments: Sequence[Int]) -> Int | None:
    common = gcd(*(a.multiple for a in arguments))
    if common < 2:
        return None
    return _scale(_extremum(kind, [_exact_quotient(a, common) for a in arguments]), common)


EXTREMUM_RULES: tuple[Rule[ExtremumRule], ...] = (
    Rule("flatten_extremum", "min(k*min(a, b) + n, c) is min(k*a + n, k*b + n, c)", "minimum(minimum(x, y), z)", "min(x, y, z)",
         _flatten_extremum),
    Rule("drop_dominated", "min(a, b) is a where a <= b is proved", "minimum(x, x + y)", "x", _drop_dominated),
    Rule("factor_extremum", "min(g*a, g*b) is g*min(a, b)", "minimum(8*x, 8*y)", "8*min(x, y)", _factor_extremum),
)  # fmt: skip


# Selection.


def select(condition: Cond, chosen: Int | int, otherwise: Int | int) -> Int:
    """`chosen` where the condition holds, else `otherwise`."""
    a, b = as_int(chosen), as_int(otherwise)
    for rule in SELECT_RULES:
        result = rule.apply(condition, a, b)
        if result is not None:
            return result
    return _make_atom(Select, ("condition", condition), ("chosen", a), ("otherwise", b))


def _select_decided(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    return chosen if condition is TRUE else otherwise if condition is FALSE else None


def _select_same(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    return chosen if chosen is otherwise else None


def _factor_select(condition: Cond, chosen: Int, otherwise: Int) -> Int | None:
    common = gcd(chosen.multiple, otherwise.multiple)
    if common < 2:
        return None
    return _scale(select(condition, _exact_quotient(chosen, common), _exact_quotient(otherwise, common)), common)


SELECT_RULES: tuple[Rule[SelectRule], ...] = (
    Rule("select_decided", "a decided condition picks its branch", "select(less(j, 128), x, y)", "x", _select_decided),
    Rule("select_same", "equal branches need no condition", "select(less(x, y), z, z)", "z", _select_same),
    Rule("factor_select", "a common factor of both branches leaves", "select(less(x, y), 8*x, 0)",
         "8*select(x < y, x, 0)", _factor_select),
)  # fmt: skip


# Conditions.


def _make_condition(kind: type[Any], order: str, *fields: tuple[str, object]) -> Any:
    key = (kind, *(value for _, value in fields))
    node = _conditions.get(key)
    if node is None:
        node = object.__new__(kind)
        for name, value in fields:
            _set(node, name, value)
        _set(node, "order", order)
        node = _conditions.setdefault(key, node)
    return node


TRUE: Final[Cond] = _make_condition(Truth, "true", ("value", True))
FALSE: Final[Cond] = _make_condition(Truth, "false", ("value", False))


def less(a: Int | int, b: Int | int) -> Cond:
    """`a < b`."""
    return _compare(">=", as_int(b) - a - 1)


def less_equal(a: Int | int, b: Int | int) -> Cond:
    """`a <= b`."""
    return _compare(">=", as_int(b) - a)


def equal(a: Int | int, b: Int | int) -> Cond:
    """`a == b`."""
    return _compare("==", as_int(a) - b)


def not_equal(a: Int | int, b: Int | int) -> Cond:
    """`a != b`."""
    return _compare("!=", as_int(a) - b)


def _compare(kind: CompareKind, operand: Int) -> Cond:
    for rule in COMPARE_RULES:
        result = rule.apply(kind, operand)
        if result is not None:
            return result
    return _make_condition(Compare, f"{operand.order}{kind}", ("kind", kind), ("operand", operand))


def _compare_decided(kind: CompareKind, operand: Int) -> Cond | None:
    if kind == ">=":
        if _is_nonnegative(operand):
            return TRUE
        return FALSE if _is_nonnegative(-operand - 1) else None
    if operand.lo == 0 and operand.hi == 0:
        return TRUE if kind == "==" else FALSE
    if _is_nonnegative(operand - 1) or _is_nonnegative(-operand - 1):
        return FALSE if kind == "==" else TRUE
    return None


def _compare_reduced(kind: CompareKind, operand: Int) -> Cond | None:
    common = gcd(*(c for _, c in operand.terms))
    if common < 2:
        return None
    if kind != ">=" and operand.constant % common:
        return FALSE if kind == "==" else TRUE
    return _compare(kind, _divide_out(operand, common, ()))


def _compare_sign(kind: CompareKind, operand: Int) -> Cond | None:
    return _compare(kind, -operand) if kind != ">=" and operand.terms and operand.terms[0][1] < 0 else None


COMPARE_RULES: tuple[Rule[CompareRule], ...] = (
    Rule("compare_decided", "ranges and symbolic bounds decide", "less(n, N)", "True", _compare_decided),
    Rule("compare_reduced", "a common factor leaves, rounding the constant", "less(8*x, 8*y + 3)", "x <= y",
         _compare_reduced),
    Rule("compare_sign", "== and != start with a positive term", "equal(y, x)", "x == y", _compare_sign),
)  # fmt: skip


def all_of(*conditions: Cond) -> Cond:
    """True where every condition is; `TRUE` without conditions. The order of evaluation is not kept."""
    return _junction(AllOf, conditions)


def any_of(*conditions: Cond) -> Cond:
    """True where some condition is; `FALSE` without conditions. The order of evaluation is not kept."""
    return _junction(AnyOf, conditions)


def negate(condition: Cond) -> Cond:
    """True where the condition is not."""
    match condition:
        case Truth():
            return FALSE if condition.value else TRUE
        case Compare(kind=">="):
            return _compare(">=", -condition.operand - 1)
        case Compare():
            return _compare("!=" if condition.kind == "==" else "==", condition.operand)
        case AllOf():
            return any_of(*(negate(a) for a in condition.arguments))
        case AnyOf():
            return all_of(*(negate(a) for a in condition.arguments))
        case _:
            raise TypeError(f"expected a condition, got {type(condition).__name__}")


def _junction(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond:
    if len(arguments) == 1:
        return arguments[0]
    for rule in JUNCTION_RULES:
        result = rule.apply(kind, arguments)
        if result is not None:
            return result
    ordered = tuple(sorted(arguments, key=lambda a: a.order))
    order = f"{kind.__name__}({','.join(a.order for a in ordered)})"
    return _make_condition(kind, _shorten(order), ("arguments", ordered))


def _junction_decided(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    neutral, absorbing = (TRUE, FALSE) if kind is AllOf else (FALSE, TRUE)
    if absorbing in arguments:
        return absorbing
    if not arguments:
        return neutral
    if neutral in arguments:
        return _junction(kind, [a for a in arguments if a is not neutral])
    return None


def _flatten_junction(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    if not any(a.__class__ is kind for a in arguments):
        return None
    flat: list[Cond] = []
    for argument in arguments:
        flat.extend(argument.arguments if isinstance(argument, kind) else (argument,))
    return _junction(kind, flat)


def _junction_opposite(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    if any(isinstance(a, Compare) and negate(a) in arguments for a in arguments):
        return FALSE if kind is AllOf else TRUE
    return None


def _drop_implied(kind: type[AllOf] | type[AnyOf], arguments: Sequence[Cond]) -> Cond | None:
    kept: list[Cond] = []
    bounds: dict[Terms, int] = {}
    for argument in arguments:
        if isinstance(argument, Compare) and argument.kind == ">=":
            terms, constant = argument.operand.terms, argument.operand.constant
            position = bounds.get(terms)
            if position is not None:
                rival: Compare = kept[position]  # type: ignore[assignment]
                # `terms + constant >= 0` is stronger for the smaller constant; a conjunction keeps the stronger.
                if (constant < rival.operand.constant) is (kind is AllOf):
                    kept[position] = argument
                continue
            bounds[terms] = len(kept)
        elif argument in kept:
            continue
        kept.append(argument)
    return _junction(kind, kept) if len(kept) < len(arguments) else None


JUNCTION_RULES: tuple[Rule[JunctionRule], ...] = (
    Rule("junction_decided", "true and false arguments", "all_of(less(x, y), TRUE)", "x < y", _junction_decided),
    Rule("flatten_junction", "a and (b and c) is one conjunction", "all_of(less(x, y), all_of(less(y, z), less(z, 5)))",
         "x < y and y < z and z < 5", _flatten_junction),
    Rule("junction_opposite", "a and not a is false, a or not a is true", "any_of(less(x, y), less_equal(y, x))", "True",
         _junction_opposite),
    Rule("drop_implied", "of two bounds on one value the stronger (or: the weaker) stays",
         "all_of(less(x, y), less(x, y + 1))", "x < y", _drop_implied),
)  # fmt: skip

RULES: Final[tuple[Rule[Any], ...]] = (
    *DIVISION_RULES,
    *ATOM_IDENTITY_RULES,
    *PAIR_IDENTITY_RULES,
    *EXTREMUM_RULES,
    *SELECT_RULES,
    *COMPARE_RULES,
    *JUNCTION_RULES,
)


def ceil_div(a: Int | int, b: Int | int) -> Int:
    """`a / b` rounded up, for b >= 1."""
    divisor = as_int(b)
    return divide(as_int(a) + divisor - 1, divisor)[0]


# ------------------------------------------------------------------------------------------------------------ proofs


def prove_less(a: Int | int, b: Int | int) -> bool:
    """True if `a < b` holds for all values of the symbols; False means not proved."""
    return _is_nonnegative(as_int(b) - a - 1)


def prove_less_equal(a: Int | int, b: Int | int) -> bool:
    """True if `a <= b` holds for all values of the symbols; False means not proved."""
    return _is_nonnegative(as_int(b) - a)


def prove_divisible(a: Int | int, n: Int | int) -> bool:
    """True if `n` (at least 1) divides `a` for all values of the symbols; False means not proved."""
    return divide(as_int(a), as_int(n))[1] is ZERO


def _is_nonnegative(node: Int) -> bool:
    """Whether `node >= 0` is proved.

    Atoms with symbolic bounds are replaced by the bound that makes the expression least, the most dependent first
    (an index before the extents that bound it), until ranges decide.
    """
    lo = node.lo
    if lo is not None and lo >= 0:
        return True
    hi = node.hi
    if hi is not None and hi < 0:
        return False
    result = _proofs.get(node)
    if result is None:
        result = _eliminate(node, [_PROOF_STEPS])
        if len(_proofs) >= _MEMO_LIMIT:
            _proofs.clear()
        _proofs[node] = result
    return result


def _eliminate(node: Int, budget: list[int]) -> bool:
    lo = node.lo
    if lo is not None and lo >= 0:
        return True
    hi = node.hi
    if hi is not None and hi < 0:
        return False
    positive = node.constant > 0
    negative = False
    for _, coefficient in node.terms:
        if coefficient > 0:
            positive = True
        else:
            negative = True
    if not positive or budget[0] <= 0:
        return False
    if negative and _shifted_lo(node):
        return True
    budget[0] -= 1
    factors = {factor for monomial, _ in node.terms for factor in monomial if factor.rank or _is_compound(factor)}
    for factor in sorted(factors, key=lambda f: (-f.rank, f.order)):
        cofactor_terms: dict[Monomial, int] = {}
        rest_terms: dict[Monomial, int] = {}
        cofactor_constant = 0
        for monomial, coefficient in node.terms:
            quotient = _monomial_quotient(monomial, (factor,))
            if quotient is None:
                rest_terms[monomial] = coefficient
            elif quotient:
                cofactor_terms[quotient] = coefficient
            else:
                cofactor_constant = coefficient
        cofactor = _sort_sum(cofactor_constant, cofactor_terms)
        rest = _sort_sum(node.constant, rest_terms)
        if cofactor.hi is not None and cofactor.hi <= 0:
            falling = True
        elif cofactor.lo is not None and cofactor.lo >= 0:
            falling = False
        else:
            continue
        # The bounds of one atom are alternatives; an atom without any is left to the ranges.
        bounded = False
        for every, goals in _bounded_goals(factor, cofactor, rest, falling):
            bounded = True
            if every:
                if all(_eliminate(goal, budget) for goal in goals):
                    return True
            elif any(_eliminate(goal, budget) for goal in goals):
                return True
        if bounded:
            return False
    return False


def _is_compound(factor: Int) -> bool:
    return not isinstance(factor, (Symbol, SymbolQuotient))


def _bounded_goals(factor: Int, cofactor: Int, rest: Int, falling: bool) -> list[tuple[bool, list[Int]]]:
    """Expressions that are at most a positive multiple of `factor*cofactor + rest`.

    Each entry is a list of goals, of which all (True) or one (False) must be nonnegative. `falling` says that the
    cofactor is at most 0, so an upper bound of the factor is wanted; else it is at least 0 and a lower bound is.
    """
    goals: list[tuple[bool, list[Int]]] = []

    def put(bound: Int | int) -> Int:
        return cofactor * bound + rest

    match factor:
        case Symbol():
            if falling:
                if factor.below is not None:
                    goals.append((True, [put(factor.below - 1)]))
                if factor.hi is not None:
                    goals.append((True, [put(factor.hi)]))
            elif factor.lo is not None:
                goals.append((True, [put(factor.lo)]))
        case SymbolQuotient():
            step = factor.symbol.multiple
            if falling:
                if factor.symbol.below is not None:
                    below = factor.symbol.below
                    if below.multiple % step == 0:
                        goals.append((True, [put(_exact_quotient(below, step) - 1)]))
                    else:
                        goals.append((True, [cofactor * (below - 1) + rest * step]))
                if factor.hi is not None:
                    goals.append((True, [put(factor.hi)]))
            elif factor.lo is not None:
                goals.append((True, [put(factor.lo)]))
        case FloorDiv():
            if not cofactor.terms and rest.multiple % cofactor.constant == 0:
                # c*q <= c*r is x < (r + 1) * divisor, and c*q >= -c*r is x >= -r * divisor.
                limit = _exact_quotient(rest, abs(cofactor.constant)) * factor.divisor
                goals.append((True, [limit + factor.divisor - 1 - factor.numerator if falling else factor.numerator + limit]))
            # divisor * (x // divisor) lies in [x - divisor + 1, x]: scale by the divisor, which is positive.
            scaled = rest * factor.divisor
            if falling:
                goals.append((True, [cofactor * factor.numerator + scaled]))
            else:
                goals.append((True, [cofactor * (factor.numerator - factor.divisor + 1) + scaled]))
            bound = factor.hi if falling else factor.lo
            if bound is not None:
                goals.append((True, [put(bound)]))
        case Mod():
            if falling:
                goals.append((True, [put(factor.divisor - 1)]))
                if factor.numerator.lo is not None and factor.numerator.lo >= 0:
                    goals.append((True, [put(factor.numerator)]))
            else:
                goals.append((True, [put(0)]))
        case Min():
            goals.append((not falling, [put(a) for a in factor.arguments]))
        case Max():
            goals.append((falling, [put(a) for a in factor.arguments]))
        case Select():
            goals.append((True, [put(factor.chosen), put(factor.otherwise)]))
        case _:
            pass
    return goals


def _shifted_lo(node: Int) -> bool:
    """Whether the range of `node` is nonnegative once every atom is written as its lower bound plus a rest.

    Products then cancel that plain interval arithmetic cannot see: N*M - N for M >= 1.
    """
    if all(len(monomial) == 1 for monomial, _ in node.terms):
        return False
    ranges: dict[Int, tuple[int, Bound]] = {}
    for monomial, _ in node.terms:
        for factor in monomial:
            lo, hi = factor.lo, factor.hi
            if lo is None:
                return False
            ranges[factor] = (lo, hi)
    shifted: dict[Monomial, int] = {}
    for monomial, coefficient in node.terms:
        # Expand the product of (lo + rest); `factor` stands for its own rest from here on.
        expansion: dict[Monomial, int] = {(): coefficient}
        for factor in monomial:
            lo = ranges[factor][0]
            grown: dict[Monomial, int] = {}
            for m, c in expansion.items():
                _add_multiple(grown, ((_monomial_product(m, (factor,)), 1),), c)
                if lo:
                    _add_multiple(grown, ((m, 1),), c * lo)
            expansion = grown
        _add_multiple(shifted, expansion.items(), 1)
    total = node.constant
    for monomial, coefficient in shifted.items():
        if coefficient > 0:
            if not monomial:
                total += coefficient
            continue
        most = coefficient
        for factor in monomial:
            lo, hi = ranges[factor]
            if hi is None:
                return False
            most *= hi - lo
        total += most
    return total >= 0


# -------------------------------------------------------------------------------------------------------------- text

# Binding strength of printed text, loosest first.
SUM_LEVEL: Final = 0
DIVISION_LEVEL: Final = 1
PRODUCT_LEVEL: Final = 2
ATOM_LEVEL: Final = 3


class Printer:
    """Infix text of expressions: valid Python over `min`, `max` and `select`. Dialects override single methods."""

    def name(self, symbol: Symbol) -> str:
        return symbol.name

    def literal(self, value: int) -> str:
        return str(value)

    def atom(self, node: Int) -> tuple[str, int]:
        """Text and binding strength of an atom."""
        match node:
            case Symbol():
                return self.name(node), ATOM_LEVEL
            case SymbolQuotient():
                return self.quotient(node.symbol, const(node.symbol.multiple))
            case FloorDiv():
                return self.quotient(node.numerator, node.divisor)
            case Mod():
                return self.remainder(node.numerator, node.divisor)
            case Min():
                return self.extremum("min", node.arguments)
            case Max():
                return self.extremum("max", node.arguments)
            case Select():
                return self.selection(node)
            case _:
                raise TypeError(f"{node} is not an atom")

    def quotient(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}//{self.operand(divisor)}", DIVISION_LEVEL

    def remainder(self, numerator: Int, divisor: Int) -> tuple[str, int]:
        return f"{self.operand(numerator)}%{self.operand(divisor)}", DIVISION_LEVEL

    def extremum(self, name: str, arguments: Sequence[Int]) -> tuple[str, int]:
        return f"{name}({', '.join(self.expression(a) for a in arguments)})", ATOM_LEVEL

    def selection(self, node: Select) -> tuple[str, int]:
        parts = self.condition(node.condition), self.expression(node.chosen), self.expression(node.otherwise)
        return f"select({', '.join(parts)})", ATOM_LEVEL

    def junction(self, arguments: Sequence[Cond], every: bool) -> str:
        parts = [f"({self.condition(a)})" if isinstance(a, (AllOf, AnyOf)) else self.condition(a) for a in arguments]
        return (" and " if every else " or ").join(parts)

    def truth(self, value: bool) -> str:
        return str(value)

    def operand(self, node: Int) -> str:
        """Text that may stand beside `*`, `//` or `%`."""
        text, level = self.text(node)
        return text if level == ATOM_LEVEL else f"({text})"

    def expression(self, node: Int) -> str:
        return self.text(node)[0]

    def text(self, node: Int) -> tuple[str, int]:
        if isinstance(node, Symbol):
            return self.name(node), ATOM_LEVEL
        if not node.terms:
            return self.literal(node.constant), ATOM_LEVEL if node.constant >= 0 else SUM_LEVEL
        if len(node.terms) == 1 and node.constant == 0:
            text, level, minus = self.term(*node.terms[0])
            return (self.negative(text, level), SUM_LEVEL) if minus else (text, level)
        return self.sum(node.constant, node.terms), SUM_LEVEL

    def sum(self, constant: int, terms: Sequence[tuple[Monomial, int]]) -> str:
        pieces = [self.term(monomial, coefficient) for monomial, coefficient in terms]
        if constant:
            pieces.append((self.literal(abs(constant)), ATOM_LEVEL, constant < 0))
        # Start with something positive where there is one: it reads better and avoids a unary minus.
        first = next((index for index, (_, _, minus) in enumerate(pieces) if not minus), 0)
        text, level, minus = pieces.pop(first)
        parts = [self.negative(text, level) if minus else text]
        for text, level, minus in pieces:
            parts.append(" - " if minus else " + ")
            parts.append(f"({text})" if level == SUM_LEVEL else text)
        return "".join(parts)

    def negative(self, text: str, level: int) -> str:
        # -x//8 would be (-x)//8.
        return f"-({text})" if level < PRODUCT_LEVEL else f"-{text}"

    def term(self, monomial: Monomial, coefficient: int) -> tuple[str, int, bool]:
        """Text, binding strength and sign of `coefficient * monomial`; the text is that of the absolute value."""
        count = abs(coefficient)
        factors: list[str] = []
        alone: tuple[str, int] = ("", ATOM_LEVEL)
        for factor in monomial:
            if isinstance(factor, SymbolQuotient) and count % factor.symbol.multiple == 0:
                # 8 * (N // 8) is N again.
                count //= factor.symbol.multiple
                alone = self.name(factor.symbol), ATOM_LEVEL
            else:
                alone = self.atom(factor)
            factors.append(alone[0] if alone[1] == ATOM_LEVEL else f"({alone[0]})")
        minus = coefficient < 0
        if count == 1 and len(factors) == 1:
            return alone[0], alone[1], minus
        if count != 1:
            factors.insert(0, self.literal(count))
        return "*".join(factors), PRODUCT_LEVEL, minus

    def condition(self, node: Cond) -> str:
        match node:
            case Truth():
                return self.truth(node.value)
            case Compare():
                return self.comparison(node)
            case AllOf():
                return self.junction(node.arguments, True)
            case AnyOf():
                return self.junction(node.arguments, False)
            case _:
                raise TypeError(f"expected a condition, got {type(node).__name__}")

    def comparison(self, node: Compare) -> str:
        left = [(m, -c) for m, c in node.operand.terms if c < 0]
        right = [(m, c) for m, c in node.operand.terms if c > 0]
        constant = node.operand.constant
        if node.kind != ">=":
            left, right, constant = right, left, -constant
            if constant < 0 and right:
                return f"{self.side(-constant, left)} {node.kind} {self.side(0, right)}"
            return f"{self.side(0, left)} {node.kind} {self.side(constant, right)}"
        # left <= right + constant, with the constant on the side where it is positive, and `<` where that is shorter.
        if not right:
            return f"{self.side(0, left)} < {self.literal(constant + 1)}"
        if constant < 0:
            return f"{self.side(-constant - 1, left)} < {self.side(0, right)}"
        return f"{self.side(0, left)} <= {self.side(constant, right)}"

    def side(self, constant: int, terms: Sequence[tuple[Monomial, int]]) -> str:
        return self.sum(constant, terms) if terms else self.literal(constant)
