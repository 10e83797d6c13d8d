"""Builders for combiners: registers of one element, calls in one type, and loops over partial results."""

from __future__ import annotations

from collections.abc import Callable

from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol
from fuser.ir.kernel.kernel import Buffer, Call, Cast, For, Literal, Load, Stmt, Store, Value
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.ops.op_table import compute_dtype
from fuser.records import record

Elements = Callable[[Callable[[Int], list[Stmt]]], list[Stmt]]
"""`elements(make)`: `make(e)` for every element e of a thread's partials."""


def temporary(name: str, dtype: DataType) -> Buffer:
    """A register of one element."""
    return Buffer(name, dtype, MemoryType.local, ONE)


def compute(op: str, dtype: DataType, *args: Value) -> Call:
    """A call that computes in the type of its result."""
    return Call(op, args, dtype, dtype)


def compare(op: str, a: Value, b: Value, dtype: DataType) -> Call:
    return Call(op, (a, b), dtype, DataType.Bool)


def increment(count: Buffer, at: Int, by: Value) -> Call:
    """`count[at] + by`, of numbers of values."""
    return Call("add", (Load(count, at), by), compute_dtype(count.dtype), count.dtype)


def accumulate(into: Buffer, at: Int, value: Value, op: str = "add") -> Store:
    """`into[at] = op(into[at], value)`."""
    return Store(into, at, compute(op, into.dtype, Load(into, at), value))


def subtract_square(m2: Buffer, at: Int, total: Value, moved: Value) -> Store:
    """m2 -= total * moved, and not below 0: squares become those of differences from what is `moved` further."""
    left = compute("sub", m2.dtype, Load(m2, at), compute("mul", m2.dtype, total, moved))
    return Store(m2, at, compute("maximum", m2.dtype, left, Literal(0.0, m2.dtype)))


def safe_ratio(part: Value, count: Load, dtype: DataType) -> Call:
    """part / count, or 0 if count is 0."""
    is_empty = compare("eq", count, Literal(0, count.dtype), compute_dtype(count.dtype))
    return compute("where", dtype, is_empty, Literal(0.0, dtype), compute("div", dtype, part, Cast(count, dtype)))


@record(eq=False)
class PartialsReader:
    """Partial results of `number` threads: `read(i, e, k)` is element e of partial i of thread k. `symbol` makes indices."""

    read: Callable[[int, Int, Int], Value]
    number: Int
    symbol: Callable[[str, Int], Symbol]
    unroll: bool = False

    def index(self) -> Symbol:
        """A new index of a thread."""
        return self.symbol("k", self.number)

    def loop(self, k: Symbol, body: list[Stmt], start: Int = ZERO) -> For:
        return For(k, start, self.number, ONE, tuple(body), unroll=self.unroll)
