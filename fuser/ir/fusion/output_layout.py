"""Memory order of outputs: a function of the definition alone, so that equal definitions give equal strides.

An output is row major, unless the definition says otherwise (docs/decisions/0014-memory-order-of-outputs.md):
1. An output that updates an input lies as that does; an input that is returned, and a result of `stride_order`, as given.
2. Of the inputs, and results of `stride_order`, that the output depends on, those count that have every one of its dims, in an
   order of memory in which a view of them could show the output's dims: ops keep dims apart, and what a reshape merges lies
   side by side. If these agree, the output lies as they do.

Dims of extent 1 lie anywhere, and say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeGuard

from fuser.ir.fusion.dim_pairs import dim_pairs, displaced_dims
from fuser.ir.fusion.fusion import (
    Expr,
    Fusion,
    IterDomain,
    Permute,
    Pointwise,
    Reshape,
    Tensor,
    TensorExpr,
    memory_order,
    row_major_order,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.live_order import exprs_below
from fuser.ir.fusion.views import runs_of
from fuser.records import record


def output_stride_order(fusion: Fusion, output: Tensor) -> tuple[int, ...]:
    """Per visible dim of an output, its rank from fastest (0) to slowest."""
    return output_stride_orders(fusion)[output]


def output_stride_orders(fusion: Fusion) -> dict[Tensor, tuple[int, ...]]:
    """`output_stride_order` of every output."""
    aliases = {o.tensor: o.alias_of for o in fusion.outputs if o.alias_of is not None}
    orders: dict[Tensor, tuple[int, ...]] = {}
    for output in fusion.output_tensors:
        target = aliases.get(output)
        if target is not None:
            orders[output] = target.stride_order
        elif (
            gives_order(fusion.definitions.get(output))
            or output in fusion.input_tensors
            or output.stride_order != row_major_order(output.ndim)
        ):
            orders[output] = output.stride_order
        else:
            orders[output] = _inherited_order(fusion, output)
    return orders


def gives_order(expr: Expr | None) -> TypeGuard[Pointwise]:
    """Whether the definition says the memory order of the result itself."""
    return isinstance(expr, Pointwise) and expr.op == "stride_order"


def _inherited_order(fusion: Fusion, output: Tensor) -> tuple[int, ...]:
    row_major = row_major_order(output.ndim)
    stored = [d for d in output.visible if not d.is_broadcast]
    below = [e for e in exprs_below([output], fusion.definitions) if isinstance(e, TensorExpr)]
    read = {t for e in below for t in tensor_inputs(e)}
    sources = [t for t in fusion.input_tensors if t in read]
    sources += [tensor_outputs(e)[0] for e in below if gives_order(e)]
    if all(t.stride_order == row_major_order(t.ndim) for t in sources) and not any(
        isinstance(e, Permute) for e in below
    ):
        return row_major  # nothing else puts dims in another order
    places = _places_below(output, below)
    found = [s for s in (_shown(t, places, stored) for t in sources) if s is not None]
    agreed = {tuple(d for d in dims if not d.is_broadcast) for dims in found}
    if len(agreed) != 1 or agreed == {tuple(stored)}:
        return row_major
    # Dims of extent 1 that the source does not have are outermost.
    dims = [*(d for d in output.visible if d not in found[0]), *found[0]]
    return tuple(len(dims) - 1 - dims.index(d) for d in output.visible)


# --- where dims of the output come from -------------------------------------------------------------------------------


@record
class _Part:
    """One of the dims, slowest first, that a reshape merges into `whole`."""

    whole: Place
    index: int
    count: int


Place: TypeAlias = tuple[IterDomain | _Part, ...]
"""What stands in the output for a dim, slowest first. Empty for a dim that is reduced or otherwise gone."""
Places: TypeAlias = dict[IterDomain, Place | None]
"""None for a dim that stands in several places, as both do in `x + transpose(x)`."""


def _places_below(output: Tensor, below: Sequence[TensorExpr]) -> Places:
    """The places of the dims of everything that `output` is computed from, by exprs in order."""
    places: Places = {d: (d,) for d in output.visible}
    for expr in reversed(below):
        if gives_order(expr):
            continue
        if isinstance(expr, Reshape) and expr.is_resolved:
            _place_merged(expr, places)
        for producer in tensor_inputs(expr):
            for consumer in tensor_outputs(expr):
                # A sliced or padded dim keeps its place in memory.
                for a, b in (*dim_pairs(expr, producer, consumer), *displaced_dims(expr, producer, consumer)):
                    if b in places and a.is_broadcast == b.is_broadcast:
                        places[a] = places[b] if places.get(a, places[b]) == places[b] else None
    return places


def _place_merged(expr: Reshape, places: Places) -> None:
    """Places of the dims of a reshape's operand from those of its result."""
    for run in runs_of(expr):
        whole: list[IterDomain | _Part] = []
        is_clear = True
        for j in run.outputs:
            place = places.get(expr.output.logical[j], ())
            is_clear &= place is not None
            whole += place or ()
        for i, position in enumerate(run.inputs):
            one = tuple(whole) if len(run.inputs) == 1 else (_Part(tuple(whole), i, len(run.inputs)),)
            places[expr.output.produced[position]] = one if is_clear else None


def _shown(source: Tensor, places: Places, stored: Sequence[IterDomain]) -> list[IterDomain] | None:
    """Dims of the output in the memory order of `source`, slowest first, if it has all that hold more than one element."""
    found: list[IterDomain | _Part] = []
    for d in memory_order(source.stride_order):
        dim = source.visible[d]
        place = () if dim.expanded else places.get(dim, ())
        if place is None:
            return None
        found += place
    joined = _joined(found)
    dims = [p for p in joined if isinstance(p, IterDomain)]
    is_clear = len(dims) == len(set(dims)) == len(joined)
    return dims if is_clear and all(d in dims for d in stored) else None


def _joined(places: Sequence[IterDomain | _Part]) -> Place:
    """Parts that lie side by side, in order, as the whole that they are."""
    found = list(places)
    i = 0
    while i < len(found):
        first = found[i]
        if isinstance(first, _Part) and first.index == 0:
            parts = [_Part(first.whole, k, first.count) for k in range(first.count)]
            if found[i : i + first.count] == parts:
                found[i : i + first.count] = first.whole
                i = 0
                continue
        i += 1
    return tuple(found)
