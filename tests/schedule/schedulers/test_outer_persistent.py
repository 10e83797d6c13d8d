"""Normalisations along the slower dims by blocks that wait for one another: correctness, shapes, and the way rows are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import SpinWait, walk
from fuser.ir.kernel.print_kernel import print_kernel
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.scheduler import Refused
from fuser.schedule.schedulers import outer_persistent
from fuser.schedule.schedulers.outer_persistent import ColumnAccessCost, OuterPersistentScheduler, choose_outer_shape
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.fusions.columns import (
    DEFINITIONS,
    BFloat16,
    Definition,
    Float,
    Half,
    arrays_for,
    batch_norm,
    expected_of,
    fusion_of,
    softmax_of_columns,
)
from tests.fusions.kernel_corpus import GX
from tests.judging.harness import check as check_schedule
from tests.judging.harness import integers, run_on
from tests.judging.oracle import Array

H200 = DeviceInfo.preset("H200")
SMALL = replace(H200, sm_count=6, max_cluster=1)
"""Few blocks, which meet in device memory."""


@pytest.fixture(autouse=True)
def over_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little data would lie in the registers of a block, which `test_outer_persistent_in_registers` asks about."""
    monkeypatch.setattr(outer_persistent, "propose_in_registers", lambda *_, **__: Refused("the grid is asked about"))


