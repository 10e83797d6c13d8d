"""Reductions of what other reductions leave of each row: one kernel, right for any shape, the same bits every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import AtomicAdd, For, Kernel, Post, Store, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.nvrtc import is_available
from fuser.schedule.params import ChainedParams, InnerPersistentParams
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.schedulers import chained_reduction
from fuser.schedule.schedulers.chained_reduction import ChainedReductionScheduler
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.fusions.chained_reductions import (
    ROWS_KEPT,
    STREAMED,
    BFloat16,
    Definition,
    Double,
    Float,
    Half,
    arrays_for,
    chosen_beside_normalised,
    cross_entropy,
    described,
    error_of_normalised,
    expected_of,
    fusion_of,
    largest_of_all,
    mean_of_norms,
    moments_of_sums,
    norm_of_column_sums,
    sum_of_variances,
    weighted_cross_entropy,
)
from tests.judging.harness import run_on
from tests.schedule.forced_rows import propose_only

H200 = DeviceInfo.preset("H200")
SMALL = replace(H200, sm_count=6)


def check(
    define: Definition, rows: int, columns: int, dtype: DataType = Float, device: DeviceInfo = SMALL
) -> CompiledKernel:
    """One kernel, right on the simulator, and the same bits when it runs again."""
    arrays = arrays_for(define, rows, columns, dtype)
    fusion = fusion_of(define, dtype)
    simulator = SimulatorDevice(info=device)
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    assert kernel.plan is not None
    assert not kernel.plan.cooperative
    found = run_on(simulator, kernel, fusion, arrays)
    again = run_on(simulator, kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = found[t.name]
        assert value.tobytes() == again[t.name].tobytes()
        # Sums of many numbers of both signs: what counts is their size, not that of the sum.
        scale = max(1.0, np.sqrt(rows * columns)) if define in (moments_of_sums, norm_of_column_sums) else 1.0
        bound = 1e-12 if dtype is Double else 2e-5
        np.testing.assert_allclose(value.astype(np.float64), expected, rtol=bound, atol=bound * scale)
    return kernel


SHAPES = [(1, 1), (1, 700), (700, 1), (5, 33), (37, 129), (300, 16), (64, 1024)]


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*STREAMED, *ROWS_KEPT])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_any_shape(define: Definition, rows: int, columns: int) -> None:
    check(define, rows, columns)


@pytest.mark.parametrize("dtype", [BFloat16, Float])
@pytest.mark.parametrize(("rows", "columns"), [(37, 1000), (300, 72), (5, 4104)])
def test_rows_far_below_zero(rows: int, columns: int, dtype: DataType) -> None:
    """A maximum that began as anything but -infinity would show, and so would a partial access that counted."""
    fusion = fusion_of(cross_entropy, dtype)
    arrays = arrays_for(cross_entropy, rows, columns, dtype)
    arrays[0] = (np.asarray(arrays[0]).astype(np.float32) - 60).astype(dtype.numpy)
    simulator = SimulatorDevice(info=replace(H200, sm_count=2))
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], expected, rtol=2e-5)


@pytest.mark.parametrize("define", [*STREAMED, *ROWS_KEPT])
@pytest.mark.parametrize("dtype", [BFloat16, Half, Double])
def test_dtypes(define: Definition, dtype: DataType) -> None:
    check(define, 45, 136, dtype)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*STREAMED, *ROWS_KEPT])
@pytest.mark.parametrize(("rows", "columns"), [(700, 1), (37, 129), (10, 24), (301, 16)])
def test_blocks_with_several_rows(define: Definition, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_reduction, "MAX_BLOCKS", 3)
    check(define, rows, columns)


@pytest.mark.parametrize("define", [mean_of_norms, sum_of_variances, cross_entropy, weighted_cross_entropy])
@pytest.mark.parametrize(("rows", "columns", "dtype"), [(2, 17000, Float), (2, 34000, BFloat16), (1, 9001, Double)])
def test_few_long_rows_lie_over_clusters(define: Definition, rows: int, columns: int, dtype: DataType) -> None:
    kernel = check(define, rows, columns, dtype)
    assert kernel.plan is not None
    assert rows == 1 or max(kernel.plan.cluster or (1,)) > 1


@pytest.mark.parametrize("define", ROWS_KEPT)
@pytest.mark.parametrize("columns", [16_000, 32_000])
def test_rows_that_come_by_asynchronous_copies(define: Definition, columns: int) -> None:
    """Each tensor's copies are waited for before anything reads them."""
    check(define, 13, columns)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*STREAMED, *ROWS_KEPT])
