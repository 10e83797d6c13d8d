"""Statements with other buffers in the places of some: of every kind of statement, wherever it reads or writes them."""

from __future__ import annotations

from typing import get_args

import pytest

from fuser.ir.integers.integers import ONE, ZERO, const, less, symbol
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
    LaunchWait,
    Let,
    LetPhase,
    Literal,
    Load,
    LoadIndex,
    Post,
    Receive,
    Reduce,
    RemoteStore,
    Scan,
    Shuffle,
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.kernel_rewrites import substitute_buffers

Float = DataType.Float
OLD, NEW, OTHER = (Buffer(n, Float, MemoryType.local, const(4)) for n in ("old", "new", "other"))
I = symbol("i", 0, 3)  # noqa: E741
LOAD = Cast(Call("add", (Load(OLD, I), Load(OTHER, ZERO)), Float, Float), Float)
ZERO_FLOAT = Literal(0.0, Float)
STMTS: tuple[Stmt, ...] = (
    Comment("nothing"),
    Allocate(OLD),
    Let(I, ONE),
    Store(OLD, ZERO, LOAD),
    VectorMove(OLD, ZERO, OTHER, ZERO, 2),
    AsyncCopy(OTHER, ZERO, OLD, ZERO, 2),
    AsyncCommit(),
    AsyncWait(0),
    For(I, ZERO, const(4), ONE, (Store(OTHER, I, LOAD),)),
    If(less(I, ONE), (Store(OLD, I, ZERO_FLOAT),), (Store(OTHER, I, LOAD),)),
    Shuffle(OLD, ZERO, LOAD, ShuffleKind.xor, ONE),
    LoadIndex(I, OLD, ZERO),
    LetPhase(I, OLD, 4),
    AtomicAdd(None, OLD, ZERO, ONE),
    Fence(),
    LaunchWait(),
    BlockBarrier(),
    WarpBarrier(),
    RemoteStore(OLD, ZERO, LOAD, ONE, OTHER),
    ExchangeInit(OLD, 4),
    ExchangeWait(OLD),
    ClusterArrive(),
    ClusterWait(),
    SpinWait(OLD, ZERO, ONE),
    Post(OLD, ZERO, (LOAD,)),
    Receive((OTHER, OLD), OTHER, ZERO, ONE, ONE),
    Reduce((OLD,), "add", (ZERO_FLOAT,), (ParallelType.block_x,), (), False, ZERO, ONE, "sum"),
    GridBarrier(ZERO, ONE),
    Scan(OLD, OTHER, "add", ZERO_FLOAT, (), (), (), (), "scan"),
)


def accesses(body: tuple[Stmt, ...]) -> list[Buffer]:
    return [b for s in walk(body) for b, _ in (*stmt_reads(s), *stmt_writes(s))]


@pytest.mark.parametrize("stmt", STMTS, ids=lambda s: type(s).__name__)
def test_buffers_are_substituted(stmt: Stmt) -> None:
    (made,) = substitute_buffers((stmt,), {OLD: NEW})
    assert type(made) is type(stmt)
    assert accesses((made,)) == [NEW if b is OLD else b for b in accesses((stmt,))]
    if isinstance(stmt, Allocate):
        assert made is stmt, "declarations stay"
    if isinstance(stmt, LetPhase):
        assert isinstance(made, LetPhase)
        assert made.buffer is NEW


def test_no_kind_of_statement_is_left_out() -> None:
    assert {type(s) for s in STMTS} == set(get_args(Stmt))
