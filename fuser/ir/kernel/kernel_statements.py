"""Statements of kernels: what threads do, in order. Grammar and semantics: `fuser/ir/kernel/kernel.py`.

With whom a statement communicates is said in `statement_scopes`, what it reads and writes in `kernel_accesses`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from fuser.ir.integers.integers import Cond, Int, Symbol
from fuser.ir.kernel.kernel_values import Buffer, Literal, Value
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, ParallelType
from fuser.records import record
from fuser.source_location import SourceLocation


class Role(Enum):
    """Why a statement is there: read by the printer, by messages and by the mutation test."""

    plain = "plain"
    predicate = "predicate"  # keeps a thread inside an extent
    owner = "owner"  # one of several threads that hold the same value writes it
    unswitch = "unswitch"  # one hoisted test for a whole loop nest
    initialise = "initialise"  # identity of a reduction
    last_block = "last block"  # work of the block that arrived last
    semaphore_reset = "semaphore reset"


@record(eq=False)
class Comment:
    text: str


@record(eq=False)
class Allocate:
    buffer: Buffer


@record(eq=False)
class Let:
    symbol: Symbol
    value: Int


@record(eq=False)
class Store:
    """`buffer[index] = value`, the value already of the buffer's dtype."""

    buffer: Buffer
    index: Int
    value: Value
    role: Role = Role.plain


@record(eq=False)
class VectorMove:
    """Copy `width` consecutive elements between two buffers of one dtype, in one access on each memory side.

    `width * itemsize` is 2, 4, 8 or 16 bytes and both addresses are multiples of it (registers excepted). Where `aligned`
    is False, `src` is device memory and its address any: accesses half as wide or narrower take what lies around it, too.
    Where it is `cut`, an end of a row lies in it: what is beyond is not asked for, may lie outside of the tensor, and holds
    anything. One element at least is asked for, of an input that the kernel does not write.
    """

    dst: Buffer
    dst_index: Int
    src: Buffer
    src_index: Int
    width: int
    cache: CacheOp = CacheOp.unspecified
    aligned: bool = True
    cut: bool = False


@record(eq=False)
class AsyncCopy:
    """Start a copy of `width` consecutive elements from device memory to shared memory.

    `width * itemsize` is 4, 8 or 16 bytes and both addresses are multiples of it. The thread goes on; what it read from the
    destination before stays right. `cut`: as of `VectorMove`.
    """

    dst: Buffer
    dst_index: Int
    src: Buffer
    src_index: Int
    width: int
    cache: CacheOp = CacheOp.unspecified
    cut: bool = False


@record(eq=False)
class AsyncCommit:
    """The copies that the thread has started since its last commit, if any, become its latest group."""


@record(eq=False)
class AsyncWait:
    """The thread waits until all of its groups but the latest `pending` are complete: it then sees what they copied."""

    pending: int
    reason: str = ""


@record(eq=False)
class For:
    """`for (symbol = start; symbol < stop; symbol += step)`."""

    symbol: Symbol
    start: Int
    stop: Int
    step: Int
    body: tuple[Stmt, ...]
    unroll: bool = False
    # Asks the pass unswitch_loops for one hoisted bounds test; False afterwards.
    unswitch: bool = False

    @property
    def values(self) -> range | None:
        """Those of the symbol, if they are numbers."""
        start, stop, step = self.start, self.stop, self.step
        known = start.is_const and stop.is_const and step.is_const
        return range(start.value, stop.value, step.value) if known else None


@record(eq=False)
class If:
    condition: Cond
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    role: Role = Role.predicate


class ShuffleKind(Enum):
    """Lane a value comes from: `xor` lane ^ n, `down` lane + n, `up` lane - n, `index` lane n of the group of `width`.

    Where `down` or `up` leave the group, a lane gets its own value.
    """

    xor = "xor"
    down = "down"
    up = "up"
    index = "index"


@record(eq=False)
class Shuffle:
    """`dst[dst_index]` = `src` of another lane of the same group of `width` lanes. All lanes of the warp take part."""

    dst: Buffer
    dst_index: Int
    src: Value
    kind: ShuffleKind
    lane: Int
    width: int = 32


@record
class GivenIndex:
    """An index that the user's data hold, for dim `dim` of the operand of the op at `location`: nothing bounds it."""

    dim: int
    location: SourceLocation | None


@record(eq=False)
class LoadIndex:
    """Read an Int32 element of shared or device memory, or an integer in a register, into an index symbol."""

    symbol: Symbol
    buffer: Buffer
    index: Int
    given: GivenIndex | None = None


