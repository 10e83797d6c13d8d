"""Sizes in host programs: integer expressions over the extents, strides and values of slots.

Grammar
    size      := int | extent(slot, dim) | stride(slot, dim) | scalar(slot) | size (+ - * // %) size
    condition := less(size, size) | less_equal(..) | equal(..) | not_equal(..) | all_of(condition, ..) | any_of(..)

The leaves are symbols of `fuser.ir.integers.integers`, so sizes simplify, print as Python and compile like every other
expression. A stride counts elements.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol, SupportsIndex

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.ir.integers import integers
from fuser.ir.integers.integers import Cond, Int, Symbol, as_int, compile_function, symbol
from fuser.tracebacks import short_traceback

Size = Int | int
GivenSize = Int | SupportsIndex
"""A size as callers write it: integers of NumPy too."""


class SlotSource(NamedTuple):
    """What a leaf stands for. `dim` is 0 for scalars."""

    what: Literal["extent", "stride", "scalar"]
    slot: str
    dim: int = 0


# Symbols are interned for the life of the process, and so is this.
_sources: dict[Symbol, SlotSource] = {}


@short_traceback
def extent(slot: str, dim: int) -> Int:
    """Extent of dimension `dim` (logical order, from 0) of the tensor in `slot`."""
    return _leaf(SlotSource("extent", slot, dim), f"extent({slot!r}, {dim!r})", 0)


@short_traceback
def stride(slot: str, dim: int) -> Int:
    """Stride, in elements, of dimension `dim` of the tensor in `slot`."""
    return _leaf(SlotSource("stride", slot, dim), f"stride({slot!r}, {dim!r})", None)


@short_traceback
def scalar(slot: str) -> Int:
    """Value of the integer in `slot`."""
    return _leaf(SlotSource("scalar", slot), f"scalar({slot!r})", None)


def _leaf(source: SlotSource, name: str, low: int | None) -> Int:
    if not isinstance(source.slot, str) or not isinstance(source.dim, int) or source.dim < 0:
        raise DefinitionTypeError(f"{source.what} takes the name of a slot and a dimension from 0, got {name}")
    leaf = symbol(name, low)
    _sources[leaf] = source
    return leaf


@short_traceback
def less(a: GivenSize, b: GivenSize) -> Cond:
    """The condition a < b of sizes."""
    return integers.less(as_size(a, "less"), as_size(b, "less"))


@short_traceback
def less_equal(a: GivenSize, b: GivenSize) -> Cond:
    """The condition a <= b of sizes."""
    return integers.less_equal(as_size(a, "less_equal"), as_size(b, "less_equal"))


@short_traceback
def equal(a: GivenSize, b: GivenSize) -> Cond:
    """The condition a == b of sizes."""
    return integers.equal(as_size(a, "equal"), as_size(b, "equal"))


@short_traceback
def not_equal(a: GivenSize, b: GivenSize) -> Cond:
    """The condition a != b of sizes."""
    return integers.not_equal(as_size(a, "not_equal"), as_size(b, "not_equal"))


@short_traceback
def all_of(*conditions: Cond) -> Cond:
    """The condition that all of some hold."""
    _check_conditions("all_of", conditions)
    return integers.all_of(*conditions)


@short_traceback
def any_of(*conditions: Cond) -> Cond:
    """The condition that any of some holds."""
    _check_conditions("any_of", conditions)
    return integers.any_of(*conditions)


def _check_conditions(what: str, conditions: Sequence[object]) -> None:
    for one in conditions:
        if not isinstance(one, Cond):
            listed = f": write {what}(p, q), without a list" if isinstance(one, Sequence) else ""
            raise DefinitionTypeError(
                f"{what} takes conditions, as less(a, b) and equal(a, b) make them, got {type(one).__name__} {one!r}{listed}"
            )


def as_sizes(values: Sequence[GivenSize], what: str) -> tuple[Size, ...]:
    """A sequence of sizes, constants as plain ints. Raises DefinitionTypeError for other things."""
    if isinstance(values, (str, Int)) or not hasattr(values, "__iter__"):
        listed = f": write ({values!r},)" if isinstance(values, Int) or hasattr(values, "__index__") else ""
        raise DefinitionTypeError(
            f"{what} takes a sequence of ints and expressions of extent(slot, dim), got {values!r}{listed}"
        )
    return tuple(as_size(v, what) for v in values)


def as_size(value: GivenSize, what: str) -> Size:
    """One size, a constant as plain int. Raises DefinitionTypeError for other things."""
    try:
        node = as_int(value if isinstance(value, Int) else operator.index(value))
    except TypeError:
        held = f": scalar({value!r}) is the number in that slot" if isinstance(value, str) else ""
        raise DefinitionTypeError(
            f"{what} takes ints and expressions of extent(slot, dim), got {value!r}{held}"
        ) from None
    return node.value if node.is_const else node


def as_condition(value: Cond | GivenSize, what: str) -> Cond:
    """A condition, or of a size whether it is not 0. Raises DefinitionTypeError for other things.

    No bool: `a == b` and `not a` of expressions are such, and ask nothing of the sizes.
    """
    if isinstance(value, Cond):
        return value
    if not isinstance(value, bool):
        with suppress(DefinitionTypeError):
            return integers.not_equal(as_size(value, what), 0)
    raise DefinitionTypeError(
        f"{what} takes a condition, less(a, b), less_equal(a, b), equal(a, b), not_equal(a, b), all_of(p, ...) or "
        f"any_of(p, ...) of sizes (all of fuser), a size, or the name of a tensor of one element, got {value!r}"
        + (": `a == b` of sizes asks whether they are one expression" if isinstance(value, bool) else "")
    )


def sources_of(value: Size | Cond) -> list[SlotSource]:
    """The leaves of a size, by name. Raises DefinitionRuntimeError for a symbol that is none."""
    if isinstance(value, int):
        return []
    found: list[SlotSource] = []
    for leaf in sorted(value.symbols, key=lambda s: s.name):
        source = _sources.get(leaf) or _source_named(leaf)
        if source is None:
            raise DefinitionRuntimeError(f"size {value}: the symbol {leaf} is no extent, stride or scalar of a slot")
        found.append(source)
    return found


def _source_named(leaf: Symbol) -> SlotSource | None:
    """What a symbol stands for that was not made here, but read from a file or a pickle: its name says it."""
    called = re.fullmatch(r"(extent|stride|scalar)\((.*)\)", leaf.name, re.DOTALL)
    if called is None:
        return None
    try:
        arguments = ast.literal_eval(f"({called[2]},)")
        same = {"extent": extent, "stride": stride, "scalar": scalar}[called[1]](*arguments)
    except (SyntaxError, ValueError, TypeError):
        return None
    return _sources.get(leaf) if same is leaf else None


class SlotReader(Protocol):
    """What an executor tells about its slots while it runs."""

    def read(self, source: SlotSource) -> int:
        """Value of a leaf."""
        ...


SizeFunction = Callable[[SlotReader], tuple[int, ...]]


def compile_sizes(values: Sequence[Size]) -> SizeFunction:
    """A function that computes sizes from the slots at hand."""
    if all(isinstance(v, int) for v in values):
        constants = tuple(v for v in values if isinstance(v, int))
        return lambda _: constants
    leaves = {symbol_of(s): s for v in values for s in sources_of(v)}
    sources = tuple(leaves.values())
    compute: Callable[..., tuple[int, ...]] = compile_function([as_int(v) for v in values], list(leaves))

    def evaluate(slots: SlotReader) -> tuple[int, ...]:
        return compute(*(slots.read(s) for s in sources))

    return evaluate


def size_value(value: Size, slots: SlotReader) -> int:
    """One size for the slots at hand, nothing compiled."""
    if isinstance(value, int):
        return value
    return value.evaluate({symbol_of(s): slots.read(s) for s in sources_of(value)})


def symbol_of(source: SlotSource) -> Symbol:
    """The leaf that stands for something."""
    leaf = (
        {"extent": extent, "stride": stride}[source.what](source.slot, source.dim) if source.what != "scalar" else None
    )
    result = scalar(source.slot) if leaf is None else leaf
    assert isinstance(result, Symbol)
    return result


def substitute_slots(value: Size, slots: Mapping[str, str]) -> Size:
    """A size with slots renamed."""
    if isinstance(value, int):
        return value
    renamed = {symbol_of(s): symbol_of(s._replace(slot=slots[s.slot])) for s in sources_of(value) if s.slot in slots}
    return as_size(value.substitute(renamed), "a size")


__all__ = [
    "Cond",
    "Size",
    "SizeFunction",
    "SlotReader",
    "SlotSource",
    "all_of",
    "any_of",
    "as_condition",
    "as_size",
    "as_sizes",
    "compile_sizes",
    "equal",
    "extent",
    "less",
    "less_equal",
    "not_equal",
    "scalar",
    "size_value",
    "sources_of",
    "stride",
    "substitute_slots",
    "symbol_of",
]
