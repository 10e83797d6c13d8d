"""`is_reduced_again`: whether something is reduced of what a tensor is needed for."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Reducing, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.memoized import memoized


def is_reduced_again(fusion: Fusion, tensor: Tensor) -> bool:
    """Whether a reduction needs a tensor, or what is computed of it."""
    return tensor in _reduced(fusion)


@memoized
def _reduced(fusion: Fusion) -> frozenset[Tensor]:
    found: set[Tensor] = set()
    for e in reversed(fusion.tensor_exprs):
        if isinstance(e, Reducing) or not found.isdisjoint(tensor_outputs(e)):
            found.update(tensor_inputs(e))
    return frozenset(found)
