"""Move slices, pads and gathers up to the inputs, so that a kernel computes in the frame of their results.

Before: t1 = exp(t0); t2 = slice(t1, 8:16); t3 = neg(t2)
After:  t4 = slice(t0, 8:16); t5 = exp(t4); t3 = neg(t5)

Before: t2 = index_select(t0, t1, 0); t3 = slice(t2, [:, 8:16])
After:  t3 = index_select(slice(t0, [:, 8:16]), t1, 0)                    one read, a Gather with windows

What is left on a computed tensor (a reduction, a reshape) ends a segment. How reads move: displaced_reads/.

Behind a pad of a computed tensor a Resize remains that moves nothing and fills what is outside, unless the ops compute what
fills from what fills (a cast, a product with 0): then the reads fill. The parts of a Cat need none.

Before: t1 = cast(t0, Float); t2 = pad(t1, [1, 1], 0.0)
After:  t3 = pad(t0, [1, 1], 0.0); t2 = cast(t3, Float)

A row that is normalised and read at another place is normalised there, if few places read it
(displaced_reads/rows_read_elsewhere.py):

Before: t1 = sum(t0[n, m], [1]); t2 = div(t0, broadcast(t1)); t3 = slice(t2, 8:16)
After:  t4 = slice(t0, 8:16); t5 = sum(t4, [1]); t3 = div(t4, broadcast(t5))

A Squeeze of a dim that is known to have one element, though it is not broadcast, is such a read as well, of element 0, where
a reduction runs over this dim together with others that its operand does not have: threads are spread over those.

Before: t2 = sum(mul(t0[n, b 1], t1[n, m]), [0, 1]); t3 = squeeze(t0, [0, 1])     constraint n == 1
After:  t4 = slice(t0, 0:1); t3 = squeeze(t4, [0, 1])
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Cat, Expr, Fusion, Gather, Reducing, Resize, Squeeze, tensor_outputs
from fuser.optimize.displaced_reads.move_reads import MoveReads


def hoist_displaced_reads(fusion: Fusion) -> Fusion:
    """The same outputs, with displaced reads at inputs as far as they can go."""
    moved: set[Expr] = {e for e in fusion.exprs if isinstance(e, (Resize, Gather)) and e.input not in fusion.inputs}
    moved |= _picking_squeezes(fusion)
    if not moved:
        return fusion
    moved.update(e for e in fusion.exprs if isinstance(e, Cat))
    return MoveReads(fusion, frozenset(moved), at_inputs=False).run()


def _picking_squeezes(fusion: Fusion) -> set[Squeeze]:
    """Squeezes that read the only element of a dim along which others go, together with dims that the operand does not have."""
    squeezes = [e for e in fusion.exprs if isinstance(e, Squeeze)]
    picked = {
        e: [d for d, gone in zip(e.input.visible, e.flags, strict=True) if gone and not d.is_broadcast]
        for e in squeezes
    }
    if not any(picked.values()):
        return set()
    graph = fusion.resolved_dims
    reduced = [
        {graph.group(d) for d in tensor_outputs(e)[0].produced if d.is_reduction}
        for e in fusion.exprs
        if isinstance(e, Reducing)
    ]
    found: set[Squeeze] = set()
    for e, dims in picked.items():
        own, gone = graph.concrete_groups(e.input.visible), {graph.group(d) for d in dims}
        if any(groups & gone and not groups <= own for groups in reduced):
            found.add(e)
    return found
