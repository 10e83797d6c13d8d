"""Few rows with statistics: shapes that fit, and rows of parts that lie apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.schedule.cost.latency_bound_rows import MOST_ACCESSES, LatencyBoundRows, choose_latency_bound_shape
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on

H200 = DeviceInfo.preset("H200")
Float, BFloat16, Double = DataType.Float, DataType.BFloat16, DataType.Double


@pytest.mark.parametrize("rows", [1, 3, 64, 132, 400, 528, 3000])
@pytest.mark.parametrize("length", [40, 1023, 5168, 100_352])
@pytest.mark.parametrize("vector", [1, 8])
def test_shapes_fit(rows: int, length: int, vector: int) -> None:
    few = LatencyBoundRows(rows, length, vector, 4, 2, is_searched=False)
    shape = choose_latency_bound_shape(few, 2, 32, H200)
    if shape is None:
        assert rows > 4 * 132 or rows * length > 132 * 24_000, "more than the device holds at once"
        return
    assert shape.threads * shape.batch * shape.cluster * vector >= length
    assert shape.batch <= MOST_ACCESSES
    assert shape.threads <= H200.max_threads_per_block
    assert shape.registers * shape.threads <= H200.registers_per_sm
    assert shape.cluster == 1 or rows * shape.cluster <= 4 * 132


def test_fewer_rows_than_processors_share_them() -> None:
    few = LatencyBoundRows(3, 100_352, 8, 4, 2, is_searched=False)
    shape = choose_latency_bound_shape(few, 2, 32, H200)
    assert shape is not None
    assert shape.cluster == 16
    alone = choose_latency_bound_shape(replace(few, rows=128), 2, 32, replace(H200, max_cluster=1))
    assert alone is None or alone.cluster == 1


def batch_norm(dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
        w = fd.define_tensor(shape=[-1], dtype=Float, contiguity=True)
        o = fd.ops
        f = x if dtype is Double else o.cast(x, Float)
        variance, mean = o.var_mean(f, [0, 2, 3], 0, True)
        y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
        fd.add_output(o.cast(o.mul(y, o.broadcast(w, [True, False, True, True])), dtype))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def compiled(dtype: DataType, shape: tuple[int, ...]) -> CompiledKernel:
    _, c, h, w = shape
    image = TensorDescriptor(dtype, shape, (c * h * w, h * w, w, 1))
    return KernelCompiler(H200).compile(batch_norm(dtype), [image, TensorDescriptor(Float, (c,), (1,))])


@pytest.mark.parametrize("dtype", [Float, BFloat16])
@pytest.mark.parametrize("shape", [(2, 3, 28, 32), (8, 5, 7, 7), (3, 2, 40, 56), (2, 4, 31, 33)])
def test_batch_norm_of_images(dtype: DataType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    image = (rng.normal(size=shape) + 3).astype(dtype.numpy)
    weight = rng.normal(size=shape[1]).astype(np.float32)
    fusion, simulator = batch_norm(dtype), SimulatorDevice(info=H200)
    described = [
        TensorDescriptor(d, a.shape, tuple(s // a.itemsize for s in a.strides))
        for d, a in ((dtype, image), (Float, weight))
    ]
    kernel = KernelCompiler(simulator).compile(fusion, described)
    (out,) = fusion.output_tensors
    found = run_on(simulator, kernel, fusion, [image, weight])[out.name].astype(np.float64)
    exact, axes = image.astype(np.float64), (0, 2, 3)
    centred = exact - exact.mean(axes, keepdims=True)
    expected = centred / np.sqrt(exact.var(axes, keepdims=True) + 1e-5) * weight.reshape(1, -1, 1, 1)
    scale = np.abs(expected) + np.sqrt(np.mean(expected**2))
    assert np.max(np.abs(found - expected) / scale) < (1e-6 if dtype is Float else 8e-3)


@pytest.mark.parametrize("dtype", [Float, BFloat16])
@pytest.mark.parametrize("shape", [(8, 5, 300, 301), (8, 5, 300, 300), (4, 9, 200, 201), (16, 20, 112, 112)])
def test_nothing_spills(dtype: DataType, shape: tuple[int, ...]) -> None:
    """Rows of images that lie apart and begin anywhere: each access has an address of its own."""
    resources = compiled(dtype, shape).resources
    assert resources is not None
    assert resources.spill_bytes == resources.stack_bytes == 0


def test_images_of_a_known_size_are_found_without_long_divisions() -> None:
    body = compiled(BFloat16, (8, 5, 7, 7)).source.split("fuser_kernel(")[1]
    assert "/ 49" in body
    assert "% 49" in body
    assert "t0_size2" not in body, "a fact"


def test_blocks_of_a_cluster_exchange_once() -> None:
    """They wait for one another to run, and for the exchange."""
    for dtype in (BFloat16, Float, Double):
        kernel = compiled(dtype, (2, 3, 224, 224))
        assert kernel.plan is not None
        assert kernel.plan.cluster == (1, 16, 1)
        body = kernel.source.split("fuser_kernel(")[1]
        assert body.count("barrier.cluster.wait") + body.count("fuser_wait_bytes(") == 2
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0


@pytest.mark.parametrize("dtype", [Float, BFloat16])
def test_group_norm_of_few_images_is_a_cluster_that_meets_once(dtype: DataType) -> None:
    """Its weights are few: they do not stand against sums in Double."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
        w, b = (fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True) for _ in range(2))
        o = fd.ops
        f, scale, shift = (o.cast(t, Float) for t in (x, w, b))
        variance, mean = o.var_mean(f, [1, 2, 3], 0, True)
        y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
        scale, shift = (o.broadcast(t, [True, False, True, True]) for t in (scale, shift))
        fd.add_output(o.cast(o.add(o.mul(y, scale), shift), dtype))
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)
    image = TensorDescriptor(dtype, (2, 3, 224, 224), (3 * 224 * 224, 224 * 224, 224, 1))
    weight = TensorDescriptor(dtype, (3,), (1,))
    kernel = KernelCompiler(H200).compile(fusion, [image, weight, weight])
    assert kernel.plan is not None
    assert kernel.plan.cluster == (1, 16, 1)
    body = kernel.source.split("fuser_kernel(")[1]
    assert body.count("barrier.cluster.wait") + body.count("fuser_wait_bytes(") == 2
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


