"""Scans as primitives: which way is taken for which threads, and what it costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.kernel.kernel import BlockBarrier, Buffer, Kernel, Literal, Scan, Shuffle, ShuffleKind, Stmt, Store, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.kernel.print_kernel import print_stmt
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import SERIAL, scan_columns, scan_rows, scanned
from tests.judging.harness import check, integers

Float = DataType.Float


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in walk(kernel.body))


def kernel_of(make: Callable[[], ScheduleBuilder], *shape: int) -> Kernel:
    return check(make(), [integers(shape)], seeds=(0, 1))


@pytest.mark.parametrize(("threads", "steps"), [(2, 1), (8, 3), (32, 5)])
def test_lanes_of_a_warp_need_no_memory(threads: int, steps: int) -> None:
    kernel = kernel_of(lambda: scan_rows(*scanned(), 1, threads, 2, rows=32), 7, 150)
    # The totals, a shift by one lane, and the last lane's total.
    assert count(kernel, Shuffle) == steps + 2
    assert not kernel.shared_offsets
    assert count(kernel, BlockBarrier) == 0


@pytest.mark.parametrize(("threads", "tiles"), [(64, 1), (64, 2), (256, 4), (1024, 1)])
def test_warps_meet_at_one_barrier_whatever_the_tiles(threads: int, tiles: int) -> None:
    kernel = kernel_of(lambda: scan_rows(*scanned(), 2, threads, tiles), 2, 700)
    reasons = [s.reason for s in walk(kernel.body) if isinstance(s, BlockBarrier)]
    # The second one stands at the end of a step, before the slots are written again.
    assert len(reasons) == 2
    (size,) = (kernel.plan.shared_bytes,)
    assert size.value == max(16, 4 * tiles * threads // 32)


def test_more_totals_than_lanes_are_scanned_in_turns() -> None:
    few = kernel_of(lambda: scan_rows(*scanned(), 1, 128, 8), 2, 2100)
    many = kernel_of(lambda: scan_rows(*scanned(), 1, 128, 9), 2, 2100)
    index = [sum(isinstance(s, Shuffle) and s.kind is ShuffleKind.index for s in walk(k.body)) for k in (few, many)]
    assert index == [8 + 1, 9 + 2]  # one per tile, and the total of each turn
    assert [count(k, BlockBarrier) for k in (few, many)] == [2, 2]


@pytest.mark.parametrize("threads", [3, 20, 33, 48])
def test_other_blocks_read_every_total(threads: int) -> None:
    kernel = kernel_of(lambda: scan_rows(*scanned(), 2, threads, 2), 3, 150)
    assert count(kernel, Shuffle) == 0
    assert kernel.plan.shared_bytes.value >= 4 * 2 * threads


@pytest.mark.parametrize(
    ("columns", "threads", "shuffles", "nbytes"),
    [
        (4, 8, 5, 0),  # eight rows of a warp: three steps, a shift, and the last row's total
        (8, 8, 3, 128),  # two warps a column, four rows each
        (2, 64, 5, 64),
        (32, 4, 0, 1024),  # a warp is one row
        (4, 3, 0, 96),  # no whole warps
    ],
)
def test_threads_down_a_column(columns: int, threads: int, shuffles: int, nbytes: int) -> None:
    """Rows of lanes are shuffled; slots, of two columns each, are read in turn."""
    kernel = kernel_of(lambda: scan_columns(*scanned(dim=0, start=True), columns, 2, threads, vector=2), 300, 9)
    assert count(kernel, Shuffle) == shuffles
    assert (kernel.plan.shared_bytes.value if kernel.shared_offsets else 0) == nbytes
    assert count(kernel, BlockBarrier) == (2 if nbytes else 0)


def test_one_thread_keeps_the_fold_in_a_register() -> None:
    kernel = kernel_of(lambda: scan_columns(*scanned(dim=0), 4, 4, 1), 70, 9)
    assert count(kernel, Shuffle) == count(kernel, BlockBarrier) == 0
    assert not kernel.shared_offsets


@pytest.mark.parametrize("threads", [1, 4])
def test_runs_of_one_thread_along_a_row(threads: int) -> None:
    """Threads of a block that hold whole rows, and a block axis of one thread along the row."""
    kernel_of(lambda: scan_rows(*scanned(start=True), 4, 1, 2, rows=threads), 5, 37)


def test_rows_one_after_another_start_anew() -> None:
    kernel_of(lambda: scan_rows(*scanned(start=True), 2, 64, 1, row_type=SERIAL), 5, 300)


def test_a_scan_prints_its_layout() -> None:
    def registers(name: str, size: int) -> Buffer:
        return Buffer(name, Float, MemoryType.local, const(size))

    stmt = Scan(
        registers("v", 16), registers("c", 2), "add", Literal(-0.0, Float), (ParallelType.block_x,),
        ((2, 1),), ((2, 8),), ((4, 2),), "t1",
    )  # fmt: skip
    assert print_stmt(stmt) == (
        "t1: scan add (v, carry c) over (block_x), identity -0.0:Float, kept 2:1, tiles 2:8, run 4:2"
    )


@pytest.mark.parametrize(("columns", "threads"), [(8, 8), (32, 4), (4, 3)])
def test_the_totals_of_neighbouring_columns_are_neighbours_in_shared_memory(columns: int, threads: int) -> None:
    """So that a thread reads those of all its columns in one access. The order in which threads read them stays theirs."""
    kernel = kernel_of(lambda: scan_columns(*scanned(dim=0, start=True), columns, 2, threads, vector=2), 300, 9)
    reads = [
        v.index
        for s in walk(kernel.body)
        if isinstance(s, Store)
        for v in value_loads(s.value)
        if v.buffer.memory is MemoryType.shared
    ]
    assert reads
    for index in reads:
        (column,) = (s for s in index.symbols if s.name.startswith("e"))
        assert index.substitute({column: ONE}) - index.substitute({column: ZERO}) is ONE
