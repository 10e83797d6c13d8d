"""A `Scan` over the blocks of a cluster: each block scans its own elements, then the blocks exchange their totals.

Before: t1: scan add (t1_scan, carry t1_carry) over (grid_y, block_x)
After:  the block finds the prefix of each of its runs, without a carry, and its total. One thread per block of the cluster
        stores the total into a slot of that block. Every thread waits for all totals (for bytes, if the exchange executes once;
        else at a cluster barrier) and folds the slots in order of rank. The totals of earlier blocks and the carry are folded
        into the elements of each run together with the prefix in the block.

Iterations of a loop along a row alternate between two sets of slots, as reductions do (`expand_cluster`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fuser.ir.integers.integers import ONE, ZERO, Int, const
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    For,
    Load,
    RemoteStore,
    Role,
    Scan,
    Stmt,
    Store,
)
from fuser.ir.ops.enums import MemoryType
from fuser.lowering.collectives.expand_cluster import ClusterExchange
from fuser.lowering.collectives.expand_scan import combined, expand_scan, select
from fuser.lowering.parallel_axes import ParallelAxes


def expand_scan_of_cluster(scan: Scan, block: ParallelAxes, exchange: ClusterExchange) -> list[Stmt]:
    """Statements of a scan over the blocks of an exchange."""
    kept, dtype = scan.carry.size.value, scan.values.dtype
    size, rank = exchange.size, exchange.rank
    along = [p for p in block.active if p in scan.block_axes]
    others = [p for p in block.active if p not in along]
    lane, lanes = block.linear(others), block.count_of(others)
    number = block.number()

    def registers(what: str) -> Buffer:
        return Buffer(f"{scan.name}_{what}{number}", dtype, MemoryType.local, const(kept))

    def each(make: Callable[[Int], list[Stmt]]) -> list[Stmt]:
        if kept == 1:
            return make(ZERO)
        k = block.symbol("k", const(kept))
        return [For(k, ZERO, const(kept), ONE, tuple(make(k)), unroll=True)]

    def place(k: Int, of: Int) -> Int:
        return ((exchange.turn * kept + k) * size + of) * lanes + lane

    own, before = registers("own"), registers("earlier")
    slots = Buffer(f"{scan.name}{number}_cluster", dtype, MemoryType.shared, const(exchange.sets * kept * size) * lanes)
    begin = exchange.begin([slots])
    q = block.symbol("rank", const(size))

    def collect(k: Int) -> list[Stmt]:
        step = (
            Store(before, k, select(scan, q, "eq", rank, Load(scan.carry, k), Load(before, k))),
            Store(scan.carry, k, combined(scan, Load(scan.carry, k), Load(slots, place(k, q)))),
        )
        return [
            Store(before, k, Load(scan.carry, k)),
            For(q, ZERO, const(size), ONE, step, unroll=True),
        ]

    def exchange_totals(runs: Buffer) -> list[Stmt]:
        """Send the totals to the other blocks, wait for theirs, and fold those of earlier blocks into each run's prefix."""
        tiles = runs.size.value // kept
        peer, signal = exchange.peer, exchange.signal
        sent = each(lambda k: [RemoteStore(slots, place(k, rank), Load(own, k), peer, signal)])
        return [
            *begin,
            exchange.send(sent, block.linear(along), block.count_of(along)),
            *exchange.wait("block's total"),
            Allocate(before),
            *each(collect),
            *each(lambda k: shift(runs, k, tiles)),
        ]

    def shift(runs: Buffer, k: Int, tiles: int) -> list[Stmt]:
        tile = block.symbol("tile", const(tiles))
        at = k * tiles + tile
        step = Store(runs, at, combined(scan, Load(before, k), Load(runs, at)))
        return [For(tile, ZERO, const(tiles), ONE, (step,), unroll=True)]

    return [
        Allocate(own),
        *each(lambda k: [Store(own, k, scan.identity, Role.initialise)]),
        *expand_scan(replace(scan, carry=own, cluster_axes=()), block, exchange_totals),
        *exchange.release(),
    ]
