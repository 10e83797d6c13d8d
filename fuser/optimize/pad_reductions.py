"""Reduce parts of one tensor over all of it, with what changes nothing outside of them: one pass makes several results.

Before: t3 = sum(sub(t0[1:, :], t0[:-1, :]), [0, 1]); t4 = sum(sub(t0[:, 1:], t0[:, :-1]), [0, 1])
After:  t3 = sum(pad(sub(t0[1:, :], t0[:-1, :])), [0, 1]); t4 = sum(pad(sub(t0[:, 1:], t0[:, :-1])), [0, 1])

Loops over n - 1 rows and over n - 1 columns are two kernels, each of which reads all of `t0`. Padded are reductions that are
over the same extents as others then, along dims where a part begins with the tensor and ends a few elements before it does.

Stands before `hoist_displaced_reads`, which reads the parts in the frame of the whole and leaves a test of what is outside.
"""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.fusion.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    Output,
    Pointwise,
    Reduction,
    Resize,
    Scalar,
    ScalarOp,
    Tensor,
    Window,
    map_expr,
    next_number,
    row_major_order,
    tensor_inputs,
)
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.integers.integers import ZERO, Int
from fuser.ir.ops.reductions import REDUCTIONS
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
    spaces: dict[_Whole, set[tuple[Group, ...]]] = {}
    for e, w in wholes.items():
        spaces.setdefault(w, set()).add(tuple(map(graph.group, e.output.logical)))
    padded = {e: w for e, w in wholes.items() if len(spaces[w]) > 1 and _moves(e, w)}
    if not padded:
        return fusion
    number = next_number(fusion)
    exprs: list[Expr] = []
    replaced: dict[Tensor, Tensor] = {}
    for expr in fusion.exprs:
        if isinstance(expr, ScalarOp):
            exprs.append(expr)
            continue
        if isinstance(expr, ExtentOp):
            exprs.append(ExtentOp(replaced.get(expr.tensor, expr.tensor), expr.dim, expr.output))
            continue
        made = map_expr(expr, replaced)
        if isinstance(expr, Reduction) and expr in padded:
            assert isinstance(made, Reduction)
            pad = _pad(made, padded[expr], number)
            number += 2
            replaced[expr.output] = _result(expr, padded[expr])
            exprs.append(pad)
            made = Reduction(expr.op, pad.output, replaced[expr.output])
        exprs.append(made)
    outputs = tuple(Output(replaced.get(o.tensor, o.tensor), o.alias_of) for o in fusion.outputs)
    return Fusion(fusion.inputs, tuple(exprs), outputs, fusion.constraints, fusion.extent_scalars)


def _whole(fusion: Fusion, expr: Reduction) -> _Whole:
    """What a reduction may be padded to."""
    parts: list[Resize] = []
    tensors: set[Tensor] = set()
    seen: set[Tensor] = set()
    stack = [expr.input]
    while stack:
        t = stack.pop()
        made = fusion.definitions.get(t)
        if t in seen or t.ndim != expr.input.ndim:
            continue
        seen.add(t)
        if isinstance(made, Resize) and made.fill is None and made.output.root is None:
            parts.append(made)
            stack.append(made.input)
        elif isinstance(made, Pointwise) and made.op != "segment_set":
            stack += tensor_inputs(made)
        else:
            tensors.add(t)
    extents = [d.extent for d in expr.input.visible]
    for p, d in enumerate(expr.output.logical):
        # Extents that have to be equal may be written differently.
        own = [extents[p], *(part.output.visible[p].extent for part in parts)]
        for part in parts if d.is_reduction else ():
            given, window = part.input.visible[p].extent, part.windows[p]
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
