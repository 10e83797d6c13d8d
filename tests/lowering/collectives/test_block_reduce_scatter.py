"""Parts of several results joined by all threads of a block: the same results, a barrier more, chains that are short."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.kernel.kernel import Buffer, Call, For, Kernel, Literal, Load, Reduce, Shuffle, Stmt, Store, Value, walk
from fuser.ir.kernel.kernel_accesses import value_loads
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.collectives.block_reduce_scatter import scatter_groups
from tests.end_to_end.mutation import Judge, Verdict, What, describe, mutants
from tests.fusions.kernel_corpus import BX, BY, GX, GY, SERIAL, Case, schedule_axes
from tests.judging.harness import NARROW, Lowered, check, integers

Float = DataType.Float


def results_of(combine: str, dtype: DataType, size: int) -> Reduce:
    """A reduction over threads with `size` results each."""
    partial = Buffer("t1_partial", dtype, MemoryType.local, const(size))
    return Reduce((partial,), combine, (Literal(0.0, dtype),), (ParallelType.block_y,), (), False, ZERO, ONE, "t1")


def columns(op: str, elements: int, rows: int, blocks: int = 1) -> ScheduleBuilder:
    """A reduction of columns: eight threads side by side have `elements` columns each, `rows` threads have rows, and `blocks`
    blocks parts of the rows."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    results = b.welford(x, [0]) if op == "welford" else (b.reduction(op, x, [0], Float),)
    for r in results:
        b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    name = results[0].name
    s.split(name, 1, elements)
    s.split(name, 1, 8)
    s.split(name, 0, rows)
    if blocks > 1:
        s.split(name, 0, blocks, inner_split=False)
    types: tuple[ParallelType, ...] = (SERIAL, BY, GX, BX, SERIAL)
    schedule_axes(s, name, (GY, *types) if blocks > 1 else types)
    at = blocks > 1
    s.reorder(name, {2 + at: 0, 3 + at: 1})
    return s


def longest_chain(kernel: Kernel) -> int:
    """The most joins of parts in shared memory that wait for one another: of a loop one for each part but the first, of an
    expression its depth."""

    def depth(value: Value) -> int:
        return 1 + max(map(depth, value.args)) if isinstance(value, Call) else 0

    def reads_parts(stmt: Stmt) -> bool:
        return isinstance(stmt, Store) and any(load.buffer.is_shared for load in value_loads(stmt.value))

    stmts = walk(kernel.body)
    depths = [depth(s.value) for s in stmts if isinstance(s, Store) and reads_parts(s)]
    loops = [
        f.stop.value - 1
        for f in walk(kernel.body)
        if isinstance(f, For) and f.stop.is_const and f.start is ONE and any(map(reads_parts, walk(f.body)))
    ]
    return max([*loops, *depths])


@pytest.mark.parametrize(
    ("threads", "size", "groups"),
    [
        (32, 8, 4),
        (32, 4, 8),
        (16, 8, 2),
        (8, 8, 0),
        (36, 8, 0),
        (8, 1, 0),
        (16, 1, 8),
        (32, 1, 8),
        (20, 1, 5),
        (64, 2, 8),
    ],
)
def test_groups(threads: int, size: int, groups: int) -> None:
    assert scatter_groups(results_of("add", Float, size), const(threads), const(8)) == groups


def test_one_result_of_one_lane_has_no_groups() -> None:
    assert scatter_groups(results_of("add", Float, 1), const(32), ONE) == 0


def test_statistics_of_one_column_of_doubles_are_pooled_at_once() -> None:
    """In two steps they were rounded twice: variances of columns were off by 2.33 units where plain arithmetic is by 1.60."""
    assert scatter_groups(results_of("welford", DataType.Double, 1), const(64), const(8)) == 0
    assert scatter_groups(results_of("welford", Float, 1), const(64), const(8)) == 8


@pytest.mark.in_turns
@pytest.mark.parametrize("op", ["sum", "max", "welford"])
@pytest.mark.parametrize(
    ("elements", "rows"), [(4, 16), (8, 32), (2, 8), (2, 32), (2, 20), (3, 21), (1, 32), (1, 64), (1, 21)]
)
@pytest.mark.parametrize("blocks", [1, 2, 4, 5, 11])
def test_results(op: str, elements: int, rows: int, blocks: int) -> None:
    s = columns(op, elements, rows, blocks)
    for shape in ((300, 70), (3, 9), (rows * blocks * 2, elements * 8)):
        values = integers(shape) if op != "welford" else integers(shape) / np.float32(4)
        check(s, [values], seeds=(0, 1), tolerance=1e-6 if op == "welford" else 0.0)


def kernel_of(scheduled: ScheduleBuilder) -> Kernel:
    return Lowered.of(scheduled).kernel


def test_no_thread_has_a_long_chain() -> None:
    assert longest_chain(kernel_of(columns("sum", 8, 32))) == 2, "four groups, in pairs"
    assert longest_chain(kernel_of(columns("sum", 8, 20))) == 19, "no groups: one thread joins all"
    assert longest_chain(kernel_of(columns("sum", 1, 64))) == 3, "a single result: sixteen parts of warps, two each"


def test_threads_of_a_warp_join_before_they_write() -> None:
    kernel = kernel_of(columns("sum", 8, 32))
    assert sum(isinstance(s, Shuffle) for s in walk(kernel.body)) == 2, "four rows of eight threads"


def test_parts_of_blocks_are_asked_for_at_once() -> None:
    kernel = kernel_of(columns("max", 4, 16, 11))
    asked = [s for s in walk(kernel.body) if isinstance(s, Store) and "got" in s.buffer.name]
    assert len([s for s in asked if isinstance(s.value, Load)]) == 3, "eleven blocks, four groups"
    assert not [f for f in walk(kernel.body) if isinstance(f, For) and f.stop.is_const and f.stop.value == 11]
    many = kernel_of(columns("max", 4, 16, 100))
    assert [f for f in walk(many.body) if isinstance(f, For) and f.stop.is_const and f.stop.value == 100], (
        "too many at once"
    )


@pytest.mark.parametrize(
    ("op", "elements", "rows", "blocks"),
    [("sum", 4, 16, 3), ("max", 8, 32, 1), ("welford", 2, 16, 2), ("welford", 1, 64, 2)],
)
def test_every_missing_barrier_and_fence_is_reported(op: str, elements: int, rows: int, blocks: int) -> None:
    def make() -> ScheduleBuilder:
        return columns(op, elements, rows, blocks)

    case = Case(f"columns_{op}", "columns", make, (((70, elements * 8 + 3),),))
    judge = Judge(case, Lowered.of(make(), frozenset([NARROW])))
    found = [m for m in mutants(judge.lowered.kernel) if m.what in (What.barrier, What.fence, What.semaphore_reset)]
    assert len([m for m in found if m.what is What.barrier]) >= 3
    for mutant in found:
        verdict, evidence = judge.verdict(mutant)
        assert verdict is Verdict.reported, f"{evidence}\n{describe(case, mutant)}"
