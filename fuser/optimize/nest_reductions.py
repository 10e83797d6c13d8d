"""Reduce in two steps where others reduce a part of the same dims, or what has these: one kernel does both.

Before: t1 = sum(t0, [1]); t2 = sum(exp(t0), [0, 1])
After:  t1 = sum(t0, [1]); t3 = sum(exp(t0), [1]); t2 = sum(t3, [0])

Before: t2 = sum(t0[n], [0]); t3 = sum(where(broadcast(t0, [False, True]), t1[n, 4], 0), [0, 1])
After:  t2 = sum(t0[n], [0]); t4 = sum(where(broadcast(t0, [False, True]), t1[n, 4], 0), [1]); t3 = sum(t4, [0])

A kernel reduces one set of dims, and over all rows what is left of them. Rows are the last dims, as they lie in memory by
default. Where a reduction leaves several results, or the others are of columns, the second step is a kernel of its own, over
few elements: the first shares a tensor with them, which would be read, or computed and stored, for each.

Before: t1 = sum(t0[n, m, k], [2]); t2 = sum(exp(t0), [1, 2])
After:  t1 = sum(t0, [2]); t3 = sum(exp(t0), [2]); t2 = sum(t3, [1])

Statistics stay, as they need a result of all rows in the second step; so does what is reduced for values that have the reduced
dims again, as it ends a kernel either way.

Stands behind the passes that move reductions' operands, as it asks which dims are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from fuser.ir.fusion.fusion import Fusion, IterDomain, Reducing, Reduction, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.optimize.reduce_in_steps import reduce_in_steps
from fuser.records import record

_Dim: TypeAlias = tuple[Group, int]
"""A group, and how many dims of the same tensor before it are of it: those of a square are two."""


@record
class _Dims:
    """Dims of an operand, in order, and those that are reduced."""

    of: tuple[_Dim, ...]
    reduced: frozenset[_Dim]


def nest_reductions(fusion: Fusion) -> Fusion:
    """The same outputs, with reductions in steps where others have the dims of one of them."""
    read = {*fusion.output_tensors, *(t for e in fusion.tensor_exprs for t in tensor_inputs(e))}
    # Of some results only the extents are needed.
    reductions = [e for e in fusion.tensor_exprs if isinstance(e, Reducing) and not read.isdisjoint(tensor_outputs(e))]
    if len(reductions) < 2:
        return fusion
    dims = {e: _dims(fusion, e) for e in reductions}
    last: dict[str, tuple[int, ...]] = {}
    for e in reductions:
        if not isinstance(e, Reduction) or isinstance(fusion.definitions.get(e.input), Reduction):
            continue
        rows = next((r for o in reductions if (r := _rows(dims[e], dims[o])) is not None), None)
        if rows is None:
            rows = _left(fusion, e, dims)
        if rows is not None and _ends_there(fusion, e, dims[e]):
            last[e.output.name] = tuple(i for i, d in enumerate(_numbered(fusion, e.output.logical)) if d in rows)
    return reduce_in_steps(fusion, last) if last else fusion


def _numbered(fusion: Fusion, dims: Iterable[IterDomain]) -> list[_Dim]:
    found: list[_Dim] = []
    seen = Counter[Group]()
    for group in map(fusion.resolved_dims.group, dims):
        found.append((group, seen[group]))
        seen[group] += 1
    return found


def _dims(fusion: Fusion, expr: Reducing) -> _Dims:
    logical = tensor_outputs(expr)[0].logical
    dims = list(zip(_numbered(fusion, logical), logical, strict=True))
    of = tuple(known for known, _ in dims if not known[0].is_broadcast)
    return _Dims(of, frozenset(known for known, d in dims if d.is_reduction).intersection(of))


def _rows(whole: _Dims, other: _Dims) -> frozenset[_Dim] | None:
    """The dims that rows are counted by where one kernel does both; None if there are none."""
    if whole.reduced != frozenset(whole.of):
        return None
    if frozenset(other.of) == whole.reduced:
        rows = whole.reduced - other.reduced
    elif whole.reduced.issuperset(other.of) and other.reduced == frozenset(other.of):
        rows = other.reduced
    else:
        return None
    if not rows or not other.reduced or rows == whole.reduced:
        return None
    return rows if frozenset(whole.of[: len(rows)]) == rows else None


def _left(fusion: Fusion, expr: Reduction, dims: Mapping[Reducing, _Dims]) -> frozenset[_Dim] | None:
    """What a reduction is over beside the dims of another one, of a tensor of all their dims that both are computed of; None
    if there is no such reduction. Of several, the one that reduces inner dims."""
    own = dims[expr]
    above = _above(fusion, expr)
    found = [
        own.reduced - other.reduced
        for e, other in dims.items()
        if other.reduced and other.reduced < own.reduced and frozenset(other.of) == frozenset(own.of)
        if any(own.of == _full(fusion, t) for t in above & _above(fusion, e))
    ]
    return min(found, key=lambda rows: [d in rows for d in reversed(own.of)], default=None)


def _above(fusion: Fusion, expr: Reducing) -> set[Tensor]:
    """What an expr is computed of."""
    found = set(tensor_inputs(expr))
    for e in reversed(fusion.tensor_exprs):
        if not found.isdisjoint(tensor_outputs(e)):
            found.update(tensor_inputs(e))
    return found


def _full(fusion: Fusion, tensor: Tensor) -> tuple[_Dim, ...]:
    return tuple(d for d in _numbered(fusion, tensor.visible) if not d[0].is_broadcast)


def _ends_there(fusion: Fusion, expr: Reduction, dims: _Dims) -> bool:
    """Whether what is computed of a result has none of the dims that it was reduced over."""
    found: set[Tensor] = {expr.output}
    for e in fusion.tensor_exprs:
        if not found.isdisjoint(tensor_inputs(e)):
            found.update(tensor_outputs(e))
    lost = {group for group, _ in dims.reduced}
    is_all = dims.reduced == frozenset(dims.of)
    group = fusion.resolved_dims.group
    return not any(not d.is_broadcast and (is_all or group(d) in lost) for t in found for d in t.visible)
