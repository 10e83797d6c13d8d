"""Statements that read an input and store an output in its place, for kernels of four threads and two blocks."""

from __future__ import annotations

from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, const, symbol
from fuser.ir.kernel.kernel import (
    Buffer,
    For,
    Literal,
    Load,
    Stmt,
    Store,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.memory.in_place import may_overwrite

Float = DataType.Float
THREADS = 4
BLOCKS = 2
PLACE, BLOCK = symbol("threadIdx.x", 0, THREADS - 1), symbol("blockIdx.x", 0, BLOCKS - 1)
POSITIONS = {ParallelType.block_x: PLACE, ParallelType.grid_x: BLOCK}
X = Buffer("x", Float, MemoryType["global"], const(64), "x")
Y = Buffer("y", Float, MemoryType["global"], const(64), "y")
HELD = Buffer("held", Float, MemoryType.local, const(8))
ROW = Buffer("row", Float, MemoryType.shared, const(64))


def read(index: Int, at: Int = ZERO) -> Store:
    return Store(HELD, at, Load(X, index))


def write(index: Int) -> Store:
    return Store(Y, index, Literal(0.0, Float))


def loop(name: str, count: int, *body: Stmt, i: Symbol | None = None) -> For:
    return For(symbol(name, 0, count - 1) if i is None else i, ZERO, const(count), ONE, body)


OWN = 4 * BLOCK + PLACE
ROWS, LATER = symbol("i", 0, 2), symbol("j", 0, 2)


def allowed(*body: Stmt) -> bool:
    return may_overwrite(body, X, Y, POSITIONS)
