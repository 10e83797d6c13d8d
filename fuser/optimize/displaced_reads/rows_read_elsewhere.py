"""Reductions and scans that are worth computing again where a row is read at another place.

    t1 = sum(mul(t0, t0), [2]); t2 = mul(t0, rsqrt(broadcast(t1))); t3 = roll(t2, dim 1)

A row of `t3` is a row of `t2`, with its own statistics: read from the input at its place it is normalised there, in one kernel.
Only what has all of the row is asked for in this way. The statistics by themselves, read elsewhere (a filter along channels of
their means), are few numbers, and to compute them again is to read every row again.

    t1 = cumprod(t0, 1); t2 = slice(t1, [:, :-1]); t3 = pad(t2, [1, 0], 1.0)

The elements of a scan before each of its own, as transmittances and offsets are, are a scan of what is before each element.
"""

from __future__ import annotations

import math

from fuser.ir.fusion.fusion import (
    Fusion,
    Reduction,
    Resize,
    Scan,
    Tensor,
    Welford,
    Window,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.iteration_graph import IterationGraph
from fuser.ir.integers.integers import Int

MAX_PLACES = 2
"""Places where a row is computed. A filter of more taps reads stored rows."""

_FEW = 8
"""Elements of a reduction each of which is read where its result is read."""

_Reads = tuple[Resize, ...]
"""Displaced reads one behind another, the first one first."""


def reduced_extents(expr: Reduction | Welford) -> list[Int]:
    """Of the dims that are reduced."""
    produced = tensor_outputs(expr)[0].produced
    return [d.extent for d, made in zip(expr.input.visible, produced, strict=True) if made.is_reduction]


def has_few_elements(expr: Reduction | Welford) -> bool:
    """Whether few elements make a result, as the definition says."""
    counts = reduced_extents(expr)
    return all(n.is_const for n in counts) and 0 < math.prod(n.value for n in counts) <= _FEW


def rows_read_elsewhere(fusion: Fusion) -> frozenset[Reduction | Welford | Scan]:
    """Reductions of many elements that only displaced reads of all that they reduce see from elsewhere, in few places; scans
    of which these show the first elements."""
    reads: dict[Tensor, frozenset[_Reads]] = {t: frozenset({()}) for t in fusion.output_tensors}
    found: set[Reduction | Welford | Scan] = set()
    graph = fusion.resolved_dims
    for e in reversed(fusion.tensor_exprs):
        behind = frozenset[_Reads]().union(*(reads.get(t, frozenset()) for t in tensor_outputs(e)))
        if isinstance(e, Resize):
            behind = frozenset((e, *r) for r in behind)
        elif isinstance(e, (Reduction, Welford)) and not has_few_elements(e):
            reduced = {graph.group(d) for d in tensor_outputs(e)[0].produced if d.is_reduction}
            first = [r[0].input for r in behind if r]
            if first and all(reduced <= {graph.group(d) for d in t.visible} for t in first):
                found.update([e] if len(behind) <= MAX_PLACES else [])
        elif isinstance(e, Scan) and any(behind) and all(_show_first(graph, e, r) for r in behind):
            found.update([e] if len(behind) <= MAX_PLACES else [])
        for t in tensor_inputs(e):
            # More than that many say all that is asked.
            reads[t] = frozenset(sorted(reads.get(t, frozenset()) | behind, key=_order)[: MAX_PLACES + 1])
    return frozenset(found)


def shows_first(window: Window) -> bool:
    """Whether a window shows elements from the first on, in order, behind others perhaps."""
    return window.step == 1 and not window.pieces and window.offset.is_const and window.offset.value <= 0


def _show_first(graph: IterationGraph, scan: Scan, reads: _Reads) -> bool:
    """Whether displaced reads one behind another show the first elements of the scanned dim."""
    along = graph.group(scan.axis)
    for read in reads:
        dim = next((d for d, own in enumerate(read.input.visible) if graph.group(own) is along), None)
        if dim is None or not shows_first(read.windows[dim]):
            return False
        along = graph.group(read.output.produced[dim])
    return True


def _order(reads: _Reads) -> tuple[str, ...]:
    return tuple(r.output.name for r in reads)
