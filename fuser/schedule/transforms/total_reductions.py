"""Reductions of all elements beside reductions of rows: over a row first, then over what that leaves.

Before: t3 = sum(t0, dims=[1]); ...; t9 = sum(t8, dims=[0, 1])
After:  t3 = sum(t0, dims=[1]); ...; t10 = sum(t8, dims=[1]); t9 = sum(t10, dims=[0])

The mean square of normalised rows is then a reduction chained to those of the rows (`schedulers/chained_reduction.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fuser.ir.fusion import (
    Expr,
    ExtentOp,
    Fusion,
    IterDomain,
    IterKind,
    Reducing,
    Reduction,
    ScalarOp,
    Tensor,
    TensorExpr,
    map_expr,
    row_major_order,
    tensor_outputs,
)
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.ir.op_table import compute_dtype
from fuser.ir.schedule import ScheduleBuilder
from fuser.schedule.analysis.reference import resolving_graph


def total_reductions(exprs: Iterable[TensorExpr], graph: IterationGraph) -> dict[Reduction, tuple[int, ...]]:
    """Reductions over the dims that others of the same iteration space reduce, and all its others: the dims to reduce first.

    `graph`: the resolving view.
    """
    reduced: dict[Reducing, frozenset[Group]] = {}
    size: dict[Reducing, int] = {}
    for e in exprs:
        if isinstance(e, Reducing):
            dims = [(d.is_reduction, graph.group(d)) for d in tensor_outputs(e)[0].logical]
            reduced[e] = frozenset(g for is_reduced, g in dims if is_reduced and not g.is_broadcast)
            size[e] = sum(not g.is_broadcast for _, g in dims)
    if len(set(reduced.values())) < 2:
        return {}
    largest = [e for e, n in size.items() if n == max(size.values())]
    along = min((reduced[e] for e in largest), key=len)
    found: dict[Reduction, tuple[int, ...]] = {}
    for e in largest:
        if isinstance(e, Reduction) and along and along < reduced[e] and len(reduced[e]) == size[e]:
            logical = e.output.logical
            found[e] = tuple(i for i, d in enumerate(logical) if d.is_reduction and graph.group(d) in along)
    return found


def rfactor_totals(builder: ScheduleBuilder) -> None:
    """Cut them in two in a schedule; before any other verb."""
    for e, axes in total_reductions(builder.exprs, builder.graph()).items():
        builder.rfactor(e.output.name, axes)


@memoized
def split_totals(segment: Fusion) -> Fusion:
    """What the segment of such a schedule computes, as a fusion: the same one if it has no such reductions."""
    totals = total_reductions(segment.tensor_exprs, resolving_graph(segment))
    if not totals:
        return segment
    exprs: list[Expr] = []
    made: dict[Tensor, Tensor] = {}
    for e in segment.exprs:
        if isinstance(e, Reduction) and e in totals:
            rows, made[e.output] = _parts(e, totals[e])
            exprs += [Reduction(e.op, e.input, rows), Reduction(e.op, rows, made[e.output])]
        else:
            exprs.append(e if isinstance(e, (ScalarOp, ExtentOp)) else map_expr(e, made))
    outputs = tuple(replace(o, tensor=made.get(o.tensor, o.tensor)) for o in segment.outputs)
    return replace(segment, exprs=tuple(exprs), outputs=outputs)


def _parts(e: Reduction, first: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What a total reduction leaves after the dims `first`, and its result."""
    t = e.output
    name = f"{t.name}_rows"
    # A dim that is not reduced is of one element: it stays in both.
    left = {IterKind.reduction: IterKind.iteration}
    kinds = [d.kind if i in first else left.get(d.kind, d.kind) for i, d in enumerate(t.logical)]
    dims = tuple(IterDomain(f"{name}.{i}", d.extent, k) for i, (d, k) in enumerate(zip(t.logical, kinds, strict=True)))
    dtype = compute_dtype(t.dtype) if t.dtype.is_reduced_float else t.dtype
    kept = len(dims) - len(first)
    contiguity = tuple(None if k is IterKind.broadcast else True for k in kinds if k is not IterKind.reduction)
    rows = Tensor(name, dtype, dims, row_major_order(kept), contiguity, location=t.location)
    rest = [d for i, d in enumerate(t.logical) if i not in first]
    logical = tuple(IterDomain(f"{t.name}.{i}", d.extent, d.kind) for i, d in enumerate(rest))
    return rows, replace(t, logical=logical)
