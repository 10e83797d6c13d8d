"""Reduce parts of one tensor over all of it, with what changes nothing outside of them: one pass makes several results.

Before: t3 = sum(sub(t0[1:, :], t0[:-1, :]), [0, 1]); t4 = sum(sub(t0[:, 1:], t0[:, :-1]), [0, 1])
After:  t3 = sum(pad(sub(t0[1:, :], t0[:-1, :])), [0, 1]); t4 = sum(pad(sub(t0[:, 1:], t0[:, :-1])), [0, 1])

Loops over n - 1 rows and over n - 1 columns are two kernels, each of which reads all of `t0`. Padded are reductions that are
over the same extents as others of the same tensor then, along dims where a part begins with the tensor and ends a few elements
before it does.

Stands before `hoist_displaced_reads`, which reads the parts in the frame of the whole and leaves a test of what is outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from fuser.ir.fusion.fusion import (
    Broadcast,
    Expr,
    Fusion,
    IterDomain,
    Pointwise,
    Reduction,
    Resize,
    Scalar,
    Squeeze,
    Tensor,
    TensorExpr,
    Window,
    next_number,
    row_major_order,
    tensor_inputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.integers.integers import ZERO, Int
from fuser.ir.ops.reductions import REDUCTIONS
from fuser.optimize.replace_exprs import replace_exprs
from fuser.records import record


@record
class _Whole:
    """What an operand is computed of, element by element, and per dim the extent to reduce over."""

    tensors: frozenset[Tensor]
    extents: tuple[Int, ...]


def pad_reductions(fusion: Fusion) -> Fusion:
    """The same outputs, with reductions of parts of a tensor over equal extents."""
    wholes = {e: _whole(fusion, e) for e in fusion.tensor_exprs if isinstance(e, Reduction)}
    graph = fusion.resolved_dims
    spaces: dict[tuple[Int, ...], list[tuple[Tensor, tuple[Group, ...]]]] = {}
    for e, w in wholes.items():
        dims = tuple(map(graph.group, e.output.logical))
        spaces.setdefault(w.extents, []).extend((t, dims) for t in w.tensors)

    def is_beside_others(expr: Reduction, whole: _Whole) -> bool:
        dims = tuple(map(graph.group, expr.output.logical))
        return any(t in whole.tensors and others != dims for t, others in spaces[whole.extents])

    padded = {e: w for e, w in wholes.items() if _moves(e, w) and is_beside_others(e, w)}
    if not padded:
        return fusion
    numbers = count(next_number(fusion), 2)
    replaced: dict[Tensor, Tensor] = {}

    def padded_first(expr: TensorExpr, made: TensorExpr) -> Iterator[Expr]:
        if isinstance(expr, Reduction) and expr in padded:
            assert isinstance(made, Reduction)
            pad = _pad(made, padded[expr], next(numbers))
            replaced[expr.output] = _result(expr, padded[expr])
            yield pad
            made = Reduction(expr.op, pad.output, replaced[expr.output])
        yield made

    return replace_exprs(fusion, replaced, padded_first)


def _whole(fusion: Fusion, expr: Reduction) -> _Whole:
    """What a reduction may be padded to."""
    # Per part, and per dim of the reduction's operand, the dim of the part.
    parts: list[tuple[Resize, Mapping[int, int]]] = []
    tensors: set[Tensor] = set()
    seen: set[Tensor] = set()
    stack = [(expr.input, {d: d for d in range(expr.input.ndim)})]
    while stack:
        t, places = stack.pop()
        made = fusion.definitions.get(t)
        if t in seen or not places:
            continue
        seen.add(t)
        match made:
            case Resize(fill=None) if made.output.root is None:
                parts.append((made, places))
                stack.append((made.input, places))
            case Pointwise() if made.op != "segment_set":
                stack += [(v, places) for v in tensor_inputs(made)]
            case Squeeze(source, _, flags):
                kept = [d for d, gone in enumerate(flags) if not gone]
                stack.append((source, {p: kept[d] for p, d in places.items()}))
            case Broadcast(source, _, flags):
                kept = [d for d, new in enumerate(flags) if not new]
                stack.append((source, {p: kept.index(d) for p, d in places.items() if d in kept}))
            case _:
                tensors.add(t)
    extents = [d.extent for d in expr.input.visible]
    for p, d in enumerate(expr.output.logical):
        # Extents that have to be equal may be written differently.
        of_dim = [(part, places[p]) for part, places in parts if p in places]
        own = [extents[p], *(part.output.visible[k].extent for part, k in of_dim)]
        for part, k in of_dim if d.is_reduction else ():
            given, window = part.input.visible[k].extent, part.windows[k]
            if window.offset is ZERO and not window.pieces and any(_is_most(e, given) for e in own):
                extents[p] = given
    return _Whole(frozenset(tensors), tuple(extents))


def _is_most(part: Int, whole: Int) -> bool:
    """Whether a part lacks a number of elements that is known, and not most of them."""
    lacking = whole - part
    if part.is_const and whole.is_const:
        return whole.value <= 2 * part.value
    return lacking.hi is not None and lacking.lo is not None and lacking.lo >= 0


def _moves(expr: Reduction, whole: _Whole) -> bool:
    return any(d.extent is not e for d, e in zip(expr.input.visible, whole.extents, strict=True))


def _pad(expr: Reduction, whole: _Whole, number: int) -> Resize:
    source, name = expr.input, f"t{number}"
    dims = tuple(
        IterDomain(f"{name}.{i}", e, d.kind, d.expanded)
        for i, (d, e) in enumerate(zip(source.visible, whole.extents, strict=True))
    )
    contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in dims)
    order = row_major_order(len(dims))
    output = Tensor(name, source.dtype, dims, order, contiguity, None, source.is_cpu, source.location)
    value = REDUCTIONS[expr.op].identity(source.dtype)
    fill = Scalar(f"c{number + 1}", source.dtype, value, None, source.location)
    return Resize(source, output, tuple(Window(ZERO, ZERO, d.extent) for d in source.visible), fill)


def _result(expr: Reduction, whole: _Whole) -> Tensor:
    """The result, with the dims that are reduced as they are now."""
    dims = tuple(
        replace(d, name=f"{d.name}.whole", extent=e) if d.is_reduction else d
        for d, e in zip(expr.output.logical, whole.extents, strict=True)
    )
    return replace(expr.output, logical=dims)
