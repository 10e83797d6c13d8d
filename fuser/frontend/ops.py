"""The ops of the DSL, by the names that users call: `fd.ops.add`, `fuser.ops.add`.

Pointwise ops and reductions come from the rows of `fuser.ir.op_table`; others are written out in the modules below.
Names of the contract that are not supported yet exist and raise NotSupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuser.errors import NotSupportedError
from fuser.frontend.elementwise import ELEMENTWISE
from fuser.frontend.factories import FACTORIES
from fuser.frontend.indexing_ops import INDEXING_OPS
from fuser.frontend.random_ops import RANDOM_OPS
from fuser.frontend.reductions import REDUCTION_OPS
from fuser.frontend.reshape_ops import RESHAPE_OPS
from fuser.frontend.resize_ops import RESIZE_OPS
from fuser.frontend.scans import SCAN_OPS
from fuser.frontend.shape_ops import SHAPE_OPS
from fuser.frontend.triangles import TRIANGLES
from fuser.source_location import caller_location

UNSUPPORTED: dict[str, str] = {
    "matmul": "matrix products come with the matmul and library schedulers",
    "linear": "matrix products come with the matmul and library schedulers",
    "grouped_mm": "matrix products come with the matmul and library schedulers",
    "scaled_mm": "matrix products of 8- and 4-bit floats need sm100",
    "cutlass_nvfp4_grouped_mm": "matrix products of 4-bit floats need sm100",
    "sdpfa_fwd": "attention comes with the library scheduler",
    "sdpfa_bwd": "attention comes with the library scheduler",
    "scatter": "indexing ops are not lowered yet",
    "preprocess_grouped_matmul_input_sf": "block-scaled formats need sm100",
    "topk": "sorting is not lowered yet",
    "argsort": "sorting is not lowered yet",
    "nv_block_quantize": "block-scaled formats need sm100",
    "nv_grouped_block_quantize": "block-scaled formats need sm100",
}
"""Names of the contract that raise NotSupportedError, and why."""


def _unsupported(name: str, reason: str) -> Callable[..., Any]:
    def op(*args: object, **kwargs: object) -> Any:
        raise NotSupportedError(f"{name}() is not supported yet: {reason}", location=caller_location())

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"Not supported yet: {reason}."
    return op


OPS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **REDUCTION_OPS,
    **SCAN_OPS,
    **SHAPE_OPS,
    **RESHAPE_OPS,
    **RESIZE_OPS,
    **INDEXING_OPS,
    **FACTORIES,
    **RANDOM_OPS,
    **TRIANGLES,
    **{name: _unsupported(name, reason) for name, reason in UNSUPPORTED.items() if name not in ELEMENTWISE},
}
"""Every op by name; each is also an attribute of this module."""

globals().update(OPS)

__all__ = sorted(OPS)  # type: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
