"""What a statement of a kernel reads and writes itself, nested statements excluded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from fuser.ir.integers import Int, const
from fuser.ir.kernel import (
    AsyncCopy,
    AtomicAdd,
    Buffer,
    ExchangeInit,
    ExchangeWait,
    Load,
    LoadIndex,
    Post,
    Prefetch,
    Receive,
    Reduce,
    RemoteStore,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    Value,
    VectorMove,
    value_operands,
)


def value_loads(value: Value) -> Iterator[Load]:
    """Every memory read inside a value."""
    if isinstance(value, Load):
        yield value
    for operand in value_operands(value):
        yield from value_loads(operand)


@lru_cache(maxsize=1 << 12)
def stmt_reads(stmt: Stmt) -> tuple[tuple[Buffer, Int], ...]:
    """(buffer, index) of every element the statement itself reads, nested statements excluded.

    Statements never change, and a dozen passes ask about each.
    """
    return tuple(_reads(stmt))


def _reads(stmt: Stmt) -> Iterator[tuple[Buffer, Int]]:
    if isinstance(stmt, (Store, RemoteStore)):
        for load in value_loads(stmt.value):
            yield load.buffer, load.index
    elif isinstance(stmt, (VectorMove, AsyncCopy)):
        yield stmt.src, stmt.src_index
    elif isinstance(stmt, Shuffle):
        for load in value_loads(stmt.src):
            yield load.buffer, load.index
    elif isinstance(stmt, (LoadIndex, AtomicAdd, SpinWait, Prefetch)):
        yield stmt.buffer, stmt.index
    elif isinstance(stmt, ExchangeWait):
        yield stmt.told, const(0)
    elif isinstance(stmt, Post):
        for value in stmt.values:
            for load in value_loads(value):
                yield load.buffer, load.index
    elif isinstance(stmt, Receive):
        yield stmt.words, stmt.index
    elif isinstance(stmt, Reduce):
        for partial in stmt.partials:
            yield partial, const(0)
    elif isinstance(stmt, Scan):
        yield stmt.values, const(0)
        yield stmt.carry, const(0)


@lru_cache(maxsize=1 << 12)
def stmt_writes(stmt: Stmt) -> tuple[tuple[Buffer, Int], ...]:
    """(buffer, index) of every element the statement itself writes, nested statements excluded.

    Statements never change, and a dozen passes ask about each.
    """
    return tuple(_writes(stmt))


def _writes(stmt: Stmt) -> Iterator[tuple[Buffer, Int]]:
    if isinstance(stmt, (Store, AtomicAdd, RemoteStore)):
        yield stmt.buffer, stmt.index
    elif isinstance(stmt, (VectorMove, AsyncCopy, Shuffle)):
        yield stmt.dst, stmt.dst_index
    elif isinstance(stmt, ExchangeInit):
        yield stmt.told, const(0)
    elif isinstance(stmt, Post):
        yield stmt.words, stmt.index
    elif isinstance(stmt, Receive):
        yield stmt.words, stmt.index
        for dst in stmt.dsts:
            for k in range(dst.size.value):
                yield dst, const(k)
    elif isinstance(stmt, Reduce):
        for partial in stmt.partials:
            yield partial, const(0)
    elif isinstance(stmt, Scan):
        yield stmt.values, const(0)
        yield stmt.carry, const(0)
