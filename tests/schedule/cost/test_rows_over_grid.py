"""Rows over groups of blocks of the grid: which rows go there, values, single rows, that all blocks fit, and few registers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion import ExpSum, Fusion
from fuser.ir.kernel import SpinWait, walk
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.runtime.nvrtc import is_available
from fuser.schedule.analysis.rows import find_rows
from fuser.schedule.cost import rows_over_grid
from fuser.schedule.cost.row_shapes import RowShape
from fuser.schedule.cost.rows_over_grid import Room, Row, access_time, choose_grid_shape, spreads_of
from fuser.schedule.params import InnerPersistentParams, Params, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on
from tests.schedule.cost.test_rows_in_shared import shapes_of
from tests.schedule.schedulers.test_inner_persistent import (
    H200,
    Definition,
    add_norm,
    described,
    fusion_of,
    layer_norm,
    reference,
    softmax,
)


def over_grid(
    segment: Fusion,
    inputs: SegmentInputs,
    device: DeviceInfo,
    threads: int,
    batch: int,
    groups: int,
    *,
    in_shared: bool = False,
) -> InnerPersistentParams:
    """Parameters for as many blocks of `threads` as it takes with `batch` accesses each."""
    rows = find_rows(segment, inputs)
    assert not isinstance(rows, Refused)
    vector = rows.accesses.vector
    sharing = -(-(rows.length + rows.cut) // (threads * batch * vector))
    bounds = rows.bounds(segment, inputs, threads * batch * sharing * vector - rows.cut)
    assert not isinstance(bounds, Refused)
    placed = rows.placed(device) if in_shared else ()
    assert bool(placed) is in_shared
    return InnerPersistentParams(
        rows.order,
        threads,
        1,
        batch,
        vector,
        rows.accesses.vectorized,
        bounds,
        sharing,
        in_shared,
        placed,
        groups,
        rows.accesses.misaligned,
        rows.accesses.aligned_to,
        any(isinstance(e, ExpSum) for e in segment.tensor_exprs),
        1,
    )


def force(monkeypatch: pytest.MonkeyPatch, threads: int, batch: int, groups: int, *, in_shared: bool = False) -> None:
    """Let the scheduler propose just that."""

    def propose(
        self: InnerPersistentScheduler, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> Params | Refused:
        return over_grid(segment, inputs, device, threads, batch, groups, in_shared=in_shared)

    monkeypatch.setattr(InnerPersistentScheduler, "propose", propose)


def compiled_and_run(define: Definition, dtype: DataType, rows: int, length: int) -> Any:
    """The kernel; its outputs are compared with float64."""
    shapes = shapes_of(define, rows, length)
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    device = SimulatorDevice(info=H200)
    kernel = KernelCompiler(device).compile(fusion, [described(dtype, *s) for s in shapes])
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in shapes]
    found = run_on(device, kernel, fusion, arrays)
    tolerance = 2e-5 if dtype is not DataType.BFloat16 else 1.2e-2
    for t, expected in zip(fusion.output_tensors, reference(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(found[t.name].astype(np.float64) - expected) <= tolerance * scale + 1e-6)
    return kernel


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
@pytest.mark.parametrize(("rows", "length", "groups"), [(5, 1000, 2), (3, 1544, 3), (2, 997, 1), (3, 1001, 4)])
@pytest.mark.parametrize("in_shared", [False, True])
def test_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    length: int,
    groups: int,
    in_shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One row a group and several, more groups than rows, rows that begin anywhere."""
    if in_shared and length % 8:
        pytest.skip("such rows are not copied in whole accesses")
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, 32, 2, groups, in_shared=in_shared)
    kernel = compiled_and_run(define, dtype, rows, length)
    assert kernel.plan.cooperative
    meetings = sum(isinstance(s, SpinWait) for s in walk(kernel.kernel_ir.body))
    assert meetings == (2 if define is layer_norm else 1), "mean and variance; maximum and sum at once"


def no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows that clusters would hold at once lie over groups as longer ones do."""
    monkeypatch.setattr(sys.modules[RowShape.__module__], "co_resident_shapes", lambda *_: [])
    monkeypatch.setattr(sys.modules[InnerPersistentScheduler.__module__], "is_worth_it", lambda *_: True)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("length", "in_grid"), [(40, False), (999, False), (100_000, True), (50_001, True), (50_001, False)]
)
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16])
def test_single_rows(
    define: Definition, length: int, in_grid: bool, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row alone is taken, too, though nothing tells its elements from weights: by a block, by a cluster or by a group."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    if in_grid:
        no_clusters(monkeypatch)
    seen: list[Params | Refused] = []
    propose = InnerPersistentScheduler.propose

    def noted(self: InnerPersistentScheduler, *arguments: Any) -> Params | Refused:
        seen.append(propose(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(InnerPersistentScheduler, "propose", noted)
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in shapes_of(define, 1, length)]
    with FusionDefinition() as fd:
        define(fd, dtype)
    found = fd.execute(arrays)
    assert isinstance(seen[-1], InnerPersistentParams)
    if define is not layer_norm:
        assert bool(seen[-1].in_grid) is in_grid
        assert (seen[-1].cluster > 1) is (length > 50_000)
    tolerance = 2e-5 if dtype is not DataType.BFloat16 else 1.2e-2
    for value, expected in zip(found, reference(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(value.astype(np.float64) - expected) <= tolerance * scale + 1e-6)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [100_000, 50_001])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Double])
def test_latency_bound_rows(define: Definition, length: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As proposed: with weights that are loaded before the blocks meet, where accesses are whole."""
    no_clusters(monkeypatch)
    kernel = compiled_and_run(define, dtype, 2, length)
    assert kernel.plan.cooperative or define is layer_norm


