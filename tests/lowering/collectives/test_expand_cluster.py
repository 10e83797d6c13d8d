"""Reductions over the blocks of a cluster: values, barriers, and what the simulator says when one is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import LaunchError, SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Reduction, Tensor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ZERO, const, less
from fuser.ir.kernel.kernel import (
    THREAD_SYMBOLS,
    BlockBarrier,
    ClusterArrive,
    ClusterWait,
    ExchangeInit,
    ExchangeWait,
    For,
    If,
    Kernel,
    RemoteStore,
    Stmt,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes
from fuser.ir.kernel.launch_plan import BlockExchange
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.kernel_rewrites import map_body, substitute_symbols
from fuser.runtime.kernels import nvrtc
from fuser.simulator.errors import SimulatorError
from tests.judging.harness import Lowered, check, integers, run

GX, GY, BX, BY = ParallelType.grid_x, ParallelType.grid_y, ParallelType.block_x, ParallelType.block_y


def sum_and_max(
    cluster: int,
    threads: int = 32,
    batch: int = 2,
    dtype: DataType = DataType.Float,
    groups: int = 0,
    *,
    has_sum: bool = True,
) -> ScheduleBuilder:
    """x - max(row) + sum(row), rows of a constant length over clusters; `groups` of them go over the rows, 0 for one each.
    Without the sum there is one exchange."""
    length = cluster * threads * batch
    b = FusionBuilder()
    x = b.input_tensor(dtype, [-1, length])

    def wide(t: Tensor) -> Tensor:
        return b.broadcast(t, [False, True])

    top = b.reduction("max", x, [1], dtype)
    out = b.pointwise("sub", [x, wide(top)], dtype)
    if has_sum:
        out = b.pointwise("add", [out, wide(b.reduction("sum", x, [1], dtype))], dtype)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    copy = s.cache_after(x.name)
    name = top.name
    s.split(name, 1, threads)  # rows, length/threads, threads
    s.split(name, 1, batch)  # rows, cluster, batch, threads
    first = 0
    if groups:
        s.split(name, 0, groups)
        first = 1
    s.transform_like(name)
    for position, kind in ((first, GX), (first + 1, GY), (first + 3, BX)):
        s.parallelize(name, position, kind)
    s.parallelize_like(name)
    s.set_cluster(GY, cluster)
    s.inline_most()
    assert s.state(copy).inline_at == first + 1, "outside the reduced loops: a register array"
    return s


@pytest.mark.parametrize("cluster", [2, 3, 6, 8, 16])
@pytest.mark.parametrize("threads", [8, 24, 32, 64, 96, 160])
def test_values(cluster: int, threads: int) -> None:
    s = sum_and_max(cluster, threads)
    length = cluster * threads * 2
    kernel = check(s, [integers((5, length))], seeds=(0, 1))
    assert kernel.plan.cluster == (1, cluster, 1)
    assert not kernel.plan.cooperative
    assert kernel.plan.semaphores is None
    assert kernel.plan.exchanges == (BlockExchange.cluster,)


@pytest.mark.parametrize(("cluster", "threads"), [(2, 16), (3, 12), (6, 12), (3, 24), (8, 32)])
def test_rows_side_by_side(cluster: int, threads: int) -> None:
    """Neighbouring threads of a row join what the blocks of a cluster have, by butterflies where those are a power of two."""
    s = ScheduleBuilder(sum_and_max(cluster, threads).fusion)
    s.cache_after(s.fusion.input_tensors[0].name)
    name = next(e.output.name for e in s.exprs if isinstance(e, Reduction))
    s.split(name, 1, threads)
    s.split(name, 1, 2)
    s.split(name, 0, 8)
    s.transform_like(name)
    for position, kind in ((0, GX), (1, BY), (2, GY), (4, BX)):
        s.parallelize(name, position, kind)
    s.parallelize_like(name)
    s.set_cluster(GY, cluster)
    s.inline_most()
    check(s, [integers((11, cluster * threads * 2))], seeds=(0, 1))


@pytest.mark.parametrize("dtype", [DataType.Double, DataType.Int, DataType.Int32, DataType.BFloat16])
def test_other_types(dtype: DataType) -> None:
    x = np.random.default_rng(0).integers(-2, 3, size=(3, 64)).astype(dtype.numpy)
    check(sum_and_max(2, 16, 2, dtype), [x])


@pytest.mark.parametrize("groups", [0, 2])
def test_the_first_warp_alone_joins_what_its_block_tells(groups: int) -> None:
    """Sixteen blocks of ten warps, pairs of Doubles: once a kernel, and again and again."""
    s = sum_and_max(16, 320, 1, DataType.Double, groups=groups)
    check(s, [integers((5, 16 * 320), DataType.Double)], seeds=(0, 1))


def test_exchanges_of_a_kernel_have_no_barrier_of_the_cluster() -> None:
    kernel = check(sum_and_max(4), [integers((2, 256))])
    arrivals = sum(isinstance(s, ClusterArrive) for s in walk(kernel.body))
    waits = sum(isinstance(s, ClusterWait) for s in walk(kernel.body))
    assert (arrivals, waits) == (1, 1), "one to know that the others run, none for the values"
    assert sum(isinstance(s, ExchangeWait) for s in walk(kernel.body)) == 2


def test_threads_that_make_no_warps_meet_in_a_barrier() -> None:
    kernel = check(sum_and_max(4, 16), [integers((2, 128))])
    assert sum(isinstance(s, ClusterArrive) for s in walk(kernel.body)) == 3
    assert not any(isinstance(s, (ExchangeInit, ExchangeWait)) for s in walk(kernel.body))


def test_executions_take_turns_with_the_slots() -> None:
    x = [integers((7, 128))]
    s = sum_and_max(2, groups=2, has_sum=False)
    lowered = Lowered.of(s)
    run(lowered, x, seed=1).check()
    kernel = check(s, x)
    assert sum(isinstance(s, ClusterArrive) for s in walk(kernel.body)) == 2, "none for slots that are free again"
    (loop,) = (s for s in kernel.body if isinstance(s, For))

    def one_set(stmt: Stmt) -> tuple[Stmt, ...] | None:
        touched = [b.name for b, _ in (*stmt_reads(stmt), *stmt_writes(stmt))]
        if not any(name.endswith("_cluster") for name in touched):
            return None
        return substitute_symbols((stmt,), {loop.symbol: ZERO})

    body = map_body(lowered.kernel.body, one_set)
    with pytest.raises(SimulatorError, match="nothing that orders them"):
        run(replace(lowered, kernel=replace(lowered.kernel, body=body)), x).check()


def without(kernel: Kernel, wanted: Callable[[Stmt], bool]) -> Kernel:
    """The kernel with the first statement that is wanted left out."""
    found: list[Stmt] = []

    def rewrite(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not found and wanted(stmt):
            found.append(stmt)
            return ()
        return None

    body = map_body(kernel.body, rewrite)
    assert found
    return replace(kernel, body=body)


@pytest.mark.parametrize(
    ("reason", "threads"),
    [("this block runs", 32), ("every block of the cluster runs", 32), ("this block runs", 16), ("has come", 16)],
)
def test_missing_barriers_are_reported(reason: str, threads: int) -> None:
    lowered = Lowered.of(sum_and_max(2, threads))
    kernel = without(lowered.kernel, lambda s: isinstance(s, (ClusterArrive, ClusterWait)) and reason in s.reason)
    outcome = run(replace(lowered, kernel=kernel), [integers((2, 4 * threads))])
    with pytest.raises(Exception, match=r"nothing that orders them|before a barrier|without an arrival|holds no value"):
        outcome.check()


def test_a_missing_barrier_of_the_block_is_reported() -> None:
    """Between the warps that leave their values and the first one, which joins them for the cluster."""
    lowered = Lowered.of(sum_and_max(16, 160, 1, DataType.Double))
    kernel = without(lowered.kernel, lambda s: isinstance(s, BlockBarrier))
    outcome = run(replace(lowered, kernel=kernel), [integers((1, 16 * 160), DataType.Double)])
    with pytest.raises(Exception, match="nothing that orders them"):
        outcome.check()


@pytest.mark.parametrize(
    ("kind", "message"),
    [(ExchangeWait, "nothing that orders them"), (ExchangeInit, "was never set up")],
)
def test_a_missing_half_of_an_exchange_is_reported(kind: type[Stmt], message: str) -> None:
    lowered = Lowered.of(sum_and_max(2))
    kernel = without(lowered.kernel, lambda s: isinstance(s, kind))
    with pytest.raises(Exception, match=message):
        run(replace(lowered, kernel=kernel), [integers((2, 128))]).check()


@pytest.mark.parametrize(("more", "message"), [(4, "waits for 4 more bytes"), (-4, "more bytes come than")])
def test_a_wrong_number_of_bytes_is_reported(more: int, message: str) -> None:
    lowered = Lowered.of(sum_and_max(2))

    def other(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, nbytes=stmt.nbytes + more),) if isinstance(stmt, ExchangeInit) else None

    kernel = replace(lowered.kernel, body=map_body(lowered.kernel.body, other))
    with pytest.raises(Exception, match=message):
        run(replace(lowered, kernel=kernel), [integers((2, 128))]).check()


def test_a_counter_set_up_behind_the_arrival_is_reported() -> None:
    lowered = Lowered.of(sum_and_max(2))
    body = list(lowered.kernel.body)
    setup = next(i for i, s in enumerate(body) if any(isinstance(x, ExchangeInit) for x in walk((s,))))
    arrival = next(i for i, s in enumerate(body) if isinstance(s, ClusterArrive))
    body.insert(arrival, body.pop(setup))
    with pytest.raises(Exception, match="no barrier of the cluster since it was set up"):
        run(replace(lowered, kernel=replace(lowered.kernel, body=tuple(body))), [integers((2, 128))]).check()


def test_a_wait_for_threads_that_others_skip_is_reported() -> None:
    lowered = Lowered.of(sum_and_max(2, 64))

    def half(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (If(less(THREAD_SYMBOLS[BX], const(32)), (stmt,)),) if isinstance(stmt, ExchangeWait) else None

    kernel = replace(lowered.kernel, body=map_body(lowered.kernel.body, half))
    with pytest.raises(Exception, match="some threads of a block do not wait"):
        run(replace(lowered, kernel=kernel), [integers((2, 256))]).check()


def test_stores_reach_every_block() -> None:
    kernel = Lowered.of(sum_and_max(8)).kernel
    stores = [s for s in walk(kernel.body) if isinstance(s, RemoteStore)]
    assert len(stores) == 2  # the largest and the sum
    assert {s.buffer.name for s in stores} == {b for b in kernel.shared_offsets if b.endswith("_cluster")}


def test_refusals() -> None:
    s = sum_and_max(2)
    with pytest.raises(SchedulingError, match="lies along a grid axis"):
        s.set_cluster(BX, 2)
    with pytest.raises(SchedulingError, match="has 1 to 16 blocks"):
        s.set_cluster(GY, 17)
    with pytest.raises(SchedulingError, match="one cluster axis"):
        s.set_cluster(GX, 2)
    s.set_cluster(GY, 4)
    with pytest.raises(SchedulingError, match="must have that extent"):
        Lowered.of(s)


def test_clusters_do_not_wait_for_the_whole_grid() -> None:
    b = FusionBuilder()
    x = b.input_tensor(DataType.Float, [-1, -1])
    y = b.pointwise("neg", [x], DataType.Float)
    turned = b.permute(y, [1, 0])
    b.add_output(y)
    b.add_output(turned)
    s = ScheduleBuilder(b.freeze())
    for t in (y, turned):
        s.parallelize(t.name, 0, GX)
        s.parallelize(t.name, 1, BX)
    assert Lowered.of(s).kernel.plan.cooperative
    s.set_cluster(GX, 2)
    message = (
        f"blocks wait for the whole grid, because {y.name} is written by some and read by others, and stand in clusters"
    )
    with pytest.raises(SchedulingError, match=message):
        Lowered.of(s)


def test_a_device_without_clusters_refuses() -> None:
    from fuser.runtime.launch import Launch
    from fuser.simulator.memory import DeviceMemory
    from fuser.simulator.run_kernel import run_kernel

    lowered = Lowered.of(sum_and_max(2))
    with pytest.raises(LaunchError, match="a cluster of 2 blocks"):
        run_kernel(
            lowered.kernel,
            Launch((1, 2, 1), (32, 1, 1), 64, (1, 2, 1)),
            [0] * len(lowered.kernel.parameters),
            DeviceMemory(),
            info=DeviceInfo.preset("sm_80"),
        )


@pytest.mark.parametrize(("cluster", "threads", "barriers"), [(8, 256, 0), (16, 160, 2)])
def test_warps_tell_peers_themselves_where_they_are_few(cluster: int, threads: int, barriers: int) -> None:
    """Up to two values for each lane of what reads them; else the warps of a block meet first."""
    kernel = check(sum_and_max(cluster, threads, 1), [integers((1, cluster * threads))])
    assert sum(isinstance(s, BlockBarrier) for s in walk(kernel.body)) == barriers


@pytest.mark.parametrize(("cluster", "dtype"), [(2, DataType.Float), (16, DataType.Double)])
def test_text_compiles(cluster: int, dtype: DataType) -> None:
    source = generate_cuda(Lowered.of(sum_and_max(cluster, 64, 2, dtype)).kernel)
    assert "st.async" in source.text
    resources = nvrtc.compile_to_cubin(source.text, [source.entry], "sm_90a", ["-DFUSER_MAX_THREADS=64"]).resources
    assert resources[source.entry].spill_bytes == resources[source.entry].stack_bytes == 0
