"""Nodes of interned integer expressions: grammar, ranges, interning.

Grammar (a value of type `Int` is one node; equal values in normal form are the same object)

    Int      = Const | Symbol | Sum | Atom
    Sum      = constant + coefficient * atom * ... * atom + ...      terms sorted, coefficients not 0
    Atom     = Symbol                                                when its known divisor is 1
             | SymbolQuotient(symbol)                                symbol // symbol.multiple
             | FloorDiv(numerator, divisor) | Mod(numerator, divisor)
             | Min(argument, ...) | Max(argument, ...)
             | Select(condition, chosen, otherwise)
             | Xor(left, right)                                      bitwise, of bounded nonnegative operands
    Cond     = Truth | Compare(kind, Int) | AllOf(Cond, ...) | AnyOf(Cond, ...)
    kind     = ">=" | "==" | "!="                                    Int kind 0

Semantics: mathematical integers, no overflow. Division rounds towards minus infinity and the remainder has the range
[0, divisor); divisors are at least 1 by contract, wherever their ranges do not say so it is assumed.

A symbol that is known to be divisible by m > 1 is the sum `m * SymbolQuotient`, and common factors are pulled out of
Mod, Min, Max, Select and Xor (there powers of two), so the largest known divisor of any expression is the gcd of its
coefficients.

Order of terms and arguments follows names and structure, never `id` or `hash`: printed text is the same in every
process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from fuser.ir.integers.integer_ranges import Bound, greatest, least, product_range
from fuser.ir.integers.integer_refusals import not_computed_with, symbolic_condition, symbolic_size
from fuser.ir.integers.interning import drop_unused
from fuser.ir.integers.interning import lock as interning_lock

Monomial: TypeAlias = "tuple[Int, ...]"
Terms: TypeAlias = "tuple[tuple[Monomial, int], ...]"
CompareKind: TypeAlias = Literal[">=", "==", "!="]
# Longest structural sort key kept as text; longer ones end in a checksum.
_ORDER_LENGTH: Final = 160


class Operations(NamedTuple):
    """What the operators and methods of the nodes call.

    Rules, proofs and text stand above the nodes; `fuser.ir.integers.integers` hands their entry points down to `connect`.
    """

    add: Callable[[Int, Int, int], Int]
    multiply: Callable[[Int, Int], Int]
    divide: Callable[[Int, Int], tuple[Int, Int]]
    substitute: Callable[[Int, Mapping[Symbol, Int | int]], Int]
    substitute_condition: Callable[[Cond, Mapping[Symbol, Int | int]], Cond]
    pickle: Callable[[Int | Cond], tuple[Callable[..., object], tuple[object, ...]]]
    text: Callable[[Int | Cond], str]
    derived: Mapping[str, Callable[[Int], object]]


_operations: Operations


def connect(operations: Operations) -> None:
    """Supply what operators and methods call; done once, by `fuser.ir.integers.integers`."""
    global _operations
    _operations = operations


# --------------------------------------------------------------------------------------------------------------- nodes


@symbolic_size
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
            compute = _operations.derived.get(name)
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
            return shift(self, other)  # type: ignore[arg-type]
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.add(self, right, 1)

    def __radd__(self, other: int) -> Int:
        return self.__add__(other)

    def __sub__(self, other: Int | int) -> Int:
        if other.__class__ is int:
            return shift(self, -other)  # type: ignore[arg-type]
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.add(self, right, -1)

    def __rsub__(self, other: int) -> Int:
        left = coerce(other)
        return not_computed_with(other) if left is None else _operations.add(left, self, -1)

    def __neg__(self) -> Int:
        return scale(self, -1)

    def __mul__(self, other: Int | int) -> Int:
        if other.__class__ is int:
            return scale(self, other)  # type: ignore[arg-type]
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.multiply(self, right)

    def __rmul__(self, other: int) -> Int:
        return self.__mul__(other)

    def __floordiv__(self, other: Int | int) -> Int:
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.divide(self, right)[0]

    def __rfloordiv__(self, other: int) -> Int:
        left = coerce(other)
        return not_computed_with(other) if left is None else _operations.divide(left, self)[0]

    def __mod__(self, other: Int | int) -> Int:
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.divide(self, right)[1]

    def __rmod__(self, other: int) -> Int:
        left = coerce(other)
        return not_computed_with(other) if left is None else _operations.divide(left, self)[1]

    def __divmod__(self, other: Int | int) -> tuple[Int, Int]:
        right = coerce(other)
        return not_computed_with(other) if right is None else _operations.divide(self, right)

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
        return _operations.pickle(self)

    def substitute(self, values: Mapping[Symbol, Int | int]) -> Int:
        """This expression with symbols replaced, simplified again. Values must respect the ranges of the symbols."""
        return _operations.substitute(self, values)

    def evaluate(self, values: Mapping[Symbol, int] | Mapping[str, int] | Mapping[Symbol | str, int]) -> int:
        """The value as a Python int; `values` has each symbol, or its name. KeyError names a symbol without a value."""
        return self.compute(Environment(values))

    def _range(self) -> tuple[Bound, Bound]:
        low: Bound = self.constant
        high: Bound = self.constant
        for monomial, coefficient in self.terms:
            if len(monomial) == 1:
                factor = monomial[0]
                lo = factor.lo
                hi = factor.hi
            else:
                lo, hi = product_range((factor.lo, factor.hi) for factor in monomial)
            if coefficient < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + coefficient * lo
            high = None if high is None or hi is None else high + coefficient * hi
        return low, high

    # What `evaluate` does node by node; `values` carries the results of shared nodes.

    def compute(self, values: Environment) -> int:
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

    def compute(self, values: Environment) -> int:
        return values.lookup(self)


class SymbolQuotient(Int):
    """`symbol // symbol.multiple`, exact: the atom of a symbol with a known divisor."""

    __slots__ = ("symbol",)

    symbol: Symbol

    def _range(self) -> tuple[Bound, Bound]:
        step = self.symbol.multiple
        lo, hi = self.symbol.lo, self.symbol.hi
        return None if lo is None else lo // step, None if hi is None else hi // step

    def compute(self, values: Environment) -> int:
        return values.lookup(self.symbol) // self.symbol.multiple


class FloorDiv(Int):
    """`numerator // divisor`, rounded towards minus infinity."""

    __slots__ = ("divisor", "numerator")

    numerator: Int
    divisor: Int
    is_division = True

    def _range(self) -> tuple[Bound, Bound]:
        lo, hi = self.numerator.lo, self.numerator.hi
        least = max(self.divisor.lo or 1, 1)
        most = None if self.divisor.hi is None else max(self.divisor.hi, 1)
        low: Bound = None
        high: Bound = None
        if lo is not None:
            low = lo // least if lo < 0 else 0 if most is None else lo // most
            if lo < 0 and self.divisor.terms:
                # (x + d) // d is x // d + 1, which knows that d is at least 1 where the sum of ranges does not.
                rest = _operations.add(self.numerator, self.divisor, -1).lo
                if rest is not None and rest < 0:
                    low = max(low, rest // least + 1)
        if hi is not None:
            high = hi // least if hi >= 0 else -1 if most is None else hi // most
        return low, high

    def compute(self, values: Environment) -> int:
        found = values.known.get(self)
        if found is None:
            found = self.numerator.compute(values) // self.divisor.compute(values)
            values.known[self] = found
        return found


class Mod(Int):
    """`numerator % divisor`, in [0, divisor)."""

    __slots__ = ("divisor", "numerator")

    numerator: Int
    divisor: Int
    is_division = True

    def _range(self) -> tuple[Bound, Bound]:
        most = self.divisor.hi
        high: Bound = None if most is None else most - 1
        lo, hi = self.numerator.lo, self.numerator.hi
        if lo is not None and lo >= 0 and hi is not None and (high is None or hi < high):
            high = hi
        return 0, high

    def compute(self, values: Environment) -> int:
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
        return least((a.lo for a in self.arguments), True), least((a.hi for a in self.arguments), False)

    def compute(self, values: Environment) -> int:
        return min(a.compute(values) for a in self.arguments)


class Max(Int):
    """The greatest of two or more expressions."""

    __slots__ = ("arguments",)

    arguments: tuple[Int, ...]

    def _range(self) -> tuple[Bound, Bound]:
        return greatest((a.lo for a in self.arguments), False), greatest((a.hi for a in self.arguments), True)

    def compute(self, values: Environment) -> int:
        return max(a.compute(values) for a in self.arguments)


class Select(Int):
    """`chosen` where the condition holds, else `otherwise`; the other branch need not have a value."""

    __slots__ = ("chosen", "condition", "otherwise")

    condition: Cond
    chosen: Int
    otherwise: Int

    def _range(self) -> tuple[Bound, Bound]:
        a, b = self.chosen, self.otherwise
        return least((a.lo, b.lo), True), greatest((a.hi, b.hi), True)

    def compute(self, values: Environment) -> int:
        return (self.chosen if self.condition.compute(values) else self.otherwise).compute(values)


class Xor(Int):
    """The bits in which two nonnegative expressions with known upper bounds differ."""

    __slots__ = ("left", "right")

    left: Int
    right: Int

    def _range(self) -> tuple[Bound, Bound]:
        assert self.left.hi is not None
        assert self.right.hi is not None
        return 0, (1 << max(self.left.hi, self.right.hi).bit_length()) - 1

    def compute(self, values: Environment) -> int:
        return self.left.compute(values) ^ self.right.compute(values)


@symbolic_condition
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
            text = _operations.text(self)
            object.__setattr__(self, "text", text)
            return text

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise AttributeError(f"conditions are immutable, cannot set {name!r}")

    @property
    def symbols(self) -> frozenset[Symbol]:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __copy__(self) -> Cond:
        return self

    def __deepcopy__(self, memo: object) -> Cond:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _operations.pickle(self)

    def substitute(self, values: Mapping[Symbol, Int | int]) -> Cond:
        """This condition with symbols replaced, decided again where possible."""
        return _operations.substitute_condition(self, values)

    def evaluate(self, values: Mapping[Symbol, int] | Mapping[str, int] | Mapping[Symbol | str, int]) -> bool:
        """The truth for given values of the symbols, or of their names."""
        return self.compute(Environment(values))

    def compute(self, values: Environment) -> bool:
        raise NotImplementedError


class Truth(Cond):
    """A decided condition: `TRUE` or `FALSE`."""

    __slots__ = ("value",)

    value: bool

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset()

    def compute(self, values: Environment) -> bool:
        return self.value


class Compare(Cond):
    """`operand >= 0`, `operand == 0` or `operand != 0`; the coefficients of the operand have no common factor."""

    __slots__ = ("kind", "operand")

    kind: CompareKind
    operand: Int

    @property
    def symbols(self) -> frozenset[Symbol]:
        return self.operand.symbols

    def compute(self, values: Environment) -> bool:
        value = self.operand.compute(values)
        return value >= 0 if self.kind == ">=" else (value == 0) is (self.kind == "==")


class AllOf(Cond):
    """True if every argument is."""

    __slots__ = ("arguments",)

    arguments: tuple[Cond, ...]

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(a.symbols for a in self.arguments))

    def compute(self, values: Environment) -> bool:
        return all(a.compute(values) for a in self.arguments)


class AnyOf(Cond):
    """True if at least one argument is."""

    __slots__ = ("arguments",)

    arguments: tuple[Cond, ...]

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*(a.symbols for a in self.arguments))

    def compute(self, values: Environment) -> bool:
        return any(a.compute(values) for a in self.arguments)


class Environment:
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


# ----------------------------------------------------------------------------------------------------------- interning


_Key: TypeAlias = "tuple[object, ...]"
# Constants need no lock: `dict.setdefault` with keys whose hash and equality run in C is atomic, and none is ever dropped.
_constants: dict[int, Int] = {}
_sums: dict[tuple[int, Terms], Int] = {}
_atoms: dict[_Key, Any] = {}
_conditions: dict[_Key, Any] = {}


# What is asked of the same nodes over and over, by each pass for each statement, is remembered in memo tables. A table is
# dropped when it is full.
_MEMO_LIMIT: Final = 1 << 17
_memos: list[dict[Any, Any]] = []


def memo() -> dict[Any, Any]:
    """A table for results that follow from the key alone, of which only speed depends."""
    _memos.append({})
    return _memos[-1]


def remember(table: dict[Any, Any], key: object, value: object) -> None:
    """Put a result into a memo table."""
    if len(table) >= _MEMO_LIMIT:
        table.clear()
    table[key] = value


def clear_memo() -> None:
    """Forget all remembered results. Nodes stay interned; results do not change."""
    for table in _memos:
        table.clear()


_FEW: Final = 1 << 15
"""Sums that tables may have without being looked through: those of some fifty kernels."""
_most_sums = _FEW


def drop_unused_nodes() -> None:
    """Forget remembered results, and all sums, divisions, choices and conditions that nobody has.

    They are those of kernels that are gone. A process that compiles many fusions would keep a megabyte of each. Constants and
    symbols stay: there are few.
    """
    global _most_sums
    clear_memo()
    drop_unused((_conditions, _atoms, _sums), _own_references)
    _most_sums = max(_FEW, 2 * len(_sums))


def _own_references(node: Int | Cond) -> tuple[object, ...]:
    """The tuples through which an atom is its own only term; nothing for sums and conditions."""
    if isinstance(node, (Sum, Cond)):
        return ()
    term = node.terms[0]
    return node.terms, term, term[0]


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
    bound = coerce(below)
    if bound is not None:
        if bound.hi is not None and (hi is None or bound.hi - 1 < hi):
            hi = bound.hi - 1
        if not bound.terms:
            bound = None
    if multiple > 1:
        lo = None if lo is None else -(-lo // multiple) * multiple
        hi = None if hi is None else hi // multiple * multiple
    exact = (Symbol, name, lo, hi, multiple, bound)
    with interning_lock:
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
    node = coerce(value)
    if node is None:
        raise TypeError(f"expected an integer or an integer expression, got {type(value).__name__}")
    return node


def coerce(value: object) -> Int | None:
    if isinstance(value, Int):
        return value
    if isinstance(value, int):
        return const(value)
    # NumPy integers and the like.
    return const(value.__index__()) if hasattr(value, "__index__") else None  # type: ignore[attr-defined]


def make_atom(kind: type[Any], *fields: tuple[str, object]) -> Any:
    """The interned atom of class `kind` with these fields."""
    key = (kind, *(value for _, value in fields))
    node = _atoms.get(key)
    if node is None:
        node = object.__new__(kind)
        for name, value in fields:
            _set(node, name, value)
        _set_constant(node, 0)
        _set_terms(node, (((node,), 1),))
        with interning_lock:
            node = _atoms.setdefault(key, node)
    return node


def floor_div_atom(numerator: Int, divisor: Int) -> Int:
    return make_atom(FloorDiv, ("numerator", numerator), ("divisor", divisor))


def mod_atom(numerator: Int, divisor: Int) -> Int:
    return make_atom(Mod, ("numerator", numerator), ("divisor", divisor))


def factor_order(factor: Int) -> str:
    return factor.order


def extremum_atom(kind: type[Min] | type[Max], arguments: Iterable[Int]) -> Int:
    return make_atom(kind, ("arguments", tuple(sorted(arguments, key=factor_order))))


def select_atom(condition: Cond, chosen: Int, otherwise: Int) -> Int:
    return make_atom(Select, ("condition", condition), ("chosen", chosen), ("otherwise", otherwise))


def xor_atom(a: Int, b: Int) -> Int:
    left, right = sorted((a, b), key=factor_order)
    return make_atom(Xor, ("left", left), ("right", right))


def intern_sum(constant: int, items: Terms) -> Int:
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
        with interning_lock:
            node = _sums.setdefault(key, node)
        if len(_sums) > _most_sums:
            drop_unused_nodes()
    return node


def shift(node: Int, amount: int) -> Int:
    return node if amount == 0 else intern_sum(node.constant + amount, node.terms)


def scale(node: Int, factor: int) -> Int:
    if factor == 1:
        return node
    if factor == 0:
        return ZERO
    return intern_sum(node.constant * factor, tuple([(m, c * factor) for m, c in node.terms]))


def make_condition(kind: type[Any], order: str, *fields: tuple[str, object]) -> Any:
    key = (kind, *(value for _, value in fields))
    node = _conditions.get(key)
    if node is None:
        node = object.__new__(kind)
        for name, value in fields:
            _set(node, name, value)
        _set(node, "order", order)
        with interning_lock:
            node = _conditions.setdefault(key, node)
    return node


def shorten(text: str) -> str:
    """A sort key of bounded length, so that shared subtrees do not multiply."""
    if len(text) <= _ORDER_LENGTH:
        return text
    return f"{text[:_ORDER_LENGTH]}#{zlib.crc32(text.encode()):08x}{len(text):x}"


def compare_node(kind: CompareKind, operand: Int) -> Cond:
    return make_condition(Compare, f"{operand.order}{kind}", ("kind", kind), ("operand", operand))


def junction_node(kind: type[AllOf] | type[AnyOf], arguments: Iterable[Cond]) -> Cond:
    ordered = tuple(sorted(arguments, key=lambda a: a.order))
    order = f"{kind.__name__}({','.join(a.order for a in ordered)})"
    return make_condition(kind, shorten(order), ("arguments", ordered))


TRUE: Final[Cond] = make_condition(Truth, "true", ("value", True))
FALSE: Final[Cond] = make_condition(Truth, "false", ("value", False))
