"""Reductions across the blocks of a cluster, through distributed shared memory.

Before: every thread of a block (or lane of a warp) holds its block's (warp's) value of a Reduce with cluster axes
After:  one lane per block of the cluster stores that value into a slot of that block's shared memory; after a cluster barrier
        each warp reads the slots of its own block, one lane per slot, and combines them by butterfly shuffles, so results
        are reproducible. If there are few enough values, each warp sends its own partial, without a block reduction first. If
        a block reduces several values and neighbouring threads have those of a row, these threads read and combine them in the
        same way; else each thread combines the slots in order of rank.

If the exchange executes only once in a kernel and sends values of warps, signalled stores replace the cluster barrier: each
store adds its bytes to a counter of the receiver (st.async and an mbarrier), and a block continues as soon as its own bytes
are complete: blocks wait for values, not for threads. Values of whole blocks are not signalled: threads that poll for values
delay those of other blocks (softmax bf16 64x1048576 121.6 -> 136.9 us on an H200).

A block may store into another one only if that one is running: all blocks arrive at the start of the kernel, and wait right
before their first store into another block, after the loads of the row. No block stores into another one after the barrier
that follows the stores, so that a block may exit when it has finished. Slots never share bytes with other buffers
(`allocate_shared`), because another block may be ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser.ir.integers.integers import ONE, ZERO, Int, const, less
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    ClusterArrive,
    ClusterWait,
    ExchangeInit,
    ExchangeWait,
    For,
    If,
    Load,
    Reduce,
    RemoteStore,
    Role,
    Stmt,
    Value,
    walk,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.collectives.expand_block import BlockReduceExpander
from fuser.lowering.collectives.slots import Slots, shared_slots
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce, warp_combine
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_shared_count
from fuser.lowering.parallel_axes import WARP, ParallelAxes

# Values that the warps of a cluster may signal to each of its blocks: two for each lane.
_SIGNALLED_BY_WARPS = 64


def reduce_in_cluster(
    reduces: Sequence[Reduce],
    block: BlockReduceExpander,
    cluster: Mapping[ParallelType, int],
    *,
    execution: Int | None,
) -> list[Stmt]:
    """Statements of reductions over the blocks of a cluster, and the threads of each block where there are several.

    cluster     blocks of a cluster along a grid axis
    execution   how often the statements ran before; None if that is not known
    """
    r = reduces[0]
    axes = block.axes
    (axis,) = r.cluster_axes
    size = cluster[axis]
    exchange = ClusterExchange(axes, size, axes.threads[axis] % size, execution)
    total = axes.block_threads
    others = [p for p in axes.active if p not in r.block_axes]
    if total.is_const and total.value % WARP == 0 and set(others) <= set(r.copy_axes):
        if not others and size * (total.value // WARP) <= _SIGNALLED_BY_WARPS:
            alone = [s for one in reduces for s in warp_all_reduce(block.combiner, one, WARP)]
            return alone + _exchange_by_lanes(reduces, exchange, block.combiner, total.value // WARP)
        # The first warp sends what the block has: no other needs it.
        alone, first = block.parts(reduces) if r.block_axes else ([], [])
        return alone + _exchange_by_lanes(reduces, exchange, block.combiner, 1, first)
    alone = block.expand(reduces) if r.block_axes else []
    in_warp = not any(isinstance(s, Allocate) and s.buffer.memory is MemoryType.shared for s in walk(tuple(alone)))
    return alone + _exchange_by_rows(reduces, exchange, block.combiner, in_warp=in_warp)


class ClusterExchange:
    """Stores of the blocks of a cluster into each other's shared memory, and the wait for them.

    size, rank   blocks of the cluster, and which of them this is
    peer         the block that is stored into
    sets, turn   executions alternate between two sets of slots: before a set is reused, the barrier of the execution between
                 has shown that every block has read its own
    signal       what counts the bytes that arrive, instead of a cluster barrier; None before `begin`, and where nothing does
    """

    def __init__(self, axes: ParallelAxes, size: int, rank: Int, execution: Int | None) -> None:
        """`execution`: how often the statements ran before; None if that is not known."""
        self._axes = axes
        self._execution = execution
        self.size = size
        self.rank = rank
        self.sets = 1 if execution is ZERO or execution is None else 2
        self.turn = ZERO if execution is None else execution % self.sets
        self.signal: Buffer | None = None

    def begin(self, slots: Sequence[Buffer], *, may_count: bool = True) -> list[Stmt]:
        """Declare the slots. Bytes are counted where the exchange executes once and `may_count`."""
        counter = _mbarrier(slots) if may_count and self._execution is ZERO else None
        self.signal = None if counter is None else counter.signal
        self.peer = self._axes.symbol("peer", const(self.size))
        return [*(Allocate(b) for b in slots), *([] if counter is None else [Allocate(counter.signal), counter])]

    def send(self, stores: Sequence[Stmt], first: Int, step: Int) -> For:
        """Stores into `peer`, for the blocks from `first` on that are `step` apart."""
        return For(self.peer, first, const(self.size), step, tuple(stores))

    def wait(self, what: str) -> list[Stmt]:
        """Wait until what all blocks have sent has come."""
        if self.signal is not None:
            return [ExchangeWait(self.signal, f"every {what} has come")]
        return [ClusterArrive(f"every {what} is on its way"), ClusterWait(f"every {what} has come")]

    def release(self) -> list[Stmt]:
        """After the slots are read: if executions cannot alternate between sets of slots, all blocks wait once more."""
        if self._execution is not None:
            return []
        return [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]


def _slots(reduces: Sequence[Reduce], exchange: ClusterExchange, count: Int) -> dict[Reduce, Slots]:
    """`count` slots for each element, of the blocks of the cluster and what each sends."""
    return {r: shared_slots(r, "cluster", count, exchange.sets, exchange.turn) for r in reduces}


def _stores(
    slots: Mapping[Reduce, Slots], slot: Int, exchange: ClusterExchange, combiner: PartialCombiner
) -> list[Stmt]:
    """Stores of all partials into a slot of the peer."""
    stmts: list[Stmt] = []
    for r, of in slots.items():

        def store(i: int, e: Int, r: Reduce = r, of: Slots = of) -> list[Stmt]:
            value = Load(r.partials[i], e)
            return [RemoteStore(*of.at(slot)(i, e), value, exchange.peer, exchange.signal)]

        stmts += combiner.each(r, store)
    return stmts


def _exchange_by_rows(
    reduces: Sequence[Reduce], exchange: ClusterExchange, combiner: PartialCombiner, *, in_warp: bool
) -> list[Stmt]:
    """Statements that combine the values of all blocks, for reductions whose blocks have theirs already.

    in_warp   the threads of a value are of one warp: no block barrier is needed before, and no cluster barrier after
    """
    axes, size = combiner.axes, exchange.size
    scatter = [p for p in axes.active if p in reduces[0].block_axes]
    kept = [p for p in axes.active if p not in reduces[0].block_axes]
    thread, threads = axes.linear(scatter), axes.count_of(scatter)
    lane, lanes = axes.linear(kept), axes.count_of(kept)
    slots = _slots(reduces, exchange, size * lanes)
    stmts = exchange.begin([b for s in slots.values() for b in s.buffers], may_count=in_warp)
    stores = _stores(slots, exchange.rank * lanes + lane, exchange, combiner)
    stmts += [exchange.send(stores, thread, threads), *exchange.wait("block's value")]
    # Neighbouring threads of one value take a slot each, and combine what they read by butterflies, where they can.
    beside = scatter == axes.active[: len(scatter)] and threads.is_const and threads.value % size == 0
    total = axes.block_threads
    by_lanes = beside and size & (size - 1) == 0 and total.is_const and total.value % WARP == 0
    for r in reduces:

        def of_block(i: int, e: Int, block: Int, of: Slots = slots[r]) -> Value:
            return of.read(i, e, block * lanes + lane)

        if is_shared_count(r, 2) or (len(r.partials) == 1 and not by_lanes):
            # All values at once: their elements have one count, or none.
            stmts += combiner.combine_all(r, of_block, const(size), unroll=True)
            continue
        first = thread % size if by_lanes else ZERO
        stmts += combiner.load(r, lambda i, e, of_block=of_block, first=first: of_block(i, e, first))
        if by_lanes:
            stmts += warp_all_reduce(combiner, r, size)
            continue
        other = axes.symbol("rank", const(size - 1))
        rest = combiner.combine_each(r, lambda i, e, of_block=of_block, other=other: of_block(i, e, other + 1))
        stmts.append(For(other, ZERO, const(size - 1), const(1), tuple(rest), unroll=True))
    return stmts + exchange.release()


def _exchange_by_lanes(
    reduces: Sequence[Reduce],
    exchange: ClusterExchange,
    combiner: PartialCombiner,
    values: int,
    before: Sequence[Stmt] | None = None,
) -> list[Stmt]:
    """Statements that combine the values of blocks of whole warps, for reductions whose warps or blocks have theirs.

    One lane per block sends it a value, all at once. Then each warp reads the values of all blocks, one lane per value, and
    combines them by butterflies: the result is the same in every warp of every block.

    values    of a block: one, or those of all its warps, so that no barrier of the block comes before the exchange
    before    what the first warp does to have its block's value; None where warps send their own, whose bytes may be counted
    """
    thread, parts = combiner.axes.thread, exchange.size * values
    slots = _slots(reduces, exchange, const(parts))
    stmts = exchange.begin([b for s in slots.values() for b in s.buffers], may_count=before is None)
    warp = thread // WARP if values > 1 else ZERO
    stores = _stores(slots, exchange.rank * values + warp, exchange, combiner)
    send = exchange.send(stores, thread % WARP, const(WARP))
    stmts.append(send if values > 1 else If(less(thread, WARP), (*(before or ()), send), role=Role.owner))
    stmts += exchange.wait("value")
    width = parts if parts < WARP and parts & (parts - 1) == 0 else WARP
    for r in reduces:
        stmts += warp_combine(combiner, r, slots[r].read, parts, width)
    return stmts + exchange.release()


def _mbarrier(slots: Sequence[Buffer]) -> ExchangeInit | None:
    """What counts the bytes stored into the slots of an exchange; None where the hardware cannot count them."""
    if any(b.dtype.itemsize not in (4, 8) or b.dtype.is_complex or not b.size.is_const for b in slots):
        return None
    signal = Buffer(f"{slots[0].name}_told", DataType.Int, MemoryType.shared, ONE)
    return ExchangeInit(signal, sum(b.size.value * b.dtype.itemsize for b in slots))


def enter_cluster(body: tuple[Stmt, ...], thread: Int) -> tuple[Stmt, ...]:
    """Arrive at the start, and wait before the first statement that reaches into another block. Unchanged if none does.

    Counters of exchanges are set up by the first `thread` before it arrives, so that nobody stores earlier.
    """
    counters = [s for s in body if isinstance(s, ExchangeInit)]
    if counters:
        hoisted = {c.signal for c in counters}
        body = tuple(
            s for s in body if not (isinstance(s, ExchangeInit) or (isinstance(s, Allocate) and s.buffer in hoisted))
        )
    for position, stmt in enumerate(body):
        if any(isinstance(s, RemoteStore) for s in walk((stmt,))):
            wait = ClusterWait("every block of the cluster runs")
            first: list[Stmt] = [Allocate(c.signal) for c in counters]
            if counters:
                first.append(If(less(thread, ONE), tuple(counters), role=Role.owner))
            return (*first, ClusterArrive("this block runs", relaxed=True), *body[:position], wait, *body[position:])
    return body


def signalled_buffers(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Names of counters, and of slots whose stores are signalled to one: a wait of each thread's own orders their accesses."""
    stores = [s for s in walk(body) if isinstance(s, RemoteStore) and s.signal is not None]
    return frozenset(b.name for s in stores for b in (s.buffer, s.signal) if b is not None)
