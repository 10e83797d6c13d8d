"""Which values show in an output to more than 16 bits: those are worth computing more exactly than 16 bits ask for."""

from __future__ import annotations

from fuser.ir.approximate_ops import ROUND_TO_BFLOAT16
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Pointwise, tensor_inputs, tensor_outputs
from fuser.ir.memoized import memoized_while_unchanged
from fuser.ir.scheduled_fusion import ScheduledFusion

WIDE = (DataType.Float, DataType.Double)


@memoized_while_unchanged
def wide_results(builder: ScheduledFusion) -> frozenset[str]:
    """Names of the Float and Double tensors that an output of these dtypes depends on, without a 16-bit value between."""
    wide = {name for name in builder.output_names if builder.state(name).tensor.dtype in WIDE}
    for expr in reversed(builder.exprs):
        rounds = isinstance(expr, Pointwise) and expr.op == ROUND_TO_BFLOAT16.name
        if not rounds and any(t.name in wide for t in tensor_outputs(expr)):
            wide.update(t.name for t in tensor_inputs(expr) if t.dtype in WIDE)
    return frozenset(wide)
