"""Columns whose rows a block holds in registers: correctness for any sizes, one read of the data, and chained reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import BlockBarrier, walk
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.nvrtc import is_available
from fuser.schedule.cost import outer_persistent_mappings
from fuser.schedule.cost.outer_persistent_mappings import COLUMNS, ColumnMapping, ColumnSpace
from fuser.schedule.params import ChainedParams, OuterPersistentParams, Params
from fuser.schedule.scheduler import Refused
from fuser.schedule.schedulers import outer_persistent
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.judging.harness import run_on
from tests.judging.oracle import Array

Float, Half, BFloat16, Double = DataType.Float, DataType.Half, DataType.BFloat16, DataType.Double
SMALL = replace(H200, sm_count=2, max_cluster=1)
"""Few SMs, which few columns keep busy."""
CLUSTERS, ONE_SM = replace(H200, sm_count=16), replace(H200, sm_count=1, max_cluster=1)
TOLERANCE = {Float: 3e-5, Half: 4e-3, BFloat16: 3e-2, Double: 1e-10}
Definition = Callable[[FusionDefinition, DataType], None]


def image(fd: FusionDefinition, dtype: DataType, dense: bool = True) -> Any:
    return fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=[True, True, dense, True])


def wide_of(dtype: DataType) -> DataType:
    return Double if dtype is Double else Float


def layer_norm(fd: FusionDefinition, dtype: DataType) -> None:
    """With weights of the channels."""
    o = fd.ops
    x, w = image(fd, dtype), fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = o.cast(x, wide_of(dtype))
    variance, mean = o.var_mean(f, [1], 0, True)
    y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
    y = o.mul(y, o.broadcast(o.cast(w, wide_of(dtype)), [True, False, True, True]))
    fd.add_output(o.cast(y, dtype))
    fd.add_output(mean)


def softmax(fd: FusionDefinition, dtype: DataType) -> None:
    """Of images whose rows may be padded."""
    o = fd.ops
    f = o.cast(image(fd, dtype, dense=False), wide_of(dtype))
    e = o.exp(o.sub(f, o.max(f, [1], keepdim=True)))
    fd.add_output(o.cast(o.div(e, o.sum(e, [1], keepdim=True)), dtype))


def softmax_backward(fd: FusionDefinition, dtype: DataType) -> None:
    o = fd.ops
    y, dy = (o.cast(image(fd, dtype), wide_of(dtype)) for _ in range(2))
    fd.add_output(o.cast(o.mul(y, o.sub(dy, o.sum(o.mul(y, dy), [1], keepdim=True))), dtype))


def norm_of_two_dims(fd: FusionDefinition, dtype: DataType) -> None:
    """What is reduced has a kept dim between."""
    o = fd.ops
    f = o.cast(image(fd, dtype), wide_of(dtype))
    norm = o.sqrt(o.sum(o.mul(f, f), [0, 2], keepdim=True))
    fd.add_output(o.cast(o.div(f, o.add(norm, 1e-3)), dtype))


def batch_norm(fd: FusionDefinition, dtype: DataType) -> None:
    """Of channels that come last: rows are all pixels."""
    o = fd.ops
    f = o.cast(image(fd, dtype), wide_of(dtype))
    variance, mean = o.var_mean(f, [0, 1, 2], 0, True)
    fd.add_output(o.cast(o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5))), dtype))
    fd.add_output(variance)


def segmentation_loss(fd: FusionDefinition, dtype: DataType) -> None:
    """The logarithm of softmax, looked up by a label for each pixel, then the mean."""
    o = fd.ops
    x, label = image(fd, dtype), fd.define_tensor(shape=[-1] * 3, dtype=DataType.Int, contiguity=True)
    f = o.cast(x, wide_of(dtype))
    largest = o.max(f, [1], keepdim=True)
    total = o.log(o.sum(o.exp(o.sub(f, largest)), [1], keepdim=True))
    at = o.broadcast(label, [False, True, False, False])
    loss = o.sub(o.add(total, largest), o.cast(o.take_along_axis(x, at, 1), wide_of(dtype)))
    fd.add_output(o.sum(loss, [0, 1, 2, 3]))


def largest_probabilities(fd: FusionDefinition, dtype: DataType) -> None:
    """Rows are needed twice before the last reduction."""
    o = fd.ops
    f = o.cast(image(fd, dtype), wide_of(dtype))
    e = o.exp(o.sub(f, o.max(f, [1], keepdim=True)))
    p = o.div(e, o.sum(e, [1], keepdim=True))
    fd.add_output(o.sum(o.max(p, [1]), [0, 1, 2]))


def expected_of(define: Definition, arrays: list[Array]) -> list[Array]:
    x, *rest = (a.astype(np.float64) for a in arrays)
    if define is layer_norm:
        mean = x.mean(1, keepdims=True)
        return [(x - mean) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * rest[0].reshape(-1, 1, 1), mean]
    if define is softmax_backward:
        return [x * (rest[0] - (x * rest[0]).sum(1, keepdims=True))]
    if define is batch_norm:
        variance = x.var((0, 1, 2), keepdims=True)
        return [(x - x.mean((0, 1, 2), keepdims=True)) / np.sqrt(variance + 1e-5), variance]
    if define is norm_of_two_dims:
        return [x / (np.sqrt((x * x).sum((0, 2), keepdims=True)) + 1e-3)]
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    if define is softmax:
        return [p]
    if define is largest_probabilities:
        return [p.max(1).sum()]
    return [-np.log(np.take_along_axis(p, arrays[1][:, None], 1)).sum()]


def arrays_for(define: Definition, shape: tuple[int, ...], dtype: DataType, pad: int = 0) -> list[Array]:
    rng = np.random.default_rng(shape)
    full = rng.normal(size=(*shape[:3], shape[3] + pad)).astype(dtype.numpy)[..., : shape[3]]
    if define is layer_norm:
        return [full, rng.normal(size=shape[1]).astype(dtype.numpy)]
    if define is softmax_backward:
        return [full, rng.normal(size=shape).astype(dtype.numpy)]
    if define is segmentation_loss:
        return [full, rng.integers(shape[1], size=(shape[0], *shape[2:]))]
    return [full]


def fusion_of(define: Definition, dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def described(a: Array, dtype: DataType) -> TensorDescriptor:
    return TensorDescriptor(dtype, a.shape, tuple(s // a.itemsize for s in a.strides))


def planned(define: Definition, arrays: list[Array], dtype: DataType, device: DeviceInfo) -> tuple[Fusion, Any, Params]:
    fusion = fusion_of(define, dtype)
    described_inputs = [described(a, t.dtype) for a, t in zip(arrays, fusion.input_tensors, strict=True)]
    (segment,) = segment_fusion(fusion).segments
    return fusion, described_inputs, KernelCompiler(device).propose(segment, bind_inputs(fusion, described_inputs))


def check(
    define: Definition, shape: tuple[int, ...], dtype: DataType = Float, device: DeviceInfo = SMALL, pad: int = 0
) -> CompiledKernel:
    arrays = arrays_for(define, shape, dtype, pad)
    fusion, inputs, params = planned(define, arrays, dtype, device)
    held = params.rows if isinstance(params, ChainedParams) else params
    assert isinstance(held, OuterPersistentParams)
    assert held.reduction.grid_reduce == 1 or held.reduction.cluster
    kernel = KernelCompiler(SimulatorDevice(info=device)).compile(fusion, inputs)
    found = run_on(SimulatorDevice(info=device), kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        value = found[t.name].astype(np.float64).reshape(np.shape(expected))
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(np.square(expected))))
        assert np.all(np.abs(value - expected) <= TOLERANCE[dtype] * scale + 1e-6), t.name
    return kernel


def as_reduced(define: Definition, shape: tuple[int, ...]) -> tuple[int, ...]:
    """With as many elements of a reduction, or more, where two dims are reduced."""
    return (-(-shape[1] // 2), 9 * shape[2], 12, shape[3]) if define is norm_of_two_dims else shape


NORMALISATIONS: list[Definition] = [layer_norm, softmax, softmax_backward, norm_of_two_dims]
LOSSES: list[Definition] = [segmentation_loss, largest_probabilities]


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*NORMALISATIONS, *LOSSES])
@pytest.mark.parametrize("shape", [(2, 19, 7, 9), (1, 33, 5, 64), (3, 40, 4, 8), (2, 130, 3, 31)])
def test_any_shape(define: Definition, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    check(define, as_reduced(define, shape))


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*NORMALISATIONS, *LOSSES])
@pytest.mark.parametrize("dtype", [Half, BFloat16, Double])
@pytest.mark.parametrize("last", [31, 40])
def test_dtypes(define: Definition, dtype: DataType, last: int) -> None:
    check(define, as_reduced(define, (2, 24, 6, last)), dtype)


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("dtype", [Float, Half])
def test_rows_that_lie_apart(dtype: DataType, pad: int) -> None:
    check(softmax, (2, 33, 5, 40), dtype, pad=pad)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [*NORMALISATIONS, batch_norm])
@pytest.mark.parametrize("sharing", [2, 4])
@pytest.mark.parametrize("dtype", [Float, BFloat16])
def test_columns_over_clusters(
    define: Definition, sharing: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block has a part of the rows, all of it in registers, and no block waits for others through device memory."""

    def shared(space: ColumnSpace, device: DeviceInfo) -> Iterator[ColumnMapping]:
        return outer_persistent_mappings._mappings(space, sharing, device)

    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setattr(outer_persistent, "COLUMNS", replace(COLUMNS, mappings=shared))
    monkeypatch.setattr(outer_persistent, "propose_grid_persistent", lambda *_: Refused("clusters are asked about"))
    kernel = check(define, as_reduced(define, (2, 67, 3, 24)), dtype, CLUSTERS)
    assert kernel.plan is not None
    assert kernel.plan.cluster is not None
    assert not kernel.plan.cooperative


