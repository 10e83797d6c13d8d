"""The ops of the DSL, by the names that users call: `fd.ops.add`, `fuser.ops.add`.

Pointwise ops and reductions come from the rows of `fuser.ir.ops.op_table`; others are written out in the modules below.
Names of the contract that are not supported yet exist and raise NotSupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from fuser.errors import NotSupportedError, missing_from_module
from fuser.frontend.elementwise import ELEMENTWISE
from fuser.frontend.factories import FACTORIES
from fuser.frontend.indexing_ops import INDEXING_OPS
from fuser.frontend.library_calls import LIBRARY_CALLS
from fuser.frontend.random_ops import RANDOM_OPS
from fuser.frontend.reductions import REDUCTION_OPS
from fuser.frontend.reshape_ops import RESHAPE_OPS
from fuser.frontend.resize_ops import RESIZE_OPS
from fuser.frontend.scans import SCAN_OPS
from fuser.frontend.shape_ops import SHAPE_OPS
from fuser.frontend.triangles import TRIANGLES
from fuser.tracebacks import short_traceback

UNSUPPORTED: dict[str, str] = {
    "scaled_mm": "matrix products of 8- and 4-bit floats need sm100",
    "cutlass_nvfp4_grouped_mm": "matrix products of 4-bit floats need sm100",
    "preprocess_grouped_matmul_input_sf": "block-scaled formats need sm100",
    "nv_block_quantize": "block-scaled formats need sm100",
    "nv_grouped_block_quantize": "block-scaled formats need sm100",
}
"""Names of the contract that raise NotSupportedError, and why."""


def _unsupported(name: str, reason: str) -> Callable[..., Any]:
    @short_traceback
    def op(*args: object, **kwargs: object) -> Any:
        raise NotSupportedError(f"{name}() is not supported yet: {reason}")

    op.__name__ = op.__qualname__ = name
    op.__module__ = __name__
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
    **LIBRARY_CALLS,
    **FACTORIES,
    **RANDOM_OPS,
    **TRIANGLES,
    **{name: _unsupported(name, reason) for name, reason in UNSUPPORTED.items() if name not in ELEMENTWISE},
}
"""Every op by name; each is also an attribute of this module."""

globals().update(OPS)

__all__ = sorted(OPS)  # type: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__


@short_traceback
def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fuser.frontend.advice import advice_on

    advice = advice_on(name, OPS, "")
    raise missing_from_module(f"there is no op {name!r}{advice}", name)
