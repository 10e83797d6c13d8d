"""Scans over the blocks of a cluster: values, barriers, and what the simulator says when one is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuser.compiler.bind_inputs import bind_inputs
from fuser.errors import SchedulingError
from fuser.ir.fact_collection import collect_facts
from fuser.ir.integers.integers import ZERO
from fuser.ir.kernel.kernel import (
    ClusterArrive,
    ClusterWait,
    ExchangeInit,
    ExchangeWait,
    For,
    Kernel,
    RemoteStore,
    Stmt,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import SCANS
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.kernel_rewrites import map_body, substitute_symbols
from fuser.simulator.errors import SimulatorError
from tests.fusions.kernel_corpus import BX, GX, GY, SERIAL, scan_columns, scan_rows, scanned, spread
from tests.judging.harness import Lowered, check, integers, run


@pytest.mark.in_turns
@pytest.mark.parametrize("cluster", [2, 3, 7, 16])
@pytest.mark.parametrize(("threads", "tiles"), [(1, 2), (8, 1), (20, 2), (32, 2), (64, 1), (160, 2)])
def test_values(cluster: int, threads: int, tiles: int) -> None:
    """Rows that fill all blocks, some of them, and those that take several steps."""
    s = scan_rows(*scanned(start=True), 2, threads, tiles, cluster=cluster)
    length = 2 * threads * tiles * cluster
    for columns in (1, length // 2 + 1, length, 2 * length + 3):
        kernel = check(s, [integers((2, columns))], seeds=(0, 1))
    assert kernel.plan.cluster == (1, cluster, 1)
    assert not kernel.plan.cooperative
    assert kernel.plan.semaphores is None


@pytest.mark.parametrize("op", list(SCANS))
@pytest.mark.parametrize("dtype", [DataType.Double, DataType.Int, DataType.Int32])
def test_ops_and_types(op: str, dtype: DataType) -> None:
    x = integers((3, 150)).astype(dtype.numpy) % 2
    check(scan_rows(*scanned(op, dtype), 1, 32, 2, cluster=2), [x])


@pytest.mark.parametrize("rows", [2, 4])
def test_rows_side_by_side(rows: int) -> None:
    check(scan_rows(*scanned(), 1, 16, 2, rows=rows, cluster=4), [integers((5, 300))], seeds=(0, 1))


def test_scans_one_after_another_have_slots_of_their_own() -> None:
    kernel = check(scan_rows(*scanned(twice=True), 2, 32, 1, cluster=2), [integers((3, 300))])
    assert len({s.buffer.name for s in walk(kernel.body) if isinstance(s, RemoteStore)}) == 2


def test_columns_of_a_cluster() -> None:
    """Threads along y, each with a vector of two columns."""
    s = scan_columns(*scanned(dim=0), 4, 2, 4, vector=2, cluster=2)
    check(s, [integers((70, 9))], seeds=(0, 1))


def test_steps_take_turns_with_the_slots() -> None:
    x = [integers((2, 500))]
    lowered = Lowered.of(scan_rows(*scanned(), 1, 32, 2, cluster=2))
    run(lowered, x, seed=1).check()
    assert sum(isinstance(s, ClusterArrive) for s in walk(lowered.kernel.body)) == 2
    loop = next(s for s in walk(lowered.kernel.body) if isinstance(s, For))

    def one_set(stmt: Stmt) -> tuple[Stmt, ...] | None:
        touched = [b.name for b, _ in (*stmt_reads(stmt), *stmt_writes(stmt))]
        if not any(name.endswith("_cluster") for name in touched):
            return None
        return substitute_symbols((stmt,), {loop.symbol: ZERO})

    body = map_body(lowered.kernel.body, one_set)
    with pytest.raises(SimulatorError, match="nothing that orders them"):
        run(replace(lowered, kernel=replace(lowered.kernel, body=body)), x).check()


def without(kernel: Kernel, reason: str) -> Kernel:
    """The kernel with the first half of a cluster's barrier that has these words left out."""
    found: list[Stmt] = []

    def rewrite(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not found and isinstance(stmt, (ClusterArrive, ClusterWait)) and reason in stmt.reason:
            found.append(stmt)
            return ()
        return None

    body = map_body(kernel.body, rewrite)
    assert found
    return replace(kernel, body=body)


@pytest.mark.parametrize("reason", ["this block runs", "every block of the cluster runs", "has come"])
@pytest.mark.parametrize("columns", [60, 500])
def test_missing_barriers_are_reported(reason: str, columns: int) -> None:
    lowered = Lowered.of(scan_rows(*scanned(), 1, 32, 2, cluster=2))
    outcome = run(replace(lowered, kernel=without(lowered.kernel, reason)), [integers((2, columns))])
    with pytest.raises(Exception, match=r"nothing that orders them|before a barrier|without an arrival|holds no value"):
        outcome.check()


def _one_step(columns: int, cluster: int = 2) -> tuple[Lowered, list[Any]]:
    s = scan_rows(*scanned(), 1, 32, 2, cluster=cluster)
    s.require_extent_range("t0", 1, 1, 64 * cluster)
    x = [integers((3, columns))]
    bound = bind_inputs(s.fusion, x)
    return Lowered.of(s, collect_facts(s, bound.tensors, bound.evaluate)), x


@pytest.mark.parametrize("cluster", [2, 8, 16])
def test_a_single_step_counts_the_bytes_of_its_totals(cluster: int) -> None:
    for columns in (1, 65, 64 * cluster):
        lowered, x = _one_step(columns, cluster)
        for seed in (0, 1):
            run(lowered, x, seed=seed).check()
    body = lowered.kernel.body
    assert sum(isinstance(s, ClusterArrive) for s in walk(body)) == 1, (
        "to know that the others run, none for the totals"
    )
    assert sum(isinstance(s, ExchangeWait) for s in walk(body)) == 1


@pytest.mark.parametrize(
    ("kind", "message"), [(ExchangeWait, "nothing that orders them|holds no value"), (ExchangeInit, "was never set up")]
)
def test_missing_counters_are_reported(kind: type[Stmt], message: str) -> None:
    lowered, x = _one_step(100)

    def rewrite(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return () if isinstance(stmt, kind) else None

    changed = replace(lowered.kernel, body=map_body(lowered.kernel.body, rewrite))
    assert len(list(walk(changed.body))) < len(list(walk(lowered.kernel.body)))
    with pytest.raises(SimulatorError, match=message):
        run(replace(lowered, kernel=changed), x).check()


def _disordered(cluster: int) -> ScheduleBuilder:
    """A loop over steps inside the blocks of a cluster: those of later blocks would come first."""
    fusion, t = scanned()
    s = ScheduleBuilder(fusion)
    s.split(t.name, 1, 32)
    s.split(t.name, 1, 2)
    s.split(t.name, 1, 2)
    s.set_cluster(GY, cluster)
    spread(s, t.name, (GX, SERIAL, GY, SERIAL, BX))
    return s


def _other_size() -> ScheduleBuilder:
    s = scan_rows(*scanned(), 1, 32, 2, cluster=2)
    s.set_cluster(GY, 4)
    return s


def test_refusals() -> None:
    for make in (lambda: _disordered(2), _other_size):
        with pytest.raises(SchedulingError, match=r"must have the extent . and stand right outside"):
            Lowered.of(make())
    with pytest.raises(SchedulingError, match="a scan has to stay within one or within a cluster"):
        Lowered.of(_disordered(1))
