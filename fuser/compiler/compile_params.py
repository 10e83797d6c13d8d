"""`CompileParams`: compile settings of a manual execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.compiler.kernel_compiler import CompileOptions
from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.dtypes import DataType
from fuser.tracebacks import short_tracebacks


@short_tracebacks
class CompileParams:
    """Settings, all keywords, all assignable.

    index_type            DataType.Int32, DataType.Int or None (chosen from sizes)
    maxrregcount          registers per thread; 255 sets no cap
    enable_ptxas_verbose  accepted: the report is always made
    device, include_paths, enable_magic_zero  accepted for compatibility; include_paths must be empty, no header is used
    """

    __slots__ = ("device", "enable_magic_zero", "enable_ptxas_verbose", "include_paths", "index_type", "maxrregcount")

    def __init__(
        self,
        *,
        index_type: DataType | None = None,
        maxrregcount: int = 255,
        enable_magic_zero: bool = True,
        enable_ptxas_verbose: bool = False,
        device: Any = None,
        include_paths: Sequence[str] = (),
    ) -> None:
        self.index_type = index_type
        self.maxrregcount = maxrregcount
        self.enable_magic_zero = enable_magic_zero
        self.enable_ptxas_verbose = enable_ptxas_verbose
        self.device = device
        self.include_paths = list(include_paths)

    def options(self) -> CompileOptions:
        """The compile options these settings stand for. Raises DefinitionRuntimeError for settings without meaning."""
        widths = {None: None, DataType.Int32: 32, DataType.Int: 64}
        if self.index_type not in widths:
            raise DefinitionRuntimeError(
                f"index_type must be DataType.Int32, DataType.Int or None, got {self.index_type!r}"
            )
        if not isinstance(self.maxrregcount, int) or not 1 <= self.maxrregcount <= 255:
            raise DefinitionRuntimeError(f"maxrregcount must be an int in 1..255, got {self.maxrregcount!r}")
        if self.include_paths:
            raise DefinitionRuntimeError("include_paths must be empty: generated source includes no header")
        cap = self.maxrregcount if self.maxrregcount < 255 else None
        return CompileOptions(register_cap=cap, index_bits=widths[self.index_type])

    def __repr__(self) -> str:
        return f"CompileParams({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompileParams):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]