@record(eq=False)
class LetPhase:
    """The elements between the last address that is a multiple of `width` elements and the first element of an argument."""

    symbol: Symbol
    buffer: Buffer
    width: int


@record(eq=False)
class AtomicAdd:
    """Relaxed device-scope atomic on an Int32 element; `symbol` receives the value before the addition.

    With `acquire`, what atomics before it on that element published is visible to the thread at once, and to the other threads
    of its block (its warp) behind the next barrier of the block (the warp): no Fence is needed for that.

    With `wrap`, the element becomes 0 in the place of that number: the last one to count sets a counter back without knowing
    that it is. The amount is 1, and there is no symbol and no `acquire`: nothing waits for the old value.

    With `release` it publishes what its thread did before, and the other threads of its block before the last barrier of the
    block: no Fence is needed for that. There is no symbol, no `acquire` and no `wrap`.
    """

    symbol: Symbol | None
    buffer: Buffer
    index: Int
    amount: Int
    acquire: bool = False
    wrap: Int | None = None
    release: bool = False


@record(eq=False)
class Fence:
    """Device-scope memory fence of the executing thread, both release and acquire."""


@record(eq=False)
class LaunchWait:
    """The executing thread waits until the launches that this one was started behind have ended, and sees what they stored. At
    once where they had before this one started, as without programmatic dependent launch."""


@record(eq=False)
class BlockBarrier:
    """`__syncthreads()`; `reason` says which access pair needs it."""

    reason: str = ""


@record(eq=False)
class WarpBarrier:
    """`__syncwarp()`."""

    reason: str = ""


@record(eq=False)
class RemoteStore:
    """Store an element of a shared buffer of block `rank` of the cluster, which may be this one.

    The blocks of a cluster are ranked along its axis. The other block must be known to run (ClusterWait), and reads the
    element behind the next one; or behind its ExchangeWait for `signal`, which counts the bytes as they arrive there.
    """

    buffer: Buffer
    index: Int
    value: Value
    rank: Int
    signal: Buffer | None = None


@record(eq=False)
class ExchangeInit:
    """One thread of the block lets `signal`, a shared Int, wait for `nbytes` that blocks of the cluster will store, once.

    Stands before a ClusterArrive: behind the ClusterWait that follows, others may store.
    """

    signal: Buffer
    nbytes: int


@record(eq=False)
class ExchangeWait:
    """Wait until all bytes that `signal` counts have come: the thread sees them then. No barrier for anything else."""

    signal: Buffer
    reason: str = ""


@record(eq=False)
class ClusterArrive:
    """Every thread of every block of the cluster arrives; what it stored before is seen behind the ClusterWait.

    A `relaxed` one says no more than that the threads run: nothing is waited for, which saves a fence of the whole device.
    """

    reason: str = ""
    relaxed: bool = False


@record(eq=False)
class ClusterWait:
    """Wait until every thread of the cluster has executed the ClusterArrive before: a barrier of the block, too."""

    reason: str = ""


@record(eq=False)
class SpinWait:
    """The executing thread waits until the Int32 `buffer[index]` is at least `target`. Only in cooperative kernels.

    acquire   see AtomicAdd
    """

    buffer: Buffer
    index: Int
    target: Int
    acquire: bool = False


@record(eq=False)
class Post:
    """Values of the executing thread for another block: no fence, counter or barrier is needed with them.

    words   zeroed Int32 of device memory, left zero by the kernel (semaphores)
    index   of the first one of the post, even: two for each 4 bytes of the values, the bits and a flag (1)
    values  of 4 or 8 bytes each

    The two words of a pair are written and read at once. A place is empty when it is posted to.
    """

    words: Buffer
    index: Int
    values: tuple[Value, ...]


@record(eq=False)
class Receive:
    """The executing thread waits until some posts are there, moves them into registers and leaves their places empty.

    All lanes of a warp execute it, and go on together.

    dsts    a register array for each value of a post: element k is that of post k, untouched where there is none
    index   of the first word of post 0
    step    words from one post to the next; those that begin at `stop` or behind are not waited for
    """

    dsts: tuple[Buffer, ...]
    words: Buffer
    index: Int
    step: Int
    stop: Int


MOST_POST_WORDS = 8
"""Of what the blocks of a kernel post, each."""


