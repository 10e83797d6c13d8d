"""Reductions as they are scheduled: right in every regime, few kernels for many shapes, accurate on hard data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import Fact
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import For, If, Role, Stmt, VectorMove, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from fuser.runtime.kernels import nvrtc
from fuser.schedule.params import ReductionParams
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.segmentation.segment import Segment
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place
from tests.schedule.block_reductions import (
    SCHEDULER,
    TINY,
    Array,
    D,
    candidates,
    described,
    propose,
    reduction,
    simulate,
)


def stored(x: Array, order: Sequence[int] | None) -> Array:
    """The same values with dims in another memory order."""
    if order is None:
        return x
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


SHAPES = {
    "inner": ([1], None, [(1, 1), (3, 7), (40, 96), (2, 5000), (1, 40000), (7, 1023), (300, 8), (5, 4096)]),
    "outer": ([0], None, [(1, 1), (7, 3), (96, 40), (3000, 5), (5000, 64), (33, 130), (4096, 8), (2000, 1)]),
    "all": ([0, 1], None, [(1, 1), (3, 7), (64, 96), (250, 130)]),
    "middle": ([1], None, [(1, 1, 1), (3, 40, 8), (2, 700, 33)]),
    "channels": ([0, 2], None, [(1, 1, 1), (4, 3, 16), (9, 2, 250), (40, 3, 64)]),
    "channels_last": ([0, 1], None, [(1, 1, 1), (4, 16, 8), (9, 250, 6)]),
    "columns_of_transposed": ([1], (1, 0), [(40, 96), (5, 3000)]),
}
CASES = [(name, dims, order, shape) for name, (dims, order, shapes) in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "dims", "order", "shape"), CASES)
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16])
def test_sums_in_every_regime(
    name: str, dims: list[int], order: tuple[int, ...] | None, shape: tuple[int, ...], dtype: DataType
) -> None:
    x = stored(np.random.default_rng(0).integers(-4, 5, shape).astype(dtype.numpy), order)
    fusion = reduction("sum", dims, len(shape), dtype, order)
    (found,) = simulate(fusion, [x], propose(fusion, [x]))
    np.testing.assert_array_equal(found, x.astype(np.float64).sum(tuple(dims)))


@pytest.mark.parametrize(("name", "dims", "order", "shape"), CASES)
def test_variances_in_every_regime(
    name: str, dims: list[int], order: tuple[int, ...] | None, shape: tuple[int, ...]
) -> None:
    x = stored(np.random.default_rng(1).normal(3.0, 2.0, shape).astype("f4"), order)
    fusion = reduction("var_mean", dims, len(shape), D.Float, order)
    variance, mean = simulate(fusion, [x], propose(fusion, [x]))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(tuple(dims)), rtol=2e-6, atol=2e-6)
    count = exact.size // max(mean.size, 1)
    if count > 1:
        np.testing.assert_allclose(variance, exact.var(tuple(dims), ddof=1), rtol=4e-6)


@pytest.mark.parametrize(("shape", "dtype", "is_cluster"), [
    ((1, 50257), D.Double, True),
    ((2, 128256), D.BFloat16, True),
    ((39, 50257), D.Float, True),
    ((1, 2**22), D.Float, False),
    ((264, 50257), D.Float, False),
])  # fmt: skip
def test_clusters_share_few_rows_of_little_data(shape: tuple[int, int], dtype: DataType, is_cluster: bool) -> None:
    assert propose(reduction("sum", [1], 2, dtype), [described(shape, dtype)], H200).cluster is is_cluster


@pytest.mark.parametrize("op", ["sum", "max", "prod", "var_mean"])
@pytest.mark.parametrize(("dims", "shape"), [([0, 1], (3, 8197)), ([1], (2, 20001))])
@pytest.mark.parametrize("dtype", [D.Float, D.Double])
def test_results_of_clusters(op: str, dims: list[int], shape: tuple[int, int], dtype: DataType) -> None:
    values = np.random.default_rng(5).integers(1, 2 if op == "prod" else 9, shape).astype(dtype.numpy)
    fusion = reduction(op, dims, 2, dtype)
    params = next(p for p in candidates(fusion, [values], H200) if p.cluster)
    found = simulate(fusion, [values], params)
    if op == "var_mean":
        np.testing.assert_allclose(found[0], values.astype("f8").var(tuple(dims), ddof=1), rtol=1e-5)
        np.testing.assert_allclose(found[1], values.astype("f8").mean(tuple(dims)), rtol=1e-6)
    else:
        np.testing.assert_array_equal(found[0], getattr(np, op)(values, axis=tuple(dims)))


@pytest.mark.parametrize("name", ["inner", "outer", "channels"])
@pytest.mark.parametrize("dtype", [D.Half, D.Double, D.Int, D.Int32, D.ComplexFloat, D.ComplexDouble])
def test_sums_of_every_kind_of_number(name: str, dtype: DataType) -> None:
    dims, order, shapes = SHAPES[name]
    shape = {"inner": (3, 1000), "outer": (1000, 33), "channels": (9, 2, 250)}[name]
    assert len(shapes[0]) == len(shape)
    x = np.random.default_rng(2).integers(-4, 5, shape).astype(dtype.numpy)
    if dtype.is_complex:
        x = x + 1j * np.flip(x)
    x = x.astype(dtype.numpy)
    fusion = reduction("sum", dims, len(shape), dtype, order)
    (found,) = simulate(fusion, [x], propose(fusion, [x]))
    wide = x.astype(np.complex128 if dtype.is_complex else np.float64)
    np.testing.assert_array_equal(found, wide.sum(tuple(dims)))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize(("dims", "shape"), [([1], (3, 5000)), ([0], (3000, 9)), ([0, 1], (64, 96)), ([1], (70, 37))])
def test_extremes_of_lanes_keep_nan_and_infinities(op: str, dims: list[int], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype("f4")
    x[1, 1] = np.nan
    x[-1, -1] = np.inf
    x[0, 0] = -np.inf
    fusion = reduction(op, dims, 2, D.Float)
    (found,) = simulate(fusion, [x], propose(fusion, [x]))
    np.testing.assert_array_equal(found, getattr(np, op)(x, axis=tuple(dims)))


def test_values_of_columns_stand_between_what_they_need_and_what_needs_them() -> None:
    """The broadcast maximum is held for a column's second pass; the first one also has a sum that is for the end."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True, D.Float), fd.define_tensor([-1], True, D.Float)
        largest = fd.ops.broadcast(fd.ops.max(x, [0]), [True, False])
        total = fd.ops.sum(fd.ops.exp(fd.ops.sub(x, largest)), [0])
        other = fd.ops.sum(fd.ops.mul(x, fd.ops.broadcast(w, [True, False])), [0])
        fd.add_output(fd.ops.sub(fd.ops.add(total, fd.ops.squeeze(largest, [0])), other))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    rng = np.random.default_rng(3)
    for shape in ((20, 3), (130, 40)):
        inputs = [rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)]
        (result,) = simulate(fusion, inputs, propose(fusion, inputs))
        x64, w64 = (a.astype(np.float64) for a in inputs)
        top = x64.max(axis=0)
        expected = np.exp(x64 - top).sum(axis=0) + top - (x64 * w64).sum(axis=0)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_several_reductions_read_their_data_once() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1], True, D.Float), fd.define_tensor([-1, -1], True, D.BFloat16)
        product = x * fd.ops.cast(y, D.Float)
        for t in (fd.ops.sum(product, [1]), fd.ops.max(x, [1]), *fd.ops.var_mean(product, [1], 0, False)):
            fd.add_output(t)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal((5, 2000)).astype("f4"), rng.standard_normal((5, 2000)).astype(D.BFloat16.numpy)]
    params = propose(fusion, inputs)
    product = inputs[0].astype("f8") * inputs[1].astype("f8")
    found = simulate(fusion, inputs, params)
    np.testing.assert_allclose(found[0], product.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[1], inputs[0].max(1))
    np.testing.assert_allclose(found[2], product.var(1), rtol=1e-5)
    np.testing.assert_allclose(found[3], product.mean(1), rtol=1e-4, atol=1e-6)
    kernel = lower_fusion(*scheduled_with_facts(fusion, inputs, params))
    loads = [s for s in walk(kernel.body) if isinstance(s, VectorMove) and s.src.is_global]
    assert len(loads) == 4, "two inputs, with and without tests"