@pytest.mark.parametrize(("rows", "columns"), [(64, 5), (100, 128), (213, 250), (2, 3000), (5, 2057), (700, 24)])
def test_blocks_of_few_small_rows_post(define: Definition, rows: int, columns: int) -> None:
    kernel = check(define, rows, columns)
    if define in (mean_of_norms, weighted_cross_entropy):
        assert kernel.kernel_ir is not None
        assert any(isinstance(s, Post) for s in walk(kernel.kernel_ir.body))


def kernel_of(define: Definition, rows: int, columns: int, dtype: DataType = BFloat16) -> CompiledKernel:
    """For an H200, from descriptors alone."""
    arrays = arrays_for(define, 2, columns, dtype)
    described_rows = [replace(described(a), sizes=(rows, *a.shape[1:])) for a in arrays]
    return KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(define, dtype), described_rows)


@pytest.mark.parametrize(
    ("define", "rows", "columns"),
    [
        (mean_of_norms, 80_000, 3200),
        (mean_of_norms, 1_000_003, 128),
        (mean_of_norms, 40_000, 1000),
        (cross_entropy, 80_000, 3200),
        (cross_entropy, 3000, 9000),
    ],
)
def test_a_row_leaves_one_number_and_its_threads_share_the_joining(define: Definition, rows: int, columns: int) -> None:
    kernel = kernel_of(define, rows, columns)
    ir = kernel.kernel_ir
    assert isinstance(ir, Kernel)
    assert sum(isinstance(s, AtomicAdd) for s in walk(ir.body)) == 1
    assert kernel.plan is not None
    (partials,) = kernel.plan.workspaces
    assert partials.dtype is Float
    published = [s for s in walk(ir.body) if isinstance(s, Store) and s.buffer.is_global and "blocks" in s.buffer.name]
    assert [str(s.index) for s in published] == ["blockIdx.x"], "one for each block"
    # Every thread of the block reads other partials than its neighbour, and all go round together.
    read = [index for s in walk(ir.body) for b, index in stmt_reads(s) if b in {x.buffer for x in published}]
    assert len(read) in (1, 2), "as many again where threads do not divide the blocks"
    assert all("threadIdx.x" in str(index) for index in read)
    assert not any("threadIdx.x" in str(s.start) for s in walk(ir.body) if isinstance(s, For))


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", [Double, Float])
def test_joins_of_statistics_have_the_registers_that_they_need(dtype: DataType) -> None:
    arrays = [described(a) for a in arrays_for(moments_of_sums, 4096, 1000, dtype)]
    kernel = KernelCompiler(DeviceInfo.preset("H200")).compile(fusion_of(moments_of_sums, dtype), arrays)
    assert kernel.spilled_with == ()


def test_weights_of_rows_and_losses_share_a_semaphore() -> None:
    kernel = kernel_of(weighted_cross_entropy, 40_000, 900)
    assert kernel.kernel_ir is not None
    assert sum(isinstance(s, AtomicAdd) for s in walk(kernel.kernel_ir.body)) == 1


def test_many_rows_are_joined_by_few_blocks() -> None:
    fusion = fusion_of(mean_of_norms, BFloat16)
    blocks = {rows: params(fusion, rows, 128).blocks for rows in (4000, 8192, 100_003, 5_000_000)}
    assert blocks[4000] == blocks[8192] == 0
    assert blocks[5_000_000] == chained_reduction.STREAMED_BLOCKS


def params(fusion: Fusion, rows: int, columns: int) -> ChainedParams:
    found = proposal(fusion, rows, columns)
    assert isinstance(found, ChainedParams)
    return found


def proposal(fusion: Fusion, rows: int, columns: int, device: DeviceInfo = H200) -> object:
    inputs = [
        TensorDescriptor(t.dtype, (rows, columns)[: t.ndim], (columns, 1)[-t.ndim :]) for t in fusion.input_tensors
    ]
    bound = bind_inputs(fusion, inputs)
    return ChainedReductionScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), device)


