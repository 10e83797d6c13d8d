"""What arguments of ops and methods may be, for type checkers: the stubs `ops.pyi` and `handles.pyi` are written with these.

Those that may be values of a fusion stand in `fuser.frontend.handles`. Checks at run time stand in `fuser.frontend.operation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from fuser.ir.ops.dtypes import DataType


class TorchDtype(Protocol):
    """What a `torch.dtype` is, without torch."""

    @property
    def is_floating_point(self) -> bool: ...
    @property
    def is_complex(self) -> bool: ...
    @property
    def is_signed(self) -> bool: ...


Number: TypeAlias = "bool | int | float | complex | np.number[Any] | np.bool_"
"""A number of Python or NumPy."""

Flag: TypeAlias = "bool | np.bool_"
"""A bool of Python or NumPy."""

DtypeName: TypeAlias = Literal[
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "double",
    "half",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
]
"""NumPy's names of the dtypes."""

Dtype: TypeAlias = "DataType | DtypeName | np.dtype[Any] | type[Any] | TorchDtype"
"""What names a dtype (`fuser.ir.ops.dtypes.as_dtype`)."""
