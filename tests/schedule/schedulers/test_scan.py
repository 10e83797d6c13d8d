"""The scan scheduler: what it takes, what it proposes, and that its kernels are right and read wide."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import Allocate, Buffer, For, Kernel, walk
from fuser.ir.kernel.print_kernel import print_kernel, print_stmt
from fuser.runtime.kernels import nvrtc
from fuser.runtime.layouts import row_major
from fuser.schedule.params import Peeled, ScanParams
from fuser.schedule.scheduler import Refused, Scheduler, SegmentInputs
from fuser.schedule.schedulers import scan
from fuser.schedule.schedulers.scan import ScanScheduler, element_counts
from fuser.schedule.segmentation.registry import SCHEDULERS
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.judging.harness import Lowered
from tests.judging.harness import run as simulate

Float, Half, BFloat16, Int = DataType.Float, DataType.Half, DataType.BFloat16, DataType.Int
Build = Callable[[FusionDefinition], Any]


def fusion_of(build: Build) -> Fusion:
    with FusionDefinition() as fd:
        results = build(fd)
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def x(fd: FusionDefinition, rank: int = 2, dtype: DataType = Float) -> Any:
    return fd.define_tensor([-1] * rank, True, dtype)


def rows(fd: FusionDefinition, dtype: DataType = Float) -> Any:
    return fd.ops.cumsum(x(fd, 2, dtype), 1)


def columns(fd: FusionDefinition) -> Any:
    return fd.ops.cumsum(x(fd), 0)


def described(fusion: Fusion, *shapes: tuple[int, ...], dtype: DataType = Float) -> tuple[Fusion, SegmentInputs]:
    bound = bind_inputs(fusion, [TensorDescriptor(dtype, s, row_major(s)) for s in shapes])
    return fusion, SegmentInputs(bound.tensors, bound.evaluate)


def propose(fusion: Fusion, *shapes: tuple[int, ...], dtype: DataType = Float) -> ScanParams:
    params = ScanScheduler().propose(*described(fusion, *shapes, dtype=dtype), H200)
    assert isinstance(params, ScanParams)
    return params


# --- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda fd: x(fd) * 2.0, "nothing is scanned"),
        (lambda fd: fd.ops.sum(rows(fd), [1]), "is reduced"),
        (lambda fd: (lambda t: (fd.ops.cumsum(t, 0), fd.ops.cumsum(t, 1)))(x(fd)), "are scanned along different"),
        (lambda fd: fd.ops.broadcast(fd.ops.cumsum(x(fd, 1), 0), [True, False]) + x(fd), "has a dimension that"),
        (
            lambda fd: (lambda b: (b, rows(fd) + fd.ops.broadcast(b, [True, False])))(x(fd, 1) * 2.0),
            "lacks a dimension",
        ),
        (lambda fd: (lambda t: t + fd.ops.permute(t, [1, 0]))(rows(fd)), "a tensor has one dimension twice"),
    ],
)
def test_refusals(build: Build, words: str) -> None:
    refused = ScanScheduler().accepts(fusion_of(build))
    assert isinstance(refused, Refused)
    assert words in refused.reason


@pytest.mark.parametrize(
    "scheduler", [s for s in SCHEDULERS if s.type is not SchedulerType.scan], ids=lambda s: s.type.name
)
@pytest.mark.parametrize(
    "build",
    [
        rows,
        lambda fd: (lambda t: (t, fd.ops.max(t, [0])))(rows(fd)),
        lambda fd: (lambda t: (t, fd.ops.sum(t, [1]), fd.ops.sum(t, [0])))(rows(fd)),
        lambda fd: (lambda t, u: (fd.ops.cumsum(t, 0), fd.ops.max(t, [1]), fd.ops.max(u, [0])))(x(fd), x(fd)),
        lambda fd: (lambda t: t / fd.ops.sum(t, 0, keepdim=True))(rows(fd)),
    ],
)
def test_no_other_scheduler_takes_a_scan(scheduler: Scheduler, build: Build) -> None:
    assert isinstance(scheduler.accepts(fusion_of(build)), Refused)


def _fused(fd: FusionDefinition) -> Any:
    t, scale, bias, mask = x(fd, 2, Half), x(fd, 1), x(fd, 1), x(fd, 2, DataType.Bool)
    ops = fd.ops
    wide = ops.cast(t, Float) * ops.broadcast(scale, [False, True])
    kept = ops.where(mask, wide, 0.0)
    return ops.cast(ops.cumsum(kept, 1) + ops.broadcast(bias, [True, False]), Half), kept


def test_producers_and_consumers_are_one_segment() -> None:
    (segment,) = segment_fusion(fusion_of(_fused)).segments
    assert segment.scheduler.type is SchedulerType.scan


def test_a_reduction_along_another_dim_is_another_segment() -> None:
    segmented = segment_fusion(fusion_of(lambda fd: fd.ops.max(rows(fd), [0])))
    assert [s.scheduler.type for s in segmented.segments] == [SchedulerType.scan, SchedulerType.reduction]


# --- what it proposes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, 3, 189, 16384, 65536])
@pytest.mark.parametrize("length", [0, 1, 16, 128, 257, 1024, 4095, 4096, 16384, 128256])
@pytest.mark.parametrize("inner", [True, False])
def test_mappings_have_work_for_all_threads(kept: int, length: int, inner: bool) -> None:
    shape = (kept, length) if inner else (length, kept)
    params = propose(fusion_of(rows if inner else columns), shape)
    # A dim of one element is no fastest one.
    assert params.inner is inner or 1 in shape
    threads = params.block_scan * params.block_iterate
    assert threads % 32 == 0
    assert 32 <= threads <= H200.max_threads_per_block
    assert params.reasons
    assert all("us (memory" in reason for reason in params.reasons[1:])
    if params.inner and length:
        steps = -(-length // (params.block_scan * params.batch * params.vector * params.cluster))
        # Less than one more access of each thread than the row has.
        spare = steps * params.block_scan * params.batch * params.vector * params.cluster - length
        assert spare <= params.vector * max(32, params.block_scan) * max(steps, params.batch) * params.cluster
        assert bool(params.extent_ranges) == (steps == 1 and length > 1)


def test_rows_that_registers_hold_take_one_step() -> None:
    for length in (512, 1024, 4096, 5120, 7168):
        params = propose(fusion_of(rows), (16384, length))
        assert params.block_scan * params.batch * params.vector >= length
        assert params.cluster == 1


@pytest.mark.parametrize("shape", [(22, 128256), (22, 50257), (64, 2**20), (4, 2**20)])
def test_few_long_rows_take_clusters(shape: tuple[int, int]) -> None:
    params = propose(fusion_of(rows), shape)
    assert params.cluster > 1
    assert 2 * params.cluster * shape[0] >= H200.sm_count or params.cluster == H200.max_cluster
    assert bool(params.extent_ranges) == (shape[1] <= params.block_scan * params.batch * params.cluster * params.vector)


def test_many_short_rows_that_begin_anywhere_are_cut() -> None:
    """By vectors, which fewer lanes load."""
    params = propose(fusion_of(lambda fd: rows(fd, Half)), (30965, 257), dtype=Half)
    assert isinstance(params.access, Peeled)
    assert params.vector > 1
    assert params.block_scan < 32


def test_clusters_are_no_larger_than_the_device_has() -> None:
    fusion = fusion_of(rows)
    bound = bind_inputs(fusion, [TensorDescriptor(Float, (22, 128256), (128256, 1))])
    params = ScanScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), replace(H200, max_cluster=1))
    assert isinstance(params, ScanParams)
    assert params.cluster == 1


def test_half_rows_are_read_in_eights() -> None:
    params = propose(fusion_of(lambda fd: rows(fd, Half)), (16384, 4096), dtype=Half)
    assert params.vector == 8
    assert params.block_scan * params.batch * params.vector == 4096


@pytest.mark.parametrize("shape", [(16381, 64), (2**16, 64), (4096, 33), (100_003, 2)])
def test_few_long_columns_take_clusters(shape: tuple[int, int]) -> None:
    """Of all SMs a few would have work else, and many steps of it."""
    params = propose(fusion_of(columns), shape)
    assert not params.inner
    assert params.cluster > 1
    assert params.block_scan * params.block_iterate <= H200.max_threads_per_block
    old = ScanScheduler().propose(*described(fusion_of(columns), shape), replace(H200, max_cluster=1))
    assert isinstance(old, ScanParams)
    assert old.cluster == 1
    steps = [-(-shape[0] // (p.block_scan * p.batch * p.cluster)) for p in (old, params)]
    assert steps[1] < steps[0]


def test_equal_but_for_the_reasons() -> None:
    a, b = (propose(fusion_of(rows), (n, 4096)) for n in (16384, 16385))
    assert a == b
    assert hash(a) == hash(b)


# --- what the kernels do ----------------------------------------------------------------------------------------------


def execute(fusion_build: Build, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    with FusionDefinition() as fd:
        results = fusion_build(fd)
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    return fd.execute(list(arrays))


@pytest.fixture(autouse=True)
def on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_VERIFY", "passes")


# Around tiles and steps of the shapes above: a step of the largest is 4096 elements.
LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 511, 513, 1023, 1025, 4095, 4096, 4097, 8191, 8193)


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_of_rows(length: int) -> None:
    values = np.random.default_rng(length).integers(-9, 10, (3, length)).astype(np.float32)
    (out,) = execute(rows, values)
    np.testing.assert_array_equal(out, np.cumsum(values, 1))


@pytest.mark.in_turns
@pytest.mark.parametrize("length", [700, 2881, 5003])
@pytest.mark.parametrize(("threads", "tiles"), [(96, 3), (160, 1), (96, 2)])
@pytest.mark.parametrize("cluster", [1, 2])
def test_forced_steps(length: int, threads: int, tiles: int, cluster: int) -> None:
    """Threads that are no power of two, and steps that are loaded while the ones before them compute."""
    fusion = fusion_of(rows)
    values = np.random.default_rng(length).integers(-9, 10, (3, length)).astype(np.float32)
    bound = bind_inputs(fusion, [values])
    params = ScanScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, ScanParams)
    forced = replace(params, block_scan=threads, block_iterate=1, batch=tiles, cluster=cluster, extent_ranges=())
    for ahead in (False, True):
        scheduled = ScanScheduler().apply(fusion, replace(forced, prefetch=ahead))
        lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
        (out,) = simulate(lowered, [values], seed=1).check().values()
        np.testing.assert_array_equal(out, np.cumsum(values, 1))
        assert any(b.name.endswith("_next") for b in _allocated(lowered.kernel)) == ahead


def _allocated(kernel: Kernel) -> list[Buffer]:
    return [s.buffer for s in walk(kernel.body) if isinstance(s, Allocate)]


def _chain(ops: tuple[str, ...], dim: int, dtype: DataType, *, middle: bool) -> Build:
    """Scans of what came before, or of it times a value of its column or row, all of which are outputs."""

    def build(fd: FusionDefinition) -> Any:
        o, made = fd.ops, []
        t: Any = x(fd, 3 if middle else 2, dtype)
        weight = x(fd, 1, dtype)
        axes = [0, 1, 2] if middle else [0, 1]
        spread: Any = o.broadcast(weight, [d != (2 if middle else 1 - dim) for d in axes])
        for k, op in enumerate(ops):
            t = getattr(o, op)(o.mul(t, spread) if k % 2 else t, dim)
            made.append(t)
        return tuple(made)

    return build


FOLDS: dict[str, Any] = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(24))
def test_any_mapping_of_any_scans(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random mappings of the space, for random scans, types and extents, which need not be those that it is good for."""
    chance = random.Random(seed)
    middle = chance.random() < 0.4
    dim = 1 if middle else chance.randrange(2)
    dtype = chance.choice([Float, Int, DataType.Double, Half])
    # Of ones, whose products and sums of sums are exact; those of halves are no longer.
    others = ("cumsum", "cummin", "cummax")
    ops: tuple[str, ...] = (chance.choice(list(FOLDS)),)
    if dtype is not Half:
        ops += chance.choice([(), ("cummax",), (chance.choice(others), "cummin")])
    fusion = fusion_of(_chain(ops, dim, dtype, middle=middle))
    shape = [chance.choice([1, 2, 3, 8, 24, 37]) for _ in range(3 if middle else 2)]
    shape[dim] = chance.choice([1, 2, 33, 255, 700, 1025])
    kind = {Float: np.float32, Int: np.int64, DataType.Double: np.float64, Half: np.float16}[dtype]
    values = np.random.default_rng(seed).choice(np.array([-1, 1], kind), shape)
    weight = np.random.default_rng(seed).choice(np.array([-1, 1], kind), shape[2 if middle else 1 - dim])
    bound = bind_inputs(fusion, [values, weight])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    expected: list[Any] = []
    t = values
    spread = weight if middle or dim == 0 else weight[:, None]
    for k, op in enumerate(ops):
        t = FOLDS[op].accumulate(t * spread if k % 2 else t, dim, dtype=kind)
        expected.append(t)
    monkeypatch.setattr(scan, "_MAX_CANDIDATES", None)
    found = list(ScanScheduler().candidates(fusion, inputs, H200))
    for params in chance.sample(found, min(3, len(found))):
        scheduled = ScanScheduler().apply(fusion, params)
        lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
        results = simulate(lowered, [values, weight], seed=seed).check()
        for value, wanted in zip(results.values(), expected, strict=True):
            np.testing.assert_array_equal(value, wanted, err_msg=str(params))


