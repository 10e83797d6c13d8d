"""Statements with other buffers or indices in the places of some: of every kind of statement, wherever it has them."""

from __future__ import annotations

from typing import get_args

import pytest

from fuser.ir.integers.integers import ONE, ZERO, Int, const, less, symbol
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
from fuser.ir.kernel.kernel_accesses import stmt_integers, stmt_reads, stmt_writes
from fuser.ir.kernel.statement_scopes import defined_symbol
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.kernel_rewrites import substitute_buffers, substitute_symbols

Float = DataType.Float
OLD, NEW, OTHER = (Buffer(n, Float, MemoryType.local, const(4)) for n in ("old", "new", "other"))
I = symbol("i", 0, 3)  # noqa: E741
LOAD = Cast(Call("add", (Load(OLD, I), Load(OTHER, ZERO)), Float, Float), Float)
ZERO_FLOAT = Literal(0.0, Float)
STMTS: tuple[Stmt, ...] = (
    Comment("nothing"),
    Allocate(OLD),
    Let(I, I + 1),
    Store(OLD, I, LOAD),
    VectorMove(OLD, I, OTHER, I + 1, 2),
    AsyncCopy(OTHER, I, OLD, I + 1, 2),
    AsyncCommit(),
    AsyncWait(0),
    For(I, I, I + 4, ONE, (Store(OTHER, I, LOAD),)),
    If(less(I, ONE), (Store(OLD, I, ZERO_FLOAT),), (Store(OTHER, I, LOAD),)),
    Shuffle(OLD, I, LOAD, ShuffleKind.xor, I),
    LoadIndex(I, OLD, I),
    LetPhase(I, OLD, 4),
    AtomicAdd(I, OLD, I, I, wrap=I),
    Fence(),
    LaunchWait(),
    BlockBarrier(),
    WarpBarrier(),
    RemoteStore(OLD, I, LOAD, I, OTHER),
    ExchangeInit(OLD, 4),
    ExchangeWait(OLD),
    ClusterArrive(),
    ClusterWait(),
    SpinWait(OLD, I, I),
    Post(OLD, I, (LOAD,)),
    Receive((OTHER, OLD), OTHER, I, I, I),
    Reduce((OLD,), "add", (ZERO_FLOAT,), (ParallelType.block_x,), (), False, I, ONE, "sum"),
    GridBarrier(I, ONE),
    Scan(OLD, OTHER, "add", ZERO_FLOAT, (), (), (), (), "scan"),
)


def accesses(body: tuple[Stmt, ...]) -> list[Buffer]:
    return [b for s in walk(body) for b, _ in (*stmt_reads(s), *stmt_writes(s))]


def integers(stmt: Stmt) -> list[Int]:
    return [e for s in walk((stmt,)) for e in stmt_integers(s)]


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


@pytest.mark.parametrize("stmt", STMTS, ids=lambda s: type(s).__name__)
def test_symbols_are_substituted_and_not_where_they_are_defined(stmt: Stmt) -> None:
    (made,) = substitute_symbols((stmt,), {I: const(2)})
    assert type(made) is type(stmt)
    assert defined_symbol(made) is defined_symbol(stmt)
    assert integers(made) == [e.substitute({I: const(2)}) for e in integers(stmt)]
    if isinstance(stmt, If):
        assert isinstance(made, If)
        assert made.condition is less(const(2), ONE)
    if I not in {s for e in integers(stmt) for s in e.symbols} and not isinstance(stmt, If):
        assert made is stmt, "what nothing changes in is shared"


def test_no_kind_of_statement_is_left_out() -> None:
    assert {type(s) for s in STMTS} == set(get_args(Stmt))