def test_weights_along_a_part_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group norm: a weight for each channel, of which a row has several."""
    module = sys.modules[InnerPersistentScheduler.__module__]
    monkeypatch.setattr(module, "near_time", lambda *_: 1e9)
    monkeypatch.setattr(module, "few_persistent_rows", lambda *_: None)

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor(shape=[-1, -1, -1, -1], dtype=DataType.Half, contiguity=True)
        w = fd.define_tensor(shape=[-1], dtype=DataType.Half, contiguity=True)
        f = fd.ops.cast(x, DataType.Float)
        variance, mean = fd.ops.var_mean(f, [1, 2, 3], 0, True)
        y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
        wide = fd.ops.broadcast(fd.ops.cast(w, DataType.Float), [True, False, True, True])
        fd.add_output(fd.ops.cast(fd.ops.mul(y, wide), DataType.Half))

    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    device = SimulatorDevice(info=H200)
    shapes = ((2, 3, 64, 96), (3,))
    fusion = fd.fusion.ir_fusion
    kernel = KernelCompiler(device).compile(fusion, [described(DataType.Half, *s) for s in shapes])
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(np.float16) for s in shapes]
    found = run_on(device, kernel, fusion, arrays)
    x, w = (a.astype(np.float64) for a in arrays)
    want = (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], want * w[:, None, None], rtol=2e-3, atol=2e-3)


def proposed(define: Definition, dtype: DataType, rows: int, length: int) -> InnerPersistentParams:
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    bound = bind_inputs(fusion, [described(dtype, *s) for s in shapes_of(define, rows, length)])
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    return params


CASES = [
    (softmax, DataType.BFloat16, 64, 1 << 20),
    (softmax, DataType.BFloat16, 1, 1_000_003),
    (softmax, DataType.Double, 2, 250_003),
    (layer_norm, DataType.Float, 2, 250_003),
    (add_norm, DataType.BFloat16, 1, 500_000),
    (add_norm, DataType.BFloat16, 9, 128_256),
    (add_norm, DataType.Double, 1, 250_003),
]


@pytest.mark.parametrize(("define", "dtype", "rows", "length"), CASES)
def test_few_long_rows_use_the_whole_device(define: Definition, dtype: DataType, rows: int, length: int) -> None:
    params = proposed(define, dtype, rows, length)
    assert params.in_grid
    blocks = params.cluster * params.blocks
    assert blocks <= params.in_grid * H200.sm_count, "all of them are there at once"
    assert blocks > (params.in_grid - 1) * H200.sm_count
    made = KernelCompiler(SimulatorDevice(info=H200))
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    kernel = made.compile(fusion, [described(dtype, *s) for s in shapes_of(define, rows, length)])
    from fuser.runtime import nvrtc

    source = kernel.source
    result = nvrtc.compile_to_cubin(source, [kernel.entry], "sm_90a", [f"-DFUSER_MAX_THREADS={params.threads}"])
    resources = result.resources[kernel.entry]
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert -(-resources.registers // 8) * 8 * params.threads * params.in_grid <= H200.registers_per_sm


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm], ids=lambda d: d.__name__)
@pytest.mark.parametrize("rows", [1, 2])
def test_what_is_proposed_for_few_long_rows_can_be_lowered(rows: int, define: Definition, dtype: DataType) -> None:
    """One row is a fact of its kernel: no loop over rows is left, and no next row to copy."""
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    shapes = shapes_of(define, rows, 1048576)
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion, [described(dtype, *s) for s in shapes])
    assert kernel.plan is not None
    assert kernel.plan.cooperative


def test_rows_that_clusters_serve_well_stay_there() -> None:
    for define, dtype, rows, length in (
        (softmax, DataType.BFloat16, 2048, 65536),
        (softmax, DataType.BFloat16, 16384, 4096),
        (layer_norm, DataType.BFloat16, 4096, 32768),
        (layer_norm, DataType.BFloat16, 1, 4096),
        (softmax, DataType.Float, 60, 1000),
    ):
        assert not proposed(define, dtype, rows, length).in_grid


@pytest.mark.parametrize("elements", [8192, 50257, 250_003, 1 << 20, 1 << 23])
@pytest.mark.parametrize("rows", [1, 3, 42, 500])
@pytest.mark.parametrize("room", [Room(True, 2, 40, 64), Room(False, 2, 32, 32), Room(False, 4, 40, 8)])
def test_shapes(elements: int, rows: int, room: Room) -> None:
    shape = choose_grid_shape(Row(elements, 8, 4, 1, is_double=False, is_cut=False), rows, room, H200, may_wait=True)
    if shape is None:
        assert elements > 1 << 20
        return
    held = shape.threads * shape.batch * 8
    assert held * shape.sharing >= elements > held * (shape.sharing - 1), "no block of a group is idle"
    assert shape.groups <= rows
    assert shape.groups * shape.sharing <= shape.resident * H200.sm_count
    assert shape.batch <= room.most_accesses


@pytest.mark.parametrize("accesses", [1, 100, 513, 8192, 31251, 1 << 17])
@pytest.mark.parametrize("threads", [128, 1024])
@pytest.mark.parametrize("fewest", [1, 4, 7])
def test_spreads_are_all_that_leave_no_thread_idle(accesses: int, threads: int, fewest: int) -> None:
    expected: list[tuple[int, int]] = []
    for batch in range(fewest, 49):
        sharing = -(-accesses // (threads * batch))
        if sharing > 1 and -(-accesses // (threads * sharing)) == batch:
            expected.append((batch, sharing))
    assert list(spreads_of(accesses, threads, fewest, 48)) == expected


@pytest.mark.parametrize("in_shared", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_shapes_are_left_out_by_the_least_they_take(
    in_shared: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, asked = rows_over_grid.expected_time, 0

    def watched(row: Row, rows: int, sharing: int, batch: int, *rest: Any, **named: Any) -> float:
        nonlocal asked
        asked += 1
        time = plain(row, rows, sharing, batch, *rest, **named)
        latency, exchange = rest[2:4]
        least = batch * access_time(row, H200, in_shared=in_shared) + (latency + row.exchanges * exchange)
        assert time >= least
        return time

    monkeypatch.setattr(rows_over_grid, "expected_time", watched)
    row = Row(128256, 8, 4, 2, is_double=False, is_cut=False)
    assert choose_grid_shape(row, rows, Room(in_shared, 2, 32, 64), H200) is not None
    assert 0 < asked < 30


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("define", [softmax, add_norm, layer_norm])
@pytest.mark.parametrize(
    ("rows", "length", "dtype"),
    [
        (5, 1_000_000, DataType.Float),
        (3, 4_000_000, DataType.Float),
        (3, 4_000_000, DataType.BFloat16),
        (3, 5_000_000, DataType.Float),
    ],
)
def test_registers_of_a_few_long_rows_suffice(rows: int, length: int, dtype: DataType, define: Definition) -> None:
    """What is counted once filled all registers; three blocks of 128 threads were counted as less than two of 256. Of rows in
    registers, tests of 15 accesses kept a sum each from row to row."""
    fusion = fuse_exp_sums(fusion_of(define, dtype))
    kernel = KernelCompiler(H200).compile(fusion, [described(dtype, *s) for s in shapes_of(define, rows, length)])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize(("rows", "length"), [(8, 128_256), (4, 128_256), (6, 128_256), (16, 50_256), (2, 250_000)])
@pytest.mark.parametrize("has_gradient", [False, True], ids=["rms_norm", "softmax_bwd"])
def test_several_blocks_of_sums_of_doubles_share_a_processor(rows: int, length: int, has_gradient: bool) -> None:
    """Registers were counted as of exponentials: one block a processor at most, or rows in the shared memory of clusters."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=DataType.Double, contiguity=True)
        if has_gradient:
            y = fd.define_tensor(shape=[-1, -1], dtype=DataType.Double, contiguity=True)
            fd.add_output(y * (x - fd.ops.sum(x * y, [1], keepdim=True)))
        else:
            fd.add_output(x * fd.ops.rsqrt(fd.ops.sum(x * x, [1], keepdim=True) + 1e-6))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    shapes = [described(DataType.Double, rows, length)] * len(fusion.input_tensors)
    bound = bind_inputs(fusion, shapes)
    params = InnerPersistentScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert params.in_grid
    assert not params.in_shared or has_gradient
    kernel = KernelCompiler(H200).compile(fusion, shapes)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    taken = -(-kernel.resources.registers // 8) * 8 * params.threads * params.in_grid
    assert taken <= H200.registers_per_sm
    if (rows, length) == (8, 128_256) and not has_gradient:
        assert (params.threads, params.batch, params.cluster, params.in_grid) == (512, 4, 32, 2)