def scheduled_with_facts(
    fusion: Fusion, inputs: Sequence[Any], params: ReductionParams
) -> tuple[ScheduleBuilder, frozenset[Fact]]:
    bound = bind_inputs(fusion, inputs)
    scheduled = SCHEDULER.apply(fusion, params)
    return scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate)


LARGE = {
    "rows": ("sum", [1], None, (8192, 8192), D.Float),
    "short_rows": ("sum", [1], None, (1 << 19, 128), D.BFloat16),
    "ragged_rows": ("sum", [1], None, (8192, 8191), D.Float),
    "few_rows": ("sum", [1], None, (16, 1 << 24), D.Float),
    "all": ("sum", [0, 1], None, (8192, 8192), D.Float),
    "columns": ("sum", [0], None, (8192, 8192), D.Float),
    "variance_of_rows": ("var_mean", [1], None, (16384, 4096), D.BFloat16),
    "variance_of_columns": ("var_mean", [0], None, (65536, 1024), D.BFloat16),
    "variance_in_double": ("var_mean", [0], None, (65536, 1024), D.Double),
    "channels": ("var_mean", [0, 2, 3], None, (64, 256, 64, 64), D.BFloat16),
    "channels_last": ("var_mean", [0, 2, 3], (0, 2, 3, 1), (64, 256, 64, 64), D.BFloat16),
    "small_planes": ("var_mean", [0, 2, 3], None, (256, 2048, 7, 7), D.Half),
}