@pytest.mark.in_turns
@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummin", "cummax"])
@pytest.mark.parametrize("length", [8193, 20000, 40001, 70001])
def test_rows_over_clusters(op: str, length: int) -> None:
    """One step and several, whole vectors and rows that are cut where they are aligned."""
    values = np.random.default_rng(length).integers(1, 3 if op == "cumprod" else 10, (3, length)).astype(np.int64)
    (out,) = execute(lambda fd: getattr(fd.ops, op)(x(fd, 2, Int), 1), values)
    fold = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}[op]
    np.testing.assert_array_equal(out, fold.accumulate(values, 1))


@pytest.mark.in_turns
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 31, 33, 255, 257, 1000])
@pytest.mark.parametrize("width", [1, 3, 8, 40])
def test_lengths_of_columns(length: int, width: int) -> None:
    values = np.random.default_rng(length).integers(-9, 10, (length, width)).astype(np.float32)
    (out,) = execute(columns, values)
    np.testing.assert_array_equal(out, np.cumsum(values, 0))


def scan_and_mask(fd: FusionDefinition) -> Any:
    o, t = fd.ops, x(fd)
    mask = o.cast(o.gt(t, 0.0), DataType.Int32)
    return o.mul(o.cumsum(mask, 0), mask)


def five_scans(fd: FusionDefinition) -> Any:
    o, t = fd.ops, x(fd)
    total = o.cumsum(t, 0)
    for k in range(2, 6):
        total = o.add(total, o.cumsum(o.mul(t, float(k)), 0))
    return total


