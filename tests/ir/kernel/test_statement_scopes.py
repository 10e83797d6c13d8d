"""Every statement of a kernel says with whom it communicates, whether lanes execute it together, and what symbol it defines."""

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
)
from fuser.ir.kernel.kernel_accesses import stmt_integers
from fuser.ir.kernel.statement_scopes import Scope, defined_symbol, is_collective, scope_of
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.lowering.predicates.peel_loops import peel_loops
from fuser.lowering.predicates.unswitch_loops import unswitch_loops

REGISTER = Buffer("register", DataType.Float, MemoryType.local, const(4))
SHARED = Buffer("shared", DataType.Float, MemoryType.shared, const(4))
TOLD = Buffer("told", DataType.Int, MemoryType.shared, ONE)
INPUT = Buffer("input", DataType.Float, GLOBAL_MEMORY, const(4))
WORDS = Buffer("words", DataType.Int32, GLOBAL_MEMORY, const(4))
INDEX, N = symbol("i", 0, 7), symbol("n", 0)
VALUE = Load(REGISTER, ZERO)
NONE = Literal(0.0, DataType.Float)
THREADS, BLOCKS = (ParallelType.block_x,), (ParallelType.grid_x,)

SAMPLES: tuple[tuple[Stmt, Scope], ...] = (
    (Comment(""), Scope.operands),
    (Allocate(REGISTER), Scope.operands),
    (Let(INDEX, N), Scope.operands),
    (Store(SHARED, INDEX, VALUE), Scope.operands),
    (VectorMove(REGISTER, ZERO, INPUT, INDEX, 4), Scope.operands),
    (AsyncCopy(SHARED, ZERO, INPUT, INDEX, 4), Scope.thread),
    (AsyncCommit(), Scope.thread),
    (AsyncWait(0), Scope.thread),
    (For(INDEX, ZERO, N, ONE, (BlockBarrier(),)), Scope.operands),
    (If(less(INDEX, N), (BlockBarrier(),)), Scope.operands),
    (Shuffle(REGISTER, ZERO, VALUE, ShuffleKind.xor, ONE), Scope.warp),
    (LoadIndex(INDEX, WORDS, ZERO), Scope.operands),
    (LetPhase(INDEX, INPUT, 4), Scope.operands),
    (AtomicAdd(INDEX, WORDS, ZERO, ONE), Scope.device),
    (Fence(), Scope.device),
    (LaunchWait(), Scope.device),
    (BlockBarrier(), Scope.block),
    (WarpBarrier(), Scope.warp),
    (RemoteStore(SHARED, ZERO, VALUE, INDEX), Scope.cluster),
    (ExchangeInit(TOLD, 8), Scope.cluster),
    (ExchangeWait(TOLD), Scope.cluster),
    (ClusterArrive(), Scope.cluster),
    (ClusterWait(), Scope.cluster),
    (SpinWait(WORDS, ZERO, ONE), Scope.device),
    (Post(WORDS, ZERO, (VALUE,)), Scope.device),
    (Receive((REGISTER,), WORDS, ZERO, const(2), const(8)), Scope.device),
    (Reduce((REGISTER,), "add", (NONE,), THREADS, (), False, ZERO, ONE, "r"), Scope.block),
    (Reduce((REGISTER,), "add", (NONE,), THREADS, (), False, ZERO, ONE, "r", None, BLOCKS), Scope.cluster),
    (Reduce((REGISTER,), "add", (NONE,), THREADS, BLOCKS, False, ZERO, ONE, "r", INDEX), Scope.device),
    (GridBarrier(ZERO, ONE), Scope.device),
    (Scan(REGISTER, REGISTER, "add", NONE, THREADS, (), (), (), "s"), Scope.block),
    (Scan(REGISTER, REGISTER, "add", NONE, THREADS, (), (), (), "s", BLOCKS), Scope.cluster),
)
KINDS: tuple[type[Stmt], ...] = get_args(Stmt)


def test_there_is_a_sample_of_every_statement() -> None:
    assert {type(stmt) for stmt, _ in SAMPLES} == set(KINDS)


@pytest.mark.parametrize(
    ("stmt", "scope"), SAMPLES, ids=lambda s: type(s).__name__ if not isinstance(s, Scope) else s.name
)
def test_every_statement_is_classified(stmt: Stmt, scope: Scope) -> None:
    assert scope_of(stmt) is scope
    # What lanes execute together they do to communicate; a field `symbol` is what a statement defines.
    assert not is_collective(stmt) or scope >= Scope.warp
    named = getattr(stmt, "symbol", getattr(stmt, "last_block", None))
    assert defined_symbol(stmt) is named
    assert all(isinstance(e, Int) for e in stmt_integers(stmt))


@pytest.mark.parametrize("stmt", [s for s, _ in SAMPLES if is_collective(s)], ids=lambda s: type(s).__name__)
def test_what_lanes_do_together_gets_no_test_of_its_own(stmt: Stmt) -> None:
    tested = If(less(8 * INDEX + symbol("lane", 0, 7), symbol("m", 60)), (Store(REGISTER, ZERO, VALUE),))
    loop = For(INDEX, ZERO, const(8), ONE, (tested, stmt), unroll=True)
    plain = For(INDEX, ZERO, const(8), ONE, (tested,), unroll=True)
    assert len(peel_loops((plain,))) == 2
    assert len(peel_loops((loop,))) == 1
    asked = For(INDEX, ZERO, const(8), ONE, (tested, stmt), unroll=True, unswitch=True)
    (kept,) = unswitch_loops((asked,))
    assert isinstance(kept, For)
