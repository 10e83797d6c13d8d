"""Threads and blocks of sums of exponentials: few rows spread, clusters that are all there at once."""

from __future__ import annotations

import pytest

from benchmarks.compile_case import compile_case
from benchmarks.reduction_cases import cross_entropy
from fuser import DataType
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.nvrtc import is_available
from fuser.schedule.cost.plan_reduction import plan_reduction
from fuser.schedule.cost.reduction_space import ReductionPlan, Space

H200 = DeviceInfo.preset("H200")


def plan(rows: int, columns: int, itemsize: int) -> ReductionPlan:
    vector = 16 // itemsize
    space = Space(
        inner=True,
        kept=rows,
        reduced=columns,
        run=columns,
        runs=1,
        vector=vector,
        bytes_per_step=16,
        heavy=False,
        may_split=True,
        held=32,
        wide=itemsize > 4,
    )
    return plan_reduction(space, H200)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_threads_of_few_rows_have_two_accesses(itemsize: int) -> None:
    columns = 512 * 16 // itemsize
    few, many = plan(42, columns, itemsize), plan(50_000, columns, itemsize)
    assert few.block_reduce == 256
    assert few.unroll == 2
    assert many.block_reduce < few.block_reduce


@pytest.mark.parametrize("rows", [2, 3, 7, 20, 23, 60])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_blocks_of_clusters_are_there_at_once(rows: int, itemsize: int) -> None:
    found = plan(rows, 16 * 64 * 1024 // itemsize, itemsize)
    assert found.cluster
    assert rows * found.grid_reduce <= H200.sm_count
    assert 2 * rows * found.grid_reduce > H200.sm_count or found.grid_reduce == 16


def test_very_long_rows_are_shared_by_all() -> None:
    found = plan(1, 50_000_000, 2)
    assert not found.cluster
    assert found.grid_reduce > H200.sm_count


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize(
    ("rows", "columns"), [(101, 50257), (117, 250_003), (100_003, 1000), (1313, 7168), (300, 5003)]
)
def test_losses_of_doubles_do_not_spill(rows: int, columns: int) -> None:
    program = compile_case(cross_entropy(rows, columns, DataType.Double))
    for kernel in program.kernels.values():
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0
