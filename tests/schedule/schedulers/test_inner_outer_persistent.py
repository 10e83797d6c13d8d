"""Row statistics and column sums in one pass: correctness in every regime, shapes of the pass, one read of the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import AsyncCopy, SpinWait, walk
from fuser.ir.ops.enums import SchedulerType
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.cost.inner_outer_mappings import SUMS, InnerOuterMapping, columns_of_block
from fuser.schedule.cost.inner_outer_space import SizedInnerOuter, find_inner_outer
from fuser.schedule.cost.inner_outer_work import INNER_OUTER
from fuser.schedule.params import InnerOuterParams, RowsOverGrid
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.schedulers import inner_outer_persistent
from fuser.schedule.schedulers.inner_outer_persistent import InnerOuterPersistentScheduler, params_of
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.fusions.inner_outer import (
    DEFINITIONS,
    BFloat16,
    Definition,
    Float,
    Half,
    arrays_for,
    described,
    expected_of,
    fusion_of,
    layer_norm_backward,
    moments_both_ways,
    rms_norm_backward,
    softmax_and_sums,
)
from tests.judging.harness import run_on
from tests.judging.oracle import Array

H200 = DeviceInfo.preset("H200")


def kernel_for(define: Definition, arrays: list[Array], dtype: DataType, device: DeviceInfo) -> CompiledKernel:
    fusion = fusion_of(define, dtype)
    (segment,) = segment_fusion(fusion).segments
    assert segment.scheduler.type is SchedulerType.inner_outer_persistent
    return KernelCompiler(SimulatorDevice(info=device)).compile(fusion, [described(a) for a in arrays])


def check(
    define: Definition,
    rows: int,
    length: int,
    dtype: DataType = Float,
    device: DeviceInfo = H200,
    offset: float = 0.0,
    tolerance: float | None = None,
) -> CompiledKernel:
    arrays = arrays_for(define, rows, length, dtype, offset)
    kernel = kernel_for(define, arrays, dtype, device)
    fusion = fusion_of(define, dtype)
    found = run_on(SimulatorDevice(info=device), kernel, fusion, arrays)
    bound = tolerance if tolerance is not None else 3e-5 if dtype is Float else 1.5e-2
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = found[t.name].astype(np.float64)
        assert value.shape == expected.shape
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(value - expected) <= bound * scale + 1e-6), t.name
    return kernel


SMALL = replace(H200, sm_count=2)


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels are no choice: see test_side_by_side.py."""
    monkeypatch.setattr(inner_outer_persistent, "can_split_rows_and_columns", lambda _: False)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (2, 3), (40, 31), (7, 33), (130, 8), (3, 1000), (21, 64)])
def test_any_shape(define: Definition, rows: int, length: int) -> None:
    check(define, rows, length, device=SMALL)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize("dtype", [BFloat16, Half])
@pytest.mark.parametrize(("rows", "length"), [(37, 264), (64, 128), (5, 1001)])
def test_sixteen_bits(define: Definition, dtype: DataType, rows: int, length: int) -> None:
    check(define, rows, length, dtype, SMALL)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "device",
    [
        replace(H200, sm_count=1, max_blocks_per_sm=1),
        replace(H200, sm_count=3, registers_per_sm=32768),
        replace(H200, sm_count=5, max_threads_per_block=64),
        replace(H200, sm_count=2, max_threads_per_sm=256),
    ],
    ids=["one block", "few registers", "small blocks", "few threads"],
)
@pytest.mark.parametrize("define", DEFINITIONS)
def test_regimes(define: Definition, device: DeviceInfo) -> None:
    check(define, 67, 200, device=device)
    check(define, 20, 320, BFloat16, device)


def test_one_kernel_reads_the_data_once() -> None:
    shape = (16384, 4096)
    arrays = [np.broadcast_to(np.zeros(1, BFloat16.numpy), s) for s in (shape, shape, (4096,))]
    descriptors = [TensorDescriptor(BFloat16, a.shape, (4096, 1)[2 - a.ndim :]) for a in arrays]
    descriptors += [TensorDescriptor(Float, (16384, 1), (1, 1))] * 2
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(layer_norm_backward), descriptors)
    assert kernel.kernel_ir is not None
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    assert sum(isinstance(s, SpinWait) for s in walk(kernel.kernel_ir.body)) == 1
    for name in ("t0", "t1"):
        # Before the loop for the first trip, and in it for the next.
        assert kernel.source.count(f"&{name}[") == 2
        assert kernel.source.count(f"reinterpret_cast<const uint4*>(&{name}[") == 2