@pytest.mark.parametrize("name", LARGE)
def test_loads_stand_before_their_uses(name: str) -> None:
    """A step of a thread asks for everything it reads, then computes; where all of it is inside, nothing is tested."""
    op, dims, order, shape, dtype = LARGE[name]
    fusion = reduction(op, dims, len(shape), dtype, order)
    inputs = [described(shape, dtype, order)]
    params = propose(fusion, inputs, H200)
    kernel = lower_fusion(*scheduled_with_facts(fusion, inputs, params))
    steps = [s for s in walk(kernel.body) if isinstance(s, For) and not s.unroll and has_load(s)]
    count = max(params.unroll, params.unroll_outer)
    assert count > 1
    # What a last block loads stands apart.
    step = steps[-1].body
    first = next(s for s in step if isinstance(s, If))
    assert first.role is Role.unswitch
    assert isinstance(first.then[0], For)
    assert first.then[0].stop.value == count
    assert not any(isinstance(s, If) and s.role is Role.predicate for s in walk(first.then))
    later = [s for s in step if s is not first and not (isinstance(s, If) and s.role is Role.last_block)]
    assert not any(has_load(s) for s in later), "all loads stand in front"


def has_load(stmt: Stmt) -> bool:
    return any(b.is_global and b.tensor == "t0" for s in walk((stmt,)) for b, _ in stmt_reads(s))