def test_threads_that_share_a_column_meet_for_each_sum() -> None:
    """Two sums of a statistic, and the rest of the first; a thread that is alone with its columns meets no one."""
    few, many = check(layer_norm, (2, 130, 3, 31)), check(layer_norm, (2, 24, 64, 31))
    assert few.kernel_ir is not None
    assert many.kernel_ir is not None
    assert sum(isinstance(s, BlockBarrier) for s in walk(few.kernel_ir.body)) > 2
    assert not any(isinstance(s, BlockBarrier) for s in walk(many.kernel_ir.body))


@pytest.mark.parametrize("define", [layer_norm, softmax_backward])
@pytest.mark.parametrize("shape", [(2, 96, 5, 33), (2, 97, 6, 32)])
def test_each_input_is_read_once(define: Definition, shape: tuple[int, ...]) -> None:
    """Every element of an image is the source of one load: each input stands in one loop, beside that of the last rows."""
    kernel = check(define, shape, BFloat16)
    text = kernel.source
    body = text[text.index("fuser_kernel(") :]
    loops = body.count("= t0[") + body.count("(&t0[")
    assert loops == 1 + (shape[1] % 2)


def test_blocks_of_pixels_go_over_all_images() -> None:
    """As many as are co-resident: each leaves one partial sum."""
    shape = (4, 19, 96, 96)
    _, _, params = planned(segmentation_loss, arrays_for(segmentation_loss, shape, Half), Half, SMALL)
    assert isinstance(params, ChainedParams)
    assert isinstance(params.rows, OuterPersistentParams)
    assert params.rows.reduction.block_reduce == 1
    assert params.rows.reduction.unroll == 19
    assert 0 < params.blocks <= SMALL.sm_count * SMALL.max_blocks_per_sm
    check(segmentation_loss, shape, Half)