def test_parts_are_asked_for_together() -> None:
    """All loads of a turn stand before the first addition, and a block leaves one part, however many rows it has at once."""
    rows, length = TensorDescriptor(BFloat16, (65536, 256), (256, 1)), TensorDescriptor(BFloat16, (256,), (1,))
    statistic = TensorDescriptor(Float, (65536, 1), (1, 1))
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion_of(layer_norm_backward), [rows, rows, length, statistic, statistic]
    )
    text = kernel.source
    sums = text[text.index("all blocks have arrived") :]
    loads = [line for line in sums.splitlines() if "__ldcg(" in line]
    assert len(loads) == 4, "two sums, each in turns with and without tests"
    assert all("partial" not in line.split("=")[0] for line in loads)
    assert kernel.plan is not None
    blocks, threads = kernel.plan.grid[0].value, kernel.plan.block
    assert threads[2].value > 1, "rows side by side"
    assert [w.count.value for w in kernel.plan.workspaces] == [blocks * 256] * 2


def test_only_the_last_access_is_tested() -> None:
    """A row that needs all accesses of each thread is known to fill all but the last."""
    rows, weight = TensorDescriptor(BFloat16, (100_003, 257), (257, 1)), TensorDescriptor(BFloat16, (257,), (1,))
    statistic = TensorDescriptor(Float, (100_003, 1), (1, 1))
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion_of(layer_norm_backward), [rows, rows, weight, statistic, statistic]
    )
    assert kernel.plan is not None
    x, y, _ = (threads.value for threads in kernel.plan.block)
    over_rows = kernel.source[: kernel.source.index("all blocks have arrived")]
    tests = [line for line in over_rows.splitlines() if "< t0_size1" in line and line.strip().startswith("if")]
    assert tests
    assert all(f"tid_y + {256 // (x * y) * x * y} < t0_size1" in line for line in tests)


def test_sums_of_large_values_are_as_good_as_their_rows() -> None:
    check(moments_both_ways, 50, 40, device=SMALL, offset=1000.0, tolerance=2e-3)


@pytest.mark.parametrize("threads", [32, 96, 256, 896])
@pytest.mark.parametrize("blocks", [1, 4, 132, 528])
@pytest.mark.parametrize("length", [1, 300, 7168, 100_000])
def test_few_blocks_take_their_columns_in_few_trips(threads: int, blocks: int, length: int) -> None:
    """Or with all their threads side by side, or as many along a column as there are parts of it."""
    across = columns_of_block(length, InnerOuterMapping(SUMS, 8, threads, 1, 1, blocks))
    assert threads % across == 0
    assert 16 * across * blocks >= length or threads // across <= blocks


@pytest.mark.parametrize(("rows", "why"), [(8, "over a cluster of"), (4096, "blocks with rows of their own")])
def test_params_explain_themselves(rows: int, why: str) -> None:
    fusion = fusion_of(rms_norm_backward, Float)
    bound = bind_inputs(fusion, [described(a) for a in arrays_for(rms_norm_backward, rows, 1000, Float)])
    params = InnerOuterPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerOuterParams)
    assert any(why in r for r in params.reasons)
    assert hash(params) == hash(replace(params, reasons=()))


