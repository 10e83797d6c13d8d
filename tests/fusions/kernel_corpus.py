"""Scheduled fusions that between them use every mechanism of lowering, small enough to simulate in milliseconds.

Families, at least five kernels each: exchange through shared memory in a serial loop, two successive block reductions on one
scratch, last-block grid reduction, grid reduction with broadcast back, reductions chained to others, scans, Welford,
non-dividing split with unswitch, rfactor, waits of the grid between exprs, groups of blocks that share a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fuser.ir.fusion.fusion import Fusion, Reduction, Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.judging.oracle import Array

Float, Double, Half, BFloat16 = DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16
Int, Int32, Bool = DataType.Int, DataType.Int32, DataType.Bool
GX, GY, GZ = ParallelType.grid_x, ParallelType.grid_y, ParallelType.grid_z
BX, BY, BZ = ParallelType.block_x, ParallelType.block_y, ParallelType.block_z
SERIAL, UNROLL, UNSWITCH, VECTOR = (
    ParallelType.serial,
    ParallelType.unroll,
    ParallelType.unswitch,
    ParallelType.vectorize,
)
SHARED = MemoryType.shared

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel of the corpus. `shapes` lists the input shapes of three launches; `whole` inputs are whole numbers."""

    name: str
    family: str
    make: Callable[[], ScheduleBuilder]
    shapes: tuple[Shapes, ...]
    whole: bool = True

    def inputs(self, fusion: Fusion, shapes: Shapes, seed: int) -> list[Array]:
        """Inputs of one launch."""
        rng = np.random.default_rng((seed, len(self.name)))
        arrays: list[Array] = []
        for t, shape in zip(fusion.input_tensors, shapes, strict=True):
            values = rng.integers(-8, 9, shape) if self.whole else rng.standard_normal(shape)
            arrays.append(values.astype(t.dtype.numpy))
        return arrays


CORPUS: list[Case] = []


def _case(
    family: str, *shapes: Shapes, whole: bool = True
) -> Callable[[Callable[[], ScheduleBuilder]], Callable[[], ScheduleBuilder]]:
    def register(make: Callable[[], ScheduleBuilder]) -> Callable[[], ScheduleBuilder]:
        CORPUS.append(Case(make.__name__, family, make, shapes, whole))
        return make

    return register


def schedule_axes(s: ScheduleBuilder, name: str, types: Sequence[ParallelType]) -> None:
    """Parallelize the leading loop axes of a tensor."""
    for axis, p in enumerate(types):
        if p is not SERIAL:
            s.parallelize(name, axis, p)


def spread(s: ScheduleBuilder, reference: str, types: Sequence[ParallelType]) -> None:
    """Give all tensors the reference's loops and parallel types, and inline what can be."""
    s.transform_like(reference)
    schedule_axes(s, reference, types)
    s.parallelize_like(reference)
    s.inline_most()


# --- exchange through shared memory in a serial loop ------------------------------------------------------------------


def _transposed(extra: bool = False, dtype: DataType = Float) -> tuple[Fusion, Tensor, Tensor]:
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    y = b.permute(x, [1, 0])
    if extra:
        y = b.pointwise("add", [y, b.input_tensor(dtype, [-1, -1])], dtype)
    out = b.pointwise("set", [y], dtype)
    b.add_output(out)
    return b.freeze(), x, out


def transpose_tiles(
    fusion: Fusion, x: Tensor, out: Tensor, tile: int, serial_first: bool, threads: tuple[int, ...] = ()
) -> ScheduleBuilder:
    """out[j, i] from x[i, j] through a shared tile; one of the two tile loops is serial, the other is the grid.

    `threads`: threads per block along a merged tile, where it has fewer threads than elements.
    """
    s = ScheduleBuilder(fusion)
    cache = s.cache_after(x.name)
    s.set_memory_type(cache, SHARED)
    n = out.name
    s.split(n, 1, tile)  # j, i/t, i%t
    s.split(n, 0, tile)  # j/t, j%t, i/t, i%t
    s.reorder(n, {1: 2})  # j/t, i/t, j%t, i%t
    if not serial_first:
        s.reorder(n, {0: 1})
    s.transform_like(n)
    # Inside a tile the copy runs along the rows of x, the output along its own.
    s.reorder(cache, {2: 3})
    names = [t.name for t in s.tensors if t.name not in s.input_names]
    for name in names:
        last = 3
        if threads:
            s.merge(name, 2)
            s.split(name, 2, threads[0])
        s.parallelize(name, 1, GX)
        if threads:
            s.parallelize(name, 3, BX)
        else:
            s.parallelize(name, 2, BY)
            s.parallelize(name, last, BX)
    s.inline_at(n, 2)
    s.inline_most([t for t in names if t != cache])
    return s


@_case("exchange", ((9, 11),), ((16, 8),), ((3, 17),))
def transpose_rows() -> ScheduleBuilder:
    return transpose_tiles(*_transposed(), 8, True)


@_case("exchange", ((9, 11),), ((16, 8),), ((3, 17),))
def transpose_columns() -> ScheduleBuilder:
    return transpose_tiles(*_transposed(), 8, False)