@pytest.mark.parametrize(("build", "live"), [(columns, 1), (_fused, 1), (scan_and_mask, 2), (five_scans, 5)])
def test_values_that_are_live_where_one_is_scanned(build: Build, live: int) -> None:
    assert element_counts(fusion_of(build))[1] == live


@pytest.mark.parametrize("build", [columns, scan_and_mask, five_scans])
@pytest.mark.parametrize("shape", [(65521, 8), (16381, 16), (16381, 128), (65521, 3), (262144, 1)])
def test_columns_over_clusters_fit_in_registers(build: Build, shape: tuple[int, int]) -> None:
    """What else a thread keeps of an element counts: a kernel that must spill is refused, and its fusion cut."""
    fusion = fusion_of(build)
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion, [TensorDescriptor(Float, shape, row_major(shape))]
    )
    assert kernel.kernel_ir is not None


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummin", "cummax"])
@pytest.mark.parametrize(("length", "width"), [(2000, 9), (3001, 8), (6000, 3)])
def test_columns_over_clusters(op: str, length: int, width: int) -> None:
    fusion = fusion_of(lambda fd: getattr(fd.ops, op)(x(fd), 0))
    assert propose(fusion, (length, width)).cluster > 1
    a = np.random.default_rng(length).choice(np.array([-1.0, 1.0], np.float32), (length, width))
    (found,) = execute(lambda fd: getattr(fd.ops, op)(x(fd), 0), a)
    folds: dict[str, Any] = {"cumsum": np.add, "cumprod": np.multiply, "cummin": np.minimum, "cummax": np.maximum}
    assert np.array_equal(found, folds[op].accumulate(a, 0))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("others", [1, 5])
