"""Turn a `Scan` over the threads of a block into shuffles, shared slots and folds. Part of the pass expand_collectives.

Before: t1: scan add (t1_scan, carry t1_carry) over (block_x), tiles 4:4, run 4:1
After:  each thread folds its run; a warp scans the totals of its threads by shuffles; the last lane of each warp puts the
        warp's total into a slot, and after a barrier every warp scans the slots of as many tiles as fit its lanes by itself.
        Then each thread folds what comes before its run into it.

All tiles are folded, shuffled and written before the one barrier, so that they are in flight together. Where the threads are
no aligned group of lanes or warps (threads along y share a column), every thread reads the totals of all threads of its
group in their order instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType, ParallelType
from fuser.ir.integers import ONE, ZERO, Int, Symbol, const, equal, maximum, minimum
from fuser.ir.kernel import (
    Allocate,
    Axes,
    Buffer,
    Call,
    For,
    If,
    IndexValue,
    Load,
    Role,
    Scan,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    Value,
)
from fuser.ir.op_table import compute_dtype

WARP = 32


@dataclass(frozen=True, slots=True, eq=False)
class BlockThreads:
    """The threads of a block, as the pass knows them.

    active      axes of more than one thread, the fastest first
    linear      position among some axes, the first one fastest; at other indices, if given
    count_of    threads along some axes
    symbol      a new index below an extent
    number      one that no name has yet
    """

    active: list[ParallelType]
    threads: Mapping[ParallelType, Symbol]
    sizes: Mapping[ParallelType, Int]
    linear: Callable[[Sequence[ParallelType], Mapping[ParallelType, Int] | None], Int]
    count_of: Callable[[Sequence[ParallelType]], Int]
    symbol: Callable[[str, Int], Symbol]
    number: Callable[[], int]


def expand_scan(scan: Scan, block: BlockThreads) -> list[Stmt]:
    """Statements of one scan."""
    return _Expansion(scan, block).run()


@dataclass(slots=True, eq=False)
class _Expansion:
    """One use: `run()`. `kept` and `tiles` are flat positions below `kept_count` and `tile_count`."""

    scan: Scan
    block: BlockThreads

    def run(self) -> list[Stmt]:
        block = self.block
        # The first axis of `active` is the fastest; those of the scan are named slowest first.
        scanned = [p for p in block.active if p in self.scan.block_axes]
        total, count = block.count_of(block.active), block.count_of(scanned)
        if not scanned:
            return self._one_thread()
        in_order = scanned == [p for p in reversed(self.scan.block_axes) if p in scanned]
        contiguous = in_order and scanned == block.active[: len(scanned)]
        if contiguous and count.is_const and total.is_const and total.value % WARP == 0:
            if count.value <= WARP and count.value & (count.value - 1) == 0:
                return self._within_warps(count.value)
            if count.value % WARP == 0:
                return self._across_warps(count.value, total.value)
        return self._in_turn(total, count)

    # --- parts ---

    @property
    def _kept_count(self) -> int:
        return self.scan.carry.size.value

    @property
    def _tile_count(self) -> int:
        return _count(self.scan.tiles)

    def _registers(self, what: str, size: int) -> Buffer:
        name = f"{self.scan.name}_{what}{self.block.number()}"
        return Buffer(name, self.scan.values.dtype, MemoryType.local, const(size))

    def _shared(self, size: Int) -> Buffer:
        name = f"{self.scan.name}_shared{self.block.number()}"
        return Buffer(name, self.scan.values.dtype, MemoryType.shared, size)

    def _over(self, axes: Axes, make: Callable[[Int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(offset, position)` for every element of some axes of the array, in order."""
        if not axes:
            return make(ZERO, ZERO)
        (extent, stride), rest = axes[0], axes[1:]
        i = self.block.symbol("e", const(extent))
        inner = self._over(rest, lambda offset, at: make(i * stride + offset, i * _count(rest) + at))
        return [For(i, ZERO, const(extent), ONE, tuple(inner), unroll=True)]

    def _over_totals(self, make: Callable[[Int, Int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(offset, kept, total)` for every run: its place among the values, and those of its kept element and total."""
        tiles = self._tile_count
        return self._over(
            self.scan.kept,
            lambda k_offset, k: self._over(
                self.scan.tiles, lambda t_offset, t: make(k_offset + t_offset, k, k * tiles + t)
            ),
        )

    def _fold(self, a: Value, b: Value) -> Call:
        dtype = self.scan.values.dtype
        return Call(self.scan.combine, (a, b), compute_dtype(dtype), dtype)

    def _choose(self, left: Int, op: str, right: Int, then: Value, otherwise: Value) -> Call:
        """`then` where two positions compare so, else `otherwise`: a choice without a branch."""
        sides = tuple(IndexValue(e, DataType.Int32) for e in (left, right))
        test = Call(op, sides, DataType.Int32, DataType.Bool)
        dtype = self.scan.values.dtype
        return Call("where", (test, then, otherwise), compute_dtype(dtype), dtype)

    def _fold_runs(self, totals: Buffer) -> list[Stmt]:
        """Each thread's running folds of its own elements, and their totals."""
        values = self.scan.values

        def fold(base: Int, _kept: Int, total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [
                    Store(totals, total, self._fold(Load(totals, total), Load(values, at))),
                    Store(values, at, Load(totals, total)),
                ]

            return [Store(totals, total, self.scan.identity), *self._over(self.scan.run, step)]

        return [Allocate(totals), *self._over_totals(fold)]

    def _fold_before(self, before: Buffer) -> list[Stmt]:
        """Fold what comes before a run into its elements."""
        values = self.scan.values

        def fold(base: Int, _kept: Int, total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [Store(values, at, self._fold(Load(before, total), Load(values, at)))]

            return self._over(self.scan.run, step)

        return self._over_totals(fold)

    def _scan_lanes(self, array: Buffer, at: Int, count: int, width: int, lane: Int) -> list[Stmt]:
        """Running folds over the first `count` lanes of each group of `width`."""
        stmts: list[Stmt] = []
        offset = 1
        while offset < count:
            other = self._registers("x", 1)
            folded = self._fold(Load(other, ZERO), Load(array, at))
            stmts += [
                Allocate(other),
                Shuffle(other, ZERO, Load(array, at), ShuffleKind.up, const(offset), width),
                Store(array, at, self._choose(lane, "ge", const(offset), folded, Load(array, at))),
            ]
            offset *= 2
        return stmts

    def _shift_lanes(self, target: Buffer, source: Buffer, at: Int, width: int, lane: Int) -> list[Stmt]:
        """What the lanes before this one hold together."""
        return [
            Shuffle(target, at, Load(source, at), ShuffleKind.up, ONE, width),
            Store(target, at, self._choose(lane, "eq", ZERO, self.scan.identity, Load(target, at))),
        ]

    # --- kinds of groups ---

    def _one_thread(self) -> list[Stmt]:
        scan = self.scan

        def fold(base: Int, kept: Int, _total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [
                    Store(scan.carry, kept, self._fold(Load(scan.carry, kept), Load(scan.values, at))),
                    Store(scan.values, at, Load(scan.carry, kept)),
                ]

            return self._over(scan.run, step)

        return self._over_totals(fold)

    def _within_warps(self, count: int) -> list[Stmt]:
        """Groups of `count` lanes: no barrier."""
        carry, size = self.scan.carry, self._kept_count * self._tile_count
        totals, before = self._registers("total", size), self._registers("before", size)
        lane = self.block.linear(self.block.active, None) % count

        def scan_totals(_base: Int, kept: Int, total: Int) -> list[Stmt]:
            last = self._registers("last", 1)
            return [
                *self._scan_lanes(totals, total, count, count, lane),
                *self._shift_lanes(before, totals, total, count, lane),
                Allocate(last),
                Shuffle(last, ZERO, Load(totals, total), ShuffleKind.index, const(count - 1), count),
                Store(before, total, self._fold(Load(carry, kept), Load(before, total))),
                Store(carry, kept, self._fold(Load(carry, kept), Load(last, ZERO))),
            ]

        return [
            *self._fold_runs(totals),
            Allocate(before),
            *self._over_totals(scan_totals),
            *self._fold_before(before),
        ]

    def _across_warps(self, count: int, total_threads: int) -> list[Stmt]:
        """Groups of whole warps: one barrier between the warps' totals and their scan."""
        kept_count, tiles = self._kept_count, self._tile_count
        totals, before = (self._registers(n, kept_count * tiles) for n in ("total", "before"))
        linear = self.block.linear(self.block.active, None)
        lane = linear % WARP
        group_warps, warps = count // WARP, total_threads // WARP
        slots = self._shared(const(kept_count * tiles * warps))

        def scan_totals(_base: Int, _kept: Int, total: Int) -> list[Stmt]:
            return [
                *self._scan_lanes(totals, total, WARP, WARP, lane),
                *self._shift_lanes(before, totals, total, WARP, lane),
            ]

        def publish(_base: Int, _kept: Int, total: Int) -> list[Stmt]:
            return [Store(slots, total * warps + linear // WARP, Load(totals, total))]

        stmts = [*self._fold_runs(totals), Allocate(before), *self._over_totals(scan_totals), Allocate(slots)]
        stmts.append(If(equal(lane, WARP - 1), tuple(self._over_totals(publish)), role=Role.owner))
        own = linear % count // WARP
        first = linear // count * group_warps
        kept_axes: Axes = ((kept_count, 1),) if kept_count > 1 else ()
        at_once = max(1, WARP // group_warps)
        for start in range(0, tiles, at_once):
            taken = min(at_once, tiles - start)
            stmts += self._over(
                kept_axes,
                lambda _offset, kept, start=start, taken=taken: self._scan_slots(
                    slots, before, kept, kept * tiles + start, taken, (warps, group_warps), (lane, own, first)
                ),
            )
        return [*stmts, *self._fold_before(before)]

    def _scan_slots(
        self,
        slots: Buffer,
        before: Buffer,
        kept: Int,
        total: Int,
        tiles: int,
        warps: tuple[int, int],
        place: tuple[Int, Int, Int],
    ) -> list[Stmt]:
        """Fold into `before` what earlier warps, earlier tiles and the carry hold, for `tiles` tiles from `total` on.

        `warps`: of the block and of the group; `place`: lane, own warp in the group, first warp of the group.
        """
        carry = self.scan.carry
        block_warps, group_warps = warps
        lane, own, first = place
        count = tiles * group_warps
        # Lanes beyond the slots read the last one again, and nothing reads them.
        slot = minimum(lane, const(count - 1))
        at = (total + slot // group_warps) * block_warps + first + slot % group_warps
        read = self._registers("slot", 1)
        stmts: list[Stmt] = [Allocate(read), Store(read, ZERO, Load(slots, at))]
        stmts += self._scan_lanes(read, ZERO, count, WARP, lane)
        for tile in range(tiles):
            earlier = self._registers("earlier", 1)
            position = own + tile * group_warps
            with_earlier = self._fold(Load(carry, kept), Load(earlier, ZERO))
            if tile == 0:
                with_earlier = self._choose(own, "eq", ZERO, Load(carry, kept), with_earlier)
            stmts += [
                Allocate(earlier),
                Shuffle(earlier, ZERO, Load(read, ZERO), ShuffleKind.index, maximum(position - 1, ZERO)),
                Store(before, total + tile, self._fold(with_earlier, Load(before, total + tile))),
            ]
        last = self._registers("last", 1)
        return [
            *stmts,
            Allocate(last),
            Shuffle(last, ZERO, Load(read, ZERO), ShuffleKind.index, const(count - 1)),
            Store(carry, kept, self._fold(Load(carry, kept), Load(last, ZERO))),
        ]

    def _in_turn(self, total_threads: Int, count: Int) -> list[Stmt]:
        """Any threads: each reads the totals of all of its group, in their order."""
        carry, block = self.scan.carry, self.block
        size = self._kept_count * self._tile_count
        totals, before = self._registers("total", size), self._registers("before", size)
        slots = self._shared(total_threads * size)
        linear = block.linear(block.active, None)
        # Slowest first, as the scan names them.
        scanned = [p for p in self.scan.block_axes if p in block.active]
        own = block.linear(list(reversed(scanned)), None)

        def publish(_base: Int, _kept: Int, total: Int) -> list[Stmt]:
            return [Store(slots, total * total_threads + linear, Load(totals, total))]

        def collect(_base: Int, kept: Int, total: Int) -> list[Stmt]:
            q = block.symbol("q", count)
            index: dict[ParallelType, Int] = {p: block.threads[p] for p in block.active}
            position: Int = q
            for p in reversed(scanned):
                index[p] = position % block.sizes[p] if p is not scanned[0] else position
                position = position // block.sizes[p]
            place = total * total_threads + block.linear(block.active, index)
            step = (
                Store(before, total, self._choose(q, "eq", own, Load(carry, kept), Load(before, total))),
                Store(carry, kept, self._fold(Load(carry, kept), Load(slots, place))),
            )
            return [Store(before, total, Load(carry, kept)), For(q, ZERO, count, ONE, step)]

        return [
            *self._fold_runs(totals),
            Allocate(slots),
            *self._over_totals(publish),
            Allocate(before),
            *self._over_totals(collect),
            *self._fold_before(before),
        ]


def _count(axes: Axes) -> int:
    count = 1
    for extent, _ in axes:
        count *= extent
    return count