def layer_norm(weight: DataType) -> Fusion:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype=BFloat16, contiguity=True)
        w = fd.define_tensor(shape=[-1], dtype=weight, contiguity=True)
        o = fd.ops
        f = o.cast(x, Float)
        variance, mean = o.var_mean(f, [1], 0, True)
        y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
        wide = o.broadcast(w if weight is Float else o.cast(w, Float), [True, False])
        fd.add_output(o.cast(o.mul(y, wide), BFloat16))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


@pytest.mark.parametrize("weight", [Float, BFloat16])
@pytest.mark.parametrize(("rows", "length"), [(1, 6144), (40, 4096), (20, 7168)])
def test_a_row_that_has_an_sm_for_itself_takes_one_pass(rows: int, length: int, weight: DataType) -> None:
    shapes = [
        TensorDescriptor(BFloat16, (rows, length), (length, 1)),
        TensorDescriptor(weight, (length,), (1,)),
    ]
    fusion = layer_norm(weight)
    kernel = KernelCompiler(H200).compile(fusion, shapes)
    assert kernel.plan is not None
    if kernel.plan.cluster is not None:
        return
    assert kernel.source.split("fuser_kernel(")[1].count("__syncthreads()") == 1
    rng = np.random.default_rng(rows)
    arrays = [
        (rng.normal(size=(rows, length)) + 3).astype(BFloat16.numpy),
        rng.normal(size=length).astype(weight.numpy),
    ]
    simulator = SimulatorDevice(info=H200)
    simulated = KernelCompiler(simulator).compile(fusion, shapes)
    (out,) = fusion.output_tensors
    found = run_on(simulator, simulated, fusion, arrays)[out.name].astype(np.float64)
    exact, scale = (a.astype(np.float64) for a in arrays)
    expected = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * scale
    assert np.max(np.abs(found - expected) / (np.abs(expected) + 1)) < 2.0**-7


def test_warps_and_elements_of_such_a_row_are_balanced() -> None:
    """Not an access of each of a thousand threads, nor many of each of a few."""
    for loaded, vector, length in ((10, 4, 3072), (10, 4, 7168), (6, 8, 16384)):
        few = LatencyBoundRows(30, length, vector, 4, 2, is_searched=False, loaded=loaded)
        shape = choose_latency_bound_shape(few, 2, 32, replace(H200, max_cluster=1))
        assert shape is not None
        assert shape.one_pass
        assert 2 <= shape.batch <= 4
        assert shape.threads <= 512