@pytest.mark.in_turns
@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
@pytest.mark.parametrize("name", LARGE)
def test_registers_hold_what_is_in_flight(name: str) -> None:
    op, dims, order, shape, dtype = LARGE[name]
    fusion = reduction(op, dims, len(shape), dtype, order)
    inputs = [described(shape, dtype, order)]
    bound = bind_inputs(fusion, inputs)
    # As one kernel, also where two that reduce in steps are better.
    params = SCHEDULER.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, ReductionParams)
    kernel, _ = KernelCompiler(H200).compile_segment(Segment(fusion, SCHEDULER, ()), bound, params)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert kernel.resources.stack_bytes == 0
    threads = params.block_reduce * params.block_iterate * max(1, params.block_outer)
    resident = min(H200.max_threads_per_sm, H200.registers_per_sm // kernel.resources.registers) // threads * threads
    full = params.vector * dtype.itemsize * params.unroll * resident
    # Statistics take longer to combine than their bytes take to come.
    assert full >= 45_000 or params.vector == 1 or op == "var_mean", f"{full} bytes on their way to each SM"


@pytest.mark.parametrize(("dims", "shapes"), [
    ([1], [(rows, 2048) for rows in range(2, 2002, 20)]),
    ([1], [(rows, 100_000) for rows in range(2, 102)]),
    ([1], [(rows, 1 << 20) for rows in range(2, 102)]),
    ([0], [(rows, 1024) for rows in range(300, 30_000, 297)]),
    ([0, 1], [(rows, 4096) for rows in range(300, 30_000, 297)]),
])  # fmt: skip
def test_few_kernels_serve_many_numbers_of_rows(dims: list[int], shapes: list[tuple[int, int]]) -> None:
    """Row counts are a matter of the launch plan: twice as many rows are two kernels more at most."""
    assert len(shapes) == 100
    fusion = reduction("sum", dims, 2, D.Float)
    kernels = set()
    for shape in shapes:
        inputs = [described(shape, D.Float)]
        params = propose(fusion, inputs, H200)
        kernels.add((params, scheduled_with_facts(fusion, inputs, params)[1]))
    assert len(kernels) <= 2 + 2 * math.log2(shapes[-1][0] / shapes[0][0]), [p for p, _ in kernels]


def test_compiles_are_counted_for_numbers_of_rows() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True, D.Float), [1]))
    for rows in range(2, 102):
        x = np.ones((rows, 64), np.float32)
        (found,) = fd.execute([x], device="simulator")
        np.testing.assert_array_equal(found, np.full(rows, 64.0, np.float32))
    assert fd.fec.counters()["kernels_compiled"] <= 3


