"""Turn a `Scan` over the threads of a block into shuffles, exchange through shared memory, and combining. Part of the pass
expand_collectives.

Before: t1: scan add (t1_scan, carry t1_carry) over (block_x), tiles 4:4, run 4:1
After:  each thread scans its run; a warp scans the totals of its threads by shuffles; the last lane of each warp stores the
        warp's total in shared memory, and after a barrier every warp scans the totals of as many tiles as fit its lanes.
        Then each thread combines its run with the total of what comes before it.

All tiles are scanned, shuffled and stored before the one barrier, so that they are in flight together. If the threads of one
scan are not adjacent (threads along y share a column), whole rows of lanes are shuffled, and every thread reads the totals of
its column one after the other. If the threads of a scan do not tile warps evenly, every thread reads the totals of all threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fuser.ir.integers.integers import ONE, ZERO, Int, const, equal, maximum, minimum
from fuser.ir.kernel.kernel import (
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
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType
from fuser.ir.ops.op_table import compute_dtype
from fuser.lowering.collectives.lane_groups import LaneGroups, lane_groups
from fuser.lowering.combiners.combiner_values import compare
from fuser.lowering.parallel_axes import WARP, ParallelAxes

CombineBlocks = Callable[[Buffer], list[Stmt]]
"""Statements after the totals of a block are known (in the carry), and before its elements are computed: they fold the totals
of other blocks into the prefix of each run (a register for each, slowest kept element first)."""


def expand_scan(scan: Scan, block: ParallelAxes, combine_blocks: CombineBlocks | None = None) -> list[Stmt]:
    """Statements of one scan."""
    return _Expansion(scan, block, combine_blocks).run()


@dataclass(slots=True, eq=False)
class _Expansion:
    """One use: `run()`. `kept` and `tiles` are flat positions below `kept_count` and `tile_count`."""

    scan: Scan
    block: ParallelAxes
    combine_blocks: CombineBlocks | None = None

    def run(self) -> list[Stmt]:
        block = self.block
        # The first axis of `active` is the fastest; those of the scan are named slowest first.
        scanned = [p for p in block.active if p in self.scan.block_axes]
        if not scanned:
            return self._one_thread()
        groups = lane_groups(block, scanned, self.scan.block_axes)
        if groups is None:
            return self._scan_serially()
        return self._within_warps(groups) if groups.warps == 1 else self._across_warps(groups)

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

    def _for_each_element(self, axes: Axes, make: Callable[[Int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(offset, position)` for every element of some axes of the array, in order."""
        if not axes:
            return make(ZERO, ZERO)
        (extent, stride), rest = axes[0], axes[1:]
        i = self.block.symbol("e", const(extent))
        inner = self._for_each_element(rest, lambda offset, at: make(i * stride + offset, i * _count(rest) + at))
        return [For(i, ZERO, const(extent), ONE, tuple(inner), unroll=True)]

    def _for_each_run(self, make: Callable[[Int, Int, Int], list[Stmt]]) -> list[Stmt]:
        """`make(offset, kept, total)` for every run: its place among the values, and those of its kept element and total."""
        tiles = self._tile_count
        return self._for_each_element(
            self.scan.kept,
            lambda k_offset, k: self._for_each_element(
                self.scan.tiles, lambda t_offset, t: make(k_offset + t_offset, k, k * tiles + t)
            ),
        )

    def _scan_thread_elements(self, totals: Buffer) -> list[Stmt]:
        """Each thread's running folds of its own elements, and their totals."""
        values = self.scan.values

        def fold(base: Int, _kept: Int, total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [
                    Store(totals, total, combined(self.scan, Load(totals, total), Load(values, at))),
                    Store(values, at, Load(totals, total)),
                ]

            return [Store(totals, total, self.scan.identity), *self._for_each_element(self.scan.run, step)]

        return [Allocate(totals), *self._for_each_run(fold)]

    def _combine_exclusive_prefix(self, before: Buffer) -> list[Stmt]:
        """Fold what comes before a run into its elements, once other blocks have added theirs."""
        values = self.scan.values
        met = [] if self.combine_blocks is None else self.combine_blocks(before)

        def fold(base: Int, _kept: Int, total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [Store(values, at, combined(self.scan, Load(before, total), Load(values, at)))]

            return self._for_each_element(self.scan.run, step)

        return [*met, *self._for_each_run(fold)]

    def _scan_lanes(self, array: Buffer, at: Int, rows: int, lanes: tuple[int, int], row: Int) -> list[Stmt]:
        """Running folds over the first `rows` rows of each group of lanes; `lanes`: those of a row, and of the group."""
        stride, width = lanes
        stmts: list[Stmt] = []
        offset = 1
        while offset < rows:
            other = self._registers("x", 1)
            folded = combined(self.scan, Load(other, ZERO), Load(array, at))
            stmts += [
                Allocate(other),
                Shuffle(other, ZERO, Load(array, at), ShuffleKind.up, const(offset * stride), width),
                Store(array, at, select(self.scan, row, "ge", const(offset), folded, Load(array, at))),
            ]
            offset *= 2
        return stmts

    def _scan_totals(self, totals: Buffer, before: Buffer, at: Int, groups: LaneGroups) -> list[Stmt]:
        """`totals` becomes the fold up to each lane, `before` that of the lanes before it."""
        return [
            *self._scan_lanes(totals, at, groups.rows, (groups.stride, groups.width), groups.row),
            Shuffle(before, at, Load(totals, at), ShuffleKind.up, const(groups.stride), groups.width),
            Store(before, at, select(self.scan, groups.row, "eq", ZERO, self.scan.identity, Load(before, at))),
        ]

    # --- kinds of groups ---

    def _one_thread(self) -> list[Stmt]:
        scan = self.scan

        def fold(base: Int, kept: Int, _total: Int) -> list[Stmt]:
            def step(offset: Int, _position: Int) -> list[Stmt]:
                at = base + offset
                return [
                    Store(scan.carry, kept, combined(self.scan, Load(scan.carry, kept), Load(scan.values, at))),
                    Store(scan.values, at, Load(scan.carry, kept)),
                ]

            return self._for_each_element(scan.run, step)

        folded = self._for_each_run(fold)
        if self.combine_blocks is None:
            return folded
        before = self._registers("before", self._kept_count * self._tile_count)

        def nothing(_base: Int, _kept: Int, total: Int) -> list[Stmt]:
            return [Store(before, total, self.scan.identity)]

        return [*folded, Allocate(before), *self._for_each_run(nothing), *self._combine_exclusive_prefix(before)]

    def _within_warps(self, groups: LaneGroups) -> list[Stmt]:
        """Groups of lanes: no barrier."""
        carry, size = self.scan.carry, self._kept_count * self._tile_count
        totals, before = self._registers("total", size), self._registers("before", size)
        last_lane = groups.column + (groups.rows - 1) * groups.stride

        def scan_totals(_base: Int, kept: Int, total: Int) -> list[Stmt]:
            last = self._registers("last", 1)
            return [
                *self._scan_totals(totals, before, total, groups),
                Allocate(last),
                Shuffle(last, ZERO, Load(totals, total), ShuffleKind.index, last_lane, groups.width),
                Store(before, total, combined(self.scan, Load(carry, kept), Load(before, total))),
                Store(carry, kept, combined(self.scan, Load(carry, kept), Load(last, ZERO))),
            ]

        return [
            *self._scan_thread_elements(totals),
            Allocate(before),
            *self._for_each_run(scan_totals),
            *self._combine_exclusive_prefix(before),
        ]

    def _across_warps(self, groups: LaneGroups) -> list[Stmt]:
        """Groups of whole warps: one barrier between the warps' totals and their scan."""
        kept_count, tiles = self._kept_count, self._tile_count
        totals, before = (self._registers(n, kept_count * tiles) for n in ("total", "before"))
        slots = self._shared(const(kept_count * tiles * groups.block_warps * groups.stride))

        def scan_totals(_base: Int, _kept: Int, total: Int) -> list[Stmt]:
            return self._scan_totals(totals, before, total, groups)

        def publish(_base: Int, kept: Int, total: Int) -> list[Stmt]:
            at = self._slot(kept, total - kept * tiles, groups.place(groups.linear // WARP), groups.places)
            return [Store(slots, at, Load(totals, total))]

        def read(kept: Int, tile: Int, q: Int) -> Load:
            return Load(slots, self._slot(kept, tile, groups.place(groups.first + q), groups.places))

        stmts = [
            *self._scan_thread_elements(totals),
            Allocate(before),
            *self._for_each_run(scan_totals),
            Allocate(slots),
        ]
        stmts.append(If(equal(groups.row, groups.rows - 1), tuple(self._for_each_run(publish)), role=Role.owner))
        if groups.stride > 1:
            return [
                *stmts,
                *self._fold_slots(before, const(groups.warps), groups.own, read),
                *self._combine_exclusive_prefix(before),
            ]
        kept_axes: Axes = ((kept_count, 1),) if kept_count > 1 else ()
        at_once = max(1, WARP // groups.warps)
        for start in range(0, tiles, at_once):
            taken = min(at_once, tiles - start)
            stmts += self._for_each_element(
                kept_axes,
                lambda _offset, kept, start=start, taken=taken: self._scan_slots(
                    slots, before, kept, range(start, start + taken), groups
                ),
            )
        return [*stmts, *self._combine_exclusive_prefix(before)]

    def _scan_slots(self, slots: Buffer, before: Buffer, kept: Int, tiles: range, groups: LaneGroups) -> list[Stmt]:
        """Fold into `before` what earlier warps, earlier tiles and the carry hold, for some tiles.

        Each lane takes a slot: one shuffle per tile then tells a warp what comes before it.
        """
        carry, total = self.scan.carry, kept * self._tile_count + tiles.start
        count = len(tiles) * groups.warps
        # Lanes beyond the slots read the last one again, and nothing reads them.
        slot = minimum(groups.row, const(count - 1))
        place = groups.place(groups.first + slot % groups.warps)
        at = self._slot(kept, slot // groups.warps + tiles.start, place, groups.places)
        read = self._registers("slot", 1)
        stmts: list[Stmt] = [Allocate(read), Store(read, ZERO, Load(slots, at))]
        stmts += self._scan_lanes(read, ZERO, count, (1, WARP), groups.row)
        for tile in range(len(tiles)):
            earlier = self._registers("earlier", 1)
            position = groups.own + tile * groups.warps
            with_earlier = combined(self.scan, Load(carry, kept), Load(earlier, ZERO))
            if tile == 0:
                with_earlier = select(self.scan, groups.own, "eq", ZERO, Load(carry, kept), with_earlier)
            stmts += [
                Allocate(earlier),
                Shuffle(earlier, ZERO, Load(read, ZERO), ShuffleKind.index, maximum(position - 1, ZERO)),
                Store(before, total + tile, combined(self.scan, with_earlier, Load(before, total + tile))),
            ]
        last = self._registers("last", 1)
        return [
            *stmts,
            Allocate(last),
            Shuffle(last, ZERO, Load(read, ZERO), ShuffleKind.index, const(count - 1)),
            Store(carry, kept, combined(self.scan, Load(carry, kept), Load(last, ZERO))),
        ]

    def _slot(self, kept: Int, tile: Int, place: Int, places: Int | int) -> Int:
        """Of a total in shared memory: those of a thread's kept elements are neighbours, which are read as one."""
        return (tile * places + place) * self._kept_count + kept

    def _fold_slots(self, before: Buffer, count: Int, own: Int, slot: Callable[[Int, Int, Int], Load]) -> list[Stmt]:
        """Fold into `before` the carry and the slots before this thread's `own`; the carry takes all `count` of them.

        slot   (kept element, tile, number among the slots) -> what is there
        """
        carry, kept_count, tiles = self.scan.carry, self._kept_count, self._tile_count
        kept_axes: Axes = ((kept_count, 1),) if kept_count > 1 else ()
        earlier = self._registers("earlier", kept_count)
        stmts: list[Stmt] = [Allocate(earlier)]
        for tile in range(tiles):
            q = self.block.symbol("q", count)

            def start(_offset: Int, k: Int) -> list[Stmt]:
                return [Store(earlier, k, Load(carry, k))]

            def step(_offset: Int, k: Int, q: Int = q, tile: Int = const(tile)) -> list[Stmt]:
                return [
                    Store(earlier, k, select(self.scan, q, "eq", own, Load(carry, k), Load(earlier, k))),
                    Store(carry, k, combined(self.scan, Load(carry, k), slot(k, tile, q))),
                ]

            def finish(_offset: Int, k: Int, tile: int = tile) -> list[Stmt]:
                at = k * tiles + tile
                return [Store(before, at, combined(self.scan, Load(earlier, k), Load(before, at)))]

            stmts += [
                *self._for_each_element(kept_axes, start),
                For(q, ZERO, count, ONE, tuple(self._for_each_element(kept_axes, step)), unroll=count.is_const),
                *self._for_each_element(kept_axes, finish),
            ]
        return stmts

    def _scan_serially(self) -> list[Stmt]:
        """Any threads: each reads the totals of all of its group, in their order."""
        block = self.block
        size = self._kept_count * self._tile_count
        total_threads = block.block_threads
        totals, before = self._registers("total", size), self._registers("before", size)
        slots = self._shared(total_threads * size)
        linear = block.thread
        # The scan names them slowest first.
        scanned = [p for p in reversed(self.scan.block_axes) if p in block.active]
        own = block.linear(scanned)

        def publish(_base: Int, kept: Int, total: Int) -> list[Stmt]:
            at = self._slot(kept, total - kept * self._tile_count, linear, total_threads)
            return [
                Store(slots, at, Load(totals, total)),
                Store(before, total, self.scan.identity),
            ]

        def read(kept: Int, tile: Int, q: Int) -> Load:
            return Load(slots, self._slot(kept, tile, block.thread_at(scanned, q), total_threads))

        return [
            *self._scan_thread_elements(totals),
            Allocate(before),
            Allocate(slots),
            *self._for_each_run(publish),
            *self._fold_slots(before, block.count_of(scanned), own, read),
            *self._combine_exclusive_prefix(before),
        ]


def combined(scan: Scan, a: Value, b: Value) -> Call:
    """Two values of a scan combined, the earlier one first."""
    dtype = scan.values.dtype
    return Call(scan.combine, (a, b), compute_dtype(dtype), dtype)


def select(scan: Scan, left: Int, op: str, right: Int, then: Value, otherwise: Value) -> Call:
    """`then` where two positions compare so, else `otherwise`: a choice without a branch."""
    test = compare(op, IndexValue(left, DataType.Int32), IndexValue(right, DataType.Int32), DataType.Int32)
    dtype = scan.values.dtype
    return Call("where", (test, then, otherwise), compute_dtype(dtype), dtype)


def _count(axes: Axes) -> int:
    return math.prod(extent for extent, _ in axes)
