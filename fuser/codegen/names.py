"""C identifiers for what a kernel names: stable, readable, each used for one thing."""

from __future__ import annotations

import re

from fuser.errors import InternalError
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.kernel.kernel import SIZE_SYMBOLS, THREAD_SYMBOLS, Buffer
from fuser.ir.ops.enums import ParallelType
from fuser.ir.ops.op_table import POINTWISE

_SHORT = {
    ParallelType.grid_x: ("bid_x", "grid_dim_x"),
    ParallelType.grid_y: ("bid_y", "grid_dim_y"),
    ParallelType.grid_z: ("bid_z", "grid_dim_z"),
    ParallelType.block_x: ("tid_x", "block_dim_x"),
    ParallelType.block_y: ("tid_y", "block_dim_y"),
    ParallelType.block_z: ("tid_z", "block_dim_z"),
}
# The hardware's position and size symbols: the variable that holds each, and what it is read from.
BUILTINS: dict[Symbol, str] = {
    **{symbol: _SHORT[axis][0] for axis, symbol in THREAD_SYMBOLS.items()},
    **{symbol: _SHORT[axis][1] for axis, symbol in SIZE_SYMBOLS.items()},
}

_RESERVED = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do
    double else enum explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not nullptr operator or private protected public register return short signed sizeof static struct switch
    template this throw true try typedef typename union unsigned using virtual void volatile wchar_t while xor
    index_t shared_memory threadIdx blockIdx blockDim gridDim warpSize
"""
# Ops that are spelled like themselves, and the others that texts of ops call.
_FUNCTIONS = frozenset((*POINTWISE, "fabs", "rint"))
_FOREIGN = re.compile(r"[^A-Za-z0-9_]+")


class Names:
    """The identifiers of one kernel. Symbols and buffers are declared before they are looked up."""

    def __init__(self) -> None:
        self._taken: set[str] = {*_RESERVED.split(), *BUILTINS.values()}
        self.symbols = _SymbolNames(self)
        self.buffers = _BufferNames(self)
        self.scalars: dict[str, str] = {}
        self.divisors: dict[Int, str] = {}

    def fresh(self, wanted: str) -> str:
        """An identifier like `wanted` that nothing else has."""
        base = _FOREIGN.sub("_", wanted).strip("_") or "x"
        # A digit cannot come first; device functions and types start with `fuser_`; math functions keep their names.
        if base[0].isdigit() or base.startswith("fuser_") or base.removesuffix("f") in _FUNCTIONS:
            base = f"v_{base}"
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


class _SymbolNames(dict[Symbol, str]):
    """Names of symbols. `builtins` collects the hardware symbols that were asked for."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self.builtins: dict[Symbol, str] = {}

    def declare(self, symbol: Symbol) -> str:
        """The name of a symbol that is being defined; the same one where a sibling scope defined it before."""
        name = self.get(symbol)
        if name is None:
            name = self[symbol] = self._names.fresh(symbol.name)
        return name

    def __missing__(self, symbol: Symbol) -> str:
        name = BUILTINS.get(symbol)
        if name is None:
            raise InternalError(
                f"the index symbol {symbol.name} is used but defined nowhere before", pass_name="generate_cuda"
            )
        self.builtins[symbol] = name
        self[symbol] = name
        return name


class _BufferNames(dict[Buffer, str]):
    """Names of buffers."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names

    def declare(self, buffer: Buffer) -> str:
        """The name of a buffer that comes into scope; the same one where a sibling scope allocated it before."""
        name = self.get(buffer)
        if name is None:
            name = self[buffer] = self._names.fresh(buffer.name)
        return name

    def __missing__(self, buffer: Buffer) -> str:
        raise InternalError(
            f"the buffer {buffer.name} is used but neither a parameter nor allocated before", pass_name="generate_cuda"
        )
