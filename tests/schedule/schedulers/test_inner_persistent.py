"""Rows in registers: shapes of the spread, correctness at ragged lengths, one read of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion
from fuser.ir.kernel import BlockBarrier, ClusterWait, ExchangeWait, walk
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.schedule.params import InnerPersistentParams, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on

H200 = DeviceInfo.preset("H200")


def softmax(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    e = fd.ops.exp(fd.ops.sub(f, fd.ops.max(f, [1], keepdim=True)))
    fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)), dtype))


def layer_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    y = fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), DataType.Float))
    fd.add_output(fd.ops.cast(y, dtype))
    fd.add_output(mean)


def add_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    r = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
    h = fd.ops.add(x, r)
    f = fd.ops.cast(h, DataType.Float)
    s = fd.ops.sum(fd.ops.mul(f, f), [1], keepdim=True)
    fd.add_output(fd.ops.cast(fd.ops.mul(f, fd.ops.rsqrt(s)), dtype))
    fd.add_output(h)


def group_norm(fd: FusionDefinition, dtype: DataType = DataType.Float) -> None:
    x = fd.define_tensor(shape=[-1, -1, -1, -1], dtype=dtype, contiguity=True)
    variance, mean = fd.ops.var_mean(x, [2, 3], 0, True)
    fd.add_output(fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5))))


Definition = Callable[[FusionDefinition, DataType], None]


def fusion_of(define: Definition, dtype: DataType = DataType.Float) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def described(dtype: DataType, *sizes: int) -> TensorDescriptor:
    strides = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        strides[d] = strides[d + 1] * sizes[d + 1]
    return TensorDescriptor(dtype, sizes, tuple(strides))


def kernel_for(
    define: Definition, *shapes: tuple[int, ...], dtype: DataType = DataType.Float, device: DeviceInfo = H200
) -> CompiledKernel:
    inputs = [described(dtype, *s) for s in shapes]
    return KernelCompiler(SimulatorDevice(info=device)).compile(fusion_of(define, dtype), inputs)


def reference(define: Definition, arrays: list[np.ndarray]) -> list[np.ndarray]:
    x = arrays[0].astype(np.float64)
    if define is softmax:
        e = np.exp(x - x.max(1, keepdims=True))
        return [e / e.sum(1, keepdims=True)]
    if define is layer_norm:
        mean = x.mean(1, keepdims=True)
        return [(x - mean) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * arrays[1].astype(np.float64), mean]
    if define is group_norm:
        return [(x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)]
    h = (arrays[0] + arrays[1]).astype(np.float64)
    return [h / np.sqrt((h * h).sum(1, keepdims=True)), h]


def check(define: Definition, *shapes: tuple[int, ...], dtype: DataType = DataType.Float, offset: float = 0.0) -> None:
    rng = np.random.default_rng(7)
    arrays = [(rng.normal(size=s) + (offset if i == 0 else 0.0)).astype(dtype.numpy) for i, s in enumerate(shapes)]
    with FusionDefinition() as fd:
        define(fd, dtype)
    results = fd.execute(arrays, device="simulator")
    tolerance = 2e-5 if dtype is DataType.Float else 1.2e-2
    for found, expected in zip(results, reference(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(np.asarray(found).astype(np.float64) - expected) <= tolerance * scale + 1e-30)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("rows", "length"),
    [(1, 1), (3, 2), (5, 31), (7, 33), (2, 257), (9, 64), (2, 1000), (3, 1024), (133, 40), (2, 4099)],
)
def test_rows_of_any_length(define: Definition, rows: int, length: int) -> None:
    shapes: dict[Definition, list[tuple[int, ...]]] = {
        softmax: [(rows, length)],
        layer_norm: [(rows, length), (length,)],
        add_norm: [(rows, length)] * 2,
    }
    check(define, *shapes[define])


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [8, 136, 1001])
def test_sixteen_bit_rows(define: Definition, length: int) -> None:
    shapes: dict[Definition, list[tuple[int, ...]]] = {
        softmax: [(5, length)],
        layer_norm: [(5, length), (length,)],
        add_norm: [(5, length)] * 2,
    }
    check(define, *shapes[define], dtype=DataType.BFloat16)


def test_moments_of_rows_far_from_zero() -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(3, 515)) + 3e3).astype(np.float32)
    with FusionDefinition() as fd:
        layer_norm(fd)
    found = fd.execute([x, np.ones(515, np.float32)], device="simulator")[0]
    exact = x.astype(np.float64)
    expected = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    # The mean is 3e3: half an ulp of it is 1.2e-4 of a deviation of 1, and that is all that is lost.
    np.testing.assert_allclose(found, expected, atol=1.5e-4)


def test_two_reduced_dims() -> None:
    check(group_norm, (2, 3, 4, 5))
    check(group_norm, (2, 3, 8, 16))


def test_nan_and_infinity_stay_in_their_row() -> None:
    x = np.random.default_rng(2).normal(size=(4, 65)).astype(np.float32)
    x[1, 64] = np.nan
    x[2, 0] = -np.inf
    with FusionDefinition() as fd:
        softmax(fd)
    found = np.asarray(fd.execute([x], device="simulator")[0])
    assert np.isnan(found[1]).all()
    assert found[2, 0] == 0
    assert np.isfinite(found[[0, 2, 3]]).all()


def test_the_data_is_read_once_in_wide_accesses() -> None:
    kernel = kernel_for(softmax, (4096, 4096), dtype=DataType.BFloat16)
    assert kernel.source.count("&t0[") == 1
    assert kernel.source.count("reinterpret_cast<const uint4*>(&t0[") == 1


def test_a_row_in_a_warp_needs_no_barrier() -> None:
    kernel = kernel_for(softmax, (4096, 512), dtype=DataType.BFloat16)
    assert kernel.kernel_ir is not None
    assert not any(isinstance(s, BlockBarrier) for s in walk(kernel.kernel_ir.body))
    assert kernel.plan is not None
    assert kernel.plan.block[1].value > 1, "rows share a block"


def test_a_row_that_fills_the_threads_is_not_tested() -> None:
    exact = kernel_for(softmax, (4096, 4096))
    ragged = kernel_for(softmax, (4096, 4092))
    assert exact.source.count("if (") < ragged.source.count("if (")


def norm_of_a_single_row(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[1, -1], dtype=dtype, contiguity=[None, True])
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    fd.add_output(fd.ops.cast(fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), DataType.Float)), dtype))


@pytest.mark.parametrize("length", [257, 1024, 50257, 250003])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
def test_what_a_single_row_has_one_of_is_computed_outside_of_its_loops(length: int, dtype: DataType) -> None:
    fusion = fusion_of(norm_of_a_single_row, dtype)
    bound = bind_inputs(fusion, [described(dtype, 1, length), described(dtype, length)])
    (launch,) = compile_fusion(fusion, bound, SimulatorDevice(info=H200)).launches()
    _, body = launch.kernel.source.split('extern "C"')
    (root,) = [line for line in body.splitlines() if "rsqrt" in line]
    assert len(root) - len(root.lstrip()) == 2, root


def test_rows_too_long_go_to_the_next_scheduler() -> None:
    fusion = fusion_of(softmax)
    small = replace(H200, registers_per_sm=2048, max_threads_per_block=64, shared_per_block_optin=2048)
    inputs = sizes_of(fusion, 4, 100_000)
    answer = InnerPersistentScheduler().propose(fusion, inputs, small)
    assert isinstance(answer, Refused)
    assert "does not fit" in answer.reason
    kernel = KernelCompiler(SimulatorDevice(info=small)).compile(fusion, [described(DataType.Float, 4, 100_000)])
    assert kernel.source.count("&t0[") > 1, "the next one reads the row for each stage"


def sizes_of(fusion: Fusion, *sizes: int) -> SegmentInputs:
    bound = bind_inputs(fusion, [described(DataType.Float, *sizes)])
    return SegmentInputs(bound.tensors, bound.evaluate)


def test_one_kernel_for_many_row_counts() -> None:
    fusion = fusion_of(layer_norm, DataType.BFloat16)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    sources = {
        compiler.compile(fusion, [described(DataType.BFloat16, m, 1024), described(DataType.BFloat16, 1024)]).source
        # A single row is a fact of its kernel, and has one of its own.
        for m in (2, 3, 7, 50, 131, 132, 133, 500, 1000, 4096, 16383, 100_003)
    }
    assert len(sources) <= 4


def test_params_explain_themselves() -> None:
    fusion = fusion_of(softmax)
    inputs = sizes_of(fusion, 64, 1000)
    params = InnerPersistentScheduler().propose(fusion, inputs, H200)
    assert isinstance(params, InnerPersistentParams)
    assert any("registers" in r for r in params.reasons)
    assert hash(params) == hash(replace(params, reasons=()))


@pytest.mark.parametrize(("length", "cluster"), [(600, 2), (1000, 4), (1777, 8), (4000, 16)])
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
def test_rows_over_clusters(define: Definition, length: int, cluster: int) -> None:
    """A device with few registers: rows of a few hundred elements take clusters."""
    small = replace(
        H200, registers_per_sm=16384, max_threads_per_block=32, registers_per_thread=48, shared_per_block_optin=2048
    )
    rng = np.random.default_rng(3)
    shapes: dict[Definition, list[tuple[int, ...]]] = {
        softmax: [(3, length)],
        layer_norm: [(3, length), (length,)],
        add_norm: [(3, length)] * 2,
    }
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes[define]]
    fusion = fusion_of(define)
    compiler = KernelCompiler(SimulatorDevice(info=small))
    kernel = compiler.compile(fusion, [described(DataType.Float, *a.shape) for a in arrays])
    assert kernel.plan is not None
    assert kernel.plan.cluster is not None
    found = run_on(SimulatorDevice(info=H200), kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, reference(define, arrays), strict=True):
        np.testing.assert_allclose(found[t.name], expected, rtol=2e-5, atol=2e-6)


def test_what_is_costly_is_computed_again_where_it_would_not_fit() -> None:
    fusion = fusion_of(softmax, DataType.BFloat16)
    bound = bind_inputs(fusion, [described(DataType.BFloat16, 64, 1 << 20)])
    params = InnerPersistentScheduler().propose_near(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert (params.cluster, params.inputs_only) == (16, True)


@pytest.mark.parametrize("length", [600, 1000])
@pytest.mark.parametrize("in_shared", [False, True])
def test_long_rows_meet_once(length: int, in_shared: bool) -> None:
    """Maximum and sum of exponentials in one exchange of the cluster; rows with nothing but -infinity, with nan, far apart."""
    room = 8192 if in_shared else 2048
    small = replace(
        H200,
        registers_per_sm=16384,
        max_threads_per_block=32,
        max_threads_per_sm=32,
        registers_per_thread=48,
        shared_per_block_optin=room,
    )
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, length)).astype(np.float32)
    x[1] = -np.inf
    x[2, ::3] = -np.inf
    x[3, 7] = np.nan
    x[4] *= 60
    x[5, -1] = np.inf
    fusion = fuse_exp_sums(fusion_of(softmax))
    kernel = KernelCompiler(SimulatorDevice(info=small)).compile(fusion, [described(DataType.Float, *x.shape)])
    assert kernel.plan is not None
    assert kernel.kernel_ir is not None
    if kernel.plan.cluster is not None:
        waits = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, (ClusterWait, ExchangeWait))]
        assert len(waits) == 2, "one for the start, one for the exchange"
    assert in_shared or kernel.plan.cluster is not None
    found = run_on(SimulatorDevice(info=H200), kernel, fusion, [x])
    with np.errstate(all="ignore"):
        below = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        want = below / below.sum(1, keepdims=True)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], want, rtol=2e-5, atol=1e-30)


def test_rows_in_shared_memory_are_passed_over_once_where_a_block_is_alone() -> None:
    cases: list[tuple[Definition, list[tuple[int, ...]], bool]] = [
        (softmax, [(64, 1 << 20)], True),
        (softmax, [(2048, 65536)], False),
        (layer_norm, [(64, 1 << 20), (1 << 20,)], False),
    ]
    for define, shapes, expected in cases:
        fusion = fuse_exp_sums(fusion_of(define, DataType.BFloat16))
        bound = bind_inputs(fusion, [described(DataType.BFloat16, *s) for s in shapes])
        params = InnerPersistentScheduler().propose_near(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
        assert isinstance(params, InnerPersistentParams)
        assert params.in_shared
        assert params.one_pass is expected


def test_what_has_a_part_of_a_row_is_not_placed() -> None:
    """Several blocks of a row need the same element of it: each reads it where it is used."""

    def define(fd: FusionDefinition, dtype: DataType) -> None:
        x, w = fd.define_tensor([-1, -1, -1], True, dtype), fd.define_tensor([-1, 1, -1], True, dtype)
        y = fd.ops.mul(x, w)
        fd.add_output(fd.ops.sub(y, fd.ops.sum(y, [1, 2], keepdim=True)))

    shapes = (40, 32, 2048), (40, 1, 2048)
    tensors = {f"t{k}": described(DataType.Float, *s) for k, s in enumerate(shapes)}
    evaluate = bind_inputs(fusion_of(define), list(tensors.values())).evaluate
    params = InnerPersistentScheduler().propose(fusion_of(define), SegmentInputs(tensors, evaluate), H200)
    assert isinstance(params, InnerPersistentParams)
    assert (params.in_shared, params.cluster > 1) == (("t0",), True)
    kernel_for(define, *shapes)
