"""What a statement of a kernel reads and writes itself, and the integers in it, nested statements excluded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from fuser.ir.integers.integers import Int, const
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Call,
    Cast,
    ClusterArrive,
    ClusterWait,
    Comment,
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GridBarrier,
    If,
    IndexValue,
    LaunchWait,
    Let,
    LetPhase,
    Literal,
    Load,
    LoadIndex,
    Post,
    RandomValue,
    Receive,
    Reduce,
    RemoteStore,
    ScalarArgument,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    Value,
    VectorMove,
    WarpBarrier,
    value_operands,
    walk,
)


def buffers_read(stmts: Sequence[Stmt]) -> set[Buffer]:
    """By statements, and those in them."""
    return {b for s in walk(tuple(stmts)) for b, _ in stmt_reads(s)}


def buffers_written(stmts: Sequence[Stmt]) -> set[Buffer]:
    """By statements, and those in them."""
    return {b for s in walk(tuple(stmts)) for b, _ in stmt_writes(s)}


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
    elif isinstance(stmt, (LoadIndex, AtomicAdd, SpinWait)):
        yield stmt.buffer, stmt.index
    elif isinstance(stmt, ExchangeWait):
        yield stmt.signal, const(0)
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
        yield stmt.signal, const(0)
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


def stmt_integers(stmt: Stmt) -> Iterator[Int]:
    """Every integer expression of the statement itself, nested statements and the condition of a test excluded."""
    for _, index in (*stmt_reads(stmt), *stmt_writes(stmt)):
        yield index
    match stmt:
        case Allocate(buffer):
            if buffer.is_shared:
                yield buffer.size
        case For(_, start, stop, step):
            yield from (start, stop, step)
        case Let():
            yield stmt.value
        case Store():
            yield from _value_integers(stmt.value)
        case RemoteStore():
            yield stmt.rank
            yield from _value_integers(stmt.value)
        case Shuffle():
            yield stmt.lane
            yield from _value_integers(stmt.src)
        case AtomicAdd():
            yield stmt.amount
            if stmt.wrap is not None:
                yield stmt.wrap
        case SpinWait():
            yield stmt.target
        case Post():
            for posted in stmt.values:
                yield from _value_integers(posted)
        case Receive():
            yield from (stmt.step, stmt.stop)
        case Reduce() | GridBarrier():
            yield from (stmt.slot, stmt.slots)
        case Comment() | If() | VectorMove() | AsyncCopy() | AsyncCommit() | AsyncWait() | LoadIndex() | LetPhase():
            pass
        case Fence() | LaunchWait() | BlockBarrier() | WarpBarrier() | Scan():
            pass
        case ExchangeInit() | ExchangeWait() | ClusterArrive() | ClusterWait():
            pass


def _value_integers(value: Value) -> Iterator[Int]:
    """Of the indices of loads, which are among the accesses, none."""
    match value:
        case IndexValue():
            yield value.expression
        case RandomValue():
            yield value.index
        case Load() | Literal() | ScalarArgument() | Call() | Cast():
            pass
    for operand in value_operands(value):
        yield from _value_integers(operand)
