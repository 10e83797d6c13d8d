"""`is_reduced_again`: whether something is reduced of what a tensor is needed for."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Reducing, Tensor, tensor_inputs, tensor_outputs


def is_reduced_again(fusion: Fusion, tensor: Tensor) -> bool:
    """Whether a reduction needs a tensor, or what is computed of it."""
    found = {tensor}
    for e in fusion.tensor_exprs:
        if not found.isdisjoint(tensor_inputs(e)):
            if isinstance(e, Reducing):
                return True
            found.update(tensor_outputs(e))
    return False