def test_rows_that_blocks_share_are_a_kernel_of_their_own() -> None:
    fusion = fusion_of(mean_of_norms, Float)
    answer = proposal(fusion, 3, 10_000_000)
    assert isinstance(answer, Refused)
    assert "several blocks" in answer.reason
    x = np.random.default_rng(0).normal(size=(2, 400_000)).astype(np.float32)
    with FusionDefinition() as fd:
        mean_of_norms(fd, Float)
    (found,) = fd.execute([x], device="simulator")
    np.testing.assert_allclose(found, expected_of(mean_of_norms, [x])[0], rtol=2e-5)


@pytest.mark.parametrize("define", [error_of_normalised, largest_of_all])
def test_results_of_all_elements_are_chained_to_those_of_rows(define: Definition) -> None:
    arrays = arrays_for(define, 40, 300, Float)
    with FusionDefinition() as fd:
        define(fd, Float)
    found = fd.execute(arrays, device="simulator")
    for result, expected in zip(found, expected_of(define, arrays), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5)
    optimized = optimize_fusion(fusion_of(define, Float), lambda *_: None)
    (segment,) = segment_fusion(optimized).segments
    assert segment.scheduler is not None
    assert segment.scheduler.type is SchedulerType.chained_reduction


def used_again(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=Float, contiguity=True)
    total = fd.ops.sum(fd.ops.sqrt(fd.ops.sum(x, [1])), [0])
    fd.add_output(fd.ops.mul(x, fd.ops.broadcast(total, [True, True])))


def some_rows(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1, -1], dtype=Float, contiguity=True)
    fd.add_output(fd.ops.sum(fd.ops.sqrt(fd.ops.sum(x, [2])), [1]))


def not_chained(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=Float, contiguity=True)
    fd.add_output(fd.ops.sum(x, [1]))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (used_again, "needs a result of all rows"),
        (some_rows, "is not reduced over all the rows"),
        (not_chained, "no reduction is chained"),
    ],
)
def test_refusals(build: Callable[[FusionDefinition], None], reason: str) -> None:
    with FusionDefinition() as fd:
        build(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    answer = ChainedReductionScheduler().accepts(fusion)
    assert isinstance(answer, Refused)
    assert reason in answer.reason
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(3, 4, 5)[: len(fusion.input_tensors[0].visible)])).astype(np.float32)
    (found,) = fd.execute([x], device="simulator")
    exact = x.astype(np.float64)
    if build is used_again:
        expected = exact * np.sqrt(exact.sum(1)).sum()
    else:
        expected = np.sqrt(exact.sum(2)).sum(1) if build is some_rows else exact.sum(1)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("dtype", [Float, Half])
def test_weights_that_rows_need_are_summed_up_for_the_end_elsewhere(
    dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loop over rows has that sum, and none but these has the weights."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1], True, dtype)
        weights = fd.ops.cast(w, Float)
        rows = fd.ops.sum(x * fd.ops.broadcast(weights, [True, False]), [1])
        fd.add_output(fd.ops.sum(fd.ops.sqrt(rows), [0]) / fd.ops.sum(weights, [0]))
    assert fd.fusion is not None
    answer = ChainedReductionScheduler().accepts(fd.fusion.ir_fusion)
    assert isinstance(answer, Refused)
    assert "is needed after all rows, and reduced from what each row needs" in answer.reason
    rng = np.random.default_rng(0)
    given = [np.abs(rng.normal(size=(40, 300))).astype("f4"), rng.random(300).astype(dtype.numpy)]
    (found,) = fd.execute(given, device="simulator")
    wide = [a.astype("f8") for a in given]
    np.testing.assert_allclose(found, np.sqrt(wide[0] @ wide[1]).sum() / wide[1].sum(), rtol=2e-5)


@pytest.mark.parametrize("define", [*STREAMED, *ROWS_KEPT])
def test_whole_fusions_are_one_segment(define: Definition) -> None:
    fusion = fusion_of(define, Half)
    assert isinstance(ChainedReductionScheduler().accepts(fusion), Accepted)
    assert [s.scheduler.type for s in segment_fusion(fusion).segments] == [SchedulerType.chained_reduction]


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (4, 0), (0, 0)])
@pytest.mark.parametrize("define", [mean_of_norms, norm_of_column_sums])
def test_nothing_to_reduce(define: Definition, rows: int, columns: int) -> None:
    x = np.zeros((rows, columns), np.float32)
    with FusionDefinition() as fd:
        define(fd, Float)
    (found,) = fd.execute([x], device="simulator")
    np.testing.assert_array_equal(found, np.nan if rows == 0 and define is mean_of_norms else 0.0)


