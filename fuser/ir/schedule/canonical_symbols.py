"""Which extent symbols stand for one extent of a scheduled fusion, and what facts say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fuser.ir.facts import ExtentDivisible, ExtentIs, ExtentWithin, Facts
from fuser.ir.fusion.fusion import IterDomain
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.integers.extent_bounds import bounds_of_symbol
from fuser.ir.integers.integers import Int, Symbol, const, symbol
from fuser.ir.schedule.schedule import ScheduleBuilder


def canonical_symbols(builder: ScheduleBuilder, facts: Facts) -> dict[Symbol, Int]:
    """What each extent symbol stands for: one symbol per set of dims that are the same, with its known divisor and bounds."""
    graph = builder.exact_graph()
    divisors: dict[tuple[str, int], int] = {}
    fixed: dict[tuple[str, int], int] = {}
    dims = {(t.name, d): dim for t in builder.fusion.input_tensors for d, dim in enumerate(t.visible)}
    limits: dict[Symbol, list[tuple[int | None, int | None]]] = {}
    for fact in facts:
        if isinstance(fact, ExtentDivisible):
            place = fact.tensor, fact.dim
            divisors[place] = math.lcm(divisors.get(place, 1), fact.divisor)
        elif isinstance(fact, ExtentIs):
            fixed[fact.tensor, fact.dim] = fact.value
        elif isinstance(fact, ExtentWithin):
            # Of dims that are the same, each extent says the bounds of the symbol that it is computed from.
            for extent in _extents_of(graph, dims[fact.tensor, fact.dim]):
                found = bounds_of_symbol(extent, fact.low, fact.high)
                if found is not None:
                    limits.setdefault(found[0], []).append(found[1:])
    asserted = {
        a: b for c in builder.fusion.constraints for a, b in ((c.left, c.right), (c.right, c.left)) if b.is_const
    }
    owner: dict[Symbol, list[tuple[str, int]]] = {}
    for t in builder.fusion.input_tensors:
        for d, dim in enumerate(t.visible):
            if isinstance(dim.extent, Symbol):
                owner.setdefault(dim.extent, []).append((t.name, d))
    result: dict[Symbol, Int] = {}
    for symbols, constants in _equal_extents(builder, graph):
        # What an op needs to be so many is checked before a launch.
        constant = next(iter((*constants, *(asserted[s] for s in symbols if s in asserted))), None)
        places = [p for s in symbols for p in owner.get(s, ())]
        value = constant if constant is not None else next((const(fixed[p]) for p in places if p in fixed), None)
        if value is None:
            divisor = math.lcm(*(divisors.get(p, 1) for p in places))
            bounds = [b for s in symbols for b in limits.get(s, ())]
            value = _bounded(symbols[0], bounds, divisor)
        result.update(dict.fromkeys(symbols, value))
    for s, bounds in limits.items():
        if s not in result:  # no dim has it
            result[s] = _bounded(s, bounds)
    return result


def _bounded(s: Symbol, bounds: Sequence[tuple[int | None, int | None]], divisor: int = 1) -> Int:
    """A symbol with more bounds and another divisor than its own ones, or the constant that these say it is."""
    low = max((b for b in (s.lo, *(lo for lo, _ in bounds)) if b is not None), default=None)
    high = min((b for b in (s.hi, *(hi for _, hi in bounds)) if b is not None), default=None)
    if low is not None and high is not None and low >= high:
        return const(low)
    return symbol(s.name, low, high, multiple=math.lcm(divisor, s.multiple))


def _extents_of(graph: IterationGraph, dim: IterDomain) -> list[Int]:
    """The extents that dims which are the same as `dim` are written with, its own one first."""
    return list(dict.fromkeys((dim.extent, *(m.extent for m in graph.same_dims(dim) if not m.is_broadcast))))


def _equal_extents(builder: ScheduleBuilder, graph: IterationGraph) -> list[tuple[list[Symbol], list[Int]]]:
    """Symbols that stand for the same extent, in order of first sight, and the constants that this extent is said to be.

    Those of dims that are the same are equal; so are those of an output and of the input that it updates, which is checked
    before a launch, and those of two such sets that have a symbol in common.
    """
    found: dict[Symbol, tuple[list[Symbol], list[Int]]] = {}
    seen: set[IterDomain] = set()
    own = [(dim,) for t in builder.tensors for dim in t.produced]
    updates = [(o.alias_of, o.tensor) for o in builder.fusion.outputs if o.alias_of is not None]
    # The symbols of what is computed come first: loops run over those.
    updated = [pair for target, t in updates for pair in zip(target.visible, t.visible, strict=True)]
    for dims in (*own, *updated):
        if len(dims) == 1 and dims[0] in seen:
            continue
        members = [m for dim in dims for m in graph.same_dims(dim) if not m.is_broadcast]
        seen.update(members)
        merged = list(dict.fromkeys(m.extent for m in members if isinstance(m.extent, Symbol)))
        constants = [m.extent for m in members if m.extent.is_const]
        if not merged:
            continue
        known = {id(found[s]): found[s] for s in merged if s in found}
        for others, values in known.values():
            constants += values
            merged = others + [s for s in merged if s not in others]
        found.update(dict.fromkeys(merged, (merged, constants)))
    return list({id(c): c for c in found.values()}.values())