def test_the_kernel_is_for_so_many_channels_and_any_images() -> None:
    """Channels are known when it is compiled: no row is tested where threads have as many of them."""
    kernel = check(layer_norm, (2, 96, 5, 33), BFloat16)
    body = kernel.source[kernel.source.index("fuser_kernel(") :]
    assert "t0_size1" not in body
    assert "t0_size0" in body


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("define", [*NORMALISATIONS, *LOSSES])
@pytest.mark.parametrize(
    ("channels", "dtype", "last"), [(96, BFloat16, 57), (256, Half, 56), (768, Half, 7), (64, Float, 57)]
)
def test_rows_fit_in_registers(define: Definition, channels: int, dtype: DataType, last: int) -> None:
    if define is largest_probabilities and last == 7:
        pytest.skip("few columns of so many rows are two kernels")
    shape = (channels // 8, 256, 8, last) if define is norm_of_two_dims else (32, channels, last, last)
    descriptors = [
        TensorDescriptor(dtype, shape, (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1)),
    ]
    pixels = (shape[0], *shape[2:])
    if define is layer_norm:
        descriptors.append(TensorDescriptor(dtype, (channels,), (1,)))
    if define is softmax_backward:
        descriptors.append(descriptors[0])
    if define is segmentation_loss:
        descriptors.append(TensorDescriptor(DataType.Int, pixels, (pixels[1] * pixels[2], pixels[2], 1)))
    fusion = fusion_of(define, dtype)
    kernel = KernelCompiler(H200).compile(fusion, descriptors)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


@pytest.mark.parametrize("columns", [64, 640])
def test_values_of_columns_are_computed_in_each_trip(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of all trips a thread would hold those of all of its columns."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    o = (fd := FusionDefinition()).ops
    with fd:
        x = fd.define_tensor(shape=[-1] * 3, dtype=Double, contiguity=True)
        fd.add_output(o.max(o.abs(o.sum(x, [0, 1])), [0]))
        column = o.broadcast(o.iota(o.size(x, 2)), [True, True, False])
        row = o.broadcast(o.iota(o.size(x, 1)), [True, False, True])
        fd.add_output(o.where(o.ge(column, row), x, 0.0))
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)
    data = np.random.default_rng(0).normal(size=(16, 16, columns))
    kernel = KernelCompiler(SimulatorDevice(info=ONE_SM)).compile(fusion, [described(data, Double)])
    found = run_on(SimulatorDevice(info=ONE_SM), kernel, fusion, [data.copy()])
    largest, upper = (found[t.name] for t in fusion.output_tensors)
    np.testing.assert_allclose(largest, np.abs(data.sum((0, 1))).max(), rtol=1e-12)
    np.testing.assert_array_equal(upper, np.triu(data))
