"""Which values show in an output to more than 16 bits: those are worth computing more exactly than 16 bits ask for."""

from __future__ import annotations

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import tensor_inputs, tensor_outputs
from fuser.ir.scheduled_fusion import ScheduledFusion

WIDE = (DataType.Float, DataType.Double)


def wide_results(builder: ScheduledFusion) -> frozenset[str]:
    """Names of the Float and Double tensors that an output of these dtypes depends on, without a 16-bit value between."""
    wide = {name for name in builder.output_names if builder.state(name).tensor.dtype in WIDE}
    for expr in reversed(builder.exprs):
        if any(t.name in wide for t in tensor_outputs(expr)):
            wide.update(t.name for t in tensor_inputs(expr) if t.dtype in WIDE)
    return frozenset(wide)
