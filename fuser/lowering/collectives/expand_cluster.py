"""Reductions across the blocks of a cluster, through distributed shared memory.

Before: every thread of a block (or lane of a warp) holds its block's (warp's) value of a Reduce with cluster axes
After:  one lane per block of the cluster stores that value into a slot of that block's shared memory; after a cluster barrier
        each warp reads the slots of its own block, one lane per slot, and combines them by butterfly shuffles, so results
        repeat. If there are few enough values, each warp sends its own partial, without a block reduction first. If a block
        reduces several values and neighbouring threads hold those of a row, these threads read and combine them in the same
        way; else each thread combines the slots in order of rank.

If the exchange executes only once in a kernel and sends values of warps, signalled stores replace the cluster barrier: each
store adds its bytes to a counter of the receiver (st.async and an mbarrier), and a block continues as soon as its own bytes
are complete. So blocks wait for values and not for threads. Values of whole blocks are not signalled: threads that poll for
values delay those of other blocks (softmax bf16 64x1048576 121.6 -> 136.9 us on an H200).

A block may store into another only once that one runs: all blocks arrive at the start of the kernel, and wait right before
their first store into another, after the loads of the row. Nobody stores into a block after the barrier that follows the
stores, so a block may end as soon as it is done. Slots never share bytes with other buffers (`allocate_shared`): a peer may
be ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    Store,
    Value,
    walk,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.lowering.collectives.expand_block import BlockReduceExpander
from fuser.lowering.collectives.warp_all_reduce import warp_all_reduce
from fuser.lowering.combiners.combine_partials import PartialCombiner, is_common
from fuser.lowering.parallel_axes import WARP

# Values that the warps of a cluster may signal to each of its blocks: two for each lane.
_SIGNALLED_BY_WARPS = 64


def exchange_in_cluster(
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
    axes, combiner = block.axes, block.combiner
    (axis,) = r.cluster_axes
    size = cluster[axis]
    rank = axes.threads[axis] % size
    total = axes.block_threads
    others = [p for p in axes.active if p not in r.block_axes]
    if total.is_const and total.value % WARP == 0 and set(others) <= set(r.copy_axes):
        values = total.value // WARP
        by_warps = not others and size * values <= _SIGNALLED_BY_WARPS
        first: list[Stmt] = []
        if by_warps:
            alone = [s for one in reduces for s in warp_all_reduce(combiner, one, WARP)]
        else:
            # The first warp sends what the block has: no other needs it.
            alone, first = block.parts(reduces) if r.block_axes else ([], [])
            values = 1
        return alone + _exchange_by_lanes(
            reduces,
            size,
            rank,
            axes.thread,
            values,
            combiner,
            first,
            execution=execution,
            counts=by_warps,
        )
    scatter = [p for p in axes.active if p in r.block_axes]
    lanes = [p for p in axes.active if p not in r.block_axes]
    threads = axes.count_of(scatter)
    alone = block.expand(reduces) if r.block_axes else []
    # Neighbouring threads of one value can take a slot each, and join what they read by butterflies.
    beside = scatter == axes.active[: len(scatter)] and threads.is_const and threads.value % size == 0
    beside = beside and size & (size - 1) == 0
    return alone + _exchange_by_rows(
        reduces,
        size,
        rank,
        axes.linear(scatter),
        threads,
        axes.linear(lanes),
        axes.count_of(lanes),
        combiner,
        execution=execution,
        by_lanes=beside and total.is_const and total.value % WARP == 0,
        in_warp=not any(isinstance(s, Allocate) and s.buffer.memory is MemoryType.shared for s in walk(tuple(alone))),
    )


def _exchange_by_rows(
    reduces: Sequence[Reduce],
    size: int,
    rank: Int,
    thread: Int,
    threads: Int,
    lane: Int,
    lanes: Int,
    combiner: PartialCombiner,
    *,
    execution: Int | None,
    by_lanes: bool,
    in_warp: bool,
) -> list[Stmt]:
    """Statements that join the values of `size` blocks, for reductions whose blocks have theirs already.

    rank      of this block in its cluster
    thread    linear index of the thread among the `threads` that hold one value
    lane      which of the block's `lanes` values that is
    execution how often the statements ran before; None if that is not known
    by_lanes  each thread reads the slot of one block, and neighbours join them; else each thread reads those of all in turn
    in_warp   the threads of a value are of one warp: no block barrier is needed before, and no cluster barrier after
    """
    # Executions take turns with two sets of slots: when a set is used again, the barrier of the execution in between has shown
    # that every block has read its own.
    sets = 1 if execution is ZERO or execution is None else 2
    turn = ZERO if execution is None else execution % sets
    slots = {
        r: tuple(
            Buffer(f"{p.name}_cluster", p.dtype, MemoryType.shared, p.size * size * lanes * sets) for p in r.partials
        )
        for r in reduces
    }

    def place(r: Reduce, i: int, e: Int, block: Int) -> Int:
        return ((turn * r.partials[i].size + e) * size + block) * lanes + lane

    stmts: list[Stmt] = [Allocate(b) for r in reduces for b in slots[r]]
    signal = exchange_mbarrier([b for r in reduces for b in slots[r]]) if in_warp and execution is ZERO else None
    if signal is not None:
        stmts += [Allocate(signal.signal), signal]
    counter = None if signal is None else signal.signal
    peer = combiner.axes.symbol("peer", const(size))
    stores: list[Stmt] = []
    for r in reduces:

        def publish(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [RemoteStore(slots[r][i], place(r, i, e, rank), Load(r.partials[i], e), peer, counter)]

        stores += combiner.each(r, publish)
    stmts.append(For(peer, thread, const(size), threads, tuple(stores)))
    if counter is not None:
        stmts.append(ExchangeWait(counter, "every block's value has come"))
    else:
        stmts += [ClusterArrive("every block's value is on its way"), ClusterWait("every block's value has come")]
    for r in reduces:
        if is_common(r, 2) or (len(r.partials) == 1 and not by_lanes):
            # All values at once: their elements have one count, or none.
            stmts += combiner.combine_all(
                r,
                lambda i, e, k, r=r: Load(slots[r][i], place(r, i, e, k)),
                const(size),
                unroll=True,
            )
            continue

        def of_block(i: int, e: Int, block: Int, r: Reduce = r) -> Value:
            return Load(slots[r][i], place(r, i, e, block))

        def first(i: int, e: Int, r: Reduce = r, read: Callable[[int, Int, Int], Value] = of_block) -> list[Stmt]:
            return [Store(r.partials[i], e, read(i, e, thread % size if by_lanes else ZERO))]

        stmts += combiner.each(r, first)
        if by_lanes:
            stmts += warp_all_reduce(combiner, r, size)
            continue
        other = combiner.axes.symbol("rank", const(size - 1))

        def rest(i: int, e: Int, other: Int = other, read: Callable[[int, Int, Int], Value] = of_block) -> Value:
            return read(i, e, other + 1)

        stmts.append(For(other, ZERO, const(size - 1), const(1), tuple(combiner.combine_each(r, rest)), unroll=True))
    if execution is None:
        stmts += [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]
    return stmts


def _exchange_by_lanes(
    reduces: Sequence[Reduce],
    size: int,
    rank: Int,
    thread: Int,
    values: int,
    combiner: PartialCombiner,
    before: Sequence[Stmt],
    *,
    execution: Int | None,
    counts: bool,
) -> list[Stmt]:
    """Statements that join the values of `size` blocks of whole warps, for reductions whose warps or blocks have theirs.

    A lane for each block sends it a value at once. Then each warp reads what all of them left, a lane for each again, and joins
    it by butterflies: the same in every warp of every block.

    thread    linear index of the thread in its block
    values    of a block: one, or those of all its warps, so that no barrier of the block comes before the exchange
    before    what the first warp does to have its block's value
    execution    see `_exchange_by_rows`
    counts       no cluster barrier follows: threads wait until the bytes of all values have arrived
    """
    sets = 1 if execution is ZERO or execution is None else 2
    turn = ZERO if execution is None else execution % sets
    parts = size * values
    lane, warp = thread % WARP, thread // WARP
    slots = {
        r: tuple(Buffer(f"{p.name}_cluster", p.dtype, MemoryType.shared, p.size * parts * sets) for p in r.partials)
        for r in reduces
    }

    def place(r: Reduce, i: int, e: Int, part: Int) -> Int:
        return (turn * r.partials[i].size + e) * parts + part

    stmts: list[Stmt] = [Allocate(b) for r in reduces for b in slots[r]]
    signal = exchange_mbarrier([b for r in reduces for b in slots[r]]) if counts and execution is ZERO else None
    if signal is not None:
        stmts += [Allocate(signal.signal), signal]
    counter = None if signal is None else signal.signal
    peer = combiner.axes.symbol("peer", const(size))
    stores: list[Stmt] = []
    for r in reduces:

        def publish(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [
                RemoteStore(
                    slots[r][i],
                    place(r, i, e, rank * values + (warp if values > 1 else ZERO)),
                    Load(r.partials[i], e),
                    peer,
                    counter,
                )
            ]

        stores += combiner.each(r, publish)
    publish_all: Stmt = For(peer, lane, const(size), const(WARP), tuple(stores))
    stmts.append(publish_all if values > 1 else If(less(thread, WARP), (*before, publish_all), role=Role.owner))
    if counter is not None:
        stmts.append(ExchangeWait(counter, "every value has come"))
    else:
        stmts += [ClusterArrive("every value is on its way"), ClusterWait("every value has come")]
    width = parts if parts < WARP and parts & (parts - 1) == 0 else WARP
    first = lane % width
    for r in reduces:

        def read(i: int, e: Int, part: Int, r: Reduce = r) -> Value:
            return Load(slots[r][i], place(r, i, e, part))

        def found(i: int, e: Int, r: Reduce = r, read: Callable[[int, Int, Int], Value] = read) -> list[Stmt]:
            return [Store(r.partials[i], e, read(i, e, first))]

        def nothing(i: int, e: Int, r: Reduce = r) -> list[Stmt]:
            return [Store(r.partials[i], e, r.identity[i], Role.initialise)]

        if width > parts:
            stmts += [
                *combiner.each(r, nothing),
                If(less(first, parts), tuple(combiner.each(r, found)), role=Role.predicate),
            ]
        else:
            stmts += combiner.each(r, found)
        for start in range(WARP, parts, WARP):

            def other(i: int, e: Int, start: int = start, read: Callable[[int, Int, Int], Value] = read) -> Value:
                return read(i, e, lane + start)

            more = combiner.combine_each(r, other)
            if start + WARP > parts:
                more = list[Stmt]([If(less(lane + start, parts), tuple(more), role=Role.predicate)])
            stmts += more
        stmts += warp_all_reduce(combiner, r, width)
    if execution is None:
        stmts += [ClusterArrive("this block's slots are read"), ClusterWait("every block's slots are free")]
    return stmts


def exchange_mbarrier(slots: Sequence[Buffer]) -> ExchangeInit | None:
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