@pytest.mark.parametrize("most", [chained_reduction.MAX_BLOCKS, 2])
def test_rows_in_shared_memory(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gathered from a row that lies in shared memory is read from the input: other threads copied it."""
    monkeypatch.setattr(chained_reduction, "MAX_BLOCKS", most)
    propose_only(monkeypatch, lambda m: m.in_shared and not m.groups)
    rows, columns = 5, 40_000
    answer = proposal(fusion_of(chosen_beside_normalised, Float), rows, columns, SMALL)
    assert isinstance(answer, ChainedParams)
    assert isinstance(answer.rows, InnerPersistentParams)
    assert "t0" in answer.rows.in_shared
    check(chosen_beside_normalised, rows, columns)


@pytest.mark.parametrize(("rows", "columns"), [(300, 520), (257, 1000)])
def test_short_rows_element_by_element(rows: int, columns: int) -> None:
    """Blocks of a small device go over them."""
    fusion = fusion_of(cross_entropy, Float)
    x, target = arrays_for(cross_entropy, rows, columns + 1, Float)
    arrays = [x[:, :-1], np.minimum(target, columns - 1)]
    simulator = SimulatorDevice(info=replace(H200, sm_count=2))
    kernel = KernelCompiler(simulator).compile(fusion, [described(a) for a in arrays])
    found = run_on(simulator, kernel, fusion, arrays)
    (expected,) = expected_of(cross_entropy, arrays)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], expected, rtol=5e-5)


def test_an_output_that_also_updates_an_input_lies_as_that_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops for the rows alone take it for an output of its own otherwise, along which vectors would be stored."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, BFloat16)
        turned, least = fd.ops.permute(x, [0, 2, 1]), fd.ops.min(x, [0, 2])
        for result in (turned, least, fd.ops.max(least, [0])):
            fd.add_output(result)
        fd.add_output(turned, x)
    array = np.random.default_rng(0).normal(size=(8, 8, 8)).astype(ml_dtypes.bfloat16).transpose(0, 2, 1)
    before = array.copy()
    found = fd.execute([array], device="simulator")
    np.testing.assert_array_equal(found[0], before.transpose(0, 2, 1))
    np.testing.assert_array_equal(array, before.transpose(0, 2, 1))
    np.testing.assert_array_equal(found[1], before.min((0, 2)))
    np.testing.assert_array_equal(found[2], before.min((0, 2)).max())


@pytest.mark.in_turns
@pytest.mark.parametrize("device", ["H200", "sm_80"])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=lambda d: d.name)
@pytest.mark.parametrize("what", ["sum", "var", "both", "five sums"])
@pytest.mark.parametrize("shape", [(1, 3, 76_800), (9, 1, 8505), (9, 3, 20_000)], ids=str)
def test_long_rows_that_blocks_share_are_cut_from_what_is_chained_to_them(
    what: str, shape: tuple[int, int, int], dtype: DataType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end in the last block of each row, of which none has all rows."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True, dtype)
        rows = fd.ops.sum(x, [2])
        if what != "var":
            for k in range(5 if what == "five sums" else 1):
                fd.add_output(fd.ops.sum(fd.ops.pow(rows, k + 1.5), [0, 1]))
        if what in ("var", "both"):
            fd.add_output(fd.ops.var(rows, [0, 1]))
    assert fd.fusion is not None
    given = TensorDescriptor(dtype, shape, (shape[1] * shape[2], shape[2], 1))
    fusion = fd.fusion.ir_fusion
    program = compile_fusion(fusion, bind_inputs(fusion, [given]), SimulatorDevice(info=DeviceInfo.preset(device)))
    assert program.kernels
