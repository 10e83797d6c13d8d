"""What a statement of a kernel is tied to beside its operands: which other threads, and which symbol it gives a value.

Passes that move statements, leave some out for some threads, or make copies of a loop ask here, so that a new statement is
classified once, and the type checker asks for it.
"""

from __future__ import annotations

from enum import IntEnum

from fuser.ir.integers.integers import Symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
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
    LoadIndex,
    Post,
    Receive,
    Reduce,
    RemoteStore,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
)

Plain = Store | If | For | Let | VectorMove | Allocate | LoadIndex | LetPhase | Comment
"""What a thread executes for itself: operands say all."""


class Scope(IntEnum):
    """With whom a statement itself communicates, nested statements excluded; each one reaches further than those before.

    operands  nobody: what it reads, writes and names says all. What other threads see of a store is up to the statements of
              the scopes below that stand around it
    thread    the thread's own asynchronous copies, among which it keeps its place
    warp      other lanes of the warp
    block     other threads of the block
    cluster   other blocks of the cluster
    device    other blocks of the grid
    """

    operands = 0
    thread = 1
    warp = 2
    block = 3
    cluster = 4
    device = 5


def scope_of(stmt: Stmt) -> Scope:
    """With whom a statement communicates: whom it passes something to, takes something from, or waits for."""
    if isinstance(stmt, Plain):
        return Scope.operands
    match stmt:
        case AsyncCopy() | AsyncCommit() | AsyncWait():
            return Scope.thread
        case Shuffle() | WarpBarrier():
            return Scope.warp
        case BlockBarrier():
            return Scope.block
        case ClusterArrive() | ClusterWait() | RemoteStore() | ExchangeInit() | ExchangeWait():
            return Scope.cluster
        case AtomicAdd() | Fence() | LaunchWait() | SpinWait() | Post() | Receive() | GridBarrier():
            return Scope.device
        case Reduce():
            return Scope.device if stmt.grid_axes else Scope.cluster if stmt.cluster_axes else Scope.block
        case Scan():
            return Scope.cluster if stmt.cluster_axes else Scope.block


def is_collective(stmt: Stmt) -> bool:
    """Whether all lanes of a warp execute a statement together, or none of them: it may not come to stand under a test
    that they answer differently."""
    if isinstance(stmt, Plain):
        return False
    match stmt:
        case AsyncCopy() | AsyncCommit() | AsyncWait():
            return False
        case RemoteStore() | ExchangeInit() | AtomicAdd() | Fence() | LaunchWait() | SpinWait() | Post():
            return False
        case Shuffle() | WarpBarrier() | BlockBarrier() | ClusterArrive() | ClusterWait() | ExchangeWait() | Receive():
            return True
        case Reduce() | Scan() | GridBarrier():
            return True


def defined_symbol(stmt: Stmt) -> Symbol | None:
    """The index symbol that a statement itself gives a value, if any: a loop to those in it, others to those behind."""
    match stmt:
        case For() | Let() | LoadIndex() | LetPhase() | AtomicAdd():
            return stmt.symbol
        case Reduce():
            return stmt.last_block
        case Store() | If() | VectorMove() | Allocate() | Comment() | AsyncCopy() | AsyncCommit() | AsyncWait():
            return None
        case (
            Shuffle()
            | WarpBarrier()
            | BlockBarrier()
            | Fence()
            | LaunchWait()
            | SpinWait()
            | Post()
            | Receive()
            | Scan()
            | GridBarrier()
        ):
            return None
        case ClusterArrive() | ClusterWait() | RemoteStore() | ExchangeInit() | ExchangeWait():
            return None
