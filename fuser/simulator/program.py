"""What compiling kernel IR gives: a function that runs a wave of blocks, and what the launch has to know about it.

program := Program(kernel, source, function, sites, buffers, symbols, definitions, evaluations, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from fuser.ir.integers.integers import Cond, Int, Symbol
from fuser.ir.kernel.kernel import Buffer, GivenIndex, Kernel, Stmt
from fuser.ir.kernel.print_kernel import print_stmt
from fuser.records import record

# Sites that access no memory are numbered from here on.
OTHER_SITES = 1 << 20

WaveFunction: TypeAlias = "Callable[[Any], Generator[bool, None, None] | None]"


@record
class Site:
    """A place in the kernel that accesses memory or synchronises. `buffer` is None where none is concerned."""

    action: str
    stmt: Stmt
    path: str
    buffer: Buffer | None

    @property
    def statement(self) -> str:
        """The text of the statement. Made when it is asked for: a kernel has many sites, and few are ever reported."""
        return print_stmt(self.stmt)


@record
class Definition:
    """Where a symbol gets its values, for ranges: from an expression, a loop (start, stop, step), or memory (nothing).

    `is_bounded`: the symbol is declared below an expression whose symbols have values there. `given`: the values are
    the user's.
    """

    symbol: Symbol
    sources: tuple[Int, ...]
    is_bounded: bool
    given: GivenIndex | None = None


@record(eq=False)
class Program:
    """A compiled kernel.

    sites         by number; those that access memory come first and have small numbers, which records hold
    buffers       in the order `Wave.buffers` has views of them
    symbols       in the order `Wave.symbols` has their values
    evaluations   the expressions that are evaluated together, by number of their guard
    written       buffers that some statement writes
    access_bytes  bytes of the narrowest access to each buffer
    """

    kernel: Kernel
    source: str
    function: WaveFunction
    sites: dict[int, Site]
    buffers: tuple[Buffer, ...]
    symbols: tuple[Symbol, ...]
    definitions: tuple[Definition, ...]
    evaluations: tuple[tuple[Int | Cond, ...], ...]
    written: frozenset[Buffer]
    access_bytes: dict[Buffer, int]
    widest_access: int
    has_waits: bool
    has_receives: bool
    has_communication: bool
    has_warp_barriers: bool
