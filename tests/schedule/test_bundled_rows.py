"""Rows of short odd parts in bundles: whole vectors, the same results, and barriers of which none is too many."""

from __future__ import annotations

from collections.abc import Callable
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
from fuser.schedule import bundled_rows
from fuser.simulator.device import SimulatorDevice
from tests.harness import Lowered, run_on
from tests.kernel_corpus import Case
from tests.mutation import Judge, Verdict, What, describe, mutants
from tests.oracle import Array

H200 = DeviceInfo.preset("H200")
Float, Half, BFloat16 = DataType.Float, DataType.Half, DataType.BFloat16
Definition = Callable[[FusionDefinition, DataType], None]
AXES = (0, 2, 3)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles, however small the rows are."""
    monkeypatch.setattr(bundled_rows, "ELEMENT_RATE", 1e-3)


def batch_norm(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
    w, b = (fd.define_tensor(shape=[-1], dtype=Float, contiguity=True) for _ in range(2))
    o = fd.ops
    f = o.cast(x, Float)
    variance, mean = o.var_mean(f, list(AXES), 0, True)
    y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
    wide = [o.broadcast(v, [True, False, True, True]) for v in (w, b)]
    fd.add_output(o.cast(o.add(o.mul(y, wide[0]), wide[1]), dtype))


def with_statistics(fd: FusionDefinition, dtype: DataType) -> None:
    """The mean is a result, too, of which no digit may be lost: two passes."""
    x = fd.define_tensor(shape=[-1] * 4, dtype=dtype, contiguity=True)
    o = fd.ops
    f = o.cast(x, Float)
    variance, mean = o.var_mean(f, list(AXES), 0, True)
    fd.add_output(o.cast(o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5))), dtype))
    fd.add_output(mean)


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
    if define is batch_norm:
        return [image, *(rng.normal(size=shape[1]).astype(np.float32) for _ in range(2))]
    return [rng.normal(size=shape).astype(dtype.numpy), image] if define is backward else [image]


def expected_of(define: Definition, arrays: list[Array]) -> list[Array]:
    x, *rest = (a.astype(np.float64) for a in arrays)
    if define is backward:
        (f,) = rest
        return [x - 0.01 * x.sum(AXES, keepdims=True) - f * 0.01 * (x * f).sum(AXES, keepdims=True)]
    mean, variance = x.mean(AXES, keepdims=True), x.var(AXES, keepdims=True)
    y = (x - mean) / np.sqrt(variance + 1e-5)
    if define is batch_norm:
        w, b = (v.reshape(1, -1, 1, 1) for v in rest)
        return [y * w + b]
    return [y, mean]


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


def is_bundled(kernel: CompiledKernel) -> bool:
    return "threadIdx.y" in kernel.source and "fuser_copy_async_16(&t0_cache" in kernel.source


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("define", [batch_norm, with_statistics, backward])
@pytest.mark.parametrize("shape", [(9, 16, 7, 7), (3, 24, 5, 5), (41, 8, 1, 21), (2, 8, 11, 11), (1, 16, 7, 7)])
def test_results(define: Definition, shape: tuple[int, ...]) -> None:
    dtype = Half if shape[0] % 2 else BFloat16
    fusion, simulator = fusion_of(define, dtype), SimulatorDevice(info=H200)
    arrays = inputs_of(define, shape, dtype)
    kernel = KernelCompiler(simulator).compile(fusion, described(arrays, fusion))
    assert is_bundled(kernel)
    results = run_on(simulator, kernel, fusion, arrays)
    for t, expected in zip(fusion.output_tensors, expected_of(define, arrays), strict=True):
        found = results[t.name].astype(np.float64)
        scale = np.abs(expected) + np.sqrt(np.mean(expected**2))
        assert np.max(np.abs(found - expected) / scale) < (1e-6 if t.dtype is Float else 8e-3)


@pytest.mark.usefixtures("always")
def test_rows_that_do_not_fit_are_read_by_element() -> None:
    for shape in ((9, 12, 7, 7), (9, 16, 8, 8), (65, 16, 7, 7), (9, 16, 3, 3), (3, 8, 13, 13)):
        fusion = fusion_of(batch_norm, BFloat16)
        arrays = inputs_of(batch_norm, shape, BFloat16)
        kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion, described(arrays, fusion))
        assert "_cache_before_2" not in kernel.source, shape


def test_few_channels_are_left_to_more_blocks() -> None:
    for channels, expected in ((16, False), (2048, True)):
        image = TensorDescriptor(BFloat16, (64, channels, 7, 7), (49 * channels, 49, 7, 1))
        vectors = [TensorDescriptor(Float, (channels,), (1,))] * 2
        kernel = KernelCompiler(H200).compile(fusion_of(batch_norm, BFloat16), [image, *vectors])
        assert is_bundled(kernel) == expected
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0


@pytest.mark.usefixtures("always")
def test_every_missing_barrier_is_reported() -> None:
    fusion, simulator = fusion_of(batch_norm, BFloat16), SimulatorDevice(info=H200)
    shape = (9, 8, 7, 7)
    kernel = KernelCompiler(simulator).compile(fusion, described(inputs_of(batch_norm, shape, BFloat16), fusion))
    ir = kernel.kernel_ir
    assert ir is not None
    lowered = Lowered.from_kernel(fusion, ir, kernel.facts)
    case = Case("bundles", "bundles", lambda: pytest.fail("made already"), ((shape, (8,), (8,)),))
    judge = Judge(case, lowered)
    found = [m for m in mutants(ir) if m.what is What.barrier]
    assert len(found) >= 2
    for mutant in found:
        verdict, evidence = judge.verdict(replace(mutant))
        assert verdict is Verdict.reported, f"{evidence}\n{describe(case, mutant)}"
