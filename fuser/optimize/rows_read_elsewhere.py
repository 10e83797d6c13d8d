"""Reductions that are worth computing again where a normalised row is read at another place.

    t1 = sum(mul(t0, t0), [2]); t2 = mul(t0, rsqrt(broadcast(t1))); t3 = roll(t2, dim 1)

A row of `t3` is a row of `t2`, with its own statistics: read from the input at its place it is normalised there, in one kernel.
Only what has all of the row is asked for in this way. The statistics by themselves, read elsewhere (a filter along channels of
their means), are few numbers, and to compute them again is to read every row again.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Reduction, Resize, Tensor, Welford, tensor_inputs, tensor_outputs

MAX_PLACES = 2
"""Places where a row is computed. A filter of more taps reads stored rows."""

_Reads = tuple[Resize, ...]
"""Displaced reads one behind another, the first one first."""


def rows_read_elsewhere(fusion: Fusion) -> frozenset[Reduction | Welford]:
    """Reductions that only displaced reads of all that they reduce see from elsewhere, in few places."""
    reads: dict[Tensor, frozenset[_Reads]] = {t: frozenset({()}) for t in fusion.output_tensors}
    found: set[Reduction | Welford] = set()
    graph = fusion.resolved_dims
    for e in reversed(fusion.tensor_exprs):
        behind = frozenset[_Reads]().union(*(reads.get(t, frozenset()) for t in tensor_outputs(e)))
        if isinstance(e, Resize):
            behind = frozenset((e, *r) for r in behind)
        elif isinstance(e, (Reduction, Welford)):
            reduced = {graph.group(d) for d in tensor_outputs(e)[0].produced if d.is_reduction}
            first = [r[0].input for r in behind if r]
            if first and all(reduced <= {graph.group(d) for d in t.visible} for t in first):
                found.update([e] if len(behind) <= MAX_PLACES else [])
        for t in tensor_inputs(e):
            # More than that many say all that is asked.
            reads[t] = frozenset(sorted(reads.get(t, frozenset()) | behind, key=_order)[: MAX_PLACES + 1])
    return frozenset(found)


def _order(reads: _Reads) -> tuple[str, ...]:
    return tuple(r.output.name for r in reads)