@_case("exchange", ((9, 11), (11, 9)), ((16, 8), (8, 16)), ((3, 17), (17, 3)))
def transpose_add() -> ScheduleBuilder:
    return transpose_tiles(*_transposed(extra=True), 4, True)


@_case("exchange", ((9, 11),), ((16, 8),), ((3, 17),))
def transpose_half_threads() -> ScheduleBuilder:
    return transpose_tiles(*_transposed(dtype=Half), 8, True, (32,))


@_case("exchange", ((5, 9, 6),), ((2, 8, 8),), ((4, 3, 17),))
def transpose_batched() -> ScheduleBuilder:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1, -1])
    e = b.pointwise("neg", [x], Float)
    out = b.pointwise("set", [b.permute(e, [0, 2, 1])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.set_memory_type(e.name, SHARED)
    n = out.name
    s.split(n, 1, 4)
    s.split(n, 3, 4)  # b, j/4, j%4, i/4, i%4
    s.reorder(n, {2: 3})
    s.transform_like(n)
    s.reorder(e.name, {3: 4})
    for t in s.tensors:
        if t.name not in s.input_names:
            schedule_axes(s, t.name, (SERIAL, SERIAL, GX, BY, BX))
    s.inline_at(n, 3)
    s.inline_most([t.name for t in s.tensors if t.name not in (e.name, x.name)])
    return s


@_case("exchange", ((6, 10),), ((3, 16),), ((4, 33),))
def shared_rows_remapped() -> ScheduleBuilder:
    """Written by one mapping of threads to columns, read by another."""
    b = FusionBuilder()
    x = b.input_tensor(Int32, [-1, -1])
    out = b.pointwise("add", [x, b.constant(3, Int)], Int32)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    cache = s.cache_after(x.name)
    s.set_memory_type(cache, SHARED)
    s.split(cache, 1, 4, inner_split=False)  # i, 4, j/4
    s.split(out.name, 1, 4)  # i, j/4, 4
    s.parallelize(cache, 1, BX)
    s.parallelize(out.name, 2, BX)
    s.inline_at(out.name, 1)
    return s


# --- two successive block reductions on one scratch -------------------------------------------------------------------


def _two_reductions(first: str, second: str, dtype: DataType = Float) -> tuple[Fusion, Tensor]:
    """r1 = first over rows of x, r2 = second over rows of x - r1; out = (x + r1) + r2. Nothing but the sums need be kept."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r1 = b.reduction(first, x, [1], dtype)
    y = b.pointwise("sub", [x, b.broadcast(r1, [False, True])], dtype)
    r2 = b.reduction(second, y, [1], dtype)
    z = b.pointwise("add", [x, b.broadcast(r1, [False, True])], dtype)
    out = b.pointwise("add", [z, b.broadcast(r2, [False, True])], dtype)
    b.add_output(out)
    return b.freeze(), out


def looped_rows(
    fusion: Fusion, out: Tensor, block: int, rows: Sequence[ParallelType], row_block: int = 0
) -> ScheduleBuilder:
    """Threads walk a row once per reduction and once for the result. `rows`: types of the row axis, split by `row_block`."""
    s = ScheduleBuilder(fusion)
    n = out.name
    s.split(n, 1, block)
    if row_block:
        s.split(n, 0, row_block)
    spread(s, n, (*rows, SERIAL, BX))
    return s


@_case("two reductions", ((3, 70),), ((5, 33),), ((2, 64),))
def max_then_sum() -> ScheduleBuilder:
    return looped_rows(*_two_reductions("max", "sum"), 64, (GX,))


@_case("two reductions", ((3, 50),), ((5, 20),), ((2, 64),))
def sum_then_max_odd_block() -> ScheduleBuilder:
    return looped_rows(*_two_reductions("sum", "max"), 48, (GX,))


@_case("two reductions", ((3, 70),), ((5, 33),), ((2, 64),))
def serial_rows() -> ScheduleBuilder:
    """The scratch is used again in the next iteration."""
    return looped_rows(*_two_reductions("min", "sum", Int32), 64, (SERIAL,))


@_case("two reductions", ((7, 70),), ((5, 33),), ((4, 64),))
def rows_in_block() -> ScheduleBuilder:
    """Two rows a block: groups of warps."""
    return looped_rows(*_two_reductions("sum", "min"), 64, (GX, BY), 2)


@_case("two reductions", ((7, 25),), ((5, 12),), ((6, 24),))
def rows_in_odd_block() -> ScheduleBuilder:
    """Three rows a block of 20 threads each: no group is a warp."""
    return looped_rows(*_two_reductions("sum", "sum", Double), 20, (SERIAL, BY), 3)


@_case("two reductions", ((70, 3),), ((33, 5),), ((64, 2),))
def reduced_across_y() -> ScheduleBuilder:
    """Column statistics: threads along y share a column."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r1 = b.reduction("max", x, [0], Float)
    y = b.pointwise("sub", [x, b.broadcast(r1, [True, False])], Float)
    r2 = b.reduction("sum", y, [0], Float)
    out = b.pointwise("add", [r1, r2], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(y.name, 0, 8)
    s.split(y.name, 2, 4)
    s.reorder(y.name, {2: 0, 3: 1})  # j/4, j%4, i/8, i%8
    spread(s, y.name, (GX, BX, SERIAL, BY))
    return s


# --- reductions over blocks ------------------------------------------------------------------------------------------


def _column_sum(op: str = "sum", dtype: DataType = Float, back: bool = False, after: str = "") -> tuple[Fusion, Tensor]:
    """r = op over columns of x; the output is r, after(r), or x - r. Result: fusion, r."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction(op, x, [0], dtype)
    out = r
    if after:
        out = b.pointwise(after, [r], dtype)
    if back:
        out = b.pointwise("sub", [x, b.broadcast(r, [True, False])], dtype)
    b.add_output(out)
    return b.freeze(), r


def split_columns(
    fusion: Fusion, r: Tensor, tile: tuple[int, int, int], types: Sequence[ParallelType], cache: bool = False
) -> ScheduleBuilder:
    """x[i, j] reduced over i: `tile` = columns per block, rows per thread, threads along rows; the rest of i is the grid's.

    Loop axes: j/c, j%c, i/(rt), (i/r)%t, i%r, the last one rfactored.
    """
    columns, rows, threads = tile
    s = ScheduleBuilder(fusion)
    n = s.cache_before(r.name) if cache else r.name
    s.split(n, 1, columns)
    s.split(n, 0, rows)
    s.reorder(n, {2: 0, 3: 1})
    s.split(n, 2, threads)
    s.transform_like(n)
    first = s.rfactor(n, [4])
    for name in (n, str(first)):
        schedule_axes(s, name, types)
    s.parallelize_like(str(first))
    s.inline_most()
    return s


def split_rows(
    fusion: Fusion, r: Tensor, block: int, batch: int, types: Sequence[ParallelType], cache: bool = False
) -> ScheduleBuilder:
    """x[i, j] reduced over j. Loop axes: i, j/(bt), (j/b)%t, j%b; the last one rfactored."""
    s = ScheduleBuilder(fusion)
    n = s.cache_before(r.name) if cache else r.name
    s.split(n, 1, batch)
    s.split(n, 1, block)
    s.transform_like(n)
    first = s.rfactor(n, [3])
    for name in (n, str(first)):
        schedule_axes(s, name, types)
    s.parallelize_like(str(first))
    s.inline_most()
    return s


def _row_sum(op: str = "sum", dtype: DataType = Float, back: bool = False) -> tuple[Fusion, Tensor]:
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction(op, x, [1], dtype)
    out = b.pointwise("sub", [x, b.broadcast(r, [False, True])], dtype) if back else r
    b.add_output(out)
    return b.freeze(), r


_TALL: tuple[Shapes, ...] = (((37, 6),), ((64, 8),), ((9, 3),))
_WIDE: tuple[Shapes, ...] = (((3, 70),), ((2, 128),), ((5, 9),))


@_case("last block", *_TALL)
def last_block_columns() -> ScheduleBuilder:
    return split_columns(*_column_sum(), (4, 2, 4), (GX, BX, GY, BY), cache=True)


@_case("last block", *_TALL)
def last_block_columns_direct() -> ScheduleBuilder:
    """The reduction itself is the output."""
    return split_columns(*_column_sum("max", Int32), (4, 2, 4), (GX, BX, GY, BY))


@_case("last block", *_TALL)
def last_block_serial_columns() -> ScheduleBuilder:
    """A serial loop over column tiles: one semaphore and one set of partials per iteration."""
    return split_columns(*_column_sum(), (4, 2, 4), (SERIAL, BX, GY, BY), cache=True)


@_case("last block", *_TALL)
def last_block_then_pointwise() -> ScheduleBuilder:
    return split_columns(*_column_sum(after="relu"), (4, 2, 4), (GX, BX, GY, BY))


@_case("last block", *_WIDE)
def last_block_rows() -> ScheduleBuilder:
    return split_rows(*_row_sum(), 32, 2, (GY, GX, BX), cache=True)


@_case("last block", *_WIDE)
def last_block_rows_one_thread() -> ScheduleBuilder:
    """Blocks of one thread: nothing to synchronise inside them."""
    return split_rows(*_row_sum(), 4, 2, (GY, GX), cache=True)


@_case("last block", ((4, 6, 5),), ((3, 0, 8),), ((0, 1, 17),), ((2, 3, 0),))
def last_block_two_grid_axes() -> ScheduleBuilder:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1, -1])
    r = b.reduction("sum", x, [0, 1, 2], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    n = s.cache_before(r.name)
    spread(s, n, (GX, GY, BX))
    return s


@_case("broadcast back", *_TALL)
def broadcast_back_columns() -> ScheduleBuilder:
    return split_columns(*_column_sum(back=True), (4, 2, 4), (GX, BX, GY, BY))


@_case("broadcast back", *_TALL)
def broadcast_back_serial_columns() -> ScheduleBuilder:
    return split_columns(*_column_sum(back=True), (4, 2, 4), (SERIAL, BX, GY, BY))


@_case("broadcast back", *_WIDE)
def broadcast_back_rows() -> ScheduleBuilder:
    return split_rows(*_row_sum("prod", Int32, back=True), 32, 2, (GY, GX, BX))


@_case("broadcast back", *_WIDE)
def broadcast_back_one_thread() -> ScheduleBuilder:
    return split_rows(*_row_sum(back=True), 4, 2, (GY, GX))


@_case("broadcast back", ((3, 40),), ((2, 64),), ((5, 9),))
def broadcast_back_two_reductions() -> ScheduleBuilder:
    """The second reduction needs the first in every block."""
    fusion, out = _two_reductions("sum", "sum")
    s = ScheduleBuilder(fusion)
    s.split(out.name, 1, 16)
    spread(s, out.name, (SERIAL, GX, BX))
    return s


# --- reductions chained to others: threads along a row hold copies of what it leaves ------------------------------------


def chained_rows(
    ops: Sequence[str], threads: int, trips: int, rows: int, *, welford: bool = False, dtype: DataType = Float
) -> ScheduleBuilder:
    """x[i, j] summed over j, then -sum reduced over i by each of `ops`, or by Welford.

    Loop axes: i/(trips*rows) of the grid, (i/rows)%trips serial, i%rows of block_y, j/threads serial, j%threads of block_x.
    """
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    r = b.reduction("sum", x, [1], dtype)
    left = b.pointwise("neg", [r], dtype)
    results = [b.reduction(op, left, [0], dtype) for op in ops]
    if welford:
        results += b.welford(left, [0])[:2]
    for result in results:
        b.add_output(b.pointwise("abs", [result], dtype))
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, threads)
    types = [GX]
    if rows > 1:
        s.split(r.name, 0, rows)
    if trips > 1:
        s.split(r.name, 0, trips)
        types.append(SERIAL)
    if rows > 1:
        types.append(BY)
    spread(s, r.name, (*types, SERIAL, BX))
    return s


_CHAINED: tuple[Shapes, ...] = (((7, 40),), ((1, 9),), ((12, 3),), ((0, 5),))


@_case("chained", *_CHAINED)
def chained_one_row_a_block() -> ScheduleBuilder:
    return chained_rows(["sum"], 32, 1, 1)


@_case("chained", *_CHAINED, whole=False)
def chained_in_trips() -> ScheduleBuilder:
    return chained_rows(["sum"], 64, 3, 1)


@_case("chained", *_CHAINED)
def chained_rows_side_by_side() -> ScheduleBuilder:
    return chained_rows(["max"], 8, 2, 4)


@_case("chained", *_CHAINED)
def chained_two_results() -> ScheduleBuilder:
    """One semaphore, one last block."""
    return chained_rows(["sum", "max"], 32, 2, 2, dtype=Int32)


@_case("chained", *_CHAINED)
def chained_odd_block() -> ScheduleBuilder:
    return chained_rows(["sum"], 5, 2, 3)


@_case("chained", *_CHAINED, whole=False)
def chained_welford() -> ScheduleBuilder:
    return chained_rows([], 32, 2, 2, welford=True)


# --- scans ------------------------------------------------------------------------------------------------------------


def scanned(
    op: str = "cumsum", dtype: DataType = Float, dim: int = 1, start: bool = False, twice: bool = False
) -> tuple[Fusion, Tensor]:
    """s = scan of 2 x along `dim`, out = s - x. `twice`: the scan of a scan. Result: fusion, the (last) scan."""
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    init = b.constant(3, Int) if start else None
    s = b.scan(op, b.pointwise("add", [x, x], dtype), dim, init)
    if twice:
        s = b.scan(op, s, dim)
    b.add_output(b.pointwise("sub", [s, x], dtype))
    return b.freeze(), s


def scan_rows(
    fusion: Fusion,
    s: Tensor,
    run: int,
    threads: int,
    tiles: int,
    rows: int = 0,
    row_type: ParallelType = GX,
    cluster: int = 0,
) -> ScheduleBuilder:
    """Loop axes: i[/rows, %rows], j/(run threads tiles cluster)[, block of the cluster], tile, thread, run."""
    b = ScheduleBuilder(fusion)
    n = s.name
    types = [row_type]
    if run > 1:
        b.split(n, 1, run)
    b.split(n, 1, threads)
    b.split(n, 1, tiles)
    if cluster:
        b.split(n, 1, cluster)
        b.set_cluster(GY, cluster)
    if rows:
        b.split(n, 0, rows)
        types.append(BY)
    spread(b, n, (*types, SERIAL, *((GY,) if cluster else ()), UNROLL, BX))
    return b


def scan_columns(
    fusion: Fusion, s: Tensor, columns: int, rows: int, threads: int, vector: int = 1, cluster: int = 0
) -> ScheduleBuilder:
    """Loop axes: j/(columns vector), thread, i/(rows threads cluster)[, block], thread along i, row, column of the vector."""
    b = ScheduleBuilder(fusion)
    n = s.name
    b.split(n, 1, vector)
    b.split(n, 1, columns)
    b.split(n, 0, rows)
    b.split(n, 0, threads)
    if cluster:
        b.split(n, 0, cluster)
        b.set_cluster(GY, cluster)
        b.reorder(n, {4: 0, 5: 1})
    else:
        b.reorder(n, {3: 0, 4: 1})
    spread(b, n, (GX, BX, SERIAL, *((GY,) if cluster else ()), BY))
    return b


_ROWS: tuple[Shapes, ...] = (((3, 150),), ((2, 512),), ((5, 9),))


@_case("scan", *_ROWS)
def scan_within_a_warp() -> ScheduleBuilder:
    return scan_rows(*scanned(), 2, 32, 2)


@_case("scan", *_ROWS)
def scan_groups_of_a_warp() -> ScheduleBuilder:
    """Four rows a block of eight lanes each."""
    return scan_rows(*scanned("cummax", Int32, start=True), 1, 8, 3, rows=4)


@_case("scan", *_ROWS)
def scan_across_warps() -> ScheduleBuilder:
    """Several steps a row: the slots are used again in the next one."""
    return scan_rows(*scanned(start=True), 1, 64, 2)


@_case("scan", ((2, 1300),), ((1, 2304),), ((3, 9),))
def scan_many_slots() -> ScheduleBuilder:
    """More tiles and warps than a warp has lanes."""
    return scan_rows(*scanned("cummin", Int32), 1, 128, 9)


@_case("scan", *_ROWS)
def scan_two_groups_of_warps() -> ScheduleBuilder:
    return scan_rows(*scanned(dtype=Double), 1, 64, 1, rows=2)


@_case("scan", *_ROWS)
def scan_serial_rows() -> ScheduleBuilder:
    return scan_rows(*scanned(), 1, 64, 1, row_type=SERIAL)


@_case("scan", *_ROWS)
def scan_of_a_scan() -> ScheduleBuilder:
    return scan_rows(*scanned(twice=True), 2, 64, 1)


@_case("scan", *_ROWS)
def scan_odd_block() -> ScheduleBuilder:
    """Threads that are no group of lanes read all totals in turn."""
    return scan_rows(*scanned(), 2, 20, 2, rows=3)


@_case("scan", *_ROWS)
def scan_over_a_cluster() -> ScheduleBuilder:
    """Several steps a row, whose totals the blocks exchange through two sets of slots."""
    return scan_rows(*scanned(start=True), 1, 64, 2, cluster=2)


@_case("scan", ((70, 3),), ((33, 5),), ((64, 8),))
def scan_down_columns() -> ScheduleBuilder:
    """One thread folds a column; nothing is exchanged."""
    return scan_columns(*scanned(dim=0), 4, 3, 1)


@_case("scan", ((70, 3),), ((33, 5),), ((64, 8),))
def scan_across_y() -> ScheduleBuilder:
    """Threads along y share a column, half a warp of them."""
    return scan_columns(*scanned(dim=0, start=True), 4, 2, 4, vector=2)


@_case("scan", ((70, 3),), ((33, 5),), ((64, 8),))
def scan_across_y_by_warps() -> ScheduleBuilder:
    """Eight rows of four lanes a warp, two warps a column."""
    return scan_columns(*scanned("cummin", dim=0), 4, 1, 16, vector=2)


def fusion_inputs(s: ScheduleBuilder) -> list[str]:
    """Names of the inputs."""
    return [t.name for t in s.fusion.input_tensors]


@_case("broadcast back", *_TALL, whole=False)
def broadcast_back_sum_and_product() -> ScheduleBuilder:
    """Two results of the same blocks, behind one wait."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    both = [b.broadcast(b.reduction(op, x, [0], Float), [True, False]) for op in ("sum", "prod")]
    out = b.pointwise("add", [b.pointwise("sub", [x, both[0]], Float), both[1]], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 0, 2)
    spread(s, out.name, (GX, SERIAL, BX))
    return s


# --- Welford ----------------------------------------------------------------------------------------------------------


def _statistics(axis: int, back: bool = False, count: bool = False) -> tuple[Fusion, Tensor]:
    """Mean and m2 (and count) over an axis, or (x - mean) * m2. Result: fusion, mean."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    mean, m2, n = b.welford(x, [axis])
    flags = [i == axis for i in range(2)]
    if back:
        centred = b.pointwise("sub", [x, b.broadcast(mean, flags)], Float)
        b.add_output(b.pointwise("mul", [centred, b.broadcast(m2, flags)], Float))
    else:
        b.add_output(mean)
        b.add_output(m2)
        if count:
            b.add_output(n)
    return b.freeze(), mean


@_case("welford", *_WIDE, whole=False)
def welford_serial() -> ScheduleBuilder:
    fusion, mean = _statistics(1, count=True)
    s = ScheduleBuilder(fusion)
    s.split(mean.name, 0, 4)
    spread(s, mean.name, (GX, BX))
    return s


@_case("welford", *_WIDE, whole=False)
def welford_warp() -> ScheduleBuilder:
    fusion, mean = _statistics(1, back=True)
    s = ScheduleBuilder(fusion)
    s.split(mean.name, 1, 32)
    spread(s, mean.name, (GX, SERIAL, BX))
    return s


@_case("welford", *_WIDE, whole=False)
def welford_block() -> ScheduleBuilder:
    fusion, mean = _statistics(1, back=True)
    s = ScheduleBuilder(fusion)
    s.split(mean.name, 1, 64)
    spread(s, mean.name, (GX, SERIAL, BX))
    return s


# With one row or none, the first value of a column or row that is not there lies behind the end.
@_case("welford", *_TALL, ((1, 6),), ((0, 6),), whole=False)
def welford_odd_block() -> ScheduleBuilder:
    fusion, mean = _statistics(0, count=True)
    s = ScheduleBuilder(fusion)
    s.split(mean.name, 1, 4)
    s.split(mean.name, 0, 6)
    s.reorder(mean.name, {2: 0, 3: 1})
    spread(s, mean.name, (GX, BX, SERIAL, BY))
    return s


@_case("welford", *_WIDE, whole=False)
def welford_rfactor() -> ScheduleBuilder:
    fusion, mean = _statistics(1, count=True)
    s = ScheduleBuilder(fusion)
    n = mean.name
    s.split(n, 1, 32)
    first, *_ = s.rfactor(n, [1])
    for name in (n, first):
        s.parallelize(name, 0, GX)
        s.parallelize(name, len(s.state(name).loop) - 1, BX)
    s.inline_most()
    return s


@_case("welford", ((22, 3),), ((17, 5),), ((12, 4),), whole=False)
def welford_in_steps() -> ScheduleBuilder:
    """A thread asks for two rows of a pair of columns, then folds both; the pairs' counts are in common."""
    fusion, mean = _statistics(0, count=True)
    s = ScheduleBuilder(fusion)
    n = mean.name
    copy = s.cache_after(fusion.input_tensors[0].name)
    s.split(n, 1, 2)
    s.split(n, 0, 3)
    s.split(n, 0, 2)
    s.reorder(n, {3: 0, 2: 2, 1: 3})  # columns / 2, rows / 6, rows % 3, rows / 3 % 2, columns % 2
    s.transform_like(n)
    schedule_axes(s, n, (GX, SERIAL, BY, UNSWITCH))
    s.parallelize_like(n)
    first, *_ = s.rfactor(n, [3])
    s.inline_most([t.name for t in s.tensors if t.name not in (copy, *fusion_inputs(s))])
    s.inline_at(first, 3, True, [copy])
    return s


# With one row or none, the first value of a column or row that is not there lies behind the end.
@_case("welford", *_TALL, ((1, 6),), ((0, 6),), whole=False)
def welford_last_block() -> ScheduleBuilder:
    fusion, mean = _statistics(0, count=True)
    s = ScheduleBuilder(fusion)
    n = mean.name
    s.split(n, 1, 4)
    s.split(n, 0, 6)
    s.reorder(n, {2: 0, 3: 1})
    spread(s, n, (GX, BX, GY, BY))
    return s


@_case("welford", *_TALL, whole=False)
def welford_broadcast_back() -> ScheduleBuilder:
    fusion, mean = _statistics(0, back=True)
    s = ScheduleBuilder(fusion)
    n = mean.name
    s.split(n, 1, 4)
    s.split(n, 0, 6)
    s.reorder(n, {2: 0, 3: 1})
    spread(s, n, (GX, BX, GY, BY))
    return s


# --- non-dividing split with unswitch ---------------------------------------------------------------------------------


def _bias_relu(dtype: DataType = Float) -> tuple[Fusion, Tensor]:
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, -1])
    bias = b.input_tensor(dtype, [-1])
    y = b.pointwise("add", [x, b.broadcast(bias, [True, False])], dtype)
    out = b.pointwise("neg", [y], dtype)
    b.add_output(out)
    return b.freeze(), out


_BIASED: tuple[Shapes, ...] = (((5, 13), (13,)), ((8, 8), (8,)), ((3, 33), (33,)))


@_case("unswitch", *_BIASED)
def unswitch_flat() -> ScheduleBuilder:
    fusion, out = _bias_relu()
    s = ScheduleBuilder(fusion)
    n = out.name
    s.merge(n, 0)
    s.split(n, 0, 8)
    s.split(n, 0, 2)  # rest, 2, 8
    spread(s, n, (GX, UNSWITCH, BX))
    return s


@_case("unswitch", *_BIASED)
def unswitch_columns() -> ScheduleBuilder:
    fusion, out = _bias_relu(Int32)
    s = ScheduleBuilder(fusion)
    n = out.name
    s.split(n, 1, 3)
    s.split(n, 1, 4)  # i, rest, 4, 3
    spread(s, n, (GX, SERIAL, BX, UNSWITCH))
    return s


@_case("unswitch", *_BIASED)
def unswitch_both_dims() -> ScheduleBuilder:
    """Two hoisted tests at once, over a loop inside the unswitched one."""
    fusion, out = _bias_relu()
    s = ScheduleBuilder(fusion)
    n = out.name
    s.split(n, 1, 3)
    s.split(n, 0, 2)  # i/2, 2, j/3, 3
    s.reorder(n, {2: 1})  # i/2, j/3, 2, 3
    spread(s, n, (GX, BX, UNSWITCH, UNROLL))
    return s


@_case("unswitch", *_BIASED)
def unswitch_inner_split_outside() -> ScheduleBuilder:
    fusion, out = _bias_relu()
    s = ScheduleBuilder(fusion)
    n = out.name
    s.split(n, 1, 4, inner_split=False)  # i, 4, j/4
    s.reorder(n, {1: 2})  # i, j/4, 4
    spread(s, n, (GX, BX, UNSWITCH))
    return s


@_case("unswitch", ((3, 47),), ((2, 100),), ((4, 95),))
def unswitch_steps() -> ScheduleBuilder:
    """The loads of a step stand before the additions, both under one test; the last block joins the parts of two blocks."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    n = r.name
    copy = s.cache_after(x.name)
    s.split(n, 1, 2, False)
    s.split(n, 2, 8)
    s.split(n, 2, 3)
    s.reorder(n, {4: 3})  # rows, part, columns / 24, columns % 8, columns / 8 % 3
    s.transform_like(n)
    schedule_axes(s, n, (GX, GY, SERIAL, BX, UNSWITCH))
    s.parallelize_like(n)
    s.inline_most([t.name for t in s.tensors if t.name not in (copy, x.name)])
    s.inline_at(n, 4, True, [copy])
    return s


@_case("unswitch", *_WIDE)
def unswitch_reduction() -> ScheduleBuilder:
    fusion, r = _row_sum()
    s = ScheduleBuilder(fusion)
    n = r.name
    s.split(n, 1, 8)
    s.split(n, 1, 4)  # i, rest, 4, 8
    first = s.rfactor(n, [1, 2])
    schedule_axes(s, n, (GX, BX))
    schedule_axes(s, str(first), (GX, SERIAL, SERIAL, BX))
    s.inline_most()
    return s


@_case("unswitch", *_BIASED)
def unswitch_loads_first() -> ScheduleBuilder:
    """Loads of several elements in an unswitched loop of their own, in flight together."""
    fusion, out = _bias_relu()
    s = ScheduleBuilder(fusion)
    x = fusion.input_tensors[0]
    cache = s.cache_after(x.name)
    n = out.name
    s.split(n, 1, 8)
    s.split(n, 1, 2)  # i, rest, 2, 8
    s.transform_like(n)
    for t in s.tensors:
        if t.name not in s.input_names:
            loop = len(s.state(t.name).loop)
            schedule_axes(s, t.name, (GX, SERIAL, UNSWITCH, BX)[:loop])
    s.inline_at(n, 2, best_effort=True, selected=[cache])
    s.inline_most([t.name for t in s.tensors if t.name not in (cache, *s.input_names)])
    return s


# --- rfactor ----------------------------------------------------------------------------------------------------------


@_case("rfactor", *_WIDE)
def rfactor_block() -> ScheduleBuilder:
    return split_rows(*_row_sum(), 16, 4, (GX, SERIAL, BX), cache=True)


@_case("rfactor", *_WIDE)
def rfactor_outer() -> ScheduleBuilder:
    """The thread's part strides over the row."""
    fusion, r = _row_sum("max")
    s = ScheduleBuilder(fusion)
    s.split(r.name, 1, 32)
    first = s.rfactor(r.name, [1])
    for name in (r.name, str(first)):
        s.parallelize(name, 0, GX)
        s.parallelize(name, len(s.state(name).loop) - 1, BX)
    s.inline_most()
    return s


@_case("rfactor", *_WIDE)
def rfactor_twice() -> ScheduleBuilder:
    """A thread's part, then a warp's, then the block's."""
    fusion, r = _row_sum("sum", Int32)
    s = ScheduleBuilder(fusion)
    n = r.name
    s.split(n, 1, 3)
    s.split(n, 1, 32)
    s.split(n, 1, 2)  # i, rest, 2, 32, 3
    first = str(s.rfactor(n, [1, 4]))  # r: i, 2, 32
    second = str(s.rfactor(n, [2]))  # r: i, 2
    schedule_axes(s, first, (GX, SERIAL, BY, BX))
    schedule_axes(s, second, (GX, BY, BX))
    schedule_axes(s, n, (GX, BY))
    s.inline_most()
    return s


@_case("rfactor", *_TALL)
def rfactor_columns() -> ScheduleBuilder:
    return split_columns(*_column_sum("min"), (4, 2, 4), (GX, BX, SERIAL, BY))


@_case("rfactor", *_TALL)
def rfactor_kept_in_registers() -> ScheduleBuilder:
    """Several partial sums per thread: the columns of a tile are a serial loop inside the rows."""
    fusion, r = _column_sum()
    s = ScheduleBuilder(fusion)
    n = r.name
    s.split(n, 1, 4)
    s.split(n, 0, 8)
    s.reorder(n, {2: 0, 3: 3})  # j/4, i/8, i%8, j%4
    first = str(s.rfactor(n, [1]))
    schedule_axes(s, first, (GX, SERIAL, BX))
    schedule_axes(s, n, (GX, BX))
    s.inline_most()
    return s


# --- values that blocks pass to one another through device memory ------------------------------------------------------


def sum_through_workspace(ops: Sequence[str], block: ParallelType, thread: ParallelType = BX) -> ScheduleBuilder:
    """Reductions of x[i, j] over i: two blocks take every other row, then the blocks share the columns of what they left."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    results = [b.reduction(op, b.pointwise("neg", [x], Float), [0], Float) for op in ops]
    for r in results:
        b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    for r in results:
        n = r.name
        s.split(n, 0, 2)  # i/2, i%2, j
        part = str(s.rfactor(n, [0]))
        s.set_memory_type(part, GLOBAL_MEMORY)
        s.reorder(part, {1: 0, 2: 1})  # i%2, j, i/2
        schedule_axes(s, part, (block, thread))
        s.split(n, 1, 4)
        s.reorder(n, {0: 2})  # j/4, j%4, i%2
        schedule_axes(s, n, (block, thread))
        source = s.definition(part)
        assert isinstance(source, Reduction)
        s.transform_like(part, [source.input.name])
        s.parallelize_like(part, -1, [source.input.name])
        s.inline_most([source.input.name])
    return s


@_case("grid wait", ((9, 11),), ((16, 8),), ((17, 3),))
def wait_for_sums() -> ScheduleBuilder:
    return sum_through_workspace(("sum",), GX)


@_case("grid wait", ((9, 11),), ((16, 8),), ((17, 3),))
def wait_once_for_two() -> ScheduleBuilder:
    return sum_through_workspace(("sum", "max"), GX)


@_case("grid wait", ((9, 11),), ((16, 8),), ((17, 3),))
def wait_of_single_threads() -> ScheduleBuilder:
    return sum_through_workspace(("sum",), GY, SERIAL)


@_case("grid wait", ((9, 11),), ((16, 8),), ((3, 17),))
def wait_for_transposed() -> ScheduleBuilder:
    """out[j, i] of a block comes from what all blocks wrote."""
    fusion, _, _ = _transposed()
    s = ScheduleBuilder(fusion)
    cache = s.cache_after(fusion.input_tensors[0].name)
    s.set_memory_type(cache, GLOBAL_MEMORY)
    for name in [t.name for t in s.tensors if t.name not in s.input_names]:
        s.split(name, 1, 8)
        schedule_axes(s, name, (GX, SERIAL, BX))
    s.inline_most([t.name for t in s.tensors if t.name not in (cache, *s.input_names)])
    return s


@_case("grid wait", ((3, 5, 6),), ((2, 8, 8),), ((1, 9, 4),))
def wait_in_a_loop() -> ScheduleBuilder:
    """One workspace for all trips: it may not be written again before all blocks have read it."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1, -1])
    e = b.pointwise("neg", [x], Float)
    out = b.pointwise("set", [b.permute(e, [0, 2, 1])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.set_memory_type(e.name, GLOBAL_MEMORY)
    for t in s.tensors:
        if t.name not in s.input_names:
            schedule_axes(s, t.name, (SERIAL, GX, BX))
    s.inline_at(out.name, 1)
    s.inline_most([t.name for t in s.tensors if t.name not in (e.name, x.name)])
    return s


@_case("grid wait", ((7,), (5, 7)), ((8,), (2, 8)), ((3,), (9, 3)))
def wait_for_the_first_block() -> ScheduleBuilder:
    """Values that every block needs and one writes."""
    b = FusionBuilder()
    v, x = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1, -1])
    e = b.pointwise("neg", [v], Float)
    out = b.pointwise("add", [b.broadcast(e, [True, False]), x], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    s.set_memory_type(e.name, GLOBAL_MEMORY)
    s.parallelize(e.name, 0, BX)
    schedule_axes(s, out.name, (GX, BX))
    s.parallelize_like(out.name, -1, [t.name for t in s.tensors if t.name not in (e.name, *s.input_names)])
    s.inline_most([t.name for t in s.tensors if t.name not in (e.name, *s.input_names)])
    return s


# --- groups of blocks that share a row and all go on with the result ------------------------------------------------------


def _group(fusion: Fusion, out: Tensor, blocks: int, threads: int, trips: bool) -> ScheduleBuilder:
    """Rows over `blocks` blocks of `threads`; two groups go over them, or each row has its own. The rest of a row is serial."""
    s = ScheduleBuilder(fusion)
    n = out.name
    s.split(n, 1, threads)
    s.split(n, 1, blocks)
    if trips:
        s.split(n, 0, 2)
    # rows/2, two, columns, blocks, threads
    spread(s, n, (*((SERIAL, GX) if trips else (GX,)), SERIAL, GY, BX))
    return s


_GROUPED: tuple[Shapes, ...] = (((3, 250),), ((2, 128),), ((1, 9),))


@_case("group", *_GROUPED, whole=False)
def group_rows() -> ScheduleBuilder:
    fusion, _ = _row_sum(back=True)
    return _group(fusion, fusion.output_tensors[0], 3, 64, trips=False)


@_case("group", *_GROUPED, whole=False)
def group_of_warps() -> ScheduleBuilder:
    fusion, _ = _row_sum("max", back=True)
    return _group(fusion, fusion.output_tensors[0], 3, 32, trips=False)


@_case("group", ((3, 250),), ((5, 128),), ((2, 9),), whole=False)
def group_in_trips() -> ScheduleBuilder:
    fusion, _ = _row_sum(back=True)
    return _group(fusion, fusion.output_tensors[0], 3, 64, trips=True)


@_case("group", ((3, 250),), ((5, 128),), ((2, 9),))
def group_meets_twice() -> ScheduleBuilder:
    """The second reduction needs the first in every block."""
    fusion, out = _two_reductions("sum", "sum")
    return _group(fusion, out, 2, 64, trips=True)


@_case("group", *_GROUPED, whole=False)
def group_of_statistics() -> ScheduleBuilder:
    fusion, _ = _statistics(1, back=True)
    return _group(fusion, fusion.output_tensors[0], 3, 64, trips=False)
