"""Move slices and pads of elementwise ops of inputs, which reshapes are made of, up to the inputs.

Before: t1 = cast(t0, Float); t2 = pad(t1, [1, 1], 0.0); t3 = reshape(t2, [n, 5, 2])
After:  t4 = pad(t0, [1, 1], 0.0); t2 = cast(t4, Float); t3 = reshape(t2, [n, 5, 2])

Runs before `split_reshaped_dims`: a read of an input may give parts of its dims, one of a computed tensor ends a segment there.
`hoist_displaced_reads` moves the others later.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Expr, Fusion, Reshape, Resize, Tensor, tensor_inputs, tensor_outputs
from fuser.optimize.displaced_reads.move_reads import MoveReads


def hoist_reads_of_reshapes(fusion: Fusion) -> Fusion:
    """The same outputs, with slices and pads that reshapes are made of at inputs, where elementwise ops are between."""
    wanted: set[Tensor] = set()
    found: set[Expr] = set()
    for e in reversed(fusion.tensor_exprs):
        outputs = tensor_outputs(e)
        if (isinstance(e, Reshape) and e.is_resolved) or not wanted.isdisjoint(outputs):
            wanted.update(tensor_inputs(e))
        if isinstance(e, Resize) and e.input not in fusion.inputs and e.output in wanted:
            found.add(e)
    return MoveReads(fusion, frozenset(found), at_inputs=True).run() if found else fusion
