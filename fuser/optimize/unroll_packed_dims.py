"""Compute few elements one by one, where a loop over them would keep their reduction out of the kernel that needs it.

A short inner dim, where a row's statistics are needed for what is reduced over it:

Before: t1 = max(t0[n, m, 4], [1, 2]); t2 = sum(shift(div(t0, broadcast(t1)), iota(4)), [2])
After:  t3, t4, t5, t6 = t0[:, :, 0], t0[:, :, 1], ...; t1 = max(maximum(maximum(t3, t4), maximum(t5, t6)), [1])
        t2 = add(add(shift(div(t3, broadcast(t1)), 0), ...), ...)

Four quantised values are packed into a word, with the scale of their row. A row is kept on chip where all that is reduced are
rows, and words are elements of a row of words. What is reduced to one number is no row: another kernel reads it again. Only
where nothing else has the dim, of a few elements that are known. Words that are put together of elements taken one by one (`t2
= t5[:, :, 0] | t5[:, :, 1] << 8`) are the same.

Few coordinates of pairs, where what is reduced over them is reduced over pairs again:

Before: t1 = sum(mul(t0[n, 1, 3], t2[1, m, 3]), [2]); t3 = min(t1, [1])
After:  t1 = add(add(mul(t0[:, :, 0], t2[:, :, 0]), ...), ...); t3 = min(t1, [1])

What all pairs have would be stored, and is larger than what it is computed from.

Few planes, such as channels, where what is reduced over them is reduced over the planes as well:

Before: t1 = sum(abs(t0[n, 3, h, w]), [1]); t2 = sum(exp(t1), [0, 1, 2])
After:  t1 = add(add(abs(t0[:, 0]), abs(t0[:, 1])), abs(t0[:, 2])); t2 = sum(exp(t1), [0, 1, 2])

Each thread reads a pixel of every plane, and nothing is stored between two kernels.

Windows in dims that lie apart, as those of pooling, where their results are needed by their elements:

Before: t1 = max(t0[n, 2, m, 2], [1, 3]); t2 = eq(t0, broadcast(t1))
After:  t3, t4, t5, t6 = t0[:, 0, :, 0], t0[:, 1, :, 0], ...; t1 = maximum(maximum(t3, t4), maximum(t5, t6)); ...

A thread reads the few other elements of its window: from a cache. What is kept on chip are rows, and columns.

Stands before `hoist_displaced_reads`, which reads the parts at the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from fuser.ir.fusion.concretize import MOST_ELEMENTS
from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    Full,
    Fusion,
    Iota,
    IterDomain,
    Permute,
    Pointwise,
    Reduction,
    Reshape,
    Resize,
    Scan,
    Squeeze,
    Tensor,
    TensorExpr,
    Welford,
    Window,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.reduced_again import is_reduced_again
from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.ops.reductions import REDUCTIONS
from fuser.optimize.remove_dead_code import remove_dead_code
from fuser.optimize.replace_exprs import replace_exprs

MOST = MOST_ELEMENTS
"""Elements of such a dim: values of 4 bits in a word. Each is code of its own."""
_BY_ELEMENT = (Pointwise, Broadcast, Squeeze, Permute, Full, Iota)


def unroll_packed_dims(fusion: Fusion) -> Fusion:
    """The same outputs, without loops over short dims that are reduced by themselves and with all of a row, and without
    reductions of small windows in what needs them element by element."""
    group = _packed_dim(fusion)
    found = fusion if group is None else _unrolled(fusion, group)
    tiles = _tiles(found)
    return _of_elements(found, tiles) if tiles else found


def _tiles(fusion: Fusion) -> frozenset[Reduction]:
    """Reductions of few elements in dims that lie apart, whose results are needed where these elements are.

    None beside others of this kind, which are rows or columns that a kernel keeps on chip: a thread has some elements of them,
    and none of its neighbours' windows.
    """
    if any(isinstance(e, Scan) for e in fusion.tensor_exprs):
        return frozenset()
    graph = fusion.resolved_dims
    found: set[Reduction | Welford] = set()
    needing: dict[Tensor, set[Reduction | Welford]] = {}
    for e in fusion.tensor_exprs:
        needed = set[Reduction | Welford]().union(*(needing.get(t, ()) for t in tensor_inputs(e)))
        for t in tensor_outputs(e):
            groups = graph.concrete_groups(t.visible)
            found.update(r for r in needed if groups.issuperset(graph.group(r.input.visible[d]) for d in _axes(r)))
        if isinstance(e, (Reduction, Welford)):
            needed = {*needed, e}
        needing |= dict.fromkeys(tensor_outputs(e), needed)
    tiles = frozenset(r for r in found if isinstance(r, Reduction) and _is_tile(r))
    return tiles if len(tiles) == len(found) else frozenset()


def _axes(expr: Reduction | Welford) -> list[int]:
    return [k for k, d in enumerate(tensor_outputs(expr)[0].produced) if d.is_reduction]


def _is_tile(expr: Reduction) -> bool:
    axes = _axes(expr)
    extents = [expr.input.visible[k].extent for k in axes]
    if not all(n.is_const for n in extents) or not 1 < math.prod(n.value for n in extents) <= MOST:
        return False
    return axes[-1] - axes[0] >= len(axes)


def _of_elements(fusion: Fusion, tiles: Collection[Reduction]) -> Fusion:
    """Each of the reductions as a fold of its elements."""
    builder = FusionBuilder.of_concrete(fusion)
    replaced: dict[Tensor, Tensor] = {}

    def folded(expr: TensorExpr, made: TensorExpr) -> Sequence[Expr]:
        if expr not in tiles:
            return (made,)
        assert isinstance(made, Reduction)
        begin = len(builder.exprs)
        builder.exprs.append(made)
        while isinstance(left := builder.exprs[-1], Reduction):
            builder.exprs.pop()
            replaced[made.output] = _folded(builder, left, _axes(left)[0])
        return builder.exprs[begin:]

    return remove_dead_code(replace_exprs(fusion, replaced, folded))


def _packed_dim(fusion: Fusion) -> Group | None:
    """A dim to compute element by element, or None."""
    reductions = [e for e in fusion.tensor_exprs if isinstance(e, Reduction)]
    if not reductions:
        return None
    graph = fusion.resolved_dims

    def reduced(e: Reduction) -> frozenset[Group]:
        return frozenset(graph.group(d) for d in e.output.logical if d.is_reduction)

    for e in fusion.tensor_exprs:
        if not isinstance(e, (Reduction, Resize)) or not e.input.visible:
            continue
        at = _axes(e)[-1] if isinstance(e, Reduction) else -1
        extent, group = e.input.visible[at].extent, graph.group(e.input.visible[at])
        if not extent.is_const or not 1 < extent.value <= MOST:
            continue
        if reduced(e) != {group} if isinstance(e, Reduction) else not _is_pick(e):
            continue
        if isinstance(e, Reduction) and at < e.input.ndim - 1:
            if is_reduced_again(fusion, e.output) and _is_by_element(fusion, group):
                return group
            continue
        rows = [r for r in reductions if len(reduced(r)) > 1 and group in reduced(r) and r.output.visible]
        is_needed = bool(rows) and _needs(fusion, e, rows)
        if (is_needed or _is_of_pairs(fusion, e)) and _is_by_element(fusion, group):
            return group
    return None


def _is_of_pairs(fusion: Fusion, expr: Reduction | Resize) -> bool:
    """Whether an expr reduces what has more dims than all inputs that it is computed from, and its result is reduced again."""
    graph = fusion.resolved_dims
    groups = graph.concrete_groups(expr.output.visible)
    sources = {expr.input}
    for e in reversed(fusion.tensor_exprs):
        if not sources.isdisjoint(tensor_outputs(e)):
            sources.update(tensor_inputs(e))
    if any(groups <= graph.concrete_groups(t.visible) for t in sources.intersection(fusion.input_tensors)):
        return False
    return isinstance(expr, Reduction) and is_reduced_again(fusion, expr.output)


def _is_pick(expr: Resize) -> bool:
    """Whether one element of the last dim is taken, and all of the others."""
    *others, last = zip(expr.input.visible, expr.windows, expr.output.produced, strict=True)
    _, window, one = last
    is_whole = all(not w.moves and a.extent is b.extent for a, w, b in others)
    return is_whole and expr.fill is None and one.extent is ONE and window.offset.is_const


def _needs(fusion: Fusion, expr: Reduction | Resize, rows: list[Reduction]) -> bool:
    """Whether an expr is of values that results of one of the reductions are needed for."""
    found = {r.output for r in rows}
    for e in fusion.tensor_exprs:
        if not found.isdisjoint(tensor_inputs(e)):
            found.update(tensor_outputs(e))
    return expr.input in found


def _is_by_element(fusion: Fusion, group: Group) -> bool:
    """Whether what has a dim is computed element by element, until it is reduced, and is no output."""
    graph = fusion.resolved_dims

    def has(t: Tensor) -> bool:
        return any(graph.group(d) is group for d in t.visible)

    def has_last(t: Tensor) -> bool:
        return graph.group(t.visible[-1]) is group

    if any(map(has, fusion.output_tensors)):
        return False
    for e in fusion.tensor_exprs:
        if any(map(has, tensor_outputs(e))):
            is_read = isinstance(e, (Reshape, Resize)) and e.input in fusion.input_tensors
            if not isinstance(e, _BY_ELEMENT) and not is_read:
                return False
        elif any(map(has, tensor_inputs(e))):
            is_pick = isinstance(e, Resize) and has_last(e.input) and _is_pick(e)
            if not isinstance(e, Reduction) and not is_pick:
                return False
    return True


def _unrolled(fusion: Fusion, group: Group) -> Fusion:
    graph = fusion.resolved_dims
    builder = FusionBuilder.of_concrete(fusion)
    replaced: dict[Tensor, Tensor] = {}

    def folded(expr: TensorExpr, made: TensorExpr) -> Sequence[Expr]:
        at = None
        if isinstance(expr, Reduction):
            at = next((k for k, d in enumerate(expr.input.visible) if graph.group(d) is group), None)
        if at is None:
            return (made,)
        assert isinstance(made, Reduction)
        begin = len(builder.exprs)
        replaced[made.output] = _folded(builder, made, at)
        return builder.exprs[begin:]

    return remove_dead_code(replace_exprs(fusion, replaced, folded))


def _folded(builder: FusionBuilder, expr: Reduction, at: int) -> Tensor:
    """A reduction over a dim and others as one over the others, of its elements folded in pairs."""
    source = expr.input
    extents = [ONE if k == at else d.extent for k, d in enumerate(source.visible)]
    parts: list[Tensor] = []
    for k in range(source.visible[at].extent.value):
        windows = [Window(const(k) if d == at else ZERO, ZERO, e) for d, e in enumerate(extents)]
        part = builder.resize(source, windows, extents, None)
        parts.append(builder.squeeze(part, [d == at for d in range(source.ndim)]))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        left = parts[-1:] if len(parts) % 2 else []
        parts = [*(builder.pointwise(REDUCTIONS[expr.op].combine, p, source.dtype) for p in pairs), *left]
    dims = [d for k, d in enumerate(expr.output.logical) if k != at]
    name = expr.output.name
    logical = tuple(IterDomain(f"{name}.row.{k}", d.extent, d.kind, d.expanded) for k, d in enumerate(dims))
    result = replace(expr.output, logical=logical)
    if any(d.is_reduction for d in logical):
        builder.exprs.append(Reduction(expr.op, parts[0], result))
    else:
        builder.exprs[-1] = replace(builder.exprs[-1], output=result)
    return result
