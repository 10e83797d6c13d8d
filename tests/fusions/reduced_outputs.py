"""Values that are outputs and reduced as well."""

from __future__ import annotations

from collections.abc import Sequence

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion

D = DataType


def product_and_sums(dims: Sequence[int], rank: int, dtype: DataType, sums: int = 1, *, heavy: bool = False) -> Fusion:
    """x * y, and sums of it, or its statistics, over `dims`."""
    with FusionDefinition() as fd:
        given = [fd.define_tensor([-1] * rank, True, dtype) for _ in range(2)]
        x, y = (fd.ops.cast(t, D.Float) if dtype.is_reduced_float else t for t in given)
        product = x * y
        fd.add_output(fd.ops.cast(product, dtype))
        if heavy:
            for t in fd.ops.var_mean(product, list(dims), 0, False):
                fd.add_output(t)
        for k in range(sums):
            fd.add_output(fd.ops.sum(product if k == 0 else fd.ops.mul(x, float(k + 1)), list(dims)))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion
