"""Rows of Doubles that begin anywhere over groups of the grid: shapes, where they pay, and registers."""

from __future__ import annotations

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.nvrtc import is_available
from fuser.schedule.cost.peeled_rows_over_grid import choose_peeled_grid_shape, peeled_cluster_time
from fuser.schedule.cost.rows_over_grid import Row
from fuser.schedule.params import InnerPersistentParams, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from tests.schedule.cost.test_peeled_rows import norm_of_doubles, softmax_of_doubles
from tests.schedule.schedulers.test_inner_persistent import H200, described

Double = DataType.Double


def fusion_of(define: object) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)  # type: ignore[operator]
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


@pytest.mark.parametrize("elements", [20_001, 128_257, 250_004, 1_000_004])
@pytest.mark.parametrize("rows", [1, 2, 10, 29, 118, 2000])
@pytest.mark.parametrize("loaded", [8, 16, 24])
def test_shapes(elements: int, rows: int, loaded: int) -> None:
    row = Row(elements, 2, 2 * loaded, 1, is_double=True, is_cut=True)
    shape = choose_peeled_grid_shape(row, rows, loaded, H200, sums_exponentials=False)
    assert shape is not None
    held = shape.threads * shape.batch * 2
    assert held * shape.sharing >= elements
    assert shape.groups <= rows
    assert shape.groups * shape.sharing <= shape.resident * H200.sm_count
    assert shape.resident * held * loaded <= H200.shared_per_sm
    assert shape.threads % 32 == 0


def test_rows_that_nothing_holds_have_none() -> None:
    row = Row(132 * 227 * 128 + 1, 2, 16, 1, is_double=True, is_cut=True)
    assert choose_peeled_grid_shape(row, 3, 8, H200, sums_exponentials=False) is None


@pytest.mark.parametrize(
    ("elements", "rows", "exchanges", "of_exponentials", "cluster", "batch", "times"),
    [
        (250_004, 10, 2, True, 16, 13, (27.7, 42.7)),
        (250_004, 29, 2, False, 16, 13, (69.5, 92.2)),
        (128_256, 30, 2, False, 8, 13, (38.2, 43.4)),
    ],
)
def test_times_are_about_those_of_an_h200(
    elements: int,
    rows: int,
    exchanges: int,
    of_exponentials: bool,
    cluster: int,
    batch: int,
    times: tuple[float, float],
) -> None:
    row = Row(elements, 2, 16, 1 if of_exponentials else exchanges, is_double=True, is_cut=True)
    shape = choose_peeled_grid_shape(row, rows, 8, H200, sums_exponentials=of_exponentials)
    near = peeled_cluster_time(row, rows, cluster, batch, exchanges, H200, sums_exponentials=of_exponentials)
    assert shape is not None
    assert shape.time == pytest.approx(times[0], rel=0.15)
    assert near == pytest.approx(times[1], rel=0.15)


def test_two_tensors_of_floats_lie_over_groups_where_clusters_fill_processors() -> None:
    """As measured on an H200: add_rms_norm f32 85x250003 111.9 us over groups of 24 blocks, 132.0 over clusters."""
    row = Row(250_006, 4, 17, 1, is_double=False, is_cut=True)
    shape = choose_peeled_grid_shape(row, 85, 8, H200, sums_exponentials=False)
    assert shape is not None
    assert (shape.threads, shape.batch, shape.sharing, shape.groups, shape.resident) == (352, 8, 24, 11, 2)
    assert shape.time == pytest.approx(111.9, rel=0.1)
    assert peeled_cluster_time(row, 85, 16, 5, 1, H200, sums_exponentials=False) == pytest.approx(132.0, rel=0.1)


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_proposals_of_two_tensors_of_floats_fit() -> None:
    fusion = optimize_fusion(fusion_of_add_norm(), lambda *_: None)
    given = [described(DataType.Float, 85, 250_003)] * 2 + [described(DataType.Float, 250_003)]
    bound = bind_inputs(fusion, given)
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert params.in_grid == 2
    assert params.waits_by_piece
    kernel = KernelCompiler(H200).compile(fusion, given)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0


def fusion_of_add_norm() -> Fusion:
    with FusionDefinition() as fd:
        x, r = (fd.define_tensor(shape=[-1, -1], dtype=DataType.Float, contiguity=True) for _ in range(2))
        w = fd.define_tensor(shape=[-1], dtype=DataType.Float, contiguity=True)
        h = fd.ops.add(x, r)
        mean = fd.ops.mul(fd.ops.sum(fd.ops.mul(h, h), [1], keepdim=True), 4e-6)
        wide = fd.ops.broadcast(w, [True, False])
        fd.add_output(fd.ops.mul(fd.ops.mul(h, fd.ops.rsqrt(fd.ops.add(mean, 1e-6))), wide))
        fd.add_output(h)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize(
    ("define", "rows", "columns"),
    [(softmax_of_doubles, 10, 250_003), (softmax_of_doubles, 55, 250_003), (norm_of_doubles, 29, 250_003)],
)
def test_proposals_fit(define: object, rows: int, columns: int) -> None:
    fusion = fusion_of(define)
    given = [described(Double, rows, columns)] + [described(Double, columns)] * (define is norm_of_doubles)
    bound = bind_inputs(fusion, given)
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert params.in_grid
    assert params.in_shared
    assert params.aligned_to
    kernel = KernelCompiler(H200).compile(fusion, given)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
def test_few_very_long_rows_of_exponentials_that_clusters_take_in_waves() -> None:
    """23 rows over two groups on each processor in two trips; shorter rows stay in registers, which keep exponentials."""
    fusion = fusion_of(softmax_of_doubles)

    def proposed(rows: int, columns: int) -> InnerPersistentParams:
        bound = bind_inputs(fusion, [described(Double, rows, columns)])
        params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
        assert isinstance(params, InnerPersistentParams)
        return params

    params = proposed(23, 128_256)
    assert (params.threads, params.batch, params.cluster, params.blocks, params.in_grid) == (384, 8, 22, 12, 2)
    assert params.one_pass
    assert params.waits_by_piece
    kernel = KernelCompiler(H200).compile(fusion, [described(Double, 23, 128_256)])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0
    assert not proposed(68, 16_384).in_grid
    assert not proposed(1000, 128_256).in_grid
