"""Restrictions of loops by the windows of slices, pads and concatenations.

A pad or a concatenation compares the index along its dim with its window. That index should be a loop index, not the
remainder of a division: such a dim is not merged with others. A slice is clamped to the extent of its input; a fact that the
input is large enough removes the clamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fuser.ir.fact_collection import INDEX_LIMIT
from fuser.ir.fusion.fusion import Cat, Fusion, Resize, expr_extents, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.tensors import place_in_root
from fuser.ir.integers.integer_nodes import Min, Sum
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.schedule.schedule import ScheduleBuilder


def tested_groups(segment: Fusion, evaluate: Callable[[Int], int]) -> set[Group]:
    """Dims along which windows have elements outside, so that indices are compared with them."""
    graph = segment.resolved_dims
    found: set[Group] = set()
    for e in _with_windows(segment):
        if isinstance(e, Cat):
            found.add(graph.group(e.output.visible[e.dim]))
            continue
        tested = {
            d
            for w, d in zip(e.windows, e.output.produced, strict=True)
            if w.pieces or evaluate(w.begin) > 0 or evaluate(w.end) < evaluate(d.extent)
        }
        found.update(graph.group(d) for d in e.output.visible if place_in_root(d)[0] in tested)
    return found


@memoized
def _with_windows(segment: Fusion) -> list[Resize | Cat]:
    return [e for e in segment.tensor_exprs if isinstance(e, (Resize, Cat))]


def require_slices_in_bounds(builder: ScheduleBuilder) -> None:
    """Ask that extents of inputs reach the constants that slices clamp to them."""
    reach: dict[Symbol, int] = {}
    seen: set[Int] = set()
    for e in builder.exprs:
        if isinstance(e, (Resize, Cat)):
            made = (d.extent for t in tensor_outputs(e) for d in t.visible)
            _collect((*expr_extents(e), *made), reach, seen)
    for t in builder.fusion.input_tensors:
        for dim, d in enumerate(() if t.is_cpu else t.visible):
            # One dim is enough: those that are the same are known together.
            least = reach.pop(d.extent, 0) if isinstance(d.extent, Symbol) else 0
            if 0 < least <= INDEX_LIMIT:
                builder.require_extent_range(t.name, dim, least, INDEX_LIMIT)


def _collect(expressions: Iterable[Int], reach: dict[Symbol, int], seen: set[Int]) -> None:
    """The least value of each symbol for which minima with constants are the constants."""
    for e in expressions:
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, Min):
            limit = next((a.value for a in e.arguments if a.is_const), None)
            for a in e.arguments:
                if isinstance(a, Symbol) and limit is not None:
                    reach[a] = max(reach.get(a, 0), limit)
            _collect(e.arguments, reach, seen)
        elif isinstance(e, Sum):
            _collect((factor for monomial, _ in e.terms for factor in monomial), reach, seen)
