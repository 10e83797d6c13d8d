"""Threads of a row: enough to read it, and few where each does much once a row."""

from __future__ import annotations

from dataclasses import replace

from fuser.ir.device_info import H200, WARP
from fuser.schedule.cost.plan_reduction import plan_reduction
from fuser.schedule.cost.reduction_space import LINE, RESIDENT, Space


def rows(kept: int, length: int, **more: int) -> Space:
    """Rows of 16-bit elements of two inputs, with the work of a cosine of both."""
    space = Space(
        inner=True,
        kept=kept,
        reduced=length,
        run=length,
        runs=1,
        vector=8,
        bytes_per_step=32,
        heavy=False,
        may_split=False,
    )
    return replace(space, **{"element_work": 10, "row_work": 60, "results": 3, "partials": 3, **more})


def test_rows_whose_results_take_work_have_a_warp_at_most() -> None:
    for length in (768, 1000, 1536):
        plan = plan_reduction(rows(50_021, length), H200)
        assert LINE <= plan.block_reduce <= WARP
        assert plan.block_reduce * plan.block_iterate >= 128


def test_few_rows_have_threads_for_all_sms() -> None:
    for kept in (300, 1000, 5000):
        threads = plan_reduction(rows(kept, 4096), H200).block_reduce
        assert threads >= 64
        assert kept * threads >= min(kept * 64, H200.sm_count * RESIDENT // 2)


def test_where_memory_takes_longer_nothing_changes() -> None:
    light = rows(50_021, 768, element_work=1, row_work=0, results=1)
    slow = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 50)
    assert plan_reduction(rows(50_021, 768), slow).block_reduce == plan_reduction(light, slow).block_reduce