def test_dims_that_turn_out_to_have_one_element(dim: int, others: int) -> None:
    """The dim that is scanned is a loop of its own, whatever its size; those around it are merged without such dims."""

    def build(fd: FusionDefinition) -> Any:
        t = x(fd, 3)
        sizes = [fd.ops.size(t, d) for d in range(3)]
        return fd.ops.cumsum(fd.ops.triu(fd.ops.expand(t, [sizes[0], sizes[1], sizes[1]]), 0), dim)

    values = np.full((others, 1, 1), 3.0, np.float32)
    (out,) = execute(build, values)
    np.testing.assert_array_equal(out, np.cumsum(values, dim))


def test_prologue_and_epilogue() -> None:
    rng = np.random.default_rng(0)
    t = rng.integers(-3, 4, (5, 600)).astype(np.float16)
    scale, bias = rng.integers(1, 3, 5).astype(np.float32), rng.integers(-5, 6, 600).astype(np.float32)
    mask = rng.random((5, 600)) < 0.5
    out, kept = execute(_fused, t, scale, bias, mask)
    expected = np.where(mask, t.astype(np.float32) * scale[:, None], np.float32(0))
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(out, (np.cumsum(expected, 1) + bias).astype(np.float16))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan_of_a_scan_and_what_it_was_made_of(dim: int) -> None:
    def build(fd: FusionDefinition) -> Any:
        t = x(fd)
        first = fd.ops.cumsum(t, dim)
        return fd.ops.cummax(first, dim, 2) - t, first

    values = np.random.default_rng(1).integers(-3, 4, (70, 300)).astype(np.float32)
    out, first = execute(build, values)
    np.testing.assert_array_equal(first, np.cumsum(values, dim))
    np.testing.assert_array_equal(out, np.maximum(np.maximum.accumulate(np.cumsum(values, dim), dim), 2) - values)