def rows_after_sums(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    o = fd.ops
    fd.add_output(o.sub(o.sub(x, o.sum(x, [0], keepdim=True)), o.sum(x, [1], keepdim=True)))


def sums_of_sums(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    fd.add_output(fd.ops.sum(fd.ops.sum(x, [0]), [0]))


def one_kind(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    fd.add_output(fd.ops.sum(x, [0]))


@pytest.mark.parametrize(
    ("define", "reason"),
    [
        (rows_after_sums, "needs sums over all rows"),
        (sums_of_sums, "reduced from less than the whole"),
        (one_kind, "is not two sets of dimensions"),
    ],
)
def test_refusals(define: Definition, reason: str) -> None:
    answer = InnerOuterPersistentScheduler().accepts(fusion_of(define, Float))
    assert isinstance(answer, Refused)
    assert reason in answer.reason


@pytest.mark.parametrize("shape", [(3, 40_000), (0, 7), (7, 0)], ids=["long rows", "no rows", "no columns"])
def test_other_sizes_get_other_kernels(shape: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        softmax_and_sums(fd, Float)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if 0 in shape:
        with FusionDefinition() as fd:
            v = fd.define_tensor(shape=[-1, -1], dtype=Float, contiguity=True)
            fd.add_output(fd.ops.sum(v, [1]))
            fd.add_output(fd.ops.sum(v, [0]))
        first, second = fd.execute([x], device="simulator")
        np.testing.assert_array_equal(first, np.zeros(shape[0], np.float32))
        np.testing.assert_array_equal(second, np.zeros(shape[1], np.float32))
        return
    found = fd.execute([x], device="simulator")
    for value, expected in zip(found, expected_of(softmax_and_sums, [x]), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "length", "taken"),
    [(410, 3072, True), (410, 7168, True), (410, 12288, True), (100_003, 64, True), (410, 10_000_000, False)],
)
def test_sums_of_doubles_have_two_registers(rows: int, length: int, taken: bool) -> None:
    """None spill, and rows that nothing holds are refused."""
    with FusionDefinition() as fd:
        dy, x, w = (fd.define_tensor(shape, True, DataType.Double) for shape in ([-1, -1], [-1, -1], [-1]))
        weighted = dy * fd.ops.broadcast(w, [True, False])
        c1, c2 = (fd.ops.sum(t, 1, keepdim=True) for t in (x * weighted, weighted))
        fd.add_output(weighted - (x * c1 + c2))
        fd.add_output(fd.ops.sum(dy * x, 0))
        fd.add_output(fd.ops.sum(dy, 0))
    assert fd.fusion is not None
    wide = TensorDescriptor(DataType.Double, (rows, length), (length, 1))
    fusion = fd.fusion.ir_fusion
    (segment,) = segment_fusion(fusion).segments
    bound = bind_inputs(fusion, [wide, wide, TensorDescriptor(DataType.Double, (length,), (1,))])
    if taken:
        kernel, _ = KernelCompiler(H200).compile_segment(segment, bound)
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0
    else:
        with pytest.raises(SchedulingError, match="does not fit on chip"):
            KernelCompiler(H200).compile_segment(segment, bound)


def rows_of_blocks(fusion: Fusion, inputs: SegmentInputs) -> tuple[SizedInnerOuter, InnerOuterParams]:
    """The best parameters for blocks that have rows of their own, in registers."""
    found = find_inner_outer(fusion, inputs)
    assert not isinstance(found, Refused)
    mappings = (m for _, m in INNER_OUTER.ranked(found.space, SMALL))
    params = params_of(found, next(m for m in mappings if m.exchange == SUMS and not m.in_shared), SMALL)
    assert isinstance(params, InnerOuterParams)
    return found, params


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "length"), [(40, 32), (130, 8), (7, 1000), (3, 260), (21, 64)])
@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_rows_in_shared_memory(define: Definition, rows: int, length: int, prefetch: int) -> None:
    arrays = arrays_for(define, rows, length, Float)
    fusion = fusion_of(define, Float)
    (segment,) = segment_fusion(fusion).segments
    bound = bind_inputs(fusion, [described(a) for a in arrays])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    found, proposed = rows_of_blocks(fusion, inputs)
    params = replace(proposed, in_shared=found.read, prefetch=prefetch)
    device = SimulatorDevice(info=SMALL)
    kernel, _ = KernelCompiler(device).compile_segment(segment, bound, params)
    results = run_on(device, kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(results[t.name].astype(np.float64) - expected) <= 3e-5 * scale + 1e-6), t.name
    assert kernel.kernel_ir is not None
    copies = [s.dst.name for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert {n.split("_")[0] for n in copies} == set(found.read)


@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "length"), [(41, 32), (130, 8), (21, 64)])
def test_two_rows_at_once_and_none_ahead(define: Definition, rows: int, length: int) -> None:
    arrays = arrays_for(define, rows, length, Float)
    fusion = fusion_of(define, Float)
    (segment,) = segment_fusion(fusion).segments
    bound = bind_inputs(fusion, [described(a) for a in arrays])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    _, proposed = rows_of_blocks(fusion, inputs)
    params = replace(proposed, rows=2, distribution=RowsOverGrid(2, 1), prefetch=0)
    device = SimulatorDevice(info=SMALL)
    kernel, _ = KernelCompiler(device).compile_segment(segment, bound, params)
    results = run_on(device, kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(results[t.name].astype(np.float64) - expected) <= 3e-5 * scale + 1e-6), t.name
