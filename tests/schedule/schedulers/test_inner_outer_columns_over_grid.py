"""Few rows of backward norms over a cluster or a group of blocks: every regime is right, shapes fit, exchanges are few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.kernel.kernel import AsyncCopy, ExchangeWait, GridBarrier, walk
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.cost.inner_outer_mappings import CLUSTER
from fuser.schedule.cost.inner_outer_space import SizedInnerOuter, find_inner_outer
from fuser.schedule.cost.inner_outer_work import INNER_OUTER
from fuser.schedule.params import ColumnsOverGrid, InnerOuterParams, OverCluster
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.fusions.inner_outer import (
    DEFINITIONS,
    Definition,
    arrays_for,
    described,
    expected_of,
    fusion_of,
    layer_norm_backward,
    moments_both_ways,
    softmax_and_sums,
)
from tests.judging.harness import run_on

H200 = DeviceInfo.preset("H200")
Float, BFloat16, Double = DataType.Float, DataType.BFloat16, DataType.Double


def found_for(define: Definition, rows: int, length: int, dtype: DataType = Float) -> SizedInnerOuter:
    fusion = fusion_of(define, dtype)
    bound = bind_inputs(fusion, [described(a) for a in arrays_for(define, rows, length, dtype)])
    found = find_inner_outer(fusion, SegmentInputs(bound.tensors, bound.evaluate))
    assert isinstance(found, SizedInnerOuter)
    return found


def check(
    define: Definition,
    rows: int,
    length: int,
    dtype: DataType = Float,
    *,
    sharing: int = 1,
    blocks: int = 1,
    in_cluster: bool = True,
    threads: int = 32,
    vector: int = 1,
    side_by_side: int = 1,
    at_once: int = 1,
    in_shared: bool = False,
) -> CompiledKernel:
    """The kernel of such parameters, whose results are right."""
    arrays = arrays_for(define, rows, length, dtype)
    fusion = fusion_of(define, dtype)
    (segment,) = segment_fusion(fusion).segments
    bound = bind_inputs(fusion, [described(a) for a in arrays])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    found = find_inner_outer(fusion, inputs, vector)
    assert isinstance(found, SizedInnerOuter)
    length = found.space.length
    assert found.space.vector == vector
    batch = -(-length // (vector * threads * sharing))
    trip = blocks * side_by_side * at_once
    bounds = found.bounds(threads * batch * vector * sharing, trip if trip >= rows else 0)
    assert not isinstance(bounds, Refused)
    params = InnerOuterParams(
        found.rows.order,
        found.inner_outer.reference.name,
        OverCluster(blocks, sharing) if in_cluster else ColumnsOverGrid(sharing),
        threads,
        1,
        batch,
        vector,
        found.vectorized,
        side_by_side,
        at_once,
        in_shared + (trip < rows),
        bounds,
        found.read if in_shared else (),
    )
    # These parameters are the test's, not proposed: some unroll more code than a kernel should have.
    device = SimulatorDevice(info=replace(H200, instruction_cache_bytes=1 << 30))
    kernel, _ = KernelCompiler(device).compile_segment(segment, bound, params)
    results = run_on(device, kernel, fusion, arrays)
    bound_of = 3e-5 if dtype is Float else 1.5e-2
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = results[t.name].astype(np.float64)
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(value - expected) <= bound_of * scale + 1e-6), t.name
    return kernel


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(
    ("rows", "at_once", "side_by_side"), [(9, 3, 3), (19, 2, 4), (7, 7, 1), (5, 1, 20), (21, 2, 15)]
)
@pytest.mark.parametrize(("sharing", "threads", "vector"), [(2, 32, 1), (4, 32, 4), (8, 16, 2), (2, 64, 1)])
def test_columns_over_a_cluster(
    define: Definition, rows: int, at_once: int, side_by_side: int, sharing: int, threads: int, vector: int
) -> None:
    if threads * side_by_side > 640:
        pytest.skip("a thread of so large a block has too few registers")
    check(
        define, rows, 236, sharing=sharing, threads=threads, vector=vector, side_by_side=side_by_side, at_once=at_once
    )


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "at_once", "side_by_side"), [(19, 2, 2), (40, 5, 4), (33, 3, 4)])
@pytest.mark.parametrize(("blocks", "threads", "vector"), [(2, 32, 1), (4, 8, 4), (8, 64, 2)])
def test_rows_over_a_cluster(
    define: Definition, rows: int, at_once: int, side_by_side: int, blocks: int, threads: int, vector: int
) -> None:
    check(define, rows, 68, blocks=blocks, threads=threads, vector=vector, side_by_side=side_by_side, at_once=at_once)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(
    ("sharing", "threads", "side_by_side", "at_once"), [(3, 64, 1, 2), (5, 32, 2, 2), (3, 64, 2, 5)]
)
def test_columns_over_the_grid(define: Definition, sharing: int, threads: int, side_by_side: int, at_once: int) -> None:
    kernel = check(
        define, 10, 300, sharing=sharing, in_cluster=False, threads=threads, side_by_side=side_by_side, at_once=at_once
    )
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    assert not [w for w in kernel.plan.workspaces if "partial" not in w.name], "columns are not joined between blocks"


def test_sixteen_bits() -> None:
    check(layer_norm_backward, 20, 520, BFloat16, sharing=4, vector=8, side_by_side=4, at_once=5)
    check(softmax_and_sums, 20, 520, BFloat16, blocks=4, vector=8, side_by_side=4, at_once=2)


def test_rows_held_at_once_wait_once_and_for_values() -> None:
    """No barrier of the grid, and one exchange for both statistics of all rows."""
    kernel = check(layer_norm_backward, 20, 512, sharing=4, vector=4, side_by_side=4, at_once=5)
    assert kernel.kernel_ir is not None
    assert kernel.plan is not None
    stmts = list(walk(kernel.kernel_ir.body))
    assert sum(isinstance(s, ExchangeWait) for s in stmts) <= 2
    assert not any(isinstance(s, GridBarrier) for s in stmts)
    assert not kernel.plan.cooperative
    assert not kernel.plan.workspaces


@pytest.mark.parametrize(("rows", "length"), [(4, 7168), (39, 1024), (7, 1000)])
def test_few_rows_are_one_cluster(rows: int, length: int) -> None:
    """Of all mappings, where a device has clusters; long rows and many are not."""
    space = found_for(layer_norm_backward, rows, length, BFloat16).space
    assert INNER_OUTER.ranked(space, H200)[0][1].exchange == CLUSTER
    assert INNER_OUTER.ranked(replace(space, rows=16384), H200)[0][1].exchange != CLUSTER
    assert INNER_OUTER.ranked(replace(space, length=100 * length), H200)[0][1].exchange != CLUSTER


def test_rows_over_the_grid_leave_the_second_cache_last() -> None:
    """Those in registers: nothing can be said where asynchronous copies stand beside tests."""
    far = check(layer_norm_backward, 6, 128, sharing=2, vector=4, in_cluster=False).source
    assert "fuser_load_last(" in far
    near = check(layer_norm_backward, 6, 128, sharing=2, vector=4, side_by_side=6).source
    assert "fuser_load_last(" not in near


@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "threads"), [(2, 64), (3, 128)])
def test_warps_have_statistics_of_different_rows(define: Definition, rows: int, threads: int) -> None:
    """The last warps join what the first ones do not."""
    check(define, rows, 3 * threads - 5, sharing=3, threads=threads, at_once=rows, in_cluster=False)


def test_means_of_large_values() -> None:
    check(moments_both_ways, 30, 40, sharing=2, side_by_side=4, at_once=2)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(
    ("sharing", "threads", "vector", "at_once"), [(3, 64, 1, 2), (5, 64, 1, 10), (3, 32, 4, 3), (3, 32, 2, 4)]
)
@pytest.mark.parametrize("in_cluster", [False, True])
def test_rows_in_shared_memory(
    define: Definition, sharing: int, threads: int, vector: int, at_once: int, in_cluster: bool
) -> None:
    kernel = check(
        define,
        10,
        300,
        sharing=4 if in_cluster else sharing,
        in_cluster=in_cluster,
        threads=threads,
        vector=vector,
        at_once=at_once,
        in_shared=True,
    )
    assert kernel.kernel_ir is not None
    assert any(isinstance(s, AsyncCopy) for s in walk(kernel.kernel_ir.body))