def _weighted(dim: int) -> Build:
    def build(fd: FusionDefinition) -> Any:
        t, weight = x(fd), x(fd, 1)
        gate: Any = fd.ops.sigmoid(weight)
        spread = fd.ops.broadcast(gate, [dim == 0, dim == 1])
        return fd.ops.cumsum(t * spread, dim) / spread

    return build


@pytest.mark.parametrize("dim", [0, 1])
def test_what_is_the_same_all_along_the_scanned_dim_is_computed_before_the_first_step(dim: int) -> None:
    fusion = fusion_of(_weighted(dim))
    rng = np.random.default_rng(dim)
    shape = (5003, 48) if dim == 0 else (300, 5003)
    arrays = [rng.integers(-4, 5, shape).astype(np.float32), rng.standard_normal(shape[1 - dim]).astype(np.float32)]
    bound = bind_inputs(fusion, arrays)
    params = ScanScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, ScanParams)
    scheduled = ScanScheduler().apply(fusion, replace(params, extent_ranges=(), cluster=1))
    kernel = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate)).kernel
    steps = [s for s in walk(kernel.body) if isinstance(s, For) and not s.unroll and not s.unswitch]
    assert steps
    assert "sigmoid" in print_kernel(kernel)
    assert all("sigmoid" not in print_stmt(inner) for loop in steps for inner in walk(loop.body))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (37, 300), (300, 37), (1, 500), (500, 1), (0, 8), (8, 0)])