def described(a: Array) -> TensorDescriptor:
    name = {"bfloat16": BFloat16, "float16": Half, "float32": Float}[a.dtype.name]
    return TensorDescriptor(name, a.shape, tuple(s // a.itemsize for s in a.strides))


def check(
    define: Definition,
    rows: int,
    columns: int,
    dtype: DataType = Float,
    device: DeviceInfo = SMALL,
    offset: float = 0.0,
    tolerance: float | None = None,
) -> CompiledKernel:
    arrays = arrays_for(define, rows, columns, dtype, offset)
    fusion = fusion_of(define, dtype)
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(fusion, [described(a) for a in arrays])
    assert kernel.plan is not None
    assert kernel.plan.cooperative is (device.max_cluster == 1)
    found = run_on(SimulatorDevice(info=device), kernel, fusion, arrays)
    bound = tolerance if tolerance is not None else 3e-5 if dtype is Float else 1.5e-2
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = found[t.name].astype(np.float64)
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(value - expected) <= bound * scale + 1e-6), t.name
    return kernel


WAITS: dict[Definition, int] = dict.fromkeys(DEFINITIONS, 1)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize(("rows", "columns"), [(700, 8), (300, 33), (1500, 3), (513, 64)])
def test_any_shape(define: Definition, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    kernel = check(define, rows, columns)
    assert kernel.kernel_ir is not None
    assert sum(isinstance(s, SpinWait) for s in walk(kernel.kernel_ir.body)) == WAITS[define]


@pytest.mark.in_turns
@pytest.mark.parametrize("define", DEFINITIONS)
@pytest.mark.parametrize("dtype", [BFloat16, Half])
def test_sixteen_bits(define: Definition, dtype: DataType) -> None:
    check(define, 600, 72, dtype)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "device",
    [
        replace(SMALL, sm_count=2),
        replace(SMALL, sm_count=3, registers_per_sm=32768),
        replace(SMALL, sm_count=40, max_threads_per_block=64),
        replace(SMALL, sm_count=7, max_threads_per_sm=256),
    ],
    ids=["two blocks", "few registers", "small blocks", "few threads"],
)
@pytest.mark.parametrize("define", DEFINITIONS)
def test_regimes(define: Definition, device: DeviceInfo) -> None:
    check(define, 1100, 20, device=device)


@pytest.mark.parametrize("dtype", [Half, Float])
def test_one_turn_of_rows_whose_number_is_known(dtype: DataType) -> None:
    """There is no loop over turns, so none that could keep what it loads."""

    def define(fd: FusionDefinition, dtype: DataType) -> None:
        o = fd.ops
        x = fd.define_tensor([128, -1], True, dtype)
        e = o.exp(o.sub(x, o.max(x, [0], keepdim=True)))
        fd.add_output(e)

    device = replace(SMALL, sm_count=2)
    fusion = fusion_of(define, dtype)
    array = np.random.default_rng(0).random((128, 256 // dtype.itemsize)).astype(dtype.numpy)
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(fusion, [described(array)])
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    found = run_on(SimulatorDevice(info=device), kernel, fusion, [array])[fusion.output_tensors[0].name]
    wide = array.astype("f8")
    np.testing.assert_allclose(found.astype("f8"), np.exp(wide - wide.max(0)), rtol=2e-3 if dtype is Half else 1e-5)


def test_moments_of_columns_far_from_zero() -> None:
    # Half an ulp of a mean of 3e3 is 1.2e-4 of a deviation of 1, times a weight of up to 2.5: that is all that is lost.
    check(batch_norm, 400, 16, offset=3e3, tolerance=3e-4)


def test_rows_are_read_again_from_the_last_one() -> None:
    columns, rows = 256, 64 * 64 * 64
    image = TensorDescriptor(BFloat16, (64, columns, 64, 64), (4096 * columns, 1, 64 * columns, columns))
    vectors = [TensorDescriptor(Float, (columns,), (1,))] * 2
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(batch_norm, BFloat16), [image, *vectors])
    text = kernel.source
    assert rows == image.numel // columns
    assert text.count("reinterpret_cast<const uint4*>(&t0[") == 6, "iterations kept, others, second pass: each twice"
    assert kernel.plan is not None
    assert kernel.min_blocks == 1
    backwards = [line for line in text.splitlines() if "&t0[" in line and "- " in line]
    assert len(backwards) == 2
    assert text.count("__ldcs(") == 2, "what is kept on chip needs no place in the cache"
    assert text.count("(&t0_cache_after_0_kept[") == 4
    kept = 3 * 7 * 512 * 16
    assert kernel.plan.shared_bytes.value > kept, "the rows of three iterations of seven accesses"
    assert kernel.plan.shared_bytes.value + kept // 3 < H200.shared_per_sm + 28 * 1024, "room for those on their way"
    assert text.count("= rsqrtf(") == 1, "once for a column, before the second pass"


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [BFloat16, Float])
@pytest.mark.parametrize("columns", [64, 256, 1024])
def test_what_is_kept_fits_on_chip(dtype: DataType, columns: int) -> None:
    image = TensorDescriptor(dtype, (64, columns, 64, 64), (4096 * columns, 1, 64 * columns, columns))
    vectors = [TensorDescriptor(Float, (columns,), (1,))] * 2
    kernel = KernelCompiler(H200).compile(fusion_of(batch_norm, dtype), [image, *vectors])
    assert kernel.plan is not None
    assert "_kept" in kernel.source
    assert H200.shared_per_block_optin - 98304 < kernel.plan.shared_bytes.value <= H200.shared_per_block_optin
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


def test_a_loop_runs_backwards() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.pointwise("neg", [x], Float)
    out = b.pointwise("abs", [y], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    for name in (y.name, out.name):
        s.split(name, 1, 4)
        s.parallelize(name, 0, GX)
    s.inline_most()
    s.run_backwards(out.name, 1)
    with pytest.raises(SchedulingError, match="it is no serial loop"):
        s.run_backwards(out.name, 0)
    forwards, backwards = ScheduleBuilder(s.fusion), ScheduleBuilder(s.fusion)
    forwards.replay(r for r in s.records if r.verb != "run_backwards")
    backwards.replay(s.records)
    assert str(backwards) == str(s)
    kernels = [check_schedule(each, [integers((3, 13))]) for each in (forwards, backwards)]
    assert "t2[" in print_kernel(kernels[0])
    assert print_kernel(kernels[0]) != print_kernel(kernels[1])


@pytest.mark.parametrize("columns", [1, 3, 8, 33, 64, 256, 1024, 8192, 100_000])
@pytest.mark.parametrize("rows", [1, 100, 4096, 262_144])
@pytest.mark.parametrize("loaded", [16, 32])
def test_outer_shapes(rows: int, columns: int, loaded: int) -> None:
    shape = choose_outer_shape(rows, columns, ColumnAccessCost(vector=8, loaded=loaded, accumulators=32), 2, H200)
    if isinstance(shape, Refused):
        assert rows <= 100 or columns >= 8192
        return
    tiles = -(-columns // (8 * shape.across))
    assert shape.sharing >= 2
    assert tiles * shape.sharing <= 132, "the whole grid is resident, one block on each SM"
    threads = -(-shape.across * shape.along // 32) * 32
    assert shape.registers * threads <= 65536
    assert shape.across * 8 * 2 <= 256 or columns < 64


def test_few_rows_and_many_columns_go_to_the_next_scheduler() -> None:
    scheduler = OuterPersistentScheduler()
    fusion = fusion_of(softmax_of_columns, Float)
    assert not isinstance(scheduler.accepts(fusion), Refused)
    x = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
    with FusionDefinition() as fd:
        softmax_of_columns(fd, Float)
    (found,) = fd.execute([x], device="simulator")
    np.testing.assert_allclose(found, expected_of(softmax_of_columns, [x])[0], rtol=3e-5)


def test_channels_first_is_one_kernel() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * 4, dtype=Float, contiguity=True)
        variance, mean = fd.ops.var_mean(x, [0, 2, 3], 0, True)
        fd.add_output(fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5))))
    assert fd.fusion is not None
    assert len(segment_fusion(fd.fusion.ir_fusion).segments) == 1
    a = np.random.default_rng(0).normal(size=(6, 5, 4, 9)).astype(np.float32)
    (found,) = fd.execute([a], device="simulator")
    exact = a.astype(np.float64)
    expected = (exact - exact.mean((0, 2, 3), keepdims=True)) / np.sqrt(exact.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, expected, atol=2e-6)