def test_outliers_that_come_first() -> None:
    """Differences are taken from the first value a thread sees, however far that is from the others."""
    x = np.random.default_rng(8).normal(0.0, 1.0, (4, 6000)).astype("f4")
    x[:, :512] *= 1e4
    exact = x.astype("f8").var(1, ddof=1)
    for axis, values in ((1, x), (0, np.ascontiguousarray(x.T))):
        fusion = reduction("var_mean", [axis], 2, D.Float)
        variance, _ = simulate(fusion, [values], propose(fusion, [values]))
        np.testing.assert_allclose(variance, exact, rtol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_equal_values_have_no_variance(axis: int) -> None:
    x = np.full((300, 200), 12345.678, np.float32)
    fusion = reduction("var_mean", [axis], 2, D.Float)
    variance, mean = simulate(fusion, [x], propose(fusion, [x]))
    np.testing.assert_array_equal(variance, 0.0)
    np.testing.assert_array_equal(mean, x[0, 0])


@pytest.mark.parametrize("values", [1, 4])
def test_what_a_row_has_one_of_takes_no_registers_for_each_element(values: int) -> None:
    """It is read for every element of a row: the compiler is to see that the loads of a vector are one."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, D.BFloat16)
        rows = [fd.define_tensor([-1], True, D.Float) for _ in range(values)]
        y = fd.ops.cast(x, D.Float)
        for row in rows:
            y = fd.ops.exp(y - fd.ops.broadcast(row, [False, True]))
        fd.add_output(fd.ops.sum(y, [0, 1]))
    assert fd.fusion is not None
    inputs = [described((2051, 32000), D.BFloat16), *[described((2051,), D.Float)] * values]
    kernel = KernelCompiler(H200).compile(fd.fusion, inputs)
    names = fd.fusion.ir_fusion.inputs
    assert f"&{names[0].name}[" in kernel.source
    if nvrtc.is_available():
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0


def test_reasons_are_told_and_do_not_count() -> None:
    fusion = reduction("sum", [1], 2, D.Float)
    first = propose(fusion, [described((8192, 8192), D.Float)], H200)
    assert any("threads along" in reason and "memory" in reason for reason in first.reasons)
    assert "threads along" in repr(first)
    assert replace(first, reasons=()) == first
    assert hash(replace(first, reasons=())) == hash(first)


def plain_welford(x: Array) -> Array:
    """Variance of each row, one element after another in Float: what a library computes per thread."""
    mean, m2 = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
    for k in range(x.shape[1]):
        delta = x[:, k] - mean
        mean += delta / np.float32(k + 1)
        m2 += delta * (x[:, k] - mean)
    return m2 / np.float32(x.shape[1] - 1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spread", [(1e4, 1.0), (-3e5, 2.0), (0.0, 1.0), (1.0, 1e-3)])
def test_variance_of_data_with_a_large_mean(axis: int, spread: tuple[float, float]) -> None:
    x = np.random.default_rng(5).normal(*spread, (4, 6000)).astype("f4")
    exact = x.astype("f8").var(1, ddof=1)
    plain = np.abs(plain_welford(x) - exact) / exact
    values = x if axis == 1 else np.ascontiguousarray(x.T)
    fusion = reduction("var_mean", [axis], 2, D.Float)
    variance, mean = simulate(fusion, [values], propose(fusion, [values]))
    ours = np.abs(variance - exact) / exact
    assert ours.max() <= max(plain.max(), 4 * np.finfo("f4").eps)
    np.testing.assert_allclose(mean, x.astype("f8").mean(1), rtol=2.5e-7, atol=1e-6 * spread[1])


@pytest.mark.parametrize("axis", [0, 1])
def test_sum_of_a_wide_range(axis: int) -> None:
    rng = np.random.default_rng(6)
    x = (rng.choice([-1.0, 1.0], (3, 20_000)) * 10.0 ** rng.uniform(-8, 8, (3, 20_000))).astype("f4")
    values = x if axis == 1 else np.ascontiguousarray(x.T)
    fusion = reduction("sum", [axis], 2, D.Float)
    (found,) = simulate(fusion, [values], propose(fusion, [values]))
    wide = x.astype("f8")
    eps = np.finfo("f4").eps
    assert (np.abs(found - wide.sum(1)) <= eps * np.log2(x.shape[1]) * np.abs(wide).sum(1)).all()


@pytest.mark.parametrize("device", [TINY, H200], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 1003), (3, 257), (10, 700), (15, 64), (16, 300)])
@pytest.mark.parametrize(("op", "dtype"), [("var_mean", D.BFloat16), ("var_mean", D.Float), ("sum", D.Double)])
def test_latency_bound_rows(op: str, dtype: DataType, shape: tuple[int, int], device: DeviceInfo) -> None:
    """Neighbouring threads store neighbouring results, and a thread has half of its rows on their way at once, or all."""
    x = np.random.default_rng(11).normal(2.0, 1.0, shape).astype(np.float32)
    given = x.astype(ml_dtypes.bfloat16) if dtype is D.BFloat16 else x.astype("f8") if dtype is D.Double else x
    fusion = reduction(op, [0], 2, dtype)
    params = propose(fusion, [given], device)
    assert params.vector == 1
    assert params.grid_reduce == 1
    assert 2 * params.block_reduce * params.unroll >= shape[0]
    wide = given.astype("f8")
    expected = [wide.var(0, ddof=1), wide.mean(0)] if op == "var_mean" else [wide.sum(0)]
    for found, want in zip(simulate(fusion, [given], params), expected, strict=True):
        # A mean that cancels is as exact as what it is a mean of.
        exact = 1e-12 if dtype is D.Double else 2.0**-23
        np.testing.assert_allclose(found, want, rtol=2e-6 if op == "var_mean" else 3e-7, atol=exact)


@pytest.mark.parametrize(("op", "dtype", "shape", "shared"), [
    ("sum", D.BFloat16, (93, 1000), False),
    ("sum", D.Double, (2274, 1024), False),
    ("sum", D.Float, (8000, 1024), True),
    ("var_mean", D.Double, (167, 1000), False),
    ("var_mean", D.BFloat16, (6230, 257), True),
    ("var_mean", D.BFloat16, (65536, 1024), True),
])  # fmt: skip
def test_blocks_share_columns_where_one_would_take_many_turns(
    op: str, dtype: DataType, shape: tuple[int, int], shared: bool
) -> None:
    params = propose(reduction(op, [0], 2, dtype), [described(shape, dtype)], H200)
    assert (params.grid_reduce > 1) is shared


@pytest.mark.parametrize("shape", [(8192, 8192), (2408, 128_256), (1072, 500_008), (1000, 1_000_000)], ids=str)
def test_rows_that_keep_all_processors_busy_are_not_shared(shape: tuple[int, int]) -> None:
    params = propose(reduction("sum", [1], 2, D.BFloat16), [described(shape, D.BFloat16)], H200)
    assert params.grid_reduce == 1


@pytest.mark.parametrize("begins_off_by", [0, 1])
@pytest.mark.parametrize(
    ("shape", "vector"),
    [((3, 17, 51, 1), 1), ((1, 17, 51, 1), 1), ((1, 17, 52, 1), 4), ((3, 17, 52, 1), 4), ((3, 17, 54, 1), 2)],
    ids=str,
)
def test_vectors_of_columns_stay_within_a_run_of_memory(
    shape: tuple[int, ...], vector: int, begins_off_by: int
) -> None:
    """Columns on both sides of what is reduced are one axis of the schedule, and no neighbours in memory."""
    with FusionDefinition() as fd:
        for result in fd.ops.var_mean(fd.define_tensor([-1, -1, -1, 1], True), [1], 0, False):
            fd.add_output(result)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    x = np.random.default_rng(0).normal(size=math.prod(shape) + 1).astype("f4")
    x = x[begins_off_by : begins_off_by + math.prod(shape)].reshape(shape)
    params = propose(fusion, [x], H200)
    assert params.vector == (1 if begins_off_by else vector)
    variance, mean = simulate(fusion, [x], params)
    np.testing.assert_allclose(variance, x.astype("f8").var(1), rtol=1e-5)
    np.testing.assert_allclose(mean, x.astype("f8").mean(1), atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_one_element_is_stored_beside_a_sum_of_none(count: int) -> None:
    """The loop of the sum reads it as well, and has no iteration then."""
    with FusionDefinition() as fd:
        x, scale = fd.define_tensor([-1], True), fd.define_tensor([1], [None])
        fd.add_output(fd.ops.mul(scale, 2.0))
        fd.add_output(fd.ops.sum(fd.ops.mul(x, scale), [0]))
    given = np.arange(count, dtype="f4")
    doubled, total = fd.execute([given, np.array([3], "f4")], device="simulator")
    assert np.asarray(doubled).tolist() == [6]
    assert float(np.asarray(total)) == 3 * given.sum()


def test_what_is_read_for_many_results_stays_in_the_cache() -> None:
    """Sums of products with what is one for the rows of a class: all rows are read for each class."""
    with FusionDefinition() as fd:
        x, classes = fd.define_tensor([-1, -1], True, D.Float), fd.define_tensor([-1], True, D.Int)
        is_of = fd.ops.eq(fd.ops.broadcast(fd.ops.iota(257), [False, True]), fd.ops.broadcast(classes, [True, False]))
        chosen = fd.ops.broadcast(fd.ops.cast(is_of, D.Float), [False, False, True])
        fd.add_output(fd.ops.sum(chosen * fd.ops.broadcast(x, [True, False, False]), [1]))
    assert fd.fusion is not None
    fusion, inputs = fd.fusion.ir_fusion, [described((4099, 96), D.Float), described((4099,), D.Int)]
    params = propose(fusion, inputs, H200)
    assert params.block_iterate * params.vector > 96, "a block reads a row for more than one class"


@pytest.mark.parametrize("dtype", [D.Float, D.Bool])
@pytest.mark.parametrize("shape", [(40, 512), (130, 37), (3000, 64)])
def test_a_weighted_mean_reads_its_weights_once(
    shape: tuple[int, int], dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of rows are summed up beside the rows: one kernel, though their sum lacks the dim of the columns."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True, D.Float), fd.define_tensor([-1], True, dtype)
        weight = fd.ops.broadcast(fd.ops.cast(w, D.Float), [False, True])
        count = fd.ops.sum(weight, [0, 1])
        fd.add_output(fd.ops.sum(x * weight, [0]) / fd.ops.broadcast(count, [True]))
    rng = np.random.default_rng(6)
    given = [rng.standard_normal(shape).astype("f4"), rng.integers(0, 2, shape[0]).astype(dtype.numpy)]
    device = SimulatorDevice()
    placed = [place(device, a) for a in given]
    (found,) = fd.execute(placed)
    np.testing.assert_allclose(np.asarray(found), np.average(given[0], 0, given[1]), rtol=1e-4, atol=1e-6)
    assert len(fd.program(placed).launches()) == 1
