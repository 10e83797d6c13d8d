"""Several results of a block joined across a cluster by a thread for each: values, exchanges, and what is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser.codegen.generate import generate_cuda
from fuser.ir.enums import ParallelType
from fuser.ir.kernel import (
    BlockBarrier,
    ClusterArrive,
    ExchangeInit,
    ExchangeWait,
    For,
    Kernel,
    RemoteStore,
    Stmt,
    walk,
)
from fuser.ir.schedule import ScheduleBuilder
from fuser.lowering.kernel_rewrites import map_body
from fuser.runtime import nvrtc
from tests.harness import Lowered, check, integers, run
from tests.lowering.collectives.test_block_reduce_scatter import columns

GY = ParallelType.grid_y


def in_cluster(op: str, elements: int, rows: int, blocks: int) -> ScheduleBuilder:
    s = columns(op, elements, rows, blocks)
    s.set_cluster(GY, blocks)
    return s


@pytest.mark.parametrize("op", ["sum", "max", "welford"])
@pytest.mark.parametrize(("elements", "rows"), [(4, 16), (8, 32), (2, 8)])
@pytest.mark.parametrize("blocks", [2, 3, 7, 8, 16])
def test_results(op: str, elements: int, rows: int, blocks: int) -> None:
    s = in_cluster(op, elements, rows, blocks)
    for shape in ((300, 70), (3, 9), (rows * blocks * 2, elements * 8)):
        values = integers(shape) if op != "welford" else integers(shape) / np.float32(4)
        kernel = check(s, [values], seeds=(0, 1), tolerance=1e-6 if op == "welford" else 0.0)
        assert kernel.plan.cluster == (1, blocks, 1)


def test_one_exchange_and_no_barrier_of_the_cluster() -> None:
    kernel = Lowered.of(in_cluster("welford", 4, 16, 4)).kernel
    assert sum(isinstance(s, ExchangeWait) for s in walk(kernel.body)) == 1
    assert sum(isinstance(s, ClusterArrive) for s in walk(kernel.body)) == 1, "to know that the others run"
    alone = Lowered.of(columns("welford", 4, 16)).kernel
    barriers = [sum(isinstance(s, BlockBarrier) for s in walk(k.body)) for k in (kernel, alone)]
    assert barriers[0] == barriers[1] + 1, "one to tell all threads what one of each result has joined"


def test_a_thread_stores_one_result_and_joins_one() -> None:
    kernel = Lowered.of(in_cluster("welford", 8, 32, 8)).kernel
    stores = [s for s in walk(kernel.body) if isinstance(s, RemoteStore)]
    assert len(stores) == 3, "a sum, squares, and the count that the results of a lane have in common"
    loops = [f for f in walk(kernel.body) if isinstance(f, For) and stores[0] in f.body]
    assert [(f.stop.value, f.step.value) for f in loops] == [(64, 32)], "eight results for eight blocks by 32 threads"


def without(kernel: Kernel, wanted: Callable[[Stmt], bool]) -> Kernel:
    return replace(kernel, body=map_body(kernel.body, lambda s: () if wanted(s) else None))


@pytest.mark.parametrize("op", ["sum", "welford"])
@pytest.mark.parametrize(
    ("kind", "message"), [(ExchangeWait, "nothing that orders them"), (ExchangeInit, "was never set up")]
)
def test_a_missing_half_of_the_exchange_is_reported(op: str, kind: type[Stmt], message: str) -> None:
    lowered = Lowered.of(in_cluster(op, 4, 16, 2))
    kernel = without(lowered.kernel, lambda s: isinstance(s, kind))
    with pytest.raises(Exception, match=message):
        run(replace(lowered, kernel=kernel), [integers((64, 32))]).check()


def test_every_missing_barrier_is_reported() -> None:
    lowered = Lowered.of(in_cluster("sum", 4, 16, 2))
    barriers = [s for s in walk(lowered.kernel.body) if isinstance(s, BlockBarrier)]
    assert len(barriers) >= 3
    for barrier in barriers:
        kernel = without(lowered.kernel, lambda s, barrier=barrier: s is barrier)
        with pytest.raises(Exception, match="nothing that orders them"):
            run(replace(lowered, kernel=kernel), [integers((64, 32))]).check()


@pytest.mark.parametrize(("op", "blocks"), [("sum", 2), ("welford", 16)])
def test_text_compiles(op: str, blocks: int) -> None:
    source = generate_cuda(Lowered.of(in_cluster(op, 8, 32, blocks)).kernel)
    assert "st.async" in source.text
    resources = nvrtc.compile_to_cubin(source.text, [source.entry], "sm_90a", ["-DFUSER_MAX_THREADS=256"]).resources
    assert resources[source.entry].spill_bytes == resources[source.entry].stack_bytes == 0
