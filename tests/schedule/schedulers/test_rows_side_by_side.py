"""Rows whose elements lie side by side, as those of three channels that come last: over clusters, by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.simulator.device import SimulatorDevice
from tests.end_to_end.mutation import Judge, Verdict, What, describe, mutants
from tests.fusions.kernel_corpus import Case
from tests.judging.harness import Lowered, run_on
from tests.judging.oracle import Array

H200 = DeviceInfo.preset("H200")
Double, Float, Half, BFloat16 = DataType.Double, DataType.Float, DataType.Half, DataType.BFloat16
AXES = (0, 1, 2)
Definition = Callable[[FusionDefinition, DataType], None]
ULP = {BFloat16: 2.0**-8, Half: 2.0**-11, Float: 2.0**-23, Double: 2.0**-51}


def batch_norm(fd: FusionDefinition, dtype: DataType) -> None:
    """Channels last, the image as it lies in memory."""
    x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
    wide = Double if dtype is Double else Float
    w, b = (fd.define_tensor(shape=[-1], dtype=wide, contiguity=True) for _ in range(2))
    o = fd.ops
    f = o.cast(x, wide)
    variance, mean = o.var_mean(f, list(AXES), 0, True)
    y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
    vectors = [o.broadcast(v, [True, True, True, False]) for v in (w, b)]
    fd.add_output(o.cast(o.add(o.mul(y, vectors[0]), vectors[1]), dtype))


def backward(fd: FusionDefinition, dtype: DataType) -> None:
    """Two inputs with rows, two sums."""
    dy, x = (fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True) for _ in range(2))
    o = fd.ops
    g, f = o.cast(dy, Float), o.cast(x, Float)
    db, dw = o.sum(g, list(AXES), keepdim=True), o.sum(o.mul(g, f), list(AXES), keepdim=True)
    fd.add_output(o.cast(o.sub(o.sub(g, o.mul(db, 0.01)), o.mul(o.mul(f, dw), 0.01)), dtype))


def inputs_of(define: Definition, shape: tuple[int, ...], dtype: DataType) -> list[Array]:
    rng = np.random.default_rng(shape)
    image = (rng.normal(size=shape) + 3).astype(dtype.numpy)
    if define is backward:
        return [rng.normal(size=shape).astype(dtype.numpy), image]
    wide = np.float64 if dtype is Double else np.float32
    return [image, *(rng.normal(size=shape[-1]).astype(wide) for _ in range(2))]


def expected_of(define: Definition, arrays: list[Array]) -> Array:
    x, *rest = (a.astype(np.longdouble) for a in arrays)
    if define is backward:
        (f,) = rest
        return x - 0.01 * x.sum(AXES, keepdims=True) - f * 0.01 * (x * f).sum(AXES, keepdims=True)
    w, b = rest
    return (x - x.mean(AXES, keepdims=True)) / np.sqrt(x.var(AXES, keepdims=True) + 1e-5) * w + b


def fusion_of(define: Definition, dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)


def described(arrays: list[Array], fusion: Fusion) -> list[TensorDescriptor]:
    return [
        TensorDescriptor(t.dtype, a.shape, tuple(s // a.itemsize for s in a.strides))
        for t, a in zip(fusion.input_tensors, arrays, strict=True)
    ]


@pytest.mark.parametrize(
    ("define", "shape", "dtype"),
    [
        (batch_norm, (2, 40, 41, 3), Half),
        (batch_norm, (1, 57, 33, 2), Float),
        (batch_norm, (1, 64, 31, 4), BFloat16),
        (batch_norm, (1, 50, 50, 3), Double),
        (backward, (2, 30, 30, 3), BFloat16),
    ],
)
def test_results(define: Definition, shape: tuple[int, ...], dtype: DataType) -> None:
    fusion, simulator = fusion_of(define, dtype), SimulatorDevice(info=H200)
    arrays = inputs_of(define, shape, dtype)
    kernel = KernelCompiler(simulator).compile(fusion, described(arrays, fusion))
    (output,) = fusion.output_tensors
    found = run_on(simulator, kernel, fusion, arrays)[output.name].astype(np.longdouble)
    expected = expected_of(define, arrays)
    scale = np.abs(expected) + np.sqrt(np.mean(expected**2))
    assert np.max(np.abs(found - expected) / scale) < 2 * ULP[dtype]


def test_many_channels_and_large_images_are_left_to_more_blocks() -> None:
    for shape in ((2, 224, 224, 64), (64, 224, 224, 3)):
        fusion = fusion_of(batch_norm, Half)
        strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(4))
        vectors = [TensorDescriptor(Float, shape[-1:], (1,))] * 2
        kernel = KernelCompiler(H200).compile(fusion, [TensorDescriptor(Half, shape, strides), *vectors])
        assert kernel.plan is not None
        assert kernel.plan.cooperative, shape


def test_no_kernel_spills() -> None:
    for shape in ((2, 224, 224, 3), (1, 300, 300, 4), (8, 112, 112, 2)):
        for dtype in (Half, Float):
            fusion = fusion_of(batch_norm, dtype)
            strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(4))
            vectors = [TensorDescriptor(Float, shape[-1:], (1,))] * 2
            kernel = KernelCompiler(H200).compile(fusion, [TensorDescriptor(dtype, shape, strides), *vectors])
            assert kernel.resources is not None
            assert kernel.resources.spill_bytes == 0, (shape, dtype)


def test_every_missing_barrier_is_reported() -> None:
    fusion, simulator = fusion_of(batch_norm, Half), SimulatorDevice(info=H200)
    shape = (1, 40, 41, 3)
    kernel = KernelCompiler(simulator).compile(fusion, described(inputs_of(batch_norm, shape, Half), fusion))
    ir = kernel.kernel_ir
    assert ir is not None
    lowered = Lowered.from_kernel(fusion, ir, kernel.facts)
    judge = Judge(Case("side", "side", lambda: pytest.fail("made already"), ((shape, (3,), (3,)),)), lowered)
    for mutant in (m for m in mutants(ir) if m.what is What.barrier):
        verdict, evidence = judge.verdict(replace(mutant))
        assert verdict is Verdict.reported, f"{evidence}\n{describe(judge.case, mutant)}"
