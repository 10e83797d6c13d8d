"""What arguments of ops and methods may be, for type checkers: the stubs `ops.pyi` and `handles.pyi` are written with these.

Checks at run time stand in `fuser.frontend.operation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from types import EllipsisType

    import numpy as np

    from fuser.frontend.handles import Val
    from fuser.ir.dtypes import DataType


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

Operand: TypeAlias = "Val | Number"
"""A tensor, a scalar of the fusion or a number."""

Flag: TypeAlias = "bool | np.bool_"
"""A bool of Python or NumPy."""

Extent: TypeAlias = "Val | SupportsIndex"
"""An entry of a shape or a position: an int or an integer scalar of the fusion."""

Subscript: TypeAlias = "SupportsIndex | Val | slice[Any, Any, Any] | EllipsisType | None"
"""An item between the brackets of `tensor[...]`."""

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
"""What names a dtype (`fuser.ir.dtypes.as_dtype`)."""