def test_scans_with_values_of_columns_and_rows(dim: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    t, weight = rng.integers(-4, 5, shape).astype(np.float32), rng.standard_normal(shape[1 - dim]).astype(np.float32)
    (out,) = execute(_weighted(dim), t, weight)
    spread = np.expand_dims(1 / (1 + np.exp(-weight.astype(np.float64))), dim)
    np.testing.assert_allclose(out, np.cumsum(t * spread, dim) / spread, rtol=1e-4, atol=1e-4)


def test_in_place() -> None:
    with FusionDefinition() as fd:
        t = x(fd)
        fd.add_output(fd.ops.cumsum(t, 1), t)
    for shape in ((3, 5000), (40, 7)):
        values = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
        expected = np.cumsum(values, 1)
        fd.execute([values])
        np.testing.assert_array_equal(values, expected)


def test_rows_are_read_once_and_written_once() -> None:
    """Accuracy: no worse than adding up in order, in float."""
    values = np.random.default_rng(2).standard_normal((2, 20000)).astype(np.float32)
    (out,) = execute(rows, values)
    exact = np.cumsum(values.astype(np.float64), 1)
    in_order = np.abs(np.cumsum(values, 1, dtype=np.float32) - exact)
    assert np.abs(out - exact).max() <= in_order.max()
    (again,) = execute(rows, values)
    np.testing.assert_array_equal(out, again)


@pytest.mark.in_turns
@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
@pytest.mark.parametrize(
    ("name", "build", "shapes", "dtypes"),
    [
        ("rows", rows, [(16384, 4096)], [Float]),
        ("long rows", rows, [(64, 2**20)], [Float]),
        ("few rows", rows, [(22, 128256)], [Float]),
        ("few odd rows", lambda fd: rows(fd, DataType.Double), [(88, 50257)], [DataType.Double]),
        ("fewer odd rows", lambda fd: rows(fd, DataType.Double), [(47, 50257)], [DataType.Double]),
        ("long odd rows", lambda fd: rows(fd, BFloat16), [(105, 250003)], [BFloat16]),
        ("complex", lambda fd: rows(fd, DataType.ComplexDouble), [(4, 2**16)], [DataType.ComplexDouble]),
        ("short rows", rows, [(65536, 256)], [Float]),
        ("half rows", lambda fd: rows(fd, Half), [(16384, 4096)], [Half]),
        ("columns", columns, [(16384, 4096)], [Float]),
        ("many columns", columns, [(1024, 65536)], [Float]),
        ("fused", _fused, [(4096, 4096), (4096,), (4096,), (4096, 4096)], [Half, Float, Float, DataType.Bool]),
        ("double", lambda fd: rows(fd, DataType.Double), [(4096, 4096)], [DataType.Double]),
        ("complex", lambda fd: rows(fd, DataType.ComplexDouble), [(4096, 4096)], [DataType.ComplexDouble]),
    ],
)
def test_kernels_do_not_spill_and_move_16_bytes(
    name: str, build: Build, shapes: list[tuple[int, ...]], dtypes: list[DataType]
) -> None:
    fusion = fusion_of(build)
    given = [TensorDescriptor(d, s, row_major(s)) for d, s in zip(dtypes, shapes, strict=True)]
    device: Any = H200
    (kernel,) = compile_fusion(fusion, bind_inputs(fusion, given), device).kernels.values()
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0
    # An element of 16 bytes is one access as it is. Of the fused kernel, the Float arguments are the widest.
    if name != "complex":
        read = "t2" if name == "fused" else "t0"
        assert f"reinterpret_cast<const uint4*>(&{read}[" in kernel.source
        assert re.search(r"\*reinterpret_cast<uint4\*>\(&t\d\[", kernel.source)