def post_words(dtypes: Iterable[DataType]) -> int:
    """Int32 words of a post of values of these types."""
    return sum(d.itemsize // 2 for d in dtypes)


@record(eq=False)
class Reduce:
    """Collective reduction of per-thread partials over parallel axes (a tuple of them for Welford).

    On entry every element of the register arrays `partials` holds the thread's own partial (the identity where it has
    none). Afterwards every thread of the block holds the result, for `block_axes` alone. With `grid_axes` the result is
    valid in the last block of each group (`grid_broadcast` False: consumers run under `last_block == 1`), or in all
    blocks (`grid_broadcast` True: the kernel is cooperative). Where the last blocks of another collective come to this one
    alone, `last_block` is known behind their test, too: it is 0 in all other blocks.

    combine: name of a pointwise row (add, mul, maximum, minimum, logical_or, ...), "welford" for a triple
    (mean, m2, count), where one count may stand for all elements, "exp_sum" for a pair (largest, total).
    `slot` distinguishes executions of the collective inside serial loops (0 <= slot < slots). `copy_axes`: threads along
    these hold the same partials, of which one counts (they are told for reductions over blocks alone: one thread writes,
    and all share the joining).
    """

    partials: tuple[Buffer, ...]
    combine: str
    identity: tuple[Literal, ...]
    block_axes: tuple[ParallelType, ...]
    grid_axes: tuple[ParallelType, ...]
    grid_broadcast: bool
    slot: Int
    slots: Int
    name: str
    last_block: Symbol | None = None
    cluster_axes: tuple[ParallelType, ...] = ()
    copy_axes: tuple[ParallelType, ...] = ()


@record(eq=False)
class GridBarrier:
    """Collective: no thread goes on before every thread of the grid has come here, and all see what all wrote before.

    Every block passes it equally often. `slot` counts the grid barriers passed before this one (0 <= slot < slots), round
    serial loops too; `slots` is the same for all barriers of a kernel. `reason` says which access pair needs it.
    """

    slot: Int
    slots: Int
    reason: str = ""


Axes = tuple[tuple[int, int], ...]
"""(extent, stride in elements) of axes of a register array, slowest first."""


@record(eq=False)
class Scan:
    """Collective running fold over the threads along `block_axes` (slowest first), for each of the `kept` elements.

    The order of the fold is: tiles, then threads, then the run of a thread. On entry every element of the register array
    `values` holds an element (the identity where there is none), and `carry`, one element per kept one, what is folded in
    before the first. Afterwards `values` holds the running folds, and `carry`, in every thread, the fold of all.

    The axes of `values`: its element for a kept one, a tile and a position in the run is the sum of index times stride. With
    `cluster_axes` the blocks of a cluster along that grid axis come before the tiles, in order of rank.
    """

    values: Buffer
    carry: Buffer
    combine: str
    identity: Literal
    block_axes: tuple[ParallelType, ...]
    kept: Axes
    tiles: Axes
    run: Axes
    name: str
    cluster_axes: tuple[ParallelType, ...] = ()


Stmt = (
    Comment
    | Allocate
    | Let
    | Store
    | VectorMove
    | AsyncCopy
    | AsyncCommit
    | AsyncWait
    | For
    | If
    | Shuffle
    | LoadIndex
    | LetPhase
    | AtomicAdd
    | Fence
    | LaunchWait
    | BlockBarrier
    | WarpBarrier
    | RemoteStore
    | ExchangeInit
    | ExchangeWait
    | ClusterArrive
    | ClusterWait
    | SpinWait
    | Post
    | Receive
    | Reduce
    | GridBarrier
    | Scan
)


def child_bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The nested statement lists of a statement."""
    if isinstance(stmt, For):
        return (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then, stmt.orelse)
    return ()


def map_child_bodies(stmt: Stmt, rewrite: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """The statement with each of its nested lists rewritten; the same object if that changes nothing."""
    bodies = child_bodies(stmt)
    made = tuple(map(rewrite, bodies))
    if made == bodies:
        return stmt
    if isinstance(stmt, For):
        return replace(stmt, body=made[0])
    assert isinstance(stmt, If)
    then, orelse = made
    return If(stmt.condition, then, orelse, stmt.role)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner, in program order."""
    pending = list(reversed(body))
    while pending:
        stmt = pending.pop()
        yield stmt
        if isinstance(stmt, For):
            pending += reversed(stmt.body)
        elif isinstance(stmt, If):
            pending += reversed(stmt.orelse)
            pending += reversed(stmt.then)
